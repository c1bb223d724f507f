//! Holding a setting: what it gives, whether that changed, and when to try a neighbour.

use super::{contention::Contention, point::Point, probe::Neighbours};
use crate::{Observation, Setting};

/// Epochs between probes, at first and where nothing was found.
const PROBE_EVERY: u32 = 6;
const PROBE_EVERY_MAX: u32 = 12;
/// Epochs that the mean remembers, about.
const MEMORY: f64 = 20.0;
/// Drift that the CUSUM lets pass, and what it takes to raise the alarm, in deviations. With these
/// a false alarm comes about every thousand epochs of white noise, and a change of three deviations
/// is seen within four.
const SLACK: f64 = 0.75;
const ALARM: f64 = 7.0;
/// One epoch may add this much, so that a single outlier raises no alarm.
const OUTLIER: f64 = 4.0;
/// A change from which on everything may be different, in the logarithm. Copies that come, go and
/// look around make smaller ones, and answering each with a search would keep all of them
/// searching.
const UPHEAVAL: f64 = 0.2;
/// Epochs after which goodput must be what the search saw.
const SEEN_TO_LAST: u32 = 3;
/// Epochs after which channels that were given up are seen to have mattered.
const SEEN_TO_MATTER: u32 = 3;
/// Epochs in which large congestion windows find their size among others. Earlier, what fresh
/// channels take from others looks like a gain that lasts.
const SEEN_TO_SETTLE: u32 = 20;
/// Deviations smaller than this are taken for it, relative.
const DEVIATION_MIN: f64 = 0.01;
/// How much less than the best under this load fewer channels may be worth.
const GIVE_UP: f64 = 0.01;

