//! What follows an established context on a control channel: commands and replies in base64, or a
//! TLS stream.
//!
//! Wrapping is writing to the one TLS stream of the context, so pieces must be unwrapped in the
//! order in which they were wrapped, each once. MIC, ENC and CONF name the same bytes: which one a
//! peer says decides nothing (RFC 2228 §4, as the Grid Community Toolkit has it).

use crate::adat;
pub use crate::record::{CLEAR_BYTES_MAX, WrapError};
use crate::records::{Records, read_bounded};
use crate::tls::{ReadOutcome, Tls, TlsFault};

impl From<TlsFault> for WrapError {
    fn from(fault: TlsFault) -> Self {
        Self::Tls(fault.0)
    }
}

/// What came of protected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// There may be more.
    Open,
    /// The peer has said that there is no more (close_notify). Many close the connection without
    /// saying so.
    Closed,
}

/// Seals and opens, after the context is established.
pub struct Wrap {
    tls: Tls,
}

impl Wrap {
    pub(crate) fn new(tls: Tls) -> Self {
        Self { tls }
    }

    /// TLS version and cipher suite, for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        self.tls.describe()
    }

    /// What continues with the bytes of a data connection, in place of this. Right behind the
    /// handshake only: nothing was sealed or opened yet.
    #[must_use]
    pub fn into_records(self) -> Records {
        Records::behind(self.tls)
    }

    /// Appends the records for `clear` to `sealed`: about 22 bytes more a record, and a record for
    /// 16 KiB.
    ///
    /// # Errors
    /// When the stream is broken, after which it stays so.
    pub fn seal(&mut self, clear: &[u8], sealed: &mut Vec<u8>) -> Result<(), WrapError> {
        Ok(self.tls.write_to(clear, sealed)?)
    }

    /// Takes bytes from the peer, cut anywhere, and appends what they open to. Output is never
    /// longer than all input.
    ///
    /// # Errors
    /// When a record was changed, is missing or is not TLS at all, or the peer wants too many
    /// answers from TLS itself.
    pub fn open(&mut self, sealed: &[u8], clear: &mut Vec<u8>) -> Result<Stream, WrapError> {
        self.tls.feed(sealed);
        let mut buffer = [0; 16 * 1024];
        loop {
            match read_bounded(&mut self.tls, &mut buffer)? {
                ReadOutcome::Bytes(count) => clear.extend_from_slice(&buffer[..count]),
                ReadOutcome::Starved => return Ok(Stream::Open),
                ReadOutcome::Closed => return Ok(Stream::Closed),
            }
        }
    }

    /// Appends the word that nothing follows (close_notify).
    pub fn close(&mut self, sealed: &mut Vec<u8>) {
        self.tls.close();
        self.tls.append_output(sealed);
    }

    /// A command line, its CRLF included, as the line `ENC <base64>` without line end.
    ///
    /// # Errors
    /// As [`Wrap::seal`]; [`WrapError::TooLong`].
    pub fn command(&mut self, line: &[u8]) -> Result<String, WrapError> {
        Ok(format!("ENC {}", self.text(line)?))
    }

    /// The clear command lines in a line from the peer, if it is `MIC`, `ENC` or `CONF`. A command
    /// that is in clear here is not protected: the caller refuses it (RFC 2228 §3: 533 or 534).
    ///
    /// # Errors
    /// When it cannot be unwrapped.
    pub fn clear_command(&mut self, line: &str) -> Result<Option<Vec<u8>>, WrapError> {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        if ["MIC", "ENC", "CONF"]
            .iter()
            .any(|known| verb.eq_ignore_ascii_case(known))
        {
            self.clear_text(argument).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A reply of one or several lines as lines from `632-` to `632 `, each with CRLF: each line of
    /// the reply is wrapped for itself, with its CRLF, as the reference server has it.
    ///
    /// # Errors
    /// As [`Wrap::command`].
    pub fn reply(&mut self, reply: &[u8]) -> Result<String, WrapError> {
        let mut wrapped = String::new();
        let mut lines = reply.split_inclusive(|&byte| byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let separator = if lines.peek().is_some() { '-' } else { ' ' };
            wrapped.push_str("632");
            wrapped.push(separator);
            wrapped.push_str(&self.text(line)?);
            wrapped.push_str("\r\n");
        }
        Ok(wrapped)
    }

    /// The clear text in a line of a reply, if it is 631, 632 or 633: one line of the reply or all
    /// of them, with their CRLFs. Whether the reply ends there is for the reader of the clear text
    /// to see; the wrapper's `-` says nothing. NULs, which some servers put behind the end, are
    /// left out.
    ///
    /// # Errors
    /// When it cannot be unwrapped.
    pub fn clear_reply(&mut self, line: &str) -> Result<Option<Vec<u8>>, WrapError> {
        let is_wrapped = ["631", "632", "633"]
            .iter()
            .any(|code| line.starts_with(code));
        match line.as_bytes().get(3) {
            Some(b' ' | b'-') if is_wrapped => {
                let mut text = self.clear_text(&line[4..])?;
                text.retain(|&byte| byte != 0);
                Ok(Some(text))
            }
            _ => Ok(None),
        }
    }

    fn text(&mut self, clear: &[u8]) -> Result<String, WrapError> {
        if clear.len() > CLEAR_BYTES_MAX {
            return Err(WrapError::TooLong);
        }
        let mut sealed = Vec::new();
        self.seal(clear, &mut sealed)?;
        Ok(adat::encode(&sealed))
    }

    fn clear_text(&mut self, argument: &str) -> Result<Vec<u8>, WrapError> {
        let sealed = adat::decode(argument)?;
        if !is_whole_records(&sealed) {
            return Err(WrapError::Incomplete);
        }
        let mut clear = Vec::new();
        match self.open(&sealed, &mut clear)? {
            Stream::Closed => Err(WrapError::Closed),
            Stream::Open if clear.len() > CLEAR_BYTES_MAX => Err(WrapError::TooLong),
            Stream::Open => Ok(clear),
        }
    }
}

/// Nothing is missing of the last record. RFC 8446 §5.1: type, version and a length of two bytes,
/// then so many.
fn is_whole_records(sealed: &[u8]) -> bool {
    let mut rest = sealed;
    while let [_, _, _, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        match behind.get(length..) {
            Some(next) => rest = next,
            None => return false,
        }
    }
    rest.is_empty()
}
