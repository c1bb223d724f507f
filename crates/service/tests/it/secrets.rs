//! Secrets of every kind are planted, and all that the service writes and says is searched.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use godwit_gsi::cert::{key::KeyKind, own};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::{collector::Collector, harness::Served};

/// A service for one person as a process, with all that it logs.
struct Program {
    process: Child,
    folder: tempfile::TempDir,
    url: String,
    token: String,
    client: Client,
    /// All answers so far.
    said: String,
}

impl Program {
    fn start(collector: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_godwit-service"))
            .env("HOME", folder.path())
            .env("GODWIT_SERVICE_LOG", "trace")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next().unwrap().unwrap();
        let token = lines.next().unwrap().unwrap();
        Self {
            process,
            folder,
            url,
            token: token.strip_prefix("token: ").unwrap().to_owned(),
            client: Client::builder().no_proxy().build().unwrap(),
            said: String::new(),
        }
    }

    async fn ask(&mut self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let url = format!("{}/api/v1{path}", self.url);
        let mut request = self.client.request(method, url).bearer_auth(token);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let headers = format!("{:?}", answer.headers());
        let text = answer.text().await.unwrap();
        self.said += &format!("{headers}\n{text}\n");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    async fn operator(&mut self, method: Method, path: &str, body: Value) -> Value {
        let token = self.token.clone();
        self.ask(&token, method, path, body).await
    }

    /// What lies in its directories and logs, but for files that exist to hold a secret.
    fn written(&self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        collect(self.folder.path(), &mut all);
        all.retain(|(path, _)| !path.ends_with("/data/token") && !path.ends_with("/data/key"));
        all
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn collect(folder: &Path, all: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, all),
            // Files of the database come and go.
            false => all.extend(
                fs::read(&path)
                    .ok()
                    .map(|b| (path.display().to_string(), b)),
            ),
        }
    }
}

