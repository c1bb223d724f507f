//! Ordinary FTP servers with TLS (RFC 4217), which may be met in clear too: vsftpd, ProFTPD,
//! Pure-FTPd and pyftpdlib. Found with 3.0.3, 1.3.8, 1.0.50 and 1.5.7:
//!
//! - The first two want a data connection to resume the TLS session of the control channel unless
//!   configured otherwise, and answer others with 522 and 425 behind 150.
//! - ProFTPD, once it has agreed to an RNFR, takes nothing but RNTO.
//! - None knows MODE E. vsftpd has no MLST.
//! - Pure-FTPd refuses logins of root. It announces no SITE CHMOD, and has it.
//! - pyftpdlib needs PyOpenSSL for TLS.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    Error, Missing, RUN_TIMEOUT, Tool,
    grid::OPENSSL,
    on_a_free_port,
    process::{self, Options, Process},
};

const VSFTPD: Tool = Tool::new("vsftpd", "vsftpd");
const PROFTPD: Tool = Tool::new("proftpd", "proftpd-core");
const PURE_FTPD: Tool = Tool::new("pure-ftpd", "pure-ftpd");
/// Debian's Python, which alone sees Debian's modules.
const PYTHON: &str = "/usr/bin/python3";
/// The program made of the library.
const PYFTPDLIB: &str = include_str!("pyftpdlib.py");
const PURE_PW: Tool = Tool::new("pure-pw", "pure-ftpd");

/// Debian lets one FTP server be installed. Where `scripts/install-test-deps.sh` unpacks others.
const BESIDE: &str = "/usr/local/lib/godwit-peers";

/// An account that owns nothing, on every distribution that has the servers.
const NOBODY: u32 = 65_534;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// vsftpd, where anonymous users may do everything.
    Vsftpd,
    /// ProFTPD, with the user `jo` and the password `sesame`. It wants to be started by root.
    Proftpd,
    /// Pure-FTPd, with the same user, who sees the directory as `/`. It wants to be started by
    /// root.
    PureFtpd,
    /// A server of pyftpdlib, with the same user, who sees the directory as `/`.
    Pyftpdlib,
}

/// A program that may be unpacked beside what is installed.
fn beside(tool: Tool, path: &str) -> Result<PathBuf, Missing> {
    let unpacked = Path::new(BESIDE).join(path);
    match unpacked.is_file() {
        true => Ok(unpacked),
        false => tool.available(),
    }
}

impl Kind {
    /// The program to start.
    ///
    /// # Errors
    /// [`Missing`], which names the package.
    pub fn program(self) -> Result<PathBuf, Missing> {
        match self {
            Self::Vsftpd => VSFTPD.available(),
            Self::Proftpd => beside(PROFTPD, "usr/sbin/proftpd"),
            Self::PureFtpd => {
                beside(PURE_PW, "usr/bin/pure-pw")?;
                beside(PURE_FTPD, "usr/sbin/pure-ftpd")
            }
            Self::Pyftpdlib => {
                for (module, package) in [
                    ("pyftpdlib", "python3-pyftpdlib"),
                    ("OpenSSL", "python3-openssl"),
                ] {
                    let found = Path::new("/usr/lib/python3/dist-packages").join(module);
                    if !found.is_dir() {
                        return Err(Missing {
                            program: format!("{PYTHON} with {module}"),
                            package: format!("the package {package}"),
                        });
                    }
                }
                Ok(PYTHON.into())
            }
        }
    }

    /// How the tests' user is called.
    pub fn login(self) -> &'static str {
        match self {
            Self::Vsftpd => "anonymous",
            Self::Proftpd | Self::PureFtpd | Self::Pyftpdlib => "jo",
        }
    }

    /// It demands that data connections resume a session, or not.
    fn resumption(self, demanded: bool) -> &'static str {
        match (self, demanded) {
            (Self::Vsftpd, true) => "require_ssl_reuse=YES",
            (Self::Vsftpd, false) => "require_ssl_reuse=NO",
            (Self::Proftpd, true) | (Self::PureFtpd | Self::Pyftpdlib, _) => "",
            (Self::Proftpd, false) => "TLSOptions NoSessionReuseRequired",
        }
    }
}

/// What a server refuses besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuses {
    /// Nothing.
    Nothing,
    /// Sessions beyond the first.
    MoreSessions,
    /// Every change. Pure-FTPd refuses none by its settings.
    Changes,
}

