//! The price of channels.

use super::point::Point;
use crate::Bounds;

/// What a setting is worth: the logarithm of its goodput, less the price of its channels and of
/// loss.
///
/// N channels cost N^2 / (2 S^2) and a trifle: nothing to speak of while they are few, and where
/// copies bid for one bottleneck the price is what makes each the same size, since what the next
/// channel brings (1 - share) must equal (N / S)^2. Where goodput rises in proportion to channels,
/// no other share is taken, and there is no price.
#[derive(Clone, Copy, Debug)]
pub(super) struct Utility {
    /// S. Four copies on one path settle near 0.9 S each.
    scale: f64,
}

impl Utility {
    /// What a segment sent again costs others, in segments. Our own goodput shows what it costs us;
    /// Falcon's 10 gives up goodput on small windows, which lose a lot without harm.
    const LOSS: f64 = 3.0;
    /// Channels with fewer segments in flight recover from loss by timeouts, and those of others do
    /// too: the price rises.
    const WINDOW: f64 = 10.0;

    /// S is larger by this factor where round trips are known.
    const EVIDENT: f64 = 3.0;
    /// So that of two equal settings the smaller wins.
    const TIDY: f64 = 0.1;
    /// Elasticity of goodput that counts as proportion here: a channel more on a path of which we
    /// have an eighth.
    const FREE: f64 = 0.88;
    /// Elasticity that channels must bring where fewer of them fill a path with large windows: what
    /// they get, others lose. With a half, we take no more than half of the path.
    pub(super) const TAKEN: f64 = 0.5;

    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            scale: 0.55 * f64::from(bounds.channels_max.max(128)),
        }
    }

    /// For movers where channels are proven to buy nothing: then no other's share of the path is at
    /// stake.
    pub(super) const fn of_movers(self) -> Self {
        Self {
            scale: 6.0 * self.scale,
        }
    }

    /// What `more` is worth over `fewer`.
    pub(super) fn gain(self, fewer: &Point, more: &Point) -> f64 {
        let channels = |p: &Point| f64::from(p.setting.channels());
        let growth = (channels(more) / channels(fewer)).ln();
        let rise = (more.goodput_bps.max(1.0) / fewer.goodput_bps.max(1.0)).ln();
        if fewer.is_saturated() {
            rise - Self::TAKEN * growth
        } else if rise >= Self::FREE * growth {
            rise
        } else {
            self.of(more) - self.of(fewer)
        }
    }

    /// Goodput, less what segments that were lost cost others, bit/s.
    pub(super) fn harmless_bps(point: &Point) -> f64 {
        let kept = (1.0 - Self::LOSS * point.loss.unwrap_or(0.0)).clamp(0.1, 1.0);
        point.goodput_bps * kept
    }

    pub(super) fn of(self, point: &Point) -> f64 {
        let contention = point
            .window
            .map_or(1.0, |w| (Self::WINDOW / w).clamp(1.0, 4.0));
        // Among others the window says how many are fair; the price is for where nothing shows
        // them.
        let scale = match point.window {
            Some(_) => Self::EVIDENT * self.scale,
            None => self.scale,
        };
        let n = f64::from(point.setting.channels()) / scale;
        Self::harmless_bps(point).max(1.0).ln() - contention * n * n / 2.0 - Self::TIDY * n
    }
}
