//! What hosts, endpoints and links take.

use super::world::{agent, configured, key, of_class, queue, seconds, sessions};
use crate::{Class, Config, EndpointConfig, Limits, QueueState, Scheduler};

fn told(scheduler: &Scheduler, job: u128, source: &str, destination: &str) -> String {
    let why = scheduler.why(&key(job, source, destination));
    format!("{}: {}", why[0].code(), why[0])
}

fn link(config: &mut Config, sessions: u32) {
    let limits = Limits {
        sessions: Some(sessions),
        ..Limits::default()
    };
    config.links.insert(("s".into(), "d".into()), limits);
}

#[test]
fn agents_of_a_host_share_its_budget() {
    let mut config = Config::default();
    config.hosts.insert("h".to_owned(), 2);
    let mut scheduler = Scheduler::new(config);
    for name in ["one", "two"] {
        scheduler.set_agent(name, agent("h", 5));
    }
    scheduler.set_agent("three", agent("g", 1));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    let grants = scheduler.step(seconds(0.0));
    assert_eq!(grants.len(), 3);
    assert_eq!(
        told(&scheduler, 1, "s", "d"),
        "agents_busy: 3 agents reach both ends; none has a free slot"
    );
    let of_host = grants.iter().find(|grant| grant.agent != "three").unwrap();
    scheduler.lease_ended(of_host.lease, 1, 1, seconds(1.0));
    let next = scheduler.step(seconds(1.0));
    assert_eq!(next.len(), 1);
    assert_ne!(next[0].agent, "three");
    // An agent that comes back has what it runs counted.
    scheduler.remove_agent("one");
    scheduler.set_agent("one", agent("h", 5));
    assert_eq!(scheduler.step(seconds(2.0)), []);
}

#[test]
fn a_host_limit_that_rises_lets_units_start() {
    let mut config = Config::default();
    config.hosts.insert("h".to_owned(), 1);
    let mut scheduler = Scheduler::new(config.clone());
    scheduler.set_agent("one", agent("h", 5));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    assert_eq!(scheduler.step(seconds(0.0)).len(), 1);
    config.hosts.insert("h".to_owned(), 4);
    scheduler.configure(config);
    assert_eq!(scheduler.step(seconds(0.0)).len(), 3);
}

#[test]
fn files_a_second_are_kept_as_a_mean() {
    let limits = Limits {
        files_per_second: Some(10),
        ..Limits::default()
    };
    let endpoint = EndpointConfig {
        limits,
        ..EndpointConfig::default()
    };
    let mut scheduler = Scheduler::new(configured(&[("d", endpoint)]));
    scheduler.set_agent("one", agent("h", 9999));
    let state = QueueState {
        unit_files: 100,
        unit_bytes: 1,
        ..queue("a", 9999)
    };
    scheduler.set_queue(&key(1, "s", "d"), state);
    let mut started = |second: u32| -> u32 {
        let grants = scheduler.step(seconds(f64::from(second)));
        grants.iter().map(|grant| grant.files).sum()
    };
    let mut files = started(0);
    for second in 1..=1000 {
        files += started(second);
    }
    assert!((10_000..=10_020).contains(&files), "{files}");
    let why = told(&scheduler, 1, "s", "d");
    let expected = "endpoint_limit: endpoint d: 10 files a second are used up";
    assert!(why.starts_with(expected), "{why}");
}

#[test]
fn a_link_has_limits_of_its_own() {
    let mut config = Config::default();
    link(&mut config, 2);
    let mut scheduler = Scheduler::new(config);
    scheduler.set_agent("one", agent("h", 9));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    scheduler.set_queue(&key(2, "s", "d"), queue("b", 100));
    scheduler.set_queue(&key(3, "t", "d"), queue("c", 4));
    let grants = scheduler.step(seconds(0.0));
    assert_eq!(grants.len(), 6);
    assert_eq!(
        told(&scheduler, 1, "s", "d"),
        "link_limit: link s -> d: 2 of 2 sessions; you have 1, your share is 1; b has 1"
    );
    let own = grants.iter().find(|grant| grant.queue.job == 1).unwrap();
    scheduler.lease_ended(own.lease, 1, 1, seconds(1.0));
    assert_eq!(scheduler.step(seconds(1.0)).len(), 1);
}

#[test]
fn a_learned_limit_keeps_what_runs_and_nothing_more() {
    let mut scheduler = Scheduler::new(configured(&[("d", sessions(9))]));
    scheduler.set_agent("one", agent("h", 99));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 4));
    let grants = scheduler.step(seconds(0.0));
    scheduler.session_refused(&"d".into(), 2, seconds(0.0));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    assert_eq!(scheduler.step(seconds(1.0)), []);
    let text = "endpoint_limit: endpoint d: 4 of 2 sessions; you have 4, your share is 2";
    assert_eq!(told(&scheduler, 1, "s", "d"), text);
    for grant in &grants[..3] {
        scheduler.lease_ended(grant.lease, 1, 1, seconds(2.0));
    }
    assert_eq!(scheduler.step(seconds(2.0)).len(), 1);
}

/// Three units run on each of the links; then there is more to do on the first.
fn full(links: &[(u128, &str)]) -> Scheduler {
    let mut config = Config::default();
    config.tuning.channels_max = 4;
    let mut scheduler = Scheduler::new(config);
    scheduler.set_agent("one", agent("h", 99));
    for (job, source) in links {
        scheduler.set_queue(&key(*job, source, "d"), queue("a", 6));
    }
    scheduler.step(seconds(0.0));
    scheduler.shares(seconds(1.0));
    let (job, source) = links[0];
    scheduler.set_queue(&key(job, source, "d"), queue("a", 100));
    assert_eq!(scheduler.step(seconds(1.0)), []);
    scheduler
}

#[test]
fn a_full_path_names_the_link_or_the_endpoint_whose_sum_binds() {
    let alone = told(&full(&[(1, "s")]), 1, "s", "d");
    assert!(
        alone.starts_with("link_limit: link s -> d: 6 units run with "),
        "{alone}"
    );
    let shared = told(&full(&[(1, "s"), (2, "t")]), 1, "s", "d");
    assert!(
        shared.starts_with("endpoint_limit: endpoint d: 12 units run with "),
        "{shared}"
    );
}

#[test]
fn a_scavenger_that_others_keep_from_starting_says_so() {
    let mut config = Config::default();
    link(&mut config, 1);
    let mut scheduler = Scheduler::new(config);
    scheduler.set_agent("one", agent("h", 9));
    scheduler.set_queue(&key(1, "s", "d"), queue("a", 100));
    let scavenger = of_class(Class::Scavenger, queue("b", 100));
    scheduler.set_queue(&key(2, "s", "e"), scavenger);
    assert_eq!(scheduler.step(seconds(0.0)).len(), 1);
    assert_eq!(
        told(&scheduler, 2, "s", "e"),
        "share_used: class scavenger takes only what others leave"
    );
    // It starts where no other queue waits.
    scheduler.remove_queue(&key(1, "s", "d"));
    assert_eq!(scheduler.step(seconds(1.0)).len(), 8);
}
