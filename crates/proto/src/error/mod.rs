//! Who broke what, and the one table from failures to replies.

pub mod errno;
mod reading;
#[cfg(test)]
mod tests;

use crate::{
    path::FtpPath,
    reply::{BodyStyle, Reply, ReplyCode},
    text::find_ignoring_case,
};

/// A storage operation failed. Plain data, so that this crate needs no `io::Error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {text}")]
pub struct StorageFailure {
    /// errno of the system; 0 where there was none.
    pub errno: i32,
    /// What was tried and on what, e.g. `open /p/f for reading`.
    pub doing: String,
    /// The C library's English text for `errno` (clients search for it), or ours where errno is 0.
    pub text: String,
}

/// Why a transfer ended without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferFailure {
    /// Reading or writing the file.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
    /// No data connection: refused, unreachable, or the peer did not connect in time. Reply 425.
    #[error("cannot open data connection: {0}")]
    NoConnection(String),
    /// A data connection exists, and one end did not prove to the other to be whom it expects.
    /// Reply 425.
    #[error("data channel authentication failed: {0}")]
    NotAuthenticated(String),
    /// A data connection broke or stalled, be it before its ends knew each other. Reply 426.
    #[error("data connection broke: {0}")]
    ConnectionLost(String),
    /// The peer broke MODE E. Reply 426.
    #[error("peer broke the extended block mode: {0}")]
    Protocol(String),
    /// ABOR, or the session went away. Reply 426.
    #[error("aborted")]
    Aborted,
    /// SCKS or STORATTR named another digest than the file has. Reply 550 INCORRECT_CHECKSUM.
    #[error("checksum mismatch: computed {computed}, expected {expected}")]
    Checksum {
        /// Lower-case hex.
        computed: String,
        /// As the client said.
        expected: String,
    },
    /// Our own limit; names it. Reply 451.
    #[error("limit reached: {0}")]
    Limit(String),
}

/// What a client makes of a failed reply: who must act, and which errno is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// ENOENT.
    NotFound,
    /// EACCES, EPERM, EROFS, 530, 532.
    PermissionDenied,
    /// EEXIST.
    Exists,
    /// ENOTDIR.
    NotADirectory,
    /// EISDIR.
    IsADirectory,
    /// ENOSPC, EDQUOT, 452, 552.
    NoSpace,
    /// 500, 502, 504: the server lacks the command.
    NotSupported,
    /// 421, 425, 426, 450, 451: may work when tried again.
    Transient,
    /// Everything else.
    Other,
}

/// Reads errno words and texts of GCT, ours and common FTP servers. `None` for a reply that is no
/// failure.
pub fn failure_kind(reply: &Reply) -> Option<FailureKind> {
    reading::failure_kind(reply)
}

/// A path in an error text must not mislead clients that search for "not found", "exists" or
/// "credential": names are therefore not put next to those words by us.
pub fn describe(doing: &str, path: &FtpPath) -> String {
    format!("{doing} {path}")
}

/// Reply for a storage failure on `path`, in GCT's typed shape (`550-GlobusError: v=1
/// c=PATH_NOT_FOUND` ...). Never a 2xx. The errno text is always in it, in English; the path never
/// is, since clients search these lines for words that a path may hold.
pub fn storage_reply(failure: &StorageFailure) -> Reply {
    let (code, word) = typed_code(failure.errno);
    let text = errno_text(failure.errno).unwrap_or(&failure.text);
    // gfal2 knows ENOSPC by the words of EDQUOT only.
    let hint = match failure.errno {
        errno::ENOSPC => ": Disk quota exceeded or file system full",
        _ => "",
    };
    let mut body = Vec::new();
    if failure.errno > 0 {
        body.push(format!("GridFTP-Errno: {}", failure.errno));
    }
    body.push(format!(
        "GridFTP-Reason: System error in {}{hint}",
        operation(&failure.doing)
    ));
    body.push(format!(
        "GridFTP-Error-String: {}",
        if text.is_empty() {
            "Unknown error"
        } else {
            text
        }
    ));
    typed_reply(code, word, body)
}

