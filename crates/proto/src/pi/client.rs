//! The client's protocol interpreter: commands in flight, replies matched to them.
//!
//! Replies come strictly in command order (RFC 959 §5.4), so any number of commands may be sent
//! ahead; only live requests ([`crate::live`]) are answered out of turn, by codes of their own. The
//! interpreter matches each reply to its command, tells preliminary from final, tolerates what
//! known servers get wrong (stray lines, ARC's second final reply after a broken transfer), and
//! watches the clock.
//!
//! # Replies out of turn
//! - *Stray abort.* ARC answers a broken transfer by a 426 and then by `226 Abort finished`, which
//!   answers no command. After a transfer ended in 426 or 451, one reply 226 whose text begins with
//!   `Abort` is dropped unless the command it would answer is ABOR. No other command is answered
//!   so; a later transfer says 1xx first, which ends the rule.
//! - *421 out of turn.* ARC answers a second transfer command by 421 while the first still runs. A
//!   421 that comes while the oldest command is a transfer past its 1xx belongs to the next
//!   transfer in flight, if there is one. If the server means the whole session the connection ends
//!   next, and everything in flight fails anyway.
//! - *421 with nothing in flight* ends the session.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    command::Command,
    live,
    reply::{BadReply, Reply, ReplyCode, ReplyReader},
};

const REFUSED_SESSION: ReplyCode = ReplyCode::of(421);

/// Names a submitted command; rises by one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// Limits of a client session.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Time without any byte while a reply is due; twice of it for a transfer to begin.
    pub reply_limit: Duration,
    /// The same for commands that may be silent while storage works: checksums, and transfers that
    /// a 1xx has begun and whose data is not observed ([`ClientPi::data_moves`]).
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
    /// Bytes of the control connection.
    Bytes(&'a [u8]),
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
    #[error(
        "server closed the control connection{}",
        .last.as_ref().map(|r| format!(" after: {r}")).unwrap_or_default()
    )]
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
    /// The bytes are no replies.
    #[error(transparent)]
    BadReply(#[from] BadReply),
    /// A reply to no command.
    #[error("unexpected reply: {0}")]
    Unexpected(Reply),
}

/// The interpreter of one control connection.
#[derive(Debug)]
pub struct ClientPi {
    config: ClientConfig,
    replies: ReplyReader,
    in_flight: VecDeque<InFlight>,
    greeted: bool,
    next_id: u64,
    /// Transfers that were asked for so far.
    transfers: u64,
    outputs: VecDeque<Output>,
    /// Bytes came, or the first command was sent after a pause: silence is counted from here.
    active_at: Instant,
    /// Whether data moves, where it is observed.
    data_moves: Option<bool>,
    /// A transfer has failed so that a stray `226 Abort ...` may follow.
    stray_abort: bool,
    /// The server's last reply, if there was one.
    last_words: Option<Reply>,
    over: bool,
}

/// A command that was sent and is not finally answered.
#[derive(Debug)]
struct InFlight {
    id: CommandId,
    verb: String,
    /// Which transfer of this connection it asks for, from 1 on.
    transfer: Option<u64>,
    is_checksum: bool,
    /// Answered at once, by 258 or 558, or else by a refusal in its turn.
    is_live_request: bool,
    /// A 1xx came.
    running: bool,
}

