//! How long a step takes. Run it with
//! `cargo test --release -p godwit-scheduler speed -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use godwit_tune::random::Random;

use super::world::{World, agent, configured, key, queue, sessions};
use crate::{QueueState, Scheduler};

const ENDPOINTS: u64 = 100;

/// 1,000 users and 1,000 agents of eight slots each, and so many queues.
fn measure(queues: u64, sessions_each: u32) {
    let endpoints: Vec<String> = (0..ENDPOINTS)
        .map(|at| format!("gsiftp://e{at}.org"))
        .collect();
    let limits: Vec<_> = endpoints
        .iter()
        .map(|name| (&**name, sessions(sessions_each)))
        .collect();
    let mut random = Random::new(1);
    let mut world = World::new(Scheduler::new(configured(&limits)), 60.0);
    for at in 0..1000 {
        let mut state = agent(&format!("h{}", at / 2), 8);
        state.endpoints = vec![format!("gsiftp://e*{}.org", at % 10), "*".to_owned()];
        world.scheduler.set_agent(&format!("agent{at}"), state);
    }
    let begin = Instant::now();
    for job in 0..queues {
        let ends = [random.next_u64(), random.next_u64()];
        let ends = ends.map(|at| &*endpoints[usize::try_from(at % ENDPOINTS).unwrap()]);
        let state = QueueState {
            started_any: job % 3 > 0,
            ..queue(&format!("o/g{}/u{}", job % 10, job % 1000), 1_000_000)
        };
        world.set_queue(&key(u128::from(job), ends[0], ends[1]), state);
    }
    println!("{queues} queues, {sessions_each} sessions an endpoint");
    println!("  set queues: {:?}", begin.elapsed());
    let begin = Instant::now();
    let grants = world.scheduler.step(world.now);
    println!(
        "  first step: {:?}, {} grants",
        begin.elapsed(),
        grants.len()
    );
    let mut leases: Vec<_> = grants.into_iter().map(|grant| grant.lease).collect();
    let (mut busy, mut idle, mut granted) = (Vec::new(), Vec::new(), 0);
    for _ in 0..1000 {
        // A hundred units end in each quarter of a second.
        for _ in 0..100.min(leases.len()) {
            let at = usize::try_from(random.next_u64() >> 1).unwrap() % leases.len();
            let lease = leases.swap_remove(at);
            world.scheduler.lease_ended(lease, 1 << 30, 1, world.now);
        }
        let begin = Instant::now();
        let grants = world.scheduler.step(world.now);
        busy.push(begin.elapsed());
        granted += grants.len();
        leases.extend(grants.into_iter().map(|grant| grant.lease));
        world.now += Duration::from_millis(250);
        let begin = Instant::now();
        assert!(world.scheduler.step(world.now).is_empty());
        idle.push(begin.elapsed());
    }
    println!("  {granted} grants");
    for (name, mut times) in [("step", busy), ("step without changes", idle)] {
        times.sort();
        println!(
            "  {name}: p50 {:?}, p99 {:?}, max {:?}",
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            times[times.len() - 1]
        );
    }
    let begin = Instant::now();
    let changes = world.scheduler.shares(world.now).len();
    println!("  shares: {:?}, {changes} changes", begin.elapsed());
}

#[test]
#[ignore = "measures; asserts nothing about time"]
fn a_step_of_ten_thousand_jobs() {
    // Slots are short; then endpoints are.
    measure(10_000, 200);
    measure(10_000, 100);
}

#[test]
#[ignore = "measures; asserts nothing about time"]
fn a_step_of_a_hundred_thousand_queues() {
    measure(100_000, 200);
    measure(100_000, 100);
}
