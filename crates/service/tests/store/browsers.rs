//! What the page for browsers asks the store: sessions, searches, files that failed, and how pairs
//! of endpoints do.

use std::{collections::BTreeMap, time::Duration};

use godwit_service::store::{
    Begun, Quota, Store, StoreError,
    model::{JobFilter, JobNow, LinkNow, LinkTally, Pace, PrincipalRecord, SessionProof},
    sessions::SessionLife,
};
use godwit_service_api::{
    agent::UnitResult,
    job::{FileState, JobOptions, JobState},
    site::Role,
};
use uuid::Uuid;

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);

fn life(whole: Duration) -> SessionLife {
    SessionLife {
        whole,
        idle: HOUR,
        most: 3,
    }
}

async fn alice(store: &Store) -> PrincipalRecord {
    let alice = PrincipalRecord {
        name: "alice".into(),
        role: Role::User,
        password_hash: Some("$argon2".into()),
        identities: vec!["dn:/CN=alice".into()],
        ..PrincipalRecord::default()
    };
    store.set_principal(&alice).await.unwrap();
    store
        .add_token(Uuid::new_v4(), "alice", b"token", "", None)
        .await
        .unwrap();
    alice
}

async fn named(store: &Store, filter: &JobFilter, text: &str) -> Vec<String> {
    let jobs = store.jobs_named(filter, text, 50).await.unwrap();
    jobs.into_iter()
        .filter_map(|job| job.options.name)
        .collect()
}

