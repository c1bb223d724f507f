//! How connections come to a mover: listeners, connecting, and those it is given.

use std::{io, net::SocketAddr, sync::Arc, time::Instant};

use godwit_proto::error::TransferFailure;
use mio::{Interest, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    data::{
        ChannelParams,
        channel::Channel,
        mover::{
            MoverCommand,
            event_loop::{Entry, EventLoop},
        },
        set::{IdleChannel, SetShared},
        transfer::{Reuse, TransferHandle},
    },
    storage::text_of,
};

/// Connections taken from a listener before other channels get their turn.
const ACCEPTS_PER_TURN: usize = 64;

impl EventLoop {
    pub(crate) fn listen(&mut self, set: Arc<SetShared>, mut listener: mio::net::TcpListener) {
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
            told: false,
        });
        self.runnable.push_back(token);
    }

    pub(crate) fn accept(&mut self, token: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Entry::Listener {
                set,
                listener,
                retry,
                told,
            }) = self.entries.get_mut(token)
            else {
                return;
            };
            if set.is_halted() {
                return;
            }
            match listener.accept() {
                Ok((stream, peer)) => {
                    if !set.params.admits(peer.ip()) {
                        // A stranger could fill the log.
                        if !std::mem::replace(told, true) {
                            tracing::warn!(%peer, "a data connection that is not from the client's host is closed");
                        }
                        continue;
                    }
                    let set = Arc::clone(set);
                    let Some(mover) = set.admit() else { continue };
                    if Arc::ptr_eq(&set.movers[mover], &self.shared) {
                        self.adopt(set, mover, stream);
                    } else {
                        let target = Arc::clone(&set.movers[mover]);
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

    pub(crate) fn adopt(&mut self, set: Arc<SetShared>, mover: usize, stream: mio::net::TcpStream) {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(error = %e, "cannot set TCP_NODELAY on a data channel");
        }
        self.serial += 1;
        let channel = Channel::new(self.serial, stream, Arc::clone(&set), mover, 0);
        let Some(token) = self.insert(channel) else {
            set.closed(mover, self.serial);
            return;
        };
        let Some(security) = set.params.security.clone() else {
            return self.offer(token);
        };
        let deadline = Instant::now() + set.params.connect_limit;
        if let Some(Entry::Channel(channel)) = self.entries.get_mut(token) {
            channel.await_handshake(security, deadline);
        }
        self.set_deadline(deadline);
        self.enqueue(token);
    }

    /// An accepted connection is ready for the running transfer, or for the next one.
    pub(crate) fn offer(&mut self, token: usize) {
        let Some(Entry::Channel(channel)) = self.entries.get_mut(token) else {
            return;
        };
        let idle = channel.as_idle(token, false);
        if let Some(handle) = channel.set.attach_or_park(idle) {
            self.begin(token, handle, Reuse::New);
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

    pub(crate) fn connect(
        &mut self,
        set: Arc<SetShared>,
        mover: usize,
        stripe: usize,
        peer: SocketAddr,
        deadline: Instant,
        handle: TransferHandle,
    ) {
        self.serial += 1;
        let serial = self.serial;
        let sending = handle.is_send();
        let attempt = connect_socket(peer, &set.params, sending).and_then(|stream| {
            let channel = Channel::connecting(serial, stream, Arc::clone(&set), mover, stripe);
            self.insert(channel)
                .ok_or_else(|| io::Error::other("the event loop refuses the socket"))
        });
        match attempt {
            Ok(token) => {
                if let Some(Entry::Channel(channel)) = self.entries.get_mut(token) {
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
            Some(Entry::Channel(c)) if c.serial == idle.serial && c.is_idle() => {
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
}

pub(crate) fn not_connected(peer: SocketAddr, error: &io::Error) -> TransferFailure {
    TransferFailure::NoConnection(format!("to {peer}: {}", text_of(error)))
}

/// A connection that we have made cannot be used.
pub(crate) fn connection_failed(handle: &TransferHandle, stripe: usize, why: TransferFailure) {
    if handle.is_send() {
        handle.sender_failed_to_open(stripe, why);
    } else {
        handle.fail(why);
    }
}

fn connect_socket(
    peer: SocketAddr,
    params: &ChannelParams,
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
    if sending {
        params.congestion.demand(&socket)?;
    }
    match socket.connect(&peer.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    Ok(mio::net::TcpStream::from_std(socket.into()))
}