impl ClientPi {
    /// A connection just made: the greeting is due.
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        Self {
            config,
            replies: ReplyReader::default(),
            in_flight: VecDeque::new(),
            greeted: false,
            next_id: 0,
            transfers: 0,
            outputs: VecDeque::new(),
            active_at: now,
            data_moves: None,
            stray_abort: false,
            last_words: None,
            over: false,
        }
    }

    /// Sends `command`; may be called before earlier commands are answered. After `Failed` nothing
    /// is sent.
    pub fn submit(&mut self, now: Instant, command: &Command) -> CommandId {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        if self.over {
            return id;
        }
        if self.greeted && self.in_flight.is_empty() {
            self.active_at = now;
        }
        self.transfers += u64::from(command.is_transfer());
        self.in_flight.push_back(InFlight {
            id,
            verb: command.verb().to_owned(),
            transfer: command.is_transfer().then_some(self.transfers),
            is_checksum: command.is_checksum(),
            is_live_request: command.is_live_request(),
            running: false,
        });
        // Commands in a row leave in one write.
        if let Some(Output::Send(bytes)) = self.outputs.back_mut() {
            command.write_to(bytes);
        } else {
            let mut bytes = Vec::new();
            command.write_to(&mut bytes);
            self.outputs.push_back(Output::Send(bytes));
        }
        id
    }

    /// Takes what happened.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        if self.over {
            return;
        }
        match input {
            Input::Bytes(bytes) => {
                self.active_at = now;
                self.replies.push(bytes);
                while !self.over {
                    match self.replies.next_reply() {
                        Ok(Some(reply)) => self.on_reply(reply),
                        Ok(None) => break,
                        Err(error) => self.fail(error.into()),
                    }
                }
            }
            Input::Closed => {
                let last = self.last_words.take();
                self.fail(ClientPiError::Closed { last });
            }
            Input::Timeout => {
                if let Some((limit, due)) = self.limit()
                    && due <= now
                {
                    let command = match self.in_flight.front() {
                        Some(command) if self.greeted => command.verb.clone(),
                        _ => "connection".to_owned(),
                    };
                    self.fail(ClientPiError::NoReply { command, limit });
                }
            }
        }
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.limit().map(|(_, due)| due)
    }

    /// Commands sent and not finally answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Which of the transfers that were asked for, counted from 1, this command is; `None` where it
    /// is none, or finally answered.
    pub fn transfer_number(&self, id: CommandId) -> Option<u64> {
        self.in_flight
            .iter()
            .find(|command| command.id == id)?
            .transfer
    }

    /// Tells whether data of the transfer that has begun still moves. While it does, the data
    /// connection has a limit of its own and the server may be silent; from its end on the final
    /// reply is due. `None`: data is not observed.
    pub fn data_moves(&mut self, now: Instant, moves: Option<bool>) {
        if self.data_moves == Some(true) && moves != Some(true) {
            self.active_at = now;
        }
        self.data_moves = moves;
    }

    /// Bytes of a reply are here whose end is not.
    pub fn is_inside_reply(&self) -> bool {
        self.replies.is_inside_reply()
    }

    fn on_reply(&mut self, reply: Reply) {
        let code = reply.code;
        if matches!(code.get(), 221 | 421) {
            self.last_words = Some(reply.clone());
        }
        if !self.greeted {
            // 120 says that the server needs some minutes (RFC 959 §4.2).
            if !code.is_preliminary() {
                self.greeted = true;
                self.outputs.push_back(Output::Greeting(reply));
            }
            return;
        }
        if self.is_stray_abort(&reply) {
            self.stray_abort = false;
            return;
        }
        let at = match code {
            REFUSED_SESSION => self.refused_by_421(),
            live::DONE | live::NO_TRANSFER => self.in_flight.iter().position(|c| c.is_live_request),
            _ => None,
        };
        if code.is_preliminary() {
            if let Some(command) = self.in_flight.front_mut().filter(|c| !c.is_live_request) {
                command.running = true;
                if command.transfer.is_some() {
                    self.stray_abort = false;
                }
                self.outputs
                    .push_back(Output::Preliminary(command.id, reply));
                return;
            }
        } else if let Some(command) = self.in_flight.remove(at.unwrap_or(0)) {
            // If the server skipped a live request, each later reply would be taken for the one
            // before it.
            if command.is_live_request && at.is_none() && !code.is_failure() {
                return self.fail(ClientPiError::Unexpected(reply));
            }
            if command.transfer.is_some() && matches!(code.get(), 426 | 451) {
                self.stray_abort = true;
            }
            self.outputs.push_back(Output::Final(command.id, reply));
            return;
        }
        let error = if code.get() == 421 {
            ClientPiError::Closed { last: Some(reply) }
        } else {
            ClientPiError::Unexpected(reply)
        };
        self.fail(error);
    }

    fn is_stray_abort(&self, reply: &Reply) -> bool {
        self.stray_abort
            && reply.code.get() == 226
            && reply
                .lines
                .first()
                .and_then(|line| line.get(..5))
                .is_some_and(|word| word.eq_ignore_ascii_case(b"abort"))
            && self
                .in_flight
                .front()
                .is_none_or(|command| command.verb != "ABOR")
    }

    /// Which command a 421 answers, if not the first.
    fn refused_by_421(&self) -> Option<usize> {
        self.in_flight
            .front()
            .filter(|command| command.transfer.is_some() && command.running)?;
        let next = self
            .in_flight
            .iter()
            .skip(1)
            .position(|c| c.transfer.is_some())?;
        Some(next + 1)
    }

    /// How long the server may be silent now, and until when; `None` while it owes nothing.
    fn limit(&self) -> Option<(Duration, Instant)> {
        if self.over {
            return None;
        }
        let limit = match self.in_flight.front() {
            _ if !self.greeted => self.config.reply_limit,
            None => return None,
            Some(command) if command.is_checksum => self.config.work_limit,
            Some(command) if command.transfer.is_some() && command.running => {
                match self.data_moves {
                    Some(true) => return None,
                    Some(false) => self.config.reply_limit,
                    None => self.config.work_limit,
                }
            }
            // Its data connection has a limit of its own, and says more.
            Some(command) if command.transfer.is_some() => {
                self.config.reply_limit.saturating_mul(2)
            }
            Some(_) => self.config.reply_limit,
        };
        Some((limit, self.active_at.checked_add(limit)?))
    }

    fn fail(&mut self, error: ClientPiError) {
        self.over = true;
        self.in_flight.clear();
        self.outputs.push_back(Output::Failed(error));
    }
}
