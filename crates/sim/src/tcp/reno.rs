//! Reno: RFC 5681 §3.2 as ns-2's `Agent/TCP/Reno` has it (`tcp-reno.cc`, `tcp.cc`).
//!
//! What is ns-2's:
//! - windows, thresholds and acknowledgements count packets; an acknowledgement grows the window by
//!   1 or 1/cwnd, however many packets it covers;
//! - the third duplicate acknowledgement sends the lost packet and halves the window; each further
//!   one lets one more packet out (`dupwnd_`); the first acknowledgement of new data, partial or
//!   not, ends that;
//! - `bug_fix_`: no second fast retransmit before everything sent until the first one is
//!   acknowledged (RFC 2582, careful variant), so several losses in a window end in a timeout;
//! - after a timeout the window is 1 and sending starts again from the first unacknowledged packet.

use super::window::Window;

/// Duplicate acknowledgements that tell of a loss.
pub(super) const DUPLICATES: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Reno {
    duplicates: u32,
    /// ns-2's `dupwnd_`.
    inflation: u32,
    limited: u32,
}

impl Reno {
    pub(super) fn on_ack(&mut self, w: &mut Window, now: u64, ack: u32, out: &mut Vec<u32>) {
        if w.advance(now, ack) > 0 {
            *self = Self::default();
            w.grow(1.0);
        } else if ack == w.una && w.una < w.max {
            self.duplicates += 1;
            if self.duplicates < DUPLICATES {
                self.limited = limited_transmit(w, self.duplicates);
            } else if self.duplicates == DUPLICATES {
                self.limited = 0;
                if w.is_recovered() {
                    w.ssthresh = w.half();
                    w.cwnd = w.ssthresh;
                    self.inflation = DUPLICATES;
                    fast_retransmit(w, now, out);
                }
            } else if self.inflation > 0 {
                self.inflation += 1;
            }
        }
    }

    pub(super) fn on_timeout(&mut self, w: &mut Window) {
        *self = Self::default();
        restart(w);
    }

    /// Packets beyond the window that may be under way.
    pub(super) fn extra(&self) -> u32 {
        self.inflation + self.limited
    }
}

/// One packet for each of the first two duplicates, where that is on (RFC 3042).
pub(super) fn limited_transmit(w: &Window, duplicates: u32) -> u32 {
    if w.config.limited_transmit {
        duplicates
    } else {
        0
    }
}

pub(super) fn fast_retransmit(w: &mut Window, now: u64, out: &mut Vec<u32>) {
    w.recover = Some(w.max);
    w.counters.recoveries += 1;
    w.send(now, w.una, out);
    w.restart_timer(now);
}

/// A timeout: half of the window as threshold, one packet, from the first unacknowledged one.
pub(super) fn restart(w: &mut Window) {
    w.ssthresh = w.half();
    w.cwnd = 1.0;
    w.recover = Some(w.max);
    w.next = w.una;
}
