//! Why a server cannot start.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{access::gsi::GsiError, observe::audit::AuditError};

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A socket of the service manager (`LISTEN_FDS`) cannot be served.
    #[error("cannot serve socket {number} of LISTEN_FDS: {error}")]
    HandedOver {
        /// Which, from 0.
        number: usize,
        /// Why.
        error: io::Error,
    },
    /// The settings name addresses, and the service manager provides sockets.
    #[error(
        "listen: systemd provides the sockets (LISTEN_FDS): name addresses in its unit or here, \
         not in both"
    )]
    ListenTwice,
    /// The root cannot be served.
    #[error("cannot serve {path}: {error}")]
    Root {
        /// Which.
        path: PathBuf,
        /// Why.
        error: godwit_proto::error::StorageFailure,
    },
    /// No token of an issuer could be verified.
    #[error("cannot use the keys of a token issuer in {path}: {error}")]
    Keys {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The password file cannot be used.
    #[error("cannot use password file {path}: {error}")]
    Passwords {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// GSI cannot be set up.
    #[error(transparent)]
    Gsi(#[from] GsiError),
    /// The session that sshd started cannot run.
    #[error("--ssh: cannot {doing}: {error}")]
    Ssh {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// Privileges cannot be separated.
    #[error("cannot separate privileges: {0}")]
    Separation(String),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Metrics cannot be served.
    #[error("cannot listen on {address} for metrics: {error}")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
}
