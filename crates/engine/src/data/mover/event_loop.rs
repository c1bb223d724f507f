//! The event loop of a mover.
//!
//! Readiness is edge-triggered: a channel that stopped because its budget was used up, and not
//! because the socket would block, stays in a run queue. Handshakes have a queue of their own: see
//! [`EventLoop::continue_handshakes`].

use std::{
    any::Any,
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use godwit_proto::error::{StorageFailure, TransferFailure};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::data::{
    channel::{
        Channel, IdleChannel,
        receive::Scratch,
        splice_pipe::LazyPipe,
        turn::{HandshakeError, TurnResult},
    },
    mover::{
        commands::{ConnectionSet, INBOX, MoverCommand, MoverShared},
        connect::{connect_socket, connection_failed, not_connected},
    },
    notification_batch,
    transfer::shared::{Reuse, TransferHandle},
};

/// How often limits are checked while something waits.
const TICK: Duration = Duration::from_millis(250);

/// Rounds of commands that may follow from one another before the loop asks the kernel for events:
/// a queue of small files begins and ends its transfers here.
const ROUNDS_MAX: usize = 64;

/// Longest time for handshakes between two rounds, plus the step that is running: many at once
/// stall no transfer.
const HANDSHAKES_MAX: Duration = Duration::from_millis(4);

/// Payload since the mover last waited, from which on it lets more gather before it asks the kernel
/// again: a sender on the same machine would otherwise wake it for each segment, which took up to a
/// quarter of the sender's time.
const GATHER_LEAST: u64 = 256 << 10;

/// For how long: at 100 Gbit/s some 1.2 MB.
const GATHER_FOR: Duration = Duration::from_micros(100);

/// Connections taken from a listener before other channels get their turn.
const ACCEPTS_PER_TURN: usize = 64;

/// Bytes that all channels of a mover share as receive buffer: fits into a second-level cache.
const SCRATCH_BYTES: usize = 256 * 1024;

/// What a transfer fails with whose channel panicked.
fn bug(panic: &(dyn Any + Send)) -> TransferFailure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    TransferFailure::Storage(StorageFailure {
        errno: 0,
        doing: "move bytes between a data connection and the file".to_owned(),
        text: format!("an error in godwit: {}", text.unwrap_or("a panic")),
    })
}

pub(crate) struct EventLoop {
    pub(crate) poll: Poll,
    pub(crate) shared: Arc<MoverShared>,
    pub(crate) entries: Slab<Served>,
    /// Tokens of channels that can continue without waiting for the kernel.
    pub(crate) runnable: VecDeque<usize>,
    /// The same for channels in a handshake, whose turns are long.
    handshakes: VecDeque<usize>,
    /// Tokens of channels that wait for their rate limit, and until when the first of them does.
    paused: Vec<usize>,
    paused_until: Option<Instant>,
    /// Tokens of idle channels that may hold last headers back.
    holding: Vec<usize>,
    watched: HashMap<u64, Weak<dyn ConnectionSet>>,
    /// Until then something may be late, also where no set is watched.
    deadlines_until: Instant,
    scratch: Scratch,
    /// Number of the last connection.
    pub(crate) serial: u64,
}

pub(crate) enum Served {
    Listener {
        set: Arc<dyn ConnectionSet>,
        listener: mio::net::TcpListener,
        /// Accepting failed for want of descriptors: try again at the next tick.
        retry: bool,
        /// The log knows that a connection from another host came.
        stranger_logged: bool,
    },
    Channel {
        set: Arc<dyn ConnectionSet>,
        channel: Box<Channel>,
    },
}

impl EventLoop {
    pub(crate) fn new(poll: Poll, shared: Arc<MoverShared>) -> Self {
        Self {
            poll,
            shared,
            entries: Slab::new(),
            runnable: VecDeque::new(),
            handshakes: VecDeque::new(),
            paused: Vec::new(),
            paused_until: None,
            holding: Vec::new(),
            watched: HashMap::new(),
            deadlines_until: Instant::now(),
            scratch: Scratch {
                buffer: vec![0; SCRATCH_BYTES].into_boxed_slice(),
                lazy_pipe: LazyPipe::default(),
                received: 0,
            },
            serial: 0,
        }
    }

