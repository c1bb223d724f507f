//! The program on a laptop: `serve` with an agent in its process, `migrate`, `doctor`.

use std::{path::PathBuf, time::Duration};

use godwit_service::{
    serve::Server,
    store::{Store, StoreError},
};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::{
    harness::Served,
    site::{Site, settings},
};

#[test]
fn one_command_serves_one_person_and_its_log_has_no_token() {
    use std::{
        fs::{self, File},
        io::{BufRead as _, BufReader},
        os::unix::fs::PermissionsExt as _,
        process::{Command, Stdio},
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // A pipe that nobody reads would hold the program up.
    let log = folder.path().join("log");
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_godwit-service"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .env("GODWIT_SERVICE_LOG", "debug")
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap()
    };
    let mut child = start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let token = lines
        .next()
        .unwrap()
        .unwrap()
        .strip_prefix("token: ")
        .unwrap()
        .to_owned();
    let kept = |name: &str| {
        std::fs::read_to_string(data.join(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!((kept("url"), kept("token")), (url.clone(), token.clone()));
    for name in ["token", "key"] {
        let mode = std::fs::metadata(data.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let me = runtime.block_on(async {
        let client = Client::builder().no_proxy().build().unwrap();
        let me = client
            .get(format!("{url}/api/v1/me"))
            .bearer_auth(&token)
            .send()
            .await
            .unwrap();
        me.json::<Value>().await.unwrap()
    });
    assert_eq!(me["role"], "operator");
    let end = |mut child: std::process::Child| {
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let ended = child.wait().unwrap();
        let log = fs::read_to_string(&log).unwrap();
        assert!(ended.success(), "{log}");
        log
    };
    let log = end(child);
    assert!(
        log.contains("godwit-service ends") && !log.contains(&token),
        "{log}"
    );
    // The token is made once.
    let mut child = start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .next()
            .unwrap()
            .unwrap()
            .starts_with("http://127.0.0.1:")
    );
    let log = end(child);
    assert!(lines.next().is_none(), "{log}");
    assert_eq!(kept("token"), token);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_one_person_copies_what_is_submitted() {
    let (from, to) = (Served::start(), Served::start());
    from.write("a", b"content");
    let (site, running) = Site::laptop(&[]).await;
    let user = site.operator();
    let file = json!({"source": from.url("/a"), "destination": to.url("/b")});
    let id = user.submit(json!({"files": [file]})).await;
    // Ends with the job.
    let events = user.request(Method::GET, &format!("/jobs/{id}/events"));
    let events = events.send().await.unwrap().text().await.unwrap();
    assert!(events.contains("\"state\":\"finished\""), "{events}");
    assert_eq!(std::fs::read(to.path("b")).unwrap(), b"content");
    drop(site);
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_ends_when_another_has_migrated_the_tables_to_a_later_version() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let serve = [
        "godwit-service",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &data,
    ];
    let server = Server::bind(settings(&serve)).await.unwrap();
    let running = tokio::spawn(server.run(std::future::pending()));
    let url = format!("sqlite:{data}/service.db");
    let later = "INSERT INTO _sqlx_migrations
        (version, description, success, checksum, execution_time) VALUES (999, '', 1, x'', 0)";
    let tables = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query(later).execute(&tables).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(100), running).await;
    let why = ended.unwrap().unwrap().unwrap_err().to_string();
    assert!(
        why.contains("have version 999, and this program knows"),
        "{why}"
    );
    // Nor does it start, or change them.
    for refused in [Store::open(&url).await, Store::migrate(&url).await] {
        assert!(matches!(refused, Err(StoreError::Newer { has: 999, .. })));
    }
}

#[test]
fn the_doctor_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let run = |verb: &str, more: &[PathBuf]| {
        let database = format!("sqlite:{}?mode=rwc", path("db").display());
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_godwit-service"))
            .args([verb, "--database", &database, "--key-file"])
            .arg(path("key"))
            .args(more)
            .output()
            .unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (status, text) = run("doctor", &[]);
    assert!(status == 1 && text.contains("FAILED database"), "{text}");
    let token = path("operator");
    assert_eq!(
        run("migrate", &["--operator-token".into(), token.clone()]).0,
        0
    );
    assert!(std::fs::read_to_string(token).unwrap().starts_with("gwt_"));
    let (status, text) = run("doctor", &[]);
    assert!(status == 1 && text.contains("FAILED agents"), "{text}");
    assert!(
        text.contains("ok     database") && text.contains("ok     clock"),
        "{text}"
    );
}
