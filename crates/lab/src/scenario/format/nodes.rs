//! Striped servers: their data nodes and the links of these.

use serde::{Deserialize, Serialize};

use super::super::quantity::{Rate, Share, Time};

/// Data nodes of the servers, where [`super::Sweep::nodes`] asks for some. The path is the link of
/// each node: between two clusters that of each source, whose data goes to nodes without a link of
/// their own. Control channels and node links have a rate of 1 Gbit/s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodesSpec {
    /// One-way delay between a front end and its nodes. Default 0.1 ms.
    pub delay: Time,
    /// Links that differ from the path.
    pub link: Vec<NodeLink>,
}

impl Default for NodesSpec {
    fn default() -> NodesSpec {
        NodesSpec {
            delay: Time(1e-4),
            link: Vec::new(),
        }
    }
}

/// The link of one node; what is absent is as the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLink {
    /// Which node, from 1. Cells with fewer nodes have no such link.
    pub node: u32,
    /// Rate.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// One-way delay.
    #[serde(default)]
    pub delay: Option<Time>,
    /// Random loss of data packets.
    #[serde(default)]
    pub loss: Option<Share>,
}

/// What becomes of a data node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeFate {
    /// Its processes end at once, and nothing says so (SIGKILL).
    Killed,
    /// It takes no new sessions, and ends when those that it has are over (SIGTERM).
    Drained,
    /// Nothing passes its links any more, in either direction.
    Cut,
    /// All passes again.
    Healed,
}
