//! Files that several units copy.

use godwit_service::store::{
    Store,
    model::{GrantedUnit, Leadership},
};
use godwit_service_api::{
    agent::{Division, FileEnd, FileOutcome, FilePart, StopReason, UnitResult, Work},
    event::JobEventKind,
    job::{FileState, JobOptions, JobState},
};
use uuid::Uuid;

use crate::support::*;

const MIB: u64 = 1 << 20;

/// Name of a temporary file, as the client makes it.
const TEMPORARY: &str = ".godwit-0123456789abcdef.part";

fn outcome(index: u64, end: FileEnd) -> FileOutcome {
    FileOutcome {
        index,
        bytes: 0,
        end,
    }
}

fn divided(unit: &GrantedUnit, temporary: &str) -> UnitResult {
    let end = FileEnd::Divided(Division {
        temporary: temporary.to_owned(),
        size: 4 * MIB,
        changed: 17,
    });
    result(unit.lease, 0, vec![outcome(0, end)])
}

fn copied(unit: &GrantedUnit) -> UnitResult {
    result(unit.lease, 0, vec![outcome(0, FileEnd::Copied)])
}

fn part_of(unit: &GrantedUnit) -> FilePart {
    match &unit.work {
        Work::Copy(files) => files[0].part.clone().unwrap(),
        Work::List { .. } => panic!("a listing"),
    }
}

/// A job of one file that an agent has divided into four ranges, which another agent has.
async fn in_four(
    store: &Store,
    options: &JobOptions,
) -> (Uuid, Leadership, Agent, Vec<GrantedUnit>) {
    let mut unsized_file = file(0);
    unsized_file.bytes = None;
    let id = submit_with(store, vec![unsized_file], options).await;
    let leader = lead(store).await;
    let mut first = Agent::new("dtn1");
    let unit = first.take(store, leader, 1).await.remove(0);
    first
        .poll(store, &[], vec![divided(&unit, TEMPORARY)])
        .await;
    let mut agent = Agent::new("dtn2");
    let ranges = agent.take(store, leader, 9).await;
    assert_eq!(ranges.len(), 4);
    (id, leader, agent, ranges)
}

fn small_ranges(store: &Store) -> Store {
    store.clone().with_divide_above(2 * MIB)
}

both! {

async fn ranges_are_units_and_the_last_one_makes_a_unit_for_the_end(fixture) {
    let store = &small_ranges(&fixture.store);
    let (id, leader, mut agent, ranges) = in_four(store, &JobOptions::default()).await;
    let url = format!("gsiftp://b.example.org/copy/{TEMPORARY}");
    for (number, unit) in (0..).zip(&ranges) {
        let range = Some((number * MIB, (number + 1) * MIB));
        let part = FilePart { temporary: url.clone(), size: 4 * MIB, changed: 17, range };
        assert_eq!((part_of(unit), unit.bytes), (part, MIB));
    }
    let job = store.job(id).await.unwrap();
    assert_eq!(views(store, &job).await[0].state, FileState::Active);
    agent.poll(store, &[], ranges[1..].iter().map(copied).collect()).await;
    // What is told again counts once.
    agent.poll(store, &[], vec![copied(&ranges[1])]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.bytes_done), (JobState::Active, 3 * MIB));
    assert!(store.queues().await.unwrap().is_empty());
    agent.poll(store, &[], vec![copied(&ranges[0])]).await;
    let end = agent.take(store, leader, 9).await.remove(0);
    assert_eq!(part_of(&end).range, None);
    let finished = FileEnd::Finished { size: 4 * MIB, checksum: None };
    agent.poll(store, &[], vec![result(end.lease, 0, vec![outcome(0, finished)])]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished), (JobState::Finished, 1));
    assert_eq!((job.bytes_total, job.bytes_done), (4 * MIB, 4 * MIB));
    assert_eq!(fixture.number("SELECT COUNT(*) FROM divided_file").await, 0);
    assert_eq!(fixture.number("SELECT COUNT(*) FROM leftover").await, 0);
}

async fn a_range_that_fails_is_tried_again_and_at_last_ends_its_file(fixture) {
    let store = &small_ranges(&fixture.store);
    let options = JobOptions { attempts: 2, ..JobOptions::default() };
    let (id, leader, mut agent, ranges) = in_four(store, &options).await;
    let fails = |unit: &GrantedUnit| result(unit.lease, 0, vec![failed(0, error("lost", true))]);
    agent.poll(store, &[], vec![fails(&ranges[0]), fails(&ranges[1])]).await;
    assert_eq!(store.job(id).await.unwrap().state, JobState::Active);
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let again = agent.take(store, leader, 9).await;
    assert_eq!(again.len(), 2);
    let held = [ranges[2].lease];
    let polled = agent.poll(store, &held, vec![copied(&ranges[3]), fails(&again[0])]).await;
    // The other ranges are for nothing.
    let stops: Vec<_> = polled.stop.iter().map(|stop| (stop.lease, stop.why)).collect();
    assert_eq!(stops, [(ranges[2].lease, StopReason::Fenced)]);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed, job.bytes_done), (JobState::Failed, 1, 0));
    assert!(polled.remove.is_empty(), "an agent may still write it");
    fixture.execute("UPDATE leftover SET since = 0").await;
    let polled = agent.poll(store, &[], Vec::new()).await;
    let removal = &polled.remove[0];
    let url = format!("gsiftp://b.example.org/copy/{TEMPORARY}");
    assert_eq!((&removal.url, removal.owner.as_str()), (&url, "alice"));
    let mut request = agent.request(&[], Vec::new());
    request.removed = vec![removal.id];
    assert!(store.poll(&request).await.unwrap().remove.is_empty());
    assert_eq!(fixture.number("SELECT COUNT(*) FROM leftover").await, 0);
}

