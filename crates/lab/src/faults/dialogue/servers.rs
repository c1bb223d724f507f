//! The servers of the dialogue faults, each started once.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::Error;
use crate::file_error::io_error;
use crate::peers::ftps::{self, FtpsServer};
use crate::peers::godwit::Godwitd;

/// Of those who have one.
pub(super) const PASSWORD: &str = "sesame";

/// Which server. Not pyftpdlib (1.5.7): now and then it resets data connections that reach it
/// together with all their data, as a proxy passes them on, and answers nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerKind {
    Godwitd,
    Vsftpd,
    Proftpd,
    PureFtpd,
}

impl ServerKind {
    pub(super) const ALL: [ServerKind; 4] = [
        ServerKind::Godwitd,
        ServerKind::Vsftpd,
        ServerKind::Proftpd,
        ServerKind::PureFtpd,
    ];

    fn plain(self) -> Option<ftps::Kind> {
        match self {
            ServerKind::Godwitd => None,
            ServerKind::Vsftpd => Some(ftps::Kind::Vsftpd),
            ServerKind::Proftpd => Some(ftps::Kind::Proftpd),
            ServerKind::PureFtpd => Some(ftps::Kind::PureFtpd),
        }
    }

    /// Those that can be started here; ours always, as nothing can be tried without it.
    pub(super) fn here() -> Vec<ServerKind> {
        let root = rustix::process::geteuid().is_root();
        let here = ServerKind::ALL
            .into_iter()
            .filter(|program| match program.plain() {
                None => true,
                Some(ftps::Kind::Proftpd | ftps::Kind::PureFtpd) if !root => false,
                Some(kind) => kind.program().is_ok(),
            });
        here.collect()
    }
}

/// A running server.
#[derive(Debug)]
pub(super) enum RunningServer {
    Godwitd { server: Godwitd, root: TempDir },
    Plain { server: FtpsServer, root: PathBuf },
}

impl RunningServer {
    pub(super) fn start(program: ServerKind) -> Result<RunningServer, Error> {
        match program.plain() {
            None => {
                let root = TempDir::new().map_err(io_error(Path::new("a temporary directory")))?;
                let server = Godwitd::serving(root.path()).start()?;
                Ok(RunningServer::Godwitd { server, root })
            }
            Some(kind) => {
                let server = FtpsServer::start(kind, false)?;
                let root = server.at("");
                let root = fs::canonicalize(&root).map_err(io_error(&root))?;
                Ok(RunningServer::Plain { server, root })
            }
        }
    }

    /// The directory that it serves.
    pub(super) fn root(&self) -> &Path {
        match self {
            RunningServer::Godwitd { root, .. } => root.path(),
            RunningServer::Plain { root, .. } => root,
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        match self {
            RunningServer::Godwitd { server, .. } => server.addr(),
            RunningServer::Plain { server, .. } => server.addr(),
        }
    }

    /// The account whose files it serves, where it is not ours.
    pub(super) fn owner(&self) -> Option<u32> {
        match self {
            RunningServer::Godwitd { .. } => None,
            RunningServer::Plain { server, .. } => server.owner(),
        }
    }

    /// The URL of a directory below its root, for clients that reach it at another address.
    pub(super) fn url(&self, addr: SocketAddr, top: &Path) -> String {
        let name = top.strip_prefix(self.root()).unwrap_or(top).display();
        match self {
            RunningServer::Godwitd { .. } => format!("ftp://{addr}/{name}/"),
            RunningServer::Plain { server, .. } => {
                let path = server.path(&format!("{name}/"));
                format!("ftp://{}@{addr}{path}", server.login())
            }
        }
    }

    pub(super) fn log(&self) -> String {
        match self {
            RunningServer::Godwitd { server, .. } => server.log(),
            RunningServer::Plain { server, .. } => server.log(),
        }
    }
}
