//! HyStart: the end of slow start before a loss. Ha and Rhee: Taming the elephants: new TCP slow
//! start, 2011, with the bounds that Linux has.

use super::window::Window;
use crate::MS;

/// Smallest window that it looks at, segments.
const LOW_WINDOW: f64 = 16.0;
/// Acknowledgements of a round trip whose delays count.
const SAMPLES: u32 = 8;
/// A delay this much above the least says that a queue grows: an eighth of the least, within these.
const DELAY_MIN_NS: u64 = 4 * MS;
const DELAY_MAX_NS: u64 = 16 * MS;
/// Acknowledgements that follow each other as closely are one train.
const TRAIN_NS: u64 = 2 * MS;

/// A round trip of slow start.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    found: bool,
    /// The round ends when this packet is acknowledged.
    end: u32,
    began: u64,
    last_ack: u64,
    samples: u32,
    /// Least delay of the round, ns.
    delay: u64,
}

impl HyStart {
    /// An acknowledgement in slow start, of a packet that left `rtt` before: whether slow start
    /// ends with it.
    pub(super) fn ends(&mut self, w: &Window, now: u64, rtt: u64) -> bool {
        if self.found || w.cwnd * f64::from(w.config.segments) < LOW_WINDOW {
            return false;
        }
        if w.una > self.end || self.began == 0 {
            *self = Self {
                end: w.max,
                began: now,
                last_ack: now,
                delay: u64::MAX,
                ..Self::default()
            };
        }
        let least = w.rto.least_ns().unwrap_or(rtt);
        // Half of a round trip: the window then fills what the path takes.
        if now - self.last_ack <= TRAIN_NS {
            self.last_ack = now;
            self.found = now - self.began > least / 2;
        }
        self.delay = self.delay.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let margin = (least / 8).clamp(DELAY_MIN_NS, DELAY_MAX_NS);
            self.found |= self.delay > least + margin;
        }
        self.found
    }

    /// Slow start begins again.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}