both! {

async fn a_session_lasts_as_long_as_it_may_and_as_what_it_began_with(fixture) {
    let store = &fixture.store;
    let user = alice(store).await;
    let begin = async |hash: &[u8], proof: SessionProof, whole| {
        store.add_session(hash, "alice", &proof, life(whole)).await.unwrap();
        // The clock of SQLite has milliseconds: the next is later.
        fixture.execute("UPDATE web_session SET created = created - 10000").await;
    };
    let is_good = async |hash: &[u8]| match store.session(hash, HOUR, true).await {
        Ok(found) => found.principal.name == "alice",
        Err(StoreError::NotFound) => false,
        Err(error) => panic!("{error}"),
    };
    begin(b"1", SessionProof::Token(b"token".to_vec()), HOUR).await;
    begin(b"2", SessionProof::Identity("dn:/CN=alice".into()), HOUR).await;
    begin(b"3", SessionProof::Password("$argon2".into()), HOUR).await;
    assert!(is_good(b"1").await && is_good(b"2").await && is_good(b"3").await);
    assert!(!is_good(b"4").await);
    // One more ends the oldest; one that is over from the start is none.
    begin(b"4", SessionProof::Password("$argon2".into()), Duration::ZERO).await;
    assert!(!is_good(b"1").await && is_good(b"2").await && !is_good(b"4").await);
    // What was idle, by the clock of the database, is over; a use is written once a minute.
    let idle = Duration::from_secs(1);
    fixture.execute("UPDATE web_session SET used = used - 90000000").await;
    assert!(store.session(b"2", idle, true).await.is_err());
    assert!(store.session(b"2", HOUR, false).await.is_ok());
    assert!(store.session(b"2", idle, true).await.is_err(), "an automatic request is no use");
    assert!(store.session(b"2", HOUR, true).await.is_ok());
    assert!(store.session(b"2", Duration::from_secs(60), true).await.is_ok());
    begin(b"1", SessionProof::Token(b"token".to_vec()), HOUR).await;
    // Each ends with what it began with.
    let other = PrincipalRecord {
        password_hash: Some("$other".into()),
        identities: Vec::new(),
        ..user.clone()
    };
    store.set_principal(&other).await.unwrap();
    assert!(is_good(b"1").await && !is_good(b"2").await && !is_good(b"3").await);
    let tokens = store.tokens("alice").await.unwrap();
    store.remove_token("alice", tokens[0].id).await.unwrap();
    assert!(!is_good(b"1").await);
    store.set_principal(&user).await.unwrap();
    assert!(is_good(b"2").await);
    store.set_principal(&PrincipalRecord { disabled: true, ..user.clone() }).await.unwrap();
    assert!(!is_good(b"2").await);
    store.set_principal(&user).await.unwrap();
    store.end_session(b"2").await.unwrap();
    store.end_session(b"2").await.unwrap();
    assert!(!is_good(b"2").await);
    // The maintenance removes what is over.
    fixture.execute("UPDATE web_session SET expires = 1").await;
    let leader = lead(store).await;
    store.maintain(leader, Default::default()).await.unwrap();
    assert_eq!(fixture.number("SELECT COUNT(*) FROM web_session").await, 0);
}

async fn jobs_are_found_by_the_beginning_of_their_name(fixture) {
    let store = &fixture.store;
    for (owner, name) in [
        ("alice", "Run 7"),
        ("alice", "run 8"),
        ("alice", "Äpfel"),
        ("alice", "100%_x"),
        ("bob", "run 7"),
    ] {
        let options = JobOptions { name: Some(name.into()), ..JobOptions::default() };
        let begun = store.submit(owner, None, &options, Quota::NONE).await.unwrap();
        let Begun::New(mut submission) = begun else { panic!("no key was given") };
        submission.push(file(1)).await.unwrap();
        submission.finish().await.unwrap();
    }
    submit(store, 1).await;
    let all = JobFilter::default();
    let of_alice = JobFilter { owner: Some("alice".into()), ..all.clone() };
    assert_eq!(named(store, &of_alice, "RUN").await, ["Run 7", "run 8"]);
    assert_eq!(named(store, &all, "run 7").await, ["run 7", "Run 7"], "the latest first");
    assert_eq!(named(store, &all, "äp").await, ["Äpfel"]);
    assert_eq!(named(store, &all, "100%").await, ["100%_x"]);
    for none in ["%", "_", "un", "run 7 ", "'", "run\0", "\0"] {
        assert!(named(store, &all, none).await.is_empty(), "{none}");
    }
    let nobody = JobFilter { owner: Some("alice\0".into()), ..all.clone() };
    assert!(named(store, &nobody, "run").await.is_empty());
    assert!(store.jobs(&nobody, None, 50).await.unwrap().items.is_empty());
    let paused = JobFilter { states: vec![JobState::Paused], ..all.clone() };
    assert!(named(store, &paused, "run").await.is_empty());
    let job = store.jobs_named(&all, "äp", 1).await.unwrap().remove(0);
    store.pause(job.id, "so").await.unwrap();
    assert_eq!(named(store, &paused, "").await, ["Äpfel"]);
    store.set_options(job.id, &JobOptions { name: None, ..job.options }).await.unwrap();
    assert!(named(store, &all, "äp").await.is_empty());
}

async fn files_that_failed_are_found_a_page_at_a_time(fixture) {
    let store = &fixture.store;
    let job = submit(store, 2500).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("a");
    let broken = [3, 1500, 1501, 2499];
    let mut ended = LinkTally::default();
    while let Some(unit) = agent.take(store, leader, 1).await.pop() {
        let outcomes = indices(&unit).into_iter().map(|index| match broken.contains(&index) {
            true => failed(index, error("no_such_file", false)),
            false => finished(index),
        });
        let result = UnitResult { last: true, ..result(unit.lease, 0, outcomes.collect()) };
        for tally in agent.poll(store, &[], vec![result]).await.links.values() {
            ended.finished += tally.finished;
            ended.failed += tally.failed;
        }
    }
    assert_eq!((ended.finished, ended.failed), (2496, 4));
    let record = store.job(job).await.unwrap();
    assert_eq!(record.files.failed, 4);
    let page = store.failed_files(&record, None, 3).await.unwrap();
    let of = |items: &[godwit_service_api::job::FileView]| -> Vec<u64> {
        assert!(items.iter().all(|file| file.state == FileState::Failed));
        items.iter().map(|file| file.index).collect()
    };
    assert_eq!(of(&page.items), [3, 1500, 1501]);
    let page = store.failed_files(&record, page.next.as_deref(), 3).await.unwrap();
    assert_eq!((of(&page.items), page.next), (vec![2499], None));
    let page = store.failed_files(&record, None, 4).await.unwrap();
    assert_eq!((page.items.len(), page.next), (4, None));
    let events = store.latest_events(&record, 2).await.unwrap();
    assert!(events.len() == 2 && events[0].0 == events[1].0 + 1);
    // What the results said of the pair of endpoints is counted once it is written.
    let link = store.links().await.unwrap()[0].number;
    let tally = LinkTally { finished: 2496, failed: 4, bytes: 1 << 60 };
    for _ in 0..2 {
        store.count_links(&BTreeMap::from([(link, tally)])).await.unwrap();
    }
    let counted = store.link_tallies().await.unwrap()[&link];
    assert_eq!((counted.finished, counted.failed), (4992, 8));
    assert!(counted.bytes >= 2 << 50);
    fixture.execute("UPDATE link_hour SET hour = hour - 24").await;
    assert!(store.link_tallies().await.unwrap().is_empty());
}

async fn what_the_leader_says_of_jobs_and_links_is_read_as_it_was_written(fixture) {
    let store = &fixture.store;
    let job = submit(store, 1).await;
    let leader = lead(store).await;
    let pace = Pace {
        units: 3,
        sessions: 4,
        channels: 16,
        allowed: 32,
        limited_by: Some("x".into()),
    };
    let now = JobNow { goodput: 1.5, pace: pace.clone(), ..JobNow::default() };
    store.set_jobs_now(leader, &[(job, Some(now.clone()))]).await.unwrap();
    assert_eq!(store.jobs_now().await.unwrap()[&job], now);
    let link = LinkNow { waiting_files: 7, goodput: 2.5, pace, ..LinkNow::default() };
    for said in [Some(link.clone()), None] {
        store.set_links_now(leader, &BTreeMap::from([(1, said.clone())])).await.unwrap();
        assert_eq!(store.links_now().await.unwrap().get(&1), said.as_ref());
    }
}

}
