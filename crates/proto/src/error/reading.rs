//! What a client makes of a failed reply.

use crate::{
    error::{FailureKind, errno},
    reply::Reply,
    text::{decimal, find_ignoring_case},
};

pub(super) fn failure_kind(reply: &Reply) -> Option<FailureKind> {
    if !reply.code.is_failure() {
        return None;
    }
    let text = reply.text();
    Some(
        by_errno(&text)
            .or_else(|| by_word(&text))
            .or_else(|| by_certain_code(reply.code.get(), &text))
            .or_else(|| by_phrase(&text))
            .unwrap_or_else(|| by_code(reply.code.get(), &text)),
    )
}

/// What follows `key` in `text`, up to a blank or line end.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let at = find_ignoring_case(text, key)? + key.len();
    text[at..].split_whitespace().next()
}

/// `GridFTP-Errno: 2`.
fn by_errno(text: &str) -> Option<FailureKind> {
    use errno::*;
    let number = decimal(value_of(text, "GridFTP-Errno:")?)?;
    Some(match number {
        ENOENT => FailureKind::NotFound,
        EACCES | EPERM | EROFS => FailureKind::PermissionDenied,
        EEXIST => FailureKind::Exists,
        ENOTDIR => FailureKind::NotADirectory,
        EISDIR => FailureKind::IsADirectory,
        ENOSPC | EDQUOT => FailureKind::NoSpace,
        ENOSYS | EOPNOTSUPP => FailureKind::NotSupported,
        EAGAIN | EBUSY | ECONNREFUSED | ECONNRESET | ECONNABORTED | ETIMEDOUT => {
            FailureKind::Transient
        }
        // No repetition helps. GCT answers 451 all the same.
        EXDEV | EINVAL | EFBIG | EMLINK | ENAMETOOLONG | ENOTEMPTY | ELOOP | EILSEQ => {
            FailureKind::Other
        }
        _ => return None,
    })
}

/// `GlobusError: v=1 c=PATH_NOT_FOUND`.
fn by_word(text: &str) -> Option<FailureKind> {
    find_ignoring_case(text, "GlobusError")?;
    Some(match value_of(text, " c=")? {
        "PATH_NOT_FOUND" => FailureKind::NotFound,
        "PERMISSION_DENIED" | "LOGIN_DENIED" => FailureKind::PermissionDenied,
        "DATA_CHANNEL_AUTHENTICATION_FAILURE" => FailureKind::PermissionDenied,
        "PATH_EXISTS" => FailureKind::Exists,
        "NOT_A_DIRECTORY" => FailureKind::NotADirectory,
        "IS_A_DIRECTORY" => FailureKind::IsADirectory,
        "NO_SPACE_LEFT" | "QUOTA_EXCEEDED" => FailureKind::NoSpace,
        "NOT_IMPLEMETED" | "NOT_IMPLEMENTED" => FailureKind::NotSupported,
        "DATA_CHANNEL_COMMUNICATION_FAILURE" | "TOO_BUSY" => FailureKind::Transient,
        "INCORRECT_CHECKSUM" | "INVALID_PATH_NAME" => FailureKind::Other,
        _ => return None,
    })
}

/// Codes that say more than any text behind them.
fn by_certain_code(code: u16, text: &str) -> Option<FailureKind> {
    match code {
        421 => Some(FailureKind::Transient),
        530 if is_session_limit(text) => Some(FailureKind::Transient),
        452 | 552 => Some(FailureKind::NoSpace),
        530 | 532 | 534 => Some(FailureKind::PermissionDenied),
        _ => None,
    }
}

/// RFC 959 has 421 for a server that is full; ProFTPD and wu-ftpd answer the login with 530.
fn is_session_limit(text: &str) -> bool {
    ["maximum number of", "too many"]
        .iter()
        .any(|words| find_ignoring_case(text, words).is_some())
}

/// Texts of the C library, which most servers pass on, then loose words of others. A text that a
/// server has for several reasons is not here: vsftpd says "Failed to open file." of a file that is
/// missing and of one that may not be read. The caller asks further then.
const PHRASES: &[(&str, FailureKind)] = &[
    ("no such file or directory", FailureKind::NotFound),
    ("permission denied", FailureKind::PermissionDenied),
    ("operation not permitted", FailureKind::PermissionDenied),
    ("read-only file system", FailureKind::PermissionDenied),
    // GCT, of paths outside those that it is restricted to.
    ("path not allowed", FailureKind::PermissionDenied),
    ("file exists", FailureKind::Exists),
    ("not a directory", FailureKind::NotADirectory),
    ("is a directory", FailureKind::IsADirectory),
    ("not a regular file", FailureKind::IsADirectory),
    ("not a plain file", FailureKind::IsADirectory),
    ("only retrieve regular files", FailureKind::IsADirectory),
    // No repetition helps, whatever the code says.
    ("file name too long", FailureKind::Other),
    ("directory not empty", FailureKind::Other),
    ("invalid cross-device link", FailureKind::Other),
    ("no space left", FailureKind::NoSpace),
    ("not enough space", FailureKind::NoSpace),
    ("quota exceeded", FailureKind::NoSpace),
    ("operation not supported", FailureKind::NotSupported),
    ("login incorrect", FailureKind::PermissionDenied),
    ("connection refused", FailureKind::Transient),
    ("connection reset", FailureKind::Transient),
    ("connection timed out", FailureKind::Transient),
    ("broken pipe", FailureKind::Transient),
    ("end-of-file was reached", FailureKind::Transient),
    ("an end of file occurred", FailureKind::Transient),
    // GCT's front end, of a data node that went away.
    (
        "ipc failed while attempting to perform request",
        FailureKind::Transient,
    ),
    ("no such file", FailureKind::NotFound),
    ("no such directory", FailureKind::NotFound),
    ("not found", FailureKind::NotFound),
    ("does not exist", FailureKind::NotFound),
    ("doesn't exist", FailureKind::NotFound),
    ("cannot find the file", FailureKind::NotFound),
    ("cannot find the path", FailureKind::NotFound),
    ("already exists", FailureKind::Exists),
    ("directory exists", FailureKind::Exists),
    ("access denied", FailureKind::PermissionDenied),
    ("access is denied", FailureKind::PermissionDenied),
    ("not enough privileges", FailureKind::PermissionDenied),
    ("directory name is invalid", FailureKind::NotADirectory),
];

/// The reason stands at the end of a line (`/the/path: Permission denied`), and a path before it
/// may hold any words; only where no line ends so are phrases searched for in the whole text.
fn by_phrase(text: &str) -> Option<FailureKind> {
    let lower = text.to_ascii_lowercase();
    let kind_where = |fits: &dyn Fn(&str) -> bool| {
        let mut fitting = PHRASES.iter().filter(|(phrase, _)| fits(phrase));
        fitting.next().map(|(_, kind)| *kind)
    };
    let ends_so = |line: &str| {
        let line = line.trim_end_matches(|c: char| c.is_ascii_whitespace() || c == '.');
        kind_where(&|phrase| line.ends_with(phrase))
    };
    (lower.lines().rev().find_map(ends_so)).or_else(|| kind_where(&|phrase| lower.contains(phrase)))
}

fn by_code(code: u16, text: &str) -> FailureKind {
    match code {
        // GCT answers nearly every transfer failure so.
        500 if find_ignoring_case(text, "Command failed").is_some() => FailureKind::Other,
        500 | 502 | 504 => FailureKind::NotSupported,
        400..=499 => FailureKind::Transient,
        _ => FailureKind::Other,
    }
}
