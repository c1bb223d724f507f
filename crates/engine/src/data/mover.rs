//! A mover: one OS thread with its own event loop that serves its data channels and their storage.
//!
//! A thread and not a task: the kernel shares CPU time by thread, so on a busy machine a transfer with more movers gets
//! more of it (Balaprakash 2016 §IV-A). Readiness is edge-triggered; a channel that stopped because its budget was used up,
//! and not because the socket would block, stays in a run queue.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use godwit_proto::error::TransferFailure;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    channel::{Channel, Flow},
    lock,
    set::{IdleChannel, SetShared},
    transfer::Attachment,
};
use crate::storage::text_of;

/// Token of the inbox; connections are slab keys and never reach it.
const INBOX: Token = Token(usize::MAX);

/// How often limits are checked while something waits.
const TICK: Duration = Duration::from_millis(250);

/// Octets that all channels of a mover share as receive buffer: fits into a second-level cache.
pub(super) const SCRATCH_OCTETS: usize = 256 * 1024;

/// Connections taken from a listener before other channels get their turn.
const ACCEPTS_PER_TURN: usize = 64;

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
    inbox: Mutex<Vec<Order>>,
    waker: Waker,
}

impl MoverShared {
    pub(super) fn give(&self, order: Order) {
        let first = {
            let mut inbox = lock(&self.inbox);
            inbox.push(order);
            inbox.len() == 1
        };
        if first && let Err(e) = self.waker.wake() {
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
        attachment: Attachment,
    },
    /// An idle connection carries a transfer now.
    Assign {
        channel: IdleChannel,
        attachment: Attachment,
    },
    /// Channels of a set that are attached to a finished transfer let go of it.
    Release(u64),
    /// Close all connections of a set.
    CloseChannels(u64),
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
        });
        let event_loop = EventLoop {
            poll,
            shared: Arc::clone(&shared),
            entries: Slab::new(),
            runnable: VecDeque::new(),
            watched: HashMap::new(),
            scratch: vec![0; SCRATCH_OCTETS].into_boxed_slice(),
            serial: 0,
        };
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || event_loop.run())?;
        Ok(Self(Arc::new(Alive(shared))))
    }

    pub(super) fn shared(&self) -> Arc<MoverShared> {
        Arc::clone(&self.0.0)
    }
}

struct EventLoop {
    poll: Poll,
    shared: Arc<MoverShared>,
    entries: Slab<Entry>,
    /// Tokens of channels that can go on without waiting for the kernel.
    runnable: VecDeque<usize>,
    watched: HashMap<u64, Weak<SetShared>>,
    scratch: Box<[u8]>,
    serial: u64,
}

enum Entry {
    Listener {
        set: Arc<SetShared>,
        listener: mio::net::TcpListener,
        /// Accepting failed for want of descriptors: try again at the next tick.
        retry: bool,
    },
    Channel(Box<Channel>),
}

