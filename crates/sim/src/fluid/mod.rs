//! Flows as rates: where packets would be too many, TCP is what it reaches on the average.
//!
//! | Module | What is in it |
//! |---|---|
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

mod response;
mod share;

use std::collections::BTreeMap;

pub use response::{PACKET_BYTES, SEGMENT_BYTES};
use share::Asked;

/// First window of a connection (RFC 6928), bytes.
const FIRST_BYTES: f64 = 10.0 * SEGMENT_BYTES;
/// A flow is at a limit from this share of it on.
const AT_LIMIT: f64 = 0.999;
/// A flow has ended when less than this is left, bytes: rates are floats.
const NOTHING_BYTES: f64 = 0.5;

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

/// A flow that was opened.
#[derive(Debug)]
struct OpenFlow {
    links: Vec<usize>,
    rtt_s: f64,
    connections: u32,
    window_bytes: f64,
    /// Random loss of its links.
    loss: f64,
    /// The window that it leaves a connection, bytes.
    loss_window_bytes: f64,
    left: f64,
    moved: f64,
    /// What slow start lets out, and when that doubles.
    slow_start: Option<(f64, f64)>,
    /// Nothing is left, and the caller knows.
    is_done: bool,
    /// Payload that is sent, bit/s.
    sent_bps: f64,
    state: Limited,
}

#[derive(Debug, Clone, Copy)]
struct Limited {
    limit: FluidLimit,
    /// Losses of all kinds.
    loss: f64,
    queue_s: f64,
}

impl OpenFlow {
    fn goodput_bps(&self) -> f64 {
        self.sent_bps * (1.0 - self.state.loss)
    }

    fn limit(&self) -> (f64, FluidLimit) {
        let n = f64::from(self.connections);
        let per_window = 8.0 / self.rtt_s;
        let windows = n * self.window_bytes * per_window;
        let by_loss = n * self.loss_window_bytes * per_window;
        let start = (self.slow_start).map_or(f64::INFINITY, |(bytes, _)| bytes * per_window);
        let all = [
            (windows, FluidLimit::Window),
            (by_loss, FluidLimit::Loss),
            (start, FluidLimit::SlowStart),
        ];
        all.into_iter()
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((windows, FluidLimit::Window))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    sent_bps: f64,
    lost_bps: f64,
    queue_s: f64,
    is_full: bool,
}

/// Links and the flows on them.
#[derive(Debug)]
pub struct Fluid {
    links: Vec<FluidLink>,
    uses: Vec<LinkUse>,
    loads: Vec<Load>,
    flows: BTreeMap<FluidId, OpenFlow>,
    opened: u64,
    now_s: f64,
    /// Up to when bytes are counted.
    counted_s: f64,
    /// Rates are not those of the flows that there are.
    is_stale: bool,
    next_s: Option<f64>,
}

impl Fluid {
    /// Links without flows, at 0 s.
    pub fn new(links: Vec<FluidLink>) -> Self {
        Self {
            uses: vec![LinkUse::default(); links.len()],
            loads: vec![Load::default(); links.len()],
            links,
            flows: BTreeMap::new(),
            opened: 0,
            now_s: 0.0,
            counted_s: 0.0,
            is_stale: false,
            next_s: None,
        }
    }

    /// Seconds since the beginning.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// A flow begins.
    pub fn open(&mut self, flow: FluidFlow) -> FluidId {
        self.count();
        let id = FluidId(self.opened);
        self.opened += 1;
        let delays = flow.links.iter().map(|link| self.links[*link].delay_s);
        let passed = flow.links.iter().map(|link| 1.0 - self.links[*link].loss);
        let rtt_s = (delays.sum::<f64>() + flow.back_s).max(1e-4);
        let connections = flow.connections.max(1);
        let first = (flow.under_way_bytes).unwrap_or(f64::from(connections) * FIRST_BYTES);
        let loss = 1.0 - passed.product::<f64>();
        let state = OpenFlow {
            rtt_s,
            connections,
            window_bytes: flow.window_bytes,
            loss,
            loss_window_bytes: response::window(rtt_s, loss) * SEGMENT_BYTES,
            left: flow.bytes,
            moved: 0.0,
            slow_start: Some((first.max(FIRST_BYTES), self.now_s + rtt_s)),
            is_done: false,
            sent_bps: 0.0,
            state: Limited {
                limit: FluidLimit::SlowStart,
                loss,
                queue_s: 0.0,
            },
            links: flow.links,
        };
        self.flows.insert(id, state);
        self.is_stale = true;
        id
    }

