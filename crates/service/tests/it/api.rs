//! The API over HTTP, on SQLite in a directory of its own.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Parser as _;
use godwit_service::{
    config::{Arguments, Verb},
    serve::{Server, make_operator},
    store::Store,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::harness::Served;

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// A service that serves, and its operator.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    pub(crate) client: Client,
    operator: String,
    _stop: oneshot::Sender<()>,
}

/// A user of a site.
#[derive(Clone)]
pub(crate) struct User<'a> {
    site: &'a Site,
    token: String,
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
        let settings = match Arguments::try_parse_from(arguments).unwrap().verb {
            Verb::Serve(settings) => settings.resolve().unwrap(),
            _ => unreachable!("serve"),
        };
        let store = Store::migrate(&settings.database).await.unwrap();
        let token = folder.path().join("token");
        make_operator(&store, &token).await.unwrap();
        store.close().await;
        let server = Server::bind(settings).await.unwrap();
        let url = server.url().to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async {
            // Dropped with the site.
            let _ = stopped.await;
        }));
        let operator = std::fs::read_to_string(&token).unwrap().trim().to_owned();
        Self {
            folder,
            url,
            client: Client::builder().no_proxy().build().unwrap(),
            operator,
            _stop: stop,
        }
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

    fn database_bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap());
        let files = files.filter(|file| file.file_name() != "token" && file.path().is_file());
        files
            .flat_map(|file| std::fs::read(file.path()).unwrap())
            .collect()
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
async fn problem(answer: Response) -> (u16, String) {
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

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn files(count: usize) -> Value {
    let file = |n| {
        json!({"source": format!("gsiftp://a.example.org/f{n}"),
            "destination": format!("gsiftp://b.example.org/f{n}"), "bytes": 10})
    };
    (0..count).map(file).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_submitted_seen_paused_changed_and_canceled() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let body = json!({"files": files(3), "options": {"name": "three"}});
    let answer = alice.send(Method::POST, "/jobs", body).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let location = answer.headers()["location"].to_str().unwrap().to_owned();
    let job: Value = answer.json().await.unwrap();
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(location, format!("/api/v1{path}"));
    assert_eq!(
        (&job["state"], &job["files"]["total"]),
        (&json!("queued"), &json!(3))
    );
    assert_eq!(alice.get(&path).await["options"]["name"], "three");
    assert!(
        !alice
            .get(&format!("{path}/why"))
            .await
            .as_array()
            .unwrap()
            .is_empty()
    );

    let paused = alice
        .ok(Method::POST, &format!("{path}/pause"), Value::Null)
        .await;
    assert_eq!(
        (&paused["state"], &paused["why"][0]["code"]),
        (&json!("paused"), &json!("paused"))
    );
    let conflict = alice
        .refused(Method::POST, &format!("{path}/pause"), Value::Null)
        .await;
    assert_eq!(conflict, refusal(409, "conflict"));
    let resumed = alice
        .ok(Method::POST, &format!("{path}/resume"), Value::Null)
        .await;
    assert_eq!(resumed["state"], "queued");
    let changed = alice.ok(Method::PATCH, &path, json!({"priority": 5})).await;
    assert_eq!(changed["options"]["priority"], 5);
    let wrong = alice
        .refused(Method::PATCH, &path, json!({"priority": 6}))
        .await;
    assert_eq!(wrong, refusal(422, "invalid_value"));
    let canceled = alice
        .ok(Method::POST, &format!("{path}/cancel"), Value::Null)
        .await;
    assert_eq!(
        (&canceled["state"], &canceled["files"]["canceled"]),
        (&json!("canceled"), &json!(3))
    );

    let events = alice
        .request(Method::GET, &format!("{path}/events"))
        .send()
        .await
        .unwrap();
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    let text = events.text().await.unwrap();
    let states = ["queued", "paused", "canceled"].map(|s| format!("\"state\":\"{s}\""));
    assert!(states.iter().all(|state| text.contains(state)), "{text}");
    assert!(text.contains("\"event\":\"progress\""), "{text}");
    let later = alice
        .request(Method::GET, &format!("{path}/events"))
        .header("last-event-id", "2");
    let later = later.send().await.unwrap().text().await.unwrap();
    assert!(
        !later.contains("id: 1\n") && later.contains("id: 3\n"),
        "{later}"
    );

    let csv = alice
        .request(Method::GET, &format!("{path}/receipt"))
        .send()
        .await
        .unwrap();
    let csv = csv.text().await.unwrap();
    assert_eq!(csv.lines().count(), 4);
    assert!(
        csv.lines()
            .nth(1)
            .unwrap()
            .starts_with("0,canceled,10,,gsiftp://a.example.org/f0,")
    );
    let receipt = alice.get(&format!("{path}/receipt?format=json")).await;
    assert_eq!(receipt.as_array().unwrap().len(), 3);
    let actions = site.operator().get("/audit").await;
    let actions: Vec<_> = actions["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| &a["action"])
        .collect();
    for action in [
        "job.submit",
        "job.pause",
        "job.resume",
        "job.change",
        "job.cancel",
        "user.set",
    ] {
        assert!(
            actions.contains(&&json!(action)),
            "{action} is not in {actions:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_gives_the_same_job_and_a_dry_run_gives_none() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let bob = site.user("bob", "user", &[]).await;
    let submit = async |user: &User<'_>, body: &Value| {
        let request = user
            .request(Method::POST, "/jobs")
            .header("idempotency-key", "k1");
        let answer = request.json(body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap())
    };
    let body = json!({"files": files(2)});
    let (first, job) = submit(&alice, &body).await;
    let (second, again) = submit(&alice, &body).await;
    assert_eq!((first, second), (201, 200));
    assert_eq!(job["id"], again["id"]);
    let (of_bob, other) = submit(&bob, &body).await;
    assert!(of_bob == 201 && other["id"] != job["id"]);
    let (reused, why) = submit(
        &alice,
        &json!({"files": files(2), "options": {"attempts": 9}}),
    )
    .await;
    assert_eq!(
        (reused, &why["code"]),
        (422, &json!("idempotency_key_reused"))
    );
    let dry = json!({"files": files(7), "options": {"dry_run": true}});
    let answer = alice.send(Method::POST, "/jobs", dry).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.json::<Value>().await.unwrap()["files"]["total"], 7);
    assert_eq!(
        alice.get("/jobs").await["items"].as_array().unwrap().len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_one_another_and_cursors_of_other_lists_are_refused() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let id = alice.submit(json!({"files": files(2500)})).await;
    let other = alice.submit(json!({"files": files(1)})).await;
    let (mut seen, mut query) = (0, "?limit=1000".to_owned());
    loop {
        let page = alice.get(&format!("/jobs/{id}/files{query}")).await;
        for file in page["items"].as_array().unwrap() {
            assert_eq!(file["index"], seen);
            seen += 1;
        }
        match page["next"].as_str() {
            Some(next) => query = format!("?limit=1000&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 2500);
    let page = alice.get(&format!("/jobs/{id}/files?limit=5")).await;
    let cursor = page["next"].as_str().unwrap();
    for path in [
        format!("/jobs/{other}/files?cursor={cursor}"),
        format!("/jobs/{id}/files?state=failed&cursor={cursor}"),
        format!("/jobs?cursor={cursor}"),
        format!("/jobs/{id}/files?cursor=17"),
        format!("/jobs/{id}/files?cursor=%00"),
    ] {
        let refused = alice.refused(Method::GET, &path, Value::Null).await;
        assert_eq!(refused, refusal(400, "invalid_cursor"), "{path}");
    }
    let page = alice.get("/jobs?limit=1").await;
    assert_eq!(page["items"][0]["id"], other);
    let next = page["next"].as_str().unwrap();
    let page = alice.get(&format!("/jobs?limit=1&cursor={next}")).await;
    assert_eq!(
        (&page["items"][0]["id"], &page["next"]),
        (&json!(id), &Value::Null)
    );
    for query in ["?limit=x", "?state=lost", "?stat=queued", "?owner=nobody"] {
        let (status, _) = alice
            .refused(Method::GET, &format!("/jobs{query}"), Value::Null)
            .await;
        assert!(matches!(status, 400 | 404), "{query}: {status}");
    }
}

fn line(n: usize) -> String {
    format!(
        "{{\"source\":\"gsiftp://a.example.org/d/f{n}\",\
        \"destination\":\"gsiftp://b.example.org/d/f{n}\",\"bytes\":{n}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_thousand_lines_are_one_job() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let body: String = std::iter::once("{}\n".to_owned())
        .chain((0..50_000).map(line))
        .collect();
    let began = Instant::now();
    let request = alice
        .request(Method::POST, "/jobs")
        .header("content-type", LINES);
    let answer = request.body(body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    let job: Value = answer.json().await.unwrap();
    println!("50,000 lines in {:?}", began.elapsed());
    assert_eq!(job["files"]["total"], 50_000);
    let path = format!("/jobs/{}/receipt", job["id"].as_str().unwrap());
    let csv = alice
        .request(Method::GET, &path)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_eq!(csv.lines().count(), 50_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_lines_that_is_wrong_somewhere_leaves_no_job() {
    let site = Site::start(&["--max-files", "3000"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let good: String = std::iter::once("{}\n".to_owned())
        .chain((0..2500).map(line))
        .collect();
    let long = format!("{{\"source\":\"{}\"", "x".repeat(70_000));
    for (bad, status, code) in [
        (
            "{\"source\":\"gsiftp://a.example.org/x\"}\n",
            400,
            "invalid_body",
        ),
        ("[[[[\n", 400, "invalid_body"),
        (
            "{\"source\":\"gsiftp://127.0.0.1/\",\"destination\":\"ftp://b.example.org/\"}",
            422,
            "endpoint_not_allowed",
        ),
        (long.as_str(), 413, "too_large"),
        (&(0..600).map(line).collect::<String>(), 429, "quota"),
    ] {
        let request = alice
            .request(Method::POST, "/jobs")
            .header("content-type", LINES);
        let answer = request.body(format!("{good}{bad}")).send().await.unwrap();
        assert_eq!(problem(answer).await, refusal(status, code), "{:.60}", bad);
        assert_eq!(alice.get("/jobs").await["items"], json!([]));
    }
    for (body, code) in [
        ("", "invalid_body"),
        ("{}\n", "invalid_value"),
        ("\n\n", "invalid_body"),
    ] {
        let request = alice
            .request(Method::POST, "/jobs")
            .header("content-type", LINES);
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(problem(answer).await.1, code, "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_refused_as_problems() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let pair =
        "\"source\":\"gsiftp://a.example.org/x\",\"destination\":\"gsiftp://b.example.org/x\"";
    let options = |text: &str| format!("{{\"files\":[{{{pair}}}],\"options\":{{{text}}}}}");
    let file = |text: &str| format!("{{\"files\":[{{{pair},{text}}}]}}");
    let long = "x".repeat(9000);
    for (body, status) in [
        ("[".repeat(200_000), 400),
        (
            format!("{{\"files\":{}", "[{\"metadata\":".repeat(50_000)),
            400,
        ),
        (
            file(&format!(
                "\"metadata\":{}1{}",
                "[".repeat(200),
                "]".repeat(200)
            )),
            400,
        ),
        (file("\"bytes\":1e999"), 400),
        (file("\"bytes\":-1"), 400),
        (file("\"bytes\":99999999999999999999999999"), 400),
        (file("\"size\":1"), 400),
        (file("\"recursive\":\"yes\""), 400),
        (file("\"checksum\":\"md5:xyz\""), 422),
        (file("\"checksum\":\"rot13:00\""), 422),
        (file(&format!("\"metadata\":\"{long}\"")), 422),
        (options("\"priority\":0"), 422),
        (options("\"priority\":300"), 400),
        (options("\"attempts\":0"), 422),
        (options("\"attempts\":4294967295"), 422),
        (options("\"deadline\":\"2001-01-01T00:00:00Z\""), 422),
        (options("\"deadline\":\"soon\""), 400),
        (options("\"class\":\"first\""), 400),
        (options("\"share\":\"root\""), 422),
        (
            options("\"after\":[\"00000000-0000-0000-0000-000000000001\"]"),
            404,
        ),
        (
            options("\"notify\":[{\"webhook\":{\"url\":\"http://169.254.169.254/\"}}]"),
            422,
        ),
        (options(&format!("\"name\":\"{}\"", "n".repeat(300))), 422),
        (options("\"name\":\"a\\u001b[2Jb\""), 422),
        (options("\"nme\":\"a\""), 400),
        ("{\"files\":[]}".to_owned(), 422),
        ("null".to_owned(), 400),
        ("{".to_owned(), 400),
        (String::new(), 400),
        (format!("{{\"files\":[]}}{}", " ".repeat(8 << 20)), 413),
        (
            serde_json::to_string(&json!({"files": files(10_001)})).unwrap(),
            413,
        ),
    ] {
        let request = alice
            .request(Method::POST, "/jobs")
            .header("content-type", JSON);
        let answer = request.body(body.clone()).send().await.unwrap();
        assert_eq!(problem(answer).await.0, status, "{:.200}", body);
    }
    let raw = alice
        .request(Method::POST, "/jobs")
        .body(&b"\xff\xfe\x00"[..]);
    let raw = raw.header("content-type", JSON).send().await.unwrap();
    assert_eq!(problem(raw).await.0, 400);
    for (method, path, refused) in [
        (Method::POST, "/jobs", refusal(415, "media_type")),
        (Method::GET, "/nowhere", refusal(404, "not_found")),
        (Method::DELETE, "/jobs", refusal(405, "method_not_allowed")),
        (Method::GET, "/jobs/no-id", refusal(404, "not_found")),
        (
            Method::GET,
            "/jobs/..%2f..%2fetc",
            refusal(404, "not_found"),
        ),
        (Method::PUT, "/credentials/1", refusal(404, "not_found")),
    ] {
        assert_eq!(
            alice.refused(method, path, Value::Null).await,
            refused,
            "{path}"
        );
    }
    assert_eq!(alice.get("/jobs").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_others_do_not_exist_but_for_admins_and_operators() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &["physics"]).await;
    let bob = site.user("bob", "user", &["physics"]).await;
    let admin = site.user("carol", "group_admin", &["physics"]).await;
    let stranger = site.user("dave", "group_admin", &["biology"]).await;
    let agent = site.user("dtn1", "agent", &[]).await;
    let id = alice.submit(json!({"files": files(1)})).await;
    let none = "00000000-0000-7000-8000-000000000000";
    for (method, end) in [
        (Method::GET, ""),
        (Method::GET, "/files"),
        (Method::GET, "/events"),
        (Method::GET, "/why"),
        (Method::GET, "/receipt"),
        (Method::POST, "/cancel"),
        (Method::POST, "/pause"),
        (Method::POST, "/resume"),
        (Method::POST, "/retry"),
    ] {
        for user in [&bob, &stranger] {
            let [of_alice, missing] = [&id, none].map(|id| format!("/jobs/{id}{end}"));
            let of_alice = user.send(method.clone(), &of_alice, Value::Null).await;
            let missing = user.send(method.clone(), &missing, Value::Null).await;
            assert_eq!(of_alice.status(), 404, "{end}");
            assert_eq!(
                of_alice.text().await.unwrap(),
                missing.text().await.unwrap()
            );
        }
        let refused = agent
            .refused(method, &format!("/jobs/{id}{end}"), Value::Null)
            .await;
        assert_eq!(refused, refusal(403, "forbidden"));
    }
    let after = json!({"files": files(1), "options": {"after": [id]}});
    assert_eq!(bob.refused(Method::POST, "/jobs", after).await.0, 404);
    let of_alice = bob
        .refused(Method::GET, "/jobs?owner=alice", Value::Null)
        .await;
    assert_eq!(
        of_alice,
        bob.refused(Method::GET, "/jobs?owner=zoe", Value::Null)
            .await
    );
    assert_eq!(bob.get("/jobs?all=true").await["items"], json!([]));
    for user in [&admin, &site.operator()] {
        assert_eq!(user.get(&format!("/jobs/{id}")).await["owner"], "alice");
        let jobs = user.get("/jobs?owner=alice").await;
        assert_eq!(jobs["items"].as_array().unwrap().len(), 1);
    }
    assert_eq!(
        site.operator().get("/jobs?all=true").await["items"][0]["id"],
        id
    );
    for (method, path, body) in [
        (Method::GET, "/users", Value::Null),
        (
            Method::PUT,
            "/users",
            json!({"name": "eve", "role": "operator"}),
        ),
        (Method::PUT, "/endpoints", json!({"name": "ftp://h"})),
        (
            Method::PUT,
            "/links",
            json!({"source": "ftp://h", "destination": "ftp://i", "limits": {}}),
        ),
        (Method::PUT, "/shares", json!({"path": "a", "weight": 1})),
        (Method::GET, "/agents", Value::Null),
        (Method::PATCH, "/agents/x", json!({"draining": true})),
        (Method::GET, "/audit", Value::Null),
        (Method::GET, "/tokens?user=alice", Value::Null),
        (
            Method::POST,
            "/tokens",
            json!({"label": "x", "user": "operator"}),
        ),
    ] {
        let refused = admin.refused(method, path, body).await;
        assert_eq!(refused, refusal(403, "forbidden"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_set_endpoints_links_and_shares() {
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let limits = json!({"sessions": 4, "channels": null, "bytes_per_second": 1000,
        "files_per_second": null});
    let endpoint = json!({"name": "gsiftp://a.example.org", "state": "draining", "limits": limits});
    operator.ok(Method::PUT, "/endpoints", endpoint).await;
    let seen = operator.get("/endpoints").await;
    assert_eq!(
        (&seen[0]["state"], &seen[0]["limits"]),
        (&json!("draining"), &limits)
    );
    let link = json!({"source": "ftp://a", "destination": "ftp://b", "limits": limits});
    operator.ok(Method::PUT, "/links", link.clone()).await;
    assert_eq!(operator.get("/links").await[0], link);
    for (path, weight) in [("physics", 3.0), ("biology", 1.0)] {
        operator
            .ok(
                Method::PUT,
                "/shares",
                json!({"path": path, "weight": weight}),
            )
            .await;
    }
    assert_eq!(operator.get("/shares").await[1]["fair"], 0.75);
    operator
        .ok(
            Method::PUT,
            "/shares",
            json!({"path": "physics", "weight": null}),
        )
        .await;
    assert_eq!(operator.get("/shares").await.as_array().unwrap().len(), 1);
    for (path, body) in [
        ("/endpoints", json!({"name": "h"})),
        ("/endpoints", json!({"name": "FTP://h"})),
        ("/endpoints", json!({"name": "ftp://h/path"})),
        ("/shares", json!({"path": "a//b", "weight": 1.0})),
        ("/shares", json!({"path": "a", "weight": 0.0})),
        ("/shares", json!({"path": "a", "weight": -1.0})),
    ] {
        let refused = operator.refused(Method::PUT, path, body.clone()).await;
        assert_eq!(refused, refusal(422, "invalid_value"), "{body}");
    }
    let gone = operator
        .refused(Method::PATCH, "/agents/x", json!({"draining": true}))
        .await;
    assert_eq!(gone, refusal(404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_and_are_removed_and_users_are_disabled() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let short = json!({"label": "short", "lifetime_seconds": 1});
    let short = alice.ok(Method::POST, "/tokens", short).await;
    let short = site.with(short["token"].as_str().unwrap());
    assert_eq!(short.get("/me").await["name"], "alice");
    let other = alice
        .ok(Method::POST, "/tokens", json!({"label": "other"}))
        .await;
    let second = site.with(other["token"].as_str().unwrap());
    let listed = alice.get("/tokens").await.to_string();
    assert!(listed.contains("other") && !listed.contains("gwt_"));
    let path = format!("/tokens/{}", other["id"].as_str().unwrap());
    let bob = site.user("bob", "user", &[]).await;
    assert_eq!(bob.refused(Method::DELETE, &path, Value::Null).await.0, 404);
    alice.ok(Method::DELETE, &path, Value::Null).await;
    let refused = refusal(401, "unauthenticated");
    assert_eq!(
        second.refused(Method::GET, "/me", Value::Null).await,
        refused
    );
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(
        short.refused(Method::GET, "/me", Value::Null).await,
        refused
    );
    let disabled = json!({"name": "alice", "role": "user", "disabled": true});
    site.operator().ok(Method::PUT, "/users", disabled).await;
    assert_eq!(
        alice.refused(Method::GET, "/me", Value::Null).await,
        refused
    );
    for token in ["", "gwt_", "gwt_AAAA", "x.y.z", "\u{e9}"] {
        assert_eq!(
            site.with(token)
                .refused(Method::GET, "/me", Value::Null)
                .await,
            refused
        );
    }
    let answer = site
        .client
        .get(format!("{}/api/v1/me", site.url))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["www-authenticate"], "Bearer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_gives_a_token_until_it_is_guessed_too_often() {
    let site = Site::start(&[]).await;
    let user = json!({"name": "alice", "role": "user", "password": "correct horse"});
    site.operator().ok(Method::PUT, "/users", user).await;
    let login = async |password: &str| {
        let body = json!({"user": "alice", "password": password});
        site.with("").send(Method::POST, "/login", body).await
    };
    let answer = login("correct horse").await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let token: Value = answer.json().await.unwrap();
    let alice = site.with(token["token"].as_str().unwrap());
    assert_eq!(alice.get("/me").await["has_password"], true);
    // What is not said of the password stays.
    let user = json!({"name": "alice", "role": "user", "groups": ["g"]});
    site.operator().ok(Method::PUT, "/users", user).await;
    assert_eq!(login("correct horse").await.status(), StatusCode::CREATED);
    // Many at the same time are no way round the limit.
    let mut logins = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (client, url) = (site.client.clone(), format!("{}/api/v1/login", site.url));
        let body = json!({"user": "alice", "password": "wrong horse"});
        let login = client.post(url).json(&body).send();
        logins.spawn(async { login.await.unwrap().status() });
    }
    let statuses = logins.join_all().await;
    let tried = statuses.iter().filter(|s| **s == StatusCode::UNAUTHORIZED);
    // One may be forgiven meanwhile.
    assert!((20..=24).contains(&tried.count()), "{statuses:?}");
    assert_eq!(
        problem(login("correct horse").await).await,
        refusal(429, "too_many_logins")
    );
    // Who has a token is not held up by that.
    assert_eq!(alice.get("/me").await["name"], "alice");
    let short = json!({"name": "bob", "role": "user", "password": "short"});
    assert_eq!(
        site.operator()
            .refused(Method::PUT, "/users", short)
            .await
            .0,
        422
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_limits_of_requests_and_jobs() {
    let site = Site::start(&["--requests-per-second", "5", "--max-jobs", "2"]).await;
    let alice = site.user("alice", "user", &[]).await;
    alice.submit(json!({"files": files(1)})).await;
    alice.submit(json!({"files": files(1)})).await;
    let third = alice
        .refused(Method::POST, "/jobs", json!({"files": files(1)}))
        .await;
    assert_eq!(third, refusal(429, "quota"));
    assert_eq!(
        alice.get("/jobs").await["items"].as_array().unwrap().len(),
        2
    );
    let mut limited = None;
    for _ in 0..50 {
        let answer = alice.send(Method::GET, "/me", Value::Null).await;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.unwrap();
    assert!(limited.headers().contains_key("retry-after"));
    assert_eq!(problem(limited).await.1, "rate_limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_of_the_document_wants_a_token() {
    let site = Site::start(&[]).await;
    let url = format!("{}/api/v1/openapi.json", site.url);
    let document: Value = site
        .client
        .get(url)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let id = "00000000-0000-7000-8000-000000000000";
    let mut routes = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let url = format!(
                "{}{}",
                site.url,
                path.replace("{id}", id).replace("{name}", "x")
            );
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = site
                .client
                .request(method.clone(), url)
                .send()
                .await
                .unwrap();
            let status = answer.status().as_u16();
            match path.as_str() {
                "/health" | "/ready" => assert_eq!(status, 200),
                "/api/v1/login" => assert_eq!(status, 415),
                _ => assert_eq!(status, 401, "{method} {path}"),
            }
            routes += 1;
        }
    }
    assert!(routes >= 30, "{routes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_answer_no_log_and_no_file_of_the_database() {
    let (password, secret, token) = ("planted-password", "planted-secret", "planted-token");
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let mut said = String::new();
    let alice = json!({"name": "alice", "role": "user", "password": password});
    said += &operator.ok(Method::PUT, "/users", alice).await.to_string();
    let wanted = json!({"label": "l", "user": "alice"});
    let text = operator.ok(Method::POST, "/tokens", wanted).await;
    let alice = site.with(text["token"].as_str().unwrap());
    for body in [
        json!({"endpoint": "ftp://*", "secret": {"password": {"user": "u", "password": secret}}}),
        json!({"endpoint": "ftp://h", "secret": {"token": token}}),
    ] {
        let view = alice.ok(Method::POST, "/credentials", body.clone()).await;
        said += &view.to_string();
        let path = format!("/credentials/{}", view["id"].as_str().unwrap());
        said += &alice.ok(Method::PUT, &path, body).await.to_string();
    }
    let job = json!({"files": [{"source": format!("ftp://u:{secret}@a.example.org/x"),
        "destination": "ftp://b.example.org/x"}]});
    for (method, path, body) in [
        (Method::POST, "/jobs", job),
        (
            Method::POST,
            "/login",
            json!({"user": "alice", "password": {"x": password}}),
        ),
        (
            Method::POST,
            "/login",
            json!({"user": "bob", "password": password}),
        ),
        (
            Method::POST,
            "/credentials",
            json!({"endpoint": "ftp://h", "secret": {"proxy": secret}}),
        ),
        (
            Method::POST,
            "/credentials",
            json!({"endpoint": "ftp://h", "secret": secret}),
        ),
        (
            Method::POST,
            "/credentials",
            json!({"endpoint": "ftp://h", "secret": {"token": [token]}}),
        ),
        (Method::GET, "/credentials", Value::Null),
        (Method::GET, "/jobs", Value::Null),
        (Method::GET, "/tokens", Value::Null),
        (Method::GET, "/me", Value::Null),
    ] {
        said += &alice.send(method, path, body).await.text().await.unwrap();
    }
    for path in ["/users", "/audit", "/tokens?user=alice"] {
        said += &operator.get(path).await.to_string();
    }
    let kept = site.database_bytes();
    assert!(kept.len() > 10_000 && said.len() > 1000);
    for planted in ["planted", text["token"].as_str().unwrap(), "$argon2"] {
        assert!(!said.contains(planted), "{planted} in {said}");
        let is_hash = planted == "$argon2";
        let found = kept
            .windows(planted.len())
            .any(|part| part == planted.as_bytes());
        assert_eq!(found, is_hash, "{planted} in the database");
    }
}

#[test]
fn one_command_serves_one_person_and_its_log_has_no_token() {
    use std::{
        io::{BufRead as _, BufReader, Read as _},
        os::unix::fs::PermissionsExt as _,
        process::{Command, Stdio},
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_godwit-service"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .env("GODWIT_SERVICE_LOG", "debug")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
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
        let mut log = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        assert!(child.wait().unwrap().success(), "{log}");
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
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let arguments = [
        "godwit-service",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &data,
    ];
    let settings = match Arguments::try_parse_from(arguments).unwrap().verb {
        Verb::Serve(settings) => settings.resolve().unwrap(),
        _ => unreachable!("serve"),
    };
    let server = Server::bind(settings).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let site = Site {
        url: server.url().to_owned(),
        client: Client::builder().no_proxy().build().unwrap(),
        operator: server.new_token().unwrap().to_owned(),
        _stop: stop,
        folder,
    };
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    let user = site.operator();
    let file = json!({"source": from.url("/a"), "destination": to.url("/b")});
    let id = user.submit(json!({"files": [file]})).await;
    // Ends with the job.
    let events = user.request(Method::GET, &format!("/jobs/{id}/events"));
    let events = events.send().await.unwrap().text().await.unwrap();
    assert!(events.contains("\"state\":\"finished\""), "{events}");
    assert_eq!(std::fs::read(to.path("b")).unwrap(), b"content");
    drop(site);
    running.await.unwrap().unwrap();
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
