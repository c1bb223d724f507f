//! Control lines once a security context is established, in both roles: RFC 2228 §4 as GSI has it,
//! or TLS itself (RFC 4217). No I/O.
//!
//! ```text
//!   ClientPi ── USER x ──► ProtectedClient ── ENC b64 ──► ProtectedServer ── USER x ──► ServerPi
//!            ◄─ 331 ... ─                  ◄── 632 b64 ──                 ◄─ 331 ... ──
//! ```
//! Under TLS no command wraps another: the stream holds the clear lines.
//!
//! Both sides stand between a socket and an interpreter, which sees clear text only. The wrapped
//! lines are pieces of one TLS stream: they are opened in order, each once, and after any error the
//! session is over.

use godwit_gsi::{
    ContextError, Wrap,
    adat::TOKEN_BYTES_MAX,
    wrap::{Stream, WrapError},
};
use godwit_proto::line::{BadLine, LineEvent, LineReader};

/// Longest line of a protected channel, its end not counted: the longest token in base64 behind the
/// longest word.
pub const WRAPPED_LINE_BYTES_MAX: usize = "CONF ".len() + TOKEN_BYTES_MAX.div_ceil(3) * 4;

/// The peer did not keep to the protection that both had agreed on. The session is over: what
/// follows cannot be trusted, or not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectionError {
    /// Changed on the path, out of order, or no wrapped text at all.
    #[error(transparent)]
    Wrap(#[from] WrapError),
    /// A reply in clear, which an attacker on the path could have written.
    #[error("the server answered in clear on a protected control channel: {0}")]
    InClear(String),
    /// A line above the bound.
    #[error("a protected line has more than {WRAPPED_LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Base64 holds neither.
    #[error("a protected line holds a NUL byte, or CRs before its end")]
    Nul,
    /// TLS did not come about.
    #[error(transparent)]
    Handshake(Box<ContextError>),
}

impl From<ContextError> for ProtectionError {
    fn from(error: ContextError) -> Self {
        Self::Handshake(Box::new(error))
    }
}

/// How sealed lines travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// In base64 behind words of RFC 2228, a line each: AUTH GSSAPI.
    Lines,
    /// As they are: AUTH TLS.
    Records,
}

/// The client's side: seals commands, opens replies.
pub struct ProtectedClient {
    wrap: Wrap,
    encapsulation: Encapsulation,
    unread: Vec<u8>,
}

impl ProtectedClient {
    /// From the outcome of the handshake.
    #[must_use]
    pub fn new(wrap: Wrap, encapsulation: Encapsulation) -> Self {
        Self {
            wrap,
            encapsulation,
            unread: Vec::new(),
        }
    }

    /// TLS version and cipher suite, for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        self.wrap.describe()
    }

    /// Appends the lines `ENC <base64>`, or records, for whole command lines, each with its CRLF.
    ///
    /// # Errors
    /// [`WrapError::TooLong`] for a line above [`godwit_gsi::wrap::CLEAR_BYTES_MAX`]: no peer takes
    /// such a command.
    pub fn seal(&mut self, commands: &[u8], sealed: &mut Vec<u8>) -> Result<(), ProtectionError> {
        if self.encapsulation == Encapsulation::Records {
            return Ok(self.wrap.seal(commands, sealed)?);
        }
        for line in commands.split_inclusive(|&byte| byte == b'\n') {
            sealed.extend_from_slice(self.wrap.command(line)?.as_bytes());
            sealed.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Takes bytes from the socket in any slicing and appends the clear text of all whole lines
    /// among them: 631, 632 and 633, each with a line of a reply or with all of it.
    ///
    /// # Errors
    /// When a line is not wrapped or does not open.
    pub fn open(&mut self, bytes: &[u8], clear: &mut Vec<u8>) -> Result<(), ProtectionError> {
        if self.encapsulation == Encapsulation::Records {
            // That nothing follows the connection's own end says too.
            self.wrap.open(bytes, clear)?;
            return Ok(());
        }
        let mut searched = self.unread.len();
        self.unread.extend_from_slice(bytes);
        let mut taken = 0;
        while let Some(at) = self.unread[searched..]
            .iter()
            .position(|&byte| byte == b'\n')
        {
            let end = searched + at;
            let line = self.unread[taken..end].trim_ascii_end();
            if line.len() > WRAPPED_LINE_BYTES_MAX {
                return Err(ProtectionError::LineTooLong);
            }
            let line = str::from_utf8(line).map_err(|_| in_clear(line))?;
            match self.wrap.clear_reply(line)? {
                Some(text) => clear.extend_from_slice(&text),
                None => return Err(in_clear(line.as_bytes())),
            }
            taken = end + 1;
            searched = taken;
        }
        self.unread.drain(..taken);
        if self.unread.len() > WRAPPED_LINE_BYTES_MAX {
            return Err(ProtectionError::LineTooLong);
        }
        Ok(())
    }
}

/// What a server gets from a protected channel, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Clear command lines for the interpreter.
    Commands(Vec<u8>),
    /// A command that came in clear, to be answered by 533 in its turn: an attacker on the path
    /// could have written it.
    Unprotected,
    /// The answer to a Telnet negotiation, to be sent as it is.
    Telnet([u8; 3]),
    /// The client sends no more (close_notify): the server answers and ends (RFC 5246 §7.2.1).
    Closed,
}

