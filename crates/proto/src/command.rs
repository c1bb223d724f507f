//! Commands of the control channel (RFC 959, 2389, 2428, 3659, GFD.020, GCT's own).

use std::{fmt, net::SocketAddr};

use crate::{
    checksum::ChecksumAlgorithm, opts::Opts, path::FtpPath, restart::RestartPoint, site::Site,
    timestamp::Timestamp,
};

/// A password; `Debug` and `Display` print stars.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(String);

impl Password {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
    /// The secret itself, for the wire and for checking.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeCode {
    /// `A`, `A N`.
    Ascii,
    /// `I`, `L 8`.
    Image,
}

/// MODE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `S`: raw octets, close is the end (RFC 959 §3.4.1).
    Stream,
    /// `E`: extended block mode (GFD.020).
    ExtendedBlock,
}

/// Address family asked for by EPSV and SPAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkProtocol {
    /// `1`.
    Ipv4,
    /// `2`.
    Ipv6,
}

/// Argument of EPSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpsvArgument {
    /// None: the control connection's family.
    Any,
    /// `1` or `2`.
    Protocol(NetworkProtocol),
    /// `ALL` (RFC 2428 §4).
    All,
}

/// Part of a file that ERET sends: `ERET P offset length path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First octet of the file.
    pub offset: u64,
    /// Octets.
    pub length: u64,
}

/// What TREV names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerEvent {
    /// `RESTART`: 111.
    Restart,
    /// `PERF`: 112.
    Performance,
}

/// A command with its arguments.
///
/// Parsed by [`Command::parse`], written by [`Command::write_to`]; `parse(write(c)) == c`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the verb is the documentation; arguments are typed
pub enum Command {
    User(String),
    Pass(Password),
    Acct,
    Quit,
    Noop,
    Help(Option<String>),
    Feat,
    Opts(Opts),
    Syst,
    Lang(String),
    Stat(Option<FtpPath>),
    Pwd,
    Cwd(FtpPath),
    Cdup,
    Mkd(FtpPath),
    Rmd(FtpPath),
    Dele(FtpPath),
    Rnfr(FtpPath),
    Rnto(FtpPath),
    Size(FtpPath),
    Mdtm(FtpPath),
    Mfmt {
        modify: Timestamp,
        path: FtpPath,
    },
    Mlst(Option<FtpPath>),
    Mlsd(Option<FtpPath>),
    Mlsr(Option<FtpPath>),
    Mlsc(Option<FtpPath>),
    /// Arguments that begin with `-` have been dropped.
    List(Option<FtpPath>),
    Nlst(Option<FtpPath>),
    Type(TypeCode),
    Mode(Mode),
    StruFile,
    Rest(RestartPoint),
    Allo(u64),
    /// `length` `None` is -1: to the end.
    Cksm {
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: FtpPath,
    },
    Scks {
        algorithm: ChecksumAlgorithm,
        value: String,
    },
    Pasv,
    Epsv(EpsvArgument),
    Spas(Option<NetworkProtocol>),
    Port(SocketAddr),
    Eprt(SocketAddr),
    Spor(Vec<SocketAddr>),
    Retr(FtpPath),
    Stor(FtpPath),
    Appe(FtpPath),
    Eret {
        region: Region,
        path: FtpPath,
    },
    Esto {
        offset: u64,
        path: FtpPath,
    },
    Trev {
        event: MarkerEvent,
        seconds: u32,
    },
    Sbuf(u64),
    Abor,
    Site(Site),
    /// AUTH, ADAT, PBSZ, PROT, DCAU, DCSC, MIC, ENC, CONF, CCC: known words, not offered yet.
    /// The verb, upper case, and the rest of the line (masked by `Debug` is the shell's duty: never log it).
    Security {
        verb: String,
        argument: String,
    },
}

/// Why a line is no command we can run; each maps to one reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// 500.
    #[error("command {0:?} is not known")]
    UnknownVerb(String),
    /// 501.
    #[error("{verb}: {reason}")]
    Syntax {
        /// Verb, upper case.
        verb: String,
        /// What is wrong, e.g. `too few arguments`.
        reason: String,
    },
    /// 504: the verb is known, this parameter is not offered.
    #[error("{verb}: parameter {parameter:?} is not offered")]
    Parameter {
        /// Verb.
        verb: String,
        /// Parameter as sent, control octets removed.
        parameter: String,
    },
    /// 522: address family.
    #[error("{verb}: network protocol not supported, use (1,2)")]
    NetworkProtocol {
        /// Verb.
        verb: String,
    },
}

impl Command {
    /// Parses a line without its CRLF.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let _ = line;
        todo!()
    }

    /// Appends the line with CRLF.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }

    /// The verb, upper case (`SITE` for all of them).
    pub fn verb(&self) -> &str {
        todo!()
    }

    /// The line as a log may show it: secrets (PASS, security arguments) as stars, lossy text, no CRLF.
    pub fn masked(&self) -> String {
        todo!()
    }

    /// True for commands that move data over the data channel: replies may begin with 1xx.
    pub fn is_transfer(&self) -> bool {
        todo!()
    }
}

/// Every verb, as HELP lists them.
pub const VERBS: &[&str] = &[];

impl CommandError {
    /// The reply it earns.
    pub fn reply(&self) -> crate::reply::Reply {
        todo!()
    }
}