    /// Another number of connections; new ones begin slowly.
    pub fn set_connections(&mut self, id: FluidId, connections: u32) {
        self.count();
        let now_s = self.now_s;
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let (before, connections) = (flow.connections, connections.max(1));
        if connections == before {
            return;
        }
        flow.connections = connections;
        let under_way = flow.sent_bps / 8.0 * flow.rtt_s;
        let share = f64::from(connections) / f64::from(before);
        if connections > before {
            let more = f64::from(connections - before) * FIRST_BYTES;
            flow.slow_start = match flow.slow_start {
                Some((bytes, at)) => Some((bytes + more, at)),
                None => Some((under_way + more, now_s + flow.rtt_s)),
            };
        } else if let Some((bytes, _)) = &mut flow.slow_start {
            *bytes *= share;
        }
        self.is_stale = true;
    }

    /// Ends a flow.
    pub fn close(&mut self, id: FluidId) {
        self.count();
        self.is_stale |= self.flows.remove(&id).is_some();
    }

    /// A flow now; `None`: it was closed.
    pub fn state(&mut self, id: FluidId) -> Option<FluidState> {
        self.refresh();
        let since = self.now_s - self.counted_s;
        let flow = self.flows.get(&id)?;
        let goodput_bps = flow.goodput_bps();
        let more = (goodput_bps / 8.0 * since).min(flow.left);
        Some(FluidState {
            bytes: flow.moved + more,
            goodput_bps,
            loss: flow.state.loss,
            rtt_s: flow.rtt_s + flow.state.queue_s,
            rtt_min_s: flow.rtt_s,
            limit: flow.state.limit,
        })
    }

    /// What a link did up to now.
    pub fn link_use(&mut self, link: usize) -> Option<LinkUse> {
        self.count();
        self.uses.get(link).copied()
    }

    /// When a rate changes next, or a flow ends, if nothing is opened or closed until then.
    pub fn next_s(&mut self) -> Option<f64> {
        self.refresh();
        self.next_s
    }

    /// Time passes until `until_s`, or until a flow has moved all: those are returned, and stay
    /// until they are closed.
    pub fn run_until(&mut self, until_s: f64) -> Vec<FluidId> {
        loop {
            self.refresh();
            let next = self.next_s.filter(|next| *next <= until_s);
            self.now_s = next.unwrap_or(until_s).max(self.now_s);
            if next.is_none() {
                return Vec::new();
            }
            self.count();
            self.grow();
            self.is_stale = true;
            let mut ended = Vec::new();
            for (id, flow) in &mut self.flows {
                if flow.left <= NOTHING_BYTES && !flow.is_done {
                    flow.is_done = true;
                    ended.push(*id);
                }
            }
            if !ended.is_empty() {
                return ended;
            }
        }
    }

    /// Slow start doubles what is under way.
    fn grow(&mut self) {
        for flow in self.flows.values_mut() {
            if let Some((bytes, at)) = &mut flow.slow_start
                && *at <= self.now_s + 1e-9
            {
                *bytes *= 2.0;
                *at = self.now_s + flow.rtt_s;
            }
        }
    }

    /// Counts what moved since the last change of rates.
    fn count(&mut self) {
        let seconds = self.now_s - self.counted_s;
        if seconds <= 0.0 {
            return;
        }
        self.counted_s = self.now_s;
        for flow in self.flows.values_mut() {
            let bytes = (flow.goodput_bps() / 8.0 * seconds).min(flow.left);
            flow.left -= bytes;
            flow.moved += bytes;
        }
        for (used, load) in self.uses.iter_mut().zip(&self.loads) {
            used.bytes += load.sent_bps / 8.0 * seconds;
            used.lost_bytes += load.lost_bps / 8.0 * seconds;
            used.queue_s2 += load.queue_s * seconds;
            used.full_s += if load.is_full { seconds } else { 0.0 };
        }
    }

