//! Jobs, endpoints and shares over HTTP.

use std::time::Instant;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::site::{Site, User, files, problem, refusal};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

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
    let (reused, why) = submit(&alice, &json!({"files": files(3)})).await;
    assert_eq!(
        (reused, &why["code"]),
        (422, &json!("idempotency_key_reused"))
    );
    let mut lines = "{}\n".to_owned();
    for file in files(2).as_array().unwrap() {
        lines += &format!("{file}\n");
    }
    let request = alice.request(Method::POST, "/jobs");
    let request = request.header("idempotency-key", "k1");
    let request = request.header("content-type", LINES).body(lines);
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
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
async fn a_clone_is_a_job_of_who_asks_for_it() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &["physics"]).await;
    let admin = site.user("carol", "group_admin", &["physics"]).await;
    let bob = site.user("bob", "user", &[]).await;
    let options = json!({"priority": 5, "share": "physics/alice", "labels": ["x"],
        "deadline": "2099-01-01T00:00:00Z"});
    let id = alice
        .submit(json!({"files": files(3), "options": options}))
        .await;
    let path = format!("/jobs/{id}/clone");
    let strange = bob.refused(Method::POST, &path, Value::Null).await;
    assert_eq!(strange, refusal(404, "not_found"));
    for (user, owner, share) in [
        (&alice, "alice", json!("physics/alice")),
        (&admin, "carol", Value::Null),
    ] {
        let answer = user.send(Method::POST, &path, Value::Null).await;
        assert_eq!(answer.status(), 201);
        let job: Value = answer.json().await.unwrap();
        assert_ne!(job["id"], json!(id));
        assert_eq!(
            (&job["owner"], &job["state"]),
            (&json!(owner), &json!("queued"))
        );
        assert_eq!(
            (&job["options"]["priority"], &job["options"]["labels"]),
            (&json!(5), &json!(["x"]))
        );
        assert_eq!(
            (&job["options"]["share"], &job["options"]["deadline"]),
            (&share, &Value::Null)
        );
        let of_it = user
            .get(&format!("/jobs/{}/files", job["id"].as_str().unwrap()))
            .await;
        let sources = |list: &Value| {
            let items = list["items"].as_array().unwrap().iter();
            items.map(|file| file["source"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            sources(&of_it),
            sources(&alice.get(&format!("/jobs/{id}/files")).await)
        );
    }
    let again = async |paused: bool| {
        let request = alice.request(Method::POST, &format!("{path}?paused={paused}"));
        request.header("idempotency-key", "k").send().await.unwrap()
    };
    let first: Value = again(true).await.json().await.unwrap();
    assert_eq!(first["state"], "paused");
    let second = again(true).await;
    assert_eq!(second.status(), 200);
    assert_eq!(second.json::<Value>().await.unwrap()["id"], first["id"]);
    assert_eq!(
        problem(again(false).await).await.1,
        "idempotency_key_reused"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_set_endpoints_links_and_shares() {
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let limits = json!({"sessions": 4, "channels": null, "bytes_per_second": 1000,
        "files_per_second": null});
    let name = "GSIFTP://A.example.org.:2811";
    let endpoint = json!({"name": name, "state": "draining", "limits": limits});
    operator.ok(Method::PUT, "/endpoints", endpoint).await;
    let seen = operator.get("/endpoints").await;
    assert_eq!(seen[0]["name"], "gsiftp://a.example.org");
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
        ("/endpoints", json!({"name": "ftp://u@h"})),
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