/// Reply for a failed transfer. Never a 2xx.
pub fn transfer_reply(failure: &TransferFailure) -> Reply {
    let reason = || {
        vec![format!(
            "GridFTP-Reason: {}",
            not_misleading(&failure.to_string())
        )]
    };
    match failure {
        TransferFailure::Storage(storage) => storage_reply(storage),
        TransferFailure::NoConnection(_) => {
            typed_reply(425, "DATA_CHANNEL_COMMUNICATION_FAILURE", reason())
        }
        TransferFailure::NotAuthenticated(_) => {
            typed_reply(425, "DATA_CHANNEL_AUTHENTICATION_FAILURE", reason())
        }
        TransferFailure::ConnectionLost(_) | TransferFailure::Protocol(_) => {
            typed_reply(426, "DATA_CHANNEL_COMMUNICATION_FAILURE", reason())
        }
        TransferFailure::Aborted => Reply::new(ReplyCode::of(426), "Command Aborted."),
        TransferFailure::Checksum { computed, expected } => typed_reply(
            550,
            "INCORRECT_CHECKSUM",
            vec![
                format!("GridFTP-Computed-Checksum: {computed}"),
                format!("GridFTP-Expected-Checksum: {expected}"),
            ],
        ),
        TransferFailure::Limit(_) => typed_reply(451, "TOO_BUSY", reason()),
    }
}

fn typed_reply(code: u16, word: &str, body: Vec<String>) -> Reply {
    Reply::with_body(
        ReplyCode::new(code).unwrap_or(ReplyCode::of(451)),
        BodyStyle::Code,
        format!("GlobusError: v=1 c={word}"),
        body.into_iter().map(String::into_bytes),
        "End.",
    )
}

/// The first word of `doing`, e.g. `open`: enough to say what failed, and no path.
fn operation(doing: &str) -> String {
    let word: String = doing
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .take(32)
        .collect();
    if word.is_empty() {
        "storage".to_owned()
    } else {
        word
    }
}

/// Takes out the words by which gfal2 would guess a wrong errno.
fn not_misleading(text: &str) -> String {
    let mut out = text.to_owned();
    for (bad, good) in [
        ("not found", "absent"),
        ("exists", "is there"),
        ("credential", "identity"),
    ] {
        while let Some(at) = find_ignoring_case(&out, bad) {
            out.replace_range(at..at + bad.len(), good);
        }
    }
    out
}

/// Code and `c=` word of GCT (`globus_i_gfs_ftp_response_error.c`). Where GCT says 451 for every
/// errno it does not name, those that no repetition can cure get 550 here, so that clients do not
/// retry them.
fn typed_code(errno: i32) -> (u16, &'static str) {
    use errno::*;
    match errno {
        ENOENT => (550, "PATH_NOT_FOUND"),
        // What was proven at the login does not do; the texts say why.
        EACCES | EKEYEXPIRED | EKEYREJECTED => (550, "PERMISSION_DENIED"),
        EPERM | EROFS | ESPIPE => (550, "INTERNAL_ERROR"),
        ENOTDIR => (550, "NOT_A_DIRECTORY"),
        EISDIR => (550, "IS_A_DIRECTORY"),
        EXDEV | EINVAL | EMLINK | ENOTEMPTY | ELOOP => (550, "INTERNAL_ERROR"),
        ECONNREFUSED => (425, "DATA_CHANNEL_COMMUNICATION_FAILURE"),
        ECONNRESET | ECONNABORTED => (426, "DATA_CHANNEL_COMMUNICATION_FAILURE"),
        ENOSPC => (552, "NO_SPACE_LEFT"),
        EDQUOT => (552, "QUOTA_EXCEEDED"),
        // RFC 3659 §5.4: REST names what is not there.
        ERANGE => (554, "INTERNAL_ERROR"),
        EFBIG => (552, "INTERNAL_ERROR"),
        EEXIST => (553, "PATH_EXISTS"),
        ENAMETOOLONG | EILSEQ => (553, "INVALID_PATH_NAME"),
        EAGAIN | EBUSY | ENOMEM | EMFILE | ENFILE => (451, "TOO_BUSY"),
        ETXTBSY => (450, "INTERNAL_ERROR"),
        ENOSYS | EOPNOTSUPP => (500, "NOT_IMPLEMETED"),
        _ => (451, "INTERNAL_ERROR"),
    }
}

/// The C library's English text for the numbers that storage yields; `None` for others.
pub fn errno_text(errno: i32) -> Option<&'static str> {
    errno::text_of(errno)
}
