//! Services of S3: those of other makers, moto, which keeps objects in memory and believes any
//! keys, and versitygw, which keeps them in a directory and checks signatures; our own `godwitd`,
//! which does that over TLS; and boto3, a client.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::grid::{self, Grid};
use super::process::{self, Options, Process};
use super::usage::Usage;
use super::{Error, Missing, RUN_TIMEOUT, Tool, godwit, plain_ftp};

/// The one bucket.
pub const BUCKET: &str = "godwit-lab";

/// The keys that versitygw knows.
pub const KEYS: [&str; 2] = ["AKIDGODWITLAB", "secret/of+the/lab"];

const MOTO: Tool = Tool::new("moto_server", "moto[server], by pip");
const VERSITYGW: Tool = Tool::new(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw, by go install",
);

const BOTO3: &str = "boto3, by pip";

/// Who may have boto3: the Python of moto, where that was installed apart, and the user's.
const PYTHONS: [Tool; 2] = [
    Tool::new("/usr/local/lib/godwit-peers/moto_server/bin/python3", BOTO3),
    Tool::new("python3", BOTO3),
];

const BOTO3_COPY: &str = include_str!("boto3_copy.py");

/// Which service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `moto_server`, of Python.
    Moto,
    /// `versitygw`, of Go.
    Versitygw,
    /// Ours, with `--s3`.
    Godwitd,
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
            Self::Godwitd => {
                grid::available()?;
                godwit::binary("godwitd")
            }
        }
    }
}

/// A running service with an empty bucket. Dropping it ends it.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    addr: SocketAddr,
    folder: TempDir,
    root: PathBuf,
    keys: [String; 2],
    /// Where it has TLS: of its certificate.
    grid: Option<Grid>,
}

impl S3Server {
    /// Starts one.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`], [`Error::TimedOut`].
    pub fn start(kind: Kind) -> Result<Self, Error> {
        super::on_a_free_port(Ipv4Addr::LOCALHOST.into(), |addr| {
            let folder = folder()?;
            let root = folder.path().join("root");
            let made = fs::create_dir_all(root.join(BUCKET));
            made.map_err(Error::os("make a directory for a bucket"))?;
            Self::start_at(kind, addr, folder, &root)
        })
    }

