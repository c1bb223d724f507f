//! What passes between the interpreter and its shell.

use std::{net::SocketAddr, time::Duration};

use crate::{
    block_checksums::BlockChecksums,
    checksum::ChecksumAlgorithm,
    command::{Mode, NetworkProtocol, Password, Region, TypeCode},
    commit::Expected,
    error::{StorageFailure, TransferFailure},
    facts::{FactSelection, Facts},
    live::{Live, LiveReport},
    mode_e::layout::StripeLayout,
    path::FtpPath,
    range_set::RangeSet,
    restart::RestartPoint,
    security::{Dcau, MinProtection, Protection, Token},
    timestamp::Timestamp,
};

/// What a server is and allows, fixed for a session.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Greeting text without the code; several lines make a multi-line greeting.
    pub greeting: String,
    /// `SITE VERSION`.
    pub version: String,
    /// Host of the control connection's peer: EPSV `|||`, and the policy of PORT.
    pub peer: SocketAddr,
    /// Local address of the control connection: decides the family of EPSV and SPAS without
    /// argument.
    pub local: SocketAddr,
    /// Time without a command before `421`.
    pub idle_limit: Duration,
    /// Time for the dialogue before login is complete.
    pub login_limit: Duration,
    /// Failed logins before the session is closed.
    pub login_attempts_max: u32,
    /// Whether PORT, EPRT and SPOR may name hosts other than the peer, and data connections may
    /// come from there (needed for third-party transfers).
    pub foreign_data_hosts: bool,
    /// Most data channels of a transfer; OPTS RETR above it is cut to it.
    pub channels_max: u32,
    /// False: STOR and everything else that changes storage gets 550.
    pub writable: bool,
    /// Initial and home directory.
    pub home: FtpPath,
    /// AUTH GSSAPI is offered (RFC 2228): users prove who they are.
    pub gssapi: bool,
    /// AUTH TLS is offered (RFC 4217).
    pub tls: bool,
    /// [`TOKEN_USER`](crate::security::TOKEN_USER) may log in under TLS.
    pub tokens: bool,
    /// Another program (ssh) has authenticated the user and protects the control channel.
    pub private_channel: bool,
    /// Who may log in without any of these.
    pub clear_logins: ClearLogins,
    /// What data channels must have at least.
    pub min_protection: MinProtection,
    /// UNIX time at the `now` of [`ServerPi::new`](super::ServerPi::new): dates in 112 markers and
    /// STAT lines count from here.
    pub unix_time: Duration,
}

/// Who may log in before AUTH: names and passwords travel in clear then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClearLogins {
    /// No user.
    #[default]
    Never,
    /// Anonymous users: see [`is_anonymous`].
    Anonymous,
    /// All users.
    All,
}

/// What protects a control channel once AUTH has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// AUTH GSSAPI (RFC 2228).
    Gssapi,
    /// AUTH TLS (RFC 4217).
    Tls,
}

/// A name that identifies no user (RFC 1635; `ftp` by custom). Compared exactly, as names of
/// accounts are.
pub fn is_anonymous(user: &str) -> bool {
    matches!(user, "anonymous" | "ftp")
}

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// Bytes of the control connection.
    Bytes(&'a [u8]),
    /// After [`Output::Protect`]: a command came in clear, perhaps from an attacker.
    Unprotected,
    /// After [`Output::Protect`]: what came cannot be opened, and nothing behind it can. Only for
    /// AUTH GSSAPI: a broken TLS stream cannot carry a last reply.
    Unreadable,
    /// The control connection ended.
    Closed,
    /// `poll_timeout` has passed.
    Timeout,
    /// The server is going down: no new commands; 421 when idle.
    Shutdown,
    /// The outstanding [`Request`] has its result.
    Done(Result<Outcome, StorageFailure>),
    /// A checksum runs: bytes so far (asked for by OPTS CKSM Markers).
    ChecksumProgress(u64),
    /// First data connections are up (and authenticated): 150, or 125 where `reused`.
    TransferReady {
        /// Cached connections carry it.
        reused: bool,
    },
    /// Answer to [`Output::ReportProgress`].
    TransferProgress {
        /// Bytes moved for this transfer so far; for receipts, as written.
        bytes: u64,
        /// Bytes that became safe since the last report, relative to the region. Empty when
        /// sending.
        fresh: RangeSet,
    },
    /// Before `TransferProgress` and `TransferDone` of a transfer over several stripes: bytes that
    /// each has moved so far.
    TransferStripes(Vec<u64>),
    /// Answer to [`Output::Live`]: the transfer as it is now, or `None` where there is none that
    /// can be changed so.
    Live(Option<Box<LiveReport>>),
    /// The transfer is over; for a receipt the file is closed, and `fresh` holds the last ranges.
    TransferDone {
        /// Bytes moved.
        bytes: u64,
        /// Last news for 111.
        fresh: RangeSet,
        /// How it went.
        result: Result<(), TransferFailure>,
        /// The data connections survive for the next transfer (MODE E, no CLOSE, no error).
        cached: bool,
    },
}

