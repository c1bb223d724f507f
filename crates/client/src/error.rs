//! What went wrong, for whom, and what exit status that is.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use godwit_engine::control::ControlError;
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Reply,
    error::{FailureKind, StorageFailure, TransferFailure, failure_kind},
};
use rustix::io::Errno;

/// Result of client operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done. Messages are one line, name what was tried and on what, and never
/// hold a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command line asks for something that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The name of a host means nothing.
    #[error("{endpoint}: cannot find host {host}: {error}")]
    Resolve {
        /// URL without path.
        endpoint: String,
        /// As given.
        host: String,
        /// The resolver's words.
        error: Arc<io::Error>,
    },
    /// No control connection came up; the last of the addresses tried.
    #[error("{endpoint}: {error}")]
    Unreachable {
        /// URL without path.
        endpoint: String,
        /// Why.
        error: ControlError,
    },
    /// The control connection was lost in the middle of something.
    #[error("{doing}: {error}")]
    Control {
        /// Verb and URL.
        doing: String,
        /// Why.
        error: ControlError,
    },
    /// Login was refused.
    #[error("{endpoint}: {}", login_refused(.command, .reply))]
    Login {
        /// URL without path.
        endpoint: String,
        /// What was answered so.
        command: &'static str,
        /// The answer.
        reply: Box<Reply>,
    },
    /// We cannot prove who we are, or do not believe who the server says it is. The reason names
    /// the remedy.
    #[error("{doing}: {reason}")]
    Identity {
        /// URL without path, or what was to be done.
        doing: String,
        /// Why.
        reason: String,
    },
    /// The server said no to a command.
    #[error("{doing}: {}", describe_reply(.reply))]
    Refused {
        /// Verb and URL.
        doing: String,
        /// The answer.
        reply: Box<Reply>,
        /// True once data had begun to flow: then even an answer that looks final may be a passing
        /// trouble.
        started: bool,
    },
    /// The data did not arrive.
    #[error("{doing}: {failure}")]
    Transfer {
        /// Verb and URL.
        doing: String,
        /// Why.
        failure: TransferFailure,
    },
    /// Both sides say that all is well, and the sizes differ.
    #[error("{doing}: {got} bytes arrived, {expected} were expected")]
    Size {
        /// Verb and URL.
        doing: String,
        /// Bytes.
        expected: u64,
        /// Bytes.
        got: u64,
    },
    /// The checksums of both ends differ.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The server lacks what was asked for.
    #[error("{endpoint}: the server has no {feature}: {consequence}")]
    MissingFeature {
        /// URL without path.
        endpoint: String,
        /// Command or feature.
        feature: String,
        /// What cannot be done.
        consequence: String,
    },
    /// A server announced a port for data connections that belongs to another service.
    #[error(
        "{endpoint}: the server announced {announced} for data: ports below 1024 are those of \
         other services"
    )]
    LowPort {
        /// URL without path.
        endpoint: String,
        /// As announced.
        announced: SocketAddr,
    },
    /// A server named a file in a way that could reach outside the directory copied.
    #[error("{directory}: refused the name {name:?} that the server lists: {why}")]
    HostileName {
        /// URL of the directory.
        directory: String,
        /// Lossy.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not tried, since no data connection of the server has worked for a while.
    #[error(
        "{endpoint}: no data connection worked for {transfers} transfers in a row, each tried \
         until its attempts were used up, so nothing more is sent or fetched there: {error}"
    )]
    DataRefused {
        /// URL without path.
        endpoint: String,
        /// How many.
        transfers: u32,
        /// The last one's.
        error: Box<Error>,
    },
    /// What a server sends as a listing is none.
    #[error("{doing}: {why}")]
    Listing {
        /// Verb and URL.
        doing: String,
        /// Which bound it passes.
        why: String,
    },
    /// The server understood another name than was sent.
    #[error("{url}: the server changes bytes of this name, it would be {seen:?}")]
    Mangled {
        /// What was meant.
        url: String,
        /// What the server made of it, lossy.
        seen: String,
    },
    /// Two sources of one command would be the same file at the destination.
    #[error(
        "write {path}: another source of this command has this name, or one that means the same \
         file there"
    )]
    Collides {
        /// URL or path of the destination.
        path: String,
    },
    /// Not started: the destination is full.
    #[error("{path}: not started: the destination is full: {error}")]
    DiskFull {
        /// URL or path of the source.
        path: String,
        /// The failure that showed it.
        error: Box<Error>,
    },
    /// A source is not what it was when it was compared with the destination.
    #[error("{what}: changed meanwhile; the same command copies it again")]
    Changed {
        /// URL or path.
        what: String,
    },
    /// What a source is, or how it is named, cannot be copied to where it goes: a file where a
    /// directory is, a name with a line end.
    #[error("{what}: {why}")]
    Unfit {
        /// URL or path.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is nothing at a path.
    #[error("{what}: no such file or directory")]
    Missing {
        /// URL or path.
        what: String,
    },
    /// There is something at a destination that must not be replaced.
    #[error("{what}: exists already")]
    Exists {
        /// URL or path.
        what: String,
    },
    /// A file or directory of this machine.
    #[error("{0}")]
    Local(StorageFailure),
    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A file was not given its name, and nothing of it or of what has the name was removed.
    #[error("{error}; {kept}")]
    Kept {
        /// Why not.
        error: Box<Error>,
        /// Where they lie.
        kept: String,
    },
    /// A bug of ours: a task or a thread panicked.
    #[error("{doing}: internal error: {why}")]
    Internal {
        /// What was not done.
        doing: String,
        /// What the panic said.
        why: String,
    },
    /// The operating system gave no thread, socket or the like.
    #[error("{doing}: {error}")]
    System {
        /// What was tried.
        doing: String,
        /// Why not.
        error: Arc<io::Error>,
    },
}

