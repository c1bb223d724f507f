//! The interface of FTS3, as its clients use it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    harness::{Agent, Served},
    site::{Site, User},
};

/// A client of FTS3.
struct Client<'a> {
    site: &'a Site,
    token: String,
}

impl<'a> Client<'a> {
    fn of(site: &'a Site, user: &User<'_>) -> Self {
        Self {
            site,
            token: user.token.clone(),
        }
    }

    /// Status, and the body as JSON.
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let url = format!("{}/{path}", self.site.fts_url);
        let request = self
            .site
            .client
            .request(method, url)
            .bearer_auth(&self.token);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.headers()["content-type"], "application/json");
        (status, answer.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, None).await
    }

    async fn submit(&self, body: Value) -> String {
        let (status, answer) = self.ask(Method::POST, "/jobs", Some(body)).await;
        assert_eq!(status, 200, "{answer}");
        answer["job_id"].as_str().unwrap().to_owned()
    }
}

fn pair(name: &str) -> Value {
    json!({
        "sources": [format!("gsiftp://a.example.org:2811/{name}")],
        "destinations": [format!("gsiftp://b.example.org/{name}")],
        "metadata": {"request_id": name},
    })
}

async fn start() -> Site {
    Site::start(&["--fts", "127.0.0.1:0"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_fts_learn_what_is_spoken_and_who_they_are() {
    let site = start().await;
    let alice = site.user("alice", "user", &["testvo"]).await;
    let client = Client::of(&site, &alice);
    // Clients write a slash too many.
    for path in ["", "/"] {
        let (status, answer) = client.get(path).await;
        assert_eq!((status, &answer["api"]["major"]), (200, &json!(3)));
        assert_eq!(answer["delegation"]["minor"], 0);
    }
    let (_, whoami) = client.get("/whoami/").await;
    assert_eq!(whoami["vos"], json!(["testvo"]));
    assert_eq!(
        whoami["vos_id"],
        json!(["477b9065-8416-5b27-be32-ff1573788e71"])
    );
    assert_eq!(whoami["method"], "oauth2");
    assert_eq!(whoami["user_dn"], "alice");
    let stranger = Client {
        site: &site,
        token: "x".to_owned(),
    };
    let (status, answer) = stranger.get("whoami").await;
    assert_eq!(
        (status, &answer["status"]),
        (401, &json!("401 Unauthorized"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_fts_is_shown_alone_in_lists_and_with_its_files() {
    let site = start().await;
    let alice = site.user("alice", "user", &["testvo"]).await;
    let client = Client::of(&site, &alice);
    let params = json!({"priority": 4, "retry": 2, "job_metadata": {"issuer": "rucio"}});
    let body = json!({"files": [pair("x"), pair("y")], "params": params});
    let id = client.submit(body).await;
    let (status, job) = client.get(&format!("jobs/{id}")).await;
    assert_eq!(status, 200);
    assert_eq!(job["http_status"], "200 Ok");
    assert_eq!(job["job_state"], "SUBMITTED");
    assert_eq!(job["source_se"], "gsiftp://a.example.org");
    assert_eq!(job["priority"], 4);
    assert_eq!(job["retry"], 2);
    let metadata = json!({"issuer": "rucio", "auth_method": "oauth2"});
    assert_eq!(job["job_metadata"], metadata);
    let (_, field) = client.get(&format!("jobs/{id}/job_state")).await;
    assert_eq!(field, "SUBMITTED");
    assert_eq!(client.get(&format!("jobs/{id}/colour")).await.0, 404);
    assert_eq!(client.get(&format!("jobs/{id}/dm")).await.1, json!([]));
    let (_, files) = client.get(&format!("jobs/{id}/files")).await;
    assert_eq!(files.as_array().unwrap().len(), 2);
    assert_eq!(files[1]["source_surl"], "gsiftp://a.example.org:2811/y");
    assert_eq!(files[1]["file_metadata"], json!({"request_id": "y"}));
    assert_eq!(
        files[1]["file_id"].as_i64().unwrap() - files[0]["file_id"].as_i64().unwrap(),
        1
    );
    // As Rucio polls.
    let path = format!("jobs/{id},missing?files=file_state,dest_surl,file_metadata");
    let (status, jobs) = client.get(&path).await;
    assert_eq!(status, 207);
    let of_first = json!({
        "file_state": "SUBMITTED",
        "dest_surl": "gsiftp://b.example.org/x",
        "file_metadata": {"request_id": "x"},
    });
    assert_eq!(jobs[0]["files"][0], of_first);
    assert_eq!(jobs[1]["http_status"], "404 Not Found");
    // A comma asks for a list.
    let (status, jobs) = client.get(&format!("jobs/{id},")).await;
    assert_eq!((status, jobs.as_array().map(Vec::len)), (200, Some(1)));
    let (_, listed) = client
        .get("jobs?state_in=SUBMITTED&fields=job_id,vo_name")
        .await;
    assert_eq!(listed, json!([{"job_id": id, "vo_name": "testvo"}]));
    assert_eq!(client.get("jobs?limit=501").await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_fts_is_canceled_once() {
    let site = start().await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    let id = client.submit(json!({"files": [pair("x")]})).await;
    let path = format!("jobs/{id}");
    let priority = Some(json!({"params": {"priority": 5}}));
    let (_, job) = client.ask(Method::POST, &path, priority.clone()).await;
    assert_eq!(
        (&job["priority"], &job["http_status"]),
        (&json!(5), &json!("200 Ok"))
    );
    let (status, job) = client.ask(Method::DELETE, &path, None).await;
    assert_eq!((status, &job["job_state"]), (200, &json!("CANCELED")));
    assert_eq!(job["reason"], "Job canceled by the user");
    let (status, job) = client.ask(Method::DELETE, &path, None).await;
    assert_eq!(
        (status, &job["http_status"]),
        (200, &json!("304 Not Modified"))
    );
    let (_, job) = client.ask(Method::POST, &path, priority).await;
    assert_eq!(job["http_message"], "The job is in a terminal state");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_of_fts_with_a_name_is_one_job_with_the_id_that_clients_compute() {
    let site = start().await;
    let alice = site.user("alice", "user", &["testvo"]).await;
    let client = Client::of(&site, &alice);
    let params = json!({"id_generator": "deterministic", "sid": "request-1"});
    let body = json!({"files": [pair("x")], "params": params});
    let id = client.submit(body.clone()).await;
    // uuid5(uuid5(base_id, "testvo"), "request-1")
    assert_eq!(id, "dd483b87-400d-5819-a26c-18e7ce4e5342");
    let (status, answer) = client.ask(Method::POST, "jobs", Some(body)).await;
    assert_eq!(status, 409);
    assert_eq!(
        answer["message"],
        "The sid provided by the user is duplicated"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_fts_of_others_are_not_there() {
    let site = start().await;
    let (alice, bob) = (
        site.user("alice", "user", &[]).await,
        site.user("bob", "user", &[]).await,
    );
    let id = Client::of(&site, &alice)
        .submit(json!({"files": [pair("x")]}))
        .await;
    let bob = Client::of(&site, &bob);
    for (method, path) in [
        (Method::GET, format!("jobs/{id}")),
        (Method::GET, format!("jobs/{id}/files")),
        (Method::DELETE, format!("jobs/{id}")),
    ] {
        assert_eq!(bob.ask(method, &path, None).await.0, 404, "{path}");
    }
    assert_eq!(bob.get("jobs").await.1, json!([]));
    // As for all users, where jobs may go is policy.
    let inside =
        json!({"files": [{"sources": ["gsiftp://127.0.0.1/x"], "destinations": ["gsiftp://b/x"]}]});
    let (status, answer) = bob.ask(Method::POST, "jobs", Some(inside)).await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_job_of_fts_arrive_and_a_file_that_exists_has_the_reason_of_fts() {
    let (source, destination) = (Served::start(), Served::start());
    source.write("x", b"bytes");
    source.write("there", b"bytes");
    destination.write("there", b"other bytes");
    let site = Site::start(&["--fts", "127.0.0.1:0", "--allow-endpoint", "*"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    let file = |name: &str| {
        json!({"sources": [source.url(name)], "destinations": [destination.url(name)],
            "checksum": "ADLER32:0", "filesize": 5})
    };
    let mut good = file("/x");
    good["checksum"] = json!("ADLER32:66c0228");
    let params = json!({"retry": -1, "verify_checksum": "both"});
    let body = json!({"files": [good, file("/there")], "params": params});
    let id = client.submit(body).await;
    let token = site.user("mover", "agent", &[]).await.token;
    let _agent = Agent::start(&site.url, token, "mover", |_| {});
    let path = format!("jobs/{id}?files=file_state,reason");
    let job = loop {
        let (_, job) = client.get(&path).await;
        if !matches!(job["job_state"].as_str(), Some("SUBMITTED" | "ACTIVE")) {
            break job;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(job["job_state"], "FINISHEDDIRTY", "{job}");
    assert_eq!(job["files"][0]["file_state"], "FINISHED");
    let reason = "DESTINATION [17] Destination file exists and overwrite is not enabled";
    assert_eq!(job["files"][1]["reason"], reason);
    assert_eq!(std::fs::read(destination.path("x")).unwrap(), b"bytes");
}
