//! A test grid: a CA, a host certificate and a user with a proxy, and the options by which servers
//! and clients find them.
//!
//! The certificates are made by `openssl` and the proxy by our client.

use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::gct::GctConfig;
use super::godwit::{self, GodwitdConfig};
use super::process;
use super::{Error, Missing, RUN_TIMEOUT, Tool};

/// Makes certificates.
pub const OPENSSL: Tool = Tool::new("openssl", "openssl");

/// Who servers are, for clients that get it as an argument and check no host name.
pub const HOST_SUBJECT: &str = "/O=Lab/CN=server";

const AUTHORITY: &str = "/O=Lab/CN=CA";
/// Who the user is.
pub const USER: &str = "/O=Lab/CN=Jo";

/// An account that every machine has and that is not root's.
const NOBODY: &str = "nobody";

/// Days that certificates are valid, and hours of the proxy: longer than anything runs here.
const DAYS: &str = "30";
const HOURS: &str = "600";

/// What keys all have, the CA, the host, the user and the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// RSA of 2048 bits. Only to holders of such is delegated by servers of the Grid Community
    /// Toolkit.
    Rsa2048,
    /// The curve P-256.
    P256,
}

impl Keys {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::P256 => "p256",
        }
    }

    /// For `openssl req`.
    fn of_openssl(self) -> &'static [&'static str] {
        match self {
            Self::Rsa2048 => &["-newkey", "rsa:2048"],
            Self::P256 => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        }
    }

    /// For `godwit proxy init --key-type`.
    fn of_godwit(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa",
            Self::P256 => "ec",
        }
    }
}

/// The files of a grid. They go with this.
#[derive(Debug)]
pub struct Grid {
    folder: TempDir,
    keys: Keys,
}

/// Whether what makes one is there.
///
/// # Errors
/// [`Missing`].
pub fn available() -> Result<(), Missing> {
    OPENSSL.available()?;
    godwit::binary("godwit").map(drop)
}

impl Grid {
    /// Makes one whose servers have these addresses, with keys that all peers take.
    ///
    /// # Errors
    /// When a program is missing or fails, or a file cannot be written.
    pub fn new(hosts: &[IpAddr]) -> Result<Self, Error> {
        Self::with_keys(hosts, Keys::Rsa2048)
    }

