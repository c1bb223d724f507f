//! How shares divide slots and endpoints.

use std::collections::BTreeMap;

use super::world::{GIB, World, agent, configured, jain, key, of_class, queue, seconds, sessions};
use crate::{Class, EndpointConfig, Hold, QueueState, Scheduler, ShareConfig};

#[allow(clippy::cast_precision_loss)]
fn ratio(world: &World, share: &str, to: &str) -> f64 {
    world.done[share] as f64 / world.done[to] as f64
}

fn weight(weight: f64) -> ShareConfig {
    ShareConfig {
        weight,
        ..ShareConfig::default()
    }
}

#[test]
fn bytes_follow_weights() {
    let mut config = configured(&[]);
    for (user, factor) in [("a", 1.0), ("b", 2.0), ("c", 4.0)] {
        config.shares.insert(format!("o/{user}"), weight(factor));
    }
    let mut world = World::new(Scheduler::new(config), 1.0);
    world.scheduler.set_agent("one", agent("h", 8));
    // Units of different sizes: bytes count, not units.
    for (job, user, bytes) in [(1, "a", GIB), (2, "b", GIB / 8), (3, "c", 2 * GIB)] {
        let state = QueueState {
            unit_bytes: bytes,
            ..queue(&format!("o/{user}"), 1_000_000)
        };
        world.set_queue(&key(job, "s", "d"), state);
    }
    world.run_until(1000.0);
    assert!((ratio(&world, "o/b", "o/a") / 2.0 - 1.0).abs() < 0.05);
    assert!((ratio(&world, "o/c", "o/a") / 4.0 - 1.0).abs() < 0.05);
}

#[test]
fn a_group_pays_for_all_its_users() {
    let mut world = World::new(Scheduler::default(), 1.0);
    world.scheduler.set_agent("one", agent("h", 4));
    for (job, user) in [(1, "x/a"), (2, "y/b"), (3, "y/c"), (4, "y/d")] {
        world.set_queue(&key(job, "s", "d"), queue(user, 1_000_000));
    }
    world.run_until(1000.0);
    assert!((ratio(&world, "x/a", "y/b") / 3.0 - 1.0).abs() < 0.05);
}

#[test]
fn ten_users_of_an_endpoint_get_the_same_whatever_their_jobs() {
    let mut world = World::new(Scheduler::new(configured(&[("d", sessions(7))])), 1.0);
    world.scheduler.set_agent("one", agent("h", 100));
    for user in 0..10_u128 {
        // Some have many jobs, and from many places.
        for job in 0..=user {
            let source = format!("s{}", job % 3);
            let name = format!("u{user}");
            world.set_queue(&key(100 * user + job, &source, "d"), queue(&name, 100_000));
        }
    }
    world.run_until(600.0);
    #[allow(clippy::cast_precision_loss)]
    let index = jain(world.done.values().map(|bytes| *bytes as f64));
    assert_eq!(world.done.len(), 10);
    assert!(index >= 0.98, "{index}");
}

#[test]
fn a_slow_path_does_not_take_the_sessions_of_a_fast_one() {
    let run = |endpoint, slots| {
        let mut config = configured(&[("d", endpoint)]);
        config.shares.insert("b".to_owned(), weight(2.0));
        let mut world = World::new(Scheduler::new(config), 1.0);
        world.scheduler.set_agent("one", agent("h", slots));
        world.slow.insert("tape", 10.0);
        world.set_queue(&key(1, "tape", "d"), queue("a", 1_000_000));
        world.set_queue(&key(2, "disk", "d"), queue("b", 1_000_000));
        world.run_until(4000.0);
        ratio(&world, "b", "a")
    };
    // Twice the time of sessions in which ten times as much moves.
    let by_time = run(sessions(8), 100);
    assert!((by_time / 20.0 - 1.0).abs() < 0.1, "{by_time}");
    // Where slots alone are scarce, bytes count.
    let by_bytes = run(EndpointConfig::default(), 8);
    assert!((by_bytes / 2.0 - 1.0).abs() < 0.1, "{by_bytes}");
}