/// Checksums that differ.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{doing}: {algorithm} differs: here {ours}, at the server {theirs}{}", in_ranges(.ranges))]
pub struct Mismatch {
    /// Verb and URL.
    pub doing: String,
    /// Algorithm.
    pub algorithm: ChecksumAlgorithm,
    /// Hexadecimal; of how many bytes, where that is known.
    pub ours: String,
    /// The same.
    pub theirs: String,
    /// Where they differ, in bytes of what was copied; empty: nobody knows.
    pub ranges: Vec<ByteRange>,
}

/// Ranges that a message names; others are counted.
const RANGES_NAMED_MAX: usize = 4;

fn in_ranges(ranges: &[ByteRange]) -> String {
    let named = ranges.iter().take(RANGES_NAMED_MAX);
    let named: Vec<_> = named.map(|r| format!("{} to {}", r.start, r.end)).collect();
    match ranges.len().checked_sub(RANGES_NAMED_MAX) {
        _ if named.is_empty() => String::new(),
        None | Some(0) => format!(", in bytes {}", named.join(", ")),
        Some(more) => format!(", in bytes {} and {more} more ranges", named.join(", ")),
    }
}

/// How a process ends. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: everything is there.
    Done,
    /// 1: some files failed, the rest are there.
    Partly,
    /// 2: wrong usage.
    Usage,
    /// 3: refused: identity or permission.
    Refused,
    /// 4: failed: network, storage, protocol.
    Failed,
    /// 130: interrupted.
    Interrupted,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Partly => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Failed => 4,
            Self::Interrupted => 130,
        }
    }
}

/// Who must act so that the same command succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoActs {
    /// The user: another path, another option, another account.
    User,
    /// The administrator of the server.
    Server,
    /// Those who run the network between; a later attempt may succeed as it is.
    Network,
    /// The administrator of this machine: disk, permissions, limits.
    ThisMachine,
    /// The developers of godwit.
    Developers,
}

