//! Where what is found at a server goes.

use std::{path::PathBuf, sync::Arc};

use godwit_proto::FtpPath;

use super::{AtServer, put::join};
use crate::{error::Result, local};

/// Where what is found at a server goes.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    Here(PathBuf),
    There(AtServer),
}

impl Goal {
    pub(super) fn join(&self, name: &[u8]) -> Result<Self> {
        Ok(match self {
            Self::Here(path) => Self::Here(path.join(local::path_of(name))),
            Self::There(at) => Self::There(AtServer {
                endpoint: Arc::clone(&at.endpoint),
                path: join(&at.path, name)?,
            }),
        })
    }

    pub(super) fn make_here(&self) -> Result<()> {
        match self {
            Self::Here(path) => local::make_directory(path),
            Self::There(_) => Ok(()),
        }
    }

    pub(super) fn path_there(&self) -> Option<FtpPath> {
        match self {
            Self::Here(_) => None,
            Self::There(at) => Some(at.path.clone()),
        }
    }
}
