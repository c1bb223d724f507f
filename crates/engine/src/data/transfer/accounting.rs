//! Who of a transfer's channels says EOD, who says EOF, and when all has come: the machines of
//! `godwit_proto::mode_e`, shared by the channels.

use std::sync::{MutexGuard, atomic::Ordering};

use godwit_proto::{
    command::Mode,
    error::TransferFailure,
    mode_e::{
        BlockHeader,
        receiver::{ChannelEnd, ChannelPosition, ReceiveError, Step},
        sender::{AfterEod, Sender},
    },
};

use crate::{
    data::{
        lock,
        transfer::{
            Control, TransferShared, block_queue::BlockQueue, source_or_sink::SourceOrSink,
        },
    },
    host::tcp_diag::AddressPair,
};

impl TransferShared {
    /// A connection towards `stripe` is about to be opened or reused; false: too late, EOF is out.
    pub(crate) fn sender_joins(&self, stripe: usize) -> bool {
        let mut control = lock(&self.control);
        control.result.is_none()
            && !control.followed
            && control
                .senders
                .get_mut(stripe)
                .is_some_and(Sender::channel_joins)
    }

    /// Whether another transfer may begin on each channel that is through with this one, while
    /// others are not. Where it may, no channel joins or ends early any more: those that there are
    /// will all carry the other one too, which counts them.
    pub(crate) fn lets_follow(&self) -> bool {
        let mut control = lock(&self.control);
        let goes_well = control.deferred_failure.is_none()
            && control.failing.is_none()
            && !matches!(control.result, Some(Err(_)));
        let is_steady = !self.sends
            || self.stripes == 1
                && !control.retired
                && self.retire_wanted.load(Ordering::Relaxed) == 0
                && control.senders.iter().all(Sender::all_are_up);
        let lets = self.mode == Mode::ExtendedBlock && control.ready_sent && goes_well && is_steady;
        control.followed |= lets;
        lets
    }

    /// So many channels will carry it. Of these the `busy` ones still carry what comes before.
    pub(crate) fn follow(&self, channels: u32, busy: u32) {
        if let Some(sender) = lock(&self.control).senders.first_mut() {
            (0..busy).for_each(|_| sender.channel_follows());
        }
        self.following.store(channels, Ordering::Relaxed);
    }

    /// A counted connection never came up. When none is left to carry on, the first reason counts:
    /// others may follow from it.
    pub(crate) fn sender_failed_to_open(&self, stripe: usize, why: TransferFailure) {
        let (carried_on, why) = {
            let mut control = lock(&self.control);
            control.first_missing = control.first_missing.saturating_sub(1);
            let ok = self.mode == Mode::ExtendedBlock
                && control
                    .senders
                    .get_mut(stripe)
                    .is_some_and(Sender::channel_failed_to_open);
            let why = control.first_unopened.get_or_insert(why).clone();
            if ok {
                self.ready_if_all_up(&mut control, false);
                self.reconsider(control);
            }
            (ok, why)
        };
        if carried_on {
            tracing::info!(%why, "a data channel less");
        } else {
            self.fail(why);
        }
    }

    /// The last header of a channel that has nothing more to send. `None`: it must wait for a
    /// connection that is still being made, and is told when to ask again.
    pub(crate) fn sender_ends(&self, stripe: usize, after: AfterEod) -> Option<BlockHeader> {
        let mut control = lock(&self.control);
        let may_end = control.senders[stripe].may_end();
        control.holding |= !may_end;
        may_end.then(|| control.senders[stripe].channel_ends(after))
    }

    /// A connection has come up or failed: channels that wait for it ask again.
    pub(super) fn reconsider(&self, mut control: MutexGuard<'_, Control>) {
        let holding = std::mem::take(&mut control.holding);
        drop(control);
        if holding && let Some(set) = self.set.upgrade() {
            set.reconsider();
        }
    }

