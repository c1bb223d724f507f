//! Flows as rates: where packets would be too many, TCP is what it reaches on the average.
//!
//! | Module | What is in it |
//! |---|---|
//! | `flow` | a flow: its limits, and what it moved |
//! | `link` | a link: its flows, and what it did |
//! | `rates` | rates again, of what a change reaches |
//! | `share` | weighted max-min shares |
//! | `response` | CUBIC's window for a loss, and the loss for a window (RFC 9438) |
//!
//! A flow is a number of equal connections on a route. It sends what the least of these allows:
//! - windows: connections x window / round trip;
//! - random loss: CUBIC's response to the loss of the route;
//! - slow start: what is under way doubles once a round trip until something else is the limit;
//! - links: max-min shares, in which a connection weighs 1 / R. A full DropTail queue drops of all
//!   connections at about the same time, and CUBIC's windows grow by time, so they are equal. A
//!   connection that passes k full links loses k times as often, and its window is k^3 times
//!   smaller: it grows with the third power of the time between losses.
//!
//! A full link has the loss that the response function gives for the windows of its connections,
//! the queue of windows that lose together, and a few connections leave a part of it unused where
//! its queue is shorter than what a loss takes.
//!
//! Connections with equal round trips share as packets do (tests compare them). How those with
//! different ones share depends on whose packets a full queue drops: over 100 and 200 ms packets
//! gave the longer way 0.45 to 4 times the rate of the shorter one, by what else was on the links.
//! So the weights above are an assumption.
//!
//! Not in the model: timeouts of windows of a few segments; the time that CUBIC takes to use what
//! others have left, beyond slow start; queues in round trips.

mod flow;
mod link;
mod rates;
mod response;
mod share;

use std::collections::{BTreeMap, BTreeSet};

use flow::OpenFlow;
use link::OpenLink;
pub use response::{PACKET_BYTES, SEGMENT_BYTES};

/// What is due within this is due now, s: times are floats.
const NOW_S: f64 = 1e-9;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FluidLink {
    /// Of packets with their headers, bit/s; above 0.
    pub rate_bps: f64,
    /// One way, s.
    pub delay_s: f64,
    /// Queue, as the time that it takes to drain, s.
    pub queue_s: f64,
    /// Of a segment, whatever the load.
    pub loss: f64,
}

/// A flow to open.
#[derive(Debug, Clone, PartialEq)]
pub struct FluidFlow {
    /// Links that it passes, by their index.
    pub links: Vec<usize>,
    /// Delay of the acknowledgements' way, s.
    pub back_s: f64,
    /// Connections, at least 1.
    pub connections: u32,
    /// Largest window of a connection, bytes.
    pub window_bytes: f64,
    /// What its connections had under way when they last sent; `None`: they are new.
    pub under_way_bytes: Option<f64>,
    /// Payload to move.
    pub bytes: f64,
}

/// Number of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FluidId(u64);

/// What keeps a flow from more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FluidLimit {
    /// Its windows.
    Window,
    /// Random loss.
    Loss,
    /// Slow start.
    SlowStart,
    /// The link with this index is full.
    Link(usize),
}

/// A flow at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FluidState {
    /// Payload moved.
    pub bytes: f64,
    /// Payload, bit/s.
    pub goodput_bps: f64,
    /// Segments sent again over segments sent.
    pub loss: f64,
    /// Delays and the queue of the full link, s.
    pub rtt_s: f64,
    /// Delays alone, s.
    pub rtt_min_s: f64,
    /// What keeps it from more.
    pub limit: FluidLimit,
}

/// What a link did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinkUse {
    /// Bytes sent, headers included.
    pub bytes: f64,
    /// Time in which it was full, s.
    pub full_s: f64,
    /// Delay of the queue, summed over time, s².
    pub queue_s2: f64,
    /// Bytes lost.
    pub lost_bytes: f64,
    /// Most connections at a time.
    pub connections_max: u32,
}

