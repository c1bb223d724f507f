//! One tuned sum for all, at a bottleneck, beside transfers that each tune themselves.
//!
//! The path is the model of `godwit-tune`: windows add up until the path is full; beyond, more
//! connections lose more segments, and short windows end in timeouts.

use std::collections::BTreeMap;

use godwit_tune::{
    Bounds, Method, Setting,
    model::{
        Condition, Load,
        arena::{Entrant, run_together},
    },
};

use super::world::{GIB, agent, jain, key, queue, seconds};
use crate::{LeaseId, LeaseReport, QueueState, Scheduler, Share};

/// Most channels of a transfer that tunes itself.
const EACH_MAX: u32 = 64;

/// Bytes of a unit, which is one file: the second of the clock in which it ends is little of its
/// time.
const UNIT: u64 = 32 * GIB;

/// A long path, which a few dozen windows fill and which bears many more.
fn wide() -> Condition {
    Condition::path(10e9, 0.05, 2e6)
}

/// A short path: as few channels fill it, and a hundred more cost goodput.
fn narrow() -> Condition {
    Condition {
        shallow: 0.1,
        ..Condition::path(1e9, 0.01, 86_000.0)
    }
}

/// Bytes a second of so many channels together.
fn goodput(path: &Condition, channels: u32) -> f64 {
    let steady = path.steady(Setting::new(1, channels), &Load::default(), 0);
    steady.goodput_bps / 8.0
}

fn best(path: &Condition) -> f64 {
    (1..512)
        .map(|channels| goodput(path, channels))
        .fold(0.0, f64::max)
}

struct Running {
    job: u128,
    share: Share,
    left: f64,
}

/// Two jobs of each user by so many agents: mean goodput, and bytes of each job, from minute 5 to
/// the end of half an hour.
fn tuned_together(path: &Condition, users: u128, agents: u32) -> (f64, BTreeMap<u128, f64>) {
    let mut scheduler = Scheduler::default();
    let jobs = 2 * users;
    for name in 0..agents {
        let slots = u32::try_from(jobs).unwrap().div_ceil(agents);
        scheduler.set_agent(&format!("agent{name}"), agent("h", slots));
    }
    for job in 0..jobs {
        let state = QueueState {
            unit_bytes: UNIT,
            ..queue(&format!("u{}", job / 2), 1_000_000)
        };
        scheduler.set_queue(&key(job, "s", "d"), state);
    }
    let mut running: BTreeMap<LeaseId, Running> = BTreeMap::new();
    let mut bytes: BTreeMap<u128, f64> = BTreeMap::new();
    for second in 0..1800_u32 {
        let now = seconds(f64::from(second));
        for grant in scheduler.step(now) {
            #[allow(clippy::cast_precision_loss)]
            let left = UNIT as f64;
            let (job, share) = (grant.queue.job, grant.share);
            running.insert(grant.lease, Running { job, share, left });
        }
        for (lease, share) in scheduler.shares(now) {
            running.get_mut(&lease).unwrap().share = share;
        }
        let channels: u32 = running.values().map(|unit| unit.share.channels()).sum();
        let each = goodput(path, channels) / f64::from(channels);
        let mut ended = Vec::new();
        for (lease, unit) in &mut running {
            let moved = (each * f64::from(unit.share.channels())).min(unit.left);
            unit.left -= moved;
            if second >= 300 {
                *bytes.entry(unit.job).or_default() += moved;
            }
            if unit.left <= 0.0 {
                ended.push(*lease);
            } else if second % 3 == 0 {
                let report = LeaseReport {
                    goodput: moved,
                    setting: unit.share,
                    limited_by: None,
                };
                scheduler.lease_report(*lease, report, now + seconds(1.0));
            }
        }
        for lease in ended {
            running.remove(&lease);
            scheduler.lease_ended(lease, UNIT, 1, now + seconds(1.0));
        }
    }
    (bytes.values().sum::<f64>() / 1500.0, bytes)
}

/// As many transfers with a tuner of this name each: mean goodput and channels of all in the last
/// quarter of two minutes.
#[allow(clippy::cast_precision_loss)]
fn each_for_itself(path: &Condition, transfers: u32, tuner: &str) -> (f64, f64) {
    let path = Condition {
        seconds: 120.0,
        ..path.clone()
    };
    let method = Method::parse(tuner).unwrap();
    let entrant = |at| Entrant {
        tuner: method.build(None, Bounds::up_to(EACH_MAX), u64::from(at)),
        epoch_s: method.epoch_seconds(),
        from_s: f64::from(at),
    };
    let tracks = run_together((0..transfers).map(entrant).collect(), &path, 1);
    let last = tracks[0].channels.len() * 3 / 4;
    let steps = (tracks[0].channels.len() - last) as f64;
    let bits: f64 = tracks
        .iter()
        .flat_map(|track| &track.goodput_bps[last..])
        .sum();
    let channels = tracks.iter().flat_map(|track| &track.channels[last..]);
    let channels: f64 = channels.map(|channels| f64::from(*channels)).sum();
    (bits / 8.0 / steps, channels / steps)
}

#[test]
fn a_tuned_sum_is_near_the_best_static_one_and_fair() {
    for (name, path, users, agents) in [
        ("wide", wide(), 5, 1),
        ("wide", wide(), 3, 2),
        ("narrow", narrow(), 3, 2),
    ] {
        let (together, bytes) = tuned_together(&path, users, agents);
        let part = together / best(&path);
        let index = jain(bytes.values().copied());
        println!("{name}: {users} users, {agents} agents: {part:.4} of the best, Jain {index:.4}");
        let mut most = 0.0_f64;
        for tuner in ["godwit", "cs", "falcon"] {
            let jobs = u32::try_from(2 * users).unwrap();
            let (alone, channels) = each_for_itself(&path, jobs, tuner);
            let alone = alone / best(&path);
            println!("  {tuner} each for itself: {alone:.4}, {channels:.0} channels");
            most = most.max(alone);
        }
        assert!(part >= 0.98, "{name}: {part}");
        assert!(index >= 0.95, "{name}: {index}");
        // Where too many channels cost goodput, transfers that each tune themselves pay for it.
        assert!(name == "wide" || part > most, "{name}: {part} {most}");
    }
}