#[test]
fn shares_at_one_endpoint_ignore_transfers_elsewhere() {
    let config = configured(&[("d", sessions(4)), ("e", sessions(4))]);
    let mut world = World::new(Scheduler::new(config), 1.0);
    world.scheduler.set_agent("one", agent("h", 100));
    world.set_queue(&key(1, "s", "d"), queue("a", 100_000));
    world.set_queue(&key(2, "s", "d"), queue("b", 100_000));
    // The same user, alone at another endpoint.
    world.set_queue(&key(3, "s", "e"), queue("b", 100_000));
    let mut at_d: BTreeMap<u128, u64> = BTreeMap::new();
    while world.now < seconds(600.0) {
        for grant in world.advance() {
            *at_d.entry(grant.queue.job).or_default() += 1;
        }
    }
    let (a, b) = (at_d[&1], at_d[&2]);
    assert!(a.abs_diff(b) * 20 <= a + b, "{a} {b}");
}

#[test]
fn both_ends_of_a_link_keep_their_order() {
    // a and b want s, a and c want d; all slots of both ends are contended.
    let config = configured(&[("s", sessions(4)), ("d", sessions(4))]);
    let mut world = World::new(Scheduler::new(config), 1.0);
    world.scheduler.set_agent("one", agent("h", 100));
    world.set_queue(&key(1, "s", "d"), queue("a", 100_000));
    world.set_queue(&key(2, "s", "e"), queue("b", 100_000));
    world.set_queue(&key(3, "f", "d"), queue("c", 100_000));
    world.run_until(1000.0);
    #[allow(clippy::cast_precision_loss)]
    let index = jain(world.done.values().map(|bytes| *bytes as f64));
    assert!(index >= 0.98, "{:?}", world.done);
}

/// A session of s is kept for a, whose other end d is full, and b waits for it and says so.
fn world_with_a_kept_session() -> World {
    // b and c take their end again whenever it is free, and never both at once.
    let config = configured(&[("s", sessions(1)), ("d", sessions(1))]);
    let mut world = World::new(Scheduler::new(config), 1.0);
    world.slow.insert("f", 1.37);
    world.scheduler.set_agent("one", agent("h", 100));
    world.set_queue(&key(1, "s", "d"), queue("a", 100_000));
    world.set_queue(&key(2, "s", "e"), queue("b", 100_000));
    world.set_queue(&key(3, "f", "d"), queue("c", 100_000));
    let kept = "endpoint s: 0 of 1 sessions, and one is kept for a, whose other end is full; ";
    while world.now < seconds(1000.0) {
        world.start();
        let why = world.scheduler.why(&key(2, "s", "e"));
        if why
            .iter()
            .any(|reason| reason.to_string().starts_with(kept))
        {
            return world;
        }
        world.end();
    }
    panic!("no session was kept");
}

#[test]
fn a_session_is_kept_for_a_share_whose_other_end_is_full_and_given_to_others_when_it_leaves() {
    for is_removed in [true, false] {
        let mut world = world_with_a_kept_session();
        if is_removed {
            world.scheduler.remove_queue(&key(1, "s", "d"));
        } else {
            let paused = QueueState {
                hold: Some(Hold::Paused),
                ..queue("a", 1000)
            };
            world.scheduler.set_queue(&key(1, "s", "d"), paused);
        }
        let jobs: Vec<u128> = world.start().iter().map(|grant| grant.queue.job).collect();
        assert_eq!(jobs, [2]);
    }
}

#[test]
fn a_small_job_starts_at_the_next_free_slot() {
    let mut world = World::new(Scheduler::default(), 1.0);
    world.scheduler.set_agent("one", agent("h", 2));
    world.set_queue(&key(1, "s", "d"), queue("a", 1_000_000));
    world.run_until(100.0);
    for (job, user) in [(2, "a"), (3, "b")] {
        let small = QueueState {
            unit_bytes: 1000,
            started_any: false,
            ..queue(user, 1)
        };
        world.set_queue(&key(job, "s", "d"), small);
    }
    let next: Vec<u128> = [world.advance(), world.advance(), world.advance()]
        .concat()
        .iter()
        .map(|grant| grant.queue.job)
        .collect();
    assert!(next.contains(&2) && next.contains(&3), "{next:?}");
}

