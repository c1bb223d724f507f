//! The configuration of one direction of a path: plain data with units in the names.

use serde::{Deserialize, Serialize};

/// One direction of a path.
///
/// Packets pass in this order: link cut, queue and bottleneck, loss on the wire, delay with jitter
/// and reordering, corruption, duplication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathConfig {
    /// Rate of the bottleneck, bit/s; at least 1. `None`: no bottleneck, so neither a queue nor
    /// cross traffic. Default `None`.
    pub rate_bps: Option<u64>,
    /// One-way delay behind the bottleneck, ns. Default 0.
    pub delay_ns: u64,
    /// The queue in front of the bottleneck.
    pub queue: Queue,
    /// Bytes added to every IP packet on the link, for example 38 for Ethernet with preamble and
    /// gap. Default 0: rates are those of IP packets.
    pub overhead_bytes: u32,
    /// Loss on the wire, behind the bottleneck: a lost packet has taken its share of the rate.
    pub loss: Loss,
    /// Random additional delay.
    pub jitter: Jitter,
    /// Packets held back so that later ones overtake them.
    pub reordering: Option<Reordering>,
    /// Packets that come out twice.
    pub duplication: Option<Duplication>,
    /// Payload bits flipped under a correct checksum.
    pub corruption: Option<Corruption>,
    /// Other people's packets in the same queue.
    pub cross_traffic: Vec<CrossTraffic>,
    /// Changes in mid-run; any order, applied by time.
    pub schedule: Vec<Change>,
    /// Everything random follows from it: same seed and same arrivals, same decisions.
    pub seed: u64,
}

impl Default for PathConfig {
    fn default() -> PathConfig {
        PathConfig {
            rate_bps: None,
            delay_ns: 0,
            queue: Queue::default(),
            overhead_bytes: 0,
            loss: Loss::None,
            jitter: Jitter::default(),
            reordering: None,
            duplication: None,
            corruption: None,
            cross_traffic: Vec::new(),
            schedule: Vec::new(),
            seed: 1,
        }
    }
}

/// The queue in front of the bottleneck. The packet being sent counts as queued.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// What fits. Default 1000 packets.
    pub limit: QueueLimit,
    /// Which packets are dropped. Default [`Discipline::DropTail`].
    pub discipline: Discipline,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            limit: QueueLimit::Packets(1000),
            discipline: Discipline::DropTail,
        }
    }
}

/// The size of a queue; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueLimit {
    /// Packets of any size.
    Packets(u64),
    /// Bytes, overhead included. A packet that does not fit whole is dropped.
    Bytes(u64),
}

/// The rule by which a queue drops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// What does not fit is dropped.
    DropTail,
    /// Random early detection.
    Red(RedConfig),
}

/// Random early detection (Floyd and Jacobson, "Random Early Detection Gateways for Congestion
/// Avoidance", 1993) as ns-2 has it.
///
/// Thresholds are in the unit of [`Queue::limit`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedConfig {
    /// Average queue below which nothing is dropped; `0 < min < max`.
    pub min: f64,
    /// Average queue from which on everything is dropped, unless it is `gentle`.
    pub max: f64,
    /// Drop probability just below `max`; `0 < max_p <= 1`.
    pub max_p: f64,
    /// Weight of a new sample in the average, the papers' w_q; `0 < weight <= 1`.
    pub weight: f64,
    /// Size that converts idle time into packets which could have been sent, bytes.
    #[serde(default = "RedConfig::default_mean_packet")]
    pub mean_packet_bytes: u32,
    /// ns-2's `wait_`, on by default there and here: at least 1/p packets pass between two random
    /// drops and at most 2/p. Off: 1 to 1/p, as in the paper.
    #[serde(default = "RedConfig::default_wait")]
    pub wait: bool,
    /// ns-2's `gentle_` (Floyd, "Recommendation on using the 'gentle_' variant of RED", 2000): the
    /// probability rises from `max_p` at `max` to 1 at twice `max`, where everything is dropped.
    /// Default off, as in the paper of 1993.
    #[serde(default)]
    pub gentle: bool,
}

impl RedConfig {
    fn default_mean_packet() -> u32 {
        1000
    }

    fn default_wait() -> bool {
        true
    }
}

/// Loss that has nothing to do with the queue. All ratios are in `0..=1`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// None.
    None,
    /// Each packet for itself.
    Random {
        /// Share of packets lost.
        ratio: f64,
    },
    /// Bursts: a chain of a good and a bad state that may change with each packet.
    GilbertElliott {
        /// Probability of good to bad, per packet.
        to_bad: f64,
        /// Probability of bad to good, per packet: the mean burst lasts 1/`to_good` packets.
        to_good: f64,
        /// Loss ratio in the bad state.
        bad: f64,
        /// Loss ratio in the good state.
        good: f64,
    },
}

