//! A record of TLS: where its parts are, and what can be wrong with it.

use crate::adat::AdatError;

/// Longest clear text of one command or one line of a reply.
pub const CLEAR_BYTES_MAX: usize = 96 * 1024;

/// Type, version and length.
pub(crate) const HEADER_BYTES: usize = 5;

/// Clear bytes of one record at most (RFC 8446 §5.1).
pub const RECORD_CLEAR_BYTES_MAX: usize = 16 * 1024;

/// Longest record, its header included: what RFC 5246 §6.2.3 lets protection add is more than RFC
/// 8446 does. A caller that collects this many bytes for [`crate::Records::open`] has a whole
/// record.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + RECORD_CLEAR_BYTES_MAX + 2048;

/// What protection adds behind the clear bytes of a record: their type, and the tag of each of the
/// suites of TLS 1.3.
pub(crate) const TAIL_BYTES: usize = 1 + TAG_BYTES;
pub(crate) const TAG_BYTES: usize = 16;

/// The record that says that new keys follow.
pub(crate) const NEW_KEYS_BYTES: usize = HEADER_BYTES + 5 + TAIL_BYTES;

/// What came of bytes from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// So many clear bytes stand at the beginning of the buffer.
    pub clear: usize,
    /// So many bytes were used up. What follows them is the beginning of a record and is to be
    /// given again, with more behind it.
    pub taken: usize,
    /// The peer has said that it sends no more (close_notify). Many close the connection without
    /// saying so.
    pub is_closed: bool,
}

/// A command or reply cannot be unwrapped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrapError {
    /// The argument is no base64, or too long.
    #[error("the protected text is {0}")]
    Token(#[from] AdatError),
    /// The bytes are not what the peer has sealed, or not in order.
    #[error("the protected text does not unwrap: {0}")]
    Tls(String),
    /// The text is longer than anything FTP knows.
    #[error("the protected text has more than {CLEAR_BYTES_MAX} bytes")]
    TooLong,
    /// It is not made of whole records: the rest would have to come with another command.
    #[error("the protected text is incomplete")]
    Incomplete,
    /// The peer has closed the TLS stream.
    #[error("the peer has closed the protected stream")]
    Closed,
    /// It asks for new keys all the time.
    #[error("the peer asks TLS for answers without end")]
    Answers,
}

/// Bytes of the record at the beginning, header included, where all of it is there.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, WrapError> {
    let [_, major, _, high, low, ..] = *bytes else {
        return Ok(None);
    };
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if major != 3 || length > RECORD_BYTES_MAX {
        return Err(WrapError::Tls("no record of TLS".into()));
    }
    Ok((bytes.len() >= length).then_some(length))
}