/// What the shell must do.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Write to the control connection.
    Send(Vec<u8>),
    /// From here on replies are sent protected, and only what came protected is handed in as bytes.
    /// After [`Request::StartTls`] the peer's TLS handshake comes first.
    Protect,
    /// Carry out and answer with [`Input::Done`].
    Request(Request),
    /// This transfer waits in the queue and starts next, after the speculative ones before it. The
    /// shell may prepare it without side effects, and may begin it on the same data channel when
    /// the one before has succeeded.
    SpeculativeTransfer(TransferRequest),
    /// This request waits in the queue: the shell may carry it out when all speculative work before
    /// it is done, and keep the answer. A rename follows the `CheckExists` of its source,
    /// speculative or not, and must not be carried out where that failed.
    SpeculativeRequest(Request),
    /// The first speculative item does not come: a rename whose source does not exist.
    SkipSpeculative,
    /// No speculative item comes as announced: the shell discards what it prepared, and aborts a
    /// transfer that it began as by ABOR.
    DropSpeculative,
    /// Start; answer with `TransferReady` (once) and `TransferDone`.
    StartTransfer(TransferRequest),
    /// Stop the running transfer; `TransferDone` follows. Data connections are destroyed.
    AbortTransfer,
    /// Answer with `TransferProgress`.
    ReportProgress,
    /// Look at the running transfer or change its channels; answer with [`Input::Live`], in order.
    Live(Live),
    /// So many channels for the next transfer that is sent over the connections that wait; nothing
    /// is answered.
    NextChannels(u32),
    /// Forget the data channel object: close listener and connections.
    DropDataChannels,
    /// Write what was sent, then close the control connection.
    Close,
    /// A word for the log (SITE CLIENTINFO, TASKID).
    Note(String),
}

/// Work for the shell that is no transfer.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Request {
    /// Answer `Outcome::Account`, or `Outcome::Done` where the values of [`ServerConfig`] hold for
    /// everybody; else a failure with errno EACCES.
    Login {
        user: String,
        password: Password,
    },
    /// `Outcome::Facts`. Symbolic links are followed, `unix_slink` is filled.
    Stat(FtpPath),
    /// Is it a directory we may enter? `Outcome::Done`.
    ChangeDirectory(FtpPath),
    /// `Outcome::Listing` pages then `Outcome::Done`: see [`Outcome::Listing`].
    ListControl {
        path: FtpPath,
    },
    MakeDirectory(FtpPath),
    RemoveDirectory(FtpPath),
    RemoveFile(FtpPath),
    RemoveTree(FtpPath),
    /// The shell checks only that `from` exists (RNFR).
    CheckExists(FtpPath),
    Rename {
        from: FtpPath,
        to: FtpPath,
    },
    /// Gives `from` the modification time and the name `to` if it is what was expected:
    /// `Outcome::Done`, else `Outcome::Unlike`.
    Commit {
        from: FtpPath,
        to: FtpPath,
        expected: Expected,
    },
    SetModified {
        path: FtpPath,
        modify: Timestamp,
    },
    SetMode {
        path: FtpPath,
        mode: u32,
    },
    SetGroup {
        path: FtpPath,
        group: String,
    },
    Truncate {
        path: FtpPath,
        length: u64,
    },
    Symlink {
        target: FtpPath,
        link: FtpPath,
    },
    /// `Outcome::Checksum`. `length` `None`: to the end.
    Checksum {
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: FtpPath,
    },
    /// `Outcome::BlockChecksums`, of so many bytes each and at most
    /// [`crate::block_checksums::BLOCKS_MAX`]. `length` `None`: to the end.
    BlockChecksums {
        leaf: u64,
        offset: u64,
        length: Option<u64>,
        path: FtpPath,
    },
    /// Is there room for this many bytes where `path` is? `Outcome::Done` or ENOSPC.
    Reserve {
        bytes: u64,
        path: FtpPath,
    },
    /// Listen for data connections: `Outcome::Listening`.
    Listen(DataChannelSpec, NetworkProtocol),
    /// Remember peers to connect to at the next transfer: `Outcome::Done`.
    ConnectTo(DataChannelSpec, Vec<SocketAddr>),
    /// The next token of the handshake; `first`: of a new one. `Outcome::Adat`, else a failure
    /// whose text the peer is told.
    Adat {
        token: Token,
        first: bool,
    },
    /// Get ready for a TLS handshake on the control channel, which begins at [`Output::Protect`].
    /// `Outcome::Done`.
    StartTls,
    /// What data channels prove themselves with from now on (DCSC P); `None`: what was delegated
    /// again. `Outcome::Done`.
    DataContext(Option<Token>),
    /// Local account name, for SITE WHOAMI: `Outcome::Text`.
    WhoAmI,
}

