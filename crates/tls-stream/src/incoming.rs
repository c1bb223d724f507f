//! Bytes from the socket: opened ones that nobody has read, and behind them the beginning of a
//! record.

use std::{
    io,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use godwit_gsi::{Records, records::RECORD_BYTES_MAX};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at a time: few on a connection that carries requests alone, more where reads
/// fill the buffer.
const BYTES_MIN: usize = 2 * RECORD_BYTES_MAX;
const BYTES_MAX: usize = 16 * RECORD_BYTES_MAX;

#[derive(Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    /// Opened.
    clear: Range<usize>,
    /// Of a record whose rest has not come.
    sealed: Range<usize>,
    /// The peer has said that nothing follows.
    is_closed: bool,
}

impl Incoming {
    /// As [`AsyncRead::poll_read`].
    ///
    /// # Errors
    /// Also when the peer closes without saying so: the end of what it sent may be missing.
    pub(crate) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        records: &mut Records,
        socket: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.clear.is_empty() && !self.is_closed {
            if ready!(self.poll_fill(socket, context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let opened = records.open(&mut self.bytes[..self.sealed.end]);
            let opened =
                opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.clear = 0..opened.clear;
            self.sealed.start = opened.taken;
            self.is_closed = opened.is_closed;
        }
        let count = self.clear.len().min(buffer.remaining());
        let now = self.clear.start..self.clear.start + count;
        buffer.put_slice(&self.bytes[now]);
        self.clear.start += count;
        Poll::Ready(Ok(()))
    }

    /// Reads what the socket has, behind the beginning of a record; how many bytes.
    fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        socket: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let begun = self.sealed.len();
        self.bytes.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..begun;
        if self.bytes.is_empty() {
            self.bytes.resize(BYTES_MIN, 0);
        }
        let mut into = ReadBuf::new(&mut self.bytes[begun..]);
        ready!(Pin::new(socket).poll_read(context, &mut into))?;
        let (count, is_full) = (into.filled().len(), into.remaining() == 0);
        self.sealed.end += count;
        if is_full && self.bytes.len() < BYTES_MAX {
            let more = 2 * self.bytes.len();
            self.bytes.resize(more.min(BYTES_MAX), 0);
        }
        Poll::Ready(Ok(count))
    }
}
