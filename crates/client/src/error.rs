//! Errors of the client: what failed, who must act, and the exit status.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use godwit_engine::control::ControlError;
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Reply,
    error::{FailureKind, StorageFailure, TransferFailure, failure_kind},
};
use rustix::io::Errno;

/// Result of client operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something failed. A message is one line, names the operation and its object, and never holds
/// a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// A host name cannot be resolved.
    #[error("{endpoint}: cannot find host {host}: {error}")]
    Resolve {
        /// URL without path.
        endpoint: String,
        /// As given.
        host: String,
        /// The resolver's error.
        error: Arc<io::Error>,
    },
    /// No control connection was established; the error of the last address.
    #[error("{endpoint}: {error}")]
    Unreachable {
        /// URL without path.
        endpoint: String,
        /// Why.
        error: ControlError,
    },
    /// The control connection was lost during an operation.
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
        /// The command that was refused.
        command: &'static str,
        /// The answer.
        reply: Box<Reply>,
    },
    /// The client has no usable credential, or does not trust the server's. The reason names the
    /// remedy.
    #[error("{doing}: {reason}")]
    Identity {
        /// URL without path, or the operation.
        doing: String,
        /// Why.
        reason: String,
    },
    /// The server refused a command.
    #[error("{doing}: {}", describe_reply(.reply))]
    Refused {
        /// Verb and URL.
        doing: String,
        /// The answer.
        reply: Box<Reply>,
        /// True once data flowed: then even a reply that looks permanent may be transient.
        started: bool,
    },
    /// The data transfer failed.
    #[error("{doing}: {failure}")]
    Transfer {
        /// Verb and URL.
        doing: String,
        /// Why.
        failure: TransferFailure,
    },
    /// Both ends report success, and the sizes differ.
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
    /// Both ends have the same bytes, which are not those that the user has named.
    #[error("{doing}: both ends have {found}, and {expected} was expected")]
    WrongChecksum {
        /// Verb and URL.
        doing: String,
        /// `ALGORITHM:hex`.
        found: String,
        /// Hexadecimal.
        expected: String,
    },
    /// The server lacks a requested feature.
    #[error("{endpoint}: the server has no {feature}: {consequence}")]
    MissingFeature {
        /// URL without path.
        endpoint: String,
        /// Command or feature.
        feature: String,
        /// What is impossible without it.
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
    /// The host has no address that the run may connect to ([`AddressScope`]).
    ///
    /// [`AddressScope`]: crate::spec::addresses::AddressScope
    #[error("{endpoint}: leads to {address}, and connections there are not allowed")]
    AddressRefused {
        /// URL without path.
        endpoint: String,
        /// The first address of the host.
        address: IpAddr,
    },
    /// A server named a file in a way that could reach outside the directory copied.
    #[error("{directory}: refused the name {name:?} that the server lists: {why}")]
    HostileName {
        /// URL of the directory.
        directory: String,
        /// Lossy.
        name: String,
        /// Why it is refused.
        why: &'static str,
    },
    /// Not tried, since no data connection of the server worked for a while.
    #[error(
        "{endpoint}: no data connection worked for {transfers} transfers in a row, each tried \
         until its attempts were used up, so nothing more is sent or fetched there: {error}"
    )]
    DataRefused {
        /// URL without path.
        endpoint: String,
        /// How many.
        transfers: u32,
        /// The error of the last one.
        error: Box<Error>,
    },
    /// A listing of a server is malformed.
    #[error("{doing}: {why}")]
    Listing {
        /// Verb and URL.
        doing: String,
        /// Why, with the limit.
        why: String,
    },
    /// The server read another name than was sent.
    #[error("{url}: the server changes bytes of this name, it would be {seen:?}")]
    Mangled {
        /// The URL that was sent.
        url: String,
        /// The name as the server reads it, lossy.
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
    /// A source changed after its comparison with the destination.
    #[error("{what}: changed meanwhile; the same command copies it again")]
    Changed {
        /// URL or path.
        what: String,
    },
    /// A service has ended an upload to a bucket of which several jobs send parts.
    #[error("{what}: the service has ended the upload in parts")]
    UploadEnded {
        /// URL of the object, or of the temporary file.
        what: String,
    },
    /// A source cannot be copied to its destination because of its type or name: a file onto a
    /// directory, a name with a line end.
    #[error("{what}: {why}")]
    Unfit {
        /// URL or path.
        what: String,
        /// Why it is refused.
        why: String,
    },
    /// A path does not exist.
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
    /// A file did not get its final name; neither it nor the file of that name was removed.
    #[error("{error}; {kept}")]
    Kept {
        /// Why not.
        error: Box<Error>,
        /// Where the files are.
        kept: String,
    },
    /// A bug of ours: a task or a thread panicked.
    #[error("{doing}: internal error: {why}")]
    Internal {
        /// The operation.
        doing: String,
        /// The panic's message.
        why: String,
    },
    /// The operating system refused a thread, a socket or the like.
    #[error("{doing}: {error}")]
    System {
        /// The operation.
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
    /// Hexadecimal; with the number of bytes, where known.
    pub ours: String,
    /// The same.
    pub theirs: String,
    /// Where they differ, in bytes of the copied part; empty if unknown.
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
    /// 0: everything is complete.
    Done,
    /// 1: some files failed, the others are complete.
    Partly,
    /// 2: wrong usage.
    Usage,
    /// 3: refused: identity or permission.
    Refused,
    /// 4: failed: network, storage, protocol.
    Failed,
    /// 124: the time that the user gave for a wait is over.
    TimedOut,
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
            Self::TimedOut => 124,
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

    /// A failed operation on a local file.
    pub fn local(doing: impl Into<String>, error: &io::Error) -> Self {
        // The text of io::Error ends in "(os error 13)", which helps no reader.
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

    /// The exit status of a process with this one failure.
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
            // 553 refuses a name. vsftpd also sends it for missing permissions.
            Self::Refused { reply, .. } => match failure_kind(reply) {
                Some(FailureKind::PermissionDenied) => Exit::Refused,
                Some(FailureKind::Other) if reply.code.get() == 553 => Exit::Refused,
                _ => Exit::Failed,
            },
            _ if self.storage().is_some_and(is_permission) => Exit::Refused,
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
                // GCT answers nearly every failure during a transfer with 500.
                Some(FailureKind::Other | FailureKind::NotSupported) => *started,
                _ => false,
            },
            // A local disk gets as many attempts as that of a server, which sends 451.
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

    /// A data connection was not established, or broke.
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

    /// The partial file can be resumed: the error does not put its bytes in doubt.
    pub(crate) fn keeps_partial_file(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Transfer { failure, .. } => {
                !matches!(failure, TransferFailure::NotAuthenticated(_))
            }
            // With other credentials the same command goes on.
            Self::Refused { reply, .. } | Self::Login { reply, .. } if reply.code.get() == 530 => {
                true
            }
            other => other.may_pass() || other.is_disk_full(),
        }
    }

    /// The destination is full: every further file would fail, too.
    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
            || (self.storage()).is_some_and(|f| is_errno(f, &[Errno::NOSPC, Errno::DQUOT]))
            || self.refusal() == Some(FailureKind::NoSpace)
    }

    /// The failed operation on a local file.
    fn storage(&self) -> Option<&StorageFailure> {
        match self {
            Self::Local(failure)
            | Self::Transfer {
                failure: TransferFailure::Storage(failure),
                ..
            } => Some(failure),
            _ => None,
        }
    }

    /// True if the control connection cannot be used any further.
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

    /// The file or directory does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing { .. }) || self.refusal() == Some(FailureKind::NotFound)
    }

    /// The server does not do such things, or has no such thing.
    pub(crate) fn is_unsupported(&self) -> bool {
        self.refusal() == Some(FailureKind::NotSupported)
    }

    /// The kind of the server's refusal, if it is one.
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
            | Self::AddressRefused { .. }
            | Self::WrongChecksum { .. }
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
            | Self::UploadEnded { .. }
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

    /// The kind of failure, for programs: a stable name in snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Resolve { .. } => "host_not_found",
            Self::AddressRefused { .. } => "address_refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Control { .. } => "connection_lost",
            Self::Login { reply, .. } if reply.code.is_transient() => "busy",
            Self::Login { .. } | Self::Identity { .. } => "credential",
            Self::Refused { reply, .. } => refusal_code(reply).0,
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
            Self::Mismatch(_) | Self::WrongChecksum { .. } => "checksum",
            Self::MissingFeature { .. } => "not_supported",
            Self::LowPort { .. } | Self::HostileName { .. } => "hostile",
            Self::DataRefused { .. } => "data_unreachable",
            Self::Listing { .. } => "listing",
            Self::Mangled { .. } | Self::Unfit { .. } => "unfit",
            Self::Collides { .. } => "collision",
            Self::DiskFull { .. } => "no_space",
            Self::Changed { .. } => "changed",
            Self::UploadEnded { .. } => "upload_ended",
            Self::Exists { .. } => "exists",
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

