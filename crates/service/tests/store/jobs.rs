//! Jobs come in, are listed, and are changed by users.

use std::time::{Duration, Instant};

use godwit_service::store::{
    Begun, Quota, RequestDigest, Store, StoreError,
    model::{JobFilter, PrincipalRecord, Retention},
};
use godwit_service_api::{
    agent::{UnitResult, Work},
    job::{FileState, JobOptions, JobState},
};

use crate::support::*;

both! {

async fn a_job_is_done_from_submission_to_end(fixture) {
    let store = &fixture.store;
    let id = submit(store, 2500).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.total, job.bytes_total), (JobState::Queued, 2500, 25_000));
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let granted = agent.take(store, leader, 100).await;
    let sizes: Vec<usize> = granted.iter().map(|unit| indices(unit).len()).collect();
    assert_eq!(sizes, [16, 984, 1000, 500]);
    assert_eq!(count_in(store, id, FileState::Active).await, 2500);
    assert_eq!(store.job(id).await.unwrap().state, JobState::Active);
    let results = granted.iter().map(all_finished).collect();
    let polled = agent.poll(store, &[], results).await;
    assert_eq!(polled.acknowledged.len(), 4);
    assert_eq!(polled.changed, [id]);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished, job.bytes_done), (JobState::Finished, 2500, 25_000));
    assert!(job.started >= Some(job.created) && job.ended >= job.started);
    assert!(store.queues().await.unwrap().is_empty());
    let numbers: Vec<u64> = views(store, &job).await.iter().map(|view| view.index).collect();
    assert_eq!(numbers, (0..2500).collect::<Vec<u64>>());
}

async fn a_key_gives_the_same_job_again(fixture) {
    let store = &fixture.store;
    let options = JobOptions::default();
    let begun = store.submit("alice", Some("k"), &options, Quota::NONE).await.unwrap();
    let Begun::New(mut submission) = begun else { panic!("it is new") };
    submission.push(file(1)).await.unwrap();
    let id = submission.finish().await.unwrap();
    let again = store.submit("alice", Some("k"), &options, Quota::NONE).await.unwrap();
    let mut same = RequestDigest::new(&options).unwrap();
    same.add(&file(1)).unwrap();
    let same = same.finish();
    assert!(matches!(again, Begun::Existing { id: of, digest: Some(of_it) }
        if of == id && of_it == same));
    let of_bob = store.submit("bob", Some("k"), &options, Quota::NONE).await.unwrap();
    assert!(matches!(of_bob, Begun::New(_)));
}

async fn what_was_submitted_is_told_from_what_was_found(fixture) {
    let store = &fixture.store;
    let mut all = files(1001);
    all.push(tree());
    let id = submit_with(store, all.clone(), &JobOptions::default()).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    for unit in agent.take(store, leader, 100).await {
        let ended = match &unit.work {
            Work::List { .. } => UnitResult {
                found: vec![found("x", false), found("below", true)],
                ..result(unit.lease, 0, Vec::new())
            },
            Work::Copy(_) => all_finished(&unit),
        };
        agent.poll(store, &[], vec![ended]).await;
    }
    let job = store.job(id).await.unwrap();
    assert_eq!(job.files.total, 1002, "the listing found one more");
    let mut submitted = Vec::new();
    for segment in 0..store.submitted_segments(&job).await.unwrap() {
        submitted.extend(store.submitted_files(&job, segment).await.unwrap());
    }
    assert_eq!(submitted, all);
    // As jobs are that came before the version that counts.
    fixture.execute("UPDATE job SET submitted = NULL").await;
    let unknown = store.submitted_segments(&job).await;
    assert!(matches!(unknown, Err(StoreError::Conflict(_))));
    let plain = store.job(submit(store, 3).await).await.unwrap();
    fixture.execute("UPDATE job SET submitted = NULL").await;
    assert_eq!(store.submitted_segments(&plain).await.unwrap(), 1);
    let begun = store.submit("alice", None, &JobOptions::default(), Quota::NONE).await.unwrap();
    let Begun::New(coming) = begun else { panic!("it is new") };
    let coming = store.job(coming.id()).await.unwrap();
    let incomplete = store.submitted_segments(&coming).await;
    assert!(matches!(incomplete, Err(StoreError::Conflict(_))));
}

async fn a_submission_that_broke_off_is_replaced(fixture) {
    let store = &fixture.store;
    let options = JobOptions::default();
    let begun = store.submit("alice", Some("k"), &options, Quota::NONE).await.unwrap();
    let Begun::New(mut first) = begun else { panic!("it is new") };
    for n in 0..1500 { first.push(file(n)).await.unwrap(); }
    let begun = store.submit("alice", Some("k"), &options, Quota::NONE).await.unwrap();
    let Begun::New(mut second) = begun else { panic!("the first never ended") };
    second.push(file(1)).await.unwrap();
    assert!(matches!(first.finish().await, Err(StoreError::Conflict(_))));
    let id = second.finish().await.unwrap();
    assert_eq!(store.job(id).await.unwrap().files.total, 1);
    assert_eq!(store.queues().await.unwrap().len(), 1);
}

