//! A mover: one OS thread with its own event loop that serves its data channels and their storage.
//!
//! A thread and not a task: the kernel shares CPU time by thread, so on a busy machine a transfer
//! with more movers gets more of it (Balaprakash 2016 §IV-A).

pub(crate) mod connections;
pub(crate) mod event_loop;

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

use mio::{Poll, Waker};

use crate::data::{
    lock,
    mover::event_loop::{EventLoop, INBOX},
    sampling::cpu_time::MoverClock,
    set::{IdleChannel, SetShared},
    transfer::TransferHandle,
};

/// Handle of one mover thread; clones share it. The thread ends when the last handle and the last
/// set on it are gone.
#[derive(Clone)]
pub struct Mover(Arc<Alive>);

struct Alive(Arc<MoverShared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.give(MoverCommand::Stop);
    }
}

pub(crate) struct MoverShared {
    inbox: Mutex<Inbox>,
    /// Ends [`Rest::Gathers`].
    came: Condvar,
    waker: Waker,
    pub(crate) clock: MoverClock,
}

#[derive(Default)]
struct Inbox {
    orders: Vec<MoverCommand>,
    rest: Rest,
}

/// What the thread does where it does nothing: whoever leaves an order must wake it.
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
    /// For the mover alone: orders that came since the last call.
    pub(crate) fn take_orders(&self) -> Vec<MoverCommand> {
        let mut inbox = lock(&self.inbox);
        inbox.rest = Rest::Awake;
        std::mem::take(&mut inbox.orders)
    }

    /// For the mover alone, before it waits for events: false where there are orders already.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut inbox = lock(&self.inbox);
        if inbox.orders.is_empty() {
            inbox.rest = Rest::Asleep;
        }
        inbox.rest == Rest::Asleep
    }

    /// For the mover alone: lets events gather for `most`, or until an order comes.
    pub(crate) fn gather(&self, most: Duration) {
        let mut inbox = lock(&self.inbox);
        inbox.rest = Rest::Gathers;
        let waited = (self.came).wait_timeout_while(inbox, most, |i| i.orders.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.rest = Rest::Awake;
    }

    pub(crate) fn give(&self, order: MoverCommand) {
        self.give_all([order]);
    }

    /// An awake mover finds its orders before it sleeps: it is woken once, and only from sleep.
    pub(crate) fn give_all(&self, orders: impl IntoIterator<Item = MoverCommand>) {
        let rest = {
            let mut inbox = lock(&self.inbox);
            inbox.orders.extend(orders);
            match inbox.orders.is_empty() {
                true => Rest::Awake,
                false => std::mem::take(&mut inbox.rest),
            }
        };
        match rest {
            Rest::Awake => {}
            Rest::Gathers => self.came.notify_one(),
            Rest::Asleep => {
                if let Err(e) = self.waker.wake() {
                    // An eventfd write fails only when the descriptor is gone, and we hold it.
                    tracing::error!(error = %e, "cannot wake a mover");
                }
            }
        }
    }
}

/// What sessions ask of a mover.
pub(crate) enum MoverCommand {
    /// Accept connections for a set.
    Listen {
        set: Arc<SetShared>,
        listener: mio::net::TcpListener,
    },
    /// Stop accepting for the set with this id.
    StopListening(u64),
    /// Check the limits of a set while it has a transfer.
    Watch(Weak<SetShared>),
    /// Take an accepted connection.
    Adopt {
        set: Arc<SetShared>,
        mover: usize,
        stream: mio::net::TcpStream,
    },
    /// Connect for a transfer.
    Connect {
        set: Arc<SetShared>,
        mover: usize,
        stripe: usize,
        peer: std::net::SocketAddr,
        /// Time for the connection to come up.
        limit: Duration,
        handle: TransferHandle,
    },
    /// Begin the next of what waits in a set.
    BeginNext(Arc<SetShared>),
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
    /// Let the channels of a set carry nothing, and keep them.
    HaltChannels(u64),
    /// End the thread.
    Stop,
}

impl Mover {
    /// Starts a thread. Fails where the system gives no thread or epoll descriptor.
    pub fn spawn(name: &str) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), INBOX)?;
        let shared = Arc::new(MoverShared {
            inbox: Mutex::default(),
            came: Condvar::new(),
            waker,
            clock: MoverClock::new(),
        });
        let event_loop = EventLoop::new(poll, Arc::clone(&shared));
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || event_loop.run())?;
        Ok(Self(Arc::new(Alive(shared))))
    }

    pub(crate) fn shared(&self) -> Arc<MoverShared> {
        Arc::clone(&self.0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_ends_the_gathering() {
        let poll = Poll::new().unwrap();
        let shared = Arc::new(MoverShared {
            inbox: Mutex::default(),
            came: Condvar::new(),
            waker: Waker::new(poll.registry(), INBOX).unwrap(),
            clock: MoverClock::new(),
        });
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
            while lock(&giver.inbox).rest != Rest::Gathers {
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
