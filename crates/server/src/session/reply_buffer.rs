//! Replies on their way to a client that may read slowly, or never.

use std::{
    io,
    time::{Duration, Instant},
};

use super::Control;

/// Above this, no command is read and no page of a listing is fetched until the client has read on.
pub(crate) const UNSENT_PAUSE: usize = 256 * 1024;

/// Above this the session ends: what is running when reading stops can still add replies, but never
/// this many.
pub(crate) const UNSENT_MAX: usize = 8 * 1024 * 1024;

/// Capacity that an empty buffer keeps; most replies in a row fit, and ten thousand idle sessions
/// stay cheap.
const CAPACITY_IDLE: usize = 4096;

/// Bytes not yet taken by the kernel.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuffer {
    bytes: Vec<u8>,
    /// Bytes at the start that are sent.
    sent: usize,
    /// When the kernel first refused bytes, if it has not taken any since.
    stalled_since: Option<Instant>,
}

impl ReplyBuffer {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// When the session ends if nothing is sent until then.
    pub(crate) fn deadline(&self, unread_limit: Duration) -> Option<Instant> {
        self.stalled_since.map(|since| since + unread_limit)
    }

    /// Hands the kernel what it takes now.
    pub(crate) fn send(&mut self, socket: &Control, now: Instant) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match socket.try_write(&self.bytes[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.stalled_since = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled_since.get_or_insert(now);
                    // Else a client that always leaves one byte unread makes the sent part grow
                    // for ever.
                    if self.sent > UNSENT_PAUSE {
                        self.bytes.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(CAPACITY_IDLE);
        self.sent = 0;
        self.stalled_since = None;
        Ok(())
    }
}
