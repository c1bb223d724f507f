//! NewReno: RFC 6582. Partial acknowledgements keep fast recovery up, one lost packet a round trip.
//!
//! The timer starts again with the first partial acknowledgement only (§3.2, step 4, "impatient").

use super::{
    reno::{DUPLICATES, fast_retransmit, limited_transmit, restart},
    window::Window,
};

#[derive(Debug, Default)]
pub(super) struct NewReno {
    duplicates: u32,
    inflation: u32,
    in_recovery: bool,
    partial_seen: bool,
}

impl NewReno {
    pub(super) fn on_ack(&mut self, w: &mut Window, now: u64, ack: u32, out: &mut Vec<u32>) {
        let deadline = w.deadline;
        let news = w.advance(now, ack);
        if news > 0 {
            self.duplicates = 0;
            let is_partial = w.recover.is_some_and(|recover| w.una < recover);
            match (self.in_recovery, is_partial) {
                (false, _) => w.grow(1.0),
                (true, true) => {
                    // What was acknowledged has left the path, one packet of it just now.
                    self.inflation = self.inflation.saturating_sub(news).saturating_add(1);
                    if std::mem::replace(&mut self.partial_seen, true) {
                        w.deadline = deadline;
                    }
                    w.send(now, w.una, out);
                }
                (true, false) => *self = Self::default(),
            }
        } else if ack == w.una && w.una < w.max {
            self.duplicates += 1;
            if self.in_recovery {
                self.inflation += 1;
            } else if self.duplicates == DUPLICATES && w.is_recovered() {
                w.ssthresh = w.half();
                w.cwnd = w.ssthresh;
                self.inflation = DUPLICATES;
                self.in_recovery = true;
                fast_retransmit(w, now, out);
            }
        }
        if !self.in_recovery {
            self.inflation = match self.duplicates {
                0 => 0,
                few if few < DUPLICATES => limited_transmit(w, few),
                _ => 0,
            };
        }
    }

    pub(super) fn on_timeout(&mut self, w: &mut Window) {
        *self = Self::default();
        restart(w);
    }

    /// Packets beyond the window that may be under way.
    pub(super) fn extra(&self) -> u32 {
        self.inflation
    }
}
