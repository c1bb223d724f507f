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
    environment: Vec<(String, String)>,
    process: Option<Process>,
}

impl Postgres {
    /// Makes a database below `directory` and starts the server. PostgreSQL refuses root, so where
    /// this process is root the server runs as the account `nobody`.
    ///
    /// # Errors
    /// [`Error::Missing`] without the programs; it does not start.
    pub fn start(directory: &Path) -> Result<Postgres, Error> {
        Postgres::make(directory, Vec::new(), &[])
    }

    /// The same with short segments of its log, so that what is written needs room on the disk
    /// often, and these variables in its environment.
    ///
    /// # Errors
    /// As above.
    pub fn start_with(
        directory: &Path,
        environment: Vec<(String, String)>,
    ) -> Result<Postgres, Error> {
        Postgres::make(directory, environment, &["--wal-segsize=1"])
    }

    fn make(
        directory: &Path,
        environment: Vec<(String, String)>,
        init_options: &[&str],
    ) -> Result<Postgres, Error> {
        let mut server = Postgres {
            data: directory.join("postgres"),
            programs: programs()?,
            environment,
            process: None,
        };
        server.make_folder(directory)?;
        let mut init = server.command("initdb");
        init.arg("-D").arg(&server.data);
        init.args(["-A", "trust", "-U", "godwit", "-N"])
            .args(init_options);
        process::run(init, RUN_TIMEOUT)?.success()?;
        server.begin()?;
        Ok(server)
    }

    /// A replica in `directory` that follows this server.
    ///
    /// # Errors
    /// It does not start.
    pub fn replica(&self, directory: &Path) -> Result<Postgres, Error> {
        let mut replica = Postgres {
            data: directory.join("replica"),
            programs: self.programs.clone(),
            environment: self.environment.clone(),
            process: None,
        };
        replica.make_folder(directory)?;
        let mut copy = replica.command("pg_basebackup");
        copy.arg("-h").arg(&self.data).arg("-D").arg(&replica.data);
        copy.args(["-U", "godwit", "-X", "stream", "-R", "-N", "-c", "fast"]);
        process::run(copy, RUN_TIMEOUT)?.success()?;
        // The lock of the server's socket, which lies among its data, is copied as well.
        let lock = replica.data.join(".s.PGSQL.5432.lock");
        match fs::remove_file(&lock) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::os(format!("remove {}", lock.display()))(error));
            }
            _ => {}
        }
        replica.begin()?;
        Ok(replica)
    }

    /// Commits wait for a replica from now on.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn wait_for_replica(&self) -> Result<(), Error> {
        self.set("synchronous_standby_names = '*'")
    }

    /// A replica gets nothing more.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn cut_off(&self) -> Result<(), Error> {
        self.set("primary_conninfo = ''")
    }

    /// A replica becomes a server of its own.
    ///
    /// # Errors
    /// It does not.
    pub fn promote(&self) -> Result<(), Error> {
        let mut promote = self.command("pg_ctl");
        promote.arg("-D").arg(&self.data).args(["-w", "promote"]);
        process::run(promote, RUN_TIMEOUT)?.success()?;
        Ok(())
    }

    /// Changes a setting.
    fn set(&self, line: &str) -> Result<(), Error> {
        use std::io::Write as _;
        let path = self.data.join("postgresql.auto.conf");
        let wrote = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new().append(true).open(&path)?;
            writeln!(file, "{line}")
        };
        wrote().map_err(Error::os(format!("write {}", path.display())))?;
        match &self.process {
            Some(process) => process.signal(Signal::HUP),
            None => Ok(()),
        }
    }

    fn make_folder(&self, directory: &Path) -> Result<(), Error> {
        let made = || -> std::io::Result<()> {
            use std::os::unix::fs::PermissionsExt as _;
            fs::create_dir(&self.data)?;
            fs::set_permissions(&self.data, fs::Permissions::from_mode(0o700))?;
            if am_root() {
                fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
                std::os::unix::fs::chown(&self.data, Some(NOBODY), Some(NOBODY))?;
            }
            Ok(())
        };
        made().map_err(Error::os(format!("make {}", self.data.display())))
    }

    /// Of its database.
    pub fn url(&self) -> String {
        url(&self.data)
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
        let ready = |line: &str| line.contains("ready to accept").then_some(());
        process.wait_for_line(Stream::Stderr, "say that it is ready", START_TIMEOUT, ready)?;
        self.process = Some(process);
        Ok(())
    }

    /// Whether it still runs, where it was not stopped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn has_ended(&mut self) -> Result<bool, Error> {
        match &mut self.process {
            Some(process) => Ok(!process.is_running()?),
            None => Ok(false),
        }
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
        let environment = self.environment.iter();
        command.envs(environment.map(|(name, value)| (name, value)));
        command.current_dir("/");
        command
    }
}

/// Of the database whose socket is in this directory.
pub fn url(socket: &Path) -> String {
    let socket = socket.display().to_string().replace('/', "%2F");
    format!("postgres://godwit@{socket}/postgres")
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
