//! A path drawn from a seed.

use godwit_sim::{
    FlowConfig, FlowId, MS, Simulation, Supply,
    network::{LinkConfig, Topology},
    path::{
        Alteration, Change, CrossTraffic, Discipline, Loss, PathConfig, Pattern, Queue, QueueLimit,
        Rng,
    },
    tcp::{Algorithm, DelayedAck, ReceiverConfig, SenderConfig},
    transfer::ChannelConfig,
};
use serde::Serialize;

use super::format::TunerStudy;
use crate::scenario::whole;

/// Bytes of a segment with headers, and its payload.
pub(super) const SEGMENT_BYTES: f64 = 1500.0;
pub(super) const PAYLOAD_BYTES: f64 = 1448.0;
/// Channels that a path must have packets for.
const CHANNELS: f64 = 64.0;
/// Packets that a window must hold at least, where packets stand for several segments: fewer, and
/// fast retransmit would fail where it does not with segments.
const WINDOW_PACKETS: f64 = 8.0;
/// Smallest window of a channel, bytes.
pub(super) const WINDOW_BYTES: f64 = 65_536.0;
/// Attempts to draw a path that packets can show.
const ATTEMPTS: u64 = 1000;

/// A path, and what others do there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Drawn {
    pub(super) seed: u64,
    /// bit/s.
    pub(super) rate_bps: f64,
    /// Without queues, s.
    pub(super) rtt_s: f64,
    /// In bandwidth-delay products.
    pub(super) queue_bdp: f64,
    /// Of a channel, bytes.
    pub(super) window_bytes: f64,
    /// Of a segment, on the wire.
    pub(super) loss: f64,
    pub(super) traffic: Traffic,
    /// Segments that a packet stands for.
    pub(super) segments: u32,
    /// Draws before this one that packets could not show.
    pub(super) refused: u32,
}

/// What others send.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Traffic {
    /// Nothing.
    None,
    /// This share of the rate, whatever is lost.
    Constant(f64),
    /// So many TCP flows without end, each with a window that fills the path.
    Flows(u32),
    /// From half of the transfer on, this share of the rate.
    Begins(f64),
    /// From half of the transfer on, the rate is this share of itself.
    Slows(f64),
}

impl Traffic {
    pub(super) fn changes(self) -> bool {
        matches!(self, Self::Begins(_) | Self::Slows(_))
    }
}

