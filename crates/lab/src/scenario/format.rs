//! The words of a scenario file, one type a table. Unknown words are refused everywhere.

use serde::{Deserialize, Serialize};

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
    /// goes the way of the data.
    pub path: PathSpec,
    /// The hosts at its ends.
    #[serde(default)]
    pub hosts: HostsSpec,
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
    /// What else goes on.
    #[serde(default)]
    pub load: Vec<Load>,
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
    pub figure: Figure,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
}

/// One direction of the path.
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
    pub red: Option<Red>,
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

impl PathSpec {
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
pub struct Red {
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
}

/// What moves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// One file of this size, from memory to `/dev/null`; a run ends when it has arrived, and
    /// goodput is its size over the life of the client's process. Default: `/dev/zero` without
    /// end, goodput is what TCP received per second over the steady part.
    pub file: Option<Size>,
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
    /// Parallel data channels. Methods with `channels` of their own ignore it.
    pub channels: Vec<u32>,
}

/// How long and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Left out after the first data, while TCP finds its rate. Default 3 s.
    pub ramp: Time,
    /// Measured. Default 8 s. For `work.file` the longest that a run may take.
    pub measure: Time,
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
            repeats: 5,
            seed: 1,
        }
    }
}

/// A client and the server it fetches from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Short name, for `--only` and raw data.
    pub name: String,
    /// What figures call it.
    pub label: String,
    /// The program that fetches.
    pub client: Client,
    /// The program that serves.
    pub server: Server,
    /// Parallel channels, instead of the axis of the sweep.
    #[serde(default)]
    pub channels: Option<u32>,
    /// Socket buffer asked for at both ends. Default: left to the kernel.
    #[serde(default)]
    pub tcp_buffer: Option<Size>,
}

/// Programs that fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// Ours.
    Godwit,
    /// The Grid Community Toolkit's.
    GlobusUrlCopy,
    /// No file transfer, only TCP.
    Iperf3,
    /// One channel in stream mode.
    Curl,
    /// One or more control connections, each with one channel in stream mode.
    Lftp,
}

/// Programs that serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Ours.
    Godwitd,
    /// The Grid Community Toolkit's.
    GlobusGridftpServer,
    /// For the client of that name only.
    Iperf3,
}

/// What goes on beside the transfer. Starts before it unless `from` says later; times count from
/// its first data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Load {
    /// Ordinary TCP connections between two other hosts, through the same queue, the same way.
    Tcp {
        /// Connections.
        flows: u32,
        /// Largest buffer that the kernel tunes them to; the hosts they run in are their own.
        /// Default: the kernel's own limits.
        #[serde(default)]
        buffer_max: Option<Size>,
        /// When they start.
        #[serde(default)]
        from: Option<Time>,
        /// When they end.
        #[serde(default)]
        until: Option<Time>,
    },
    /// Processes that compute without end.
    Compute {
        /// How many.
        processes: u32,
        /// When they start.
        #[serde(default)]
        from: Option<Time>,
        /// When they end.
        #[serde(default)]
        until: Option<Time>,
    },
}

impl Load {
    /// When it starts and ends, from the first data of the transfer; `None` before and never.
    pub fn times(&self) -> (Option<Time>, Option<Time>) {
        match *self {
            Load::Tcp { from, until, .. } | Load::Compute { from, until, .. } => (from, until),
        }
    }
}

/// A curve to draw beside the measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Theory {
    /// GridFTP-APT's model of N channels, [`crate::analytic::Apt`].
    Apt {
        /// Window of a channel.
        window: Window,
    },
    /// Random loss: Mathis for reno, CUBIC's response function for cubic, the link for bbr;
    /// N times one channel's, at most what the link carries.
    Response,
}

/// The window of a channel in a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Window {
    /// This much.
    Size(Size),
    /// `"measured"`: what was seen in flight per channel in the cells with the fewest channels.
    Measured(Measured),
}

/// The word `measured`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// See [`Window::Measured`].
    Measured,
}

/// Cells by their coordinates; what is absent matches all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct At {
    /// Parallel data channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Bottleneck rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// One-way delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Time>,
    /// Random loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// Background traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<Share>,
    /// Congestion control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// A value that the paper gives, to stand beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperValue {
    /// What it is, in words.
    pub what: String,
    /// The paper's value, as it is printed there.
    pub value: String,
    /// Where: `Fig. 6`.
    #[serde(default)]
    pub source: String,
    /// What of ours to put beside it.
    pub ours: Quantity,
    /// In which cells.
    #[serde(default)]
    pub at: At,
    /// The paper's goodput as a number: drawn as a mark in the figure at `at`.
    #[serde(default)]
    pub goodput: Option<Rate>,
}

/// What of ours stands beside a value of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Goodput of the cell.
    Goodput,
    /// The highest goodput over channels.
    BestGoodput,
    /// The fewest channels within 2 % of the highest goodput, and the number with the highest.
    BestChannels,
    /// The highest goodput over that of one channel.
    Gain,
}

/// Something that must hold, for each of `methods`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// In words.
    pub what: String,
    /// Whether it holds for the full variant alone: not with a smaller file, for instance.
    #[serde(default)]
    pub full_only: bool,
    /// Names of methods. Default all.
    #[serde(default)]
    pub methods: Vec<String>,
    /// In which cells; in each of them it must hold.
    #[serde(default)]
    pub at: At,
    /// The median goodput is at least this.
    #[serde(default)]
    pub at_least: Option<Rate>,
    /// The median goodput is at most this.
    #[serde(default)]
    pub at_most: Option<Rate>,
    /// The median goodput is as many times that of one channel as there are channels.
    #[serde(default)]
    pub linear: Option<Linear>,
    /// The median goodput is at most this factor above or below the first theory.
    #[serde(default)]
    pub theory_factor: Option<f64>,
}

/// Goodput in proportion to channels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Numbers of channels that it holds for.
    pub channels: Vec<u32>,
    /// Largest deviation, of N times one channel's.
    pub within: Share,
}

/// What can be on the horizontal axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum X {
    /// Parallel data channels.
    #[default]
    Channels,
    /// Bottleneck rate, Mbit/s.
    Rate,
    /// One-way delay, ms.
    Delay,
    /// Random loss, %.
    Loss,
    /// Background traffic, %.
    Background,
    /// One bar a method.
    Method,
}

/// What tells panels or series of a figure apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// Bottleneck rate.
    Rate,
    /// One-way delay.
    Delay,
    /// Random loss.
    Loss,
    /// Background traffic.
    Background,
    /// Congestion control.
    CongestionControl,
    /// Parallel data channels.
    Channels,
    /// Client and server.
    Method,
}

/// How to draw it: goodput upwards, everything that is neither `x` nor a panel is a series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// Horizontal axis. Default channels.
    pub x: X,
    /// Whether it is logarithmic.
    pub log_x: bool,
    /// Whether goodput is.
    pub log_y: bool,
    /// What gets a panel of its own for each value. Default: one panel for all.
    pub panels: Vec<Facet>,
}

/// What `--quick` changes; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    /// Instead of [`RunSpec::ramp`].
    pub ramp: Option<Time>,
    /// Instead of [`RunSpec::measure`].
    pub measure: Option<Time>,
    /// Instead of [`RunSpec::repeats`].
    pub repeats: Option<u32>,
    /// Instead of [`Work::file`].
    pub file: Option<Size>,
    /// Names of the methods that run.
    pub methods: Vec<String>,
    /// Axes of [`Sweep`] with fewer values.
    pub sweep: Sweep,
}