impl fmt::Display for WhoActs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "check what you asked for",
            Self::Server => "ask the server's administrator",
            Self::Network => "check the network or try later",
            Self::ThisMachine => "check this machine",
            Self::Developers => "this is a bug of godwit, please report it",
        })
    }
}

impl Error {
    /// [`Self::Unfit`].
    pub(crate) fn unfit(what: impl ToString, why: impl ToString) -> Self {
        Self::Unfit {
            what: what.to_string(),
            why: why.to_string(),
        }
    }

    /// A failed operation on a file of this machine.
    pub fn local(doing: impl Into<String>, error: &io::Error) -> Self {
        // The text of io::Error ends in "(os error 13)", which helps nobody who reads the sentence.
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
        Self::Local(StorageFailure {
            errno: error.raw_os_error().unwrap_or(0),
            doing: doing.into(),
            text,
        })
    }

    /// The server's refusal of a command before any data flowed.
    pub(crate) fn refused(doing: impl Into<String>, reply: Reply) -> Self {
        Self::Refused {
            doing: doing.into(),
            reply: Box::new(reply),
            started: false,
        }
    }

    /// The status of a process in which this was the only thing that happened.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Kept { error, .. } => error.exit(),
            Self::Interrupted => Exit::Interrupted,
            Self::Login { reply, .. } if !reply.code.is_transient() => Exit::Refused,
            Self::Identity { .. }
            | Self::Transfer {
                failure: TransferFailure::NotAuthenticated(_),
                ..
            } => Exit::Refused,
            // 553 is the refusal of a name. vsftpd has it for want of permission, too.
            Self::Refused { reply, .. } => match failure_kind(reply) {
                Some(FailureKind::PermissionDenied) => Exit::Refused,
                Some(FailureKind::Other) if reply.code.get() == 553 => Exit::Refused,
                _ => Exit::Failed,
            },
            Self::Local(failure) if is_permission(failure) => Exit::Refused,
            Self::Transfer {
                failure: TransferFailure::Storage(failure),
                ..
            } if is_permission(failure) => Exit::Refused,
            _ => Exit::Failed,
        }
    }

    /// True where a further attempt with a fresh session may succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Control { .. } => true,
            Self::Login { reply, .. } => reply.code.is_transient(),
            Self::Refused { reply, started, .. } => match failure_kind(reply) {
                Some(FailureKind::Transient) => true,
                // GCT answers nearly every trouble in the middle of a transfer with 500.
                Some(FailureKind::Other | FailureKind::NotSupported) => *started,
                _ => false,
            },
            // A disk of ours is given as many chances as a server's, which says 451 then.
            Self::Transfer {
                failure: TransferFailure::Storage(failure),
                ..
            } => is_errno(failure, &[Errno::IO]),
            Self::Transfer { failure, .. } => matches!(
                failure,
                TransferFailure::NoConnection(_)
                    | TransferFailure::ConnectionLost(_)
                    | TransferFailure::Protocol(_)
                    | TransferFailure::Aborted
            ),
            Self::Size { .. } => true,
            Self::Kept { error, .. } => error.may_pass(),
            _ => false,
        }
    }

    /// A data connection did not come about, or broke.
    pub(crate) fn is_of_data_connection(&self) -> bool {
        match self {
            Self::Transfer { failure, .. } => matches!(
                failure,
                TransferFailure::NoConnection(_) | TransferFailure::ConnectionLost(_)
            ),
            Self::Refused { reply, .. } => matches!(reply.code.get(), 425 | 426),
            _ => false,
        }
    }

    /// What it leaves of a file may still be gone on with: nothing says that these bytes are wrong,
    /// or are not to be there.
    pub(crate) fn keeps_partial_file(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Transfer { failure, .. } => {
                !matches!(failure, TransferFailure::NotAuthenticated(_))
            }
            other => other.may_pass() || other.is_disk_full(),
        }
    }

    /// There is no room at the destination: whatever else goes there would fail too.
    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::DiskFull { .. } => true,
            Self::Local(failure)
            | Self::Transfer {
                failure: TransferFailure::Storage(failure),
                ..
            } => is_errno(failure, &[Errno::NOSPC, Errno::DQUOT]),
            other => other.refusal() == Some(FailureKind::NoSpace),
        }
    }

    /// True where the control connection cannot be used any further.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Control { .. }
            | Self::Unreachable { .. }
            | Self::Login { .. }
            | Self::Identity { .. } => true,
            Self::Refused { reply, .. } => reply.code.get() == 421,
            Self::Interrupted => true,
            _ => false,
        }
    }

    /// The thing concerned is not there.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Missing { .. }) || self.refusal() == Some(FailureKind::NotFound)
    }

    /// What kind of refusal a server's answer was, if it was one.
    pub(crate) fn refusal(&self) -> Option<FailureKind> {
        match self {
            Self::Refused { reply, .. } => failure_kind(reply),
            Self::Kept { error, .. } => error.refusal(),
            _ => None,
        }
    }

    /// Who must act; `None` where the user ended it.
    pub fn who(&self) -> Option<WhoActs> {
        Some(match self {
            Self::Usage(_)
            | Self::Resolve { .. }
            | Self::Missing { .. }
            | Self::Exists { .. }
            | Self::Changed { .. }
            | Self::Unfit { .. }
            | Self::Collides { .. } => WhoActs::User,
            Self::Unreachable { .. } | Self::Control { .. } => WhoActs::Network,
            Self::Login { reply, .. } if reply.code.is_transient() => WhoActs::Server,
            Self::Login { .. } | Self::Identity { .. } => WhoActs::User,
            Self::Refused { reply, .. } => match failure_kind(reply) {
                Some(FailureKind::NoSpace | FailureKind::Transient | FailureKind::Other) | None => {
                    WhoActs::Server
                }
                Some(_) => WhoActs::User,
            },
            Self::Transfer { failure, .. } => match failure {
                TransferFailure::Storage(_) | TransferFailure::Limit(_) => WhoActs::ThisMachine,
                TransferFailure::Protocol(_) => WhoActs::Server,
                TransferFailure::NotAuthenticated(_) => WhoActs::User,
                _ => WhoActs::Network,
            },
            Self::Size { .. } | Self::Mismatch(_) => WhoActs::Network,
            Self::MissingFeature { .. }
            | Self::LowPort { .. }
            | Self::HostileName { .. }
            | Self::Listing { .. }
            | Self::Mangled { .. } => WhoActs::Server,
            Self::Local(failure) if is_name(failure) => WhoActs::User,
            Self::Local(_) | Self::System { .. } => WhoActs::ThisMachine,
            Self::DiskFull { error, .. }
            | Self::Kept { error, .. }
            | Self::DataRefused { error, .. } => return error.who(),
            Self::Internal { .. } => WhoActs::Developers,
            Self::Interrupted => return None,
        })
    }

    /// What kind of failure it is, for programs: a name in snake case that stays.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Resolve { .. } => "host_not_found",
            Self::Unreachable { .. } => "unreachable",
            Self::Control { .. } => "connection_lost",
            Self::Login { reply, .. } if reply.code.is_transient() => "busy",
            Self::Login { .. } | Self::Identity { .. } => "credential",
            Self::Refused { reply, .. } => match failure_kind(reply) {
                Some(FailureKind::NotFound) => "not_found",
                Some(FailureKind::PermissionDenied) => "permission",
                Some(FailureKind::Exists) => "exists",
                Some(FailureKind::NotADirectory) => "not_a_directory",
                Some(FailureKind::IsADirectory) => "is_a_directory",
                Some(FailureKind::NoSpace) => "no_space",
                Some(FailureKind::NotSupported) => "not_supported",
                Some(FailureKind::Transient) => "busy",
                Some(FailureKind::Other) | None => "refused",
            },
            Self::Transfer { failure, .. } => match failure {
                TransferFailure::Storage(failure) => storage_code(failure),
                TransferFailure::NoConnection(_) => "data_unreachable",
                TransferFailure::NotAuthenticated(_) => "credential",
                TransferFailure::ConnectionLost(_) | TransferFailure::Aborted => "data_lost",
                TransferFailure::Protocol(_) => "protocol",
                TransferFailure::Checksum { .. } => "checksum",
                TransferFailure::Limit(_) => "limit",
            },
            Self::Size { .. } => "size",
            Self::Mismatch(_) => "checksum",
            Self::MissingFeature { .. } => "not_supported",
            Self::LowPort { .. } | Self::HostileName { .. } => "hostile",
            Self::DataRefused { .. } => "data_unreachable",
            Self::Listing { .. } => "listing",
            Self::Mangled { .. } | Self::Unfit { .. } => "unfit",
            Self::Collides { .. } => "collision",
            Self::DiskFull { .. } => "no_space",
            Self::Changed { .. } => "changed",
            Self::Missing { .. } => "not_found",
            Self::Local(failure) => storage_code(failure),
            Self::Interrupted => "interrupted",
            Self::Kept { error, .. } => error.code(),
            Self::Internal { .. } => "internal",
            Self::System { .. } => "system",
        }
    }

    /// The message and who must act, as shown to people.
    pub fn explained(&self) -> String {
        match (self, self.who()) {
            // Its message names the remedy.
            (Self::Identity { .. }, _) | (_, None) => self.to_string(),
            (_, Some(who)) => format!("{self}; {who}"),
        }
    }
}