fn holds(bytes: &[u8], secret: &str) -> bool {
    bytes
        .windows(secret.len())
        .any(|part| part == secret.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_written_or_said() {
    let server = Served::start();
    server.write("x", b"content");
    let collector = Collector::start().await;
    let mut program = Program::start(&collector.url);
    let lifetime = Duration::from_secs(3600);
    let proxy = own::thrown_away("jo", KeyKind::EcP256, lifetime, SystemTime::now());
    let proxy = String::from_utf8(proxy.unwrap().to_pem().unwrap()).unwrap();
    let key_lines = proxy.split("PRIVATE KEY-----").nth(1).unwrap();
    let key_line = key_lines
        .lines()
        .find(|line| line.len() > 40)
        .unwrap()
        .to_owned();
    let mut secrets = vec![
        ("operator's token", program.token.clone()),
        ("proxy", key_line),
        ("bearer token", "planted-bearer-5f1c9a".to_owned()),
        (
            "password of an endpoint",
            "planted-endpoint-77c2e1".to_owned(),
        ),
        ("password of a user", "planted user 0b4d3f".to_owned()),
        ("password that is wrong", "planted wrong 9a31b0".to_owned()),
    ];
    let secret = |secrets: &[(_, String)], at: usize| secrets[at].1.clone();

    let user = json!({"name": "jo", "role": "user", "password": secret(&secrets, 4)});
    program.operator(Method::PUT, "/users", user).await;
    let agent = json!({"name": "mover", "role": "agent"});
    program.operator(Method::PUT, "/users", agent).await;
    for (user, what) in [("jo", "user's token"), ("mover", "agent's token")] {
        let wanted = json!({"label": "planted", "user": user});
        let said = program.said.len();
        let made = program.operator(Method::POST, "/tokens", wanted).await;
        // A new token is told this once.
        program.said.truncate(said);
        secrets.push((what, made["token"].as_str().unwrap().to_owned()));
    }
    let jo = secret(&secrets, 6);
    for wrong in [secret(&secrets, 5), secret(&secrets, 4) + " not"] {
        let login = json!({"user": "jo", "password": wrong});
        program.ask("", Method::POST, "/login", login).await;
    }
    program
        .ask(&secret(&secrets, 5), Method::GET, "/me", Value::Null)
        .await;

    let endpoint = server.url("");
    let password = json!({"password": {"user": "planted", "password": secret(&secrets, 3)}});
    let kinds = [
        (&*endpoint, password),
        ("ftpes://*", json!({"token": secret(&secrets, 2)})),
        ("gsiftp://*", json!({"proxy": proxy.clone()})),
    ];
    for (endpoint, kind) in &kinds {
        let good = json!({"endpoint": endpoint, "secret": kind});
        let stored = program.ask(&jo, Method::POST, "/credentials", good).await;
        assert!(stored["id"].is_string(), "{endpoint}: {stored}");
        for wrong in [
            json!({"endpoint": 7, "secret": kind}),
            json!({"endpoint": endpoint, "secret": kind, "more": 1}),
            json!({"endpoint": endpoint, "secret": [kind]}),
        ] {
            program.ask(&jo, Method::POST, "/credentials", wrong).await;
        }
    }
    // The server has no such user, and nothing listens at the others.
    let closed = |scheme: &str| format!("{scheme}://127.0.0.1:9/x");
    let with_password = endpoint.replace("://", &format!("://u:{}@", secret(&secrets, 3)));
    let files = [
        (server.url("/x"), server.url("/y")),
        (closed("ftpes"), server.url("/z")),
        (closed("gsiftp"), server.url("/z")),
    ];
    let files: Vec<_> = files
        .iter()
        .map(|(source, destination)| json!({"source": source, "destination": destination}))
        .collect();
    let job = json!({"files": files, "options": {"attempts": 1}});
    let job = program.ask(&jo, Method::POST, "/jobs", job).await;
    let id = job["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{job}"))
        .to_owned();
    let refused = json!({"files": [{"source": with_password, "destination": server.url("/z")}]});
    program.ask(&jo, Method::POST, "/jobs", refused).await;
    let path = format!("/jobs/{id}");
    for wait in 0.. {
        let job = program.ask(&jo, Method::GET, &path, Value::Null).await;
        if job["ended"].is_string() {
            break;
        }
        assert!(wait < 600, "{job}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for path in [
        "/jobs".to_owned(),
        format!("{path}/files"),
        format!("{path}/events"),
        format!("{path}/receipt?format=csv"),
        format!("{path}/receipt?format=json"),
        "/credentials".to_owned(),
        "/tokens".to_owned(),
        "/me".to_owned(),
    ] {
        program.ask(&jo, Method::GET, &path, Value::Null).await;
    }
    for path in [
        "/audit",
        "/users",
        "/tokens",
        "/agents",
        "/endpoints",
        "/links",
        "/shares",
    ] {
        program.operator(Method::GET, path, Value::Null).await;
    }
    let down = program
        .client
        .get(format!("{}/none", program.url))
        .send()
        .await
        .unwrap();
    assert_eq!(down.status(), StatusCode::NOT_FOUND);

    let mut written = program.written();
    for name in ["submit", "lease", "transfer"] {
        collector.span(&id, name).await;
    }
    written.push(("a trace".to_owned(), collector.bytes()));
    assert!(holds(program.said.as_bytes(), &id));
    assert!(
        written
            .iter()
            .any(|(path, bytes)| path.ends_with("log") && holds(bytes, "unit starts"))
    );
    assert!(
        written
            .iter()
            .any(|(path, bytes)| path.contains("service.db") && holds(bytes, &id))
    );
    for (what, secret) in &secrets {
        for text in [
            secret.clone(),
            secret.replace(' ', "%20"),
            secret.replace(' ', "+"),
        ] {
            assert!(
                !holds(program.said.as_bytes(), &text),
                "{what} is in an answer"
            );
            for (path, bytes) in &written {
                assert!(!holds(bytes, &text), "{what} is in {path}");
            }
        }
    }
}
