//! How results are drawn.

use serde::{Deserialize, Serialize};

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
    /// Size of a file, kB.
    FileSize,
    /// Data nodes of a striped server.
    Nodes,
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
    /// Computing processes beside the transfer.
    Compute,
    /// Channels of a second transfer beside it.
    Traffic,
    /// Number and size of files.
    Files,
    /// Data nodes of a striped server.
    Nodes,
    /// Client and server.
    Method,
}

/// How to draw it: goodput upwards, everything that is neither `x` nor a panel is a series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FigureSpec {
    /// Horizontal axis. Default channels.
    pub x: X,
    /// Whether it is logarithmic.
    pub log_x: bool,
    /// Whether goodput is.
    pub log_y: bool,
    /// What gets a panel of its own for each value. Default: one panel for all.
    pub panels: Vec<Facet>,
}
