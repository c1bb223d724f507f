//! What a mover is asked to do, by sessions and by other movers, and what it asks of a set.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use godwit_proto::error::TransferFailure;
use mio::{Poll, Token, Waker};
use parking_lot::{Condvar, Mutex};

use crate::data::{
    channel::IdleChannel,
    context::SetContext,
    sampling::cpu_time::MoverClock,
    transfer::shared::{TransferHandle, TransferShared},
};

/// Token of the inbox; connections are slab keys and never reach it.
pub(crate) const INBOX: Token = Token(usize::MAX);

/// The set of connections that a mover serves, as the mover sees it.
pub(crate) trait ConnectionSet: Send + Sync {
    fn context(&self) -> &Arc<SetContext>;

    /// One of its movers.
    fn mover(&self, index: usize) -> &Arc<MoverShared>;

    /// A connection arrived at the listener: which mover takes it. `None`: the limit is reached.
    fn admit(&self) -> Option<usize>;

    /// New connections shall wait for the end of the set.
    fn is_halted(&self) -> bool;

    /// The running transfer for a connection that has just arrived, or the idle list.
    fn attach_or_park(&self, channel: IdleChannel) -> Option<TransferHandle>;

    /// A channel has done its part in `transfer`: what it carries now, or the idle list.
    fn next_or_park(
        &self,
        channel: IdleChannel,
        transfer: &TransferShared,
    ) -> Option<TransferHandle>;

    /// Begins what may begin.
    fn begin_next(self: Arc<Self>);

    /// A peer that connected is not the one that the set expects.
    fn refuse(&self, why: TransferFailure);

    /// A connection is gone.
    fn closed(&self, mover: usize, serial: u64);

    /// It has connections, whatever they do.
    fn has_connections(&self) -> bool;

    /// A transfer runs.
    fn is_busy(&self) -> bool;

    /// Fails the first running transfer where a limit has passed; looks at the counters of all.
    fn tick(&self);
}

pub(crate) struct MoverShared {
    inbox: Mutex<Inbox>,
    /// Ends [`Rest::Gathers`].
    came: Condvar,
    waker: Waker,
    pub(crate) clock: Arc<MoverClock>,
}

#[derive(Default)]
struct Inbox {
    orders: Vec<MoverCommand>,
    rest: Rest,
}

/// What the thread does while it has nothing to do: a command must wake it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Awake,
    /// It lets events gather and looks at none.
    Gathers,
    /// It waits for events, or is about to.
    Asleep,
}

impl MoverShared {
    pub(crate) fn new(poll: &Poll) -> io::Result<Self> {
        Ok(Self {
            inbox: Mutex::default(),
            came: Condvar::new(),
            waker: Waker::new(poll.registry(), INBOX)?,
            clock: Arc::new(MoverClock::default()),
        })
    }

    /// For the mover alone: commands that came since the last call.
    pub(crate) fn take_orders(&self) -> Vec<MoverCommand> {
        let mut inbox = self.inbox.lock();
        inbox.rest = Rest::Awake;
        std::mem::take(&mut inbox.orders)
    }

    /// For the mover alone, before it waits for events: false where commands wait already.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.orders.is_empty() {
            inbox.rest = Rest::Asleep;
        }
        inbox.rest == Rest::Asleep
    }

    /// For the mover alone: lets events gather for `most`, or until a command comes.
    pub(crate) fn gather(&self, most: Duration) {
        let mut inbox = self.inbox.lock();
        inbox.rest = Rest::Gathers;
        (self.came).wait_while_for(&mut inbox, |i| i.orders.is_empty(), most);
        inbox.rest = Rest::Awake;
    }

    pub(crate) fn give(&self, order: MoverCommand) {
        self.give_all([order]);
    }

    /// An awake mover finds its commands before it sleeps: it is woken once, and only from sleep.
    pub(crate) fn give_all(&self, orders: impl IntoIterator<Item = MoverCommand>) {
        let rest = {
            let mut inbox = self.inbox.lock();
            inbox.orders.extend(orders);
            match inbox.orders.is_empty() {
                true => Rest::Awake,
                false => std::mem::take(&mut inbox.rest),
            }
        };
        match rest {
            Rest::Awake => {}
            Rest::Gathers => {
                self.came.notify_one();
            }
            Rest::Asleep => {
                if let Err(e) = self.waker.wake() {
                    // An eventfd write fails only when the descriptor is gone, and we hold it.
                    tracing::error!(error = %e, "cannot wake a mover");
                }
            }
        }
    }
}

/// What sessions and other movers ask of a mover.
pub(crate) enum MoverCommand {
    /// Accept connections for a set.
    Listen {
        set: Arc<dyn ConnectionSet>,
        listener: mio::net::TcpListener,
    },
    /// Stop accepting for the set with this id.
    StopListening(u64),
    /// Check the limits of a set while it has a transfer.
    Watch(Weak<dyn ConnectionSet>),
    /// Take an accepted connection.
    Adopt {
        set: Arc<dyn ConnectionSet>,
        mover: usize,
        stream: mio::net::TcpStream,
    },
    /// Connect for a transfer.
    Connect {
        set: Arc<dyn ConnectionSet>,
        mover: usize,
        stripe: usize,
        peer: std::net::SocketAddr,
        /// Time for the connection to open.
        limit: Duration,
        handle: TransferHandle,
    },
    /// Begin the next transfer or work that waits in a set.
    BeginNext(Arc<dyn ConnectionSet>),
    /// An idle connection carries a transfer now.
    Assign {
        channel: IdleChannel,
        handle: TransferHandle,
    },
    /// Channels of a set that keep their EOD back ask again whether they must.
    Reconsider(u64),
    /// Channels of a set that are attached to a finished transfer let go of it.
    Release(u64),
    /// Close all connections of a set.
    CloseChannels(u64),
    /// Channels of a set let go of their transfers, and stay open.
    HaltChannels(u64),
    /// End the thread.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_ends_the_gathering() {
        let poll = Poll::new().unwrap();
        let shared = Arc::new(MoverShared::new(&poll).unwrap());
        // Nothing came: it is over by itself, and the mover may sleep.
        shared.gather(Duration::from_millis(1));
        assert!(shared.may_sleep());
        assert!(shared.take_orders().is_empty());
        // What is there already, and what comes in the midst of it.
        shared.give(MoverCommand::Release(1));
        shared.gather(Duration::MAX);
        assert!(!shared.may_sleep());
        assert_eq!(shared.take_orders().len(), 1);
        let giver = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while giver.inbox.lock().rest != Rest::Gathers {
                std::thread::yield_now();
            }
            giver.give(MoverCommand::Release(2));
        });
        shared.gather(Duration::MAX);
        assert!(!shared.may_sleep());
        assert_eq!(shared.take_orders().len(), 1);
        thread.join().unwrap();
    }
}