    /// The last header of a channel has left; finishes the transfer when it was the last of all.
    pub(crate) fn sender_ended(&self) {
        let complete = {
            let mut control = lock(&self.control);
            control.ended += 1;
            let said: u64 = control.senders.iter().map(Sender::ended).sum();
            control.senders.iter().all(Sender::is_complete) && control.ended == said
        };
        if complete {
            self.succeed();
        }
    }

    /// The last header of a channel that may retire: somebody wished for it and another is left to
    /// carry on. Those with the smallest windows go first. Where nothing is left to send there may
    /// be none behind this one.
    pub(crate) fn retire(
        &self,
        stripe: usize,
        addresses: Option<AddressPair>,
        nothing_left: bool,
    ) -> Option<BlockHeader> {
        let wanted = self.retire_wanted.load(Ordering::Relaxed);
        if wanted == 0 {
            return None;
        }
        let set = self.set.upgrade()?;
        // Of several stripes each keeps a channel, which may be the least of all.
        if let Some(addresses) = addresses
            && self.stripes == 1
            && !nothing_left
            && set.count_weaker(addresses) >= wanted as usize
        {
            return None;
        }
        // Asked and answered under one lock: two channels must not both believe that the other
        // stays.
        let mut control = lock(&self.control);
        if control.followed || !control.senders[stripe].may_retire(nothing_left) {
            return None;
        }
        self.retire_wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .ok()?;
        if let Some(addresses) = addresses {
            set.mark_leaving(addresses);
        }
        control.retired = true;
        Some(control.senders[stripe].channel_ends(AfterEod::Close))
    }

    /// How many channels are missing from `channels` or are more than it. Those that shall end and
    /// have not yet are asked to stay first.
    pub(crate) fn channel_difference(&self, channels: u32) -> (u32, u32) {
        let control = lock(&self.control);
        if control.followed {
            return (0, 0);
        }
        let live: u64 = control.senders.iter().map(Sender::live).sum();
        let live = u32::try_from(live).unwrap_or(u32::MAX);
        let ending = self.retire_wanted.load(Ordering::Relaxed);
        let staying = live.saturating_sub(ending);
        // Towards the end channels have ended because nothing is left: nobody is to follow them.
        let missing = match self.source_or_sink() {
            SourceOrSink::SendFile { queues, .. }
                if queues.iter().all(BlockQueue::is_exhausted) =>
            {
                0
            }
            _ => channels.saturating_sub(staying),
        };
        let kept = missing.min(ending);
        self.retire_wanted.fetch_sub(kept, Ordering::Relaxed);
        (missing - kept, staying.saturating_sub(channels))
    }

    pub(crate) fn want_retired(&self, count: u32) -> u32 {
        let control = lock(&self.control);
        if control.followed {
            return 0;
        }
        let live: u64 = control.senders.iter().map(Sender::live).sum();
        let spare =
            u32::try_from(live.saturating_sub(control.senders.len() as u64)).unwrap_or(u32::MAX);
        let pending = self.retire_wanted.load(Ordering::Relaxed);
        let granted = count.min(spare.saturating_sub(pending));
        self.retire_wanted.fetch_add(granted, Ordering::Relaxed);
        granted
    }

    pub(crate) fn receive_header(
        &self,
        position: &mut ChannelPosition,
        header: &BlockHeader,
    ) -> Result<Step, ReceiveError> {
        lock(&self.control).receiver.handle_header(position, header)
    }

    pub(crate) fn receive_close(&self, position: ChannelPosition) -> Result<(), ReceiveError> {
        lock(&self.control).receiver.handle_close(position)
    }

    /// The payload up to a channel's end was written; finishes the transfer when nothing is
    /// missing.
    pub(crate) fn receiver_channel_ended(&self, end: ChannelEnd) {
        let complete = {
            let mut control = lock(&self.control);
            if end != ChannelEnd::Retired {
                control.ended += 1;
            }
            control.receiver.is_complete() && control.ended == control.receiver.eod_seen()
        };
        if complete {
            self.succeed();
        }
    }
}
