//! Bytes of a control channel to command lines, as a server reads them.

/// Longest command line, CRLF not counted. A DCSC line with a chain reaches 10-20 KiB.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Splits a stream at CRLF, strips Telnet (RFC 854) sequences and answers the negotiations.
///
/// A bare LF ends a line, too: it can be in no name, and simple clients send it. CR NUL is CR
/// (RFC 2640 §3.1), and so is a CR before anything else: a line never gets shorter, or one file's
/// name would become another's. NUL elsewhere, and CRs before CRLF, are an error of the line.
/// `IAC IAC` is the byte 255 itself; every other pair that begins with IAC is dropped.
#[derive(Debug)]
pub struct LineReader {
    bytes_max: usize,
    line: Vec<u8>,
    bad: Option<BadLine>,
    /// CRs behind `line`: part of it, or of its end.
    crs: usize,
    telnet: Telnet,
    /// Bytes came behind the last line's end, also such as are dropped.
    inside_line: bool,
}

/// Where in a Telnet sequence the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telnet {
    Text,
    /// IAC was seen.
    Command,
    /// IAC WILL/WONT or IAC DO/DONT was seen: the option follows, answered with this.
    Option(u8),
}

const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;

/// What the reader found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEvent {
    /// A line without its CRLF.
    Line(Vec<u8>),
    /// A line that is none; it has been skipped up to its CRLF.
    Bad(BadLine),
    /// Bytes to send back: `IAC DONT x` for `IAC WILL/WONT x`, `IAC WONT x` for `IAC DO/DONT x`.
    Answer([u8; 3]),
}

/// Why a line was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// More bytes before CRLF than the reader takes.
    #[error("command line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A NUL byte.
    #[error("command line holds a NUL byte")]
    Nul,
    /// CRs before its CRLF.
    #[error("command line ends in more than one CR; CR in a name is sent as CR NUL")]
    Crs,
}

impl Default for LineReader {
    /// For command lines in clear.
    fn default() -> Self {
        Self::with_bytes_max(LINE_BYTES_MAX)
    }
}

