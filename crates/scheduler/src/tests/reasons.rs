//! Why a queue waits, in codes and in words.

use super::world::{agent, configured, key, queue, seconds, sessions};
use crate::{
    Config, EndpointConfig, EndpointState, Hold, Limits, QueueState, Scheduler, ShareConfig,
};

/// Two users' queues to `d`, after a step with so many slots.
fn waiting(config: Config, slots: u32) -> Scheduler {
    let mut scheduler = Scheduler::new(config);
    scheduler.set_agent("one", agent("h", slots));
    scheduler.set_queue(&key(1, "s", "d"), queue("o/a", 100));
    scheduler.set_queue(&key(2, "s", "d"), queue("o/b", 100));
    scheduler.step(seconds(0.0));
    scheduler
}

fn told(scheduler: &Scheduler, job: u128) -> String {
    let why = scheduler.why(&key(job, "s", "d"));
    format!("{}: {}", why[0].code(), why[0])
}

#[test]
fn who_holds_an_endpoint_is_said() {
    let scheduler = waiting(configured(&[("d", sessions(5))]), 99);
    assert_eq!(
        told(&scheduler, 2),
        "endpoint_limit: endpoint d: 5 of 5 sessions; you have 2, your share is 3; o/a has 3"
    );
}

#[test]
fn closed_and_silent_endpoints_are_named() {
    for (state, text) in [
        (
            EndpointState::Banned,
            "banned: endpoint d was closed by an operator",
        ),
        (
            EndpointState::Draining,
            "banned: endpoint d is draining: nothing new starts",
        ),
        (
            EndpointState::Down,
            "endpoint_down: endpoint d does not answer; one unit at a time tries it",
        ),
    ] {
        let endpoint = EndpointConfig {
            state,
            limits: Limits::default(),
        };
        let scheduler = waiting(configured(&[("d", endpoint)]), 9);
        assert_eq!(told(&scheduler, 2), text);
    }
}

#[test]
fn an_endpoint_that_is_down_is_tried_by_one_unit_at_a_time() {
    let endpoint = EndpointConfig {
        state: EndpointState::Down,
        limits: Limits::default(),
    };
    let mut scheduler = Scheduler::new(configured(&[("d", endpoint)]));
    scheduler.set_agent("one", agent("h", 9));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    let grants = scheduler.step(seconds(0.0));
    assert_eq!(grants.len(), 1);
    scheduler.lease_ended(grants[0].lease, 0, 0, seconds(5.0));
    assert_eq!(scheduler.step(seconds(5.0)).len(), 1);
}

#[test]
fn rates_are_kept_as_a_mean_and_say_when_the_next_unit_starts() {
    let endpoint = EndpointConfig {
        limits: Limits {
            bytes_per_second: Some(1 << 27),
            ..Limits::default()
        },
        ..EndpointConfig::default()
    };
    let mut scheduler = waiting(configured(&[("d", endpoint)]), 999);
    assert_eq!(
        told(&scheduler, 2),
        "endpoint_limit: endpoint d: 134217728 bytes a second are used up; the next unit starts \
         in 7 s"
    );
    let mut units = 1;
    for second in 1..=1000 {
        units += scheduler.step(seconds(f64::from(second))).len();
    }
    // Eight seconds a unit.
    assert!((125..=127).contains(&units), "{units}");
}

#[test]
fn limits_of_a_share_are_a_quota() {
    let mut config = Config::default();
    let limit = ShareConfig {
        units: Some(3),
        ..ShareConfig::default()
    };
    config.shares.insert("o".to_owned(), limit);
    let scheduler = waiting(config, 99);
    assert_eq!(
        told(&scheduler, 1),
        "quota: share o: 3 of 3 units at a time are in use"
    );
}

#[test]
fn queues_that_are_held_say_so() {
    let mut scheduler = waiting(Config::default(), 999);
    let mut hold = |change: &dyn Fn(&mut QueueState)| {
        let mut state = queue("o/a", 5);
        change(&mut state);
        scheduler.set_queue(&key(1, "s", "d"), state);
        told(&scheduler, 1)
    };
    assert_eq!(
        hold(&|state| state.hold = Some(Hold::Paused)),
        "paused: paused by the user or an operator"
    );
    assert_eq!(
        hold(&|state| state.not_before = Some(seconds(30.0))),
        "retry_at: a failed file is tried again in 30 s"
    );
    assert_eq!(
        hold(&|_| {}),
        "scheduling: its turn comes with the next step"
    );
}

#[test]
fn labels_and_patterns_that_no_agent_has_are_named() {
    let mut scheduler = Scheduler::default();
    let mut state = agent("h", 9);
    state.endpoints = vec!["gsiftp://*.org".to_owned(), "file://*".to_owned()];
    scheduler.set_agent("one", state);
    let far = key(1, "gsiftp://a.org", "gsiftp://b.com");
    scheduler.set_queue(&far, queue("a", 1));
    let near = key(1, "gsiftp://a.org", "file://b");
    let labels = vec!["tape".to_owned()];
    scheduler.set_queue(
        &near,
        QueueState {
            labels,
            ..queue("a", 1)
        },
    );
    assert_eq!(scheduler.step(seconds(0.0)), []);
    assert_eq!(
        scheduler.why(&far)[0].to_string(),
        "no agent that is alive reaches gsiftp://a.org -> gsiftp://b.com"
    );
    assert_eq!(
        scheduler.why(&near)[0].to_string(),
        "no agent that is alive reaches gsiftp://a.org -> file://b and has the labels tape"
    );
}

#[test]
fn refused_sessions_become_a_limit_that_is_tried_again_later() {
    let mut scheduler = Scheduler::default();
    scheduler.set_agent("one", agent("h", 99));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 1));
    scheduler.step(seconds(0.0));
    scheduler.session_refused(&"d".into(), 2, seconds(1.0));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    assert_eq!(scheduler.step(seconds(1.0)).len(), 1);
    assert_eq!(scheduler.step(seconds(299.0)).len(), 0);
    assert_eq!(scheduler.step(seconds(302.0)).len(), 1);
}
