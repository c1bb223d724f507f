//! The ends of a transfer: storage, processors, the threads that move data, and a cap.
//!
//! ```text
//!   source ─► movers ─► socket ═══ path ═══► socket ─► movers ─► destination
//!            read, run    │ room                │ edge    run, write
//! ```
//! The kernel reads ahead and writes behind, so a mover sleeps in a call for storage only where
//! storage is what is slow. Movers count as in the client (`MoverClock`): they run, they could run
//! and have no processor, they sleep in storage, or they wait for sockets and for the cap.

use std::collections::{BTreeMap, VecDeque};

use super::{
    channels::{Channels, Sums},
    end_times::{EndTimes, MoverTimes},
};
use crate::{FlowId, MS, SECOND, Simulation};

/// Longest and shortest time between two turns of the movers, ns: a twentieth of a round trip
/// between, so that turns do not add to it.
const TURN_MAX_NS: u64 = MS;
const TURN_MIN_NS: u64 = MS / 20;
const TURNS_OF_ROUND_TRIP: u64 = 20;
/// Unused time that may be made up for later, s: what was read ahead.
const CREDIT_S: f64 = 0.005;
/// The same of a cap, as in the client.
const CREDIT_CAP_S: f64 = 0.05;

/// One end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// Threads that may serve the transfer, at least 1. Each channel belongs to one.
    pub movers: u32,
    /// Processors that other programs leave to them, above 0; a part where others compete.
    pub processors: f64,
    /// What a mover moves while it runs, bit/s.
    pub mover_bps: f64,
    /// What storage reads or writes, bit/s.
    pub storage_bps: f64,
}

/// Both ends, and what the user allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hosts {
    /// The client sends. Then it sees its own movers alone; if it receives, its server reports
    /// what it measures, too.
    pub sends: bool,
    /// Reads and sends.
    pub source: Host,
    /// Receives and writes.
    pub destination: Host,
    /// The client's `--max-rate`, bit/s.
    pub cap_bps: Option<f64>,
}

/// What makes an end as fast as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Processor,
    Storage,
    Cap,
}

/// An end at work.
#[derive(Debug)]
struct End {
    host: Host,
    cap_bps: Option<f64>,
    packet_bits: f64,
    /// Packets that it may move at once.
    credit: f64,
}

impl End {
    fn new(host: Host, cap_bps: Option<f64>, packet_bytes: u32) -> Self {
        Self {
            host,
            cap_bps,
            packet_bits: 8.0 * f64::from(packet_bytes),
            credit: 0.0,
        }
    }

    /// Threads that serve so many channels.
    fn threads(&self, channels: u32) -> f64 {
        f64::from(self.host.movers.min(channels))
    }

    /// What limits it, and to how many bit/s.
    fn limit(&self, channels: u32) -> (Part, f64) {
        let running = self.host.processors.min(self.threads(channels));
        let of_processor = (Part::Processor, running * self.host.mover_bps);
        let of_storage = (Part::Storage, self.host.storage_bps);
        let of_cap = (Part::Cap, self.cap_bps.unwrap_or(f64::INFINITY));
        [of_storage, of_cap]
            .into_iter()
            .fold(of_processor, |least, one| match one.1 < least.1 {
                true => one,
                false => least,
            })
    }

    /// Moves up to `wanted` packets of each channel: at most its credit, in equal parts.
    fn turn(&mut self, seconds: f64, channels: u32, wanted: &mut [u32]) -> MoverTimes {
        let (part, bps) = self.limit(channels);
        let credit_s = seconds.max(match part {
            Part::Cap => CREDIT_CAP_S,
            Part::Processor | Part::Storage => CREDIT_S,
        });
        let most = (bps * credit_s / self.packet_bits).max(2.0);
        self.credit = (self.credit + bps * seconds / self.packet_bits).min(most);
        let all: u64 = wanted.iter().map(|n| u64::from(*n)).sum();
        let moved = share_out(wanted, self.credit);
        #[allow(clippy::cast_precision_loss, reason = "packets of a turn")]
        let packets = moved as f64;
        self.credit -= packets;
        let threads = self.threads(channels);
        let elapsed_s = threads * seconds;
        let run_s = |bps: f64| (bps * seconds / self.host.mover_bps).min(elapsed_s);
        let mut turn = MoverTimes {
            elapsed_s,
            running_s: packets * self.packet_bits / self.host.mover_bps,
            ..MoverTimes::default()
        };
        // More was to be moved: no mover waited for a socket.
        if moved < all {
            let running_s = run_s(bps);
            turn.running_s = running_s;
            match part {
                Part::Processor => turn.runnable_s = elapsed_s - running_s,
                Part::Storage => turn.asleep_s = elapsed_s - running_s,
                Part::Cap => {}
            }
        }
        turn
    }
}