impl Refuses {
    /// Lines of a settings file of a server whose folder this is.
    fn settings(self, kind: Kind, folder: &Path) -> String {
        match (self, kind) {
            (Self::MoreSessions, Kind::Vsftpd) => "max_clients=1\n".to_owned(),
            // It counts sessions in a file.
            (Self::MoreSessions, Kind::Proftpd) => {
                let scoreboard = folder.join("scoreboard");
                format!("ScoreboardFile {}\nMaxClients 1\n", scoreboard.display())
            }
            (Self::Changes, Kind::Vsftpd) => "write_enable=NO\n".to_owned(),
            (Self::Changes, Kind::Proftpd) => "<Limit WRITE>\nDenyAll\n</Limit>\n".to_owned(),
            _ => String::new(),
        }
    }

    /// What Pure-FTPd and pyftpdlib may have of sessions. The latter counts its listener.
    fn sessions_max(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::MoreSessions, Kind::Pyftpdlib) => "2",
            (Self::MoreSessions, _) => "1",
            (Self::Nothing | Self::Changes, _) => "1000",
        }
    }

    /// What pyftpdlib calls permissions.
    fn permissions(self) -> &'static str {
        match self {
            Self::Changes => "elr",
            Self::Nothing | Self::MoreSessions => "elradfmwMT",
        }
    }
}

/// A running server, which serves a directory of its own. Dropping it ends it and its sessions.
#[derive(Debug)]
pub struct FtpsServer {
    kind: Kind,
    process: Process,
    addr: SocketAddr,
    folder: TempDir,
}

impl FtpsServer {
    /// Starts a server and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`] with its own words,
    /// [`Error::TimedOut`].
    pub fn start(kind: Kind, demands_resumption: bool) -> Result<Self, Error> {
        Self::start_with(kind, demands_resumption, &[])
    }

    /// The same with further settings: lines of the file, and of Pure-FTPd arguments.
    ///
    /// # Errors
    /// As [`FtpsServer::start`].
    pub fn start_with(kind: Kind, demands_resumption: bool, more: &[&str]) -> Result<Self, Error> {
        on_a_free_port(Ipv4Addr::LOCALHOST.into(), |addr| {
            Self::start_at(kind, demands_resumption, Refuses::Nothing, more, addr)
        })
    }

    /// The same, of a server that refuses more than others.
    ///
    /// # Errors
    /// As [`FtpsServer::start`].
    pub fn start_that(kind: Kind, refuses: Refuses) -> Result<Self, Error> {
        on_a_free_port(Ipv4Addr::LOCALHOST.into(), |addr| {
            Self::start_at(kind, false, refuses, &[], addr)
        })
    }