/// [`Error::code`] of a failed operation on a file of this machine.
fn storage_code(failure: &StorageFailure) -> &'static str {
    match Errno::from_raw_os_error(failure.errno) {
        Errno::NOENT => "not_found",
        Errno::ACCESS | Errno::PERM | Errno::ROFS => "permission",
        Errno::EXIST => "exists",
        Errno::NOTDIR => "not_a_directory",
        Errno::ISDIR => "is_a_directory",
        Errno::NOSPC | Errno::DQUOT => "no_space",
        _ => "storage",
    }
}

fn is_permission(failure: &StorageFailure) -> bool {
    is_errno(failure, &[Errno::ACCESS, Errno::PERM, Errno::ROFS])
}

fn is_errno(failure: &StorageFailure, errnos: &[Errno]) -> bool {
    errnos.iter().any(|e| e.raw_os_error() == failure.errno)
}

/// Another path would do.
fn is_name(failure: &StorageFailure) -> bool {
    let name = [
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::EXIST,
        Errno::NAMETOOLONG,
    ];
    name.iter().any(|e| e.raw_os_error() == failure.errno)
}

/// What servers say that want a data connection to resume the TLS session of the control channel
/// and do not take the one that they gave, and how they are told not to.
const RESUMPTION: [(&str, &str); 2] = [
    (
        "SSL connection failed: session reuse required",
        "require_ssl_reuse=NO (vsftpd)",
    ),
    (
        "Unable to build data connection: Operation not permitted",
        "TLSOptions NoSessionReuseRequired (ProFTPD)",
    ),
];

