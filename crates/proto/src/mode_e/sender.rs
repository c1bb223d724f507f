//! The sending end (GFD.020 MODE E): which channel sends EOD and EOF, and with which count.
//!
//! An opened connection must never be left out of the count: it would reach the receiver between
//! transfers, where GCT's server takes and forgets it and then waits for ever. So EOF comes last,
//! from the last channel to end, and counts every connection that was opened or reused for this
//! transfer. While a connection is still being made the last open channel keeps its EOD back:
//! should the other never connect, this one must send EOF.

use super::header::{BlockHeader, Descriptor};

/// Channel accounting of one transfer towards one receiving address.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// Connected, or still connecting, and not yet ended.
    live: u64,
    /// Of these the connected ones.
    open: u64,
    /// EODs sent.
    ended: u64,
    /// Of these the ones of connections that stay.
    kept: u64,
    eof_sent: bool,
    ending: Ending,
}

/// What the last channel says. Several senders may send one file to one address (striped servers):
/// one of them then says EOF for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// EOF, which counts this sender's EODs, and those of others.
    Eof {
        /// EODs that other senders have sent to the same address.
        others: u64,
    },
    /// EOD alone: another sender says EOF.
    Eod,
}

impl Default for Ending {
    fn default() -> Self {
        Self::Eof { others: 0 }
    }
}

/// What happens to the connection after its EOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterEod {
    /// Kept for the next transfer.
    Keep,
    /// Closed: the header carries CLOSE.
    Close,
}

impl Sender {
    /// No channel yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides what the last channel says. Before it says it.
    pub fn end_with(&mut self, ending: Ending) {
        self.ending = ending;
    }

    /// A connection is about to be opened, or a cached one takes part. False once EOF has been
    /// sent: the connection must not be opened.
    #[must_use]
    pub fn channel_joins(&mut self) -> bool {
        if self.eof_sent {
            return false;
        }
        self.live += 1;
        true
    }

    /// A connection that was counted is up. Call once for each that `channel_joins` has let in.
    pub fn channel_opens(&mut self) {
        debug_assert!(self.open < self.live, "a channel opened twice");
        self.open += 1;
    }

    /// A connection that still carries the transfer before this one takes part when it is done with
    /// that. It is open, so no channel waits for it: the others may send EOD, and it sends EOF if
    /// it is the last.
    pub fn channel_follows(&mut self) {
        debug_assert!(!self.eof_sent, "a channel follows what is over");
        self.live += 1;
        self.open += 1;
    }

    /// A connection that was counted never came up: the receiver has not seen it. False where
    /// nothing is left to carry the EOF, and the transfer has failed.
    #[must_use]
    pub fn channel_failed_to_open(&mut self) -> bool {
        debug_assert!(
            self.live > self.open,
            "a channel that is open or never joined failed"
        );
        self.live = self.live.saturating_sub(1);
        self.live > 0
    }

    /// A channel has nothing more to send: the header it must write last. The last live channel
    /// writes EOF|EOD with the total; the others EOD. Call only for an open channel that
    /// [`Self::may_end`], once.
    pub fn channel_ends(&mut self, after: AfterEod) -> BlockHeader {
        debug_assert!(self.may_end() && !self.eof_sent, "a channel ended twice");
        self.live = self.live.saturating_sub(1);
        self.open = self.open.saturating_sub(1);
        self.ended += 1;
        self.kept += u64::from(after == AfterEod::Keep);
        let mut descriptor = Descriptor::EOD;
        if after == AfterEod::Close {
            descriptor = descriptor | Descriptor::CLOSE;
        }
        let mut offset = 0;
        if self.live == 0 {
            self.eof_sent = true;
            if let Ending::Eof { others } = self.ending {
                descriptor = descriptor | Descriptor::EOF;
                offset = self.ended.saturating_add(others);
            }
        }
        BlockHeader {
            descriptor,
            count: 0,
            offset,
        }
    }

    /// True where an open channel may say EOD: another open one is left to say EOF, or none is
    /// still being made.
    pub fn may_end(&self) -> bool {
        self.open > 1 || (self.open == 1 && self.live == 1)
    }

