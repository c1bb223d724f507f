//! One number of channels for all leases of an endpoint or of a link, tuned by the sum of their
//! goodputs.

use std::{fmt, time::Duration};

use godwit_tune::{Bounds, Method, Observation, Setting, Tuner};

use crate::model::Tuning;

/// Actual channels within this factor of the wanted ones tell something about them.
const NEAR: f64 = 1.25;

/// A tuner of a sum, and the epoch that it measures.
pub(crate) struct TunedSum {
    tuner: Box<dyn Tuner>,
    channels_max: u32,
    setting: Setting,
    rationale: String,
    /// When the setting was last changed, or found not to be in force.
    since: Duration,
    /// Bytes that were counted when the epoch began.
    begins: Option<(Duration, f64)>,
    /// Bytes of all leases, by their reports and ends.
    bytes: f64,
    /// Bytes a second of the last epoch.
    rate: f64,
}

impl fmt::Debug for TunedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TunedSum({})", self.rationale)
    }
}

impl TunedSum {
    /// Begins at `start` where something is known of the path.
    pub(crate) fn new(start: Option<Setting>, channels_max: u32, now: Duration) -> Self {
        let mut tuner = Method::Godwit.build(start, Bounds::up_to(channels_max), 0);
        let first = tuner.first();
        Self {
            tuner,
            channels_max,
            setting: first.setting,
            rationale: first.rationale,
            since: now,
            begins: None,
            bytes: 0.0,
            rate: 0.0,
        }
    }

    /// Of all leases together.
    pub(crate) fn setting(&self) -> Setting {
        self.setting
    }

    /// Bytes a second of the last epoch.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    pub(crate) fn channels_max(&self) -> u32 {
        self.channels_max
    }

    pub(crate) fn add_bytes(&mut self, bytes: f64) {
        self.bytes += bytes;
    }

    /// Whether an epoch that ends now had about the wanted channels; decides if it did.
    pub(crate) fn observe(&mut self, channels: u32, tuning: &Tuning, now: Duration) {
        let ratio = f64::from(channels) / f64::from(self.setting.channels());
        if !(1.0 / NEAR..=NEAR).contains(&ratio) {
            (self.since, self.begins) = (now, None);
            return;
        }
        let Some((begin, before)) = self.begins else {
            if now >= self.since + tuning.settle {
                self.begins = Some((now, self.bytes));
            }
            return;
        };
        if now < begin + tuning.epoch {
            return;
        }
        let seconds = (now - begin).as_secs_f64();
        self.rate = (self.bytes - before).max(0.0) / seconds;
        let bps = 8.0 * self.rate;
        let decision = self
            .tuner
            .decide(&Observation::of_rate(self.setting, bps, seconds));
        self.rationale = decision.rationale;
        if decision.setting == self.setting {
            self.begins = Some((now, self.bytes));
        } else {
            (self.setting, self.since, self.begins) = (decision.setting, now, None);
        }
    }
}
