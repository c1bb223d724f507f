//! SITE sub-commands.

use crate::{commit::Commit, live::Live, path::FtpPath, timestamp::Timestamp};

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
    /// `SITE SYMLINK target link`: split at the one blank; refused where a name holds a blank,
    /// since it is not known where to split.
    Symlink {
        target: FtpPath,
        link: FtpPath,
    },
    /// `SBUF`, `RETRBUFSIZE`, `RBUFSZ`, `RBUFSIZ`, `STORBUFSIZE`, `SBUFSZ`, `SBUFSIZ`, `BUFSIZE`:
    /// all set both directions. The word is kept for writing.
    Buffer {
        word: String,
        bytes: u64,
    },
    /// `STORATTR modify=...;x.checksum.md5=...;`: for the next STOR.
    StorAttr {
        modify: Option<Timestamp>,
        checksums: Vec<(crate::checksum::ChecksumAlgorithm, String)>,
    },
    /// `GODWIT CHANNELS n k`, `GODWIT REPORT`.
    Live(Live),
    /// `GODWIT NEXT n`: `n` data channels (at least 1) from the next transfer on.
    NextChannels(u32),
    /// `GODWIT COMMIT facts path`.
    Commit(Commit),
    /// `GODWIT LEAVES CRC32C leaf offset length path`: see [`crate::block_checksums`].
    BlockChecksums {
        /// Bytes of a leaf, at least [`crate::block_checksums::BLOCK_BYTES_MIN`].
        leaf: u64,
        offset: u64,
        /// `None`: to the end.
        length: Option<u64>,
        path: FtpPath,
    },
    /// `SETNETSTACK`, `SETDISKSTACK`: XIO drivers of GCT's server, `,` between them.
    Stack {
        word: String,
        drivers: String,
    },
    /// `DSI name` and the rest, known and refused: word and argument.
    Refused {
        word: String,
        argument: String,
    },
}

/// Words that name TCP buffers; each sets both directions.
pub const BUFFER_WORDS: &[&str] = &[
    "SBUF",
    "RETRBUFSIZE",
    "RBUFSZ",
    "RBUFSIZ",
    "STORBUFSIZE",
    "SBUFSZ",
    "SBUFSIZ",
    "BUFSIZE",
];

/// Words that choose XIO drivers, each with the drivers that stand for what we do anyway.
pub(crate) const STACK_WORDS: &[(&str, &[&str])] = &[
    ("SETDISKSTACK", &["default", "file"]),
    ("SETNETSTACK", &["default", "tcp", "gsi"]),
];

/// Words of SITE that do something, as SITE HELP lists them. GCT's client looks for some of them
/// before it uses them.
pub const WORDS: &[&str] = &[
    "BUFSIZE",
    "CHGRP",
    "CHMOD",
    "CLIENTINFO",
    "GODWIT",
    "HELP",
    "RBUFSIZ",
    "RBUFSZ",
    "RDEL",
    "RETRBUFSIZE",
    "SBUF",
    "SBUFSIZ",
    "SBUFSZ",
    "SETDISKSTACK",
    "SETNETSTACK",
    "STORATTR",
    "STORBUFSIZE",
    "SYMLINK",
    "SYMLINKFROM",
    "SYMLINKTO",
    "TASKID",
    "TRNC",
    "UTIME",
    "VERSION",
    "WHOAMI",
];

/// Words of GCT's server that are known here and always refused.
pub(crate) const REFUSED_WORDS: &[&str] = &[
    "AUTHZ_ASSERT",
    "CHROOT",
    "DSI",
    "FAULT",
    "HTTP",
    "RESTRICT",
    "SHARING",
    "UPAS",
    "UPRT",
];