/// The server's side: opens commands, seals replies.
pub struct ProtectedServer {
    wrap: Wrap,
    encapsulation: Encapsulation,
    lines: LineReader,
}

impl ProtectedServer {
    /// From the outcome of the handshake.
    #[must_use]
    pub fn new(wrap: Wrap, encapsulation: Encapsulation) -> Self {
        Self {
            wrap,
            encapsulation,
            lines: LineReader::with_bytes_max(WRAPPED_LINE_BYTES_MAX),
        }
    }

    /// TLS version and cipher suite, for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        self.wrap.describe()
    }

    /// Takes bytes from the socket in any slicing. Output is never longer than all input.
    ///
    /// # Errors
    /// When a line does not open: 535, and the session is over.
    pub fn open(&mut self, bytes: &[u8]) -> Result<Vec<Received>, ProtectionError> {
        let mut received = Vec::new();
        if self.encapsulation == Encapsulation::Records {
            let mut clear = Vec::new();
            let stream = self.wrap.open(bytes, &mut clear)?;
            received.push(Received::Commands(clear));
            received.extend((stream == Stream::Closed).then_some(Received::Closed));
            return Ok(received);
        }
        for event in self.lines.push(bytes) {
            let line = match event {
                LineEvent::Answer(answer) => {
                    received.push(Received::Telnet(answer));
                    continue;
                }
                LineEvent::Bad(BadLine::TooLong) => return Err(ProtectionError::LineTooLong),
                LineEvent::Bad(BadLine::Nul | BadLine::Crs) => return Err(ProtectionError::Nul),
                LineEvent::Line(line) => line,
            };
            let line = String::from_utf8_lossy(&line);
            match (self.wrap.clear_command(line.trim())?, received.last_mut()) {
                (None, _) => received.push(Received::Unprotected),
                (Some(text), Some(Received::Commands(all))) => all.extend_from_slice(&text),
                (Some(text), _) => received.push(Received::Commands(text)),
            }
        }
        Ok(received)
    }

    /// Appends the protected form of whole replies, as [`godwit_proto::Reply::write_to`] writes
    /// them, one behind the other: each line is wrapped for itself, and the last of each reply says
    /// that it is the last.
    ///
    /// # Errors
    /// [`WrapError::TooLong`] for a line above [`godwit_gsi::wrap::CLEAR_BYTES_MAX`].
    pub fn seal(&mut self, replies: &[u8], sealed: &mut Vec<u8>) -> Result<(), ProtectionError> {
        if self.encapsulation == Encapsulation::Records {
            return Ok(self.wrap.seal(replies, sealed)?);
        }
        let mut rest = replies;
        while !rest.is_empty() {
            let (reply, next) = rest.split_at(first_reply(rest));
            sealed.extend_from_slice(self.wrap.reply(reply)?.as_bytes());
            rest = next;
        }
        Ok(())
    }

    /// Appends close_notify, under TLS.
    pub fn close(&mut self, sealed: &mut Vec<u8>) {
        if self.encapsulation == Encapsulation::Records {
            self.wrap.close(sealed);
        }
    }
}

/// Bytes of the first of several replies: to the end of the first line that begins with three
/// digits and a blank.
fn first_reply(replies: &[u8]) -> usize {
    let mut length = 0;
    for line in replies.split_inclusive(|&byte| byte == b'\n') {
        length += line.len();
        if let [a, b, c, b' ', ..] = line
            && [a, b, c].iter().all(|byte| byte.is_ascii_digit())
        {
            break;
        }
    }
    length
}

/// Characters of a line in clear that a message shows.
const SHOWN_CHARS_MAX: usize = 80;

fn in_clear(line: &[u8]) -> ProtectionError {
    let line = String::from_utf8_lossy(line);
    ProtectionError::InClear(
        line.chars()
            .take(SHOWN_CHARS_MAX)
            .flat_map(char::escape_debug)
            .collect(),
    )
}
