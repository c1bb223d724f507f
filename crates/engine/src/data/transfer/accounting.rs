//! Which of a transfer's channels sends EOD, which one sends EOF, and when all data has come: the
//! machines of `godwit_proto::mode_e` for all its channels. No I/O, no lock: see
//! [`super::shared`].

use godwit_proto::{
    error::TransferFailure,
    mode_e::{
        BlockHeader,
        receiver::{ChannelEnd, ChannelPosition, ReceiveError, Receiver, Step},
        sender::{AfterEod, Ending, Sender},
    },
};

/// Channels come and go while a transfer runs. A receiver refuses a peer's EOD count above this
/// many times the channels that may be open at a time. A controller that changes its mind each
/// second needs a day for as many.
const CHANNEL_TURNOVER: u64 = 1 << 16;

pub(crate) struct Accounting {
    /// First connections that have neither opened nor failed (sending).
    first_missing: u32,
    /// Why the first connection that failed to open did (sending).
    first_unopened: Option<TransferFailure>,
    /// Another transfer may have begun on channels that have done their part in this one.
    followed: bool,
    /// A channel has ended early (sending).
    retired: bool,
    /// Sending: one per receiving address.
    senders: Vec<Sender>,
    /// A channel keeps its EOD back until a connection has opened or failed.
    holding: bool,
    /// All do, until [`Self::finish`]: more may come.
    withheld: bool,
    /// Ranges may come while it runs.
    leased: bool,
    receiver: Receiver,
    /// Channels whose part is done: EOD written (sending), payload up to the EOD written
    /// (receiving).
    ended: u64,
}

impl Accounting {
    /// `stripes`: addresses that a sender connects to, at least 1.
    pub(crate) fn new(stripes: usize, channels_max: u32) -> Self {
        Self {
            first_missing: 0,
            first_unopened: None,
            followed: false,
            retired: false,
            senders: vec![Sender::new(); stripes],
            holding: false,
            withheld: false,
            leased: false,
            receiver: Receiver::new(u64::from(channels_max) * CHANNEL_TURNOVER),
            ended: 0,
        }
    }

    /// `count` first connections of a sender are being made.
    pub(crate) fn expect_first(&mut self, count: u32) {
        self.first_missing += count;
    }

    /// A first connection has opened or failed.
    pub(crate) fn first_resolved(&mut self) {
        self.first_missing = self.first_missing.saturating_sub(1);
    }

    pub(crate) fn misses_first(&self) -> bool {
        self.first_missing > 0
    }

    /// A connection towards `stripe` is about to be opened or reused; false: too late, EOF is out.
    pub(crate) fn sender_joins(&mut self, stripe: usize) -> bool {
        let sender = self.senders.get_mut(stripe);
        !self.followed && sender.is_some_and(Sender::channel_joins)
    }

    /// A channel towards `stripe` carries the transfer.
    pub(crate) fn sender_opens(&mut self, stripe: usize) {
        if let Some(sender) = self.senders.get_mut(stripe) {
            sender.channel_opens();
        }
    }

    /// A counted connection could not be made. Whether another one is left to carry on.
    pub(crate) fn sender_failed_to_open(&mut self, stripe: usize) -> bool {
        let sender = self.senders.get_mut(stripe);
        sender.is_some_and(Sender::channel_failed_to_open)
    }

    /// The reason of the first connection that failed: those of others may follow from it.
    pub(crate) fn first_reason(&mut self, why: TransferFailure) -> TransferFailure {
        self.first_unopened.get_or_insert(why).clone()
    }

    /// No channel of a sender has ended early, and none is still being made.
    pub(crate) fn is_steady(&self) -> bool {
        !self.retired && self.senders.iter().all(Sender::all_are_up)
    }

    /// From now on no channel joins or ends early any more.
    pub(crate) fn set_followed(&mut self) {
        self.followed = true;
    }

    pub(crate) fn is_followed(&self) -> bool {
        self.followed
    }

    /// `busy` channels will carry it after the transfer that they carry now.
    pub(crate) fn follow(&mut self, busy: u32) {
        if let Some(sender) = self.senders.first_mut() {
            (0..busy).for_each(|_| sender.channel_follows());
        }
    }

    /// The last header of a channel that has nothing more to send. `None`: it must wait for a
    /// connection that is still being made; [`Self::take_holding`] says when to ask again.
    pub(crate) fn sender_ends(&mut self, stripe: usize, after: AfterEod) -> Option<BlockHeader> {
        let may_end = !self.withheld && self.senders[stripe].may_end();
        self.holding |= !may_end;
        may_end.then(|| self.senders[stripe].channel_ends(after))
    }

    /// No channel of a sender ends before [`Self::finish`].
    pub(crate) fn withhold(&mut self) {
        self.withheld = true;
        self.leased = true;
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.leased
    }

    /// Channels may end, and the last one so.
    pub(crate) fn finish(&mut self, ending: Ending) {
        self.withheld = false;
        (self.senders.iter_mut()).for_each(|sender| sender.end_with(ending));
    }

    /// EODs given out.
    pub(crate) fn eods(&self) -> u64 {
        self.senders.iter().map(Sender::ended).sum()
    }

    /// Whether channels wait for [`Self::sender_ends`], which may ask again now.
    pub(crate) fn take_holding(&mut self) -> bool {
        std::mem::take(&mut self.holding)
    }

    /// The last header of a channel has left. Whether it was the last of all.
    pub(crate) fn sender_ended(&mut self) -> bool {
        self.ended += 1;
        self.senders.iter().all(Sender::is_complete) && self.ended == self.eods()
    }

    /// A channel towards `stripe` may end early: another one is left to carry on, and no stripe has
    /// more. Where nothing is left to send there may be none behind it.
    pub(crate) fn may_retire(&self, stripe: usize, nothing_left: bool) -> bool {
        let most = || self.senders.iter().map(Sender::live).max();
        !self.followed
            && self.senders[stripe].may_retire(nothing_left)
            && (nothing_left || most() == Some(self.senders[stripe].live()))
    }

    /// The stripe with the fewest channels.
    pub(crate) fn weakest_stripe(&self) -> usize {
        let stripes = self.senders.iter().enumerate();
        let weakest = stripes.min_by_key(|(_, sender)| sender.live());
        weakest.map_or(0, |(stripe, _)| stripe)
    }

    /// The last header of a channel that ends early.
    pub(crate) fn retire(&mut self, stripe: usize) -> BlockHeader {
        self.retired = true;
        self.senders[stripe].channel_ends(AfterEod::Close)
    }

    /// Channels of a sender that have joined and not ended.
    pub(crate) fn live(&self) -> u64 {
        self.senders.iter().map(Sender::live).sum()
    }

    /// Channels of a sender beyond one for each stripe.
    pub(crate) fn spare(&self) -> u32 {
        let spare = self.live().saturating_sub(self.senders.len() as u64);
        u32::try_from(spare).unwrap_or(u32::MAX)
    }

    pub(crate) fn receive_header(
        &mut self,
        position: &mut ChannelPosition,
        header: &BlockHeader,
    ) -> Result<Step, ReceiveError> {
        self.receiver.handle_header(position, header)
    }

    pub(crate) fn receive_close(&mut self, position: ChannelPosition) -> Result<(), ReceiveError> {
        self.receiver.handle_close(position)
    }

    /// The payload up to a channel's end was written. Whether nothing is missing.
    pub(crate) fn receiver_channel_ended(&mut self, end: ChannelEnd) -> bool {
        if end != ChannelEnd::Retired {
            self.ended += 1;
        }
        self.receiver.is_complete() && self.ended == self.receiver.eod_seen()
    }
}
