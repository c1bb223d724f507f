//! Where files go.

use std::{fmt, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use godwit_proto::FtpPath;

use crate::{
    error::{Error, Result},
    local::files,
    transfer::source_file::RemotePath,
};

/// A path at either end: the destination of a file and, in a sync, its source.
#[derive(Clone, Debug)]
pub(super) enum CopyPath {
    Here(PathBuf),
    There(RemotePath),
}

impl CopyPath {
    pub(super) fn join(&self, name: &[u8]) -> Result<Self> {
        Ok(match self {
            Self::Here(path) => Self::Here(path.join(files::path_of(name))),
            Self::There(at) => Self::There(RemotePath {
                endpoint: Arc::clone(&at.endpoint),
                path: join(&at.path, name)?,
            }),
        })
    }

    /// The last component; `None` for a root and for what ends in `..`.
    pub(super) fn file_name(&self) -> Option<Vec<u8>> {
        match self {
            Self::Here(path) => path.file_name().map(|name| name.as_bytes().to_vec()),
            Self::There(at) => at.path.file_name().map(<[u8]>::to_vec),
        }
    }

    /// True if it is new.
    pub(super) fn make_here(&self) -> Result<bool> {
        match self {
            Self::Here(path) => files::make_directory(path),
            Self::There(_) => Ok(false),
        }
    }

    /// Its path at its end.
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Here(path) => path.as_os_str().as_bytes(),
            Self::There(at) => at.path.as_bytes(),
        }
    }

    /// Where it is, if that is in a bucket.
    pub(super) fn in_bucket(&self) -> Option<&RemotePath> {
        match self {
            Self::There(at) if at.endpoint.is_bucket() => Some(at),
            Self::There(_) | Self::Here(_) => None,
        }
    }

    pub(super) fn path_there(&self) -> Option<FtpPath> {
        match self {
            Self::Here(_) => None,
            Self::There(at) => Some(at.path.clone()),
        }
    }
}

impl fmt::Display for CopyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(path) => path.display().fmt(f),
            Self::There(at) => f.write_str(&at.url()),
        }
    }
}

pub(super) fn join(directory: &FtpPath, name: &[u8]) -> Result<FtpPath> {
    directory.join(name).map_err(|e| {
        let name = format!("{:?}", String::from_utf8_lossy(name));
        Error::unfit(name, format!("cannot be named at a server: {e}"))
    })
}
