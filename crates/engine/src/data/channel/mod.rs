//! One data connection of a mover, and its part in the present transfer.
//!
//! ```text
//!                                              ┌────────── assign ───────────┐
//!                                              ▼                             │
//!   Connecting ──up──► Handshaking ──known──► Sending / Receiving ──EOD──► Idle
//!        │             (secured only)              │ EOD|CLOSE, MODE S       │ peer closes
//!        └───────────────────┴────► (closed) ◄─────┴─────────────────────────┘ end, failure
//! ```
//! Where the peer may still send records at the end of a stream that we have sent, Leaving comes
//! before (closed). An accepted connection begins as Handshaking or, unsecured, as Idle.

pub(crate) mod connection;
pub(crate) mod handshake;
pub mod kernel_tls;
pub(crate) mod pending_headers;
pub(crate) mod read_buffer;
pub(crate) mod receive;
pub(crate) mod round_robin;
pub(crate) mod send;
pub(crate) mod splice_pipe;
pub(crate) mod turn;
pub(crate) mod write_buffer;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    data::{
        channel::{
            connection::{AHEAD_BYTES, Connection},
            handshake::{Handshake, HandshakeStep, Role},
            receive::{Receiving, Scratch},
            round_robin::{QueuePosition, RoundRobin},
            send::Sending,
            turn::TurnResult,
        },
        context::SetContext,
        security::ChannelSecurity,
        shaping::pacing::pace,
        transfer::shared::{Reuse, TransferHandle, TransferShared},
    },
    host::tcp_diag::AddressPair,
};

/// Longest wait for the peer's end of a connection on which we have sent all: records that the peer
/// sent behind the handshake take a round trip.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The same, where the kernel seals what we have sent and may still have some of it: a slow path
/// takes its time.
const LEAVE_LIMIT_OF_KERNEL: Duration = Duration::from_secs(300);

/// Bytes a channel may move before others get their turn.
pub(crate) const TURN_BYTES: u64 = 4 << 20;

pub(crate) struct Channel {
    pub(crate) serial: u64,
    /// Of its set.
    pub(crate) context: Arc<SetContext>,
    /// Index of our mover among those of the set.
    pub(crate) mover: usize,
    pub(crate) stripe: usize,
    /// In the mover's run queue.
    pub(crate) queued: bool,
    /// It has carried a transfer, or does.
    used: bool,
    /// Both ends, once it is up.
    addresses: Option<AddressPair>,
    /// Changes of the congestion control that its socket has seen.
    congestion_seen: u64,
    /// The limit that the kernel holds its socket to, bits per second.
    paced: Option<u64>,
    /// What it has sent of small files since others had their turn.
    share: RoundRobin,
    socket: Connection,
    activity: Activity,
}

/// A connection without a transfer.
pub(crate) struct IdleChannel {
    /// Index of its mover among those of the set.
    pub(crate) mover: usize,
    pub(crate) token: usize,
    /// Distinguishes the connection from a later one with the same token.
    pub(crate) serial: u64,
    pub(crate) stripe: usize,
    /// It carried an earlier transfer (the others arrived early).
    pub(crate) used: bool,
    pub(crate) place: QueuePosition,
}

enum Activity {
    Connecting {
        handle: TransferHandle,
        peer: SocketAddr,
        deadline: Instant,
    },
    Handshaking {
        /// None where the peer has connected: which transfer it is for is seen when it is known.
        handle: Option<TransferHandle>,
        handshake: Box<Handshake>,
        deadline: Instant,
    },
    Idle,
    Sending(Box<Sending>),
    Receiving(Box<Receiving>),
    /// All is sent, and it has no part in anything any more.
    Leaving {
        deadline: Instant,
    },
}

impl Channel {
    /// A connection that is up and carries nothing.
    pub(crate) fn new(
        serial: u64,
        stream: mio::net::TcpStream,
        context: Arc<SetContext>,
        mover: usize,
        stripe: usize,
    ) -> Self {
        Self {
            serial,
            context,
            mover,
            stripe,
            queued: false,
            used: false,
            addresses: None,
            congestion_seen: 0,
            paced: None,
            share: RoundRobin::default(),
            socket: Connection::new(stream),
            activity: Activity::Idle,
        }
    }

    /// A connection that is being made; call `await_connection` next.
    pub(crate) fn connecting(
        serial: u64,
        stream: mio::net::TcpStream,
        context: Arc<SetContext>,
        mover: usize,
        stripe: usize,
    ) -> Self {
        let mut channel = Self::new(serial, stream, context, mover, stripe);
        channel.socket.readable = false;
        channel.socket.writable = false;
        channel
    }

