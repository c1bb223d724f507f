//! What the process of a session asks its monitor about data nodes.

use std::{os::fd::OwnedFd, time::Duration};

use serde::{Deserialize, Serialize};

use crate::config::NodeAddress;

/// The monitor, as the process of a session sees it. The calls block.
pub(crate) trait NodeMonitor: Send + Sync {
    fn nodes(&self) -> Result<NodeList, String>;
    /// A link to the node for this session; or why there is none.
    fn link(&self, node: &NodeAddress) -> Result<OwnedFd, String>;
    /// See [`super::unfenced::Unfenced`].
    fn add_unfenced(&self, file: (u64, u64), quiet_in: Duration);
    fn unfenced(&self, file: (u64, u64)) -> Option<Duration>;
}

/// The nodes that are well, the least busy first, and why the others are not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeList {
    pub(super) well: Vec<WellNode>,
    pub(super) why_none: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WellNode {
    pub(super) address: NodeAddress,
    pub(super) same_inodes: bool,
}