/// Result of a [`Request`].
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Facts of the file.
    Facts(Box<Facts>),
    /// A page of a directory. `last` false: a further `Done(Ok(Listing))` follows without a new
    /// request.
    Listing {
        /// Entries.
        entries: Vec<(Facts, Vec<u8>)>,
        /// No page follows.
        last: bool,
    },
    /// Lower-case hex.
    Checksum(String),
    /// Another file than was expected: digests in lower-case hex, or sizes, like `12 bytes`.
    #[allow(missing_docs)]
    Unlike { found: String, expected: String },
    /// Digests of the parts of a file.
    BlockChecksums(BlockChecksums),
    /// Announced addresses, one per stripe.
    Listening(Vec<SocketAddr>),
    /// A word.
    Text(String),
    /// Who logged in is this account and may do that; replaces the values of [`ServerConfig`].
    #[allow(missing_docs)]
    Account { name: String, account: Account },
    /// A step of the handshake.
    Adat(AdatStep),
}

/// What became of a token of the handshake. Tokens for the peer are base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdatStep {
    /// The peer's next is awaited.
    More(String),
    /// The peer is known; there may be a last token for it.
    Established(Option<String>),
}

/// What depends on who logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Initial and home directory.
    pub home: FtpPath,
    /// See [`ServerConfig::writable`].
    pub writable: bool,
    /// See [`ServerConfig::foreign_data_hosts`].
    pub foreign_data_hosts: bool,
}

/// Everything that is copied into the data channel object when it is made (PASV, PORT and their
/// kin) and never read again for it: the only way both ends can agree on what cached channels are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChannelSpec {
    /// The client takes, or gives, several addresses (SPAS, SPOR).
    pub striped: bool,
    /// Channels the sender opens per address; 1 in MODE S.
    pub parallelism: u32,
    /// Layout over stripes.
    pub layout: Option<StripeLayout>,
    /// Who receives knows holes.
    pub holes: bool,
    /// TCP buffers, bytes; `None` leaves them to the kernel.
    pub socket_buffer_bytes: Option<u64>,
    /// Connections may come from other hosts than the control connection's.
    pub foreign_hosts: bool,
    /// Who must be at the other ends.
    pub dcau: Dcau,
    /// What protects the bytes; only with `dcau`.
    pub protection: Protection,
}

/// A transfer to start on the present data channel object.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferRequest {
    /// What moves.
    pub kind: TransferKind,
    /// MODE.
    pub mode: Mode,
    /// TYPE: ASCII converts line ends (never for listings: they are made with CRLF).
    pub type_code: TypeCode,
    /// Cached connections exist and must be used; none is opened before they are ready.
    pub reuse: bool,
}

/// What moves, and which way.
#[derive(Clone, Debug, PartialEq)]
pub enum TransferKind {
    /// RETR, ERET P. Ranges and block offsets are relative to the region.
    Send {
        /// File.
        path: FtpPath,
        /// ERET P.
        region: Option<Region>,
        /// REST.
        restart: Option<RestartPoint>,
    },
    /// STOR, APPE, ESTO A.
    Receive {
        /// File.
        path: FtpPath,
        /// How the file is opened and where offset 0 lies.
        placement: Placement,
        /// REST.
        restart: Option<RestartPoint>,
        /// ALLO.
        expected_bytes: Option<u64>,
        /// SCKS, STORATTR: verify before success.
        checksums: Vec<(ChecksumAlgorithm, String)>,
        /// STORATTR modify.
        modify: Option<Timestamp>,
    },
    /// LIST, NLST, MLSD, MLSR.
    List {
        /// Directory or file; a glob for LIST and NLST.
        path: FtpPath,
        /// Shape of the lines.
        form: ListForm,
    },
}

/// Where a receipt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// STOR: truncated, unless a restart leaves bytes that are already there.
    Replace,
    /// STOU: must not exist.
    New,
    /// APPE: offset 0 is the present end.
    Append,
    /// ESTO A: offset 0 is this byte; never truncated.
    At(u64),
}

/// Shape of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm {
    /// `ls -l` lines.
    Long,
    /// Names.
    Names,
    /// MLSD with these facts, `.` and `..` included.
    Facts(FactSelection),
    /// MLSR: the tree below, relative names.
    FactsRecursive {
        /// Facts.
        selection: FactSelection,
        /// Report unreadable directories and continue.
        continue_on_error: bool,
        /// Follow symbolic links (loops are cut).
        follow_links: bool,
    },
}
