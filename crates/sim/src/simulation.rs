//! Flows over a network, event by event.

use crate::{
    events::{Event, Events},
    network::{InvalidTopology, Link, Route, Topology},
    path::Counters,
    tcp::{Packet, Receiver, ReceiverConfig, Reply, Sender, SenderConfig, SenderCounters},
};

/// Size of an acknowledgement, bytes: headers alone, as ns-2's are.
const ACK_BYTES: u32 = 40;

/// Which flow of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(u32);

/// Which queue of packets that flows share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolId(usize);

/// What a flow has to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// Nothing more than it has taken.
    Nothing,
    /// As much as it can.
    Endless,
    /// Blocks of a queue that others take from, too.
    Pool(PoolId),
}

/// A flow to open.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowConfig {
    /// Its links.
    pub route: Route,
    /// The end that sends.
    pub sender: SenderConfig,
    /// The end that receives.
    pub receiver: ReceiverConfig,
    /// What it sends.
    pub supply: Supply,
    /// When it may send its first packet, ns; now, if that has passed.
    pub at_ns: u64,
}

/// What a flow has done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowStats {
    /// Packets that have arrived in order.
    pub delivered: u32,
    /// Payload of them, bytes.
    pub delivered_bytes: u64,
    /// Packets that arrived more than once.
    pub duplicates: u64,
    /// Counters of its sender.
    pub sender: SenderCounters,
    /// Smoothed round-trip time, ns.
    pub srtt_ns: Option<f64>,
    /// Shortest round-trip time, ns.
    pub rtt_min_ns: Option<u64>,
    /// It may send: it is open and not closed.
    pub is_open: bool,
    /// Everything that it took from its supply is acknowledged.
    pub is_idle: bool,
}

/// Sums over a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets, data and acknowledgements, that came out of a link.
    pub packet_events: u64,
    /// Packets that senders and receivers put on their first link.
    pub entered: u64,
    /// Packets that came to the end of their route.
    pub arrived: u64,
}

#[derive(Debug)]
struct Flow {
    route: usize,
    sender: Sender,
    receiver: Receiver,
    config: SenderConfig,
    supply: Supply,
    is_open: bool,
    is_closed: bool,
    /// When the timer event in the heap is due; one is enough.
    timer_at: Option<u64>,
    /// The same for delayed acknowledgements.
    ack_at: Option<u64>,
}

#[derive(Debug)]
struct Pool {
    left: u64,
    block: u32,
}

/// A network, its flows and what happens next.
#[derive(Debug)]
pub struct Simulation {
    topology: Topology,
    links: Vec<Link>,
    routes: Vec<Route>,
    flows: Vec<Flow>,
    pools: Vec<Pool>,
    events: Events,
    now: u64,
    trace: u64,
    totals: Totals,
    /// Numbers of packets to send: kept, so that no event allocates.
    out: Vec<u32>,
}

impl Simulation {
    /// An idle network. `seed` is added to those of the links.
    ///
    /// # Errors
    /// [`InvalidTopology`]: a path makes no sense.
    pub fn new(topology: Topology, seed: u64) -> Result<Self, InvalidTopology> {
        let mut links = Vec::new();
        for (index, path) in topology.links().enumerate() {
            let mut path = path.clone();
            let own = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            path.seed = path.seed.wrapping_add(seed).wrapping_add(own);
            links.push(Link::new(path).map_err(|error| InvalidTopology {
                field: format!("link[{index}].path.{}", error.field),
                reason: error.reason.to_owned(),
            })?);
        }
        Ok(Self {
            topology,
            links,
            routes: Vec::new(),
            flows: Vec::new(),
            pools: Vec::new(),
            events: Events::default(),
            now: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            totals: Totals::default(),
            out: Vec::new(),
        })
    }

    /// The network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Time, ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A number that all events so far have gone into: equal for equal runs.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// What has happened so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Packets that are on links now.
    pub fn on_links(&self) -> u64 {
        self.links.iter().map(Link::held).sum()
    }

    /// What a link has done, by its place in the topology.
    pub fn link_counters(&self, link: usize) -> Option<Counters> {
        self.links.get(link).map(Link::counters)
    }

    /// Packets and bytes in the queue of a link now.
    pub fn queued(&mut self, link: usize) -> Option<(u64, u64)> {
        let now = self.now;
        self.links.get_mut(link).map(|link| link.queued(now))
    }

    /// A queue of `packets` that flows take blocks of at most `block` from, at least 1.
    pub fn add_pool(&mut self, packets: u64, block: u32) -> PoolId {
        self.pools.push(Pool {
            left: packets,
            block: block.max(1),
        });
        PoolId(self.pools.len() - 1)
    }

