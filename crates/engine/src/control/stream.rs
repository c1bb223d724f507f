//! What a control channel runs over.

use std::io;

use tokio::{
    io::{Interest, Ready},
    net::{TcpStream, UnixStream},
};

/// A connected stream. Nothing here blocks.
#[derive(Debug)]
pub enum Stream {
    /// To a server.
    Tcp(TcpStream),
    /// To a program of this machine that leads to one, as ssh.
    Local(UnixStream),
}

impl Stream {
    /// As [`TcpStream::ready`].
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Tcp(stream) => stream.ready(interest).await,
            Self::Local(stream) => stream.ready(interest).await,
        }
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Local(stream) => stream.try_read(buffer),
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Local(stream) => stream.try_write(bytes),
        }
    }
}
