//! A setting that was measured, and what its evidence says.

use std::time::Duration;

use crate::{Bottleneck, Observation, Setting, bottleneck};

/// Segments in flight of a channel that has its share of a path.
pub(super) const ROOMY: f64 = 128.0;
/// Full windows of this many paths keep a queue before the bottleneck, so that it has always
/// something to send.
const HEADROOM: f64 = 1.25;
/// With less than this they do not.
const HEADROOM_MIN: f64 = 1.15;
/// Share of the time that movers may wait for a processor, or have left, without a thought of more
/// of them.
const SERVED: f64 = 0.1;
/// Payload of a segment on most paths, bytes.
const SEGMENT_BYTES: f64 = 1448.0;
/// Round trips that became longer by this factor with more channels: they only fill a queue.
const QUEUES: f64 = 1.08;
/// Elasticity of goodput that says that channels which were given up are missed.
const MATTERS: f64 = 0.5;
/// Loss that grew by this factor with the channels is their doing.
const LOSS_RISE: f64 = 3.0;
/// Round trips from which an epoch takes seconds.
const FAR: Duration = Duration::from_millis(100);
/// Fewer losses say little about how many are usual.
const LOSSES_THAT_COUNT: f64 = 5.0;
/// Losses that chance may hide from a short epoch.
const LOSSES_UNSEEN: f64 = 3.0;

/// One setting, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) setting: Setting,
    pub(super) goodput_bps: f64,
    pub(super) loss: Option<f64>,
    /// Segments that arrived in the epoch, about.
    pub(super) segments: f64,
    /// Segments in flight of a channel, where the round-trip time is known.
    pub(super) window: Option<f64>,
    /// Goodput that each channel will have once it has met the losses of an epoch that has seen
    /// some without a queue, bit/s: CUBIC's window (RFC 9438, section 5.1) or Reno's (Mathis et al.
    /// 1997), whichever is larger.
    pub(super) lasting_bps: Option<f64>,
    /// An epoch takes seconds, since round trips are long.
    pub(super) is_far: bool,
    /// Round trips over the shortest, `1..`.
    pub(super) rtt_inflation: Option<f64>,
    pub(super) limit: Option<Bottleneck>,
    /// The movers are known to have had processors whenever they wanted.
    pub(super) served: bool,
    /// Congestion windows, which take seconds to find their size, are what binds as far as is
    /// known. A short epoch right after a change says little then: fresh channels have not met
    /// their first loss, and those that are left have not taken over what others gave up.
    pub(super) transient: bool,
}

impl Point {
    /// What an epoch says about the setting that was in force, which is `setting`.
    pub(super) fn seen(setting: Setting, seen: &Observation) -> Self {
        let goodput_bps = seen.goodput_bps();
        Self {
            setting,
            goodput_bps,
            loss: seen.loss_ratio.filter(|l| l.is_finite()),
            segments: goodput_bps * seen.seconds / (8.0 * SEGMENT_BYTES),
            window: seen.rtt.map(|rtt| {
                let segments = goodput_bps * rtt.as_secs_f64() / (8.0 * SEGMENT_BYTES);
                segments / f64::from(setting.channels())
            }),
            lasting_bps: lasting(seen),
            is_far: seen.rtt.is_some_and(|rtt| rtt >= FAR),
            rtt_inflation: match (seen.rtt, seen.rtt_min) {
                (Some(rtt), Some(least)) if !least.is_zero() => {
                    Some((rtt.as_secs_f64() / least.as_secs_f64()).max(1.0))
                }
                _ => None,
            },
            limit: bottleneck::classify(seen),
            served: seen.cpu_wait.is_some_and(|wait| wait < SERVED)
                && seen.cpu_busy.is_none_or(|busy| busy < 1.0 - SERVED),
            transient: transient(seen),
        }
    }

    /// A queue stands and our windows are large: the path is full, and no other transfer keeps us
    /// small.
    pub(super) fn is_saturated(&self) -> bool {
        self.transient
            && self.limit == Some(Bottleneck::PathCapacity)
            && self.window.is_some_and(|segments| segments >= ROOMY)
    }

    /// A queue stands and our windows are small: there are many channels on the path, of any
    /// transfer.
    pub(super) fn is_contended(&self) -> bool {
        self.transient
            && self.limit == Some(Bottleneck::PathCapacity)
            && self.window.is_some_and(|segments| segments < ROOMY)
    }

    /// How many times the channels keep the bottleneck busy where full windows just fill it, at
    /// least 1.
    pub(super) fn headroom(&self) -> f64 {
        match (self.limit, self.rtt_inflation) {
            (Some(Bottleneck::ReceiveWindow), Some(rtt_inflation))
                if rtt_inflation >= 1.0 + (QUEUES - 1.0) / 2.0 =>
            {
                (HEADROOM / rtt_inflation).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// Whether more channels made round trips longer than those of `fewer`.
    pub(super) fn queues_more_than(&self, fewer: &Self) -> bool {
        (self.rtt_inflation.zip(fewer.rtt_inflation))
            .is_some_and(|(here, there)| here >= QUEUES * there)
    }

    /// The least part of the channels, `0..=1`, that may do: full windows without a queue are all
    /// needed, and a queue is what is too much. `0` where nothing is known.
    pub(super) fn needed(&self) -> f64 {
        match (self.limit, self.rtt_inflation) {
            (Some(Bottleneck::ReceiveWindow), Some(rtt_inflation)) => {
                (HEADROOM_MIN / rtt_inflation).min(1.0)
            }
            _ => 0.0,
        }
    }

    /// Whether goodput is higher about as channels are than those of `fewer`.
    pub(super) fn rises_from(&self, fewer: &Self) -> bool {
        let growth = f64::from(self.setting.channels()) / f64::from(fewer.setting.channels());
        let rise = self.goodput_bps.max(1.0) / fewer.goodput_bps.max(1.0);
        rise.ln() >= MATTERS * growth.ln()
    }

    /// Loss that is more than that of `fewer` channels, beyond what chance explains.
    pub(super) fn loses_more_than(&self, fewer: &Self) -> bool {
        let (Some(here), Some(there)) = (self.loss, fewer.loss) else {
            return false;
        };
        here > LOSS_RISE * (there + LOSSES_UNSEEN / fewer.segments.max(1.0))
    }
}

fn lasting(seen: &Observation) -> Option<f64> {
    let (loss, rtt) = (seen.loss_ratio?, seen.rtt?.as_secs_f64());
    let segments = seen.goodput_bps() * seen.seconds / (8.0 * SEGMENT_BYTES);
    let is_random = bottleneck::classify(seen) == Some(Bottleneck::NetworkLoss);
    (is_random && loss * segments >= LOSSES_THAT_COUNT).then(|| {
        let window = (1.22 / loss.sqrt()).max(1.054 * (rtt / loss).powf(0.75));
        window * 8.0 * SEGMENT_BYTES / rtt
    })
}

/// Without evidence nothing is known, and each epoch is trusted.
fn transient(seen: &Observation) -> bool {
    let by_network = matches!(
        bottleneck::classify(seen),
        None | Some(Bottleneck::NetworkLoss | Bottleneck::PathCapacity)
    );
    by_network && seen.rtt.is_some()
}
