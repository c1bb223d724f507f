//! What measurements are compared with: theory, the paper, expectations.

use serde::{Deserialize, Serialize};

use super::super::quantity::{Rate, Share, Size, Time};

/// A curve to draw beside the measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Theory {
    /// GridFTP-APT's model of N channels, [`godwit_tune::model::analytic::AptModel`].
    Apt {
        /// Window of a channel.
        window: Window,
    },
    /// Random loss: Mathis for reno, CUBIC's response function for cubic, the link for bbr;
    /// N times one channel's, at most what the link carries.
    Response,
    /// What the packet simulator gives on the path of each run: `reno` with selective
    /// acknowledgements, and `cubic`. Other congestion controls have nothing beside them.
    Simulation,
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
    /// Computing processes beside the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<u32>,
    /// Channels of a second transfer beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<u32>,
    /// Size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Size>,
    /// Data nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
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
    /// The fewest channels within 2 % of the highest goodput, and the number with the highest; of
    /// a tuner, the number it settled at.
    BestChannels,
    /// How long a tuner took until goodput stayed at 90 % of the best static one.
    Convergence,
    /// The highest goodput over that of one channel.
    Gain,
    /// Jain's index over the steady parts of several transfers.
    Fairness,
    /// Goodput over the rates of the links of all data nodes, headers of packets included.
    OfLinks,
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
    /// The median goodput is at least this share of the rates of the links of all data nodes.
    #[serde(default)]
    pub links_at_least: Option<Share>,
    /// The median goodput is as many times that of one channel as there are channels.
    #[serde(default)]
    pub linear: Option<Linear>,
    /// The median goodput is at most this factor above or below the first theory.
    #[serde(default)]
    pub theory_factor: Option<f64>,
    /// The mean share of bytes that are sent again is at most this factor above or below that of
    /// packets in the simulator; shares below 0.01 % are taken for that.
    #[serde(default)]
    pub retransmitted_factor: Option<f64>,
    /// The goodput of a tuner's steady part is at least this share of the best static one.
    #[serde(default)]
    pub steady_at_least: Option<Share>,
    /// A tuner stays at 90 % of the best static goodput after this long.
    #[serde(default)]
    pub converges_within: Option<Time>,
    /// And after each change of load or path after this long.
    #[serde(default)]
    pub adapts_within: Option<Time>,
    /// A tuner moves at most this much less than the best static setting, over the whole time.
    #[serde(default)]
    pub regret_at_most: Option<Share>,
    /// A tuner settles at no more than this many times the fewest static channels within 2 % of the
    /// best.
    #[serde(default)]
    pub channels_at_most: Option<f64>,
    /// Jain's index over the steady parts of several transfers.
    #[serde(default)]
    pub jain_at_least: Option<f64>,
    /// Other TCP connections keep at least this share of what they and the tuned transfer move
    /// together.
    #[serde(default)]
    pub leaves_at_least: Option<Share>,
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