impl Loss {
    /// Long-run share of packets lost.
    pub fn mean_ratio(&self) -> f64 {
        match *self {
            Loss::None => 0.0,
            Loss::Random { ratio } => ratio,
            Loss::GilbertElliott {
                to_bad,
                to_good,
                bad,
                good,
            } if to_bad + to_good > 0.0 => (to_bad * bad + to_good * good) / (to_bad + to_good),
            // The chain starts in the good state and never leaves it.
            Loss::GilbertElliott { good, .. } => good,
        }
    }
}

/// Uniform random additional delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jitter {
    /// Largest additional delay, ns. Default 0: none.
    pub max_ns: u64,
    /// Whether a packet with little of it may overtake one with much. Default false: packets wait
    /// for their predecessors, as behind one more queue.
    pub reorders: bool,
}

/// Packets held back so that later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reordering {
    /// Share of packets held back, `0..=1`.
    pub ratio: f64,
    /// For how long, ns, beyond the delay of all packets.
    pub hold_ns: u64,
}

/// Packets that come out twice, the second right behind the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplication {
    /// Share of packets, `0..=1`.
    pub ratio: f64,
}

/// Payload bits flipped while checksums stay correct, as a broken memory or proxy does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corruption {
    /// Share of the packets that are large enough, `0..=1`.
    pub ratio: f64,
    /// IP packets smaller than this are spared, bytes: 600 or so keeps control channels and
    /// acknowledgements whole. Default 0.
    #[serde(default)]
    pub min_packet_bytes: u32,
    /// So many packets at most, then none any more. Default no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_max: Option<u32>,
}

/// Packets of others, which occupy queue and link but are not delivered to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossTraffic {
    /// Rate while it sends, bit/s, overhead of the link not included; at least 1.
    pub rate_bps: u64,
    /// Size of each IP packet; at least 1. Default 1500.
    #[serde(default = "CrossTraffic::default_packet")]
    pub packet_bytes: u32,
    /// When it sends. Default constant.
    #[serde(default)]
    pub pattern: Pattern,
}

impl CrossTraffic {
    /// Evenly spaced packets of 1500 bytes.
    pub fn constant(rate_bps: u64) -> CrossTraffic {
        CrossTraffic {
            rate_bps,
            packet_bytes: CrossTraffic::default_packet(),
            pattern: Pattern::Constant,
        }
    }

    fn default_packet() -> u32 {
        1500
    }
}

/// When cross traffic sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Pattern {
    /// Evenly spaced packets.
    #[default]
    Constant,
    /// Exponential gaps with the mean of the rate.
    Poisson,
    /// Evenly spaced packets for `on_ns`, none for `off_ns`, starting with on.
    OnOff {
        /// Length of a burst, ns; at least 1. The mean, when `random`.
        on_ns: u64,
        /// Length of a pause, ns; at least 1. The mean, when `random`.
        off_ns: u64,
        /// Whether both are drawn from exponential distributions.
        #[serde(default)]
        random: bool,
    },
}

/// A change of a path in mid-run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When, ns since the start of the path.
    pub at_ns: u64,
    /// What.
    pub to: Alteration,
}

/// What can change. Packets accepted before keep the departure they were given: a new rate takes
/// effect behind the queue that is there, at most one queueing delay late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alteration {
    /// A new bottleneck rate, bit/s; at least 1.
    RateBps(u64),
    /// A new one-way delay, ns. When it shrinks, packets still keep their order.
    DelayNs(u64),
    /// A new loss process, in its good state.
    Loss(Loss),
    /// A new queue. What is queued stays; RED's average starts from the queue as it is.
    Queue(Queue),
    /// New cross traffic instead of all there was.
    CrossTraffic(Vec<CrossTraffic>),
    /// Packets held back from now on, or none.
    Reordering(Option<Reordering>),
    /// Packets that come out twice from now on, or none.
    Duplication(Option<Duplication>),
    /// New corruption, or none.
    Corruption(Option<Corruption>),
    /// Everything that arrives from now on is dropped; what was accepted still arrives.
    Cut,
    /// The end of a cut.
    Heal,
}

impl PathConfig {
    /// A path with a bottleneck of `rate_bps` bit/s, a one-way delay of `delay_ns`, and defaults.
    pub fn new(rate_bps: u64, delay_ns: u64) -> PathConfig {
        PathConfig {
            rate_bps: Some(rate_bps),
            delay_ns,
            ..PathConfig::default()
        }
    }
}