#[test]
fn jobs_of_a_user_take_turns() {
    let mut world = World::new(Scheduler::default(), 1.0);
    world.scheduler.set_agent("one", agent("h", 1));
    for job in 1..=3 {
        world.set_queue(&key(job, "s", "d"), queue("a", 1000));
    }
    let turns: Vec<u128> = (0..9)
        .flat_map(|_| world.advance())
        .map(|grant| grant.queue.job)
        .collect();
    assert_eq!(turns, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
}

#[test]
fn a_flood_of_small_jobs_gets_no_more_than_its_share() {
    let mut world = World::new(Scheduler::default(), 1.0);
    world.scheduler.set_agent("one", agent("h", 10));
    world.set_queue(&key(1, "s", "d"), queue("b", 1_000_000));
    for job in 10..310 {
        let first = QueueState {
            started_any: false,
            ..queue("a", 1)
        };
        world.set_queue(&key(job, "s", "d"), first);
    }
    world.run_until(30.0);
    let share = ratio(&world, "a", "b");
    assert!((0.9..1.1).contains(&share), "{share}");
}

#[test]
fn scavengers_take_nothing_from_others() {
    let run = |scavengers: bool| {
        let mut world = World::new(Scheduler::new(configured(&[("d", sessions(4))])), 1.0);
        world.scheduler.set_agent("one", agent("h", 8));
        world.set_queue(&key(1, "s", "d"), queue("a", 100_000));
        if scavengers {
            for (job, destination) in [(2, "d"), (3, "e")] {
                let state = of_class(Class::Scavenger, queue("b", 100_000));
                world.set_queue(&key(job, "s", destination), state);
            }
        }
        world.run_until(500.0);
        world.done
    };
    let (alone, beside) = (run(false), run(true));
    assert_eq!(alone["a"], beside["a"]);
    // What others cannot use is used: four slots at another endpoint.
    assert!(beside["b"] * 10 >= beside["a"] * 9, "{beside:?}");
}

#[test]
fn urgent_jobs_weigh_twice_and_near_deadlines_up_to_four_times() {
    let mut world = World::new(Scheduler::default(), 1.0);
    world.scheduler.set_agent("one", agent("h", 4));
    world.set_queue(&key(1, "s", "d"), queue("a", 100_000));
    let urgent = of_class(Class::Urgent, queue("b", 100_000));
    world.set_queue(&key(2, "s", "d"), urgent);
    let late = QueueState {
        deadline: Some(seconds(1.0)),
        ..queue("c", 100_000)
    };
    world.set_queue(&key(3, "s", "d"), late);
    world.run_until(1000.0);
    assert!((ratio(&world, "b", "a") / 2.0 - 1.0).abs() < 0.05);
    assert!((ratio(&world, "c", "a") / 4.0 - 1.0).abs() < 0.05);
}

#[test]
fn the_last_priority_waits_no_longer_than_its_weight_says() {
    let mut world = World::new(Scheduler::default(), 1.0);
    world.scheduler.set_agent("one", agent("h", 1));
    for (job, priority) in [(1, 5), (2, 5), (3, 1)] {
        let state = QueueState {
            priority,
            ..queue("a", 100_000)
        };
        world.set_queue(&key(job, "s", "d"), state);
    }
    let mut wait = 0;
    for _ in 0..1000 {
        for grant in world.advance() {
            wait = if grant.queue.job == 3 { 0 } else { wait + 1 };
            // Of 33 units one is its own.
            assert!(wait <= 34);
        }
    }
}

#[test]
fn a_job_that_waited_half_an_hour_has_its_turn() {
    let mut world = World::new(Scheduler::default(), 100.0);
    world.scheduler.set_agent("one", agent("h", 1));
    for job in 1..=10 {
        let state = QueueState {
            priority: 5,
            ..queue("a", 100_000)
        };
        world.set_queue(&key(job, "s", "d"), state);
    }
    let last = QueueState {
        priority: 1,
        ..queue("a", 100_000)
    };
    world.set_queue(&key(99, "s", "d"), last);
    // By its weight it would have one unit of 161, or one in four hours and a half.
    let mut latest = seconds(0.0);
    while world.now < seconds(40_000.0) {
        let now = world.now;
        if world.advance().iter().any(|grant| grant.queue.job == 99) {
            latest = now;
        }
        let waited = (now - latest).as_secs_f64();
        assert!(waited < 1800.0 + 12.0 * 110.0, "{waited}");
    }
}
