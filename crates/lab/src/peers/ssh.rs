//! OpenSSH's server with keys of its own, for clients that copy through ssh: `scp` and `rclone`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::{Options, Process};
use super::usage::Usage;
use super::{Error, Tool};

/// The server.
pub const SSHD: Tool = Tool::new("sshd", "openssh-server");

/// Copies files through it.
pub const SCP: Tool = Tool::new("scp", "openssh-client");

/// The client of both; says which version of OpenSSH it is.
pub const SSH: Tool = Tool::new("ssh", "openssh-client");

const SSH_KEYGEN: Tool = Tool::new("ssh-keygen", "openssh-client");

/// The fastest cipher that it has where processors know AES.
pub const CIPHER: &str = "aes128-gcm@openssh.com";

/// A running `sshd` that lets in the user who started it. Dropping it ends it.
#[derive(Debug)]
pub struct SshServer {
    process: Process,
    addr: SocketAddr,
    folder: TempDir,
}

impl SshServer {
    /// Makes keys and listens on a free port of `ip`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::Failed`] where no key can be made,
    /// [`Error::EndedEarly`], [`Error::TimedOut`].
    pub fn start(ip: IpAddr) -> Result<SshServer, Error> {
        super::on_a_free_port(ip, Self::start_at)
    }

    fn start_at(addr: SocketAddr) -> Result<SshServer, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory for sshd"))?;
        for name in ["host_key", "user_key"] {
            let key = folder.path().join(name);
            let arguments = ["-q", "-t", "ed25519", "-N", "", "-f"].map(Path::new);
            SSH_KEYGEN
                .run(arguments.into_iter().chain([key.as_path()]))?
                .success()?;
        }
        let all = folder.path().display();
        let host_key = fs::read_to_string(folder.path().join("host_key.pub"))
            .map_err(Error::os("read a key of sshd"))?;
        let files = [
            (
                "sshd_config",
                format!(
                    "ListenAddress {addr}\nHostKey {all}/host_key\n\
                     AuthorizedKeysFile {all}/user_key.pub\nStrictModes no\n\
                     UsePAM no\nPidFile none\nPasswordAuthentication no\n\
                     KbdInteractiveAuthentication no\n\
                     PermitRootLogin yes\nSubsystem sftp internal-sftp\n"
                ),
            ),
            (
                "ssh_config",
                format!(
                    "Host *\n IdentityFile {all}/user_key\n IdentitiesOnly yes\n IdentityAgent \
                     none\n \
                     UserKnownHostsFile {all}/known_hosts\n GlobalKnownHostsFile /dev/null\n \
                     StrictHostKeyChecking yes\n LogLevel ERROR\n Port {}\n Ciphers {CIPHER}\n",
                    addr.port()
                ),
            ),
            (
                "known_hosts",
                format!("[{}]:{} {host_key}", addr.ip(), addr.port()),
            ),
        ];
        for (name, text) in files {
            fs::write(folder.path().join(name), text)
                .map_err(Error::os("write the configuration of sshd"))?;
        }
        if rustix::process::geteuid().is_root() {
            // Without it sshd does not start; its package makes it when the system starts the
            // daemon.
            fs::create_dir_all("/run/sshd").map_err(Error::os("make /run/sshd"))?;
        }
        let mut command = SSHD.command()?;
        command.args(["-D", "-e", "-f"]);
        command.arg(folder.path().join("sshd_config"));
        let mut process = Process::spawn(command, Options::default())?;
        process.await_listening(addr, Process::log)?;
        Ok(SshServer {
            process,
            addr,
            folder,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Settings for OpenSSH's clients: port, keys and cipher.
    pub fn client_config(&self) -> PathBuf {
        self.folder.path().join("ssh_config")
    }

    /// The key that it lets in.
    pub fn user_key(&self) -> PathBuf {
        self.folder.path().join("user_key")
    }

    /// What it and its sessions have cost so far. A session counts once it is reaped, a moment
    /// after its connection closed.
    pub fn usage(&self) -> Usage {
        self.process.usage()
    }
}