    fn start_at(
        kind: Kind,
        demands_resumption: bool,
        refuses: Refuses,
        more: &[&str],
        addr: SocketAddr,
    ) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory"))?;
        let at = |name: &str| folder.path().join(name);
        let os = || Error::os("prepare an FTP server");
        fs::create_dir(at("data")).map_err(os())?;
        OPENSSL
            .run([
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=lab",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-keyout",
                &text(&at("key.pem")),
                "-out",
                &text(&at("cert.pem")),
            ])?
            .success()?;
        let mut settings = match kind {
            Kind::Vsftpd => vsftpd(addr, folder.path()),
            Kind::Proftpd => {
                let user = password_line(&at("data"))?;
                fs::write(at("users"), user).map_err(os())?;
                let mode = fs::Permissions::from_mode(0o600);
                fs::set_permissions(at("users"), mode).map_err(os())?;
                proftpd(addr, folder.path())
            }
            Kind::PureFtpd => {
                // Its sessions are those of an account that owns nothing else.
                let open = fs::Permissions::from_mode(0o755);
                fs::set_permissions(folder.path(), open).map_err(os())?;
                chown(at("data"), Some(NOBODY), Some(NOBODY)).map_err(os())?;
                let pair = [at("key.pem"), at("cert.pem")].map(fs::read);
                let [key, certificate] = pair;
                let both = [key.map_err(os())?, certificate.map_err(os())?].concat();
                fs::write(at("pair.pem"), both).map_err(os())?;
                fs::write(at("users"), pure_password_line(&at("data"))?).map_err(os())?;
                let mut made = std::process::Command::new(beside(PURE_PW, "usr/bin/pure-pw")?);
                made.arg("mkdb").arg(at("base")).arg("-f").arg(at("users"));
                process::run(made, RUN_TIMEOUT)?.success()?;
                String::new()
            }
            Kind::Pyftpdlib => String::new(),
        };
        settings.push_str(kind.resumption(demands_resumption));
        let arguments = match kind {
            Kind::PureFtpd => more,
            Kind::Vsftpd | Kind::Proftpd | Kind::Pyftpdlib => {
                more.iter().for_each(|line| settings.extend(["\n", line]));
                &[]
            }
        };
        settings.push('\n');
        settings.push_str(&refuses.settings(kind, folder.path()));
        fs::write(at("conf"), settings).map_err(os())?;
        let mut command = std::process::Command::new(kind.program()?);
        match kind {
            Kind::Vsftpd => command.arg(at("conf")),
            Kind::Proftpd => command.arg("--nodaemon").arg("--config").arg(at("conf")),
            Kind::PureFtpd => command
                .args(["-S", &format!("{},{}", addr.ip(), addr.port())])
                .args(["--login", &format!("puredb:{}", text(&at("base")))])
                .args(["--noanonymous", "--dontresolve", "--minuid", "1"])
                .args(["--maxclientsnumber", refuses.sessions_max(kind)])
                .args(["--tls", "1", "--certfile"])
                .arg(at("pair.pem"))
                .arg("--pidfile")
                .arg(at("pid"))
                .args(arguments),
            Kind::Pyftpdlib => command
                .args([
                    "-c",
                    PYFTPDLIB,
                    &addr.ip().to_string(),
                    &addr.port().to_string(),
                ])
                .args([at("data"), at("cert.pem"), at("key.pem")])
                .args([refuses.sessions_max(kind), refuses.permissions()]),
        };
        let mut process = Process::spawn(command, Options::default())?;
        process.await_listening(addr, Process::log)?;
        Ok(Self {
            kind,
            process,
            addr,
            folder,
        })
    }

    /// The URL of a file of its directory, for our client.
    pub fn url(&self, name: &str) -> String {
        format!("ftpes://{}@{}{}", self.login(), self.addr, self.path(name))
    }

    /// What its users call a file of its directory.
    pub fn path(&self, name: &str) -> String {
        match self.kind {
            Kind::PureFtpd | Kind::Pyftpdlib => format!("/{name}"),
            Kind::Vsftpd | Kind::Proftpd => text(&self.at(name)),
        }
    }

    /// How the tests' user is called.
    pub fn login(&self) -> &'static str {
        self.kind.login()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The account that its sessions act as, where it is not root.
    pub fn owner(&self) -> Option<u32> {
        (self.kind == Kind::PureFtpd).then_some(NOBODY)
    }

    /// Where that file is.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("data").join(name)
    }

    /// The self-signed certificate that it presents.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn vsftpd(addr: SocketAddr, folder: &Path) -> String {
    let (port, folder) = (addr.port(), folder.display());
    // As the user who starts it, it confines no login: paths are those of the machine.
    format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nmax_clients=0\n\
         max_per_ip=0\nrun_as_launching_user=YES\n\
         anonymous_enable=YES\nlocal_enable=NO\nno_anon_password=YES\nanon_root={folder}/data\n\
         write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
         anon_other_write_enable=YES\n\
         anon_world_readable_only=NO\nanon_umask=022\nxferlog_enable=NO\nseccomp_sandbox=NO\n\
         ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=NO\nforce_anon_data_ssl=NO\n\
         ssl_ciphers=HIGH\n\
         rsa_cert_file={folder}/cert.pem\nrsa_private_key_file={folder}/key.pem\n"
    )
}

fn proftpd(addr: SocketAddr, folder: &Path) -> String {
    let (port, folder) = (addr.port(), folder.display());
    let modules = match Path::new(BESIDE).is_dir() {
        true => BESIDE,
        false => "",
    };
    format!(
        "ServerName lab\nServerType standalone\nSocketBindTight on\nDefaultAddress 127.0.0.1\n\
         Port {port}\n\
         ModulePath {modules}/usr/lib/proftpd\nLoadModule mod_tls.c\nUseReverseDNS off\nUser root\n\
         Group root\n\
         AuthOrder mod_auth_file.c\nAuthUserFile {folder}/users\nRequireValidShell off\n\
         RootLogin on\nWtmpLog off\n\
         PidFile {folder}/pid\nScoreboardFile none\nTransferLog none\nAllowOverwrite on\n\
         AllowStoreRestart on\n\
         TLSEngine on\nTLSRequired off\nTLSProtocol TLSv1.2 TLSv1.3\n\
         TLSRSACertificateFile {folder}/cert.pem\nTLSRSACertificateKeyFile {folder}/key.pem\n"
    )
}

/// A line of ProFTPD's own file of users.
fn password_line(home: &Path) -> Result<String, Error> {
    let (hashed, home) = (hashed()?, home.display());
    Ok(format!("jo:{hashed}:0:0::{home}:/bin/sh\n"))
}

/// A line of Pure-FTPd's, whose own way to hash takes seconds.
fn pure_password_line(home: &Path) -> Result<String, Error> {
    let (hashed, home) = (hashed()?, home.display());
    Ok(format!(
        "jo:{hashed}:{NOBODY}:{NOBODY}::{home}/./::::::::::::\n"
    ))
}

fn hashed() -> Result<String, Error> {
    let hashed = OPENSSL.run(["passwd", "-6", "sesame"])?.success()?;
    Ok(hashed.stdout_text().trim().to_owned())
}
