//! The service with its database in a directory of its own.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use godwit_engine::host::net::raise_fd_limit;
use godwit_service_api::account::NewToken;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{Http, LoadError};
use crate::faults::service::Database;
use crate::file_error::io_error;
use crate::peers::godwit::binary;
use crate::peers::postgres::Postgres;
use crate::peers::process::{self, Options, Process, Stream};
use crate::peers::usage::MemoryWatch;
use crate::peers::{self, START_TIMEOUT};
use crate::state::{FOLDER_PREFIX, OwnedFolder};

/// The program.
const PROGRAM: &str = "godwit-service";

/// The service says how long each step of its leader took.
const LOG: &str = "info,godwit_service::scheduling=debug";

/// Bytes of its log that are kept.
const LOG_BYTES: usize = 64 << 20;

/// For statements that change the database.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);

/// Connections that make accounts.
const MAKERS: usize = 8;

/// Between two looks at memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);

/// A user or an agent.
#[derive(Debug, Clone)]
pub struct Account {
    /// Unique.
    pub name: String,
    /// What it proves itself by.
    pub token: String,
}

/// One process that serves, and its database. Processes end before their directory.
#[derive(Debug)]
pub struct LoadedService {
    serve: Process,
    postgres: Option<Postgres>,
    address: SocketAddr,
    fts_address: SocketAddr,
    token: String,
    empty_bytes: u64,
    /// Flags of `serve`.
    flags: Vec<String>,
    folder: TempDir,
    _owned: OwnedFolder,
}