async fn another_version_of_the_source_is_copied_from_the_start(fixture) {
    let store = &small_ranges(&fixture.store);
    let (id, leader, mut agent, ranges) = in_four(store, &JobOptions::default()).await;
    let changed = result(ranges[0].lease, 0, vec![failed(0, error("changed", true))]);
    agent.poll(store, &[], vec![changed]).await;
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let again = agent.take(store, leader, 9).await;
    assert_eq!((again.len(), indices(&again[0])), (1, vec![0]));
    assert!(matches!(&again[0].work, Work::Copy(files) if files[0].part.is_none()));
    assert_eq!(fixture.number("SELECT COUNT(*) FROM leftover").await, 1);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed), (JobState::Active, 0));
}

async fn a_cancel_ends_divisions(fixture) {
    let store = &small_ranges(&fixture.store);
    let (id, _, mut agent, ranges) = in_four(store, &JobOptions::default()).await;
    agent.poll(store, &[], vec![copied(&ranges[0])]).await;
    store.cancel(id, "by alice").await.unwrap();
    assert_eq!(store.job(id).await.unwrap().bytes_done, 0);
    let held: Vec<_> = ranges[1..].iter().map(|unit| unit.lease).collect();
    let polled = agent.poll(store, &held, Vec::new()).await;
    assert!(polled.stop.iter().all(|stop| stop.why == StopReason::Canceled));
    assert_eq!(polled.stop.len(), 3);
    agent.poll(store, &[], vec![copied(&ranges[1])]).await;
    assert_eq!(fixture.number("SELECT COUNT(*) FROM divided_file").await, 0);
    assert_eq!(fixture.number("SELECT COUNT(*) FROM leftover").await, 1);
    assert!(store.queues().await.unwrap().is_empty());
}

async fn a_file_that_is_canceled_ends_with_all_its_ranges(fixture) {
    let store = &small_ranges(&fixture.store);
    let (id, _, mut agent, ranges) = in_four(store, &JobOptions::default()).await;
    agent.poll(store, &[], vec![copied(&ranges[0])]).await;
    assert!(store.cancel_file(id, 0, "by alice").await.unwrap());
    let held: Vec<_> = ranges[1..].iter().map(|unit| unit.lease).collect();
    assert_eq!(agent.poll(store, &held, Vec::new()).await.stop.len(), 3);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.canceled, job.bytes_done), (JobState::Canceled, 1, 0));
    assert_eq!(fixture.number("SELECT COUNT(*) FROM unit").await, 0);
    assert_eq!(fixture.number("SELECT COUNT(*) FROM leftover").await, 1);
}

async fn the_range_of_a_lost_agent_goes_to_another(fixture) {
    let store = &small_ranges(&fixture.store);
    let (id, leader, mut lost, ranges) = in_four(store, &JobOptions::default()).await;
    lost.poll(store, &[], vec![copied(&ranges[0])]).await;
    fixture.end_leases().await;
    while !store.expire(leader).await.unwrap().is_empty() {}
    let mut next = Agent::new("dtn3");
    let again = next.take(store, leader, 9).await;
    let parts = again.iter().map(|unit| part_of(unit).range).collect::<Vec<_>>();
    let before = ranges[1..].iter().map(|unit| part_of(unit).range);
    assert_eq!(parts, before.collect::<Vec<_>>());
    // The late agent's word does not count.
    let polled = lost.poll(store, &[], vec![copied(&ranges[1])]).await;
    assert_eq!(polled.stop[0].why, StopReason::Fenced);
    next.poll(store, &[], again.iter().map(copied).collect()).await;
    assert_eq!(next.take(store, leader, 9).await.len(), 1);
    assert_eq!(store.job(id).await.unwrap().bytes_done, 4 * MIB);
}

async fn a_name_that_is_no_temporary_file_divides_nothing(fixture) {
    let store = &small_ranges(&fixture.store);
    let id = submit(store, 1).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    for name in ["../../etc/passwd", "f0", "", ".godwit-0123456789abcdef.part/x"] {
        let unit = agent.take(store, leader, 1).await.remove(0);
        agent.poll(store, &[], vec![divided(&unit, name)]).await;
    }
    assert_eq!(fixture.number("SELECT COUNT(*) FROM divided_file").await, 0);
    let events = store.events(id, 0, 100).await.unwrap();
    let is_divided = |event: &JobEventKind| matches!(event, JobEventKind::Divided { .. });
    assert!(!events.iter().any(|(_, event)| is_divided(&event.what)));
}

}