/// What a reply means, then its own words.
fn describe_reply(reply: &Reply) -> String {
    let text = reply.text();
    if let Some((_, option)) = RESUMPTION
        .iter()
        .find(|(describe_reply, _)| text.contains(describe_reply))
    {
        return format!(
            "the server wants TLS sessions resumed for data, and takes none of its own: its \
             administrator can say {option}, or data can travel with --protect clear (server \
             said: {reply})"
        );
    }
    let meaning = match failure_kind(reply) {
        Some(FailureKind::NotFound) => "no such file or directory",
        Some(FailureKind::PermissionDenied) => "permission denied",
        Some(FailureKind::Exists) => "it exists already",
        Some(FailureKind::NotADirectory) => "not a directory",
        Some(FailureKind::IsADirectory) => "it is a directory",
        Some(FailureKind::NoSpace) => "no space left at the server",
        Some(FailureKind::NotSupported) => "the server does not offer this",
        Some(FailureKind::Transient) => "the server cannot do it now",
        Some(FailureKind::Other) | None => "the server refused",
    };
    format!("{meaning} (server said: {reply})")
}

fn login_refused(command: &str, reply: &Reply) -> String {
    let text = reply.text();
    if reply.code.get() == 530 && text.contains("GSSAPI") {
        return format!(
            "the server demands a grid identity: use gsiftp:// instead of ftp:// (server said: \
             {reply})"
        );
    }
    match command {
        "greeting" => format!("the server refused the connection (server said: {reply})"),
        "AUTH" | "ADAT" => {
            format!("the server does not trust our certificate (server said: {reply})")
        }
        "USER" | "PASS" => format!("login refused (server said: {reply})"),
        other => format!("{other} refused at login (server said: {reply})"),
    }
}