    /// Makes one whose servers have these addresses.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_keys(hosts: &[IpAddr], keys: Keys) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory for certificates"))?;
        let grid = Self { folder, keys };
        fs::create_dir(grid.path("cas")).map_err(Error::os("make a directory for CAs"))?;
        grid.write("openssl.cnf", "[req]\ndistinguished_name = name\n[name]\n")?;
        grid.certificate(
            "ca",
            AUTHORITY,
            None,
            &["basicConstraints=critical,CA:TRUE"],
        )?;
        let is_no_authority = "basicConstraints=critical,CA:FALSE";
        let names: Vec<String> = hosts.iter().map(|host| format!("IP:{host}")).collect();
        let names = format!("subjectAltName={}", names.join(","));
        grid.certificate("host", HOST_SUBJECT, Some("ca"), &[is_no_authority, &names])?;
        grid.certificate("node", HOST_SUBJECT, Some("ca"), &[is_no_authority, &names])?;
        grid.certificate("user", USER, Some("ca"), &[is_no_authority])?;
        let hash = ["x509", "-noout", "-hash", "-in"].map(OsString::from);
        let hash = hash.into_iter().chain([grid.path("cacert.pem").into()]);
        let hash = OPENSSL.run(hash)?.success()?.stdout_text();
        let hash = hash.trim();
        fs::copy(
            grid.path("cacert.pem"),
            grid.path("cas").join(format!("{hash}.0")),
        )
        .map_err(Error::os("install the CA"))?;
        let policy = format!(
            "access_id_CA X509 '{AUTHORITY}'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"/O=Lab/*\"'\n"
        );
        grid.write(&format!("cas/{hash}.signing_policy"), &policy)?;
        let account = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        grid.write("gridmap", &format!("\"{USER}\" {account}\n"))?;
        grid.write("gridmap-apart", &format!("\"{USER}\" {NOBODY}\n"))?;
        let mut proxy = Command::new(godwit::binary("godwit")?);
        proxy.args(["proxy", "init", "--hours", HOURS]);
        proxy.args(["--key-type", keys.of_godwit(), "--cert"]);
        proxy.arg(grid.path("usercert.pem")).arg("--key");
        proxy.arg(grid.path("userkey.pem")).arg("--out");
        proxy.arg(grid.path("proxy"));
        process::run(proxy, RUN_TIMEOUT)?.success()?;
        Ok(grid)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        fs::write(self.path(name), text).map_err(Error::os("write a file of the grid"))
    }

    /// `NAMEcert.pem` and `NAMEkey.pem`, signed by `issuer` or by itself.
    fn certificate(
        &self,
        name: &str,
        subject: &str,
        issuer: Option<&str>,
        extensions: &[&str],
    ) -> Result<(), Error> {
        let mut command = OPENSSL.command()?;
        command.args(["req", "-x509", "-nodes"]);
        command.args(self.keys.of_openssl());
        // The system's own settings would add to what is asked for.
        command.arg("-config").arg(self.path("openssl.cnf"));
        command.args(["-days", DAYS, "-subj", subject]);
        command.args(
            extensions
                .iter()
                .flat_map(|extension| ["-addext", extension]),
        );
        command
            .arg("-out")
            .arg(self.path(&format!("{name}cert.pem")));
        command
            .arg("-keyout")
            .arg(self.path(&format!("{name}key.pem")));
        if let Some(issuer) = issuer {
            command
                .arg("-CA")
                .arg(self.path(&format!("{issuer}cert.pem")));
            command
                .arg("-CAkey")
                .arg(self.path(&format!("{issuer}key.pem")));
        }
        process::run(command, RUN_TIMEOUT)?.success()?;
        Ok(())
    }

    /// What a client's environment must say for it to be the user.
    pub fn of_user(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("X509_USER_PROXY", self.path("proxy")),
            ("X509_CERT_DIR", self.path("cas")),
        ]
    }

    /// Flags by which a transfer service has the host's certificate and knows its users'.
    pub fn of_service(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("--cert", self.path("hostcert.pem")),
            ("--key", self.path("hostkey.pem")),
            ("--client-ca", self.path("cas")),
        ]
    }

    /// Certificate and key of front ends and data nodes, for links between them: for the addresses
    /// of the host, with another key.
    pub fn node(&self) -> [PathBuf; 2] {
        [self.path("nodecert.pem"), self.path("nodekey.pem")]
    }

    /// The certificate of servers, and its key.
    pub fn host(&self) -> [PathBuf; 2] {
        ["hostcert.pem", "hostkey.pem"].map(|name| self.path(name))
    }

    /// The certificate of the CA.
    pub fn authority(&self) -> PathBuf {
        self.path("cacert.pem")
    }

    /// The directory of CAs.
    pub fn authorities(&self) -> PathBuf {
        self.path("cas")
    }

    /// A server of ours for the user. It does all in one process: there is one account here.
    #[must_use]
    pub fn of_godwitd(&self, config: GodwitdConfig) -> GodwitdConfig {
        self.of_godwitd_by("gridmap", config.arg("--privsep=false"))
    }

    /// The same with privileges apart, which takes root. The user's account is that of nobody.
    #[must_use]
    pub fn of_godwitd_apart(&self, config: GodwitdConfig) -> GodwitdConfig {
        self.of_godwitd_by("gridmap-apart", config.arg("--privsep=true"))
    }

    fn of_godwitd_by(&self, gridmap: &str, config: GodwitdConfig) -> GodwitdConfig {
        let config = config.anonymous("off");
        [
            ("--cert", "hostcert.pem"),
            ("--key", "hostkey.pem"),
            ("--trusted-certs", "cas"),
            ("--gridmap", gridmap),
        ]
        .into_iter()
        .fold(config, |config, (flag, name)| {
            config.arg(flag).arg(self.path(name))
        })
    }

    /// A server of the Toolkit's for the user.
    #[must_use]
    pub fn of_gct(&self, config: GctConfig) -> GctConfig {
        config
            .env("X509_CERT_DIR", self.path("cas"))
            .env("X509_USER_CERT", self.path("hostcert.pem"))
            .env("X509_USER_KEY", self.path("hostkey.pem"))
            .env("GRIDMAP", self.path("gridmap"))
    }
}
