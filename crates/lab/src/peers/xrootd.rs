//! `xrootd`, the server of another grid protocol, and `xrdcp`, its client.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use super::process::{Options, Process};
use super::usage::Usage;
use super::{Error, Tool};

/// The server.
pub const XROOTD: Tool = Tool::new("xrootd", "xrootd-server");

/// The client.
pub const XRDCP: Tool = Tool::new("xrdcp", "xrootd-client");

/// A running `xrootd`. Dropping it ends it.
#[derive(Debug)]
pub struct XrootdServer {
    process: Process,
    addr: SocketAddr,
    _folder: TempDir,
}

impl XrootdServer {
    /// Serves `root` under its own name. It refuses to run as root: it is the account `nobody`
    /// then, which needs access.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`], [`Error::TimedOut`].
    pub fn start(root: &Path, ip: IpAddr) -> Result<XrootdServer, Error> {
        super::on_a_free_port(ip, |addr| Self::start_at(root, addr))
    }

    fn start_at(root: &Path, addr: SocketAddr) -> Result<XrootdServer, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory for xrootd"))?;
        // The account `nobody` writes there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))
            .map_err(Error::os("open a directory to xrootd"))?;
        let own = folder.path().display();
        let text = format!(
            "all.export {}\nall.adminpath {own}\nall.pidpath {own}\nxrd.port {}\n",
            root.display(),
            addr.port()
        );
        let config = folder.path().join("xrootd.cfg");
        fs::write(&config, text).map_err(Error::os("write the configuration of xrootd"))?;
        let mut command = XROOTD.command()?;
        command.arg("-c").arg(&config).current_dir(folder.path());
        if rustix::process::geteuid().is_root() {
            command.args(["-R", "nobody"]);
        }
        let mut process = Process::spawn(command, Options::default())?;
        process.await_listening(addr, Process::log)?;
        Ok(XrootdServer {
            process,
            addr,
            _folder: folder,
        })
    }

    /// The URL of an absolute path of the machine.
    pub fn url(&self, path: &str) -> String {
        format!("root://{}/{path}", self.addr)
    }

    /// What it has cost so far.
    pub fn usage(&self) -> Usage {
        self.process.usage()
    }
}
