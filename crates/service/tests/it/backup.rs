//! A backup of a service with work in its queue, restored after all is lost, goes on to the end: by
//! the commands of `docs/service-operating.md`.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use godwit_service::{
    serve::{Server, enroll_agent, make_operator},
    store::Store,
};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    fixture::Fixture,
    harness::{Served, bytes},
    site::{Site, settings},
};

/// What an operator does with the database.
trait Database {
    fn url(&self) -> String;
    fn back_up(&self, to: &Path);
    fn destroy(&self);
    fn restore(&self, from: &Path);
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

struct Sqlite(PathBuf);

impl Database for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}?mode=rwc", self.0.display())
    }

    fn back_up(&self, to: &Path) {
        let into = format!("VACUUM INTO '{}'", to.display());
        run(Command::new("sqlite3").arg(&self.0).arg(into));
    }

    fn destroy(&self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.0.clone().into_os_string();
            path.push(suffix);
            let gone = std::fs::remove_file(&path);
            assert!(gone.is_ok() || !suffix.is_empty(), "{path:?}");
        }
    }

    fn restore(&self, from: &Path) {
        std::fs::copy(from, &self.0).unwrap();
    }
}

struct Postgres(Fixture);

impl Postgres {
    fn program(&self, name: &str) -> Command {
        let programs = &self.0.server.as_ref().unwrap().programs;
        Command::new(programs.join(name))
    }

    fn psql(&self, statements: &[&str]) {
        let mut psql = self.program("psql");
        psql.args(["--dbname", &self.0.url]);
        run(psql.args(statements.iter().flat_map(|text| ["--command", text])));
    }
}

impl Database for Postgres {
    fn url(&self) -> String {
        self.0.url.clone()
    }

    fn back_up(&self, to: &Path) {
        let mut dump = self.program("pg_dump");
        run(dump
            .args(["--format=custom", "--dbname", &self.0.url, "--file"])
            .arg(to));
    }

    /// Some tables are left, as after a mistake.
    fn destroy(&self) {
        self.psql(&["DROP TABLE job CASCADE", "DROP TABLE _sqlx_migrations"]);
    }

    fn restore(&self, from: &Path) {
        self.psql(&["DROP SCHEMA public CASCADE", "CREATE SCHEMA public"]);
        let mut restore = self.program("pg_restore");
        restore.args(["--exit-on-error", "--single-transaction"]);
        run(restore.args(["--dbname", &self.0.url]).arg(from));
    }
}

/// A process that serves, until its site is dropped.
async fn serve(database: &dyn Database, key: &Path, operator: &str) -> (Site, JoinHandle<()>) {
    let (database, key) = (database.url(), key.display().to_string());
    let mut arguments = vec!["godwit-service", "serve", "--listen", "127.0.0.1:0"];
    arguments.extend(["--database", &database, "--key-file", &key]);
    arguments.extend(["--allow-endpoint", "ftp://127.0.0.1:*"]);
    let server = Server::bind(settings(&arguments)).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let site = Site {
        folder: tempfile::tempdir().unwrap(),
        url: server.url().to_owned(),
        fts_url: String::new(),
        metrics: None,
        client: Client::builder().no_proxy().build().unwrap(),
        operator: operator.to_owned(),
        _stop: stop,
    };
    let running = tokio::spawn(async {
        let stopped = async {
            let _ = stopped.await;
        };
        server.run(stopped).await.unwrap();
    });
    (site, running)
}

/// Ends with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ended(site: &Site, id: &str) -> Value {
    for _ in 0..900 {
        let job = site.operator().get(&format!("/jobs/{id}")).await;
        if !["queued", "active", "submitting"].contains(&job["state"].as_str().unwrap()) {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:#}", site.operator().get(&format!("/jobs/{id}")).await);
}

/// With the same key each time.
async fn submit_once(site: &Site, job: &Value) -> String {
    let request = site.operator().request(Method::POST, "/jobs").json(job);
    let answer = request
        .header("idempotency-key", "late")
        .send()
        .await
        .unwrap();
    let job: Value = answer.json().await.unwrap();
    job["id"].as_str().unwrap().to_owned()
}

async fn claim(database: &dyn Database) {
    let (from, to) = (Served::start(), Served::start());
    for n in 0..20 {
        from.write(&format!("f{n}"), &bytes(10_000 * n, n as u64));
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let store = Store::migrate(&database.url()).await.unwrap();
    make_operator(&store, &at("operator")).await.unwrap();
    enroll_agent(&store, "mover", &at("mover")).await.unwrap();
    store.close().await;
    let operator = std::fs::read_to_string(at("operator")).unwrap();
    let operator = operator.trim();
    let (site, running) = serve(database, &at("key"), operator).await;
    let pair = |n: usize| {
        let path = format!("/f{n}");
        json!({"source": from.url(&path), "destination": to.url(&path)})
    };
    let queued: Vec<Value> = (0..20).map(pair).collect();
    let queued = site.operator().submit(json!({"files": queued})).await;
    // While it serves.
    database.back_up(&at("backup"));
    // The backup does not know this one.
    let late = json!({"files": [pair(3)], "options": {"overwrite": "different"}});
    let lost = submit_once(&site, &late).await;
    drop(site);
    running.await.unwrap();
    database.destroy();
    assert!(
        Store::open(&database.url()).await.is_err(),
        "nothing is lost"
    );
    database.restore(&at("backup"));

    let (site, running) = serve(database, &at("key"), operator).await;
    let mut agent = Command::new(env!("CARGO_BIN_EXE_godwit-service"));
    agent.args([
        "agent",
        "--name",
        "mover",
        "--service",
        &site.url,
        "--drain",
        "1",
    ]);
    agent
        .arg("--token-file")
        .arg(at("mover"))
        .arg("--state")
        .arg(at("state"));
    let _agent = Agent(
        agent
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let job = ended(&site, &queued).await;
    assert_eq!(
        (&job["state"], &job["files"]["finished"]),
        (&json!("finished"), &json!(20))
    );
    for n in 0..20 {
        let copy = std::fs::read(to.path(&format!("f{n}"))).unwrap();
        assert!(copy == bytes(10_000 * n, n as u64), "f{n}");
    }
    let unknown = format!("/jobs/{lost}");
    let refused = site
        .operator()
        .refused(Method::GET, &unknown, Value::Null)
        .await;
    assert_eq!(refused.0, 404);
    // Its user sends it again.
    let again = submit_once(&site, &late).await;
    assert_eq!(ended(&site, &again).await["state"], "finished");
    drop(site);
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_a_backup_of_sqlite_is_done_after_a_loss() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        let is_required = std::env::var_os("GODWIT_REQUIRE_PEERS").is_some_and(|v| v == "1");
        assert!(!is_required, "sqlite3 is missing");
        eprintln!("skipped: sqlite3 is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    claim(&Sqlite(folder.path().join("service.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_a_backup_of_postgresql_is_done_after_a_loss() {
    if let Some(fixture) = Fixture::postgres().await {
        claim(&Postgres(fixture)).await;
    }
}