async fn submissions_at_the_same_time_do_not_pass_a_quota(fixture) {
    let store = &fixture.store;
    let alice = PrincipalRecord { name: "alice".into(), ..PrincipalRecord::default() };
    store.set_principal(&alice).await.unwrap();
    let (few, options) = (Quota { jobs: 3, files: u64::MAX }, JobOptions::default());
    let submits = (0..12).map(|_| {
        let (store, options) = (store.clone(), options.clone());
        tokio::spawn(async move { store.submit("alice", None, &options, few).await })
    });
    let mut begun = Vec::new();
    for submit in submits.collect::<Vec<_>>() {
        match submit.await.unwrap() {
            Ok(Begun::New(submission)) => begun.push(submission),
            Err(StoreError::Quota { what: "jobs", has: 3, most: 3 }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun.len(), 3);
    for submission in begun { submission.abort().await.unwrap(); }
    let few = Quota { jobs: u64::MAX, files: 2500 };
    let pushes = (0..4).map(|_| {
        let (store, options) = (store.clone(), options.clone());
        tokio::spawn(async move {
            let begun = store.submit("alice", None, &options, few).await?;
            let Begun::New(mut submission) = begun else { panic!("no key was given") };
            for n in 0..1000 { submission.push(file(n)).await?; }
            submission.finish().await
        })
    });
    let mut accepted = 0;
    for push in pushes.collect::<Vec<_>>() {
        match push.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(StoreError::Quota { what: "files", .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 2);
}

async fn long_urls_are_not_held_in_memory(fixture) {
    let store = &fixture.store;
    let begun = store.submit("alice", None, &JobOptions::default(), Quota::NONE).await.unwrap();
    let Begun::New(mut submission) = begun else { panic!("it is new") };
    for n in 0..900 {
        let mut long = file(n);
        long.source += &"x".repeat(8000);
        submission.push(long).await.unwrap();
    }
    let written = store.job(submission.id()).await.unwrap().files.total;
    assert!(written > 300, "{written}");
    submission.finish().await.unwrap();
}

async fn a_large_submission_that_broke_off_is_removed_in_parts(fixture) {
    let store = &fixture.store;
    let options = JobOptions::default();
    let begun = store.submit("alice", Some("k"), &options, Quota::NONE).await.unwrap();
    let Begun::New(mut first) = begun else { panic!("it is new") };
    for n in 0..2500 { first.push(file(n)).await.unwrap(); }
    fixture.execute(
        "INSERT INTO file_exception SELECT job.number, unit.id, 0, 1, '{}', '', 0 FROM job, unit"
    ).await;
    let again = store.submit("alice", Some("k"), &options, Quota::NONE).await.unwrap();
    assert!(matches!(again, Begun::New(_)));
    drop(first);
    let leader = lead(store).await;
    let done = store.maintain(leader, Retention::default()).await.unwrap();
    assert_eq!(done.submissions, 1);
    for count in [
        "SELECT COUNT(*) FROM segment",
        "SELECT COUNT(*) FROM unit",
        "SELECT COUNT(*) FROM file_exception",
    ] {
        assert_eq!(fixture.number(count).await, 0, "{count}");
    }
    assert_eq!(fixture.number("SELECT COUNT(*) FROM job").await, 1);
}

async fn an_empty_job_or_a_bad_url_is_refused(fixture) {
    let store = &fixture.store;
    let options = JobOptions::default();
    let begun = store.submit("alice", None, &options, Quota::NONE).await.unwrap();
    let Begun::New(mut submission) = begun else { panic!("it is new") };
    let mut bad = file(1);
    bad.source = "/no/scheme".into();
    assert!(matches!(submission.push(bad).await, Err(StoreError::Invalid(_))));
    assert!(matches!(submission.finish().await, Err(StoreError::Invalid(_))));
    let begun = store.submit("alice", None, &options, Quota::NONE).await.unwrap();
    let Begun::New(submission) = begun else { panic!("it is new") };
    submission.abort().await.unwrap();
    assert_eq!(fixture.number("SELECT COUNT(*) FROM job").await, 0);
}

async fn lists_have_pages_and_filters(fixture) {
    let store = &fixture.store;
    let mut ids = Vec::new();
    for _ in 0..5 { ids.push(submit(store, 1).await); }
    store.cancel(ids[1], "by alice").await.unwrap();
    let all = JobFilter::default();
    let first = store.jobs(&all, None, 3).await.unwrap();
    let found: Vec<_> = first.items.iter().map(|job| job.id).collect();
    assert_eq!(found, [ids[4], ids[3], ids[2]]);
    let second = store.jobs(&all, first.next.as_deref(), 3).await.unwrap();
    let found: Vec<_> = second.items.iter().map(|job| job.id).collect();
    assert_eq!((found, second.next), (vec![ids[1], ids[0]], None));
    let filter = JobFilter {
        owner: Some("alice".into()),
        states: vec![JobState::Canceled, JobState::Failed],
        ids: ids.clone(),
    };
    let found = store.jobs(&filter, None, 10).await.unwrap().items;
    assert!(found.len() == 1 && found[0].id == ids[1]);
    let filter = JobFilter { owner: Some("bob".into()), ..JobFilter::default() };
    assert!(store.jobs(&filter, None, 10).await.unwrap().items.is_empty());
    assert!(matches!(store.jobs(&all, Some("x"), 3).await, Err(StoreError::Invalid(_))));
    let unknown = store.job(uuid::Uuid::new_v4()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)));
}

async fn a_job_waits_for_another_and_falls_with_it(fixture) {
    let store = &fixture.store;
    let first = submit(store, 1).await;
    let after = JobOptions { after: vec![first], ..JobOptions::default() };
    let second = submit_with(store, files(1), &after).await;
    let third = JobOptions { after: vec![second], ..JobOptions::default() };
    let third = submit_with(store, files(1), &third).await;
    assert!(store.job(second).await.unwrap().waits_for_job);
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let granted = agent.take(store, leader, 9).await;
    assert_eq!(granted.iter().map(|unit| unit.job).collect::<Vec<_>>(), [first]);
    agent.poll(store, &[], granted.iter().map(all_finished).collect()).await;
    assert!(!store.job(second).await.unwrap().waits_for_job);
    let granted = agent.take(store, leader, 9).await;
    assert_eq!(granted.iter().map(|unit| unit.job).collect::<Vec<_>>(), [second]);
    store.cancel(second, "by alice").await.unwrap();
    assert_eq!(store.job(third).await.unwrap().state, JobState::Canceled);
    let late = JobOptions { after: vec![second], ..JobOptions::default() };
    let late = submit_with(store, files(1), &late).await;
    assert_eq!(store.job(late).await.unwrap().state, JobState::Canceled);
}

async fn files_that_are_open_at_the_deadline_fail(fixture) {
    let store = &fixture.store;
    let deadline = Some(store.now().await.unwrap() - Duration::from_secs(5));
    let options = JobOptions { deadline, ..JobOptions::default() };
    let id = submit_with(store, files(3), &options).await;
    let leader = lead(store).await;
    let done = store.maintain(leader, Retention::default()).await.unwrap();
    assert_eq!(done.deadlines, 1);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed), (JobState::Failed, 3));
    assert_eq!(views(store, &job).await[0].error.as_ref().unwrap().code, "deadline");
    assert!(store.queues().await.unwrap().is_empty());
}

