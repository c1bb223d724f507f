//! The control connection of a session with its protection and the replies that the client has not
//! read yet.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::{io::Interest, time::timeout_at};

use super::{control::Control, reply_buffer::ReplyBuffer};
use crate::access::security::Security;

/// Replies go in protected; [`ControlIo::send`] hands the kernel what it takes.
pub(crate) struct ControlIo {
    pub(crate) control: Control,
    pub(crate) security: Security,
    reply_buffer: ReplyBuffer,
    /// Time that the client may leave replies unread.
    unread_limit: Duration,
}

impl ControlIo {
    pub(super) fn new(control: Control, unread_limit: Duration) -> Self {
        Self {
            control,
            security: Security::default(),
            reply_buffer: ReplyBuffer::default(),
            unread_limit,
        }
    }

    /// Protects replies and queues them. After an error replies are missing.
    pub(crate) fn push_replies(&mut self, replies: Vec<u8>) -> Result<(), String> {
        let bytes = self.security.seal(replies);
        self.push(&bytes.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Queues bytes as they are.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.reply_buffer.push(bytes);
    }

    /// Queues the end of the protected stream.
    pub(super) fn push_close(&mut self) {
        let bytes = self.security.close();
        self.push(&bytes);
    }

    /// Hands the kernel what it takes now.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        self.reply_buffer.send(&self.control, Instant::now())
    }

    /// Bytes that the kernel has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.reply_buffer.unsent()
    }

    /// When the session ends if the kernel takes nothing until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.reply_buffer.deadline(self.unread_limit)
    }

    /// Sends what is queued, while the client reads, and ends the connection.
    pub(crate) async fn send_last_replies(&mut self) {
        self.push_close();
        while self.send().is_ok() && self.unsent() > 0 {
            let deadline = self.deadline().unwrap_or_else(Instant::now);
            let room = self.control.ready(Interest::WRITABLE);
            if timeout_at(deadline.into(), room).await.is_err() {
                return;
            }
        }
        self.control.close_gracefully().await;
    }
}
