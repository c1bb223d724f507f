//! Units that end soon, so that no user waits long.

use super::world::{GIB, agent, key, of_class, queue, seconds};
use crate::{Class, Grant, QueueState, Scheduler};

/// One unit of a thousand files, a MiB each: three GiB of cost.
fn files(share: &str) -> QueueState {
    QueueState {
        unit_files: 1000,
        unit_bytes: 1000 << 20,
        ready_files: 1000,
        ready_bytes: 1000 << 20,
        ..queue(share, 1)
    }
}

fn scheduler(slots: u32) -> Scheduler {
    let mut scheduler = Scheduler::default();
    scheduler.set_agent("one", agent("h", slots));
    scheduler
}

fn lengths(grants: &[Grant]) -> Vec<u32> {
    grants.iter().map(|grant| grant.files).collect()
}

/// The first unit of the job ends after a second of its time.
fn learn_pace(scheduler: &mut Scheduler) {
    let first = scheduler.step(seconds(0.0)).remove(0);
    assert_eq!(first.files, 5);
    scheduler.lease_ended(first.lease, 5 << 20, 5, seconds(1.0));
}

#[test]
fn units_are_cut_to_ten_seconds() {
    let mut scheduler = scheduler(1);
    scheduler.set_queue(&key(1, "s", "d"), files("a"));
    learn_pace(&mut scheduler);
    assert_eq!(lengths(&scheduler.step(seconds(1.0))), [50]);
}

#[test]
fn units_of_a_path_of_which_nothing_is_known_are_short() {
    let mut scheduler = scheduler(8);
    scheduler.set_queue(&key(1, "s", "d"), files("a"));
    assert_eq!(lengths(&scheduler.step(seconds(0.0))), [5; 8]);
}

#[test]
fn units_are_equal_parts_of_the_rest() {
    let mut scheduler = scheduler(1);
    scheduler.set_queue(&key(1, "s", "d"), files("a"));
    learn_pace(&mut scheduler);
    scheduler.set_agent("one", agent("h", 30));
    let lengths = lengths(&scheduler.step(seconds(1.0)));
    assert_eq!((lengths.len(), &lengths[..4]), (30, &[33, 32, 31, 30][..]));
}

#[test]
fn units_grow_with_the_pace_of_those_that_ended() {
    let mut scheduler = scheduler(1);
    scheduler.set_queue(&key(1, "s", "d"), files("a"));
    scheduler.set_queue(&key(2, "s", "d"), files("b"));
    let first = scheduler.step(seconds(0.0)).remove(0);
    scheduler.lease_ended(first.lease, 51 << 20, 51, seconds(2.0));
    let next = scheduler.step(seconds(2.0)).remove(0);
    assert!((240..=260).contains(&next.files), "{}", next.files);
}

#[test]
fn agents_end_a_job_together() {
    let mut scheduler = Scheduler::default();
    for name in ["one", "two"] {
        scheduler.set_agent(name, agent(name, 2));
    }
    let three = QueueState {
        unit_files: 3,
        unit_bytes: 30_000_000,
        ready_files: 3,
        ready_bytes: 30_000_000,
        ..queue("a", 1)
    };
    scheduler.set_queue(&key(1, "s", "d"), three);
    let grants = scheduler.step(seconds(0.0));
    assert_eq!(lengths(&grants), [1, 1, 1]);
    assert_ne!(grants[0].agent, grants[1].agent);
}

#[test]
fn a_queue_whose_units_were_cut_is_worked_off_without_being_told_again() {
    let mut scheduler = scheduler(4);
    let state = QueueState {
        ready: 10,
        ready_files: 10_000,
        ready_bytes: 10_000 << 20,
        ..files("a")
    };
    scheduler.set_queue(&key(1, "s", "d"), state);
    let (mut now, mut files, mut units) = (0.0, 0, 0);
    while files < 10_000 {
        let grants = scheduler.step(seconds(now));
        assert!(!grants.is_empty(), "{files} files in {units} units");
        now += 0.1;
        for grant in grants {
            (files, units) = (files + grant.files, units + 1);
            let bytes = u64::from(grant.files) << 20;
            scheduler.lease_ended(grant.lease, bytes, grant.files, seconds(now));
        }
    }
    assert_eq!(files, 10_000);
    assert!((10..100).contains(&units), "{units}");
}

#[test]
fn a_file_is_never_cut() {
    let mut scheduler = scheduler(1);
    let state = QueueState {
        unit_bytes: 1000 * GIB,
        ..queue("a", 1)
    };
    scheduler.set_queue(&key(1, "s", "d"), state);
    assert_eq!(lengths(&scheduler.step(seconds(0.0))), [1]);
}

#[test]
fn a_first_unit_starts_beside_full_slots_and_only_one() {
    let mut scheduler = scheduler(2);
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    assert_eq!(scheduler.step(seconds(0.0)).len(), 2);
    for job in [2, 3] {
        let state = QueueState {
            started_any: false,
            ..queue("b", 5)
        };
        scheduler.set_queue(&key(job, "s", "d"), state);
    }
    let grants = scheduler.step(seconds(1.0));
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].queue.job, 2);
    assert!(scheduler.step(seconds(2.0)).is_empty());
    scheduler.lease_ended(grants[0].lease, GIB, 1, seconds(3.0));
    assert_eq!(scheduler.step(seconds(3.0))[0].queue.job, 3);
}

#[test]
fn a_scavenger_waits_while_another_job_has_the_link() {
    let mut scheduler = scheduler(4);
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 1));
    scheduler.set_queue(
        &key(2, "s", "d"),
        of_class(Class::Scavenger, queue("b", 100)),
    );
    let first = scheduler.step(seconds(0.0));
    assert_eq!(first.len(), 1, "{first:?}");
    scheduler.lease_ended(first[0].lease, GIB, 1, seconds(9.0));
    assert_eq!(scheduler.step(seconds(9.0)).len(), 4);
}
