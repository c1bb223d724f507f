//! Our own programs, run as users run them.
//!
//! They are looked for in this order:
//! 1. `CARGO_BIN_EXE_<name>`, which Cargo sets for the integration tests of the crate that builds
//!    the program;
//! 2. the directory named by [`BIN_DIR_ENV`];
//! 3. beside the running program and in the directories above it, which is where Cargo puts
//!    programs when the running one is a test, a benchmark or an example.
//!
//! Only the first is certainly up to date: Cargo does not rebuild programs for the tests of other
//! crates. `cargo build --workspace` first, or `cargo test --workspace`, which builds all.

use std::env;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{self, Finished, Process, Spawn, Stream};
use super::tool::is_executable;
use super::usage::Usage;
use super::{Error, Missing, RUN_TIMEOUT, START_TIMEOUT};

/// Names the directory our programs are in, for packages and scripts that put them elsewhere.
pub const BIN_DIR_ENV: &str = "GODWIT_BIN_DIR";

/// Directories above the running program that are searched: tests lie in `deps`, examples in
/// `examples`, both directly below the programs.
const LEVELS_SEARCHED: usize = 2;

/// Where our program `name` is: `godwit`, `godwitd` or `godwit-lab`.
///
/// # Errors
/// [`Missing`], which says how to build it.
pub fn binary(name: &str) -> Result<PathBuf, Missing> {
    let by_cargo = env::var_os(format!("CARGO_BIN_EXE_{name}")).map(PathBuf::from);
    let by_user = env::var_os(BIN_DIR_ENV).map(|directory| Path::new(&directory).join(name));
    let running = env::current_exe().unwrap_or_default();
    let beside = running
        .ancestors()
        .skip(1)
        .take(LEVELS_SEARCHED)
        .map(|directory| directory.join(name));
    by_cargo
        .into_iter()
        .chain(by_user)
        .chain(beside)
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| Missing {
            program: name.to_owned(),
            package: format!("`cargo build --bin {name}`"),
        })
}

/// Runs `godwit` with these arguments, at most for [`RUN_TIMEOUT`]. The exit status is not
/// judged; see [`Finished::success`].
///
/// # Errors
/// [`Error::Missing`], [`Error::Os`] when it cannot be started, [`Error::TimedOut`].
pub fn godwit<I>(arguments: I) -> Result<Finished, Error>
where
    I: IntoIterator<Item: AsRef<OsStr>>,
{
    godwit_with(arguments, [])
}

