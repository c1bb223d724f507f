//! A service on SQLite in a directory of its own, and the users that talk to it over HTTP.

use std::net::SocketAddr;

use clap::Parser as _;
use godwit_service::{
    config::{Arguments, ServeSettings, Verb},
    serve::{Server, make_operator},
    store::Store,
};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};

/// A service that serves, and its operator.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    /// Where clients of FTS3 ask, with `--fts`.
    pub(crate) fts_url: String,
    /// Where metrics are, with `--metrics`.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) client: Client,
    pub(crate) operator: String,
    pub(crate) _stop: oneshot::Sender<()>,
}

/// A user of a site.
#[derive(Clone)]
pub(crate) struct User<'a> {
    site: &'a Site,
    pub(crate) token: String,
}

impl Site {
    /// As a site has it: nothing is open, no agent in the process.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (database, key) = (format!("sqlite:{}?mode=rwc", path("db")), path("key"));
        let mut arguments = vec!["godwit-service", "serve", "--listen", "127.0.0.1:0"];
        arguments.extend(["--database", &database, "--key-file", &key]);
        arguments.extend(flags);
        let settings = settings(&arguments);
        let store = Store::migrate(&settings.database).await.unwrap();
        let token = folder.path().join("token");
        make_operator(&store, &token).await.unwrap();
        store.close().await;
        let server = Server::bind(settings).await.unwrap();
        let url = server.url().to_owned();
        let metrics = server.metrics_address();
        let fts = server.fts_addresses().first();
        let fts_url = fts.map(|address| format!("http://{address}"));
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async {
            // Dropped with the site.
            let _ = stopped.await;
        }));
        let operator = std::fs::read_to_string(&token).unwrap().trim().to_owned();
        Self {
            folder,
            url,
            fts_url: fts_url.unwrap_or_default(),
            metrics,
            client: Client::builder().no_proxy().build().unwrap(),
            operator,
            _stop: stop,
        }
    }

    /// One whose users copy between servers of FTP, and may ask often.
    pub(crate) async fn of_ftp() -> Self {
        let flags = ["--allow-endpoint", "ftp://*"];
        Self::start(&[&flags[..], &["--requests-per-second", "1000"]].concat()).await
    }

    /// As one person has it: with an agent in the process. Its end when it was dropped.
    pub(crate) async fn laptop(flags: &[&str]) -> (Self, JoinHandle<()>) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data").display().to_string();
        let mut arguments = vec!["godwit-service", "serve", "--listen", "127.0.0.1:0"];
        arguments.extend(["--data", &data]);
        arguments.extend(flags);
        let server = Server::bind(settings(&arguments)).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let site = Self {
            url: server.url().to_owned(),
            fts_url: String::new(),
            metrics: server.metrics_address(),
            client: Client::builder().no_proxy().build().unwrap(),
            operator: server.new_token().unwrap().to_owned(),
            _stop: stop,
            folder,
        };
        let running = tokio::spawn(async {
            let stopped = async {
                let _ = stopped.await;
            };
            server.run(stopped).await.unwrap();
        });
        (site, running)
    }

    pub(crate) fn operator(&self) -> User<'_> {
        self.with(&self.operator)
    }

    pub(crate) fn with(&self, token: &str) -> User<'_> {
        User {
            site: self,
            token: token.to_owned(),
        }
    }

    /// Makes a user, and a token of it.
    pub(crate) async fn user(&self, name: &str, role: &str, groups: &[&str]) -> User<'_> {
        let operator = self.operator();
        let user = json!({"name": name, "role": role, "groups": groups});
        operator.ok(Method::PUT, "/users", user).await;
        let wanted = json!({"label": "test", "user": name});
        let token = operator.ok(Method::POST, "/tokens", wanted).await;
        self.with(token["token"].as_str().unwrap())
    }

    pub(crate) fn database_bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap());
        let files = files.filter(|file| file.file_name() != "token" && file.path().is_file());
        files
            .flat_map(|file| std::fs::read(file.path()).unwrap())
            .collect()
    }
}

pub(crate) fn settings(arguments: &[&str]) -> ServeSettings {
    match Arguments::try_parse_from(arguments).unwrap().verb {
        Verb::Serve(settings) => settings.resolve().unwrap(),
        _ => unreachable!("serve"),
    }
}

impl User<'_> {
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/api/v1{path}", self.site.url);
        self.site
            .client
            .request(method, url)
            .bearer_auth(&self.token)
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) -> Response {
        let request = self.request(method, path);
        let request = if body.is_null() {
            request
        } else {
            request.json(&body)
        };
        request.send().await.unwrap()
    }

    /// What an answer that is no error says.
    pub(crate) async fn ok(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.send(method, path, body).await;
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap()
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ok(Method::GET, path, Value::Null).await
    }

    /// Status and code of a refusal.
    pub(crate) async fn refused(&self, method: Method, path: &str, body: Value) -> (u16, String) {
        problem(self.send(method, path, body).await).await
    }

    pub(crate) async fn submit(&self, body: Value) -> String {
        let job = self.ok(Method::POST, "/jobs", body).await;
        job["id"].as_str().unwrap().to_owned()
    }
}

/// Status and code of an answer, which must be a problem.
pub(crate) async fn problem(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let media = answer.headers().get("content-type").cloned();
    let text = answer.text().await.unwrap();
    assert_eq!(
        media.unwrap(),
        "application/problem+json",
        "{status} {text}"
    );
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["status"], status, "{text}");
    (status, body["code"].as_str().unwrap().to_owned())
}

pub(crate) fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

pub(crate) fn files(count: usize) -> Value {
    let file = |n| {
        json!({"source": format!("gsiftp://a.example.org/f{n}"),
            "destination": format!("gsiftp://b.example.org/f{n}"), "bytes": 10})
    };
    (0..count).map(file).collect()
}
