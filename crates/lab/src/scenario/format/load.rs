//! What goes on beside the transfer.

use serde::{Deserialize, Serialize};

use super::super::quantity::{Size, Time};

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