/// The most telling of the failures of one attempt: a full disk here explains a lost connection and
/// an unhappy server, the server's words explain a lost connection, and a lost connection explains
/// nothing but itself.
pub(crate) fn most_informative(errors: impl IntoIterator<Item = Error>) -> Option<Error> {
    errors.into_iter().min_by_key(|e| match e {
        Error::Interrupted | Error::Internal { .. } => 0,
        Error::Local(_)
        | Error::Transfer {
            failure:
                TransferFailure::Storage(_)
                | TransferFailure::Limit(_)
                | TransferFailure::NotAuthenticated(_),
            ..
        } => 1,
        Error::Refused { reply, .. } if reply.code.get() != 426 => 2,
        Error::Transfer {
            failure: TransferFailure::Protocol(_),
            ..
        } => 3,
        Error::Refused { .. } => 4,
        // A server that goes away takes its data connections along.
        Error::Control { .. } => 5,
        Error::Transfer {
            failure: TransferFailure::Aborted,
            ..
        } => 9,
        _ => 6,
    })
}

#[cfg(test)]
mod tests {
    use godwit_proto::ReplyCode;

    use super::*;

    fn refused(code: u16, text: &str) -> Error {
        Error::refused("store ftp://h/f", Reply::new(ReplyCode::of(code), text))
    }

    #[test]
    fn each_error_says_by_its_type_what_it_is_whether_it_may_pass_and_who_must_act() {
        let on_disk = |errno: Errno| Error::local("write /f", &errno.into());
        let lost = TransferFailure::ConnectionLost("reset".to_owned());
        let cases = [
            (
                Error::Usage("x".to_owned()),
                "usage",
                false,
                Some(WhoActs::User),
            ),
            (Error::Interrupted, "interrupted", false, None),
            (
                refused(550, "No such file or directory"),
                "not_found",
                false,
                Some(WhoActs::User),
            ),
            (
                refused(452, "full"),
                "no_space",
                false,
                Some(WhoActs::Server),
            ),
            (refused(450, "busy"), "busy", true, Some(WhoActs::Server)),
            (
                on_disk(Errno::NOSPC),
                "no_space",
                false,
                Some(WhoActs::ThisMachine),
            ),
            (
                on_disk(Errno::ISDIR),
                "is_a_directory",
                false,
                Some(WhoActs::User),
            ),
            (
                Error::Transfer {
                    doing: "fetch ftp://h/f".to_owned(),
                    failure: lost,
                },
                "data_lost",
                true,
                Some(WhoActs::Network),
            ),
        ];
        for (error, code, may_pass, who) in cases {
            let kept = Error::Kept {
                error: Box::new(error.clone()),
                kept: "it is complete at /g".to_owned(),
            };
            for error in [error, kept] {
                let answers = (error.code(), error.may_pass(), error.who());
                assert_eq!(answers, (code, may_pass, who), "{error}");
            }
        }
    }
}
