//! What is known of a transfer that runs, and whether it is over.

use std::time::Duration;

use godwit_engine::data::TransferReport;
use godwit_proto::{
    RangeSet, Reply,
    marker::parse_range_marker,
    pi::{client::CommandId, transfer::Direction},
};
use tokio::time::Instant;

use super::live_requests::LiveRequests;
use crate::error::Error;

/// Disjoint ranges that are remembered as safe; what lies in others is sent once more after a
/// failure.
pub(crate) const RANGES_MAX: usize = 100_000;

/// A put that fails so soon after channels were added has failed because of them.
const GROWTH_LIMIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct TransferState {
    pub(crate) reply: Option<Reply>,
    pub(crate) report: Option<TransferReport>,
    pub(crate) lost: Option<Error>,
    /// Bytes of the region that are on the server's storage, as it says (111).
    pub(crate) safe: RangeSet,
    /// The server said 1xx.
    pub(crate) started: bool,
    pub(crate) reused: bool,
    /// First channels of which the event log knows.
    pub(crate) channels_told: u32,
    /// Channels that were followed last.
    pub(crate) parallelism: u32,
    /// From how many channels the transfer last grew, and when.
    pub(crate) grew: Option<(u32, Instant)>,
    /// The user interrupted.
    pub(crate) stopped: bool,
    /// The data plane hangs in a system call that cannot be ended.
    pub(crate) stuck: bool,
    /// The server owes an explanation and does not give it.
    pub(crate) mute: bool,
    /// The server was told to give up (ABOR).
    pub(crate) gave_up: bool,
    /// It has not answered that yet.
    pub(crate) aborting: Option<CommandId>,
    /// The server owes the answer to an aside and does not give it.
    pub(crate) unanswered: bool,
}

impl TransferState {
    /// A 1xx behind the first.
    pub(crate) fn on_preliminary(&mut self, preliminary: &Reply) {
        if let Some(ranges) = parse_range_marker(preliminary)
            && self.safe.count() < RANGES_MAX
        {
            self.safe.union_with(&ranges);
        }
    }

    /// A reply may still come, and is waited for.
    pub(crate) fn awaits_final_reply(&self) -> bool {
        let owes = self.reply.is_none() || self.aborting.is_some();
        owes && self.lost.is_none() && !self.mute
    }

    /// The server has begun and the data plane has not ended.
    pub(crate) fn flows(&self) -> bool {
        self.started && self.reply.is_none() && self.report.is_none()
    }

    /// The server has begun, and the next transfer may start.
    pub(crate) fn is_healthy(&self) -> bool {
        self.started && !self.was_aborted()
    }

    /// The channels were brought to `parallelism`.
    pub(crate) fn set_parallelism(&mut self, direction: Direction, parallelism: u32) {
        if direction == Direction::Put && parallelism > self.parallelism {
            self.grew = Some((self.parallelism, Instant::now()));
        }
        self.parallelism = parallelism;
    }

    /// It failed, and so soon after it grew that this is why: how many channels it had before.
    pub(crate) fn too_many_from(&self) -> Option<u32> {
        let (before, at) = self.grew?;
        (!self.stopped && at.elapsed() < GROWTH_LIMIT).then_some(before)
    }

    pub(crate) fn was_aborted(&self) -> bool {
        let refused = self.reply.as_ref().is_some_and(|r| r.code.is_failure());
        self.stopped || self.lost.is_some() || refused
    }

    /// Some reply may still come, and is waited for. An answer to an aside is a round trip away at
    /// most, and cheaper than to tell it later from the reply to another command.
    pub(crate) fn awaits_reply(&self, live_requests: &LiveRequests) -> bool {
        self.awaits_final_reply() || (self.lost.is_none() && live_requests.is_waiting())
    }

    pub(crate) fn is_complete(&self, live_requests: &LiveRequests) -> bool {
        self.stuck || self.report.is_some() && !self.awaits_reply(live_requests)
    }
}
