//! `godwit-service` and its agents, run as users run them.

use std::{
    ffi::{OsStr, OsString},
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    Error, START_TIMEOUT,
    godwit::binary,
    process::{self, Finished, Options, Process, Stream},
};
use crate::file_error::{FileError, io_error};

/// The program.
const PROGRAM: &str = "godwit-service";

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A program is missing or failed.
    #[error(transparent)]
    Peer(#[from] Error),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A service of one process without an agent of its own, on a port that the kernel chose.
/// Dropping it kills it.
pub struct Service {
    process: Process,
    url: String,
    token: String,
    data: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Service {
    /// Starts it over the database, key and token in `data`, which are made where they are missing.
    /// File URLs may name what lies below `local`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(data: &Path, local: &Path, more: &[&str]) -> Result<Service, ServiceError> {
        Service::start_at(Ipv4Addr::LOCALHOST.into(), data, local, more)
    }

    /// The same on an address of this host, in clear.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_at(
        ip: IpAddr,
        data: &Path,
        local: &Path,
        more: &[&str],
    ) -> Result<Service, ServiceError> {
        let mut command = Command::new(binary(PROGRAM).map_err(Error::from)?);
        command
            .arg("serve")
            .arg("--data")
            .arg(data)
            .arg("--allow-local")
            .arg(local);
        command
            .args(["--no-agent", "--plain-http", "--listen"])
            .arg(SocketAddr::new(ip, 0).to_string())
            .args(more);
        let mut process = Process::spawn(command, Options::default())?;
        let url = process.wait_for_line(
            Stream::Stdout,
            "say where it listens",
            START_TIMEOUT,
            |line| line.starts_with("http").then(|| line.trim().to_owned()),
        )?;
        let token_file = data.join("token");
        let token = fs::read_to_string(&token_file).map_err(io_error(&token_file))?;
        let token = token.trim().to_owned();
        Ok(Service {
            process,
            url,
            token,
            data: data.to_owned(),
            environment: Vec::new(),
        })
    }

    /// Agents and commands that are started from now on have these variables, too.
    #[must_use]
    pub fn with<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        environment: impl IntoIterator<Item = (K, V)>,
    ) -> Service {
        let pairs = environment.into_iter();
        self.environment
            .extend(pairs.map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The token of its owner.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The process, to signal or watch it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Variables of the environment by which `godwit` finds it.
    pub fn variables(&self) -> [(OsString, OsString); 2] {
        let pair = |name: &str, value: &str| (name.into(), value.into());
        [
            pair("GODWIT_SERVICE", &self.url),
            pair("GODWIT_SERVICE_TOKEN", &self.token),
        ]
    }

    /// Runs a command of `godwit` against it, at most for `limit`.
    ///
    /// # Errors
    /// It cannot be started, or does not end in time.
    pub fn godwit<I>(&self, arguments: I, limit: Duration) -> Result<Finished, Error>
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut command = Command::new(binary("godwit")?);
        command.args(arguments).envs(self.variables());
        command.envs(self.environment.iter().cloned());
        process::run(command, limit)
    }

    /// Starts an agent of this name, whose state is below the service's directory, so that one of
    /// the same name continues where the one before ended. It knows nothing of other transfers on
    /// this machine, as if it had one to itself.
    ///
    /// # Errors
    /// It cannot be enrolled or started.
    pub fn agent(&self, name: &str, local: &Path, more: &[&str]) -> Result<Process, ServiceError> {
        let state = self.data.join("agents").join(name);
        fs::create_dir_all(&state).map_err(io_error(&state))?;
        let token = state.join("token");
        let program = binary(PROGRAM).map_err(Error::from)?;
        if !token.exists() {
            let mut enroll = Command::new(&program);
            enroll
                .args(["enroll", name, "--to"])
                .arg(&token)
                .arg("--data")
                .arg(&self.data);
            process::run(enroll, START_TIMEOUT)?.success()?;
        }
        let mut command = Command::new(program);
        command.args(["agent", "--service", &self.url, "--name", name]);
        command
            .arg("--token-file")
            .arg(&token)
            .arg("--state")
            .arg(&state);
        command.arg("--allow-local").arg(local).args(more);
        command.envs(self.environment.iter().cloned());
        for variable in ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(variable, &state);
        }
        Ok(Process::spawn(command, Options::default())?)
    }

    /// Asks it to end, and waits at most `grace`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn terminate(self, grace: Duration) -> Result<Finished, Error> {
        self.process.terminate(grace)
    }
}
