//! The format of a scenario file: one type for each table. Unknown keys are refused.

mod figure;
mod judgement;
mod load;
mod method;
mod nodes;

use serde::{Deserialize, Serialize};

pub use figure::{Facet, FigureSpec, X};
pub use judgement::{At, Expectation, Linear, Measured, PaperValue, Quantity, Theory, Window};
pub use load::{Load, PathChange};
pub use method::{Client, Direction, EpochMode, Method, Protect, Server};
pub use nodes::{NodeFate, NodeLink, NodesSpec};

use super::quantity::{QueueLength, Rate, Share, Size, Time};

/// A whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line, the heading of its report.
    pub title: String,
    /// Where the experiment was published; empty for our own.
    #[serde(default)]
    pub source: String,
    /// What is shown, and how it differs from the published experiment.
    #[serde(default)]
    pub about: String,
    /// The path, the same in both directions but for seeds and background traffic, which only
    /// goes the way of the data. Left out where programs meet over loopback.
    #[serde(default)]
    pub path: PathSpec,
    /// The hosts at its ends.
    #[serde(default)]
    pub hosts: HostsSpec,
    /// Data nodes of striped servers.
    #[serde(default)]
    pub nodes: NodesSpec,
    /// What moves.
    #[serde(default)]
    pub work: Work,
    /// What varies: every combination is a cell.
    #[serde(default)]
    pub sweep: Sweep,
    /// How long and how often each cell runs.
    #[serde(default)]
    pub run: RunSpec,
    /// Who moves the data; at least one.
    pub method: Vec<Method>,
    /// Other traffic and processes.
    #[serde(default)]
    pub load: Vec<Load>,
    /// What becomes of the path in mid-run.
    #[serde(default)]
    pub change: Vec<PathChange>,
    /// Curves to draw beside the measurements.
    #[serde(default)]
    pub theory: Vec<Theory>,
    /// What the paper saw.
    #[serde(default)]
    pub paper: Vec<PaperValue>,
    /// What we expect to see.
    #[serde(default)]
    pub expect: Vec<Expectation>,
    /// How to draw it.
    #[serde(default)]
    pub figure: FigureSpec,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
}

/// One direction of the path. Without one, there is no emulated path: the programs of a transfer
/// meet in one host over loopback, as fast as the machine can, and transfers share nothing but its
/// processors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Bottleneck, IP packets.
    pub rate: Rate,
    /// One-way delay; the RTT without queueing is twice that.
    pub delay: Time,
    /// Queue in front of the bottleneck. Default 1000 packets.
    #[serde(default = "PathSpec::default_queue")]
    pub queue: QueueLength,
    /// Random early detection instead of DropTail; thresholds in packets.
    #[serde(default)]
    pub red: Option<RedSpec>,
    /// Random loss on the wire of data packets. Default none. The way back loses nothing.
    #[serde(default = "PathSpec::no_share")]
    pub loss: Share,
    /// Constant-rate traffic of others, as a share of `rate`. Default none.
    #[serde(default = "PathSpec::no_share")]
    pub background: Share,
    /// Largest IP packet, bytes. Default 1500.
    #[serde(default = "PathSpec::default_mtu")]
    pub mtu: u32,
}

impl Default for PathSpec {
    fn default() -> PathSpec {
        PathSpec {
            rate: Rate::UNLIMITED,
            delay: Time(0.0),
            queue: PathSpec::default_queue(),
            red: None,
            loss: PathSpec::no_share(),
            background: PathSpec::no_share(),
            mtu: PathSpec::default_mtu(),
        }
    }
}

impl PathSpec {
    /// Whether there is a path at all.
    pub fn is_emulated(&self) -> bool {
        self.rate.0.is_finite()
    }

    fn default_queue() -> QueueLength {
        QueueLength::Packets(1000)
    }

    fn default_mtu() -> u32 {
        1500
    }

    fn no_share() -> Share {
        Share(0.0)
    }
}

/// Random early detection, by the names of the ns-2 manual.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedSpec {
    /// Average queue below which nothing is dropped, packets.
    pub min: f64,
    /// Average queue from which on everything is dropped, packets.
    pub max: f64,
    /// Drop probability just below `max`.
    pub max_p: f64,
    /// Weight of a new sample in the average.
    pub w_q: f64,
}

