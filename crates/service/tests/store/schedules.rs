//! Schedules and the times that they were due.

use std::time::Duration;

use godwit_service::store::{Begun, Quota, StoreError, model::ScheduleRecord};
use godwit_service_api::job::{JobOptions, JobRequest};
use jiff::Timestamp;

use crate::support::*;

fn schedule(name: &str, next: Option<Timestamp>) -> ScheduleRecord {
    ScheduleRecord {
        number: 0,
        owner: "alice".into(),
        name: name.into(),
        cron: "15 3 * * *".into(),
        zone: "Europe/Berlin".into(),
        request: JobRequest {
            files: files(2),
            options: JobOptions::default(),
        },
        next,
        last_job: None,
        paused: false,
    }
}

both! {

async fn a_time_that_is_due_has_one_job_whoever_leads(fixture) {
    let store = &fixture.store;
    let now = store.now().await.unwrap();
    let due = now - Duration::from_secs(3600);
    store.add_schedule(&schedule("late", Some(due))).await.unwrap();
    store.add_schedule(&schedule("early", Some(now + Duration::from_secs(3600)))).await.unwrap();
    store.add_schedule(&schedule("never", None)).await.unwrap();
    // Both have read it before one of them has written what became of it.
    let due_now = store.due_schedules(&[], 8).await.unwrap();
    assert_eq!(due_now.len(), 1);
    let read = || async { store.due_schedule(due_now[0]).await.unwrap().unwrap() };
    let of_two = [read().await, read().await];
    let next = Some(now + Duration::from_secs(1800));
    let mut jobs = Vec::new();
    for one in &of_two {
        assert_eq!((one.name.as_str(), &one.request.files), ("late", &files(2)));
        let key = format!("schedule {} {due}", one.number);
        let options = &one.request.options;
        let begun =
            store.submit_scheduled("alice", Some(&key), Some("late"), options, Quota::NONE);
        let job = match begun.await.unwrap() {
            Begun::New(mut submission) => {
                submission.push(file(0)).await.unwrap();
                submission.finish().await.unwrap()
            }
            Begun::Existing { id, .. } => id,
        };
        store.schedule_ran(one, Ok(job), next).await.unwrap();
        jobs.push(job);
    }
    assert_eq!(jobs[0], jobs[1]);
    assert_eq!(store.job(jobs[0]).await.unwrap().schedule.as_deref(), Some("late"));
    let after = store.schedule("alice", "late").await.unwrap();
    assert_eq!((after.next, after.last_job), (next, Some(jobs[0])));
    let runs = store.runs(after.number).await.unwrap();
    assert_eq!((runs.len(), runs[0].due, runs[0].job), (1, due, Some(jobs[0])));
    assert!(store.due_schedules(&[], 8).await.unwrap().is_empty());
    assert!(store.due_schedule(after.number).await.unwrap().is_none());
}

async fn one_schedule_holds_up_no_other(fixture) {
    let store = &fixture.store;
    let now = store.now().await.unwrap();
    let due = |n: u64| Some(now - Duration::from_secs(100 - n));
    let of = |owner: &str, record| ScheduleRecord { owner: owner.to_owned(), ..record };
    for n in 0..20 {
        store.add_schedule(&schedule(&format!("a{n}"), due(n))).await.unwrap();
    }
    store.add_schedule(&of("bob", schedule("b", due(50)))).await.unwrap();
    // The first of each owner, the longest due first.
    let found = store.due_schedules(&[], 8).await.unwrap();
    let [alice, bob] = found[..] else { panic!("{found:?}") };
    let next = store.due_schedules(&[alice], 8).await.unwrap();
    assert_eq!(store.due_schedule(next[0]).await.unwrap().unwrap().name, "a1");
    assert_eq!(next[1], bob);
    assert_eq!(store.due_schedules(&[alice, next[0], bob], 1).await.unwrap().len(), 1);
    // The clock was set back: the same time is due again.
    let again = store.due_schedule(bob).await.unwrap().unwrap();
    for _ in 0..2 {
        store.schedule_ran(&again, Err("why"), again.next).await.unwrap();
    }
    assert_eq!(store.runs(bob).await.unwrap().len(), 1);
}

async fn the_last_runs_are_kept_and_a_skipped_one_keeps_the_last_job(fixture) {
    let store = &fixture.store;
    let now = store.now().await.unwrap();
    store.add_schedule(&schedule("busy", Some(now))).await.unwrap();
    let job = submit(store, 1).await;
    for n in 0..60 {
        let due = store.schedule("alice", "busy").await.unwrap();
        let outcome = if n == 0 { Ok(job) } else { Err("it has not ended") };
        let next = due.next.unwrap() + Duration::from_secs(60);
        store.schedule_ran(&due, outcome, Some(next)).await.unwrap();
    }
    let schedule = store.schedule("alice", "busy").await.unwrap();
    let runs = store.runs(schedule.number).await.unwrap();
    assert_eq!((runs.len(), schedule.last_job), (50, Some(job)));
    assert_eq!(runs[0].due, now + Duration::from_secs(59 * 60));
    assert!(runs.iter().all(|run| run.skipped.as_deref() == Some("it has not ended")));
}

async fn names_are_of_their_owner_and_a_user_has_a_hundred(fixture) {
    let store = &fixture.store;
    for n in 0..100 {
        store.add_schedule(&schedule(&format!("s{n}"), None)).await.unwrap();
    }
    let refused = store.add_schedule(&schedule("one-more", None)).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))));
    store.remove_schedule("alice", "s7").await.unwrap();
    let again = store.remove_schedule("alice", "s7").await;
    assert!(matches!(again, Err(StoreError::NotFound)));
    let taken = store.add_schedule(&schedule("s8", None)).await;
    assert!(matches!(taken, Err(StoreError::Conflict(_))));
    let of_bob = ScheduleRecord { owner: "bob".into(), ..schedule("s8", None) };
    store.add_schedule(&of_bob).await.unwrap();
    assert_eq!(store.schedules("bob").await.unwrap().len(), 1);
    assert!(matches!(store.schedule("bob", "s9").await, Err(StoreError::NotFound)));
    assert_eq!(store.schedules("alice").await.unwrap().len(), 99);
}

