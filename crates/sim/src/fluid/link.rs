//! A link: the flows on it, and what it did.

use std::collections::BTreeSet;

use super::{FluidId, FluidLink, LinkUse, PACKET_BYTES, SEGMENT_BYTES, flow::OpenFlow, response};

#[derive(Debug)]
pub(super) struct OpenLink {
    pub(super) link: FluidLink,
    pub(super) flows: BTreeSet<FluidId>,
    connections: u32,
    /// Round trips of all connections, s.
    round_trips_s: f64,
    /// Its queue, in bandwidth-delay products of the mean connection.
    pub(super) queue: f64,
    /// Payload that it carries when it is full, bit/s.
    pub(super) capacity_bps: f64,
    /// Payload of its flows, bit/s, and the same were all weights those of one full link.
    pub(super) sent_bps: f64,
    pub(super) first_bps: f64,
    lost_bps: f64,
    pub(super) queue_s: f64,
    pub(super) is_full: bool,
    /// It is full, or would be: what happens to one of its flows reaches the others.
    pub(super) couples: bool,
    pub(super) used: LinkUse,
    /// Up to when its use is counted.
    counted_s: f64,
}

impl OpenLink {
    pub(super) fn new(link: FluidLink) -> Self {
        Self {
            link,
            flows: BTreeSet::new(),
            connections: 0,
            round_trips_s: 0.0,
            queue: 0.0,
            capacity_bps: 0.0,
            sent_bps: 0.0,
            first_bps: 0.0,
            lost_bps: 0.0,
            queue_s: 0.0,
            is_full: false,
            couples: false,
            used: LinkUse::default(),
            counted_s: 0.0,
        }
    }

    /// A flow passes it from now on, as yet at no rate or at the one that it has.
    pub(super) fn join(&mut self, id: FluidId, flow: &OpenFlow) {
        self.flows.insert(id);
        self.connections += flow.connections;
        self.round_trips_s += f64::from(flow.connections) * flow.rtt_s;
        self.measure();
    }

    pub(super) fn leave(&mut self, id: FluidId, flow: &OpenFlow) {
        self.flows.remove(&id);
        self.connections -= flow.connections;
        self.round_trips_s -= f64::from(flow.connections) * flow.rtt_s;
        self.measure();
    }

    /// Its capacity among these connections.
    fn measure(&mut self) {
        if self.connections == 0 {
            // What sums of floats have left over.
            (self.round_trips_s, self.capacity_bps) = (0.0, 0.0);
            return;
        }
        let connections = f64::from(self.connections);
        self.queue = self.link.queue_s * connections / self.round_trips_s;
        let unused = response::unused(self.queue) / connections;
        self.capacity_bps = self.link.rate_bps * SEGMENT_BYTES / PACKET_BYTES * (1.0 - unused);
    }

    /// The connections of now are in force.
    pub(super) fn note_connections(&mut self) {
        self.used.connections_max = self.used.connections_max.max(self.connections);
    }

    /// Fewer connections leave more of it unused: what it carries may be too much.
    pub(super) fn is_overrun(&self) -> bool {
        self.sent_bps.max(self.first_bps) > self.capacity_bps
    }

    /// Counts what it did up to now.
    pub(super) fn count(&mut self, now_s: f64) {
        let seconds = now_s - self.counted_s;
        self.counted_s = now_s;
        let wire = PACKET_BYTES / SEGMENT_BYTES;
        self.used.bytes += self.sent_bps * wire / 8.0 * seconds;
        self.used.lost_bytes += self.lost_bps * wire / 8.0 * seconds;
        self.used.queue_s2 += self.queue_s * seconds;
        self.used.full_s += if self.is_full { seconds } else { 0.0 };
    }

    /// The flow's rate is not part of it any more; it is link number `at`.
    pub(super) fn take_away(&mut self, flow: &OpenFlow, at: usize, now_s: f64) {
        self.count(now_s);
        self.add(flow, at, -1.0);
        if self.flows.len() <= 1 {
            self.carry_nothing();
        }
    }

    /// None of its flows is part of it, whatever sums of floats have left over.
    pub(super) fn carry_nothing(&mut self) {
        (self.sent_bps, self.first_bps, self.lost_bps) = (0.0, 0.0, 0.0);
    }

    /// The flow's rate is part of it from now on.
    pub(super) fn carry(&mut self, flow: &OpenFlow, at: usize) {
        self.add(flow, at, 1.0);
    }

    fn add(&mut self, flow: &OpenFlow, at: usize, times: f64) {
        let rate = flow.rate;
        let full = rate.full.filter(|(link, _)| *link == at);
        let lost = full.map_or(0.0, |(_, lost)| lost).max(self.link.loss);
        self.sent_bps += times * rate.sent_bps;
        self.first_bps += times * rate.first_bps;
        self.lost_bps += times * rate.sent_bps * lost;
    }
}