async fn old_jobs_move_to_the_history_and_leave_nothing(fixture) {
    let store = &fixture.store;
    let id = submit(store, 3).await;
    store.cancel(id, "by alice").await.unwrap();
    let young = submit(store, 3).await;
    let options = JobOptions::default();
    let _broken = store.submit("alice", None, &options, Quota::NONE).await.unwrap();
    fixture.execute("UPDATE job SET touched = 0 WHERE state = 'submitting'").await;
    fixture.execute("UPDATE job SET ended = ended - 4000000000000 WHERE ended > 0").await;
    let leader = lead(store).await;
    let done = store.maintain(leader, Retention::default()).await.unwrap();
    assert_eq!((done.jobs, done.submissions, done.deadlines), (1, 1, 0));
    assert!(matches!(store.job(id).await, Err(StoreError::NotFound)));
    assert_eq!(fixture.number("SELECT COUNT(*) FROM history").await, 1);
    assert_eq!(fixture.number("SELECT COUNT(DISTINCT job) FROM segment").await, 1);
    assert_eq!(store.job(young).await.unwrap().files.total, 3);
    let again = store.maintain(leader, Retention::default()).await.unwrap();
    assert_eq!(again, Default::default());
    let none = Retention { files_days: 30, events_days: 0, history_days: 0 };
    fixture.execute("UPDATE history SET ended = ended - 90000000000").await;
    store.maintain(leader, none).await.unwrap();
    assert_eq!(fixture.number("SELECT COUNT(*) FROM history").await, 0);
}

async fn large_jobs_are_paged_by_number(fixture) {
    let store = &fixture.store;
    let before = resident();
    let id = submit(store, 100_000).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 120 << 20, "{grown} bytes more for a submission");
    let job = store.job(id).await.unwrap();
    assert_eq!(job.files.total, 100_000);
    let start = Instant::now();
    let page = store.files(&job, Some("99990"), 100, None).await.unwrap();
    let numbers: Vec<u64> = page.items.iter().map(|view| view.index).collect();
    assert_eq!(numbers, (99_990..100_000).collect::<Vec<u64>>());
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(page.next, None);
    let first = store.files(&job, None, 100, Some(FileState::Queued)).await.unwrap();
    assert_eq!((first.items.len(), first.next.as_deref()), (100, Some("100")));
}

}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn a_database_of_another_version_is_refused_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("db").display());
    assert!(matches!(
        Store::open(&url).await,
        Err(StoreError::Schema(_))
    ));
    let store = Store::migrate(&url).await.unwrap();
    assert_eq!(store.schema_version().await.unwrap(), 18);
    store.close().await;
    Store::open(&url).await.unwrap();
    assert!(matches!(
        Store::open("mysql://x").await,
        Err(StoreError::Invalid(_))
    ));
}