    /// Until the order to stop.
    pub(crate) fn run(mut self) {
        self.shared.clock.runs_here();
        notification_batch::begin();
        let mut events = Events::with_capacity(1024);
        let mut next_tick = Instant::now() + TICK;
        loop {
            // Nothing more follows in this round: headers and notifications wait no longer.
            self.write_headers();
            notification_batch::flush();
            let busy = !self.runnable.is_empty() || !self.handshakes.is_empty();
            if !busy && std::mem::take(&mut self.scratch.received) >= GATHER_LEAST {
                let gather = || self.shared.gather(GATHER_FOR);
                self.shared.clock.waiting(gather);
            }
            // `may_sleep` last: a command that comes behind it wakes the poll.
            let timeout = if busy || !self.shared.may_sleep() {
                Some(Duration::ZERO)
            } else {
                self.until_next(next_tick)
            };
            let looked = if timeout == Some(Duration::ZERO) {
                self.poll.poll(&mut events, timeout)
            } else {
                let poll = || self.poll.poll(&mut events, timeout);
                self.shared.clock.waiting(poll)
            };
            match looked {
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
            self.resume();
            // The time that this loop takes is what handshakes get after it.
            let served = Instant::now();
            for _ in 0..ROUNDS_MAX {
                let orders = self.shared.take_orders();
                if orders.is_empty() && self.runnable.is_empty() {
                    break;
                }
                for order in orders {
                    if matches!(order, MoverCommand::Stop) {
                        self.write_headers();
                        notification_batch::flush();
                        return;
                    }
                    self.execute(order);
                }
                // One turn for each that can run now; those that still can come again after the
                // next look at the kernel.
                for _ in 0..self.runnable.len() {
                    if let Some(token) = self.runnable.pop_front() {
                        self.turn(token);
                    }
                }
                notification_batch::flush_if_old();
                if !self.runnable.is_empty() {
                    break;
                }
            }
            self.continue_handshakes(served.elapsed());
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick(now);
            }
        }
    }

    /// Continues handshakes for as long as the other channels were served, one step at least.
    fn continue_handshakes(&mut self, others: Duration) {
        let begun = Instant::now();
        while let Some(token) = self.handshakes.pop_front() {
            self.turn(token);
            if begun.elapsed() >= others.min(HANDSHAKES_MAX) {
                return;
            }
        }
    }

    /// Time until limits must be looked at or a pause is over; `None`: there is nothing to wait
    /// for.
    fn until_next(&self, next_tick: Instant) -> Option<Duration> {
        let now = Instant::now();
        let tick = (!self.watched.is_empty() || now <= self.deadlines_until).then_some(next_tick);
        (tick.into_iter().chain(self.paused_until).min())
            .map(|next| next.saturating_duration_since(now))
    }

    /// Those whose pause is over run again, in the order in which they began to wait.
    fn resume(&mut self) {
        if (self.paused_until).is_some_and(|until| Instant::now() >= until) {
            self.paused_until = None;
            self.runnable.extend(self.paused.drain(..));
        }
    }