    pub(crate) fn await_connection(
        &mut self,
        handle: TransferHandle,
        peer: SocketAddr,
        deadline: Instant,
    ) {
        self.activity = Activity::Connecting {
            handle,
            peer,
            deadline,
        };
    }

    /// An accepted connection of a secured set authenticates first.
    pub(crate) fn await_handshake(&mut self, security: ChannelSecurity, deadline: Instant) {
        self.activity = Activity::Handshaking {
            handle: None,
            handshake: Box::new(Handshake::new(security, Role::Acceptor)),
            deadline,
        };
    }

    pub(crate) fn stream_mut(&mut self) -> &mut mio::net::TcpStream {
        &mut self.socket.stream
    }

    pub(crate) fn note(&mut self, event: &mio::event::Event) {
        self.socket.readable |= event.is_readable() || event.is_error();
        self.socket.writable |= event.is_writable() || event.is_error();
        self.socket.read_closed |= event.is_read_closed() || event.is_error();
    }

    pub(crate) fn wants_turn(&self) -> bool {
        match &self.activity {
            Activity::Connecting { .. } | Activity::Sending(_) => {
                self.socket.writable || self.socket.read_closed
            }
            Activity::Handshaking { .. } => true,
            // Bytes of the next transfer stay in the kernel; only an end of the connection matters.
            Activity::Idle => {
                self.socket.read_closed || (self.socket.writable && self.socket.holds_back())
            }
            Activity::Receiving(_) => self.socket.readable || !self.socket.read_buffer.is_empty(),
            Activity::Leaving { .. } => self.socket.readable || self.socket.read_closed,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.activity, Activity::Idle)
    }

    /// Last headers of what it has carried wait for the kernel.
    pub(crate) fn holds_headers(&self) -> bool {
        self.socket.holds_back()
    }

