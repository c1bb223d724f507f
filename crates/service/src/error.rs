//! Why a process of the service cannot continue.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{agent::AgentError, credentials::sealing::SealError, store::StoreError};

/// Why a process of the service cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Flags or file.
    #[error("{0}")]
    Usage(String),
    /// A file of our own.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An address that cannot be listened on.
    #[error("{address}: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// Certificate, key or CAs of TLS.
    #[error("TLS: {0}")]
    Tls(#[from] openssl::error::ErrorStack),
    /// No HTTP client can be made.
    #[error("HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// The key of the installation.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl ServiceError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |error| Self::File { path, error }
    }
}
