//! Loads beside the transfer, and changes of the path.

use serde::{Deserialize, Serialize};

use super::super::quantity::{Rate, Share, Size, Time};
use super::NodeFate;
use crate::load::Grouping;

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
        /// With whom the kernel makes them share processors. Default `with-us`: with the programs
        /// that move data, thread by thread.
        #[serde(default)]
        grouping: Grouping,
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

    /// The same, to be changed.
    pub(in super::super) fn times_mut(&mut self) -> [&mut Option<Time>; 2] {
        match self {
            Load::Tcp { from, until, .. } | Load::Compute { from, until, .. } => [from, until],
        }
    }
}

/// What becomes of the path in mid-run; what is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// When, from the first data of the transfer.
    pub at: Time,
    /// New rate of the bottleneck, both ways.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// New one-way delay, both ways.
    #[serde(default)]
    pub delay: Option<Time>,
    /// New random loss of data packets.
    #[serde(default)]
    pub loss: Option<Share>,
    /// New constant-rate traffic of others, as a share of the rate that is then in force.
    #[serde(default)]
    pub background: Option<Share>,
    /// Which data node's link, from 1. Default: those of all.
    #[serde(default)]
    pub node: Option<u32>,
    /// What becomes of that node.
    #[serde(default)]
    pub becomes: Option<NodeFate>,
}
