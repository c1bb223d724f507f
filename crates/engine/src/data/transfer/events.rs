//! What a transfer reports to the session that started it.

use std::time::Duration;

use godwit_proto::{ByteRange, RangeSet, error::TransferFailure};

/// Events of a transfer, in this order.
#[derive(Debug)]
pub enum TransferEvent {
    /// The first data connections are established (all of the sender's first ones; the first of a
    /// receiver), or cached ones are in use.
    Ready {
        /// Cached.
        reused: bool,
    },
    /// The transfer is over. No mover touches source or sink any more.
    Done(TransferReport),
}

/// How a transfer went.
#[derive(Debug, Clone)]
pub struct TransferReport {
    /// Bytes of the source that are done: moved (for receipts, written), or holes.
    pub bytes: u64,
    /// Receipts: what is on storage, relative to `base`. Empty when sending, and without
    /// [`reports_safe`](crate::data::ChannelParams::reports_safe).
    pub safe: RangeSet,
    /// How it ended.
    pub result: Result<(), TransferFailure>,
    /// Connections that were kept; 0 after a failure and in MODE S.
    pub cached: usize,
    /// Most channels at a time.
    pub channels_peak: u32,
    /// Time from start to done.
    pub elapsed: Duration,
    /// What a cut left unsent, relative to the base; empty without a cut.
    pub unsent: Vec<ByteRange>,
}