/// The same, with these variables in its environment.
///
/// # Errors
/// As [`godwit`].
pub fn godwit_with<I>(
    arguments: I,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Finished, Error>
where
    I: IntoIterator<Item: AsRef<OsStr>>,
{
    let mut command = Command::new(binary("godwit")?);
    command.args(arguments).envs(variables);
    process::run(command, RUN_TIMEOUT)
}

/// How `godwitd` is started; made by [`Godwitd::serving`].
#[derive(Debug, Clone)]
pub struct GodwitdConfig {
    root: PathBuf,
    ip: IpAddr,
    port: u16,
    user: Option<u32>,
    anonymous: String,
    binary: Option<PathBuf>,
    arguments: Vec<OsString>,
}

impl GodwitdConfig {
    /// The address to listen on. Default 127.0.0.1.
    #[must_use]
    pub fn ip(mut self, ip: IpAddr) -> GodwitdConfig {
        self.ip = ip;
        self
    }

    /// The port to listen on. Default 0, a free one; another only to come back where a server was
    /// before.
    #[must_use]
    pub fn port(mut self, port: u16) -> GodwitdConfig {
        self.port = port;
        self
    }

    /// Runs it as this user and the group of the same number, so that permissions mean something.
    /// Only root can.
    #[must_use]
    pub fn user(mut self, id: u32) -> GodwitdConfig {
        self.user = Some(id);
        self
    }

    /// What anonymous users may do: `off`, `ro` or `rw`. Default `rw`.
    #[must_use]
    pub fn anonymous(mut self, access: &str) -> GodwitdConfig {
        access.clone_into(&mut self.anonymous);
        self
    }

    /// The program to start, such as `env!("CARGO_BIN_EXE_godwitd")`. Default: see [`binary`].
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> GodwitdConfig {
        self.binary = Some(path.into());
        self
    }

    /// Adds an argument of `godwitd`.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> GodwitdConfig {
        self.arguments.push(argument.into());
        self
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`] with its own words when it refuses
    /// to start, [`Error::TimedOut`].
    pub fn start(self) -> Result<Godwitd, Error> {
        self.start_by(&process::spawn_here)
    }

    /// The same, on the host that `spawn` starts programs on.
    ///
    /// # Errors
    /// As [`GodwitdConfig::start`].
    pub fn start_by(self, spawn: &Spawn<'_>) -> Result<Godwitd, Error> {
        let program = match &self.binary {
            Some(path) => path.clone(),
            None => binary("godwitd")?,
        };
        let mut command = Command::new(program);
        command
            .arg("--listen")
            .arg(SocketAddr::new(self.ip, self.port).to_string())
            .arg("--root")
            .arg(&self.root)
            .args(["--anonymous", &self.anonymous])
            .args(&self.arguments);
        let said = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"--privsep");
        if !self.arguments.iter().any(said) {
            // Accounts of a test's gridmap need not be accounts of this machine.
            command.arg("--privsep=false");
        }
        if let Some(id) = self.user {
            command.uid(id).gid(id);
        }
        let mut process = spawn(self.ip, command)?;
        let addr = process.wait_for_line(
            Stream::Stdout,
            "say that it listens",
            START_TIMEOUT,
            |line| line.strip_prefix("listening on ")?.trim().parse().ok(),
        )?;
        Ok(Godwitd {
            process,
            addr,
            root: self.root,
        })
    }
}

/// A running `godwitd`. Dropping it kills it and its sessions.
#[derive(Debug)]
pub struct Godwitd {
    process: Process,
    addr: SocketAddr,
    root: PathBuf,
}

impl Godwitd {
    /// The configuration of a server whose clients see `root`, an existing directory, as `/`.
    pub fn serving(root: impl Into<PathBuf>) -> GodwitdConfig {
        GodwitdConfig {
            root: root.into(),
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            user: None,
            anonymous: "rw".to_owned(),
            binary: None,
            arguments: Vec::new(),
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The directory it serves.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The `ftp://` URL of `path` below the served directory; a trailing `/` is kept.
    pub fn url(&self, path: &str) -> String {
        super::ftp_url(self.addr, &format!("/{}", path.trim_start_matches('/')))
    }

    /// The process, to signal or watch it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What it printed so far; its log is standard error.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// What it has cost so far.
    pub fn usage(&self) -> Usage {
        self.process.usage()
    }

    /// Asks it to end (TERM), as an administrator would, and waits at most `grace`.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    pub fn terminate(self, grace: Duration) -> Result<Finished, Error> {
        self.process.terminate(grace)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A program that behaves like `godwitd` as far as starting goes.
    ///
    /// Another process writes it: if we did, a child that another test starts just then would hold
    /// our descriptor for a moment, and a file open for writing cannot be executed.
    fn stand_in(directory: &Path, script: &str) -> PathBuf {
        let path = directory.join("godwitd");
        let mut command = Command::new("/bin/sh");
        command
            .args([
                "-c",
                r#"printf '#!/bin/sh\n%s\n' "$1" > "$2"; chmod +x "$2""#,
            ])
            .args(["sh", script])
            .arg(&path);
        process::run(command, RUN_TIMEOUT)
            .and_then(Finished::success)
            .expect("writes a script");
        path
    }

    #[test]
    fn the_address_is_read_from_the_first_line() {
        let directory = TempDir::new().expect("a directory");
        let script = r#"echo "$@" >&2; echo listening on 127.0.0.1:4321; exec sleep 1000"#;
        let server = Godwitd::serving("/srv/data")
            .binary(stand_in(directory.path(), script))
            .arg("--log-json")
            .start()
            .expect("starts");
        assert_eq!(server.addr().port(), 4321);
        assert_eq!(server.url("/a b/"), "ftp://127.0.0.1:4321/a%20b/");
        let finished = server.terminate(RUN_TIMEOUT).expect("ends");
        let log = finished.stderr_text();
        let arguments = "--listen 127.0.0.1:0 --root /srv/data --anonymous rw --log-json";
        assert!(log.contains(arguments), "{log}");
    }

    #[test]
    fn a_refusal_to_start_is_reported() {
        let directory = TempDir::new().expect("a directory");
        let error = Godwitd::serving("/srv/data")
            .binary(stand_in(
                directory.path(),
                "echo no identity source >&2; exit 2",
            ))
            .start()
            .expect_err("refuses");
        assert!(error.to_string().contains("no identity source"), "{error}");
    }

    #[test]
    fn unbuilt_programs_are_missing() {
        let missing = binary("godwit-no-such-program").expect_err("it does not exist");
        assert!(missing.package.contains("cargo build"), "{missing}");
    }
}
