//! Replies (RFC 959 §4.2): read incrementally, written so that no known reader is misled.

use std::fmt;

use crate::{line::LINE_OCTETS_MAX, text::printable};

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
    /// A code known when the program is built. Fails the build when used in a `const` with a bad code.
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

/// One reply. `lines` holds the text without codes, continuation marks and the leading blank of body lines.
///
/// For a multi-line reply in GCT's shape (`250-first`, ` body`..., `250 End.`) `lines` is
/// first, body..., last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The code.
    pub code: ReplyCode,
    /// Text, at least one line; octets, since MLST carries names.
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
    /// taken for a last line; an empty text becomes `.`; CR, LF and NUL inside a line become blanks.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let code = self.code.to_string();
        let Some((last, before)) = self.lines.split_last() else {
            // No line at all is a misuse, but the peer must still hear the code.
            out.extend_from_slice(format!("{code} .\r\n").as_bytes());
            return;
        };
        for (i, line) in before.iter().enumerate() {
            match self.style {
                BodyStyle::Blank if i > 0 => out.push(b' '),
                _ => out.extend_from_slice(format!("{code}-").as_bytes()),
            }
            write_text(line, out);
        }
        out.extend_from_slice(format!("{code} ").as_bytes());
        write_text(last, out);
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
    /// `550 first line` with the further lines joined by `; `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text().replace('\n', "; "))
    }
}

/// One line's text and CRLF. An empty text is written as `.`: GCT's client wants at least five characters.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    if text.is_empty() {
        out.push(b'.');
    }
    out.extend(text.iter().map(|b| match b {
        b'\r' | b'\n' | 0 => b' ',
        _ => *b,
    }));
    out.extend_from_slice(b"\r\n");
}

/// Octets a single reply may have before the reader gives up (MLSC pages and long FEATs fit).
pub const REPLY_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Lines outside a reply, between two replies, before the reader gives up.
pub const STRAY_LINES_MAX: u32 = 1000;

/// What a line costs beside its octets, so that many short lines cannot claim more memory than
/// [`REPLY_OCTETS_MAX`] says.
const LINE_OVERHEAD_OCTETS: usize = 32;

/// Reads replies as a client (RFC 959's same-code rule; lines outside a reply that do not begin
/// with three digits are skipped and counted, since servers exist that emit one).
///
/// Lenient in what no reply's meaning depends on: LF alone ends a line, CRs before it and NULs are
/// dropped. Body lines lose one leading blank or their `DDD-`. The bounds are checked in
/// [`ReplyReader::next_reply`]: call it until it returns `None` after every push.
#[derive(Debug, Default)]
pub struct ReplyReader {
    unread: Vec<u8>,
    /// Octets of `unread` already taken.
    taken: usize,
    /// Octets of `unread` known to hold no LF, from `taken` on.
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
    cost_octets: usize,
}

/// The octets are no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// A line above the bound of [`crate::line::LINE_OCTETS_MAX`].
    #[error("reply line is longer than {} octets", crate::line::LINE_OCTETS_MAX)]
    LineTooLong,
    /// A reply above [`REPLY_OCTETS_MAX`].
    #[error("reply is longer than {REPLY_OCTETS_MAX} octets")]
    TooLong,
    /// More than 1000 stray lines: this is no FTP server.
    #[error("peer does not speak FTP: {0:?}")]
    NotFtp(String),
}

impl ReplyReader {
    /// Takes octets in any slicing.
    pub fn push(&mut self, octets: &[u8]) {
        if self.bad.is_none() {
            self.unread.extend_from_slice(octets);
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
            if rest.len() > LINE_OCTETS_MAX {
                return Err(BadReply::LineTooLong);
            }
            self.searched = rest.len();
            self.unread.drain(..self.taken);
            self.taken = 0;
            return Ok(None);
        };
        let end = self.searched + lf;
        if end > LINE_OCTETS_MAX {
            return Err(BadReply::LineTooLong);
        }
        let mut line: Vec<u8> = rest[..end].iter().copied().filter(|b| *b != 0).collect();
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
        open.cost_octets += line.len() + LINE_OVERHEAD_OCTETS;
        if open.cost_octets > REPLY_OCTETS_MAX {
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
                    cost_octets: line.len() + LINE_OVERHEAD_OCTETS,
                });
                Ok(None)
            }
            Some((code, _, text)) => {
                self.stray_lines = 0;
                Ok(Some(Reply::new(code, text)))
            }
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

