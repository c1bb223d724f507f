//! A file to be copied: where it is, where it goes, and what is known of it.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc};

use godwit_proto::{ChecksumAlgorithm, FtpPath, pi::transfer::Direction};

use crate::{
    endpoint::{Endpoint, naming::NameRefused},
    error::{Error, Result},
    local::{
        attributes::FileAttributes,
        files,
        journal::{CompletedFile, RESUME_BYTES_MIN},
    },
    report::events::{ByteSource, Computed},
    spec::{Part, SharedUpload},
};

/// One file to be copied.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) remote: FtpPath,
    pub(crate) other: Peer,
    /// Bytes of the whole file; `None`: not known, or it is a device.
    pub(crate) size: Option<u64>,
    /// When the source last changed: seconds at servers, nanoseconds here; `None` where the
    /// server does not report it.
    pub(crate) changed: Option<i64>,
    /// What the copy is to have of its source beside the bytes.
    pub(crate) attributes: Option<FileAttributes>,
    /// What its checksum must be.
    pub(crate) expected: Option<Arc<(ChecksumAlgorithm, String)>>,
    /// Nothing is at its target: the directory there was made for this copy.
    pub(crate) is_new: bool,
    /// Where a copy of it lies that an earlier run has begun.
    pub(crate) begun: Option<Vec<u8>>,
    /// That copy has all bytes, and other jobs may still look at it.
    pub(crate) is_assembled: bool,
    /// The upload to a bucket that this copy is, or that it sends a part of.
    pub(crate) upload: Option<SharedUpload>,
    /// How often it was in flight among others when its session was given up.
    pub(crate) pipeline_failures: u8,
    /// A name under which a put was begun, and which the server refused.
    pub(crate) name_refused: Option<NameRefused>,
}

/// The other end of a copy, and which way it goes.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A get.
    To(LocalEnd),
    /// A put.
    From(Origin),
}

/// Where a put comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Here(LocalEnd),
    /// Another server: the bytes go from one to the other and do not pass here.
    Server(RemotePath),
}

/// Something at a server.
#[derive(Clone, Debug)]
pub(crate) struct RemotePath {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) path: FtpPath,
}

impl RemotePath {
    /// For messages.
    pub(crate) fn url(&self) -> String {
        self.endpoint.url(&self.path)
    }
}

/// Our end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    Path(PathBuf),
    /// Standard input or output.
    Standard,
}

impl SourceFile {
    /// Which way bytes go, seen from the endpoint.
    pub(crate) fn direction(&self) -> Direction {
        match self.other {
            Peer::To(_) => Direction::Get,
            Peer::From(_) => Direction::Put,
        }
    }

    /// The server that sends to the endpoint, where one does.
    pub(crate) fn sender(&self) -> Option<&Arc<Endpoint>> {
        match &self.other {
            Peer::From(Origin::Server(source)) => Some(&source.endpoint),
            Peer::To(_) | Peer::From(Origin::Here(_)) => None,
        }
    }

    /// What its checksums are computed from.
    pub(crate) fn computed(&self) -> Computed {
        let here = |end: &LocalEnd| match (end, self.direction()) {
            // What has no size is read once: a pipe.
            (LocalEnd::Path(_), Direction::Put) if self.size.is_none() => ByteSource::ClientStream,
            (LocalEnd::Path(_), _) => ByteSource::ClientFile,
            (LocalEnd::Standard, _) => ByteSource::ClientStream,
        };
        let (source, destination) = match &self.other {
            Peer::To(end) => (ByteSource::ServerFile, here(end)),
            Peer::From(Origin::Here(end)) => (here(end), ByteSource::ServerFile),
            Peer::From(Origin::Server(_)) => (ByteSource::ServerFile, ByteSource::ServerFile),
        };
        Computed {
            source,
            destination,
        }
    }

    /// The source, for messages and logs.
    pub(crate) fn source(&self) -> String {
        match &self.other {
            Peer::To(_) => self.endpoint.url(&self.remote),
            Peer::From(Origin::Here(source)) => source.to_string(),
            Peer::From(Origin::Server(source)) => source.url(),
        }
    }

    /// The line of the journal; `None` where nothing would tell whether the source has changed
    /// since.
    pub(crate) fn completed(&self) -> Option<CompletedFile> {
        let (size, changed) = (self.size?, self.changed?);
        Some(CompletedFile::new(
            size,
            changed,
            &self.source(),
            &self.target(),
        ))
    }

    /// That a file of ours is still what it was when it was compared with its copy. A copy that
    /// gets the time of its source must not get it for other bytes.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let gets_time = self
            .attributes
            .is_some_and(|attributes| attributes.modified.is_some());
        match !gets_time || self.is_unchanged()? {
            true => Ok(()),
            false => Err(Error::Changed {
                what: self.source(),
            }),
        }
    }

    /// A file of ours is still what it was when it was planned.
    pub(crate) fn is_unchanged(&self) -> Result<bool> {
        let Peer::From(Origin::Here(LocalEnd::Path(path))) = &self.other else {
            return Ok(true);
        };
        let now = files::stat(path)?;
        Ok(now.is_some_and(|now| Some(now.len()) == self.size && changed(&now) == self.changed))
    }

    /// When the source last changed, in whole seconds.
    pub(crate) fn modified_seconds(&self) -> Option<i64> {
        match self.other {
            Peer::From(Origin::Here(_)) => self.changed.map(|at| at.div_euclid(1_000_000_000)),
            Peer::From(Origin::Server(_)) | Peer::To(_) => self.changed,
        }
    }

    /// The destination, likewise.
    pub(crate) fn target(&self) -> String {
        match &self.other {
            Peer::To(target) => target.to_string(),
            Peer::From(_) => self.endpoint.url(&self.remote),
        }
    }
}

impl std::fmt::Display for LocalEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.write_str(&path.to_string_lossy()),
            Self::Standard => f.write_str("standard input"),
        }
    }
}

/// When a file of this machine last changed, nanoseconds; `None` where 64 bits do not hold it.
pub(crate) fn changed(metadata: &fs::Metadata) -> Option<i64> {
    let whole = metadata.mtime().checked_mul(1_000_000_000)?;
    whole.checked_add(metadata.mtime_nsec())
}

/// A copy of it that an earlier run has begun is not thrown away.
pub(crate) fn is_worth_resuming(file: &SourceFile, part: Option<Part>) -> bool {
    part.is_none() && file.size.is_some_and(|size| size > RESUME_BYTES_MIN)
}

/// True for a device at a server: its size means nothing. Servers list devices as files, so the
/// place tells: right in `/dev`, not in folders below it, where memory file systems are mounted.
pub(crate) fn is_device(path: &FtpPath) -> bool {
    match path.as_bytes().strip_prefix(b"/dev/") {
        Some(name) => !name.is_empty() && !name.contains(&b'/') && name != b"shm",
        None => false,
    }
}
