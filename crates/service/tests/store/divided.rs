//! Files that several units copy.

use godwit_service::store::{
    Store,
    model::{GrantedUnit, Leadership},
};
use godwit_service_api::{
    agent::{
        DividedUpload, Division, FileEnd, FileOutcome, FilePart, StopReason, UnitResult, Work,
    },
    event::JobEventKind,
    job::{FileState, JobOptions, JobState},
};
use uuid::Uuid;

use crate::support::*;

const MIB: u64 = 1 << 20;

/// Name of a temporary file, as the client makes it.
const TEMPORARY: &str = ".godwit-0123456789abcdef.part";

/// What agents know an upload to a bucket by.
const UPLOAD: &str = "f0 1572864 4194304 mark id";

fn outcome(index: u64, end: FileEnd) -> FileOutcome {
    FileOutcome {
        index,
        bytes: 0,
        end,
    }
}

fn divided(unit: &GrantedUnit, temporary: &str) -> UnitResult {
    division(unit, temporary, None)
}

/// The same for a bucket.
fn upload(unit: &GrantedUnit, known_as: &str, part_bytes: u64) -> UnitResult {
    let known_as = known_as.to_owned();
    let upload = DividedUpload {
        known_as,
        part_bytes,
    };
    division(unit, TEMPORARY, Some(upload))
}

fn division(unit: &GrantedUnit, temporary: &str, upload: Option<DividedUpload>) -> UnitResult {
    let end = FileEnd::Divided(Division {
        temporary: temporary.to_owned(),
        size: 4 * MIB,
        changed: 17,
        upload,
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
        let temporary = url.clone();
        let part = FilePart { temporary, size: 4 * MIB, changed: 17, range, upload: None };
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

async fn ranges_of_an_upload_begin_where_its_parts_do_and_it_is_aborted_by_its_id(fixture) {
    let store = &small_ranges(&fixture.store);
    let id = submit(store, 1).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let part_bytes = 3 * MIB / 2;
    agent.poll(store, &[], vec![upload(&unit, UPLOAD, part_bytes)]).await;
    let mut old = Agent::new("old");
    let mut request = old.request(&[], Vec::new());
    request.description.joins_uploads = false;
    store.poll(&request).await.unwrap();
    assert!(old.granted(store, leader, 9).await.is_empty(), "it knows no uploads");
    let parts: Vec<_> = agent.take(store, leader, 9).await.iter().map(part_of).collect();
    let ranges: Vec<_> = parts.iter().filter_map(|part| part.range).collect();
    let ends = [(0, part_bytes), (part_bytes, 2 * part_bytes), (2 * part_bytes, 4 * MIB)];
    assert_eq!(ranges, ends);
    assert!(parts.iter().all(|part| part.upload.as_deref() == Some(UPLOAD)));
    store.cancel(id, "by alice").await.unwrap();
    fixture.execute("UPDATE leftover SET since = 0").await;
    let mut request = agent.request(&[], Vec::new());
    request.description.joins_uploads = false;
    assert!(store.poll(&request).await.unwrap().remove.is_empty(), "it knows no uploads");
    let polled = agent.poll(store, &[], Vec::new()).await;
    assert_eq!(polled.remove[0].upload.as_deref(), Some(UPLOAD));
}

async fn an_upload_that_the_service_has_ended_is_begun_again(fixture) {
    let store = &small_ranges(&fixture.store);
    let (id, leader, mut agent, ranges) = in_four(store, &JobOptions::default()).await;
    let ended = result(ranges[0].lease, 0, vec![failed(0, error("upload_ended", true))]);
    agent.poll(store, &[], vec![ended]).await;
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let again = agent.take(store, leader, 9).await;
    assert!(matches!(&again[..], [unit] if matches!(&unit.work,
        Work::Copy(files) if files[0].part.is_none())));
    assert_eq!(store.job(id).await.unwrap().files.failed, 0);
}

async fn an_upload_that_cannot_be_divides_nothing_and_counts_as_a_failure(fixture) {
    let store = &small_ranges(&fixture.store);
    let options = JobOptions { attempts: 9, ..JobOptions::default() };
    let id = submit_with(store, vec![file(0)], &options).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let odd = [
        ("f0 0 4194304 mark id", 0),
        ("f0 419 4194304 mark id", 419),
        ("f0 1048576 4194304 mark id", 2 * MIB),
        ("f0 1048576 4194305 mark id", MIB),
        ("f0 1048576 4194304 mark i\nd", MIB),
        ("", MIB),
    ];
    for (known_as, part_bytes) in odd {
        let unit = agent.take(store, leader, 1).await.remove(0);
        agent.poll(store, &[], vec![upload(&unit, known_as, part_bytes)]).await;
        fixture.execute("UPDATE unit SET not_before = 0").await;
    }
    assert_eq!(fixture.number("SELECT COUNT(*) FROM divided_file").await, 0);
    let events = store.events(id, 0, 100).await.unwrap();
    let is_failed = |kind: &JobEventKind| matches!(kind, JobEventKind::FileFailed { .. });
    let failures = events.iter().filter(|(_, event)| is_failed(&event.what)).count();
    assert_eq!(failures, odd.len());
}

async fn what_is_begun_while_a_job_is_canceled_is_removed(fixture) {
    let store = &small_ranges(&fixture.store);
    let id = submit(store, 1).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    store.cancel(id, "by alice").await.unwrap();
    agent.poll(store, &[unit.lease], vec![upload(&unit, UPLOAD, 3 * MIB / 2)]).await;
    assert_eq!(fixture.number("SELECT COUNT(*) FROM divided_file").await, 0);
    assert_eq!(fixture.number("SELECT COUNT(*) FROM leftover WHERE upload IS NOT NULL").await, 1);
}

async fn a_name_that_is_no_temporary_file_divides_nothing(fixture) {
    let store = &small_ranges(&fixture.store);
    let options = JobOptions { attempts: 9, ..JobOptions::default() };
    let id = submit_with(store, vec![file(0)], &options).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    for name in ["../../etc/passwd", "f0", "", ".godwit-0123456789abcdef.part/x"] {
        let unit = agent.take(store, leader, 1).await.remove(0);
        agent.poll(store, &[], vec![divided(&unit, name)]).await;
        fixture.execute("UPDATE unit SET not_before = 0").await;
    }
    assert_eq!(fixture.number("SELECT COUNT(*) FROM divided_file").await, 0);
    let events = store.events(id, 0, 100).await.unwrap();
    let is_divided = |event: &JobEventKind| matches!(event, JobEventKind::Divided { .. });
    assert!(!events.iter().any(|(_, event)| is_divided(&event.what)));
}

}
