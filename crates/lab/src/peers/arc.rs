//! ARC, the middleware of NorduGrid: its client's commands, and its GridFTP server. Found with
//! 6.17:
//!
//! - `arccp` leaves data channels unproven (DCAU N) without `--secure`, which is PROT P.
//! - The server begins with PROT P, and protects the last reply of the handshake already, which
//!   others send in clear. Its replies are wrapped whole, with a NUL behind them. It has neither
//!   REST STREAM nor markers.
//! - The server takes every client's data connection and answers 150 before it has come. Under load
//!   it closes one in about a hundred before or in the handshake, in MODE S with PASV, and says
//!   nothing.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::{Options, Process, Signal};
use super::{Error, Missing, Tool, free_port};

const CLIENT: &str = "nordugrid-arc-client";
const PLUGIN: &str = "nordugrid-arc-plugins-gridftp";
const SERVER: Tool = Tool::new("gridftpd", "nordugrid-arc-gridftpd");

/// `arccp`; `--secure` protects data channels, `;threads=N` behind the URL's host sets how many.
pub const COPY: Tool = Tool::new("arccp", CLIENT);
/// `arcls`, `-l` with facts.
pub const LS: Tool = Tool::new("arcls", CLIENT);
/// `arcmkdir`.
pub const MKDIR: Tool = Tool::new("arcmkdir", CLIENT);
/// `arcrename`.
pub const RENAME: Tool = Tool::new("arcrename", CLIENT);
/// `arcrm`.
pub const RM: Tool = Tool::new("arcrm", CLIENT);

/// How often a port is tried that another process may have taken meanwhile.
const ATTEMPTS: usize = 5;

/// Whether the client's commands are there, and what lets them speak GridFTP.
///
/// # Errors
/// [`Missing`], which names the package.
pub fn client_available() -> Result<(), Missing> {
    COPY.available()?;
    let plugin = "/usr/lib/arc/arc-dmcgridftp";
    if Path::new(plugin).exists() {
        return Ok(());
    }
    Err(Missing {
        program: plugin.to_owned(),
        package: format!("the package {PLUGIN}"),
    })
}

/// Whether the server is there.
///
/// # Errors
/// [`Missing`], which names the package.
pub fn server_available() -> Result<(), Missing> {
    SERVER.available().map(drop)
}

/// Settings of the server: it needs all of them.
#[derive(Debug, Clone)]
pub struct ArcConfig {
    /// What clients see as `/`; they write there as the server's own user, who must be root.
    pub root: PathBuf,
    /// The host's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The directory of trusted CAs.
    pub authorities: PathBuf,
}

/// A running server of ARC's that lets everybody in whose certificate is good. Dropping it ends it
/// and its sessions.
#[derive(Debug)]
pub struct ArcServer {
    process: Process,
    addr: SocketAddr,
    folder: TempDir,
}

impl ArcServer {
    /// Starts the server and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`] with its own words,
    /// [`Error::TimedOut`].
    pub fn start(config: &ArcConfig) -> Result<ArcServer, Error> {
        let mut attempt = 1;
        loop {
            match ArcServer::start_once(config) {
                Err(Error::EndedEarly { .. }) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    fn start_once(config: &ArcConfig) -> Result<ArcServer, Error> {
        let ip = Ipv4Addr::LOCALHOST.into();
        let addr = SocketAddr::new(ip, free_port(ip)?);
        let folder = TempDir::new().map_err(Error::os("make a directory"))?;
        let file = folder.path().join("conf");
        fs::write(&file, settings(config, addr, folder.path()))
            .map_err(Error::os("write the configuration of ARC's server"))?;
        let mut command = SERVER.command()?;
        command.arg("-F").arg("-c").arg(file);
        let mut process = Process::spawn(command, Options::default())?;
        // Its settings decide whether its log says so.
        process.await_listening(addr, |process| said(process, folder.path()))?;
        Ok(ArcServer {
            process,
            addr,
            folder,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it printed and logged so far.
    pub fn log(&self) -> String {
        said(&self.process, self.folder.path())
    }
}

/// It leaves the process group that it was started in.
impl Drop for ArcServer {
    fn drop(&mut self) {
        // One that has ended needs no signal.
        let _ = self.process.signal(Signal::KILL);
    }
}

fn said(process: &Process, folder: &Path) -> String {
    let logged = fs::read(folder.join("log")).unwrap_or_default();
    format!("{}{}", process.log(), String::from_utf8_lossy(&logged))
}

fn settings(config: &ArcConfig, addr: SocketAddr, folder: &Path) -> String {
    let ArcConfig {
        root,
        certificate,
        key,
        authorities,
    } = config;
    format!(
        "[common]\n\
         hostname=localhost\n\
         x509_host_cert={certificate}\n\
         x509_host_key={key}\n\
         x509_cert_dir={authorities}\n\
         [authgroup:all]\n\
         all=yes\n\
         [mapping]\n\
         map_to_user=all root:root\n\
         [gridftpd]\n\
         port={port}\n\
         allowencryption=yes\n\
         loglevel=4\n\
         logfile={folder}/log\n\
         pidfile={folder}/pid\n\
         [gridftpd/filedir]\n\
         allowaccess=all\n\
         path=/\n\
         mount={root}\n\
         dir=/ nouser read cd dirlist delete append overwrite create *:* 664:664 mkdir *:* \
         775:775\n",
        certificate = certificate.display(),
        key = key.display(),
        authorities = authorities.display(),
        port = addr.port(),
        folder = folder.display(),
        root = root.display(),
    )
}