    /// Rates of all flows, where some opened, changed or ended.
    fn refresh(&mut self) {
        if !self.is_stale {
            return;
        }
        self.is_stale = false;
        // Connections of links, and the sum of their round trips.
        let mut loaded = vec![(0_u32, 0.0); self.links.len()];
        for flow in self.flows.values().filter(|flow| !flow.is_done) {
            for link in &flow.links {
                loaded[*link].0 += flow.connections;
                loaded[*link].1 += f64::from(flow.connections) * flow.rtt_s;
            }
        }
        // Queues in bandwidth-delay products of the mean connection, and what links carry.
        let mut queues = vec![0.0; self.links.len()];
        let mut capacities = vec![0.0; self.links.len()];
        for (at, (link, (connections, round_trips))) in self.links.iter().zip(&loaded).enumerate() {
            if *connections > 0 {
                queues[at] = link.queue_s * f64::from(*connections) / round_trips;
                let unused = response::unused(queues[at]) / f64::from(*connections);
                capacities[at] = link.rate_bps * SEGMENT_BYTES / PACKET_BYTES * (1.0 - unused);
            }
        }
        let active = self.flows.values().filter(|flow| !flow.is_done);
        let mut asked: Vec<Asked<'_>> = active
            .map(|flow| Asked {
                links: &flow.links,
                weight: f64::from(flow.connections) / flow.rtt_s,
                limit: flow.limit().0,
            })
            .collect();
        let mut got = share::shares(&capacities, &asked);
        let mut is_full = vec![false; self.links.len()];
        for link in got.iter().filter_map(|got| got.link) {
            is_full[link] = true;
        }
        let mut several = false;
        for flow in &mut asked {
            let full = flow.links.iter().filter(|link| is_full[**link]).count();
            if let Ok(full @ 2..) = u32::try_from(full) {
                flow.weight /= f64::from(full).powi(3);
                several = true;
            }
        }
        if several {
            got = share::shares(&capacities, &asked);
        }
        self.loads.fill(Load::default());
        self.next_s = None;
        let active = self.flows.values_mut().filter(|flow| !flow.is_done);
        for (flow, got) in active.zip(got) {
            flow.sent_bps = got.rate;
            let (mut queue_s, mut lost) = (0.0, 0.0);
            if let Some(link) = got.link {
                queue_s = self.links[link].queue_s * response::mean_queue(queues[link]);
                let rtt_s = flow.rtt_s + queue_s;
                let each = got.rate / f64::from(flow.connections) / 8.0;
                lost = response::loss(rtt_s, each * rtt_s / SEGMENT_BYTES);
                let load = &mut self.loads[link];
                load.is_full = true;
                load.queue_s = queue_s;
            }
            flow.state = Limited {
                limit: got.link.map_or_else(|| flow.limit().1, FluidLimit::Link),
                loss: flow.loss.max(lost),
                queue_s,
            };
            let wire_bps = got.rate * PACKET_BYTES / SEGMENT_BYTES;
            for link in &flow.links {
                let load = &mut self.loads[*link];
                load.sent_bps += wire_bps;
                let full = if got.link == Some(*link) { lost } else { 0.0 };
                load.lost_bps += wire_bps * full.max(self.links[*link].loss);
            }
            // Slow start ends where something else is the limit.
            let most = flow.slow_start.map(|(bytes, _)| bytes * 8.0 / flow.rtt_s);
            if most.is_some_and(|most| got.rate < AT_LIMIT * most) {
                flow.slow_start = None;
            }
            let bps = flow.goodput_bps();
            let end = (bps > 0.0).then(|| self.now_s + flow.left.max(0.0) * 8.0 / bps);
            let grows = flow.slow_start.map(|(_, at)| at);
            let soonest = [self.next_s, end, grows].into_iter().flatten();
            self.next_s = soonest.min_by(f64::total_cmp);
        }
        for (used, (connections, _)) in self.uses.iter_mut().zip(loaded) {
            used.connections_max = used.connections_max.max(connections);
        }
    }
}
