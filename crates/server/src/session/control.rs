//! The control connection of a session: the client's socket, a relay to the pre-login process that
//! holds it, or standard input and output under sshd.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::net::Shutdown;
use tokio::{
    io::{Interest, Ready},
    net::{TcpStream, UnixStream, unix::pipe},
    time::timeout_at,
};

use super::READ_BYTES;

/// Time that a client has to read the last replies.
const LAST_REPLIES_LIMIT: Duration = Duration::from_secs(2);

/// Bytes that a client may send after the last replies.
const LAST_REPLIES_BYTES: usize = 4 * 1024 * 1024;

/// A connected stream. No method blocks.
pub(crate) enum Control {
    Client(TcpStream),
    Relay(UnixStream),
    /// In and out, which may be one socket or two pipes.
    Standard(pipe::Receiver, pipe::Sender),
}

impl Control {
    /// Takes standard input and output over. Within a runtime.
    pub(crate) fn of_standard() -> io::Result<Self> {
        let own = |fd: BorrowedFd<'_>| -> io::Result<OwnedFd> {
            let fd = fd.try_clone_to_owned()?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            Ok(fd)
        };
        // Unchecked: they may be sockets, and are read and written all the same.
        Ok(Self::Standard(
            pipe::Receiver::from_owned_fd_unchecked(own(io::stdin().as_fd())?)?,
            pipe::Sender::from_owned_fd_unchecked(own(io::stdout().as_fd())?)?,
        ))
    }

    /// As [`TcpStream::ready`].
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Client(socket) => socket.ready(interest).await,
            Self::Relay(socket) => socket.ready(interest).await,
            Self::Standard(input, output) => tokio::select! {
                ready = input.ready(Interest::READABLE), if interest.is_readable() => ready,
                ready = output.ready(Interest::WRITABLE), if interest.is_writable() => ready,
                else => std::future::pending().await,
            },
        }
    }

    /// Ends when the client has closed the connection, or lost it, whatever is still to be read.
    /// Cancel-safe.
    pub(crate) async fn closed(&self) {
        // Readable bytes do not end it. Urgent data is never requested, so "priority" can only mean
        // the end of the stream.
        let gone = Interest::PRIORITY | Interest::ERROR;
        let watched = match self {
            Self::Client(socket) => socket.ready(gone).await,
            Self::Relay(socket) => socket.ready(gone).await,
            Self::Standard(input, _) => input.ready(gone).await,
        };
        // If it cannot be watched, reading finds the end.
        if watched.is_err() {
            std::future::pending().await
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Client(socket) => socket.try_read(buffer),
            Self::Relay(socket) => socket.try_read(buffer),
            Self::Standard(input, _) => input.try_read(buffer),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Client(socket) => socket.try_write(bytes),
            Self::Relay(socket) => socket.try_write(bytes),
            Self::Standard(_, output) => output.try_write(bytes),
        }
    }

    /// Closes the sending direction and lets the client read. Closing with unread bytes in the
    /// receive buffer would reset the connection, and the client would lose the last reply.
    pub(crate) async fn close_gracefully(&self) {
        let closed = match self {
            Self::Client(socket) => rustix::net::shutdown(socket, Shutdown::Write),
            Self::Relay(socket) => rustix::net::shutdown(socket, Shutdown::Write),
            // The pipe keeps the written bytes after this process ends.
            Self::Standard(..) => return,
        };
        if closed.is_err() {
            return;
        }
        let drained = async {
            let mut bytes_left = LAST_REPLIES_BYTES;
            while self.ready(Interest::READABLE).await.is_ok() {
                match self.discard() {
                    Ok(0) => return,
                    Ok(count) if count >= bytes_left => return,
                    Ok(count) => bytes_left -= count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        drop(timeout_at((Instant::now() + LAST_REPLIES_LIMIT).into(), drained).await);
    }

    /// Apart from its caller, so that the buffer lives on the thread's stack and not in every
    /// session's future.
    fn discard(&self) -> io::Result<usize> {
        self.try_read(&mut [0; READ_BYTES])
    }
}