    /// A limit passes at `deadline`, and is noticed at the tick after it.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadlines_until = self.deadlines_until.max(deadline + TICK);
    }

    fn note_event(&mut self, event: &mio::event::Event) {
        let token = event.token().0;
        match self.entries.get_mut(token) {
            None => {}
            Some(Served::Listener { .. }) => self.runnable.push_back(token),
            Some(Served::Channel { channel, .. }) => {
                channel.note(event);
                if channel.wants_turn() {
                    self.enqueue(token);
                }
            }
        }
    }

    fn execute(&mut self, order: MoverCommand) {
        match order {
            MoverCommand::Listen { set, listener } => self.listen(set, listener),
            MoverCommand::StopListening(id) => {
                self.entries.retain(
                    |_, e| !matches!(e, Served::Listener { set, .. } if set.context().id == id),
                );
            }
            MoverCommand::Watch(set) => {
                if let Some(strong) = set.upgrade() {
                    self.watched.insert(strong.context().id, set);
                }
            }
            MoverCommand::Adopt { set, mover, stream } => self.adopt(set, mover, stream),
            MoverCommand::Connect {
                set,
                mover,
                stripe,
                peer,
                limit,
                handle,
            } => {
                let deadline = Instant::now() + limit;
                self.connect(set, mover, stripe, peer, deadline, handle);
            }
            MoverCommand::BeginNext(set) => set.begin_next(),
            MoverCommand::Assign { channel, handle } => self.assign(&channel, handle),
            MoverCommand::Reconsider(id) => {
                for token in self.channels_of(id) {
                    self.enqueue(token);
                }
            }
            MoverCommand::Release(id) => self.release(id),
            MoverCommand::CloseChannels(id) => {
                for token in self.channels_of(id) {
                    self.close(token);
                }
            }
            MoverCommand::HaltChannels(id) => {
                for token in self.channels_of(id) {
                    if let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token) {
                        channel.halt();
                    }
                }
            }
            MoverCommand::Stop => {}
        }
    }

    pub(crate) fn listen(
        &mut self,
        set: Arc<dyn ConnectionSet>,
        mut listener: mio::net::TcpListener,
    ) {
        let slot = self.entries.vacant_entry();
        let token = slot.key();
        if let Err(e) =
            self.poll
                .registry()
                .register(&mut listener, Token(token), Interest::READABLE)
        {
            // The user learns of it when the transfer's connect limit passes.
            tracing::error!(error = %e, "cannot watch a data listener");
            return;
        }
        slot.insert(Served::Listener {
            set,
            listener,
            retry: false,
            stranger_logged: false,
        });
        self.runnable.push_back(token);
    }

    pub(crate) fn accept(&mut self, token: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Served::Listener {
                set,
                listener,
                retry,
                stranger_logged,
            }) = self.entries.get_mut(token)
            else {
                return;
            };
            if set.is_halted() {
                return;
            }
            match listener.accept() {
                Ok((stream, peer)) => {
                    if !set.context().params.admits(peer.ip()) {
                        // Once only: any host could fill the log.
                        if !std::mem::replace(stranger_logged, true) {
                            tracing::warn!(%peer, "closed a data connection from a foreign host");
                        }
                        continue;
                    }
                    let set = Arc::clone(set);
                    let Some(mover) = set.admit() else { continue };
                    if Arc::ptr_eq(set.mover(mover), &self.shared) {
                        self.adopt(set, mover, stream);
                    } else {
                        let target = Arc::clone(set.mover(mover));
                        target.give(MoverCommand::Adopt { set, mover, stream });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // Out of descriptors or memory, or a connection that died in the queue:
                    // edge-triggered readiness will not come again, so look once more later.
                    tracing::warn!(error = %e, "cannot accept a data connection");
                    *retry = true;
                    self.set_deadline(Instant::now());
                    return;
                }
            }
        }
        self.runnable.push_back(token);
    }

    pub(crate) fn adopt(
        &mut self,
        set: Arc<dyn ConnectionSet>,
        mover: usize,
        stream: mio::net::TcpStream,
    ) {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(error = %e, "cannot set TCP_NODELAY on a data channel");
        }
        self.serial += 1;
        let channel = Channel::new(self.serial, stream, Arc::clone(set.context()), mover, 0);
        let Some(token) = self.insert(Arc::clone(&set), channel) else {
            set.closed(mover, self.serial);
            return;
        };
        let Some(security) = set.context().params.security.clone() else {
            return self.offer(token);
        };
        let deadline = Instant::now() + set.context().params.connect_limit;
        if let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token) {
            channel.await_handshake(security, deadline);
        }
        self.set_deadline(deadline);
        self.enqueue(token);
    }

    /// An accepted connection is ready for the running transfer, or for the next one.
    pub(crate) fn offer(&mut self, token: usize) {
        let Some(Served::Channel { set, channel }) = self.entries.get_mut(token) else {
            return;
        };
        let idle = channel.as_idle(token, false);
        if let Some(handle) = set.attach_or_park(idle) {
            self.begin(token, handle, Reuse::New);
        }
    }

    fn insert(&mut self, set: Arc<dyn ConnectionSet>, mut channel: Channel) -> Option<usize> {
        let slot = self.entries.vacant_entry();
        let token = slot.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self
            .poll
            .registry()
            .register(channel.stream_mut(), Token(token), interest)
        {
            Ok(()) => {
                let channel = Box::new(channel);
                slot.insert(Served::Channel { set, channel });
                Some(token)
            }
            Err(e) => {
                tracing::error!(error = %e, "cannot watch a data connection");
                None
            }
        }
    }

    pub(crate) fn connect(
        &mut self,
        set: Arc<dyn ConnectionSet>,
        mover: usize,
        stripe: usize,
        peer: SocketAddr,
        deadline: Instant,
        handle: TransferHandle,
    ) {
        self.serial += 1;
        let serial = self.serial;
        let sending = handle.is_send();
        let attempt = connect_socket(peer, &set.context().params, sending).and_then(|stream| {
            let context = Arc::clone(set.context());
            let channel = Channel::connecting(serial, stream, context, mover, stripe);
            self.insert(Arc::clone(&set), channel)
                .ok_or_else(|| io::Error::other("the event loop refuses the socket"))
        });
        match attempt {
            Ok(token) => {
                if let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token) {
                    channel.await_connection(handle, peer, deadline);
                }
                self.set_deadline(deadline);
            }
            Err(e) => {
                set.closed(mover, serial);
                connection_failed(&handle, stripe, not_connected(peer, &e));
            }
        }
    }

    pub(crate) fn assign(&mut self, idle: &IdleChannel, handle: TransferHandle) {
        match self.entries.get(idle.token) {
            Some(Served::Channel { channel, .. })
                if channel.serial == idle.serial && channel.is_idle() =>
            {
                let reuse = match idle.used {
                    true => Reuse::Cached,
                    false => Reuse::New,
                };
                self.begin(idle.token, handle, reuse);
            }
            // The peer closed it while it was on its way to us. A receiver loses nothing.
            _ if handle.is_send() => handle.sender_failed_to_open(
                idle.stripe,
                TransferFailure::ConnectionLost(
                    "the peer closed the cached data connection".into(),
                ),
            ),
            _ => {}
        }
    }

    fn channels_of(&self, id: u64) -> Vec<usize> {
        self.entries
            .iter()
            .filter(
                |(_, e)| matches!(e, Served::Channel { channel, .. } if channel.context.id == id),
            )
            .map(|(token, _)| token)
            .collect()
    }

    /// A connected channel begins to carry the attachment's transfer.
    pub(crate) fn begin(&mut self, token: usize, handle: TransferHandle, reuse: Reuse) {
        if let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token) {
            channel.begin(handle, reuse);
            self.enqueue(token);
        }
    }

    /// Gives a channel its turn.
    pub(crate) fn enqueue(&mut self, token: usize) {
        if let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token)
            && !channel.queued
        {
            channel.queued = true;
            match channel.is_handshaking() {
                true => self.handshakes.push_back(token),
                false => self.runnable.push_back(token),
            }
        }
    }

    fn release(&mut self, id: u64) {
        for token in self.channels_of(id) {
            let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token) else {
                continue;
            };
            match channel.release() {
                None => {}
                Some(true) => self.resume_or_park(token),
                Some(false) => self.close(token),
            }
        }
    }

    /// The connection has done its part: it carries the next transfer, or waits for one.
    fn resume_or_park(&mut self, token: usize) {
        let Some(Served::Channel { set, channel }) = self.entries.get_mut(token) else {
            return;
        };
        let idle = channel.as_idle(token, true);
        let next = (channel.transfer()).and_then(|carried| set.next_or_park(idle, carried));
        // Only now: a session that learns that the transfer is over must find the connection
        // parked.
        channel.let_go(next.is_none());
        if next.is_none() && channel.holds_headers() {
            self.holding.push(token);
        }
        if let Some(next) = next {
            self.begin(token, next, Reuse::Successor);
        }
    }

    /// Idle channels send the headers that they held back: no payload has come to follow them.
    fn write_headers(&mut self) {
        for token in std::mem::take(&mut self.holding) {
            let lost = match self.entries.get_mut(token) {
                Some(Served::Channel { channel, .. }) if channel.is_idle() => {
                    channel.write_headers().is_err()
                }
                _ => false,
            };
            if lost {
                self.close(token);
            }
        }
    }

    pub(crate) fn close(&mut self, token: usize) {
        if let Some(Served::Channel { set, mut channel }) = self.entries.try_remove(token) {
            // The ends of transfers that are over here, which the peer waits for. Where the
            // connection is lost they are, too.
            let _ = channel.write_headers();
            set.closed(channel.mover, channel.serial);
            channel.closes();
            if let Err(e) = self.poll.registry().deregister(channel.stream_mut()) {
                tracing::debug!(error = %e, "a data connection was not watched");
            }
            let handle = channel.take_handle();
            // The connection first: a session that learns that the transfer is over may rely on its
            // end.
            drop(channel);
            drop(handle);
        }
    }

    fn turn(&mut self, token: usize) {
        let flow = match self.entries.get_mut(token) {
            None => return,
            Some(Served::Listener { .. }) => {
                self.accept(token);
                return;
            }
            Some(Served::Channel { channel, .. }) => {
                channel.queued = false;
                // A panic is a bug of ours. Its transfer fails; those of other channels go on, and
                // limits are still looked at.
                let turn = AssertUnwindSafe(|| channel.turn(&mut self.scratch));
                catch_unwind(turn).unwrap_or_else(|panic| TurnResult::Failed(bug(&*panic)))
            }
        };
        self.follow(token, flow);
    }

    /// Acts on the result of a turn.
    fn follow(&mut self, token: usize, flow: TurnResult) {
        let Some(Served::Channel { set, channel }) = self.entries.get_mut(token) else {
            return;
        };
        match flow {
            TurnResult::Wait => {}
            TurnResult::Again => self.enqueue(token),
            TurnResult::Pause(until) => {
                channel.queued = true;
                self.paused.push(token);
                let first = self.paused_until.map_or(until, |u| u.min(until));
                self.paused_until = Some(first);
            }
            TurnResult::Park => self.resume_or_park(token),
            TurnResult::Close => self.close(token),
            TurnResult::Leave => {
                let (deadline, handle) = channel.leave();
                self.set_deadline(deadline);
                self.enqueue(token);
                drop(handle);
            }
            TurnResult::Failed(why) => {
                let untouched = channel.is_untouched().then(|| Arc::clone(set));
                let handle = channel.take_handle();
                let transfer = handle.as_deref();
                if !transfer.is_some_and(|transfer| transfer.closes_late(&why)) {
                    self.close(token);
                }
                match (handle, why) {
                    // The peer has made it and taken it back: too late, or not in time. What it had
                    // to send comes on others, of which some may still be proving themselves.
                    (Some(_), TransferFailure::ConnectionLost(why))
                        if untouched.is_some_and(|set| set.has_connections()) =>
                    {
                        tracing::debug!(
                            why,
                            "a data connection was lost before it carried anything"
                        );
                    }
                    // Others may hold what came before the peer went.
                    (Some(handle), why @ TransferFailure::ConnectionLost(_)) => {
                        handle.fail_once_drained(why);
                    }
                    (Some(handle), why) => handle.fail(why),
                    (None, _) => {}
                }
            }
            TurnResult::NotConnected(peer, error) => {
                let stripe = channel.stripe;
                let handle = channel.take_handle();
                self.close(token);
                if let Some(handle) = handle {
                    connection_failed(&handle, stripe, not_connected(peer, &error));
                }
            }
            TurnResult::Known => match channel.take_handle() {
                Some(handle) => self.begin(token, handle, Reuse::New),
                None => self.offer(token),
            },
            TurnResult::Rejected(why) => self.reject(token, why),
        }
    }

    /// Closes a connection whose handshake has failed.
    fn reject(&mut self, token: usize, why: HandshakeError) {
        let Some(Served::Channel { set, channel }) = self.entries.get_mut(token) else {
            return;
        };
        let (set, stripe) = (Arc::clone(set), channel.stripe);
        // Held until the connection is closed: the end of the transfer is not announced before.
        let handle = channel.take_waiting();
        match (why, &handle) {
            (HandshakeError::Silent, _) => {
                tracing::debug!("a data connection was closed before it sent anything")
            }
            (HandshakeError::Failed(why), Some(handle)) => {
                connection_failed(handle, stripe, why);
            }
            (HandshakeError::Failed(why), None) => set.refuse(why),
        }
        if let Some(Served::Channel { channel, .. }) = self.entries.get_mut(token) {
            channel.send_alert();
        }
        self.close(token);
    }

    fn tick(&mut self, now: Instant) {
        self.watched.retain(|_, set| match set.upgrade() {
            None => false,
            Some(set) => {
                set.tick();
                set.is_busy()
            }
        });
        let mut late = Vec::new();
        for (token, entry) in &mut self.entries {
            match entry {
                Served::Listener { retry, .. } => {
                    if std::mem::take(retry) {
                        self.runnable.push_back(token);
                    }
                }
                Served::Channel { channel, .. } => {
                    channel.follow_params();
                    if let Some(flow) = channel.overdue(now) {
                        late.push((token, flow));
                    }
                }
            }
        }
        for (token, flow) in late {
            self.follow(token, flow);
        }
    }
}
