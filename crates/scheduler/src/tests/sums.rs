//! One tuned sum for all, at a bottleneck.

use std::collections::BTreeMap;

use super::world::{GIB, agent, jain, key, queue, seconds};
use crate::{LeaseId, LeaseReport, QueueState, Scheduler, Share};

/// Bytes a second that a channel's window allows.
const CHANNEL: f64 = 3e7;
/// Bytes a second of the path.
const PATH: f64 = 1.25e9;
const USERS: u128 = 10;

/// All channels together: as much as their windows allow, and less when they crowd the path.
fn goodput(channels: u32) -> f64 {
    let wanted = f64::from(channels) * CHANNEL;
    let beyond = (wanted / PATH - 1.0).max(0.0);
    wanted.min(PATH) / (1.0 + 0.05 * beyond)
}

fn best() -> f64 {
    (1..512).map(goodput).fold(0.0, f64::max)
}

struct Running {
    user: u128,
    share: Share,
    left: f64,
}

/// Mean goodput and bytes of each user, from minute 5 to the end of an hour.
fn tuned_together() -> (f64, BTreeMap<u128, f64>) {
    let mut scheduler = Scheduler::default();
    scheduler.set_agent("one", agent("h", 10));
    for user in 0..USERS {
        let state = QueueState {
            unit_bytes: 4 * GIB,
            unit_files: 1000,
            ..queue(&format!("u{user}"), 1_000_000)
        };
        scheduler.set_queue(&key(user, "s", "d"), state);
    }
    let mut running: BTreeMap<LeaseId, Running> = BTreeMap::new();
    let mut bytes: BTreeMap<u128, f64> = BTreeMap::new();
    for second in 0..3600_u32 {
        let now = seconds(f64::from(second));
        for grant in scheduler.step(now) {
            #[allow(clippy::cast_precision_loss)]
            let left = (4 * GIB) as f64;
            let (user, share) = (grant.queue.job, grant.share);
            running.insert(grant.lease, Running { user, share, left });
        }
        for (lease, share) in scheduler.shares(now) {
            running.get_mut(&lease).unwrap().share = share;
        }
        let channels: u32 = running.values().map(|unit| unit.share.channels()).sum();
        let each = goodput(channels) / f64::from(channels);
        let mut ended = Vec::new();
        for (lease, unit) in &mut running {
            let moved = (each * f64::from(unit.share.channels())).min(unit.left);
            unit.left -= moved;
            if second >= 300 {
                *bytes.entry(unit.user).or_default() += moved;
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
            scheduler.lease_ended(lease, 4 * GIB, 1000, now + seconds(1.0));
        }
    }
    (bytes.values().sum::<f64>() / 3300.0, bytes)
}

#[test]
fn one_tuned_sum_comes_near_the_best_static_one_and_divides_it_fairly() {
    let (together, bytes) = tuned_together();
    let index = jain(bytes.values().copied());
    assert!(together >= 0.97 * best(), "{}", together / best());
    assert!(index >= 0.95, "{index}");
}
