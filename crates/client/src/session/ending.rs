//! What is known of a transfer that runs, and whether it is over.

use std::time::Duration;

use godwit_engine::data::TransferReport;
use godwit_proto::{
    RangeSet, Reply,
    marker::parse_range_marker,
    pi::{client::CommandId, transfer::Direction},
};
use tokio::time::Instant;

use super::{asides::LiveRequests, relaying::RANGES_MAX};
use crate::error::Error;

/// A put that fails so soon after channels were added has failed because of them.
const GROWTH_LIMIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct TransferState {
    pub(super) reply: Option<Reply>,
    pub(super) report: Option<TransferReport>,
    pub(super) lost: Option<Error>,
    /// Bytes of the region that are on the server's storage, as it says (111).
    pub(super) safe: RangeSet,
    /// The server said 1xx.
    pub(super) started: bool,
    pub(super) reused: bool,
    /// First channels of which the event log knows.
    pub(super) channels_told: u32,
    /// Channels that were followed last.
    pub(super) parallelism: u32,
    /// From how many channels the transfer last grew, and when.
    pub(super) grew: Option<(u32, Instant)>,
    /// The user interrupted.
    pub(super) stopped: bool,
    /// The data plane hangs in a system call that nobody can end.
    pub(super) stuck: bool,
    /// The server owes an explanation and does not give it.
    pub(super) mute: bool,
    /// The server was told to give up (ABOR).
    pub(super) gave_up: bool,
    /// It has not answered that yet.
    pub(super) aborting: Option<CommandId>,
    /// The server owes the answer to an aside and does not give it.
    pub(super) unanswered: bool,
}

impl TransferState {
    /// A 1xx behind the first.
    pub(super) fn on_preliminary(&mut self, preliminary: &Reply) {
        if let Some(ranges) = parse_range_marker(preliminary)
            && self.safe.count() < RANGES_MAX
        {
            self.safe.union_with(&ranges);
        }
    }

    /// A reply may still come, and is waited for.
    pub(super) fn awaits_final_reply(&self) -> bool {
        let owes = self.reply.is_none() || self.aborting.is_some();
        owes && self.lost.is_none() && !self.mute
    }

    /// The server has begun and the data plane has not ended.
    pub(super) fn flows(&self) -> bool {
        self.started && self.reply.is_none() && self.report.is_none()
    }

    /// The server has begun, and nothing speaks against going on with the next.
    pub(super) fn is_healthy(&self) -> bool {
        self.started && !self.was_aborted()
    }

    /// The channels were brought to `parallelism`.
    pub(super) fn set_parallelism(&mut self, direction: Direction, parallelism: u32) {
        if direction == Direction::Put && parallelism > self.parallelism {
            self.grew = Some((self.parallelism, Instant::now()));
        }
        self.parallelism = parallelism;
    }

    /// It failed, and so soon after it grew that this is why: how many channels it had before.
    pub(super) fn too_many_from(&self) -> Option<u32> {
        let (before, at) = self.grew?;
        (!self.stopped && at.elapsed() < GROWTH_LIMIT).then_some(before)
    }

    pub(super) fn was_aborted(&self) -> bool {
        let refused = self.reply.as_ref().is_some_and(|r| r.code.is_failure());
        self.stopped || self.lost.is_some() || refused
    }

    /// Some reply may still come, and is waited for. An answer to an aside is a round trip away at
    /// most, and cheaper than to tell it later from the reply to another command.
    pub(super) fn awaits_reply(&self, live_requests: &LiveRequests) -> bool {
        self.awaits_final_reply() || (self.lost.is_none() && live_requests.is_waiting())
    }

    pub(super) fn is_complete(&self, live_requests: &LiveRequests) -> bool {
        self.stuck || self.report.is_some() && !self.awaits_reply(live_requests)
    }
}
