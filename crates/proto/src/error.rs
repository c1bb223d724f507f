//! Who broke what, and the one table from failures to replies.

use crate::{path::FtpPath, reply::Reply};

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
    /// No data connection came up: refused, unreachable, or nobody came in time. Reply 425.
    #[error("cannot open data connection: {0}")]
    NoConnection(String),
    /// A data connection broke or stalled. Reply 426.
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

/// Reply for a storage failure on `path`, in GCT's typed shape (`550-GlobusError: v=1 c=PATH_NOT_FOUND` ...).
/// Never a 2xx. The errno text is always in it.
pub fn storage_reply(failure: &StorageFailure) -> Reply {
    let _ = failure;
    todo!()
}

/// Reply for a failed transfer. Never a 2xx.
pub fn transfer_reply(failure: &TransferFailure) -> Reply {
    let _ = failure;
    todo!()
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

/// Reads errno words and texts of GCT, ours and common FTP servers. `None` for a reply that is no failure.
pub fn failure_kind(reply: &Reply) -> Option<FailureKind> {
    let _ = reply;
    todo!()
}

/// A path in an error text must not mislead clients that search for "not found", "exists" or "credential":
/// names are therefore not put next to those words by us.
pub fn describe(doing: &str, path: &FtpPath) -> String {
    format!("{doing} {path}")
}