impl LineReader {
    /// For lines of at most `bytes_max`, CRLF not counted: wrapped commands are longer than those
    /// in clear.
    #[must_use]
    pub fn with_bytes_max(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            bad: None,
            crs: 0,
            telnet: Telnet::Text,
            inside_line: false,
        }
    }

    /// Takes the next bytes; events in order. Memory is bounded by the longest line.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<LineEvent> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            self.inside_line = true;
            let plain = self.plain(rest);
            rest = &rest[plain..];
            if plain > 0 {
                continue;
            }
            rest = behind;
            match self.telnet {
                Telnet::Text if byte == IAC => self.telnet = Telnet::Command,
                Telnet::Text => events.extend(self.text(byte)),
                Telnet::Command => {
                    self.telnet = match byte {
                        WILL | WONT => Telnet::Option(DONT),
                        DO | DONT => Telnet::Option(WONT),
                        _ => Telnet::Text,
                    };
                    if byte == IAC {
                        events.extend(self.text(byte));
                    }
                }
                Telnet::Option(answer) => {
                    self.telnet = Telnet::Text;
                    events.push(LineEvent::Answer([IAC, answer, byte]));
                }
            }
        }
        events
    }

    /// Bytes came behind the end of the last line, also such as are dropped.
    pub fn is_inside_line(&self) -> bool {
        self.inside_line
    }

    /// Takes the bytes at the front that are nothing but text, as far as the line has room; how
    /// many.
    fn plain(&mut self, bytes: &[u8]) -> usize {
        if self.telnet != Telnet::Text || self.bad.is_some() || self.crs > 0 {
            return 0;
        }
        let room = self.bytes_max - self.line.len();
        let front = &bytes[..bytes.len().min(room)];
        let plain = (front.iter())
            .position(|&byte| matches!(byte, 0 | b'\r' | b'\n' | IAC))
            .unwrap_or(front.len());
        if plain > 0 {
            self.line.extend_from_slice(&front[..plain]);
        }
        plain
    }

    fn text(&mut self, byte: u8) -> Option<LineEvent> {
        match byte {
            b'\n' => {
                // Whether they are a name's is not to be seen: it may be another file without them.
                if std::mem::take(&mut self.crs) > 1 {
                    self.refuse(BadLine::Crs);
                }
                self.inside_line = false;
                let line = std::mem::take(&mut self.line);
                return Some(match self.bad.take() {
                    Some(bad) => LineEvent::Bad(bad),
                    None => LineEvent::Line(line),
                });
            }
            _ if self.bad.is_some() => {}
            b'\r' => self.crs += 1,
            0 if self.crs == 0 => self.refuse(BadLine::Nul),
            _ => {
                let crs = std::mem::take(&mut self.crs);
                let room = self.bytes_max - self.line.len();
                if crs + usize::from(byte != 0) > room {
                    self.refuse(BadLine::TooLong);
                    return None;
                }
                self.line.resize(self.line.len() + crs, b'\r');
                self.line.extend((byte != 0).then_some(byte));
            }
        }
        None
    }

    /// Skips the rest of the line and gives its memory back.
    fn refuse(&mut self, bad: BadLine) {
        self.bad = Some(bad);
        self.line = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<LineEvent> {
        LineReader::default().push(bytes)
    }

    fn line(text: &[u8]) -> LineEvent {
        LineEvent::Line(text.to_vec())
    }

    #[test]
    fn crlf_and_lf_end_a_line_and_cr_is_part_of_it() {
        assert_eq!(read(b"NOOP\r\nPWD"), [line(b"NOOP")]);
        assert_eq!(
            read(b"A\nB\rC\r\n\r\n"),
            [line(b"A"), line(b"B\rC"), line(b"")]
        );
        assert_eq!(read(b"DELE v\r\r\n"), [LineEvent::Bad(BadLine::Crs)]);
    }

    #[test]
    fn telnet_is_answered_and_stripped() {
        // GCT: WILL/WONT -> DONT, DO/DONT -> WONT; ABOR preceded by IAC IP IAC DM (RFC 959 §4.1.3).
        assert_eq!(
            read(b"\xff\xf4\xff\xf2AB\xff\xfb\x01OR\xff\xfd\x03\r\xff\xfe\x07\n"),
            [
                LineEvent::Answer([IAC, DONT, 1]),
                LineEvent::Answer([IAC, WONT, 3]),
                LineEvent::Answer([IAC, WONT, 7]),
                line(b"ABOR"),
            ]
        );
        assert_eq!(read(b"DELE y\xff\xff\r\n"), [line(b"DELE y\xff")]);
    }

    #[test]
    fn dropped_bytes_are_seen_behind_a_line() {
        for (bytes, inside) in [
            (&b"AUTH TLS\r\n"[..], false),
            (b"AUTH TLS\r\n\n", false),
            (b"AUTH TLS\r\n\r", true),
            (b"AUTH TLS\r\n\xff\xf1", true),
            (b"AUTH TLS\r\nU", true),
            (b"AUTH TLS\r\n\r\n", false),
        ] {
            let mut reader = LineReader::default();
            drop(reader.push(bytes));
            assert_eq!(reader.is_inside_line(), inside, "{bytes:?}");
        }
    }

    #[test]
    fn how_the_bytes_are_cut_makes_no_difference() {
        let bytes = b"A\nB\r\r\nSTOR a\r\0\r\xff\xffb\0c\r\n\xff\xfb\x01NOOP\r\n\r\nPWD\r\n";
        let whole = read(bytes);
        assert_eq!(whole.len(), 7);
        for step in 1..bytes.len() {
            let mut reader = LineReader::default();
            let pieces = bytes.chunks(step);
            let events: Vec<_> = pieces.flat_map(|piece| reader.push(piece)).collect();
            assert_eq!(events, whole, "{step} at a time");
        }
    }

    #[test]
    fn cr_nul_is_a_cr_of_the_name() {
        assert_eq!(read(b"DELE a\r\0b\r\0\r\n"), [line(b"DELE a\rb\r")]);
        assert_eq!(read(b"DELE a\0b\r\n"), [LineEvent::Bad(BadLine::Nul)]);
        let crs = vec![b'\r'; LINE_BYTES_MAX + 1];
        assert_eq!(
            read(&[&crs[..], b"\0\n"].concat()),
            [LineEvent::Bad(BadLine::TooLong)]
        );
    }

    #[test]
    fn bad_lines_are_skipped_whole() {
        let mut long = vec![b'x'; LINE_BYTES_MAX];
        long.extend_from_slice(b"\r\n");
        assert_eq!(read(&long), [line(&long[..LINE_BYTES_MAX])]);
        long.insert(0, b'x');
        long.extend_from_slice(b"A\0B\r\nNOOP\r\n");
        assert_eq!(
            read(&long),
            [
                LineEvent::Bad(BadLine::TooLong),
                LineEvent::Bad(BadLine::Nul),
                line(b"NOOP")
            ]
        );
    }
}