/// Links and the flows on them.
#[derive(Debug)]
pub struct Fluid {
    links: Vec<OpenLink>,
    flows: BTreeMap<FluidId, OpenFlow>,
    opened: u64,
    now_s: f64,
    /// Flows whose rate may not be what it should be, and links of which others may get more or
    /// less since some have left.
    changed: BTreeSet<FluidId>,
    left_links: BTreeSet<usize>,
    /// When flows end or their slow start doubles: the bits of times that are not negative have
    /// the order of the times.
    due: BTreeSet<(u64, FluidId)>,
}

impl Fluid {
    /// Links without flows, at 0 s.
    pub fn new(links: Vec<FluidLink>) -> Self {
        Self {
            links: links.into_iter().map(OpenLink::new).collect(),
            flows: BTreeMap::new(),
            opened: 0,
            now_s: 0.0,
            changed: BTreeSet::new(),
            left_links: BTreeSet::new(),
            due: BTreeSet::new(),
        }
    }

    /// Seconds since the beginning.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// A flow begins.
    pub fn open(&mut self, flow: FluidFlow) -> FluidId {
        let id = FluidId(self.opened);
        self.opened += 1;
        let links = flow.links.iter().map(|link| self.links[*link].link);
        let open = OpenFlow::new(&flow, links, self.now_s);
        for link in &open.links {
            self.links[*link].join(id, &open);
        }
        self.flows.insert(id, open);
        self.changed.insert(id);
        id
    }

    /// Another number of connections; new ones begin slowly.
    pub fn set_connections(&mut self, id: FluidId, connections: u32) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let (before, connections) = (flow.connections, connections.max(1));
        if flow.is_done || connections == before {
            return;
        }
        for link in &flow.links {
            self.links[*link].leave(id, flow);
        }
        flow.set_connections(connections, self.now_s);
        for link in &flow.links {
            self.links[*link].join(id, flow);
        }
        self.changed.insert(id);
    }

    /// Ends a flow.
    pub fn close(&mut self, id: FluidId) {
        self.stop(id);
        self.flows.remove(&id);
    }

    /// A flow takes nothing of its links any more.
    fn stop(&mut self, id: FluidId) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.is_done) else {
            return;
        };
        flow.count(self.now_s);
        self.due.remove(&(flow.due_s.to_bits(), id));
        self.changed.remove(&id);
        for at in &flow.links {
            let link = &mut self.links[*at];
            link.take_away(flow, *at, self.now_s);
            link.leave(id, flow);
            if link.couples || link.is_overrun() {
                self.left_links.insert(*at);
            }
        }
        flow.is_done = true;
    }

    /// A flow now; `None`: it was closed.
    pub fn state(&mut self, id: FluidId) -> Option<FluidState> {
        self.refresh();
        let now_s = self.now_s;
        self.flows.get(&id).map(|flow| flow.state(now_s))
    }

    /// What a link did up to now.
    pub fn link_use(&mut self, link: usize) -> Option<LinkUse> {
        self.refresh();
        let now_s = self.now_s;
        let link = self.links.get_mut(link)?;
        link.count(now_s);
        Some(link.used)
    }

    /// When a rate changes next, or a flow ends, if nothing is opened or closed until then.
    pub fn next_s(&mut self) -> Option<f64> {
        self.refresh();
        self.due.first().map(|(bits, _)| f64::from_bits(*bits))
    }

    /// Time passes until `until_s`, or until a flow has moved all: those are returned, and stay
    /// until they are closed.
    pub fn run_until(&mut self, until_s: f64) -> Vec<FluidId> {
        loop {
            let next = self.next_s().filter(|next| *next <= until_s);
            self.now_s = next.unwrap_or(until_s).max(self.now_s);
            if next.is_none() {
                return Vec::new();
            }
            let mut ended = Vec::new();
            let until = (self.now_s + NOW_S).to_bits();
            let is_due = |(bits, _): &(u64, FluidId)| *bits <= until;
            while let Some((_, id)) = self.due.first().copied().filter(is_due) {
                self.due.pop_first();
                let Some(flow) = self.flows.get_mut(&id) else {
                    continue;
                };
                flow.count(self.now_s);
                if flow.has_moved_all() {
                    self.stop(id);
                    ended.push(id);
                } else {
                    flow.grow(self.now_s);
                    self.changed.insert(id);
                }
            }
            if !ended.is_empty() {
                ended.sort_unstable();
                return ended;
            }
        }
    }
}
