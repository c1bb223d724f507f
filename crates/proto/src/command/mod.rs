//! Commands of the control channel (RFC 959, 2389, 2428, 3659, GFD.020, GCT's own).

mod parse;
#[cfg(test)]
mod tests;
mod write;

use std::{fmt, net::SocketAddr};

use zeroize::Zeroizing;

use crate::{
    checksum::ChecksumAlgorithm,
    opts::Opts,
    path::FtpPath,
    reply::{Reply, ReplyCode},
    restart::RestartPoint,
    site::Site,
    text::printable,
    timestamp::Timestamp,
};

/// A password; `Debug` and `Display` print stars, and its memory is overwritten when it goes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Zeroizing::new(secret.into()))
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
    /// `S`: raw bytes, close is the end (RFC 959 §3.4.1).
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
    /// First byte of the file.
    pub offset: u64,
    /// Bytes.
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
/// Parsed by [`Command::parse`], written by [`Command::write_to`]; `parse(write(c)) == c`, but for
/// options.
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
    /// `LANG` without argument is `LANG EN`.
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
    /// `LIST -a` of the working directory: with names that begin with a dot, where the server takes
    /// options. [`Command::parse`] drops them.
    ListAll,
    /// `NLST -a`, likewise.
    NlstAll,
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
    /// `value` in lower case, padded with zeros on the left to the algorithm's digits.
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
    /// STOR under a name that the server chooses.
    Stou,
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
    /// AUTH, ADAT, PBSZ, PROT, DCAU, DCSC, MIC, ENC, CONF, CCC. The verb, upper case, and the rest
    /// of the line (masked by `Debug` is the shell's duty: never log it).
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
    /// 501 in most cases.
    #[error("{verb}: {reason}")]
    Syntax {
        /// Verb, upper case.
        verb: String,
        /// What is wrong: `too few arguments`, or the text of the reply.
        reason: String,
    },
    /// 504 in most cases: the verb is known, this parameter is not offered.
    #[error("{verb}: parameter {parameter:?} is not offered")]
    Parameter {
        /// Verb.
        verb: String,
        /// Parameter as sent, control bytes removed.
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
    /// Parses a line without its CRLF. A path is the rest of the line behind one blank, with all
    /// its blanks; leading blanks of other arguments are skipped, arguments that a command does not
    /// take are ignored.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        parse::command(line)
    }

    /// Appends the line with CRLF. What no control channel can carry (CR, LF, NUL in a text)
    /// becomes a blank; CR in a path is followed by NUL and byte 255 is doubled, as Telnet wants it
    /// and [`crate::line::LineReader`] undoes it. A path that would be read as something else (a
    /// leading blank, which many servers skip, or `-` in LIST) is written with `./` before it.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        write::command(self, out);
    }

    /// The verb, upper case (`SITE` for all of them).
    pub fn verb(&self) -> &str {
        write::verb(self)
    }

    /// The line as a log may show it: secrets (PASS, security arguments) as stars, lossy text, no
    /// CRLF.
    pub fn masked(&self) -> String {
        match self {
            Self::Pass(_) => "PASS ***".to_owned(),
            Self::Security { verb, argument } if !argument.is_empty() => {
                if SHOWN_SECURITY_VERBS.contains(&verb.as_str()) {
                    format!(
                        "{verb} {}",
                        printable(argument.as_bytes(), MASKED_CHARS_MAX)
                    )
                } else {
                    format!("{verb} ***")
                }
            }
            Self::Site(Site::Refused { word, argument }) if !argument.is_empty() => {
                format!("SITE {word} ***")
            }
            _ => {
                let mut line = Vec::new();
                self.write_to(&mut line);
                line.truncate(line.len().saturating_sub(2));
                printable(&line, MASKED_CHARS_MAX)
            }
        }
    }

    /// True for live requests: answered at once and out of turn, see [`crate::live`].
    pub fn is_live_request(&self) -> bool {
        matches!(self, Self::Site(Site::Live(_)))
    }

    /// True for commands that read a whole file before they are answered.
    pub fn is_checksum(&self) -> bool {
        matches!(
            self,
            Self::Cksm { .. } | Self::Site(Site::BlockChecksums { .. })
        )
    }

    /// True for commands that move data over the data channel: replies may begin with 1xx.
    pub fn is_transfer(&self) -> bool {
        matches!(
            self,
            Self::Retr(_)
                | Self::Stor(_)
                | Self::Stou
                | Self::Appe(_)
                | Self::Eret { .. }
                | Self::Esto { .. }
                | Self::List(_)
                | Self::Nlst(_)
                | Self::ListAll
                | Self::NlstAll
                | Self::Mlsd(_)
                | Self::Mlsr(_)
        )
    }
}

/// Characters of a line that a log gets to see.
const MASKED_CHARS_MAX: usize = 1000;

/// Security commands whose arguments are no secrets: a mechanism, a size, a level, a name.
const SHOWN_SECURITY_VERBS: &[&str] = &["AUTH", "PBSZ", "PROT", "DCAU", "CCC"];

/// Every verb, as HELP lists them. Not here: ACCT (superfluous), old words for others, and the
/// security commands, which FEAT tells where they are offered. [`crate::site::WORDS`] lists the
/// words of SITE.
pub const VERBS: &[&str] = &[
    "ABOR", "ALLO", "APPE", "CDUP", "CKSM", "CWD", "DELE", "EPRT", "EPSV", "ERET", "ESTO", "FEAT",
    "HELP", "LANG", "LIST", "MDTM", "MFMT", "MKD", "MLSC", "MLSD", "MLSR", "MLST", "MODE", "NLST",
    "NOOP", "OPTS", "PASS", "PASV", "PORT", "PWD", "QUIT", "REST", "RETR", "RMD", "RNFR", "RNTO",
    "SBUF", "SCKS", "SITE", "SIZE", "SPAS", "SPOR", "STAT", "STOR", "STOU", "STRU", "SYST", "TREV",
    "TYPE", "USER",
];

/// Reason of a [`CommandError::Syntax`] for a missing argument.
pub(crate) const TOO_FEW: &str = "too few arguments";

impl CommandError {
    /// The reply it earns: GCT's words, which some clients compare.
    pub fn reply(&self) -> Reply {
        let reply = |code, text: &str| Reply::new(code, text);
        match self {
            Self::UnknownVerb(verb) if verb.starts_with("SITE ") => reply(C500, "Invalid command."),
            Self::UnknownVerb(_) => reply(C500, "Command not supported."),
            Self::Syntax { reason, .. } if reason == TOO_FEW => {
                reply(C501, "Syntax error in parameters or arguments.")
            }
            Self::Syntax { verb, reason } => match verb.as_str() {
                "OPTS" => reply(C500, "OPTS failed."),
                "CKSM" => reply(C500, reason),
                "SBUF" => reply(C502, reason),
                _ => reply(C501, reason),
            },
            Self::Parameter { verb, .. } => match verb.as_str() {
                "OPTS" => reply(C500, "OPTS failed."),
                "CKSM" | "SCKS" => reply(C500, "Unknown checksum algorithm requested."),
                "TREV" => reply(C502, "Unsupported event."),
                _ => reply(C504, "Command not implemented for that parameter."),
            },
            Self::NetworkProtocol { .. } => {
                reply(C522, "Network protocol not supported, use (1,2).")
            }
        }
    }
}

const C500: ReplyCode = ReplyCode::of(500);
const C501: ReplyCode = ReplyCode::of(501);
const C502: ReplyCode = ReplyCode::of(502);
const C504: ReplyCode = ReplyCode::of(504);
const C522: ReplyCode = ReplyCode::of(522);
