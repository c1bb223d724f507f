//! What a first caller relies on.

use std::{sync::Arc, time::Duration};

use crate::{AgentState, LeaseReport, QueueKey, QueueState, Scheduler, Share};

fn key(job: u128) -> QueueKey {
    QueueKey {
        job,
        source: Arc::from("gsiftp://a"),
        destination: Arc::from("gsiftp://b"),
    }
}

fn agent(slots: u32) -> AgentState {
    AgentState {
        host: "h".to_owned(),
        endpoints: vec!["gsiftp://*".to_owned()],
        slots,
        free: slots,
        ..AgentState::default()
    }
}

fn queue(share: &str, ready: u32) -> QueueState {
    QueueState {
        ready,
        unit_bytes: 1 << 30,
        unit_files: 1,
        ready_bytes: u64::from(ready) << 30,
        ready_files: u64::from(ready),
        share: share.to_owned(),
        priority: 3,
        ..QueueState::default()
    }
}

#[test]
fn units_go_to_free_slots_until_none_is_left() {
    let mut scheduler = Scheduler::default();
    scheduler.set_agent("one", agent(3));
    scheduler.set_queue(&key(1), queue("alice", 10));
    let grants = scheduler.step(Duration::ZERO);
    assert_eq!(grants.len(), 3);
    assert_eq!(grants[0].agent, "one");
    assert_eq!(grants[0].queue, key(1));
    assert_eq!(scheduler.step(Duration::from_secs(9)), []);
    let why: Vec<&str> = scheduler.why(&key(1)).iter().map(|r| r.code()).collect();
    assert_eq!(why, ["agents_busy", "share_used"]);
    scheduler.lease_ended(grants[0].lease, 1 << 30, 1, Duration::from_secs(9));
    assert_eq!(scheduler.step(Duration::from_secs(9)).len(), 1);
}

#[test]
fn reports_say_what_holds_running_units_back() {
    let mut scheduler = Scheduler::default();
    scheduler.set_agent("one", agent(3));
    scheduler.set_queue(&key(1), queue("alice", 1));
    let grants = scheduler.step(Duration::ZERO);
    let report = LeaseReport {
        goodput: 1e6,
        setting: Share {
            concurrency: 1,
            parallelism: 2,
        },
        limited_by: Some("destination".to_owned()),
    };
    scheduler.lease_report(grants[0].lease, report, Duration::from_secs(1));
    let why = scheduler.why(&key(1));
    assert_eq!(
        why[0].to_string(),
        "1 of 1 running unit is limited by destination"
    );
}

#[test]
fn of_several_patterns_one_is_enough() {
    let patterns = "gsiftp://*,davs://*.org:443";
    for (endpoint, is_meant) in [
        ("gsiftp://a", true),
        ("davs://b.org", true),
        ("davs://b.org:8443", false),
        ("ftp://a", false),
        ("gsiftp://a,davs://b.org", true),
    ] {
        assert_eq!(crate::matches(patterns, endpoint), is_meant, "{endpoint}");
    }
}