    /// Hands the kernel what it takes of them.
    pub(crate) fn write_headers(&mut self) -> Result<(), TurnResult> {
        self.socket.write_headers()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.activity, Activity::Handshaking { .. })
    }

    /// What a connection comes to that is not ready to carry anything at its deadline.
    pub(crate) fn overdue(&self, now: Instant) -> Option<TurnResult> {
        match &self.activity {
            Activity::Connecting { peer, deadline, .. } if now >= *deadline => Some(
                TurnResult::NotConnected(*peer, io::ErrorKind::TimedOut.into()),
            ),
            Activity::Handshaking {
                handshake,
                deadline,
                ..
            } if now >= *deadline => Some(TurnResult::Rejected(handshake.late(&self.socket))),
            Activity::Leaving { deadline } if now >= *deadline => Some(TurnResult::Close),
            _ => None,
        }
    }

    /// Begins to carry a transfer on a connection that is up.
    pub(crate) fn begin(&mut self, handle: TransferHandle, reuse: Reuse) {
        if self.addresses.is_none() {
            self.addresses = addresses_of(&self.socket.stream);
            if let Some(addresses) = self.addresses {
                let window = self.socket.unsent_limit.window_of(&self.socket.stream);
                self.context.carrying.connection_up(addresses, window);
            }
        }
        handle.channel_up(self.stripe, self.addresses, reuse);
        self.used = true;
        self.activity = if handle.is_send() {
            Activity::Sending(Box::new(Sending::new(handle, self.stripe, self.addresses)))
        } else {
            Activity::Receiving(Box::new(Receiving::new(handle, reuse != Reuse::New)))
        };
        self.follow_params();
    }

    /// A sender adopts the congestion control and the limit that are wanted now.
    pub(crate) fn follow_params(&mut self) {
        if let Activity::Sending(_) = self.activity {
            let params = &self.context.params;
            (params.congestion).apply(&self.socket.stream, &mut self.congestion_seen);
            let limit = params.rate.get();
            if limit != self.paced {
                pace(&self.socket.stream, limit);
                self.paced = limit;
            }
        }
    }

    /// The transfer is over without us. `None`: we had no part in it; `Some(true)`: nothing of it
    /// was read or written here, keep the connection.
    pub(crate) fn release(&self) -> Option<bool> {
        match &self.activity {
            Activity::Idle | Activity::Leaving { .. } => None,
            Activity::Connecting { handle, .. } => handle.is_finished().then_some(false),
            Activity::Handshaking { handle, .. } => handle
                .as_ref()
                .and_then(|a| a.is_finished().then_some(false)),
            Activity::Sending(s) => s.handle.is_finished().then_some(false),
            Activity::Receiving(r) => r.handle.is_finished().then(|| r.is_untouched()),
        }
    }

    /// It receives, and nothing of its transfer has come on it yet.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(&self.activity, Activity::Receiving(r) if r.is_untouched())
    }

    /// Drops the share in a transfer that has failed; what the peer sends stays in the kernel.
    pub(crate) fn halt(&mut self) {
        if let Activity::Receiving(_) = self.activity {
            drop(self.take_handle());
        }
    }

    /// As its set finds it again. `token`: in the event loop of its mover; `used`: it has carried a
    /// transfer.
    pub(crate) fn as_idle(&mut self, token: usize, used: bool) -> IdleChannel {
        let taken = match &self.activity {
            Activity::Sending(sending) => sending.taken(),
            _ => 0,
        };
        let place = self.share.after(taken);
        IdleChannel {
            mover: self.mover,
            token,
            serial: self.serial,
            stripe: self.stripe,
            used,
            place,
        }
    }

    /// The transfer that it carries.
    pub(crate) fn transfer(&self) -> Option<&TransferShared> {
        match &self.activity {
            Activity::Sending(sending) => Some(&sending.handle),
            Activity::Receiving(receiving) => Some(&receiving.handle),
            _ => None,
        }
    }

    /// Drops the share in the transfer; the connection is idle, for a while where it `rests`.
    pub(crate) fn let_go(&mut self, rests: bool) {
        if rests {
            self.socket.rest();
        }
        drop(self.take_handle());
    }

    pub(crate) fn take_handle(&mut self) -> Option<TransferHandle> {
        match std::mem::replace(&mut self.activity, Activity::Idle) {
            Activity::Idle | Activity::Leaving { .. } => None,
            Activity::Connecting { handle, .. } => Some(handle),
            Activity::Handshaking { handle, .. } => handle,
            Activity::Sending(s) => {
                s.handle.channel_down(self.addresses);
                Some(s.handle)
            }
            Activity::Receiving(mut r) => {
                r.leave();
                r.handle.channel_down(self.addresses);
                Some(r.handle)
            }
        }
    }

    /// It is being closed.
    pub(crate) fn closes(&self) {
        if let Some(addresses) = self.addresses {
            self.context.carrying.connection_down(addresses);
        }
    }

    /// Waits for the peer's end; until when, and the share in the transfer.
    pub(crate) fn leave(&mut self) -> (Instant, Option<TransferHandle>) {
        let handle = self.take_handle();
        let limit = match self.socket.is_sealed_by_kernel() {
            true => LEAVE_LIMIT_OF_KERNEL,
            false => LEAVE_LIMIT,
        };
        let deadline = Instant::now() + limit;
        self.activity = Activity::Leaving { deadline };
        (deadline, handle)
    }

    /// The handshake has failed, see [`Handshake::send_alert`].
    pub(crate) fn send_alert(&mut self) {
        if let Activity::Handshaking { handshake, .. } = &mut self.activity {
            handshake.send_alert(&mut self.socket);
        }
    }

    /// What waits for the end of the handshake.
    pub(crate) fn take_waiting(&mut self) -> Option<TransferHandle> {
        match &mut self.activity {
            Activity::Handshaking { handle, .. } => handle.take(),
            _ => None,
        }
    }

    pub(crate) fn turn(&mut self, scratch: &mut Scratch) -> TurnResult {
        if let Activity::Connecting { peer, .. } = &self.activity {
            let peer = *peer;
            if let Some(flow) = self.connected(peer) {
                return flow;
            }
        }
        let rate = &self.context.params.rate;
        let granted = match &self.activity {
            Activity::Connecting { .. } => return TurnResult::Wait,
            Activity::Handshaking { .. } => return self.continue_handshake(&mut scratch.buffer),
            Activity::Idle => {
                return match self.write_headers() {
                    Ok(()) => self.look_at_idle(&mut scratch.buffer),
                    Err(_) => TurnResult::Close,
                };
            }
            Activity::Leaving { .. } => {
                return match self.socket.discard(&mut scratch.buffer) {
                    Ok(None) => TurnResult::Wait,
                    Ok(Some(0)) | Err(_) => TurnResult::Close,
                    Ok(Some(_)) => TurnResult::Again,
                };
            }
            Activity::Sending(_) | Activity::Receiving(_) => match rate.grant() {
                Ok(granted) => granted.min(TURN_BYTES),
                Err(then) => return TurnResult::Pause(then),
            },
        };
        // A channel may use less than the limit granted: only what it moved is spent.
        let mut left = granted;
        let flow = match &mut self.activity {
            Activity::Sending(sending) => sending.turn(&mut self.socket, &mut left),
            Activity::Receiving(receiving) => {
                let flow = receiving.turn(&mut self.socket, scratch, &mut left);
                scratch.received += granted - left;
                flow
            }
            Activity::Connecting { .. }
            | Activity::Handshaking { .. }
            | Activity::Idle
            | Activity::Leaving { .. } => TurnResult::Wait,
        };
        rate.spend(granted - left);
        flow
    }

    /// `None`: it is connected, the turn continues with the transfer.
    fn connected(&mut self, peer: SocketAddr) -> Option<TurnResult> {
        match self.socket.stream.take_error() {
            Ok(None) => {}
            Ok(Some(e)) | Err(e) => return Some(TurnResult::NotConnected(peer, e)),
        }
        match self.socket.stream.peer_addr() {
            Ok(_) => {
                self.socket.readable = true;
                let (handle, deadline) = match std::mem::replace(&mut self.activity, Activity::Idle)
                {
                    Activity::Connecting {
                        handle, deadline, ..
                    } => (handle, deadline),
                    other => {
                        self.activity = other;
                        return Some(TurnResult::Wait);
                    }
                };
                let Some(security) = &self.context.params.security else {
                    self.begin(handle, Reuse::New);
                    return None;
                };
                let handshake = Handshake::new(security.clone(), Role::Initiator);
                self.activity = Activity::Handshaking {
                    handle: Some(handle),
                    handshake: Box::new(handshake),
                    deadline,
                };
                // Not in this turn: others may be in the midst of theirs.
                Some(TurnResult::Again)
            }
            Err(e) if e.kind() == io::ErrorKind::NotConnected => {
                self.socket.writable = false;
                Some(TurnResult::Wait)
            }
            Err(e) => Some(TurnResult::NotConnected(peer, e)),
        }
    }

    fn continue_handshake(&mut self, buffer: &mut [u8]) -> TurnResult {
        let Activity::Handshaking { handshake, .. } = &mut self.activity else {
            return TurnResult::Wait;
        };
        let established = match handshake.step(&mut self.socket, buffer) {
            Ok(HandshakeStep::Wait) => return TurnResult::Wait,
            Ok(HandshakeStep::Again) => return TurnResult::Again,
            Ok(HandshakeStep::Done(established)) => established,
            Err(why) => return TurnResult::Rejected(why),
        };
        let (wrap, rest) = *established;
        // In clear only where that was asked for.
        let security = self.context.params.security.as_ref();
        let clear = security.is_some_and(ChannelSecurity::ends_with_handshake);
        let close_notify = security.is_some_and(ChannelSecurity::sends_close_notify);
        match (self.socket).begin((!clear).then(|| wrap.into_records()), close_notify, &rest) {
            Ok(()) => TurnResult::Known,
            Err(broken) => broken,
        }
    }

    /// An idle connection whose peer closed: what it sent before is kept for the next transfer.
    /// Nothing at all, on a connection that came before its transfer, may be all of an empty file:
    /// MODE S has no other end of file.
    fn look_at_idle(&mut self, buffer: &mut [u8]) -> TurnResult {
        if !self.socket.read_buffer.is_empty() {
            return TurnResult::Wait;
        }
        if self.socket.is_sealed() {
            // The bytes may be no more than a close_notify.
            return match self.socket.read_ahead(buffer, AHEAD_BYTES) {
                Ok(Some(0)) if self.used => TurnResult::Close,
                Ok(Some(0)) | Ok(None) => TurnResult::Wait,
                Ok(Some(_)) => TurnResult::Again,
                Err(_) => TurnResult::Close,
            };
        }
        match self.socket.stream.peek(&mut [0]) {
            Ok(0) if !self.used => TurnResult::Wait,
            Ok(0) => TurnResult::Close,
            Ok(_) => TurnResult::Wait,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => TurnResult::Wait,
            Err(_) => TurnResult::Close,
        }
    }
}

fn addresses_of(stream: &mio::net::TcpStream) -> Option<AddressPair> {
    Some(AddressPair {
        local: stream.local_addr().ok()?,
        remote: stream.peer_addr().ok()?,
    })
}