    /// Packets that no flow has taken yet.
    pub fn pool_left(&self, pool: PoolId) -> u64 {
        self.pools[pool.0].left
    }

    /// Opens a flow.
    ///
    /// # Panics
    /// With 2^32 flows.
    pub fn open(&mut self, config: FlowConfig) -> FlowId {
        let known = self.routes.iter().position(|route| *route == config.route);
        let route = known.unwrap_or_else(|| {
            self.routes.push(config.route);
            self.routes.len() - 1
        });
        let index = u32::try_from(self.flows.len()).expect("fewer than 2^32 flows");
        self.flows.push(Flow {
            route,
            sender: Sender::new(config.sender),
            receiver: Receiver::new(config.receiver),
            config: config.sender,
            supply: config.supply,
            is_open: false,
            is_closed: false,
            timer_at: None,
            ack_at: None,
        });
        self.events
            .push(config.at_ns.max(self.now), Event::Open(index));
        FlowId(index)
    }

    /// Gives a flow something else to send. What it has taken, it still sends.
    pub fn supply(&mut self, flow: FlowId, supply: Supply) {
        let state = &mut self.flows[flow.0 as usize];
        if state.supply == Supply::Endless {
            // It promised nothing beyond what it has sent.
            state.sender.window.end = state.sender.window.max;
        }
        state.supply = supply;
        if state.is_open {
            self.transmit(flow.0);
        }
    }