/// What to do after an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Steady,
    /// Goodput went from one level to another, bit/s.
    Changed {
        from: f64,
        to: f64,
    },
    Probe,
    /// Others are on the path: so many channels are fair.
    Contended {
        channels: f64,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Hold {
    epochs: u32,
    /// Channels were found to buy nothing where movers do.
    pub(super) movers_alone: bool,
    since_probe: u32,
    probe_every: u32,
    pub(super) neighbours: Neighbours,
    pub(super) contention: Contention,
    /// Mean of the logarithm of goodput.
    mean: f64,
    /// The same over the last few epochs.
    recent: f64,
    /// What the search saw, until it is seen to last.
    expected: Option<f64>,
    last: f64,
    /// The last epoch.
    point: Option<Point>,
    /// Mean square of differences between neighbouring epochs, halved: the variance of an epoch.
    variance: Option<f64>,
    rise: f64,
    fall: f64,
    /// The most that a held setting was worth since the load last changed.
    best: f64,
    /// What was held before channels were given up among others, until it is known that others took
    /// what they left.
    gave_up: Option<Point>,
}

impl Hold {
    pub(super) const fn new(movers_alone: bool, neighbours: Neighbours) -> Self {
        Self {
            epochs: 0,
            movers_alone,
            since_probe: 0,
            probe_every: PROBE_EVERY,
            neighbours,
            contention: Contention::new(),
            mean: 0.0,
            expected: None,
            recent: 0.0,
            last: 0.0,
            point: None,
            variance: None,
            rise: 0.0,
            fall: 0.0,
            best: f64::NEG_INFINITY,
            gave_up: None,
        }
    }

    /// The search saw `goodput_bps`. Where that was a slow start before the first loss, it does not
    /// last.
    pub(super) fn expecting(self, goodput_bps: f64) -> Self {
        Self {
            expected: Some(goodput_bps.max(1.0).ln()),
            ..self
        }
    }

    /// An epoch at the setting is over. `noise` is the relative deviation of an epoch.
    pub(super) fn note(&mut self, point: Point, noise: f64) -> Verdict {
        let x = point.goodput_bps.max(1.0).ln();
        self.point = Some(point);
        self.contention.note(&point);
        if self.epochs == 0 {
            (self.mean, self.recent) = (x, x);
        } else {
            let square = (x - self.last).powi(2) / 2.0;
            self.variance = Some(self.variance.map_or(square, |v| {
                v + (square - v) / f64::from(self.epochs).min(MEMORY)
            }));
        }
        self.last = x;
        let deviation = noise.max(DEVIATION_MIN);
        let z = ((x - self.mean) / deviation).clamp(-OUTLIER, OUTLIER);
        self.rise = (self.rise + z - SLACK).max(0.0);
        self.fall = (self.fall - z - SLACK).max(0.0);
        self.epochs += 1;
        self.since_probe += 1;
        self.recent += (x - self.recent) / 2.0;
        if self.rise.max(self.fall) >= ALARM {
            let (from, to) = (self.mean, self.recent);
            self.contention.forget();
            // How many channels are right among others is known without a search.
            if (to - from).abs() >= UPHEAVAL && !self.contention.is_present() {
                return Verdict::Changed {
                    from: from.exp(),
                    to: to.exp(),
                };
            }
            self.settle_at(to);
        }
        self.mean += (x - self.mean) / f64::from(self.epochs).min(MEMORY);
        if self.epochs == SEEN_TO_LAST
            && let Some(expected) = self.expected.take()
            && self.recent < expected - UPHEAVAL
            && !self.contention.is_present()
        {
            return Verdict::Changed {
                from: expected.exp(),
                to: self.recent.exp(),
            };
        }
        if self.epochs >= SEEN_TO_MATTER
            && let Some(before) = self.gave_up.take()
            && !self.contention.is_present()
            && before.rises_from(&Point {
                goodput_bps: self.recent.exp(),
                ..point
            })
        {
            self.contention.mark_own_queue();
            return Verdict::Contended {
                channels: f64::from(before.setting.channels()),
            };
        }
        if let Some(channels) = self.contention.step(f64::from(point.setting.channels())) {
            return Verdict::Contended { channels };
        }
        if self.since_probe < self.probe_every || self.contention.is_from_others() {
            return Verdict::Steady;
        }
        self.since_probe = 0;
        Verdict::Probe
    }

    /// Whether the windows of a few channels have had the time to find their size.
    pub(super) const fn has_settled(&self) -> bool {
        self.epochs >= SEEN_TO_SETTLE
    }

    /// A change too small to search for: another level, at which the neighbours are worth a look
    /// soon.
    fn settle_at(&mut self, level: f64) {
        (self.mean, self.best) = (level, f64::NEG_INFINITY);
        (self.rise, self.fall) = (0.0, 0.0);
        self.epochs = self.epochs.min(4);
        self.since_probe = PROBE_EVERY;
        self.probe_every = PROBE_EVERY;
    }

    /// A probe found nothing: the next may wait longer.
    pub(super) fn mark_unproductive(&mut self, tried: f64, x: f64, gain: f64) {
        self.probe_every = (2 * self.probe_every).min(PROBE_EVERY_MAX);
        self.neighbours.mark_unproductive(tried, x, gain);
    }

    /// Another number of channels among the same others than `home`.
    pub(super) fn moved_in_contention(&self, home: Setting, fewer: bool) -> Self {
        Self {
            contention: self.contention.moved(),
            gave_up: fewer.then(|| self.point(home)),
            ..Self::new(self.movers_alone, self.neighbours)
        }
    }

    /// Goodput of the setting, bit/s.
    pub(super) fn goodput_bps(&self) -> f64 {
        self.mean.exp()
    }

    /// What is known of the setting that is held, which is `home`.
    pub(super) fn point(&self, home: Setting) -> Point {
        Point {
            setting: home,
            goodput_bps: self.goodput_bps(),
            ..self
                .point
                .unwrap_or(Point::seen(home, &Observation::new(home, 0, 0.0)))
        }
    }

    /// Relative deviation of an epoch: what was measured, mixed into what was known.
    pub(super) fn noise(&self, known: f64) -> f64 {
        match self.variance {
            // Neighbours resemble each other, so differences show less than there is.
            Some(variance) if self.epochs >= 4 => known + (1.3 * variance.sqrt() - known) / 4.0,
            _ => known,
        }
    }

    /// Whether fewer channels are to stay, which are worth `here` and `gain` more than the held
    /// setting, which is worth `there`. Small losses must not add up, so the best that was held
    /// counts too.
    pub(super) fn may_give_up(&mut self, there: f64, here: f64, gain: f64) -> bool {
        self.best = self.best.max(there);
        gain >= -GIVE_UP / 2.0 && here >= self.best - GIVE_UP
    }

    /// The same load, fewer channels. Even fewer may do: that is tried next, and soon.
    pub(super) const fn moved_down(&self) -> Self {
        Self {
            best: self.best,
            since_probe: PROBE_EVERY - 2,
            ..Self::new(self.movers_alone, self.neighbours.down_again())
        }
    }
}
