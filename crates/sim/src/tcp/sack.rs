//! Recovery by selective acknowledgements: RFC 2018, RFC 6675.
//!
//! A packet is lost when three packets behind it have arrived (IsLost). `pipe` counts what is on
//! the path: what was sent, less what arrived or is lost, plus what was sent again. The window
//! grows by the packets whose arrival is news, as in Linux: an acknowledgement that fills a gap
//! covers many that have arrived long before, and must not start a burst. Left out: rescue
//! retransmissions (§4, NextSeg 4), proportional rate reduction, RACK and tail loss probes: a
//! retransmission that is lost, or the last packets of a flow, wait for the timer.

use std::collections::VecDeque;

use super::{Packet, cubic::Cubic, reno::DUPLICATES, window::Window};

/// State of a packet between `una` and `max`.
const ARRIVED: u8 = 1;
const LOST: u8 = 2;
const SENT_AGAIN: u8 = 4;

#[derive(Debug)]
pub(super) struct Sack {
    /// Of each packet from `una` on.
    board: VecDeque<u8>,
    /// First packet of the board.
    base: u32,
    arrived: u32,
    /// Lost packets that have not arrived since, and those of them that were sent again.
    lost: u32,
    sent_again: u32,
    /// One past the highest that has arrived.
    highest: u32,
    /// Everything below was looked at for losses.
    judged: u32,
    /// No lost packet below waits for its retransmission.
    hint: u32,
    in_recovery: bool,
    /// CUBIC's window; `None`: Reno's.
    cubic: Option<Cubic>,
}

impl Sack {
    pub(super) fn new(cubic: Option<Cubic>) -> Self {
        Self {
            board: VecDeque::new(),
            base: 0,
            arrived: 0,
            lost: 0,
            sent_again: 0,
            highest: 0,
            judged: 0,
            hint: 0,
            in_recovery: false,
            cubic,
        }
    }

    pub(super) fn on_ack(&mut self, w: &mut Window, now: u64, ack: &Packet) {
        self.cover(w.max);
        w.advance(now, ack.seq);
        let mut news = self.forget_below(w.una);
        let arrived = self.arrived;
        for (from, to) in ack.sacks {
            self.mark_arrived(from, to, ack.cause);
        }
        news += self.arrived - arrived;
        self.find_losses();
        if self.in_recovery && w.recover.is_none_or(|recover| w.una >= recover) {
            self.in_recovery = false;
        }
        if self.lost > self.sent_again && !self.in_recovery && w.is_recovered() {
            self.in_recovery = true;
            w.recover = Some(w.max);
            w.counters.recoveries += 1;
            w.ssthresh = self.reduced(w);
            w.cwnd = w.ssthresh;
        } else if news > 0 && !self.in_recovery {
            let acked = f64::from(news);
            match &mut self.cubic {
                Some(cubic) => cubic.grow(w, now, acked, now.saturating_sub(ack.sent_at)),
                None => w.grow(acked),
            }
        }
    }

    /// All that has not arrived counts as lost (§5.1).
    pub(super) fn on_timeout(&mut self, w: &mut Window) {
        self.cover(w.max);
        w.ssthresh = self.reduced(w);
        self.cubic.iter_mut().for_each(Cubic::restart);
        w.cwnd = 1.0;
        w.recover = Some(w.max);
        self.in_recovery = false;
        self.lost = 0;
        self.sent_again = 0;
        for state in &mut self.board {
            *state &= ARRIVED;
            if *state == 0 {
                *state = LOST;
                self.lost += 1;
            }
        }
        self.judged = w.max;
        self.hint = w.una;
    }

    pub(super) fn transmit(&mut self, w: &mut Window, now: u64, out: &mut Vec<u32>) {
        self.cover(w.max);
        loop {
            let on_path = (w.max - w.una) - self.arrived - self.lost + self.sent_again;
            if f64::from(on_path) + 1.0 > w.allowed() {
                break;
            }
            if let Some(seq) = self.next_lost(w.max) {
                self.board[(seq - self.base) as usize] |= SENT_AGAIN;
                self.sent_again += 1;
                w.send(now, seq, out);
            } else if w.max < w.end && w.fits() {
                let seq = w.max;
                w.send(now, seq, out);
                w.next = w.max;
                self.cover(w.max);
            } else {
                break;
            }
        }
    }

    fn reduced(&mut self, w: &Window) -> f64 {
        match &mut self.cubic {
            Some(cubic) => cubic.reduced(w),
            None => w.half(),
        }
    }

    /// The board reaches to `max`.
    fn cover(&mut self, max: u32) {
        self.board.resize((max - self.base) as usize, 0);
    }

    /// How many packets below `una` were not known to have arrived.
    fn forget_below(&mut self, una: u32) -> u32 {
        let mut news = 0;
        while self.base < una {
            let state = self.board.pop_front().unwrap_or(0);
            news += u32::from(state & ARRIVED == 0);
            self.drop_counts(state);
            self.base += 1;
        }
        self.judged = self.judged.max(una);
        self.hint = self.hint.max(una);
        self.highest = self.highest.max(una);
        news
    }

    fn drop_counts(&mut self, state: u8) {
        self.arrived -= u32::from(state & ARRIVED != 0);
        self.lost -= u32::from(state & LOST != 0);
        self.sent_again -= u32::from(state & SENT_AGAIN != 0);
    }

    /// Packets of a block that are news lie at its ends, or where the one that caused it is: what
    /// is between was told by earlier acknowledgements.
    fn mark_arrived(&mut self, from: u32, to: u32, cause: u32) {
        let from = from.max(self.base);
        if from >= to {
            return;
        }
        if (from..to).contains(&cause) {
            self.mark(cause);
        }
        (from..to).take_while(|seq| self.mark(*seq)).for_each(drop);
        (from..to)
            .rev()
            .take_while(|seq| self.mark(*seq))
            .for_each(drop);
        self.highest = self.highest.max(to);
    }

    /// Whether it is news that a packet has arrived.
    fn mark(&mut self, seq: u32) -> bool {
        let Some(state) = self.board.get_mut((seq - self.base) as usize) else {
            return false;
        };
        let before = *state;
        if before & ARRIVED != 0 {
            return false;
        }
        *state = ARRIVED;
        self.drop_counts(before);
        self.arrived += 1;
        true
    }

    /// Everything below the third-highest packet that has arrived has, or is lost.
    fn find_losses(&mut self) {
        if self.arrived < DUPLICATES {
            return;
        }
        let mut seen = 0;
        let mut edge = self.highest;
        while seen < DUPLICATES && edge > self.base {
            edge -= 1;
            seen += u32::from(self.board[(edge - self.base) as usize] & ARRIVED != 0);
        }
        while self.judged < edge {
            let state = &mut self.board[(self.judged - self.base) as usize];
            if *state == 0 {
                *state = LOST;
                self.lost += 1;
                self.hint = self.hint.min(self.judged);
            }
            self.judged += 1;
        }
    }

    /// The first lost packet that was not sent again.
    fn next_lost(&mut self, max: u32) -> Option<u32> {
        if self.lost == self.sent_again {
            return None;
        }
        while self.hint < max {
            if self.board[(self.hint - self.base) as usize] == LOST {
                return Some(self.hint);
            }
            self.hint += 1;
        }
        None
    }
}