/// [`Error::code`] of a failed operation on a local file.
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

/// True if another path would help.
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

/// Replies of servers that require data connections to resume the TLS session of the control
/// channel but refuse the session they gave, and the option that turns this off.
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

/// The meaning of a reply, then its text.
fn describe_reply(reply: &Reply) -> String {
    let text = reply.text();
    if let Some((_, option)) = RESUMPTION
        .iter()
        .find(|(refusal, _)| text.contains(refusal))
    {
        return format!(
            "the server wants TLS sessions resumed for data, and takes none of its own: its \
             administrator can say {option}, or data can travel with --protect clear (server \
             said: {reply})"
        );
    }
    let (_, meaning) = refusal_code(reply);
    format!("{meaning} (server said: {reply})")
}

/// [`Error::code`] of a refusal, and its meaning.
fn refusal_code(reply: &Reply) -> (&'static str, &'static str) {
    match failure_kind(reply) {
        Some(FailureKind::NotFound) => ("not_found", "no such file or directory"),
        Some(FailureKind::PermissionDenied) => ("permission", "permission denied"),
        Some(FailureKind::Exists) => ("exists", "it exists already"),
        Some(FailureKind::NotADirectory) => ("not_a_directory", "not a directory"),
        Some(FailureKind::IsADirectory) => ("is_a_directory", "it is a directory"),
        Some(FailureKind::NoSpace) => ("no_space", "no space left at the server"),
        Some(FailureKind::NotSupported) => ("not_supported", "the server does not offer this"),
        Some(FailureKind::Transient) => ("busy", "the server cannot do it now"),
        Some(FailureKind::Other) | None => ("refused", "the server refused"),
    }
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

/// The most informative failure of one attempt: a full local disk explains a lost connection and a
/// server's refusal, a refusal explains a lost connection, and a lost connection explains only
/// itself.
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
        // A server that disconnects closes its data connections, too.
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
    fn each_error_has_a_code_a_retry_answer_and_an_actor() {
        let on_disk = |errno: Errno| Error::local("write /f", &errno.into());
        let [user, server] = [WhoActs::User, WhoActs::Server].map(Some);
        let usage = Error::Usage("x".to_owned());
        let lost = Error::Transfer {
            doing: "fetch ftp://h/f".to_owned(),
            failure: TransferFailure::ConnectionLost("reset".to_owned()),
        };
        let absent = refused(550, "No such file or directory");
        let (full, directory) = (on_disk(Errno::NOSPC), on_disk(Errno::ISDIR));
        let cases = [
            (usage, "usage", false, user),
            (Error::Interrupted, "interrupted", false, None),
            (absent, "not_found", false, user),
            (refused(452, "full"), "no_space", false, server),
            (refused(450, "busy"), "busy", true, server),
            (full, "no_space", false, Some(WhoActs::ThisMachine)),
            (directory, "is_a_directory", false, user),
            (lost, "data_lost", true, Some(WhoActs::Network)),
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