async fn a_schedule_that_is_paused_is_not_due(fixture) {
    let store = &fixture.store;
    let due = store.now().await.unwrap() - Duration::from_secs(60);
    store.add_schedule(&schedule("one", Some(due))).await.unwrap();
    store.add_schedule(&schedule("two", Some(due))).await.unwrap();
    let first = store.due_schedules(&[], 8).await.unwrap()[0];
    assert!(!store.due_schedule(first).await.unwrap().unwrap().paused);
    store.set_schedule_paused("alice", "one", true, None).await.unwrap();
    // Of an owner the first one is due, but for those that are paused.
    assert_ne!(store.due_schedules(&[], 8).await.unwrap(), [first]);
    assert!(store.due_schedule(first).await.unwrap().is_none());
    let paused = store.schedule("alice", "one").await.unwrap();
    assert!(paused.paused && paused.next == Some(due));
    let twice = store.set_schedule_paused("alice", "one", true, None).await;
    assert!(matches!(twice, Err(StoreError::Conflict(_))));
    let later = due + Duration::from_secs(3600);
    store.set_schedule_paused("alice", "one", false, Some(later)).await.unwrap();
    let resumed = store.schedule("alice", "one").await.unwrap();
    assert!(!resumed.paused && resumed.next == Some(later));
    let runs = store.last_runs("alice").await.unwrap();
    assert!(runs.is_empty());
    store.schedule_ran(&resumed, Err("busy"), Some(later)).await.unwrap();
    let runs = store.last_runs("alice").await.unwrap();
    assert_eq!((runs.len(), runs[0].0, runs[0].1.due), (1, first, later));
    assert!(store.last_runs("bob").await.unwrap().is_empty());
}

}