impl LoadedService {
    /// Starts both in the directory for temporary files, which should be on the disk that a
    /// database would be on.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub fn start(database: Database) -> Result<LoadedService, LoadError> {
        Self::start_with(database, &["--requests-per-second", "1000000"])
    }

    /// The same with other flags of `serve`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(database: Database, more: &[&str]) -> Result<LoadedService, LoadError> {
        raise_fd_limit();
        let base = std::env::temp_dir();
        let folder = (tempfile::Builder::new().prefix(FOLDER_PREFIX))
            .tempdir_in(&base)
            .map_err(io_error(&base))?;
        let owned = OwnedFolder::note(folder.path()).map_err(io_error(folder.path()))?;
        let postgres = match database {
            Database::Sqlite => None,
            Database::Postgres => Some(Postgres::start(folder.path())?),
        };
        let token = folder.path().join("operator.token");
        let mut migrate = program("migrate", folder.path(), postgres.as_ref())?;
        migrate.arg("--operator-token").arg(&token);
        process::run(migrate, START_TIMEOUT)?.success()?;
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let fts_address = SocketAddr::new(loopback, peers::free_port(loopback)?);
        let fts = fts_address.to_string();
        let flags = ["--listen", "127.0.0.1:0", "--allow-endpoint", "*"];
        let flags = [&flags[..], &["--allow-local", "/", "--fts", &fts], more].concat();
        let flags: Vec<String> = flags.into_iter().map(str::to_owned).collect();
        let (serve, address) = serve(folder.path(), postgres.as_ref(), &flags)?;
        let token = fs::read_to_string(&token).map_err(io_error(&token))?;
        let mut site = LoadedService {
            serve,
            postgres,
            address,
            fts_address,
            token: token.trim().to_owned(),
            empty_bytes: 0,
            flags,
            folder,
            _owned: owned,
        };
        site.empty_bytes = site
            .database_bytes()
            .map_err(io_error(site.folder.path()))?;
        Ok(site)
    }

    /// Ends the process that serves, as its operator does.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self) -> Result<(), LoadError> {
        self.serve.signal(Signal::TERM)?;
        match self.serve.ended_within(START_TIMEOUT)? {
            true => Ok(()),
            false => Err(io::Error::other(format!("{PROGRAM} does not end")).into()),
        }
    }

    /// Starts another process that serves in the place of one that was stopped.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self) -> Result<(), LoadError> {
        let started = serve(self.folder.path(), self.postgres.as_ref(), &self.flags);
        (self.serve, self.address) = started?;
        Ok(())
    }

    /// Makes a backup of the database while it is used, as `docs/service-operating.md` says. Its
    /// bytes.
    ///
    /// # Errors
    /// The program of the database is missing or refuses.
    pub fn back_up(&self) -> Result<u64, LoadError> {
        let backup = self.folder.path().join("backup");
        let command = match &self.postgres {
            Some(postgres) => {
                let mut dump = postgres_program("pg_dump")?;
                dump.args(["--format=custom", "--dbname", &postgres.url(), "--file"]);
                dump.arg(&backup);
                dump
            }
            None => {
                let mut sqlite = Command::new("sqlite3");
                sqlite.args(["-bail", "-cmd", ".timeout 60000"]);
                sqlite.arg(self.folder.path().join("db"));
                sqlite.arg(format!("VACUUM INTO '{}'", backup.display()));
                sqlite
            }
        };
        process::run(command, SCRIPT_TIMEOUT)?.success()?;
        let bytes = fs::metadata(&backup).map_err(io_error(&backup))?.len();
        Ok(bytes)
    }

    /// Loses the database of a service that was stopped, and puts the backup in its place.
    ///
    /// # Errors
    /// The program of the database is missing or refuses.
    pub fn restore(&self) -> Result<(), LoadError> {
        let backup = self.folder.path().join("backup");
        if let Some(postgres) = &self.postgres {
            self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public;")?;
            let mut restore = postgres_program("pg_restore")?;
            restore.args(["--exit-on-error", "--single-transaction", "--dbname"]);
            restore.arg(postgres.url()).arg(&backup);
            process::run(restore, SCRIPT_TIMEOUT)?.success()?;
            return Ok(());
        }
        for name in ["db", "db-wal", "db-shm"] {
            let path = self.folder.path().join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error(&path)(error).into());
                }
                _ => {}
            }
        }
        let path = self.folder.path().join("db");
        fs::copy(&backup, &path).map_err(io_error(&path))?;
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens for clients of FTS3.
    pub fn fts_address(&self) -> SocketAddr {
        self.fts_address
    }

    /// A connection of the operator.
    pub fn operator(&self) -> Http {
        Http::new(self.address, &self.token)
    }

    /// What its operator logs in by.
    pub fn operator_token(&self) -> &str {
        &self.token
    }

    /// A connection of a browser of the operator.
    ///
    /// # Errors
    /// The login fails.
    pub async fn operator_browser(&self) -> io::Result<Http> {
        Http::browser(self.address, &self.token).await
    }

    /// The same of a user.
    ///
    /// # Errors
    /// The login fails.
    pub async fn browser(&self, account: &Account) -> io::Result<Http> {
        Http::browser(self.address, &account.token).await
    }

    /// Changes the database beside the service.
    ///
    /// # Errors
    /// The program of the database is missing or refuses.
    pub fn execute(&self, statements: &str) -> Result<(), LoadError> {
        let script = self.folder.path().join("statements.sql");
        fs::write(&script, statements).map_err(io_error(&script))?;
        let mut command = match &self.postgres {
            Some(postgres) => {
                let mut psql = postgres_program("psql")?;
                psql.args(["--quiet", "--set", "ON_ERROR_STOP=1", "--dbname"]);
                psql.arg(postgres.url()).arg("--file").arg(&script);
                psql
            }
            None => {
                let mut sqlite = Command::new("sqlite3");
                sqlite.args(["-bail", "-cmd", ".timeout 60000"]);
                sqlite.arg(self.folder.path().join("db"));
                sqlite.arg(format!(".read {}", script.display()));
                sqlite
            }
        };
        command.stdin(Stdio::null());
        process::run(command, SCRIPT_TIMEOUT)?.success()?;
        Ok(())
    }

    /// A connection of a user or an agent.
    pub fn http(&self, account: &Account) -> Http {
        Http::new(self.address, &account.token)
    }

    /// Processor time of the process that serves.
    pub fn cpu(&self) -> Duration {
        self.serve.usage().cpu()
    }

    /// Looks at its memory from now on.
    pub fn watch_memory(&self) -> MemoryWatch {
        self.serve.watch_memory(MEMORY_INTERVAL)
    }

    /// Bytes by which the database's files have grown, without logs that are reused.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn database_bytes(&self) -> io::Result<u64> {
        let bytes = match self.postgres.as_ref() {
            Some(postgres) => bytes_below(&postgres.data().join("base"))?,
            None => fs::metadata(self.folder.path().join("db"))?.len(),
        };
        Ok(bytes.saturating_sub(self.empty_bytes))
    }

    /// Seconds of the steps of the leader that the service has logged, after the first `skip`.
    pub fn steps(&self, skip: usize) -> Vec<f64> {
        let log = self.serve.log();
        let steps = log.lines().filter_map(|line| {
            let (_, rest) = line.split_once("the leader looked micros=")?;
            let micros: f64 = rest.split(' ').next()?.parse().ok()?;
            Some(micros / 1e6)
        });
        steps.skip(skip).collect()
    }

    /// Makes so many users, or agents.
    ///
    /// # Errors
    /// The service refuses.
    pub async fn accounts(&self, role: &str, count: usize) -> Result<Vec<Account>, LoadError> {
        let mut makers = JoinSet::new();
        for maker in 0..MAKERS {
            let (mut http, role) = (self.operator(), role.to_owned());
            makers.spawn(async move {
                let mut made = Vec::new();
                for number in (maker..count).step_by(MAKERS) {
                    let name = format!("{role}{number:05}");
                    made.push(new_account(&mut http, name, &role, &[]).await?);
                }
                Ok::<_, std::io::Error>(made)
            });
        }
        let mut accounts = Vec::with_capacity(count);
        while let Some(made) = makers.join_next().await {
            accounts.extend(made.map_err(std::io::Error::other)??);
        }
        accounts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(accounts)
    }
}

