//! Octets of a control channel to command lines, as a server reads them.

/// Longest command line, CRLF not counted. A DCSC line with a chain reaches 10-20 KiB.
pub const LINE_OCTETS_MAX: usize = 64 * 1024;

/// Splits a stream at CRLF, strips Telnet (RFC 854) sequences and answers the negotiations.
///
/// A bare LF or CR does not end a line and is dropped. NUL is an error of the line.
#[derive(Debug, Default)]
pub struct LineReader {
    _todo: (),
}

/// What the reader found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEvent {
    /// A line without its CRLF.
    Line(Vec<u8>),
    /// A line that was too long or held a NUL; it has been skipped up to its CRLF.
    Bad(BadLine),
    /// Octets to send back: `IAC DONT x` for `IAC WILL/WONT x`, `IAC WONT x` for `IAC DO/DONT x`.
    Answer([u8; 3]),
}

/// Why a line was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// More than [`LINE_OCTETS_MAX`] octets before CRLF.
    #[error("command line is longer than {LINE_OCTETS_MAX} octets")]
    TooLong,
    /// A NUL octet.
    #[error("command line holds a NUL octet")]
    Nul,
}

impl LineReader {
    /// Takes the next octets; events in order. Memory is bounded by [`LINE_OCTETS_MAX`].
    pub fn push(&mut self, octets: &[u8]) -> Vec<LineEvent> {
        let _ = octets;
        todo!()
    }
}
