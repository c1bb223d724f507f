//! A private PostgreSQL in a directory of its own, on a socket there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{self, Options, Process, Signal, Stream};
use super::{Error, Missing, RUN_TIMEOUT, START_TIMEOUT};

/// Where Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// How long a crash may take.
const CRASH_LIMIT: Duration = Duration::from_secs(20);

/// A server. Dropping it kills it.
#[derive(Debug)]
pub struct Postgres {
    data: PathBuf,
    programs: PathBuf,
    process: Option<Process>,
}

impl Postgres {
    /// Makes a database below `directory` and starts the server. PostgreSQL refuses root, so where
    /// this process is root the server runs as the account `nobody`.
    ///
    /// # Errors
    /// [`Error::Missing`] without the programs; it does not start.
    pub fn start(directory: &Path) -> Result<Postgres, Error> {
        let programs = programs()?;
        let data = directory.join("postgres");
        let made = || -> std::io::Result<()> {
            use std::os::unix::fs::PermissionsExt as _;
            fs::create_dir(&data)?;
            if am_root() {
                fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
                std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY))?;
            }
            Ok(())
        };
        made().map_err(Error::os(format!("make {}", data.display())))?;
        let mut server = Postgres {
            data,
            programs,
            process: None,
        };
        let mut init = server.command("initdb");
        init.arg("-D").arg(&server.data);
        init.args(["-A", "trust", "-U", "godwit", "-N"]);
        process::run(init, RUN_TIMEOUT)?.success()?;
        server.begin()?;
        Ok(server)
    }

    /// Of its database.
    pub fn url(&self) -> String {
        let socket = self.data.display().to_string().replace('/', "%2F");
        format!("postgres://godwit@{socket}/postgres")
    }

    /// Where all of it lies.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// It was started, and not stopped since.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Starts the server that was stopped.
    ///
    /// # Errors
    /// It does not start.
    pub fn begin(&mut self) -> Result<(), Error> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.data);
        command.args(["-c", "listen_addresses="]);
        let mut process = Process::spawn(command, Options::default())?;
        let ready = |line: &str| line.contains("ready to accept connections").then_some(());
        process.wait_for_line(Stream::Stderr, "say that it is ready", START_TIMEOUT, ready)?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops the server at once, as a crash does. What it printed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn crash(&mut self) -> Result<String, Error> {
        let Some(mut process) = self.process.take() else {
            return Ok(String::new());
        };
        process.signal(Signal::QUIT)?;
        process.ended_within(CRASH_LIMIT)?;
        Ok(process.stop()?.log())
    }

    fn command(&self, program: &str) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(self.programs.join(program));
        if am_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir("/");
        command
    }
}

/// What `nobody` and its group are on Debian.
const NOBODY: u32 = 65_534;

/// Directory of the programs of the newest version.
///
/// # Errors
/// There are none.
pub fn programs() -> Result<PathBuf, Missing> {
    let entries = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let found = entries.map(|entry| entry.path().join("bin"));
    let found = found.filter(|path| path.join("initdb").exists());
    found.max().ok_or_else(|| Missing {
        program: "initdb".to_owned(),
        package: "postgresql".to_owned(),
    })
}

fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}
