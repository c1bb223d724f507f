//! Why a server cannot start.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use rustix::io::Errno;

use crate::{access::gsi::GsiError, nodes::tls::NodeTlsError, observe::audit::AuditError};

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
    /// The file of keys of S3 cannot be used.
    #[error("cannot use the S3 keys {path}: {error}")]
    S3Keys {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// GSI cannot be set up.
    #[error(transparent)]
    Gsi(#[from] GsiError),
    /// Front end and data nodes cannot prove to one another who they are.
    #[error(transparent)]
    NodeTls(NodeTlsError),
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

/// Who must act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoActs {
    /// The administrator of the server: a setting, or a file that a setting names.
    Administrator,
    /// The administrator of the machine: its limits, memory or disks.
    Machine,
    /// The administrator and the developers: a process of the server broke the rules, because an
    /// attacker controls it or because it has a bug.
    Security,
}

impl fmt::Display for WhoActs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Administrator => "check the settings",
            Self::Machine => "check this machine",
            Self::Security => "an attacker controls one of its processes, or godwitd has a bug",
        })
    }
}

impl ServerError {
    /// Who must act so that the server starts. [`crate::config::ConfigError`] is always the
    /// administrator's.
    pub fn who(&self) -> WhoActs {
        match self {
            Self::Listen { error, .. } | Self::Metrics { error, .. } if is_exhausted(error) => {
                WhoActs::Machine
            }
            Self::Ssh { .. } => WhoActs::Machine,
            Self::Listen { .. }
            | Self::HandedOver { .. }
            | Self::ListenTwice
            | Self::Root { .. }
            | Self::Keys { .. }
            | Self::Passwords { .. }
            | Self::S3Keys { .. }
            | Self::Gsi(_)
            | Self::Separation(_)
            | Self::Audit(_)
            | Self::NodeTls(_)
            | Self::Metrics { .. } => WhoActs::Administrator,
        }
    }
}

/// The machine has no more descriptors or memory.
fn is_exhausted(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_blamed_only_for_what_it_lacks() {
        let listen = |errno: Errno| ServerError::Listen {
            address: "[::]:2811".parse().unwrap(),
            error: errno.into(),
        };
        assert_eq!(listen(Errno::ADDRINUSE).who(), WhoActs::Administrator);
        assert_eq!(listen(Errno::ACCESS).who(), WhoActs::Administrator);
        assert_eq!(listen(Errno::MFILE).who(), WhoActs::Machine);
        assert_eq!(ServerError::ListenTwice.who(), WhoActs::Administrator);
    }
}