impl EventLoop {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut next_tick = Instant::now() + TICK;
        loop {
            let timeout = if !self.runnable.is_empty() {
                Some(Duration::ZERO)
            } else if self.has_deadlines() {
                Some(next_tick.saturating_duration_since(Instant::now()))
            } else {
                None
            };
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    tracing::error!(error = %e, "a mover cannot wait for events and ends");
                    return;
                }
            }
            for event in &events {
                if event.token() != INBOX {
                    self.note_event(event);
                }
            }
            let orders = std::mem::take(&mut *lock(&self.shared.inbox));
            for order in orders {
                if matches!(order, Order::Stop) {
                    return;
                }
                self.carry_out(order);
            }
            // One turn for each that can run now; those that still can come again after the next look at the kernel.
            for _ in 0..self.runnable.len() {
                if let Some(token) = self.runnable.pop_front() {
                    self.turn(token);
                }
            }
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick(now);
            }
        }
    }

    fn has_deadlines(&self) -> bool {
        !self.watched.is_empty()
            || self
                .entries
                .iter()
                .any(|(_, e)| matches!(e, Entry::Listener { retry: true, .. }))
    }

    fn note_event(&mut self, event: &mio::event::Event) {
        let token = event.token().0;
        match self.entries.get_mut(token) {
            None => {}
            Some(Entry::Listener { .. }) => self.runnable.push_back(token),
            Some(Entry::Channel(channel)) => {
                channel.note(event);
                if channel.wants_turn() && !channel.queued {
                    channel.queued = true;
                    self.runnable.push_back(token);
                }
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Listen { set, mut listener } => {
                let slot = self.entries.vacant_entry();
                let token = slot.key();
                if let Err(e) =
                    self.poll
                        .registry()
                        .register(&mut listener, Token(token), Interest::READABLE)
                {
                    // The transfer's connect limit tells the user.
                    tracing::error!(error = %e, "cannot watch a data listener");
                    return;
                }
                slot.insert(Entry::Listener {
                    set,
                    listener,
                    retry: false,
                });
                self.runnable.push_back(token);
            }
            Order::StopListening(id) => {
                self.entries
                    .retain(|_, e| !matches!(e, Entry::Listener { set, .. } if set.id == id));
            }
            Order::Watch(set) => {
                if let Some(strong) = set.upgrade() {
                    self.watched.insert(strong.id, set);
                }
            }
            Order::Adopt { set, mover, stream } => self.adopt(set, mover, stream),
            Order::Connect {
                set,
                mover,
                stripe,
                peer,
                attachment,
            } => {
                self.connect(set, mover, stripe, peer, attachment);
            }
            Order::Assign {
                channel,
                attachment,
            } => self.assign(&channel, attachment),
            Order::Release(id) => self.release(id),
            Order::CloseChannels(id) => {
                for token in self.channels_of(id) {
                    self.close(token);
                }
            }
            Order::Stop => {}
        }
    }

    fn channels_of(&self, id: u64) -> Vec<usize> {
        self.entries
            .iter()
            .filter(|(_, e)| matches!(e, Entry::Channel(c) if c.set.id == id))
            .map(|(token, _)| token)
            .collect()
    }

    fn adopt(&mut self, set: Arc<SetShared>, mover: usize, stream: mio::net::TcpStream) {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(error = %e, "cannot set TCP_NODELAY on a data channel");
        }
        self.serial += 1;
        let channel = Channel::new(self.serial, stream, Arc::clone(&set), mover, 0);
        let Some(token) = self.insert(channel) else {
            set.closed(mover, self.serial);
            return;
        };
        let idle = IdleChannel {
            mover,
            token,
            serial: self.serial,
            stripe: 0,
            used: false,
        };
        if let Some(attachment) = set.attach_or_park(idle) {
            self.begin(token, attachment, false);
        }
    }

    fn insert(&mut self, mut channel: Channel) -> Option<usize> {
        let slot = self.entries.vacant_entry();
        let token = slot.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self
            .poll
            .registry()
            .register(channel.stream_mut(), Token(token), interest)
        {
            Ok(()) => {
                slot.insert(Entry::Channel(Box::new(channel)));
                Some(token)
            }
            Err(e) => {
                tracing::error!(error = %e, "cannot watch a data connection");
                None
            }
        }
    }

    /// A connected channel begins to carry the attachment's transfer.
    fn begin(&mut self, token: usize, attachment: Attachment, reused: bool) {
        if let Some(Entry::Channel(channel)) = self.entries.get_mut(token) {
            channel.begin(attachment, reused);
            if !channel.queued {
                channel.queued = true;
                self.runnable.push_back(token);
            }
        }
    }

    fn connect(
        &mut self,
        set: Arc<SetShared>,
        mover: usize,
        stripe: usize,
        peer: std::net::SocketAddr,
        attachment: Attachment,
    ) {
        self.serial += 1;
        let serial = self.serial;
        let sending = attachment.is_send();
        let attempt = connect_socket(peer, &set.params, sending).and_then(|stream| {
            let channel = Channel::connecting(serial, stream, Arc::clone(&set), mover, stripe);
            self.insert(channel)
                .ok_or_else(|| io::Error::other("the event loop refuses the socket"))
        });
        match attempt {
            Ok(token) => {
                if let Some(Entry::Channel(channel)) = self.entries.get_mut(token) {
                    let deadline = Instant::now() + set.params.connect_limit;
                    channel.await_connection(attachment, peer, deadline);
                }
            }
            Err(e) => {
                set.closed(mover, serial);
                connection_failed(&attachment, stripe, peer, &e);
            }
        }
    }

    fn assign(&mut self, idle: &IdleChannel, attachment: Attachment) {
        match self.entries.get(idle.token) {
            Some(Entry::Channel(c)) if c.serial == idle.serial && c.is_idle() => {
                self.begin(idle.token, attachment, idle.used);
            }
            // The peer closed it while it was on its way to us. A receiver loses nothing.
            _ if attachment.is_send() => attachment.sender_failed_to_open(
                idle.stripe,
                TransferFailure::ConnectionLost(
                    "the peer closed the cached data connection".into(),
                ),
            ),
            _ => {}
        }
    }

    fn release(&mut self, id: u64) {
        for token in self.channels_of(id) {
            let Some(Entry::Channel(channel)) = self.entries.get_mut(token) else {
                continue;
            };
            match channel.release() {
                None => {}
                Some(true) => {
                    let idle = IdleChannel {
                        mover: channel.mover,
                        token,
                        serial: channel.serial,
                        stripe: channel.stripe,
                        used: true,
                    };
                    let set = Arc::clone(&channel.set);
                    set.park(idle);
                    // Only now: whoever hears that the transfer is over must find the connection parked.
                    channel.let_go();
                }
                Some(false) => self.close(token),
            }
        }
    }

    fn close(&mut self, token: usize) {
        if let Some(Entry::Channel(mut channel)) = self.entries.try_remove(token) {
            channel.set.closed(channel.mover, channel.serial);
            if let Err(e) = self.poll.registry().deregister(channel.stream_mut()) {
                tracing::debug!(error = %e, "a data connection was not watched");
            }
        }
    }

    fn turn(&mut self, token: usize) {
        let flow = match self.entries.get_mut(token) {
            None => return,
            Some(Entry::Listener { .. }) => {
                self.accept(token);
                return;
            }
            Some(Entry::Channel(channel)) => {
                channel.queued = false;
                channel.turn(&mut self.scratch)
            }
        };
        let Some(Entry::Channel(channel)) = self.entries.get_mut(token) else {
            return;
        };
        match flow {
            Flow::Wait => {}
            Flow::Again => {
                channel.queued = true;
                self.runnable.push_back(token);
            }
            Flow::Park => {
                let idle = IdleChannel {
                    mover: channel.mover,
                    token,
                    serial: channel.serial,
                    stripe: channel.stripe,
                    used: true,
                };
                let set = Arc::clone(&channel.set);
                set.park(idle);
                channel.let_go();
            }
            Flow::Close => self.close(token),
            Flow::Failed(why) => {
                let attachment = channel.take_attachment();
                self.close(token);
                if let Some(attachment) = attachment {
                    attachment.fail(why);
                }
            }
            Flow::NotConnected(peer, error) => {
                let stripe = channel.stripe;
                let attachment = channel.take_attachment();
                self.close(token);
                if let Some(attachment) = attachment {
                    connection_failed(&attachment, stripe, peer, &error);
                }
            }
        }
    }

    fn accept(&mut self, token: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Entry::Listener {
                set,
                listener,
                retry,
            }) = self.entries.get_mut(token)
            else {
                return;
            };
            match listener.accept() {
                Ok((stream, _)) => {
                    let set = Arc::clone(set);
                    let Some(mover) = set.admit() else { continue };
                    if Arc::ptr_eq(&set.movers[mover], &self.shared) {
                        self.adopt(set, mover, stream);
                    } else {
                        let target = Arc::clone(&set.movers[mover]);
                        target.give(Order::Adopt { set, mover, stream });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // Out of descriptors or memory, or a connection that died in the queue: edge-triggered
                    // readiness will not come again, so look once more later.
                    tracing::warn!(error = %e, "cannot accept a data connection");
                    *retry = true;
                    return;
                }
            }
        }
        self.runnable.push_back(token);
    }

    fn tick(&mut self, now: Instant) {
        self.watched.retain(|_, set| match set.upgrade() {
            None => false,
            Some(set) => {
                set.check_limits();
                set.is_busy()
            }
        });
        let mut late = Vec::new();
        for (token, entry) in &mut self.entries {
            match entry {
                Entry::Listener { retry, .. } => {
                    if std::mem::take(retry) {
                        self.runnable.push_back(token);
                    }
                }
                Entry::Channel(channel) => {
                    if channel.connect_deadline().is_some_and(|d| now >= d) {
                        late.push(token);
                    }
                }
            }
        }
        for token in late {
            let Some(Entry::Channel(channel)) = self.entries.get_mut(token) else {
                continue;
            };
            let (stripe, peer) = (channel.stripe, channel.awaited_peer());
            let attachment = channel.take_attachment();
            self.close(token);
            if let (Some(attachment), Some(peer)) = (attachment, peer) {
                connection_failed(&attachment, stripe, peer, &io::ErrorKind::TimedOut.into());
            }
        }
    }
}

fn connection_failed(
    attachment: &Attachment,
    stripe: usize,
    peer: std::net::SocketAddr,
    error: &io::Error,
) {
    let why = TransferFailure::NoConnection(format!("to {peer}: {}", text_of(error)));
    if attachment.is_send() {
        attachment.sender_failed_to_open(stripe, why);
    } else {
        attachment.fail(why);
    }
}

fn connect_socket(
    peer: std::net::SocketAddr,
    params: &super::ChannelParams,
    sending: bool,
) -> io::Result<mio::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    // Before connect: the window scale is fixed in the handshake.
    if let Some(bytes) = params.socket_buffer_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    if sending && let Some(name) = &params.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("congestion control {name:?} is not to be had: {e}"),
            )
        })?;
    }
    match socket.connect(&peer.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    Ok(mio::net::TcpStream::from_std(socket.into()))
}
