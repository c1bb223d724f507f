//! The control connection of a session: the client's own, or a relay where a front has that.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use tokio::{
    io::{Interest, Ready},
    net::{TcpStream, UnixStream},
    time::timeout_at,
};

use super::READ_OCTETS;

/// Time that a client has to read our last words.
const FAREWELL: Duration = Duration::from_secs(2);

/// Octets of a client that goes on sending after our last words.
const FAREWELL_OCTETS: usize = 4 * 1024 * 1024;

/// A connected stream. Nothing here blocks.
pub(crate) enum Control {
    Client(TcpStream),
    Relay(UnixStream),
}

impl Control {
    /// As [`TcpStream::ready`].
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Client(socket) => socket.ready(interest).await,
            Self::Relay(socket) => socket.ready(interest).await,
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Client(socket) => socket.try_read(buffer),
            Self::Relay(socket) => socket.try_read(buffer),
        }
    }

    pub(crate) fn try_write(&self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Client(socket) => socket.try_write(octets),
            Self::Relay(socket) => socket.try_write(octets),
        }
    }

    /// Closes our direction and lets the client read: closing with unread octets of the client in our buffers
    /// would reset the connection, and the client would lose the reply that explains it all.
    pub(crate) async fn say_farewell(&self) {
        if rustix::net::shutdown(self, rustix::net::Shutdown::Write).is_err() {
            return;
        }
        let drained = async {
            let mut octets_left = FAREWELL_OCTETS;
            while self.ready(Interest::READABLE).await.is_ok() {
                match self.discard() {
                    Ok(0) => return,
                    Ok(count) if count >= octets_left => return,
                    Ok(count) => octets_left -= count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        drop(timeout_at((Instant::now() + FAREWELL).into(), drained).await);
    }

    /// Apart from its caller, so that the buffer lives on the thread's stack and not in every session's future.
    fn discard(&self) -> io::Result<usize> {
        self.try_read(&mut [0; READ_OCTETS])
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Client(socket) => socket.as_fd(),
            Self::Relay(socket) => socket.as_fd(),
        }
    }
}