    /// Packets that the socket of a flow takes now: as in Linux, it holds as many that were not
    /// sent as the congestion window lets be under way.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    pub fn room(&self, flow: FlowId) -> u32 {
        let flow = &self.flows[flow.0 as usize];
        let window = &flow.sender.window;
        let held = window.end - window.una;
        match flow.is_open {
            true => ((2.0 * window.allowed()) as u32).saturating_sub(held),
            false => 0,
        }
    }

    /// An application writes so many packets into the socket of a flow.
    pub fn write(&mut self, flow: FlowId, packets: u32) {
        let window = &mut self.flows[flow.0 as usize].sender.window;
        window.end = window.end.saturating_add(packets);
        if self.flows[flow.0 as usize].is_open {
            self.transmit(flow.0);
        }
    }

    /// The sender of a flow learns how far the receiver's window reaches, where its application
    /// reads slowly. It never reaches less far than before.
    pub fn advertise(&mut self, flow: FlowId, edge: u32) {
        let state = &mut self.flows[flow.0 as usize];
        let window = &mut state.sender.window;
        window.edge = edge.max(window.max);
        if state.is_open {
            self.transmit(flow.0);
        }
    }

    /// The flow sends nothing any more, not even again. What is on links still arrives.
    pub fn close(&mut self, flow: FlowId) {
        let flow = &mut self.flows[flow.0 as usize];
        flow.is_closed = true;
        flow.is_open = false;
        flow.supply = Supply::Nothing;
    }

    /// What a flow has done.
    pub fn stats(&self, flow: FlowId) -> FlowStats {
        let flow = &self.flows[flow.0 as usize];
        let window = &flow.sender.window;
        FlowStats {
            delivered: flow.receiver.next,
            delivered_bytes: u64::from(flow.receiver.next) * u64::from(flow.config.payload_bytes),
            duplicates: flow.receiver.duplicates,
            sender: window.counters_at(self.now),
            srtt_ns: window.rto.srtt_ns(),
            rtt_min_ns: window.rto.least_ns(),
            is_open: flow.is_open,
            is_idle: window.una >= window.end,
        }
    }

    /// Lets time pass until `until`, ns.
    pub fn run_until(&mut self, until: u64) {
        while let Some((at, event)) = self.events.pop(until) {
            self.now = at;
            match event {
                Event::Link(link) => self.leave_link(link),
                Event::DelayedAck(flow) => self.acknowledge_if_due(flow),
                Event::Timer(flow) => self.expire(flow),
                Event::Open(flow) => {
                    let state = &mut self.flows[flow as usize];
                    if !state.is_closed {
                        state.is_open = true;
                        self.note(u64::from(flow) << 8 | 1);
                        self.transmit(flow);
                    }
                }
            }
        }
        self.now = self.now.max(until);
    }

    fn leave_link(&mut self, link: u32) {
        let now = self.now;
        let Some(mut packet) = self.links[link as usize].release(now) else {
            return;
        };
        if let Some(next) = self.links[link as usize].next_ns() {
            self.events.push(next, Event::Link(link));
        }
        self.totals.packet_events += 1;
        self.note(u64::from(packet.seq) << 32 | u64::from(link) << 8 | u64::from(packet.is_ack));
        packet.hop += 1;
        let route = &self.routes[self.flows[packet.flow as usize].route];
        let links = if packet.is_ack {
            &route.back
        } else {
            &route.forward
        };
        match links.get(usize::from(packet.hop)) {
            Some(next) => self.enter_link(u32::from(*next), packet),
            None => {
                self.totals.arrived += 1;
                if packet.is_ack {
                    self.take_ack(&packet);
                } else {
                    self.take_data(&packet);
                }
            }
        }
    }

    fn enter_link(&mut self, link: u32, packet: Packet) {
        if let Some(next) = self.links[link as usize].arrive(self.now, packet) {
            self.events.push(next, Event::Link(link));
        }
    }

    fn take_data(&mut self, packet: &Packet) {
        let flow = &mut self.flows[packet.flow as usize];
        match flow.receiver.arrive(self.now, packet.seq, packet.sent_at) {
            Reply::Now => self.acknowledge(packet.flow),
            Reply::At(at) => self.arm_ack(packet.flow, at),
        }
    }

    fn arm_ack(&mut self, index: u32, at: u64) {
        let pending = &mut self.flows[index as usize].ack_at;
        if pending.is_none_or(|pending| at < pending) {
            *pending = Some(at);
            self.events.push(at, Event::DelayedAck(index));
        }
    }

    fn acknowledge_if_due(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        flow.ack_at = None;
        match flow.receiver.deadline {
            Some(deadline) if deadline <= self.now => self.acknowledge(index),
            Some(deadline) => self.arm_ack(index, deadline),
            None => {}
        }
    }

    fn acknowledge(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        let packet = (flow.receiver).acknowledge(index, ACK_BYTES);
        let first = self.routes[flow.route].back[0];
        self.totals.entered += 1;
        self.enter_link(u32::from(first), packet);
    }

    fn take_ack(&mut self, packet: &Packet) {
        let flow = &mut self.flows[packet.flow as usize];
        if flow.is_closed {
            return;
        }
        flow.sender.on_ack(self.now, packet, &mut self.out);
        self.transmit(packet.flow);
    }

    fn expire(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        flow.timer_at = None;
        match flow.sender.window.deadline {
            Some(deadline) if !flow.is_closed && deadline <= self.now => {
                self.note(u64::from(index) << 8 | 2);
                self.flows[index as usize].sender.on_timeout(self.now);
                self.transmit(index);
            }
            _ => self.arm(index),
        }
    }

    /// Sends what windows and supply allow, and what acknowledgements have put into `out`.
    fn transmit(&mut self, index: u32) {
        let now = self.now;
        loop {
            let flow = &mut self.flows[index as usize];
            if flow.is_open {
                flow.sender.transmit(now, &mut self.out);
            }
            let (config, route) = (flow.config, flow.route);
            let starved = flow.is_open && flow.sender.window.is_starved();
            let first = u32::from(self.routes[route].forward[0]);
            for at in 0..self.out.len() {
                let packet = Packet {
                    flow: index,
                    hop: 0,
                    is_ack: false,
                    bytes: config.packet_bytes(),
                    seq: self.out[at],
                    cause: 0,
                    sent_at: now,
                    sacks: Default::default(),
                };
                self.totals.entered += 1;
                self.enter_link(first, packet);
            }
            self.out.clear();
            if !(starved && self.refill(index)) {
                break;
            }
        }
        self.arm(index);
    }

    /// A block of the supply; false where there is none.
    fn refill(&mut self, index: u32) -> bool {
        let flow = &mut self.flows[index as usize];
        let block = match flow.supply {
            Supply::Nothing => 0,
            Supply::Endless => u32::MAX - flow.sender.window.end,
            Supply::Pool(pool) => {
                let pool = &mut self.pools[pool.0];
                let block = u64::from(pool.block).min(pool.left);
                pool.left -= block;
                u32::try_from(block).unwrap_or(u32::MAX)
            }
        };
        flow.sender.window.end = flow.sender.window.end.saturating_add(block);
        block > 0
    }

    /// One timer event of a flow is in the heap, due no later than its deadline: deadlines move
    /// with every acknowledgement, events need not.
    fn arm(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        let Some(deadline) = flow.sender.window.deadline.filter(|_| !flow.is_closed) else {
            return;
        };
        if flow.timer_at.is_none_or(|at| deadline < at) {
            flow.timer_at = Some(deadline);
            self.events.push(deadline, Event::Timer(index));
        }
    }

    /// FNV-1a over 64-bit words.
    fn note(&mut self, what: u64) {
        for word in [self.now, what] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
