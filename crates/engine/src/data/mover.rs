//! A mover: one OS thread with its own event loop that serves its data channels and their storage.
//!
//! A thread and not a task: the kernel shares CPU time by thread, so on a busy machine a transfer with more movers gets
//! more of it (Balaprakash 2016 §IV-A).

use std::{
    io,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use mio::{Poll, Waker};

use super::{
    event_loop::{EventLoop, INBOX},
    lock,
    occupation::Occupation,
    set::{IdleChannel, SetShared},
    transfer::Attachment,
};

/// Handle of one mover thread; clones share it. The thread ends when the last handle and the last set on it are gone.
#[derive(Clone)]
pub struct Mover(Arc<Alive>);

struct Alive(Arc<MoverShared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.give(Order::Stop);
    }
}

pub(super) struct MoverShared {
    inbox: Mutex<Inbox>,
    waker: Waker,
    pub(super) occupation: Occupation,
}

#[derive(Default)]
struct Inbox {
    orders: Vec<Order>,
    /// The thread waits for events, or is about to: whoever leaves an order must wake it.
    asleep: bool,
}

impl MoverShared {
    /// For the mover alone: orders that came since the last call.
    pub(super) fn take_orders(&self) -> Vec<Order> {
        let mut inbox = lock(&self.inbox);
        inbox.asleep = false;
        std::mem::take(&mut inbox.orders)
    }

    /// For the mover alone, before it waits for events: false where there are orders already.
    pub(super) fn may_sleep(&self) -> bool {
        let mut inbox = lock(&self.inbox);
        inbox.asleep = inbox.orders.is_empty();
        inbox.asleep
    }

    pub(super) fn give(&self, order: Order) {
        self.give_all([order]);
    }

    /// An awake mover finds its orders before it sleeps: it is woken once, and only from sleep.
    pub(super) fn give_all(&self, orders: impl IntoIterator<Item = Order>) {
        let wakes = {
            let mut inbox = lock(&self.inbox);
            inbox.orders.extend(orders);
            !inbox.orders.is_empty() && std::mem::take(&mut inbox.asleep)
        };
        if wakes && let Err(e) = self.waker.wake() {
            // An eventfd write fails only when the descriptor is gone, and we hold it.
            tracing::error!(error = %e, "cannot wake a mover");
        }
    }
}

/// What sessions ask of a mover.
pub(super) enum Order {
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
        attachment: Attachment,
    },
    /// Begin the next of what waits in a set.
    BeginNext(Arc<SetShared>),
    /// An idle connection carries a transfer now.
    Assign {
        channel: IdleChannel,
        attachment: Attachment,
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
            waker,
            occupation: Occupation::new(),
        });
        let event_loop = EventLoop::new(poll, Arc::clone(&shared));
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || event_loop.run())?;
        Ok(Self(Arc::new(Alive(shared))))
    }

    pub(super) fn shared(&self) -> Arc<MoverShared> {
        Arc::clone(&self.0.0)
    }
}
