//! What all senders share: sequence numbers, window, timer and counters.

use super::{Packet, SenderConfig, rto::Rto};

/// What a sender has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Times that duplicate acknowledgements told of a loss and the window was reduced.
    pub recoveries: u64,
    /// Times that the retransmission timer expired.
    pub timeouts: u64,
    /// Time in which the receiver's window was what ended the flight, ns.
    pub receive_window_limited_ns: u64,
    /// Time in which nothing was to be sent and all was acknowledged, ns.
    pub idle_ns: u64,
    /// Most packets that were ever sent beyond the first unacknowledged one.
    pub outstanding_max: u32,
}

/// The sequence numbers of a sender. `una <= next <= max <= end`.
#[derive(Debug)]
pub(crate) struct Window {
    pub(super) config: SenderConfig,
    /// Congestion window, packets.
    pub(super) cwnd: f64,
    /// Slow start threshold, packets.
    pub(super) ssthresh: f64,
    /// First unacknowledged packet.
    pub(crate) una: u32,
    /// Next to send: goes back after a timeout.
    pub(super) next: u32,
    /// One past the highest that was ever sent.
    pub(crate) max: u32,
    /// One past the last that there is to send.
    pub(crate) end: u32,
    /// The receiver takes nothing from here on yet, whatever its window: its application has not
    /// read what came before.
    pub(crate) edge: u32,
    /// A loss was found when this was `max`: losses below belong to it.
    pub(super) recover: Option<u32>,
    pub(crate) rto: Rto,
    /// When the retransmission timer expires, ns.
    pub(crate) deadline: Option<u64>,
    pub(crate) counters: SenderCounters,
    limited_since: Option<u64>,
    idle_since: Option<u64>,
}

impl Window {
    pub(super) fn new(config: SenderConfig) -> Self {
        Self {
            cwnd: f64::from(config.initial_window.max(1)),
            ssthresh: f64::from(config.window_max),
            una: 0,
            next: 0,
            max: 0,
            end: 0,
            edge: u32::MAX,
            recover: None,
            rto: Rto::new(config.min_rto_ns, config.tick_ns),
            deadline: None,
            counters: SenderCounters::default(),
            limited_since: None,
            idle_since: None,
            config,
        }
    }

    /// Packets that may be under way: the smaller of both windows.
    pub(crate) fn allowed(&self) -> f64 {
        self.cwnd.min(f64::from(self.config.window_max))
    }

    /// Half of what is under way, at least 2 (RFC 5681, eq. 4, with the window as ns-2 has it).
    pub(super) fn half(&self) -> f64 {
        (self.allowed() / 2.0).max(2.0)
    }

    /// Whether losses from here on are news.
    pub(super) fn is_recovered(&self) -> bool {
        self.recover.is_none_or(|recover| self.una > recover)
    }

    /// Slow start, or congestion avoidance by one segment a round trip, for `acked` packets (RFC
    /// 5681 §3.1). The window never exceeds the receiver's: ns-2 lets it grow, but reduces from
    /// what was usable.
    pub(super) fn grow(&mut self, acked: f64) {
        self.cwnd += if self.cwnd < self.ssthresh {
            acked
        } else {
            acked / self.cwnd / f64::from(self.config.segments)
        };
        self.cwnd = self.cwnd.min(f64::from(self.config.window_max));
    }

    /// Takes a round trip. Every acknowledgement carries the time at which its cause was sent, so
    /// retransmissions are no ambiguity; ns-2 without timestamps measures one packet a window.
    pub(super) fn measure(&mut self, now: u64, ack: &Packet) {
        self.rto.sample(now.saturating_sub(ack.sent_at));
    }

    /// Everything below `ack` has arrived: how many packets that is news of.
    pub(super) fn advance(&mut self, now: u64, ack: u32) -> u32 {
        let ack = ack.min(self.max);
        let news = ack.saturating_sub(self.una);
        if news > 0 {
            self.una = ack;
            self.next = self.next.max(ack);
            self.rto.restore();
            self.deadline = (self.una < self.max).then(|| now.saturating_add(self.rto.current()));
        }
        news
    }

    /// Puts the timer back, as after a fast retransmit.
    pub(super) fn restart_timer(&mut self, now: u64) {
        self.deadline = Some(now.saturating_add(self.rto.current()));
    }

    pub(super) fn back_off(&mut self, now: u64) {
        self.counters.timeouts += 1;
        self.rto.back_off();
        self.restart_timer(now);
    }

    /// Sends in order from `next`, which lies below `max` after a timeout. `extra` packets may be
    /// under way beyond the window: duplicate acknowledgements have taken as many from the path.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "windows are below 2^32 packets, and casts of floats saturate"
    )]
    pub(super) fn send_in_order(&mut self, now: u64, extra: u32, out: &mut Vec<u32>) {
        let allowed = (self.allowed() as u32).saturating_add(extra);
        // The receiver's window counts from the first unacknowledged packet.
        let edge = (self.una)
            .saturating_add(allowed.min(self.config.window_max))
            .min(self.edge);
        while self.next < self.end && self.next < edge {
            self.send(now, self.next, out);
            self.next += 1;
        }
    }

    pub(super) fn send(&mut self, now: u64, seq: u32, out: &mut Vec<u32>) {
        self.counters.sent += 1;
        if seq < self.max {
            self.counters.retransmitted += 1;
        } else {
            self.max = seq + 1;
            let outstanding = self.max - self.una;
            self.counters.outstanding_max = self.counters.outstanding_max.max(outstanding);
        }
        if self.deadline.is_none() {
            self.restart_timer(now);
        }
        out.push(seq);
    }

    /// Whether only the lack of data kept it from sending.
    pub(crate) fn is_starved(&self) -> bool {
        self.max >= self.end && self.next >= self.end
    }

    /// Whether new packets fit into the receiver's window.
    pub(super) fn fits(&self) -> bool {
        self.max - self.una < self.config.window_max && self.max < self.edge
    }

    /// Keeps account of the time in which the receiver's window had no room, and of that without
    /// anything to do.
    pub(super) fn note_limit(&mut self, now: u64) {
        let idle = self.una >= self.end;
        if let (Some(since), false) = (self.idle_since, idle) {
            self.counters.idle_ns += now.saturating_sub(since);
            self.idle_since = None;
        } else if self.idle_since.is_none() && idle {
            self.idle_since = Some(now);
        }
        let limited = !self.fits() && self.max < self.end;
        if let (Some(since), false) = (self.limited_since, limited) {
            self.counters.receive_window_limited_ns += now.saturating_sub(since);
            self.limited_since = None;
        } else if self.limited_since.is_none() && limited {
            self.limited_since = Some(now);
        }
    }

    /// The counters as of `now`.
    pub(crate) fn counters_at(&self, now: u64) -> SenderCounters {
        let since = |at: Option<u64>| at.map_or(0, |at| now.saturating_sub(at));
        SenderCounters {
            receive_window_limited_ns: self.counters.receive_window_limited_ns
                + since(self.limited_since),
            idle_ns: self.counters.idle_ns + since(self.idle_since),
            ..self.counters
        }
    }
}
