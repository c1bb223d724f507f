//! SITE sub-commands.

use crate::{path::FtpPath, timestamp::Timestamp};

/// `SITE ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the word is the documentation
pub enum Site {
    Help,
    /// `CLIENTINFO key="value";...`: for the log.
    ClientInfo(String),
    TaskId(String),
    Whoami,
    Version,
    Chmod {
        mode: u32,
        path: FtpPath,
    },
    Chgrp {
        group: String,
        path: FtpPath,
    },
    Utime {
        modify: Timestamp,
        path: FtpPath,
    },
    Truncate {
        length: u64,
        path: FtpPath,
    },
    RemoveTree(FtpPath),
    SymlinkFrom(FtpPath),
    SymlinkTo(FtpPath),
    /// `SITE SYMLINK target link`: split at the one blank; ambiguous with blanks inside names.
    Symlink {
        target: FtpPath,
        link: FtpPath,
    },
    /// `SBUF`, `RETRBUFSIZE`, `RBUFSZ`, `RBUFSIZ`, `STORBUFSIZE`, `SBUFSZ`, `SBUFSIZ`, `BUFSIZE`: all set both directions. The word is kept for writing.
    Buffer {
        word: String,
        bytes: u64,
    },
    /// `STORATTR modify=...;x.checksum.md5=...;`: for the next STOR.
    StorAttr {
        modify: Option<Timestamp>,
        checksums: Vec<(crate::checksum::ChecksumAlgorithm, String)>,
    },
    /// `DSI name`, `SETNETSTACK`, `SETDISKSTACK` and the rest, known and refused: word and argument.
    Refused {
        word: String,
        argument: String,
    },
}
