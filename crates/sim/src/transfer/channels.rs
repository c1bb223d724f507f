//! The channels of a transfer: flows that join and retire.

use super::{Look, end_times::EndTimes};
use crate::{
    FlowConfig, FlowId, Simulation, Supply,
    network::Route,
    tcp::{ReceiverConfig, SenderConfig},
};

/// What all channels of a transfer have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelConfig {
    /// Their links.
    pub route: Route,
    /// The end that sends.
    pub sender: SenderConfig,
    /// The end that receives.
    pub receiver: ReceiverConfig,
}

/// Sums over all channels at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) at_ns: u64,
    pub(super) bytes: u64,
    pub(super) sent: u64,
    pub(super) retransmitted: u64,
    pub(super) limited_ns: u64,
    pub(super) idle_ns: u64,
    /// Channels x time, ns.
    pub(super) channel_ns: u64,
    /// Channels that may send now.
    pub(super) channels: u32,
    /// Means over these channels.
    pub(super) srtt_ns: Option<f64>,
    pub(super) rtt_min_ns: Option<u64>,
    /// What movers did; zero without hosts.
    pub(super) ends: EndTimes,
    /// The user's cap.
    pub(super) rate_cap_bps: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Channels {
    config: ChannelConfig,
    /// Those that are wanted, oldest first; some may not be open yet.
    pub(super) wanted: Vec<FlowId>,
    /// Those that finish what they have taken.
    pub(super) retired: Vec<FlowId>,
    /// Of channels that are gone.
    gone: Sums,
    channel_ns: u64,
    last_ns: u64,
    /// Round trip of commands and handshakes, ns.
    pub(super) round_trip_ns: u64,
}

impl Channels {
    pub(super) fn new(simulation: &Simulation, config: ChannelConfig) -> Self {
        Self {
            round_trip_ns: simulation.topology().round_trip_ns(&config.route),
            config,
            wanted: Vec::new(),
            retired: Vec::new(),
            gone: Sums::default(),
            channel_ns: 0,
            last_ns: simulation.now(),
        }
    }

    /// Payload of a packet, bytes.
    pub(super) fn payload_bytes(&self) -> u32 {
        self.config.sender.payload_bytes
    }

    /// The receiver's window, packets.
    pub(super) fn window(&self) -> u32 {
        self.config.sender.window_max
    }

    /// What the windows of `n` channels let through in `seconds`, bytes: X = N W / R x Delta.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "casts of floats saturate"
    )]
    pub(super) fn of_windows(&self, n: u32, seconds: f64) -> u64 {
        let window = f64::from(self.config.sender.window_max) * f64::from(self.payload_bytes());
        let r = (self.round_trip_ns as f64 / 1e9).max(1e-6);
        (f64::from(n) * window / r * seconds) as u64
    }

    /// One channel more, which sends from `at_ns` on.
    pub(super) fn open(&mut self, simulation: &mut Simulation, supply: Supply, at_ns: u64) {
        let flow = simulation.open(FlowConfig {
            route: self.config.route.clone(),
            sender: self.config.sender,
            receiver: self.config.receiver,
            supply,
            at_ns,
        });
        self.wanted.push(flow);
    }

    /// The youngest channel takes nothing more.
    pub(super) fn retire(&mut self, simulation: &mut Simulation) {
        if let Some(flow) = self.wanted.pop() {
            simulation.supply(flow, Supply::Nothing);
            self.retired.push(flow);
        }
    }

    /// A closed channel is gone; what it delivered counts.
    pub(super) fn abandon(&mut self, simulation: &Simulation, flow: FlowId) {
        add(&mut self.gone, &simulation.stats(flow));
    }

    /// Time passes until the next multiple of `step`, or until `until` if that comes first.
    pub(super) fn pass(&mut self, simulation: &mut Simulation, step: u64, until: u64) -> Sums {
        let next = (simulation.now() / step + 1) * step;
        simulation.run_until(next.min(until));
        self.sums(simulation)
    }

    /// Sums over all channels, those that are gone included.
    pub(super) fn sums(&mut self, simulation: &mut Simulation) -> Sums {
        let now = simulation.now();
        let mut sums = self.gone;
        let mut still = Vec::new();
        for flow in self.retired.drain(..) {
            let stats = simulation.stats(flow);
            add(&mut sums, &stats);
            if stats.is_idle {
                add(&mut self.gone, &stats);
                simulation.close(flow);
            } else {
                still.push(flow);
            }
        }
        self.retired = still;
        let (mut rtts, mut least) = (Vec::new(), None::<u64>);
        for flow in &self.wanted {
            let stats = simulation.stats(*flow);
            add(&mut sums, &stats);
            sums.channels += u32::from(stats.is_open);
            rtts.extend(stats.srtt_ns);
            least = [least, stats.rtt_min_ns].into_iter().flatten().min();
        }
        let passed = now - self.last_ns;
        self.channel_ns += passed * u64::from(sums.channels);
        self.last_ns = now;
        #[allow(clippy::cast_precision_loss, reason = "counts of channels")]
        let mean = rtts.iter().sum::<f64>() / rtts.len().max(1) as f64;
        Sums {
            at_ns: now,
            channel_ns: self.channel_ns,
            srtt_ns: (!rtts.is_empty()).then_some(mean),
            rtt_min_ns: least,
            ..sums
        }
    }
}

fn add(sums: &mut Sums, stats: &crate::FlowStats) {
    sums.bytes += stats.delivered_bytes;
    sums.sent += stats.sender.sent;
    sums.retransmitted += stats.sender.retransmitted;
    sums.limited_ns += stats.sender.receive_window_limited_ns;
    sums.idle_ns += stats.sender.idle_ns;
}

impl Sums {
    #[allow(clippy::cast_precision_loss, reason = "seconds of a simulation")]
    pub(super) fn at_s(&self) -> f64 {
        self.at_ns as f64 / 1e9
    }

    pub(super) fn look(&self) -> Look {
        Look {
            at_s: self.at_s(),
            bytes: self.bytes,
            channels: self.channels,
            sent: self.sent,
            retransmitted: self.retransmitted,
        }
    }
}
