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

    /// The job with its files, when it has ended.
    async fn ended(&self, id: &str) -> Value {
        let path = format!("jobs/{id}?files=file_state,reason");
        loop {
            let (_, job) = self.get(&path).await;
            if !matches!(job["job_state"].as_str(), Some("SUBMITTED" | "ACTIVE")) {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
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

/// The JSON of an answer that may have none.
async fn status_of(client: &Client<'_>, method: Method, path: &str, body: Option<&str>) -> u16 {
    let url = format!("{}/{path}", client.site.fts_url);
    let request = client
        .site
        .client
        .request(method, url)
        .bearer_auth(&client.token);
    let request = match body {
        Some(body) => request.body(body.to_owned()),
        None => request,
    };
    request.send().await.unwrap().status().as_u16()
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
    // Rucio keeps that of the file as the error of its request.
    let (_, job) = client.get(&format!("{path}?files=reason")).await;
    assert_eq!(
        job["files"],
        json!([{"reason": "Job canceled by the user"}])
    );
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
    let job = client.ended(&id).await;
    assert_eq!(job["job_state"], "FINISHEDDIRTY", "{job}");
    assert_eq!(job["files"][0]["file_state"], "FINISHED");
    let reason = "DESTINATION [17] Destination file exists and overwrite is not enabled";
    assert_eq!(job["files"][1]["reason"], reason);
    assert_eq!(std::fs::read(destination.path("x")).unwrap(), b"bytes");
    let (_, files) = client.get(&format!("jobs/{id}/files")).await;
    let retries = async |file: &Value| {
        let path = format!("jobs/{id}/files/{}/retries", file["file_id"]);
        client.get(&path).await
    };
    assert_eq!(retries(&files[0]).await, (200, json!([])));
    let (_, tried) = retries(&files[1]).await;
    assert_eq!(tried[0]["file_id"], files[1]["file_id"], "{tried}");
    assert_eq!(
        (&tried[0]["attempt"], &tried[0]["reason"]),
        (&json!(1), &json!(reason))
    );
    assert!(
        tried[0]["datetime"].is_string() && tried[1].is_null(),
        "{tried}"
    );
    assert_eq!(retries(&json!({"file_id": 7})).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_used_when_the_one_before_fails_and_no_other() {
    let (source, destination) = (Served::start(), Served::start());
    source.write("x", b"bytes");
    let site = Site::start(&["--fts", "127.0.0.1:0", "--allow-endpoint", "*"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    let sources = [
        source.url("/missing"),
        source.url("/x"),
        source.url("/unused"),
    ];
    let file = json!({"sources": sources, "destinations": [destination.url("/x")],
        "metadata": {"request_id": "r"}});
    let id = client.submit(json!({"files": [file]})).await;
    let (_, waiting) = client.get(&format!("jobs/{id}/files")).await;
    let states = |files: &Value| {
        let files = files.as_array().unwrap().iter();
        files
            .map(|file| file["file_state"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(states(&waiting), ["SUBMITTED", "NOT_USED", "NOT_USED"]);
    let first = waiting[0]["file_id"].as_i64().unwrap();
    let path = format!("jobs/{id}/files/{first}");
    assert_eq!(client.ask(Method::DELETE, &path, None).await.0, 400);
    let token = site.user("mover", "agent", &[]).await.token;
    let _agent = Agent::start(&site.url, token, "mover", |_| {});
    let job = client.ended(&id).await;
    assert_eq!(
        (&job["job_state"], &job["job_type"]),
        (&json!("FINISHED"), &json!("R"))
    );
    assert_eq!(states(&job["files"]), ["FAILED", "FINISHED", "NOT_USED"]);
    assert_eq!(std::fs::read(destination.path("x")).unwrap(), b"bytes");
    // The first hop fails: the others are not used, and the job has failed.
    let hop = |from: String, to: String| json!({"sources": [from], "destinations": [to]});
    let hops = [
        hop(source.url("/missing"), destination.url("/half")),
        hop(destination.url("/half"), source.url("/end")),
    ];
    let id = client
        .submit(json!({"files": hops, "params": {"multihop": true}}))
        .await;
    let job = client.ended(&id).await;
    assert_eq!(
        (&job["job_state"], &job["job_type"]),
        (&json!("FAILED"), &json!("H"))
    );
    assert_eq!(states(&job["files"]), ["FAILED", "NOT_USED"]);
}

#[cfg(feature = "mock-storage")]
#[tokio::test(flavor = "multi_thread")]
async fn files_of_mock_storage_end_as_their_queries_say() {
    let site = start().await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    let file = |source: &str, destination: &str| {
        json!({"sources": [format!("mock://a.example.org/x?{source}")],
            "destinations": [format!("mock://b.example.org/{destination}")]})
    };
    let files = [
        file("size=5&checksum=0a", "x?time=1"),
        file("errno=2", "y"),
        file("", "z?errno=17"),
    ];
    let id = client
        .submit(json!({"files": files, "params": {"retry": -1}}))
        .await;
    let token = site.user("mover", "agent", &[]).await.token;
    let _agent = Agent::start(&site.url, token, "mover", |_| {});
    let job = client.ended(&id).await;
    assert_eq!(job["job_state"], "FINISHEDDIRTY", "{job}");
    let part = |name: &str| {
        let files = job["files"].as_array().unwrap().iter();
        files.map(|file| file[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(part("file_state"), ["FINISHED", "FAILED", "FAILED"]);
    let reasons = part("reason");
    assert!(
        reasons[1].as_str().unwrap().starts_with("SOURCE [2]"),
        "{reasons:?}"
    );
    assert!(
        reasons[2].as_str().unwrap().starts_with("DESTINATION [17]"),
        "{reasons:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_of_a_job_of_fts_is_canceled() {
    let site = start().await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    let id = client
        .submit(json!({"files": [pair("x"), pair("y"), pair("z")]}))
        .await;
    let (_, files) = client.get(&format!("jobs/{id}/files")).await;
    let numbers: Vec<i64> = (0..3)
        .map(|place| files[place]["file_id"].as_i64().unwrap())
        .collect();
    let path = format!("jobs/{id}/files/{}", numbers[0]);
    let canceled = (200, json!("CANCELED"));
    assert_eq!(client.ask(Method::DELETE, &path, None).await, canceled);
    assert_eq!(client.ask(Method::DELETE, &path, None).await, canceled);
    let path = format!("jobs/{id}/files/{},7", numbers[1]);
    let (_, states) = client.ask(Method::DELETE, &path, None).await;
    assert_eq!(
        states,
        json!(["CANCELED", "File does not belong to the job"])
    );
    let (_, job) = client
        .get(&format!("jobs/{id}?files=file_state,reason"))
        .await;
    assert_eq!(job["job_state"], "SUBMITTED");
    assert_eq!(job["files"][0]["file_state"], "CANCELED");
    assert_eq!(
        job["files"][1]["reason"],
        "GENERAL_FAILURE [125] canceled by alice"
    );
    let path = format!("jobs/{id}/files/{}", numbers[2]);
    assert_eq!(client.ask(Method::DELETE, &path, None).await, canceled);
    assert_eq!(
        client.get(&format!("jobs/{id}/job_state")).await.1,
        "CANCELED"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn storages_and_users_are_banned_by_operators() {
    let site = start().await;
    let (alice, carol) = (
        site.user("alice", "user", &["testvo"]).await,
        site.user("carol", "operator", &[]).await,
    );
    let (alice, carol) = (Client::of(&site, &alice), Client::of(&site, &carol));
    let id = alice.submit(json!({"files": [pair("x")]})).await;
    let ban = |status: &str| json!({"storage": "gsiftp://a.example.org", "status": status});
    let (status, _) = alice.ask(Method::POST, "ban/se", Some(ban("WAIT"))).await;
    assert_eq!(status, 403);
    let (_, jobs) = carol.ask(Method::POST, "ban/se", Some(ban("wait"))).await;
    assert_eq!(jobs, json!([id]));
    assert_eq!(
        alice.get(&format!("jobs/{id}/job_state")).await.1,
        "SUBMITTED"
    );
    alice.submit(json!({"files": [pair("y")]})).await;
    for (body, text) in [
        (json!({"status": "cancel"}), "Missing storage parameter"),
        (ban("other"), "status can only be cancel or wait"),
        (
            json!({"storage": "gsiftp://a.example.org", "status": "CANCEL", "allow_submit": true}),
            "allow_submit and status = CANCEL can not be combined",
        ),
    ] {
        let (status, answer) = carol.ask(Method::POST, "ban/se", Some(body)).await;
        assert_eq!((status, &answer["message"]), (400, &json!(text)));
    }
    let (_, jobs) = carol.ask(Method::POST, "ban/se", Some(ban("CANCEL"))).await;
    assert_eq!(jobs.as_array().map(Vec::len), Some(2));
    assert_eq!(
        alice.get(&format!("jobs/{id}/job_state")).await.1,
        "CANCELED"
    );
    let (_, banned) = carol.get("ban/se").await;
    assert_eq!(banned[0]["se"], "gsiftp://a.example.org");
    assert_eq!(banned[0]["status"], "CANCEL");
    let (status, answer) = alice
        .ask(Method::POST, "jobs", Some(json!({"files": [pair("z")]})))
        .await;
    assert_eq!(
        (status, &answer["message"]),
        (403, &json!("gsiftp://a.example.org is banned"))
    );
    let path = "ban/se?storage=gsiftp%3A%2F%2Fa.example.org";
    assert_eq!(status_of(&carol, Method::DELETE, path, None).await, 204);
    assert_eq!(status_of(&carol, Method::DELETE, path, None).await, 400);
    let id = alice.submit(json!({"files": [pair("z")]})).await;
    let ban = |name: &str| Some(json!({"user_dn": name}));
    assert_eq!(carol.ask(Method::POST, "ban/dn", ban("carol")).await.0, 409);
    let (_, jobs) = carol.ask(Method::POST, "ban/dn", ban("alice")).await;
    assert_eq!(jobs, json!([id]));
    assert_eq!(alice.get("whoami").await.0, 401);
    assert_eq!(carol.get("ban/dn").await.1[0]["dn"], "alice");
    assert_eq!(
        status_of(&carol, Method::DELETE, "ban/dn?user_dn=alice", None).await,
        204
    );
    assert_eq!(alice.get("whoami").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_storages_and_what_runs_are_shown_to_operators() {
    let site = start().await;
    let (alice, carol) = (
        site.user("alice", "user", &["testvo"]).await,
        site.user("carol", "operator", &[]).await,
    );
    let (alice, carol) = (Client::of(&site, &alice), Client::of(&site, &carol));
    let name = "gsiftp://a.example.org";
    let info = json!({"inbound_max_active": 20, "outbound_max_active": 10,
        "inbound_max_throughput": 2.0});
    let wanted = json!({name: {"se_info": info, "operations": {}}});
    assert_eq!(
        alice
            .ask(Method::POST, "config/se", Some(wanted.clone()))
            .await
            .0,
        403
    );
    assert_eq!(
        carol.ask(Method::POST, "config/se", Some(wanted)).await.0,
        200
    );
    // As Rucio reads it.
    let (_, limits) = carol.get("config/se").await;
    assert_eq!(limits[name]["se_info"]["inbound_max_active"], 10);
    assert_eq!(limits[name]["se_info"]["outbound_max_throughput"], 2.0);
    let wrong = json!({name: {"se_info": {"inbound_max_active": "many"}}});
    assert_eq!(
        carol.ask(Method::POST, "config/se", Some(wrong)).await.0,
        400
    );
    let path = format!("config/se?se={name}");
    assert_eq!(status_of(&carol, Method::DELETE, &path, None).await, 204);
    let (_, limits) = carol.get(&path).await;
    assert_eq!(limits[name]["se_info"]["inbound_max_active"], Value::Null);
    assert_eq!(alice.get("optimizer").await.1, true);
    assert_eq!(carol.get("optimizer/current").await.1, json!([]));
    assert_eq!(alice.get("optimizer/evolution").await.1, json!([]));
    let (_, hosts) = alice.get("status/hosts").await;
    let idle = json!({"active": 0, "staging": 0});
    assert_eq!(hosts.as_object().unwrap().values().next(), Some(&idle));
    alice.submit(json!({"files": [pair("x"), pair("y")]})).await;
    assert_eq!(
        alice.ask(Method::DELETE, "jobs/vo/testvo", None).await.0,
        403
    );
    let (_, affected) = carol.ask(Method::DELETE, "jobs/vo/other", None).await;
    assert_eq!(affected["affected_jobs"], 0);
    let (_, affected) = carol.ask(Method::DELETE, "jobs/vo/testvo", None).await;
    let all = json!({"affected_files": 2, "affected_dm": 0, "affected_jobs": 1});
    assert_eq!(affected, all);
    alice.submit(json!({"files": [pair("x")]})).await;
    let (_, affected) = carol.ask(Method::DELETE, "jobs/all", None).await;
    assert_eq!(affected["affected_jobs"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_files_become_credentials_that_are_never_shown() {
    let site = start().await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    // The claims that FTS3 asks for, until 2096.
    let token = "e30.eyJpc3MiOiJhIiwibmJmIjowLCJleHAiOjQwMDAwMDAwMDAsInNjb3BlIjoieCIsImF1ZCI6Inki\
        fQ.c2ln";
    let mut file = json!({"sources": ["ftpes://a.example.org/x"],
        "destinations": ["ftpes://b.example.org/x"]});
    file["source_tokens"] = json!([token]);
    file["destination_tokens"] = json!([token]);
    for _ in 0..2 {
        client.submit(json!({"files": [file]})).await;
    }
    let stored = alice.get("/credentials").await;
    assert_eq!(stored.as_array().map(Vec::len), Some(2), "{stored}");
    assert_eq!(stored[0]["kind"], "token");
    assert!(stored[0]["expires"].as_str().unwrap().starts_with("2096-"));
    let database = site.database_bytes();
    assert!(
        !database
            .windows(token.len())
            .any(|part| part == token.as_bytes())
    );
    file["destination_tokens"] = Value::Null;
    let (status, answer) = client
        .ask(Method::POST, "jobs", Some(json!({"files": [file]})))
        .await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bodies_are_refused_and_nothing_is_kept_of_them() {
    let site = start().await;
    let alice = site.user("alice", "user", &[]).await;
    let client = Client::of(&site, &alice);
    let deep = "[".repeat(100_000);
    let many = format!(
        "{{\"files\": [{}]}}",
        vec![pair("x").to_string(); 72_000].join(",")
    );
    let crossed = json!({"files": [{
        "sources": vec!["gsiftp://a.example.org/x"; 10_000],
        "destinations": vec!["gsiftp://b.example.org/x"; 10_000],
    }]});
    let odd = json!({"files": [{"sources": [{"a": 1}], "destinations": [null]}]});
    let cases = [
        (deep.as_str(), 400),
        (many.as_str(), 413),
        (&crossed.to_string(), 400),
        (&odd.to_string(), 400),
        ("{\"files\": [1]}", 400),
        ("{\"files\": {}, \"params\": []}", 400),
        ("\u{feff}{}", 400),
        ("", 400),
    ];
    for (body, status) in cases {
        let answered = status_of(&client, Method::POST, "jobs", Some(body)).await;
        assert_eq!(answered, status, "{}", &body[..body.len().min(80)]);
    }
    assert_eq!(client.get("jobs").await.1, json!([]));
    // All metadata that FTS3 takes is taken.
    let mut large = pair("x");
    large["metadata"] = json!({"text": "x".repeat(4_000)});
    large["staging_metadata"] = json!({"text": "x".repeat(1_000)});
    let params = json!({"job_metadata": {"text": "x".repeat(2_000)}});
    let id = client
        .submit(json!({"files": [large], "params": params}))
        .await;
    // Paths and queries that lead nowhere.
    for path in [
        "jobs/..%2f",
        "jobs/%00",
        "jobs?limit=-1",
        "jobs?time_window=x",
        "ban/other",
    ] {
        let status = client.get(path).await.0;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    // Each is shown once, so that a short path cannot ask for a long job a thousand times.
    let ids = vec![id.as_str(); 100].join(",");
    let (status, jobs) = client.get(&format!("jobs/{ids}?files=file_state")).await;
    assert_eq!((status, jobs.as_array().map(Vec::len)), (200, Some(1)));
}
