//! Traces, as a collector gets them.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    collector::{Collector, Span},
    harness::{Killed, Served},
    pages::poll,
    site::{Site, User, files},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Longest wait for the end of a service.
const LIMIT: Duration = Duration::from_secs(60);

async fn submit(user: &User<'_>, traceparent: &str, job: Value) -> String {
    let request = user.request(Method::POST, "/jobs").json(&job);
    let answer = request.header("traceparent", traceparent).send().await;
    let answer = answer.unwrap().error_for_status().unwrap();
    let job: Value = answer.json().await.unwrap();
    job["id"].as_str().unwrap().to_owned()
}

/// Waits for the end of a job; its state.
async fn ended(user: &User<'_>, id: &str) -> String {
    let events = user.request(Method::GET, &format!("/jobs/{id}/events"));
    timeout(LIMIT, events.send().await.unwrap().text())
        .await
        .unwrap()
        .unwrap();
    let job = user.get(&format!("/jobs/{id}")).await;
    job["state"].as_str().unwrap().to_owned()
}

fn is_within(inner: &Span, outer: &Span) -> bool {
    inner.trace == outer.trace && inner.parent == outer.id && inner.times.0 >= outer.times.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_from_the_request_over_the_lease_to_the_files() {
    let (from, to) = (Served::start(), Served::start());
    from.write("a", b"content");
    let collector = Collector::start().await;
    let (site, running) = Site::laptop(&["--traces", &collector.url]).await;
    let user = site.operator();
    let copy =
        |name: &str, new: &str| json!({"source": from.url(name), "destination": to.url(new)});
    let files = [copy("/a", "/a"), copy("/none", "/none")];
    let job = json!({"files": files, "options": {"attempts": 1}});
    let id = submit(&user, &format!("00-{TRACE}-{CALLER}-01"), job).await;
    assert_eq!(ended(&user, &id).await, "partial");
    let of = async |traceparent: &str, name: &str| {
        let job = json!({"files": [copy("/a", name)]});
        let id = submit(&user, traceparent, job).await;
        assert_eq!(ended(&user, &id).await, "finished");
        id
    };
    let new = of("no trace", "/b").await;
    let unsampled = of(&format!("00-{TRACE}-{CALLER}-00"), "/c").await;
    drop(site);
    // What waits is sent at the end.
    timeout(LIMIT, running).await.unwrap().unwrap();

    let submission = collector.span(&id, "submit").await;
    assert_eq!((&*submission.trace, &*submission.parent), (TRACE, CALLER));
    assert_eq!(submission.attribute("godwit.files"), "2");
    assert_eq!(submission.attribute("godwit.outcome"), "accepted");
    let lease = collector.span(&id, "lease").await;
    assert!(is_within(&lease, &submission), "{lease:?} {submission:?}");
    assert_eq!(lease.attribute("godwit.agent"), "local");
    let transfer = collector.span(&id, "transfer").await;
    let spans = collector.spans();
    let transfers = spans.iter().filter(|span| span.name == "transfer");
    let transfers = transfers.filter(|span| span.trace == TRACE);
    let transfers: Vec<_> = transfers.collect();
    for transfer in &transfers {
        let mut leases = spans.iter().filter(|span| span.name == "lease");
        let lease = leases.find(|lease| is_within(transfer, lease)).unwrap();
        for name in ["godwit.job.id", "godwit.unit", "godwit.epoch"] {
            assert_eq!(transfer.attribute(name), lease.attribute(name), "{name}");
        }
    }
    let source = from.url("");
    assert_eq!(transfer.attribute("godwit.source"), source);
    let bytes = transfers.iter().map(|span| span.attribute("godwit.bytes"));
    let bytes: u64 = bytes.map(|text| text.parse::<u64>().unwrap()).sum();
    assert_eq!(bytes, 7);

    let files = spans.iter().filter(|span| span.name == "file");
    let files: Vec<_> = files.filter(|span| span.trace == TRACE).collect();
    assert_eq!(files.len(), 2, "{spans:#?}");
    for (index, outcome, error) in [("0", "done", false), ("1", "failed", true)] {
        let mut found = files.iter();
        let file = found
            .find(|file| file.attribute("godwit.file") == index)
            .unwrap();
        assert!(transfers.iter().any(|transfer| is_within(file, transfer)));
        assert_eq!(file.attribute("godwit.outcome"), outcome, "{file:?}");
        assert_eq!(file.attribute("error.type").is_empty(), !error, "{file:?}");
    }
    // What is no trace begins one, and what its caller does not record is not recorded here.
    let begun = collector.span(&new, "submit").await;
    assert!(begun.parent.is_empty() && begun.trace != TRACE, "{begun:?}");
    let of_job = |span: &&Span| span.attribute("godwit.job.id") == unsampled;
    assert!(!spans.iter().any(|span| of_job(&span)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_elsewhere_goes_on_with_the_trace() {
    let (from, to) = (Served::start(), Served::start());
    from.write("tree/a", b"content");
    let collector = Collector::start().await;
    let flags = ["--traces", &collector.url, "--allow-endpoint", "ftp://*"];
    let site = Site::start(&flags).await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let user = site.user("jo", "user", &[]).await;
    let state = tempfile::tempdir().unwrap();
    let token = state.path().join("token");
    std::fs::write(&token, &mover.token).unwrap();
    let agent = Command::new(env!("CARGO_BIN_EXE_godwit-service"))
        .args(["agent", "--service", &site.url, "--name", "dtn1"])
        .arg("--token-file")
        .arg(&token)
        .arg("--state")
        .arg(state.path().join("state"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .env("HOME", state.path())
        .stderr(Stdio::null())
        .spawn();
    let _agent = Killed(agent.unwrap());
    let tree = json!({"source": from.url("/tree"), "destination": to.url("/tree"),
        "recursive": true});
    let id = user.submit(json!({"files": [tree]})).await;
    assert_eq!(ended(&user, &id).await, "finished");
    let transfer = collector.span(&id, "transfer").await;
    assert_eq!(transfer.process, "godwit-agent");
    assert_eq!(transfer.attribute("godwit.outcome"), "finished");
    let list = collector.span(&id, "list").await;
    let submission = collector.span(&id, "submit").await;
    assert_eq!(submission.process, "godwit-service");
    for span in [&transfer, &list] {
        let spans = collector.spans();
        let mut leases = spans.iter().filter(|lease| lease.name == "lease");
        let lease = leases.find(|lease| is_within(span, lease)).unwrap();
        assert_eq!(lease.attribute("godwit.agent"), "dtn1");
        assert!(is_within(lease, &submission), "{lease:?} {submission:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_or_silent_costs_only_its_traces() {
    let (from, to) = (Served::start(), Served::start());
    from.write("a", b"content");
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = "http://127.0.0.1:9".to_owned();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    for (collector, copy) in [(away, "/b"), (silent_url, "/c")] {
        let (site, running) = Site::laptop(&["--traces", &collector]).await;
        let user = site.operator();
        let file = json!({"source": from.url("/a"), "destination": to.url(copy)});
        let id = user.submit(json!({"files": [file]})).await;
        assert_eq!(ended(&user, &id).await, "finished");
        drop(site);
        timeout(LIMIT, running).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_have_a_trace_only_where_traces_are_on() {
    let collector = Collector::start().await;
    let endpoints = ["--allow-endpoint", "gsiftp://*"];
    for is_on in [false, true] {
        let mut flags = endpoints.to_vec();
        if is_on {
            flags.extend(["--traces", &collector.url]);
        }
        let site = Site::start(&flags).await;
        let agent = site.user("dtn1", "agent", &[]).await;
        let user = site.user("jo", "user", &[]).await;
        poll(&site, &agent.token, "dtn1", 0, |poll| poll.wait_seconds = 0).await;
        submit(
            &user,
            &format!("00-{TRACE}-{CALLER}-01"),
            json!({"files": files(1)}),
        )
        .await;
        let mut grants = Vec::new();
        for sequence in 1..60 {
            grants = poll(&site, &agent.token, "dtn1", sequence, |_| ())
                .await
                .grants;
            if !grants.is_empty() {
                break;
            }
        }
        let trace = grants[0].trace.as_deref().unwrap_or_default();
        assert_eq!(trace.starts_with(&format!("00-{TRACE}-")), is_on, "{trace}");
        assert_eq!(trace.is_empty(), !is_on);
    }
}
