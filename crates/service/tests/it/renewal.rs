//! Credentials that end, and are renewed while jobs need them.

use std::time::Duration;

use godwit_service_api::{
    account::CredentialRequest,
    agent::{Secret, Share, UnitProgress},
    job::{JobOptions, JobState},
    why::WhyCode,
};
use jiff::Timestamp;

use crate::{
    failures::Puppet,
    harness::{Served, Service, file},
};

fn token(text: &str, expires: Option<Timestamp>) -> CredentialRequest {
    CredentialRequest {
        endpoint: "ftp://*".to_owned(),
        secret: Secret::Token(text.to_owned()),
        expires,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_runs_gets_the_renewed_credential_once() {
    let service = Service::start().await;
    let stored = service
        .vault
        .put("alice", None, &token("old", None))
        .await
        .unwrap();
    service
        .vault
        .put("bob", None, &token("of another", None))
        .await
        .unwrap();
    let ends = (
        "ftp://127.0.0.1:1/a".to_owned(),
        "ftp://127.0.0.1:2/b".to_owned(),
    );
    service
        .submit(vec![file(ends.0, ends.1)], JobOptions::default())
        .await;
    let mut agent = Puppet::of(&service, "a").await;
    let grant = agent.grant().await;
    let texts = |secrets: &[godwit_service_api::agent::GrantedCredential]| {
        let of = |secret: &Secret| match secret {
            Secret::Token(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        secrets
            .iter()
            .map(|one| of(&one.secret))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        texts(&grant.credentials),
        ["old", "old"],
        "one for each end"
    );
    agent.poll.free_slots = 0;
    agent.poll.units = vec![UnitProgress {
        lease: grant.lease,
        bytes: 0,
        open_bytes: 0,
        files: 0,
        goodput: 0.0,
        setting: Share::default(),
        limited_by: None,
    }];
    agent.poll.renewed = agent.ask().await.renewed;
    assert!(agent.poll.renewed.is_some());
    assert!(
        agent.ask().await.credentials.is_empty(),
        "nothing was renewed"
    );
    let renewed = service
        .vault
        .put("alice", Some(stored.id), &token("new", None))
        .await;
    renewed.unwrap();
    let mut told = Vec::new();
    for _ in 0..10 {
        let answer = agent.ask().await;
        agent.poll.renewed = answer.renewed;
        told.extend(answer.credentials);
    }
    assert_eq!(told.len(), 1, "once");
    assert_eq!(
        (told[0].0, texts(&told[0].1)),
        (grant.lease, vec!["new".to_owned(); 2])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_starts_until_an_ended_credential_is_renewed() {
    let (one, other) = (Served::start(), Served::start());
    one.write("x", b"content");
    let service = Service::start().await;
    let ended = token("old", Some(Timestamp::from_second(1_700_000_000).unwrap()));
    let stored = service.vault.put("alice", None, &ended).await.unwrap();
    // The leader reads credentials now and then.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let _agent = service.agent("a", |_| {}).await;
    let files = vec![file(one.url("/x"), other.url("/x"))];
    let job = service.submit(files, JobOptions::default()).await;
    let says_so = |_: &_| {
        let why = service.board.job(job).why;
        why.iter().any(|why| {
            why.code == WhyCode::CredentialExpired && why.text.contains("2023-11-14T22:13:20Z")
        })
    };
    let record = service.until(job, Duration::from_secs(20), says_so).await;
    assert_eq!(record.state, JobState::Queued);
    service.vault.remove("alice", stored.id).await.unwrap();
    assert_eq!(service.ended(job).await.state, JobState::Finished);
    assert_eq!(std::fs::read(other.path("x")).unwrap(), b"content");
}
