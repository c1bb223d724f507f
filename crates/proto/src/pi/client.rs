//! The client's protocol interpreter: commands in flight, replies matched to them.
//!
//! Replies come strictly in command order (RFC 959 §5.4), so any number of commands may be sent ahead. The
//! interpreter matches each reply to its command, tells preliminary from final, tolerates what known servers get
//! wrong (stray lines, ARC's second final reply after a broken transfer), and watches the clock.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    command::Command,
    reply::{BadReply, Reply},
};

/// Names a submitted command; rises by one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// Limits of a client session.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Time without any octet while a reply is due, except during transfers and checksums.
    pub reply_limit: Duration,
    /// The same for commands that may be silent while storage works (transfers, CKSM).
    pub work_limit: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            reply_limit: Duration::from_secs(60),
            work_limit: Duration::from_secs(600),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// Octets of the control connection.
    Octets(&'a [u8]),
    /// The connection ended.
    Closed,
    /// `poll_timeout` has passed.
    Timeout,
}

/// What the shell must do or know.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Write to the control connection.
    Send(Vec<u8>),
    /// The server's greeting (final reply to the connection itself).
    Greeting(Reply),
    /// 1xx for a command.
    Preliminary(CommandId, Reply),
    /// The reply that ends a command.
    Final(CommandId, Reply),
    /// The session is over; every command in flight fails with this. Last output.
    Failed(ClientPiError),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientPiError {
    /// The server closed the connection.
    #[error("server closed the control connection{}", .last.as_ref().map(|r| format!(" after: {r}")).unwrap_or_default())]
    Closed {
        /// Its last words, e.g. a 421.
        last: Option<Reply>,
    },
    /// Nothing came in time.
    #[error("no reply to {command} within {} s", .limit.as_secs())]
    NoReply {
        /// Verb, or `connection` for the greeting.
        command: String,
        /// The limit.
        limit: Duration,
    },
    /// The octets are no replies.
    #[error(transparent)]
    BadReply(#[from] BadReply),
    /// A reply nobody asked for.
    #[error("unexpected reply: {0}")]
    Unexpected(Reply),
}

/// The interpreter of one control connection.
#[derive(Debug)]
pub struct ClientPi {
    _outputs: VecDeque<Output>,
}

impl ClientPi {
    /// A connection just made: the greeting is due.
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let _ = (config, now);
        Self {
            _outputs: VecDeque::new(),
        }
    }

    /// Sends `command`; may be called before earlier commands are answered.
    pub fn submit(&mut self, now: Instant, command: &Command) -> CommandId {
        let _ = (now, command);
        todo!()
    }

    /// Takes what happened.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        let _ = (now, input);
        todo!()
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        todo!()
    }

    /// When [`Input::Timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// Commands sent and not finally answered.
    pub fn in_flight(&self) -> usize {
        todo!()
    }
}
