//! The outcome of one fault.

use serde::{Deserialize, Serialize};

use super::plan::Fault;

/// What came of a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was to happen.
    #[serde(flatten)]
    pub fault: Fault,
    /// Whether it did: the command may have been done before.
    pub happened: bool,
    /// How often the command was given until it said that all is done.
    pub runs: u32,
    /// From its first start to its last end, s.
    pub seconds: f64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes sent beyond those of the same command without a fault.
    pub resent_bytes: u64,
    /// What was promised about that, [`Fault::resent_max`].
    pub resent_max: u64,
    /// Bytes that lay in receive buffers of the kernel when it happened: no program has a hold on
    /// them.
    pub unread_bytes: u64,
    /// What is wrong, a line or more each; empty when nothing is.
    pub findings: Vec<String>,
}

impl Outcome {
    /// Whether more was sent again than promised.
    pub fn sent_too_much(&self) -> bool {
        self.resent_bytes > self.resent_max
    }

    /// Whether it was more even without what lay unread.
    pub fn lost_too_much(&self) -> bool {
        self.resent_bytes.saturating_sub(self.unread_bytes) > self.resent_max
    }
}