/// Code, the mark behind it (`-` or blank; a line of three digits alone counts as blank) and the text.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn read_all(octets: &[u8]) -> Vec<Reply> {
        let mut reader = ReplyReader::default();
        reader.push(octets);
        std::iter::from_fn(|| reader.next_reply().unwrap()).collect()
    }

    fn one(octets: &[u8]) -> Reply {
        let mut all = read_all(octets);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    const C250: ReplyCode = ReplyCode::of(250);

    #[test]
    fn writer_prefixes_every_body_line() {
        let body = || vec![b"Type=file; /f".to_vec(), b"250 End.".to_vec(), Vec::new()];
        assert_eq!(
            written(&Reply::with_body(
                C250,
                BodyStyle::Blank,
                "status of /f",
                body(),
                "End."
            )),
            "250-status of /f\r\n Type=file; /f\r\n 250 End.\r\n .\r\n250 End.\r\n"
        );
        assert_eq!(
            written(&Reply::with_body(
                C250,
                BodyStyle::Code,
                "x",
                body(),
                "End."
            )),
            "250-x\r\n250-Type=file; /f\r\n250-250 End.\r\n250-.\r\n250 End.\r\n"
        );
    }

    #[test]
    fn writer_never_lets_a_text_end_a_line() {
        assert_eq!(written(&Reply::new(C250, "")), "250 .\r\n");
        assert_eq!(
            written(&Reply::new(C250, "a\r\n226 b\0c")),
            "250 a  226 b c\r\n"
        );
        let none = Reply {
            code: C250,
            lines: vec![],
            style: BodyStyle::Blank,
        };
        assert_eq!(written(&none), "250 .\r\n");
    }

    #[test]
    fn reader_takes_the_forms_servers_send() {
        assert_eq!(
            one(b"200 Type set to I.\r\n"),
            Reply::new(ReplyCode::of(200), "Type set to I.")
        );
        assert_eq!(
            one(b"250-a\n Type=dir; b\n250 End.\n").lines,
            [&b"a"[..], b"Type=dir; b", b"End."]
        );
        // Lines of other codes are body (RFC 959 §4.2); ARC's FEAT lines lack the blank.
        let feat = one(b"211-x\r\n 226 y\r\n226 z\r\nEPRT\r\n211 End\r\n");
        assert_eq!(feat.body(), [&b"226 y"[..], b"226 z", b"EPRT"]);
        let error =
            one(b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n550 End.\r\n");
        assert_eq!(error.style, BodyStyle::Code);
        assert_eq!(error.body(), [b"GridFTP-Errno: 2"]);
        assert_eq!(one(b"200\r\n").lines, [b""]);
        assert_eq!(one(b"226 a\r\r\n\0").lines, [b"a"]);
    }

    #[test]
    fn stray_lines_are_skipped_up_to_a_bound() {
        // What GCT 13.24 answers to TYPE E.
        let all = read_all(b"501 'TYPE E\r\n' unrecognized type.\r\n200 ok\r\n");
        assert_eq!(
            all.iter().map(|r| r.code.get()).collect::<Vec<_>>(),
            [501, 200]
        );
        let mut reader = ReplyReader::default();
        reader.push("<html>\r\n".repeat(1001).as_bytes());
        assert_eq!(reader.next_reply(), Err(BadReply::NotFtp("<html>".into())));
        reader.push(b"200 ok\r\n");
        assert!(reader.next_reply().is_err());
    }

    #[test]
    fn size_is_bounded() {
        let mut reader = ReplyReader::default();
        reader.push(&vec![b'2'; LINE_OCTETS_MAX]);
        assert_eq!(reader.next_reply(), Ok(None));
        reader.push(b"2");
        assert_eq!(reader.next_reply(), Err(BadReply::LineTooLong));

        let mut reader = ReplyReader::default();
        reader.push(b"211-x\n");
        let page = b"y\n".repeat(10_000);
        let mut pushed = 0;
        while reader.next_reply() == Ok(None) {
            reader.push(&page);
            pushed += page.len();
            assert!(pushed <= REPLY_OCTETS_MAX);
        }
        assert_eq!(reader.next_reply(), Err(BadReply::TooLong));
    }
}