/// The hosts at both ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostsSpec {
    /// Congestion control. Default `cubic`.
    pub congestion_control: Option<String>,
    /// Largest buffer that the kernel tunes a connection to, in both directions. Default: the
    /// kernel's own limits. Programs that ask for a size (`tcp_buffer`) get that instead.
    pub buffer_max: Option<Size>,
    /// Buffer of a connection before the kernel tunes it. With `buffer_max` the same, there is no
    /// tuning: that was the state of 2001.
    pub buffer_default: Option<Size>,
    /// One-way delay between the client of third-party transfers and both servers. Default: that
    /// between the servers.
    pub client_delay: Option<Time>,
}

/// What moves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// One file of this size, from memory to `/dev/null`; a run ends when it has arrived, and
    /// goodput is its size over the life of the client's process. Default: `/dev/zero` without
    /// end, goodput is what TCP received per second over the steady part.
    pub file: Option<Size>,
    /// So much in files of one size, as many as [`Sweep::files`] says, from one directory in memory
    /// to another. Goodput is their size over the life of the client's process; a run that is not
    /// done after [`RunSpec::measure`] is stopped, and what has arrived by then counts.
    pub files: Option<Size>,
}

/// What varies. Axes that are absent stay as the other tables say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// Bottleneck rates.
    pub rate: Vec<Rate>,
    /// One-way delays.
    pub delay: Vec<Time>,
    /// Random loss ratios.
    pub loss: Vec<Share>,
    /// Shares of constant-rate background traffic.
    pub background: Vec<Share>,
    /// Congestion controls of both hosts.
    pub congestion_control: Vec<String>,
    /// Parallel data channels. Methods with `channels` of their own, or a tuner, ignore it.
    pub channels: Vec<u32>,
    /// Processes that compute without end beside the transfer (the papers' ext.cmp).
    pub compute: Vec<u32>,
    /// Channels of a second transfer beside it (ext.tfr), between hosts of its own.
    pub traffic: Vec<u32>,
    /// Numbers of files that [`Work::files`] is split into.
    pub files: Vec<u32>,
    /// Data nodes of each server, each behind a path of its own; 0: a server without data nodes,
    /// behind one path.
    pub nodes: Vec<u32>,
}

/// How long and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Left out after the first data, while TCP finds its rate. Default 3 s.
    pub ramp: Time,
    /// Measured. Default 8 s. For `work.file` and `work.files` the longest that a run may take.
    pub measure: Time,
    /// Round trips that `ramp` and `measure` get on top, each: where delays vary, far ends take
    /// longer. Default 0.
    pub round_trips: u32,
    /// How long methods with a tuner or several transfers run, from their first data; where load
    /// or path change in mid-run, all methods. What counts as their goodput is the last third.
    pub evolve: Option<Time>,
    /// Runs of every cell and method. Default 5.
    pub repeats: u32,
    /// Everything random follows from it; repeat r runs with seed + r, the same for all methods.
    pub seed: u64,
}

impl Default for RunSpec {
    fn default() -> RunSpec {
        RunSpec {
            ramp: Time(3.0),
            measure: Time(8.0),
            round_trips: 0,
            evolve: None,
            repeats: 5,
            seed: 1,
        }
    }
}

/// What `--quick` changes; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    /// Instead of [`RunSpec::ramp`].
    pub ramp: Option<Time>,
    /// Instead of [`RunSpec::measure`].
    pub measure: Option<Time>,
    /// Instead of [`RunSpec::evolve`]; all times of loads, changes, staggered starts and epochs
    /// shrink with it.
    pub evolve: Option<Time>,
    /// Instead of [`RunSpec::repeats`].
    pub repeats: Option<u32>,
    /// Instead of [`Work::file`].
    pub file: Option<Size>,
    /// Instead of [`Work::files`].
    pub files: Option<Size>,
    /// Names of the methods that run.
    pub methods: Vec<String>,
    /// Axes of [`Sweep`] with fewer values.
    pub sweep: Sweep,
}
