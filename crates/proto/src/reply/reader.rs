//! Replies as a client reads them.

use super::{BodyStyle, Reply, ReplyCode};
use crate::{line::LINE_BYTES_MAX, text::printable};

/// Bytes a single reply may have before the reader gives up (MLSC pages and long FEATs fit).
pub const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Lines outside a reply, between two replies, before the reader gives up.
pub const STRAY_LINES_MAX: u32 = 1000;

/// What a line costs beside its bytes, so that many short lines cannot claim more memory than
/// [`REPLY_BYTES_MAX`] says.
const LINE_OVERHEAD_BYTES: usize = 32;

/// Reads replies as a client (RFC 959's same-code rule; lines outside a reply that do not begin
/// with three digits are skipped and counted, since servers exist that emit one).
///
/// Lenient in what no reply's meaning depends on: LF alone ends a line, CRs before it and NULs are
/// dropped. Body lines lose one leading blank or their `DDD-`. The bounds are checked in
/// [`ReplyReader::next_reply`]: call it until it returns `None` after every push.
#[derive(Debug, Default)]
pub struct ReplyReader {
    unread: Vec<u8>,
    /// Bytes of `unread` already taken.
    taken: usize,
    /// Bytes of `unread` known to hold no LF, from `taken` on.
    searched: usize,
    open: Option<OpenReply>,
    stray_lines: u32,
    bad: Option<BadReply>,
}

/// A multi-line reply whose last line has not come.
#[derive(Debug)]
struct OpenReply {
    code: ReplyCode,
    lines: Vec<Vec<u8>>,
    /// Some body line came with `DDD-`.
    style: BodyStyle,
    cost_bytes: usize,
}

/// The bytes are no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// A line above the bound of [`crate::line::LINE_BYTES_MAX`].
    #[error("reply line is longer than {} bytes", crate::line::LINE_BYTES_MAX)]
    LineTooLong,
    /// A reply above [`REPLY_BYTES_MAX`].
    #[error("reply is longer than {REPLY_BYTES_MAX} bytes")]
    TooLong,
    /// A line has the shape of a reply, and no code of one: what it answers would be waited for in
    /// vain.
    #[error("reply code is none of 100 to 699: {0:?}")]
    Code(String),
    /// More than 1000 stray lines: this is no FTP server.
    #[error("peer does not speak FTP: {0:?}")]
    NotFtp(String),
}

impl ReplyReader {
    /// Takes bytes in any slicing.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bad.is_none() {
            self.unread.extend_from_slice(bytes);
        }
    }

    /// The next whole reply, if there is one. After an error the reader stays in error.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, BadReply> {
        if let Some(bad) = &self.bad {
            return Err(bad.clone());
        }
        let found = self.search();
        if let Err(bad) = &found {
            *self = Self {
                bad: Some(bad.clone()),
                ..Self::default()
            };
        }
        found
    }

    /// Lines skipped since the last reply.
    pub fn stray_lines(&self) -> u32 {
        self.stray_lines
    }

    /// Bytes are here that belong to a reply whose end is not, or to no reply at all.
    pub fn is_inside_reply(&self) -> bool {
        self.open.is_some() || self.taken < self.unread.len() || self.stray_lines > 0
    }

    fn search(&mut self) -> Result<Option<Reply>, BadReply> {
        while let Some(line) = self.next_line()? {
            if let Some(reply) = self.take_line(line)? {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// The next line without its end; NULs dropped.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, BadReply> {
        let rest = &self.unread[self.taken..];
        let Some(lf) = rest[self.searched..].iter().position(|b| *b == b'\n') else {
            if rest.len() > LINE_BYTES_MAX {
                return Err(BadReply::LineTooLong);
            }
            self.searched = rest.len();
            self.unread.drain(..self.taken);
            self.taken = 0;
            return Ok(None);
        };
        let end = self.searched + lf;
        if end > LINE_BYTES_MAX {
            return Err(BadReply::LineTooLong);
        }
        let mut line = rest[..end].to_vec();
        line.retain(|b| *b != 0);
        while line.last() == Some(&b'\r') {
            line.pop();
        }
        self.taken += end + 1;
        self.searched = 0;
        Ok(Some(line))
    }

    fn take_line(&mut self, line: Vec<u8>) -> Result<Option<Reply>, BadReply> {
        let Some(mut open) = self.open.take() else {
            return self.take_first(&line);
        };
        open.cost_bytes += line.len() + LINE_OVERHEAD_BYTES;
        if open.cost_bytes > REPLY_BYTES_MAX {
            return Err(BadReply::TooLong);
        }
        match split_code(&line) {
            Some((code, mark, text)) if code == open.code && mark != b'-' => {
                open.lines.push(text.to_vec());
                return Ok(Some(Reply {
                    code,
                    lines: open.lines,
                    style: open.style,
                }));
            }
            Some((code, _, text)) if code == open.code => {
                open.style = BodyStyle::Code;
                open.lines.push(text.to_vec());
            }
            _ => open
                .lines
                .push(line.strip_prefix(b" ").unwrap_or(&line).to_vec()),
        }
        self.open = Some(open);
        Ok(None)
    }

    fn take_first(&mut self, line: &[u8]) -> Result<Option<Reply>, BadReply> {
        match split_code(line) {
            Some((code, b'-', text)) => {
                self.stray_lines = 0;
                self.open = Some(OpenReply {
                    code,
                    lines: vec![text.to_vec()],
                    style: BodyStyle::Blank,
                    cost_bytes: line.len() + LINE_OVERHEAD_BYTES,
                });
                Ok(None)
            }
            Some((code, _, text)) => {
                self.stray_lines = 0;
                Ok(Some(Reply::new(code, text)))
            }
            None if has_shape_of_reply(line) => Err(BadReply::Code(printable(line, 80))),
            None => {
                self.stray_lines += 1;
                if self.stray_lines > STRAY_LINES_MAX {
                    return Err(BadReply::NotFtp(printable(line, 80)));
                }
                Ok(None)
            }
        }
    }
}

/// Three digits, and a mark or nothing behind them.
fn has_shape_of_reply(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|b| b.is_ascii_digit()).count();
    digits == 3 && matches!(line.get(3), None | Some(b' ' | b'-'))
}

/// Code, the mark behind it (`-` or blank; a line of three digits alone counts as blank) and the
/// text.
fn split_code(line: &[u8]) -> Option<(ReplyCode, u8, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    let mut number = 0;
    for d in digits {
        if !d.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u16::from(d - b'0');
    }
    let code = ReplyCode::new(number)?;
    match rest.split_first() {
        None => Some((code, b' ', rest)),
        Some((mark @ (b' ' | b'-'), text)) => Some((code, *mark, text)),
        Some(_) => None,
    }
}