/// Leaves in `wanted` what each gets of `credit`, in equal parts as far as it wants; the sum.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn share_out(wanted: &mut [u32], credit: f64) -> u64 {
    let mut left = credit.max(0.0) as u64;
    let all: u64 = wanted.iter().map(|n| u64::from(*n)).sum();
    if all <= left {
        return all;
    }
    let given = left;
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at]);
    let mut channels = wanted.len() as u64;
    for at in order {
        // The last ones get what does not divide.
        let part = (left / channels).min(u64::from(wanted[at]));
        wanted[at] = u32::try_from(part).unwrap_or(u32::MAX);
        left -= part;
        channels -= 1;
    }
    given - left
}

/// Both ends at work.
#[derive(Debug)]
pub(super) struct Movers {
    sends: bool,
    cap_bps: Option<f64>,
    source: End,
    destination: End,
    turn_ns: u64,
    one_way_ns: u64,
    window: u32,
    /// Packets that the destination has read, and whether its sender knows of a backlog.
    read: BTreeMap<FlowId, (u32, bool)>,
    /// Payload of it, of all channels, bytes.
    bytes: u64,
    /// Windows on their way back.
    updates: VecDeque<(u64, FlowId, u32)>,
    seen: EndTimes,
}

impl Movers {
    pub(super) fn new(hosts: &Hosts, channels: &Channels) -> Self {
        let packet = channels.payload_bytes();
        let (here, there) = (hosts.cap_bps, None);
        let (source_cap, destination_cap) = if hosts.sends {
            (here, there)
        } else {
            (there, here)
        };
        Self {
            sends: hosts.sends,
            cap_bps: hosts.cap_bps,
            source: End::new(hosts.source, source_cap, packet),
            destination: End::new(hosts.destination, destination_cap, packet),
            turn_ns: (channels.round_trip_ns / TURNS_OF_ROUND_TRIP).clamp(TURN_MIN_NS, TURN_MAX_NS),
            one_way_ns: channels.round_trip_ns / 2,
            window: channels.window(),
            read: BTreeMap::new(),
            bytes: 0,
            updates: VecDeque::new(),
            seen: EndTimes::default(),
        }
    }

    /// As [`Channels::pass`], with turns of the movers meanwhile.
    pub(super) fn pass(
        &mut self,
        simulation: &mut Simulation,
        channels: &mut Channels,
        step: u64,
        until: u64,
    ) -> Sums {
        let end = ((simulation.now() / step + 1) * step).min(until);
        while simulation.now() < end {
            let began = simulation.now();
            self.send(simulation, channels);
            simulation.run_until((began + self.turn_ns).min(end));
            self.receive(simulation, channels, began);
        }
        let sums = channels.sums(simulation);
        Sums {
            // A receiver counts what its movers have read from their sockets.
            bytes: match self.sends {
                true => sums.bytes,
                false => self.bytes,
            },
            ends: self.seen,
            rate_cap_bps: self.cap_bps,
            ..sums
        }
    }

    fn send(&mut self, simulation: &mut Simulation, channels: &Channels) {
        let open: Vec<FlowId> = (channels.wanted.iter().copied())
            .filter(|flow| simulation.stats(*flow).is_open)
            .collect();
        let mut packets: Vec<u32> = open.iter().map(|flow| simulation.room(*flow)).collect();
        let n = u32::try_from(open.len()).unwrap_or(u32::MAX);
        let turn = (self.source).turn(seconds(self.turn_ns), n, &mut packets);
        for (flow, packets) in open.iter().zip(packets).filter(|(_, n)| *n > 0) {
            simulation.write(*flow, packets);
        }
        self.seen.source.add(&turn);
    }

    fn receive(&mut self, simulation: &mut Simulation, channels: &Channels, began: u64) {
        let now = simulation.now();
        while let Some((at, flow, edge)) = self.updates.front().copied()
            && at <= now
        {
            self.updates.pop_front();
            simulation.advertise(flow, edge);
        }
        let flows: Vec<FlowId> = (channels.wanted.iter().chain(&channels.retired))
            .copied()
            .collect();
        self.read.retain(|flow, _| flows.contains(flow));
        let arrived: Vec<u32> = (flows.iter())
            .map(|flow| simulation.stats(*flow).delivered)
            .collect();
        let waiting = |(flow, arrived): (&FlowId, &u32)| {
            arrived - self.read.get(flow).map_or(0, |(read, _)| *read)
        };
        let mut packets: Vec<u32> = flows.iter().zip(&arrived).map(waiting).collect();
        let n = (flows.iter()).filter(|flow| simulation.stats(**flow).is_open);
        let n = u32::try_from(n.count()).unwrap_or(u32::MAX);
        let turn = (self.destination).turn(seconds(now - began), n, &mut packets);
        if !self.sends {
            self.seen.destination.add(&turn);
        }
        let at = now + self.one_way_ns;
        let payload = u64::from(channels.payload_bytes());
        for ((flow, packets), arrived) in flows.iter().zip(packets).zip(arrived) {
            let (read, known) = self.read.entry(*flow).or_default();
            *read += packets;
            self.bytes += u64::from(packets) * payload;
            let backlog = *read < arrived;
            if backlog || *known {
                let edge = match backlog {
                    true => read.saturating_add(self.window),
                    false => u32::MAX,
                };
                self.updates.push_back((at, *flow, edge));
            }
            *known = backlog;
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a turn")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / SECOND as f64
}
