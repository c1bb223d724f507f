//! Who broke what, and the one table from failures to replies.

mod reading;

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
    reading::failure_kind(reply)
}

/// A path in an error text must not mislead clients that search for "not found", "exists" or "credential":
/// names are therefore not put next to those words by us.
pub fn describe(doing: &str, path: &FtpPath) -> String {
    format!("{doing} {path}")
}

/// Reply for a storage failure on `path`, in GCT's typed shape (`550-GlobusError: v=1 c=PATH_NOT_FOUND` ...).
/// Never a 2xx. The errno text is always in it, in English; the path never is, since clients search these lines for
/// words that a path may hold.
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

/// Code and `c=` word of GCT (`globus_i_gfs_ftp_response_error.c`). Where GCT says 451 for every errno it does not name,
/// those that no repetition can cure get 550 here, so that clients do not retry them.
fn typed_code(errno: i32) -> (u16, &'static str) {
    use errno::*;
    match errno {
        ENOENT => (550, "PATH_NOT_FOUND"),
        EACCES => (550, "PERMISSION_DENIED"),
        EPERM | EROFS | ESPIPE => (550, "INTERNAL_ERROR"),
        ENOTDIR => (550, "NOT_A_DIRECTORY"),
        EISDIR => (550, "IS_A_DIRECTORY"),
        EXDEV | EINVAL | EMLINK | ENOTEMPTY | ELOOP => (550, "INTERNAL_ERROR"),
        ECONNREFUSED => (425, "DATA_CHANNEL_COMMUNICATION_FAILURE"),
        ECONNRESET | ECONNABORTED => (426, "DATA_CHANNEL_COMMUNICATION_FAILURE"),
        ENOSPC => (552, "NO_SPACE_LEFT"),
        EDQUOT => (552, "QUOTA_EXCEEDED"),
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
    use errno::*;
    Some(match errno {
        EPERM => "Operation not permitted",
        ENOENT => "No such file or directory",
        EIO => "Input/output error",
        EAGAIN => "Resource temporarily unavailable",
        ENOMEM => "Cannot allocate memory",
        EACCES => "Permission denied",
        EBUSY => "Device or resource busy",
        EEXIST => "File exists",
        EXDEV => "Invalid cross-device link",
        ENOTDIR => "Not a directory",
        EISDIR => "Is a directory",
        EINVAL => "Invalid argument",
        ENFILE => "Too many open files in system",
        EMFILE => "Too many open files",
        ETXTBSY => "Text file busy",
        EFBIG => "File too large",
        ENOSPC => "No space left on device",
        ESPIPE => "Illegal seek",
        EROFS => "Read-only file system",
        EMLINK => "Too many links",
        ENAMETOOLONG => "File name too long",
        ENOSYS => "Function not implemented",
        ENOTEMPTY => "Directory not empty",
        ELOOP => "Too many levels of symbolic links",
        EILSEQ => "Invalid or incomplete multibyte or wide character",
        EOPNOTSUPP => "Operation not supported",
        ECONNABORTED => "Software caused connection abort",
        ECONNRESET => "Connection reset by peer",
        ETIMEDOUT => "Connection timed out",
        ECONNREFUSED => "Connection refused",
        ESTALE => "Stale file handle",
        EDQUOT => "Disk quota exceeded",
        _ => return None,
    })
}

/// Numbers of Linux, which is also what travels in `GridFTP-Errno`.
#[allow(missing_docs)] // the names are the documentation
pub mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EXDEV: i32 = 18;
    pub const ENOTDIR: i32 = 20;
    pub const EISDIR: i32 = 21;
    pub const EINVAL: i32 = 22;
    pub const ENFILE: i32 = 23;
    pub const EMFILE: i32 = 24;
    pub const ETXTBSY: i32 = 26;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const ESPIPE: i32 = 29;
    pub const EROFS: i32 = 30;
    pub const EMLINK: i32 = 31;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOSYS: i32 = 38;
    pub const ENOTEMPTY: i32 = 39;
    pub const ELOOP: i32 = 40;
    pub const EILSEQ: i32 = 84;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ECONNABORTED: i32 = 103;
    pub const ECONNRESET: i32 = 104;
    pub const ETIMEDOUT: i32 = 110;
    pub const ECONNREFUSED: i32 = 111;
    pub const ESTALE: i32 = 116;
    pub const EDQUOT: i32 = 122;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(errno: i32) -> StorageFailure {
        StorageFailure {
            errno,
            doing: "open /data/not found/exists for reading".into(),
            text: "lokalisierter Text".into(),
        }
    }

    #[test]
    fn typed_shape() {
        let mut out = Vec::new();
        storage_reply(&StorageFailure {
            errno: 2,
            doing: "stat /p".into(),
            text: "No such file or directory (os error 2)".into(),
        })
        .write_to(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n\
             550-GridFTP-Reason: System error in stat\r\n\
             550-GridFTP-Error-String: No such file or directory\r\n550 End.\r\n"
        );
    }

    /// gfal2's search, in its order (`gridftpwrapper.cpp`).
    fn gfal2_errno(reply: &Reply) -> &'static str {
        let text = reply.text();
        let has = |w: &str| find_ignoring_case(&text, w).is_some();
        if has("No such file") || has("not found") || has("error 3011") {
            "ENOENT"
        } else if has("Permission denied") || has("credential") {
            "EACCES"
        } else if has("exists") || has("error 3006") {
            "EEXIST"
        } else if has("Not a direct") {
            "ENOTDIR"
        } else if has("Operation not supported") {
            "ENOTSUP"
        } else if has("Login incorrect") || has("Could not get virtual id") {
            "EACCES"
        } else if has("the operation was aborted") {
            "ECANCELED"
        } else if has("Is a directory") {
            "EISDIR"
        } else if has("isk quota exceeded") {
            "ENOSPC"
        } else {
            "ECOMM"
        }
    }

    #[test]
    fn gfal2_gets_the_right_errno() {
        for (number, code, want) in [
            (errno::ENOENT, 550, "ENOENT"),
            (errno::EACCES, 550, "EACCES"),
            (errno::EEXIST, 553, "EEXIST"),
            (errno::ENOTDIR, 550, "ENOTDIR"),
            (errno::EISDIR, 550, "EISDIR"),
            (errno::ENOSPC, 552, "ENOSPC"),
            (errno::EDQUOT, 552, "ENOSPC"),
            (errno::EOPNOTSUPP, 500, "ENOTSUP"),
            (errno::EIO, 451, "ECOMM"),
            (errno::EROFS, 550, "ECOMM"),
            (errno::ETXTBSY, 450, "ECOMM"),
            (0, 451, "ECOMM"),
        ] {
            let reply = storage_reply(&storage(number));
            assert_eq!(reply.code.get(), code, "errno {number}");
            assert_eq!(gfal2_errno(&reply), want, "errno {number}");
        }
    }

    #[test]
    fn no_failure_becomes_a_success_or_a_wrong_errno() {
        let text = || "host not found: credential exists".to_owned();
        for (failure, code) in [
            (TransferFailure::NoConnection(text()), 425),
            (TransferFailure::ConnectionLost(text()), 426),
            (TransferFailure::Protocol(text()), 426),
            (TransferFailure::Aborted, 426),
            (
                TransferFailure::Checksum {
                    computed: "ab".into(),
                    expected: "cd".into(),
                },
                550,
            ),
            (TransferFailure::Limit(text()), 451),
        ] {
            let reply = transfer_reply(&failure);
            assert_eq!(reply.code.get(), code, "{failure}");
            assert_eq!(gfal2_errno(&reply), "ECOMM", "{failure}");
        }
        for number in -1..200 {
            let failure = TransferFailure::Storage(storage(number));
            assert!(transfer_reply(&failure).code.is_failure(), "{number}");
            assert!(failure_kind(&transfer_reply(&failure)).is_some());
        }
    }

    #[test]
    fn our_own_replies_are_understood() {
        for (number, kind) in [
            (errno::ENOENT, FailureKind::NotFound),
            (errno::EACCES, FailureKind::PermissionDenied),
            (errno::EPERM, FailureKind::PermissionDenied),
            (errno::EROFS, FailureKind::PermissionDenied),
            (errno::EEXIST, FailureKind::Exists),
            (errno::ENOTDIR, FailureKind::NotADirectory),
            (errno::EISDIR, FailureKind::IsADirectory),
            (errno::ENOSPC, FailureKind::NoSpace),
            (errno::EDQUOT, FailureKind::NoSpace),
            (errno::EOPNOTSUPP, FailureKind::NotSupported),
            (errno::EAGAIN, FailureKind::Transient),
            (errno::EIO, FailureKind::Transient),
            (errno::ENOTEMPTY, FailureKind::Other),
        ] {
            assert_eq!(
                failure_kind(&storage_reply(&storage(number))),
                Some(kind),
                "{number}"
            );
        }
        let lost = TransferFailure::ConnectionLost("reset".into());
        assert_eq!(
            failure_kind(&transfer_reply(&lost)),
            Some(FailureKind::Transient)
        );
    }

    #[test]
    fn foreign_replies_are_understood() {
        for (code, text, kind) in [
            (
                500,
                "Command failed. : globus_l_gfs_file_open failed.\nglobus_xio: Unable to open file /p\n\
                   globus_xio: System error in open: No such file or directory\nEnd.",
                FailureKind::NotFound,
            ),
            (
                500,
                "Command failed. : callback failed.\nan end-of-file was reached\n\
                   globus_xio: An end of file occurred\nEnd.",
                FailureKind::Transient,
            ),
            (500, "Command failed", FailureKind::Other),
            (500, "Command not supported.", FailureKind::NotSupported),
            (
                550,
                "/p: Could not change directory. : GlobusError: v=1 c=NOT_A_DIRECTORY\nEnd.",
                FailureKind::NotADirectory,
            ),
            (550, "p: Not a directory.", FailureKind::NotADirectory),
            (550, "Failed to open file.", FailureKind::NotFound),
            (
                550,
                "Create directory operation failed.",
                FailureKind::Other,
            ),
            (553, "Could not create file.", FailureKind::PermissionDenied),
            (
                550,
                "/data/exists: Permission denied",
                FailureKind::PermissionDenied,
            ),
            (550, "x: not a regular file", FailureKind::IsADirectory),
            (
                552,
                "Transfer aborted. Disk quota exceeded",
                FailureKind::NoSpace,
            ),
            (
                530,
                "globus_gss_assist: credential not found\nEnd.",
                FailureKind::PermissionDenied,
            ),
            (
                421,
                "Idle Timeout: closing control connection.",
                FailureKind::Transient,
            ),
            (
                425,
                "Failed to establish connection.",
                FailureKind::Transient,
            ),
            (501, "bad parameter.", FailureKind::Other),
            (550, "End.", FailureKind::Other),
        ] {
            let reply = Reply {
                code: ReplyCode::of(code),
                lines: text.split('\n').map(|l| l.as_bytes().to_vec()).collect(),
                style: BodyStyle::Code,
            };
            assert_eq!(failure_kind(&reply), Some(kind), "{reply}");
        }
        assert_eq!(
            failure_kind(&Reply::new(ReplyCode::of(226), "not found")),
            None
        );
    }
}
