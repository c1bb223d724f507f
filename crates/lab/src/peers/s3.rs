//! Other makers' services of S3: moto, which keeps objects in memory and believes any keys, and
//! versitygw, which keeps them in a directory and checks signatures.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::process::{Options, Process};
use super::{Error, Missing, Tool, plain_ftp};

/// The one bucket.
pub const BUCKET: &str = "godwit-lab";

/// The keys that versitygw knows.
pub const KEYS: [&str; 2] = ["AKIDGODWITLAB", "secret/of+the/lab"];

const MOTO: Tool = Tool::new("moto_server", "moto[server], by pip");
const VERSITYGW: Tool = Tool::new(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw, by go install",
);

/// Which service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `moto_server`, of Python.
    Moto,
    /// `versitygw`, of Go.
    Versitygw,
}

impl Kind {
    /// Whether it is installed.
    ///
    /// # Errors
    /// [`Missing`], which says where it is from.
    pub fn available(self) -> Result<PathBuf, Missing> {
        match self {
            Self::Moto => MOTO.available(),
            Self::Versitygw => VERSITYGW.available(),
        }
    }
}

/// A running service with an empty bucket. Dropping it ends it.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    addr: SocketAddr,
    folder: TempDir,
}

impl S3Server {
    /// Starts one.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`], [`Error::TimedOut`].
    pub fn start(kind: Kind) -> Result<Self, Error> {
        super::on_a_free_port(Ipv4Addr::LOCALHOST.into(), |addr| {
            Self::start_at(kind, addr)
        })
    }

    fn start_at(kind: Kind, addr: SocketAddr) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory for a server"))?;
        let mut command = match kind {
            Kind::Moto => {
                let mut command = MOTO.command()?;
                let (host, port) = (addr.ip().to_string(), addr.port().to_string());
                command.args(["-H", &host, "-p", &port]);
                command
            }
            Kind::Versitygw => {
                for name in ["root", "root/godwit-lab", "attributes"] {
                    let made = fs::create_dir(folder.path().join(name));
                    made.map_err(Error::os("make a directory for a bucket"))?;
                }
                let mut command = VERSITYGW.command()?;
                let [access, secret] = KEYS;
                command.args(["--access", access, "--secret", secret, "--port"]);
                command.arg(addr.to_string()).args(["posix", "--sidecar"]);
                command.arg(folder.path().join("attributes"));
                command.arg(folder.path().join("root"));
                command
            }
        };
        command.current_dir(folder.path());
        let mut process = Process::spawn(command, Options::default())?;
        process.await_listening(addr, Process::log)?;
        if kind == Kind::Moto {
            make_bucket(addr).map_err(Error::os("make a bucket"))?;
        }
        Ok(Self {
            process,
            addr,
            folder,
        })
    }

    /// By which `godwit` and `rclone` find it, and who they are.
    pub fn variables(&self) -> Vec<(String, String)> {
        let [access, secret] = KEYS;
        let pairs = [
            ("AWS_ENDPOINT_URL", format!("http://{}", self.addr)),
            ("AWS_ACCESS_KEY_ID", access.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            (
                "AWS_CONFIG_FILE",
                self.folder.path().join("none").display().to_string(),
            ),
            (
                "AWS_SHARED_CREDENTIALS_FILE",
                self.folder.path().join("none").display().to_string(),
            ),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// `rclone` as its user.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn rclone(&self) -> Result<Command, Missing> {
        let mut command = plain_ftp::RCLONE.command()?;
        command.envs(self.variables()).env_remove("AWS_CA_BUNDLE");
        Ok(command)
    }

    /// What `rclone` calls a key.
    pub fn rclone_path(&self, key: &str) -> String {
        let addr = self.addr;
        format!(
            ":s3,provider=Other,env_auth=true,region=us-east-1,endpoint=\"http://{addr}\":\
             {BUCKET}/{key}"
        )
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

fn make_bucket(addr: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    write!(
        stream,
        "PUT /{BUCKET} HTTP/1.1\r\nHost: {addr}\r\nContent-Length: 0\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(std::io::Error::other(answer)),
    }
}