/// The program of the service, on this database.
fn program(
    verb: &str,
    folder: &Path,
    postgres: Option<&Postgres>,
) -> Result<Command, peers::Error> {
    let url = match postgres {
        Some(postgres) => postgres.url(),
        None => format!("sqlite:{}?mode=rwc", folder.join("db").display()),
    };
    let mut command = Command::new(binary(PROGRAM)?);
    command.env("NO_COLOR", "1").env("GODWIT_SERVICE_LOG", LOG);
    command.args([verb, "--database", &url, "--key-file"]);
    command.arg(folder.join("key"));
    Ok(command)
}

/// A process that serves, and where it listens.
fn serve(
    folder: &Path,
    postgres: Option<&Postgres>,
    flags: &[String],
) -> Result<(Process, SocketAddr), LoadError> {
    let mut serve = program("serve", folder, postgres)?;
    serve.args(flags);
    let options = Options {
        output_limit: LOG_BYTES,
        ..Options::default()
    };
    let mut serve = Process::spawn(serve, options)?;
    let address = |line: &str| line.strip_prefix("http://")?.trim().parse().ok();
    let what = "say where it listens";
    let address = serve.wait_for_line(Stream::Stdout, what, START_TIMEOUT, address)?;
    Ok((serve, address))
}

fn postgres_program(name: &str) -> Result<Command, LoadError> {
    let programs = peers::postgres::programs().map_err(peers::Error::from)?;
    Ok(Command::new(programs.join(name)))
}

/// Makes a user or an agent of this name, as an operator.
///
/// # Errors
/// The service refuses.
pub async fn new_account(
    http: &mut Http,
    name: String,
    role: &str,
    groups: &[&str],
) -> io::Result<Account> {
    let user = json!({"name": name, "role": role, "groups": groups}).to_string();
    let _: Value = http.must("PUT", "/api/v1/users", user.as_bytes()).await?;
    let token = json!({"label": "load", "user": name}).to_string();
    let made: NewToken = http
        .must("POST", "/api/v1/tokens", token.as_bytes())
        .await?;
    let token = made.token;
    Ok(Account { name, token })
}

fn bytes_below(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            // Files come and go.
            false => entry.metadata().map_or(0, |found| found.len()),
        };
    }
    Ok(bytes)
}
