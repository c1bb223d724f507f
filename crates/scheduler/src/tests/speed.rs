//! How long a step takes. Run it with
//! `cargo test --release -p godwit-scheduler speed -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use godwit_tune::random::Random;

use super::world::{World, agent, configured, key, queue, sessions};
use crate::{QueueState, Scheduler};

#[test]
#[ignore = "measures; asserts nothing about time"]
fn a_step_of_ten_thousand_jobs() {
    let endpoints: Vec<String> = (0..100).map(|at| format!("gsiftp://e{at}.org")).collect();
    let limits: Vec<_> = endpoints
        .iter()
        .map(|name| (&**name, sessions(200)))
        .collect();
    let mut random = Random::new(1);
    let mut world = World::new(Scheduler::new(configured(&limits)), 60.0);
    for at in 0..1000 {
        let mut state = agent(&format!("h{}", at / 2), 8);
        state.endpoints = vec![format!("gsiftp://e*{}.org", at % 10), "*".to_owned()];
        world.scheduler.set_agent(&format!("agent{at}"), state);
    }
    let begin = Instant::now();
    for job in 0..10_000_u64 {
        let ends = [random.next_u64() % 100, random.next_u64() % 100];
        let ends = ends.map(|at| &*endpoints[usize::try_from(at).unwrap()]);
        let state = QueueState {
            started_any: job % 3 > 0,
            ..queue(&format!("o/g{}/u{}", job % 10, job % 1000), 1_000_000)
        };
        world.set_queue(&key(u128::from(job), ends[0], ends[1]), state);
    }
    println!("set 10,000 queues: {:?}", begin.elapsed());
    let (mut times, mut granted) = (Vec::new(), 0);
    for _ in 0..1000 {
        let begin = Instant::now();
        let grants = world.scheduler.step(world.now);
        times.push(begin.elapsed());
        granted += grants.len();
        for grant in grants {
            world.running.insert(grant.lease, (grant, 0));
        }
        // A hundred units end in each quarter of a second.
        let leases: Vec<_> = world.running.keys().copied().collect();
        for _ in 0..100 {
            let at = usize::try_from(random.next_u64()).unwrap_or(0) % leases.len();
            world.kill(leases[at]);
        }
        world.now += Duration::from_millis(250);
    }
    println!("first step, all slots free: {:?}", times[0]);
    times.remove(0);
    times.sort();
    println!(
        "step: median {:?}, p99 {:?}, most {:?}; {granted} grants",
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1]
    );
    let begin = Instant::now();
    let changes = world.scheduler.shares(world.now).len();
    println!("shares: {:?}, {changes} changes", begin.elapsed());
}
