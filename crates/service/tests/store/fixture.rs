//! Databases for the tests: a file, or a private PostgreSQL server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use godwit_service::store::Store;
use tempfile::TempDir;

/// Lease of agents in tests.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A database that ends with the test.
pub(crate) struct Fixture {
    pub(crate) url: String,
    pub(crate) store: Store,
    pub(crate) server: Option<Server>,
    pub(crate) raw: sqlx::AnyPool,
    _directory: TempDir,
}

impl Fixture {
    pub(crate) async fn sqlite() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", directory.path().join("db").display());
        Fixture::new(url, directory, None).await
    }

    /// `None`: this machine has no PostgreSQL.
    pub(crate) async fn postgres() -> Option<Fixture> {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path())?;
        let url = server.url();
        Some(Fixture::new(url, directory, Some(server)).await)
    }

    async fn new(url: String, directory: TempDir, server: Option<Server>) -> Fixture {
        let store = Store::migrate(&url).await.unwrap().with_lease(LEASE);
        let raw = sqlx::AnyPool::connect(&url).await.unwrap();
        Fixture {
            url,
            raw,
            store,
            server,
            _directory: directory,
        }
    }
}

impl Fixture {
    /// Changes the database behind the back of the store.
    pub(crate) async fn execute(&self, statement: impl Into<String>) {
        let statement = sqlx::AssertSqlSafe(statement.into());
        sqlx::query(statement).execute(&self.raw).await.unwrap();
    }

    /// The first column of the first row.
    pub(crate) async fn number(&self, statement: &'static str) -> i64 {
        let row = sqlx::query(statement).fetch_one(&self.raw).await.unwrap();
        sqlx::Row::try_get(&row, 0).unwrap()
    }

    /// The database has answered for a long time, and all leases of agents have ended.
    pub(crate) async fn end_leases(&self) {
        self.execute("UPDATE leader SET steady_since = 0").await;
        self.execute("UPDATE agent SET lease_until = 0").await;
    }
}

/// PostgreSQL in a directory of its own, on a socket there.
pub(crate) struct Server {
    data: PathBuf,
    /// Where PostgreSQL's programs are.
    pub(crate) programs: PathBuf,
}

impl Server {
    fn start(directory: &Path) -> Option<Server> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os("GODWIT_REQUIRE_PEERS").is_none_or(|v| v != "1"),
                "PostgreSQL is missing"
            );
            eprintln!("skipped: PostgreSQL is missing");
            return None;
        };
        let data = directory.join("data");
        fs::create_dir(&data).unwrap();
        let server = Server { data, programs };
        // PostgreSQL refuses root.
        if am_root() {
            let parent = Command::new("chmod").arg("755").arg(directory).status();
            assert!(parent.unwrap().success());
            let owned = Command::new("chown")
                .arg("nobody")
                .arg(&server.data)
                .status();
            assert!(owned.unwrap().success());
        }
        let data = server.data.display().to_string();
        server.run(
            "initdb",
            &["-D", &data, "-A", "trust", "-U", "godwit", "-N"],
        );
        server.begin();
        Some(server)
    }

    fn url(&self) -> String {
        let socket = self.data.display().to_string().replace('/', "%2F");
        format!("postgres://godwit@{socket}/postgres")
    }

    /// Starts the server that was stopped.
    pub(crate) fn begin(&self) {
        let data = self.data.display().to_string();
        let log = self.data.join("log").display().to_string();
        let options = format!("-k {data} -c listen_addresses=");
        self.run(
            "pg_ctl",
            &["-D", &data, "-l", &log, "-o", &options, "-w", "start"],
        );
    }

    /// Stops the server at once, as a crash does.
    pub(crate) fn crash(&self) {
        let data = self.data.display().to_string();
        self.run("pg_ctl", &["-D", &data, "-m", "immediate", "-w", "stop"]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let path = self.programs.join(program);
        let mut command = if am_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
            command.arg(path);
            command
        } else {
            Command::new(path)
        };
        let command = command.args(arguments).current_dir("/");
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(status.unwrap().success(), "{program} {arguments:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.data.join("postmaster.pid").exists() {
            self.crash();
        }
    }
}

fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}
