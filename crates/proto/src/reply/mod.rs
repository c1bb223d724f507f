//! Replies (RFC 959 §4.2): read incrementally, written so that no known reader is misled.

mod reader;
#[cfg(test)]
mod tests;

use std::fmt;

pub use reader::{BadReply, REPLY_BYTES_MAX, ReplyReader, STRAY_LINES_MAX};

/// Three digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyCode(u16);

impl ReplyCode {
    /// A code in 100..=699 (6xx are the protected replies of RFC 2228).
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 699 {
            Some(Self(code))
        } else {
            None
        }
    }
    /// A code known when the program is built. Fails the build when used in a `const` with a bad
    /// code.
    pub const fn of(code: u16) -> Self {
        assert!(code >= 100 && code <= 699, "reply codes are 100..=699");
        Self(code)
    }
    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
    /// 1xx: more to come.
    pub const fn is_preliminary(self) -> bool {
        self.0 / 100 == 1
    }
    /// 2xx: done.
    pub const fn is_success(self) -> bool {
        self.0 / 100 == 2
    }
    /// 3xx: the next command of a sequence is expected.
    pub const fn is_intermediate(self) -> bool {
        self.0 / 100 == 3
    }
    /// 4xx or 5xx.
    pub const fn is_failure(self) -> bool {
        matches!(self.0 / 100, 4 | 5)
    }
    /// 4xx: may succeed when tried again.
    pub const fn is_transient(self) -> bool {
        self.0 / 100 == 4
    }
}

impl fmt::Display for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03}", self.0)
    }
}
impl fmt::Debug for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One reply. `lines` holds the text without codes, continuation marks and the leading blank of
/// body lines.
///
/// For a multi-line reply in GCT's shape (`250-first`, ` body`..., `250 End.`) `lines` is
/// first, body..., last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The code.
    pub code: ReplyCode,
    /// Text, at least one line; bytes, since MLST carries names.
    pub lines: Vec<Vec<u8>>,
    /// How body lines are prefixed when written.
    pub style: BodyStyle,
}

/// How lines between the first and the last are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyStyle {
    /// One blank: data (FEAT, MLST, markers).
    #[default]
    Blank,
    /// `DDD-`: errors.
    Code,
}

impl Reply {
    /// A reply of one line.
    pub fn new(code: ReplyCode, text: impl Into<Vec<u8>>) -> Self {
        Self {
            code,
            lines: vec![text.into()],
            style: BodyStyle::Blank,
        }
    }

    /// A reply with a body: `first`, then `body`, then `last` (`End.` in most replies).
    pub fn with_body(
        code: ReplyCode,
        style: BodyStyle,
        first: impl Into<Vec<u8>>,
        body: impl IntoIterator<Item = Vec<u8>>,
        last: impl Into<Vec<u8>>,
    ) -> Self {
        let mut lines = vec![first.into()];
        lines.extend(body);
        lines.push(last.into());
        Self { code, lines, style }
    }

    /// Appends the reply to `out` with CRLF line ends. Body lines are prefixed so that none can be
    /// taken for a last line; an empty text becomes `.`; LF and NUL inside a line become blanks, CR
    /// is followed by NUL (RFC 2640 §3.1).
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let Some((last, before)) = self.lines.split_last() else {
            // No line at all is a misuse, but the peer must still hear the code.
            return write_last(self.code, b"", out);
        };
        for (i, line) in before.iter().enumerate() {
            match self.style {
                BodyStyle::Blank if i > 0 => out.push(b' '),
                _ => {
                    out.extend_from_slice(self.code.to_string().as_bytes());
                    out.push(b'-');
                }
            }
            write_text(line, out);
        }
        write_last(self.code, last, out);
    }

    /// All lines joined by `"\n"`, lossy: for people and for searching.
    pub fn text(&self) -> String {
        self.lines
            .iter()
            .map(|l| String::from_utf8_lossy(l))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Lines between the first and the last.
    pub fn body(&self) -> &[Vec<u8>] {
        if self.lines.len() < 3 {
            &[]
        } else {
            &self.lines[1..self.lines.len() - 1]
        }
    }
}

impl fmt::Display for Reply {
    /// `550 first line` with the further lines joined by `; `, for people: a last line that says
    /// only `End.` is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let text = text
            .strip_suffix("\nEnd.")
            .or(text.strip_suffix("\nEnd"))
            .unwrap_or(&text);
        write!(f, "{} {}", self.code, text.replace('\n', "; "))
    }
}

/// The last line of a reply, or its only one, as [`Reply::write_to`] writes it.
pub(crate) fn write_last(code: ReplyCode, text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(code.to_string().as_bytes());
    out.push(b' ');
    write_text(text, out);
}

/// One line's text and CRLF. An empty text is written as `.`: GCT's client wants at least five
/// characters.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    if text.is_empty() {
        out.push(b'.');
    }
    for byte in text {
        match *byte {
            b'\n' | 0 => out.push(b' '),
            b'\r' => out.extend_from_slice(b"\r\0"),
            plain => out.push(plain),
        }
    }
    out.extend_from_slice(b"\r\n");
}