impl Drawn {
    /// The path of a seed. Paths that would need too many packets are drawn again.
    pub(super) fn of(study: &TunerStudy, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0);
        let mut refused = 0;
        for _ in 0..ATTEMPTS {
            if let Some(drawn) = Self::draw(study, seed, &mut rng) {
                return Self { refused, ..drawn };
            }
            refused += 1;
        }
        // Slow and long enough for any budget.
        Self {
            seed,
            rate_bps: study.rate[0].0,
            rtt_s: study.rtt[1].0,
            queue_bdp: 1.0,
            window_bytes: WINDOW_BYTES,
            loss: 0.0,
            traffic: Traffic::None,
            segments: 1,
            refused,
        }
    }

    fn draw(study: &TunerStudy, seed: u64, rng: &mut Rng) -> Option<Self> {
        let between = |rng: &mut Rng, low: f64, high: f64| low * (high / low).powf(rng.unit());
        let rate_bps = between(rng, study.rate[0].0, study.rate[1].0);
        let rtt_s = between(rng, study.rtt[0].0, study.rtt[1].0);
        let queue_bdp = between(rng, 0.05, 2.0);
        let bdp_bytes = rate_bps * rtt_s / 8.0;
        let window_bytes = between(rng, WINDOW_BYTES, (3.0 * bdp_bytes).max(2.0 * WINDOW_BYTES));
        let loss = match rng.unit() < 0.5 {
            true => 0.0,
            false => between(rng, 1e-6, 0.02),
        };
        let (kind, share) = (rng.unit(), 0.1 + 0.4 * rng.unit());
        let flows = u32::try_from(1 + rng.up_to(7)).unwrap_or(1);
        let traffic = match kind {
            k if k < 0.4 => Traffic::None,
            k if k < 0.6 => Traffic::Constant(share),
            k if k < 0.8 => Traffic::Flows(flows),
            k if k < 0.9 => Traffic::Begins(share),
            _ => Traffic::Slows(1.0 - share),
        };
        let packets = [study.packets_per_second, study.packets_per_second_max];
        let segments = segments(packets, rate_bps, rtt_s, window_bytes, loss)?;
        Some(Self {
            seed,
            rate_bps,
            rtt_s,
            queue_bdp,
            window_bytes,
            loss,
            traffic,
            segments,
            refused: 0,
        })
    }

    /// The path in mid-air: its simulation, the channels of a transfer, and the flows of others.
    pub(super) fn simulation(&self, seconds: u32) -> (Simulation, ChannelConfig, Vec<FlowId>) {
        let one_way = whole(self.rtt_s * 1e9 / 2.0);
        let back = PathConfig {
            delay_ns: one_way,
            ..PathConfig::default()
        };
        let link = |from: &str, to: &str, path| LinkConfig {
            from: from.into(),
            to: to.into(),
            path,
        };
        let links = [
            link("a", "b", self.forward(one_way, seconds)),
            link("b", "a", back),
        ];
        let topology = Topology::new(&links).expect("drawn within bounds");
        let route = topology.route("a", "b").expect("both ways are linked");
        let mut simulation = Simulation::new(topology, self.seed).expect("drawn within bounds");
        let channel = ChannelConfig {
            route,
            sender: self.sender(self.window_bytes),
            receiver: ReceiverConfig {
                delayed_ack: Some(DelayedAck { wait_ns: 40 * MS }),
            },
        };
        let bdp_bytes = self.rate_bps * self.rtt_s / 8.0;
        let others = match self.traffic {
            Traffic::Flows(flows) => flows,
            _ => 0,
        };
        let open = |n: u32, simulation: &mut Simulation| {
            simulation.open(FlowConfig {
                route: channel.route.clone(),
                sender: self.sender((1.0 + self.queue_bdp) * bdp_bytes + WINDOW_BYTES),
                receiver: channel.receiver,
                supply: Supply::Endless,
                at_ns: u64::from(n) * 7 * MS,
            })
        };
        let others = (0..others).map(|n| open(n, &mut simulation)).collect();
        (simulation, channel, others)
    }

    fn sender(&self, window_bytes: f64) -> SenderConfig {
        let packet = PAYLOAD_BYTES * f64::from(self.segments);
        let window = u32::try_from(whole(window_bytes / packet)).unwrap_or(u32::MAX);
        SenderConfig::linux(Algorithm::Cubic, window.max(2)).aggregated(self.segments)
    }

    fn forward(&self, delay_ns: u64, seconds: u32) -> PathConfig {
        let packet_bytes = SEGMENT_BYTES * f64::from(self.segments);
        let bdp_packets = self.rate_bps * self.rtt_s / 8.0 / packet_bytes;
        let at_ns = u64::from(seconds) * 500 * MS;
        let cross = |share: f64| {
            vec![CrossTraffic {
                rate_bps: whole(self.rate_bps * share).max(1),
                packet_bytes: u32::try_from(whole(packet_bytes)).unwrap_or(u32::MAX),
                pattern: Pattern::Poisson,
            }]
        };
        let packet_loss = 1.0 - (1.0 - self.loss).powf(f64::from(self.segments));
        PathConfig {
            queue: Queue {
                limit: QueueLimit::Packets(whole(self.queue_bdp * bdp_packets).max(2)),
                discipline: Discipline::DropTail,
            },
            loss: match self.loss > 0.0 {
                true => Loss::Random { ratio: packet_loss },
                false => Loss::None,
            },
            cross_traffic: match self.traffic {
                Traffic::Constant(share) => cross(share),
                _ => Vec::new(),
            },
            schedule: match self.traffic {
                Traffic::Begins(share) => vec![Change {
                    at_ns,
                    to: Alteration::CrossTraffic(cross(share)),
                }],
                Traffic::Slows(share) => vec![Change {
                    at_ns,
                    to: Alteration::RateBps(whole(self.rate_bps * share).max(1)),
                }],
                _ => Vec::new(),
            },
            seed: self.seed,
            ..PathConfig::new(whole(self.rate_bps), delay_ns)
        }
    }
}

/// Segments that a packet stands for, so that the path has no more packets than it may. A window
/// keeps some packets, and so does a round trip. `None`: it would have too many.
pub(super) fn segments(
    packets_per_second: [u32; 2],
    rate_bps: f64,
    rtt_s: f64,
    window_bytes: f64,
    loss: f64,
) -> Option<u32> {
    let rate = rate_bps / 8.0 / SEGMENT_BYTES;
    // What a channel has under way: its window, or what loss leaves of it (Mathis).
    let window = match loss > 0.0 {
        true => (window_bytes / PAYLOAD_BYTES).min((1.5 / loss).sqrt()),
        false => window_bytes / PAYLOAD_BYTES,
    };
    let demand = rate.min(CHANNELS * window / rtt_s);
    let wanted = (demand / f64::from(packets_per_second[0])).ceil();
    let most = (window / WINDOW_PACKETS)
        .min(rate * rtt_s / CHANNELS)
        .floor();
    let segments = wanted.min(most).max(1.0);
    (demand / segments <= f64::from(packets_per_second[1]))
        .then(|| u32::try_from(whole(segments)).unwrap_or(u32::MAX))
}