    /// Starts versitygw over a directory, whose directories are its buckets.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn gateway(root: &Path, ip: IpAddr) -> Result<Self, Error> {
        super::on_a_free_port(ip, |addr| {
            Self::start_at(Kind::Versitygw, addr, folder()?, root)
        })
    }

    fn start_at(kind: Kind, addr: SocketAddr, folder: TempDir, root: &Path) -> Result<Self, Error> {
        let mut keys = KEYS.map(str::to_owned);
        let mut grid = None;
        let mut command = match kind {
            Kind::Moto => {
                let mut command = MOTO.command()?;
                let (host, port) = (addr.ip().to_string(), addr.port().to_string());
                command.args(["-H", &host, "-p", &port]);
                command
            }
            Kind::Versitygw => {
                let attributes = folder.path().join("attributes");
                let made = fs::create_dir(&attributes);
                made.map_err(Error::os("make a directory for a server"))?;
                let mut command = VERSITYGW.command()?;
                let [access, secret] = KEYS;
                command.args(["--access", access, "--secret", secret, "--port"]);
                command.arg(addr.to_string());
                // As other services do: by itself it closes after each answer.
                command.args(["--keep-alive", "posix", "--sidecar"]);
                command.arg(attributes).arg(root);
                command
            }
            Kind::Godwitd => {
                let file = folder.path().join("keys");
                keys = make_key(&file)?;
                let own = grid.insert(Grid::new(&[addr.ip()])?);
                let [certificate, key] = own.host();
                let mut command = Command::new(godwit::binary("godwitd")?);
                command.args(["--privsep=false", "--listen"]);
                command.arg(SocketAddr::new(addr.ip(), 0).to_string());
                command.arg("--s3").arg(addr.to_string());
                command.arg("--s3-keys").arg(file).arg("--root").arg(root);
                command.arg("--cert").arg(certificate);
                command.arg("--key").arg(key);
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
            root: root.to_owned(),
            keys,
            grid,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The directory of a bucket of versitygw or `godwitd`.
    pub fn directory(&self, bucket: &str) -> PathBuf {
        self.root.join(bucket)
    }

    /// The URL of a path below its directory.
    pub fn url(&self, path: &str) -> String {
        let path = Path::new(path).strip_prefix(&self.root).ok();
        let slash = if path.is_some() { "/" } else { "" };
        format!("s3://{}{slash}", path.unwrap_or(Path::new("")).display())
    }

    /// What it has cost so far.
    pub fn usage(&self) -> Usage {
        self.process.usage()
    }

    /// By which `godwit` and `rclone` find it, and who they are.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables_at(self.addr)
    }

    /// The same for those who come by way of another address.
    pub fn variables_at(&self, addr: SocketAddr) -> Vec<(String, String)> {
        let [access, secret] = &self.keys;
        let scheme = self.grid.as_ref().map_or("http", |_| "https");
        let pairs = [
            ("AWS_ENDPOINT_URL", format!("{scheme}://{addr}")),
            ("AWS_ACCESS_KEY_ID", access.clone()),
            ("AWS_SECRET_ACCESS_KEY", secret.clone()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            (
                "AWS_CONFIG_FILE",
                self.folder.path().join("none").display().to_string(),
            ),
            (
                "AWS_SHARED_CREDENTIALS_FILE",
                self.folder.path().join("none").display().to_string(),
            ),
        ];
        let authorities = self.grid.as_ref().map(|grid| {
            let directory = grid.authorities();
            ("X509_CERT_DIR", directory.display().to_string())
        });
        let pairs = pairs.into_iter().chain(authorities);
        pairs
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
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

    /// What `rclone` calls a key of a bucket.
    pub fn rclone_path(&self, bucket: &str, key: &str) -> String {
        let addr = self.addr;
        format!(
            ":s3,provider=Other,env_auth=true,region=us-east-1,endpoint=\"http://{addr}\":\
             {bucket}/{key}"
        )
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// Access key and secret of a user of `godwitd`, who is in no other file.
fn make_key(file: &Path) -> Result<[String; 2], Error> {
    let mut command = Command::new(godwit::binary("godwitd")?);
    command.arg("s3-key").arg(file).arg("lab");
    let told = process::run(command, RUN_TIMEOUT)?.success()?.stdout_text();
    let of = |name: &str| told.lines().find_map(|line| line.strip_prefix(name));
    match [of("access key: "), of("secret key: ")] {
        [Some(access), Some(secret)] => Ok([access, secret].map(str::to_owned)),
        _ => Err(Error::os("make a key")(std::io::Error::other(told))),
    }
}

/// In memory where there is room: versitygw writes a file for each attribute of an object there.
fn folder() -> Result<TempDir, Error> {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    };
    folder.map_err(Error::os("make a directory for a server"))
}

/// boto3's transfer manager, for a directory and a bucket, with `channels` requests at once.
///
/// # Errors
/// [`Missing`], where no Python has it.
pub fn boto3(
    server: &S3Server,
    direction: &str,
    bucket: &str,
    directory: &Path,
    channels: u32,
) -> Result<Command, Missing> {
    let mut command = Command::new(python_with_boto3()?);
    command.args(["-c", BOTO3_COPY, direction, bucket]);
    command.arg(directory).arg(channels.to_string());
    command.envs(server.variables());
    Ok(command)
}

/// Where it is.
///
/// # Errors
/// [`Missing`].
pub fn python_with_boto3() -> Result<PathBuf, Missing> {
    let imports = |python: &PathBuf| {
        let mut command = Command::new(python);
        let output = command.args(["-c", "import boto3"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let mut found = PYTHONS.iter().filter_map(|python| python.available().ok());
    found.find(imports).ok_or_else(|| Missing {
        program: "boto3".to_owned(),
        package: BOTO3.to_owned(),
    })
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