    /// True where an open channel may end and be closed: another open one is left to carry on, or,
    /// where `nothing_left` is to be sent, another connection stays for what follows.
    pub fn may_retire(&self, nothing_left: bool) -> bool {
        self.open > 1 || (nothing_left && self.kept > 0 && self.may_end())
    }

    /// None is still being made.
    pub fn all_are_up(&self) -> bool {
        self.open == self.live
    }

    /// Channels that have not ended.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Channels that have ended: EODs given out.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// EOF was given out, or the last EOD where another sender says it: nothing can join.
    pub fn is_complete(&self) -> bool {
        self.eof_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_channel_announces_all() {
        let mut sender = Sender::new();
        assert!(sender.channel_joins() && sender.channel_joins() && sender.channel_joins());
        sender.channel_opens();
        assert!(
            !sender.may_retire(true) && !sender.may_end(),
            "the others may never connect"
        );
        sender.channel_opens();
        assert!(sender.may_retire(false));
        let retired = sender.channel_ends(AfterEod::Close);
        assert_eq!(retired.encode()[0], 0x0c);
        assert!(sender.channel_failed_to_open());
        assert!(!sender.may_retire(true) && sender.may_end());
        assert!(sender.channel_joins(), "growing is fine until EOF");
        sender.channel_opens();
        assert_eq!(sender.channel_ends(AfterEod::Keep).encode()[0], 0x08);
        let last = sender.channel_ends(AfterEod::Keep);
        assert_eq!((last.encode()[0], last.count, last.offset), (0x48, 0, 3));
        assert!(sender.is_complete() && !sender.channel_joins());
    }

    #[test]
    fn of_several_senders_one_announces_the_channels_of_all() {
        let mut senders = [Sender::new(), Sender::new()];
        for sender in &mut senders {
            assert!(sender.channel_joins());
            sender.channel_opens();
        }
        let [first, second] = &mut senders;
        second.end_with(Ending::Eod);
        let last = second.channel_ends(AfterEod::Keep);
        assert_eq!((last.encode()[0], last.offset), (0x08, 0));
        assert!(second.is_complete() && !second.channel_joins());
        first.end_with(Ending::Eof {
            others: second.ended(),
        });
        let last = first.channel_ends(AfterEod::Keep);
        assert_eq!((last.encode()[0], last.offset), (0x48, 2));
    }

    #[test]
    fn a_late_successor_is_not_waited_for() {
        let mut sender = Sender::new();
        assert!(sender.channel_joins());
        sender.channel_follows();
        assert!(!sender.all_are_up() && !sender.may_end());
        sender.channel_opens();
        assert!(sender.all_are_up() && sender.may_end());
        assert_eq!(sender.channel_ends(AfterEod::Keep).encode()[0], 0x08);
        assert!(sender.may_end(), "the one that came later is the last");
        let last = sender.channel_ends(AfterEod::Keep);
        assert_eq!((last.encode()[0], last.offset), (0x48, 2));
    }

    #[test]
    fn the_last_channel_may_retire_when_nothing_is_left() {
        let mut sender = Sender::new();
        assert!(sender.channel_joins() && sender.channel_joins());
        sender.channel_opens();
        sender.channel_opens();
        assert_eq!(sender.channel_ends(AfterEod::Keep).encode()[0], 0x08);
        assert!(!sender.may_retire(false), "it has the rest to carry");
        assert!(sender.may_retire(true));
        let last = sender.channel_ends(AfterEod::Close);
        assert_eq!((last.encode()[0], last.offset), (0x4c, 2));
        let mut alone = Sender::new();
        assert!(alone.channel_joins());
        alone.channel_opens();
        assert!(!alone.may_retire(true), "no connection would stay");
    }

    #[test]
    fn without_a_channel_for_the_eof_the_transfer_fails() {
        let mut sender = Sender::new();
        assert!(sender.channel_joins() && sender.channel_joins());
        assert!(sender.channel_failed_to_open());
        assert!(!sender.channel_failed_to_open());
    }
}
