//! What a request that the shell has not answered yet is for.

use std::time::Instant;

use crate::{command::NetworkProtocol, path::FtpPath, timestamp::Timestamp};

/// Why a request is outstanding: decides how its result becomes a reply.
#[derive(Debug)]
pub(super) enum Purpose {
    Login {
        user: String,
    },
    ChangeDirectory(FtpPath),
    MakeDirectory(FtpPath),
    RenameFrom(FtpPath),
    Size,
    ModifyTime,
    /// MLST: the name as it was asked for.
    Facts(FtpPath),
    /// STAT of a path.
    Status(FtpPath),
    /// MFMT.
    SetModified {
        modify: Timestamp,
        path: FtpPath,
    },
    /// Whatever says `250 OK.`
    Change,
    Checksum(ChecksumRun),
    WhoAmI,
    /// MLSC.
    ListControl(ControlListing),
    Passive(PassiveForm),
    Active,
    Adat,
    /// AUTH TLS.
    StartTls,
    /// DCSC.
    DataContext,
}

#[derive(Debug, Default)]
pub(super) struct ChecksumRun {
    /// When the last 113 was sent.
    pub(super) reported_at: Option<Instant>,
}

/// Which command asked to listen: decides the shape of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassiveForm {
    Pasv,
    Epsv(Option<NetworkProtocol>),
    Spas(Option<NetworkProtocol>),
}

/// An MLSC under way.
#[derive(Debug)]
pub(super) struct ControlListing {
    pub(super) path: FtpPath,
}
