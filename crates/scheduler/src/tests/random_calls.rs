//! Whatever is called in whatever order: budgets hold, nothing is idle for no reason, and nothing
//! leaks.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::{agent, configured, key, seconds};
use crate::{
    Class, Config, EndpointConfig, EndpointState, Grant, Hold, LeaseId, LeaseReport, Limits,
    QueueKey, QueueState, Reason, Scheduler, Share, ShareConfig,
};

#[derive(Clone, Debug)]
enum Call {
    Queue(u8, QueueState),
    NoQueue(u8),
    Agent(u8, u32, bool),
    NoAgent(u8),
    End(u8, u64),
    Report(u8, f64, u32, u32),
    Configure(u8, Option<u32>, Option<u32>, u8),
    Refused(u8),
    Wait(u16),
}

const ENDPOINTS: [&str; 4] = ["a", "b", "c", "d"];

fn key_of(number: u8) -> QueueKey {
    let job = u128::from(number % 12);
    let ends = [number % 4, (number / 4) % 4].map(|at| ENDPOINTS[usize::from(at)]);
    key(job, ends[0], ends[1])
}

fn state() -> impl Strategy<Value = QueueState> {
    let class = prop_oneof![
        Just(Class::Normal),
        Just(Class::Urgent),
        Just(Class::Scavenger)
    ];
    let hold = prop_oneof![6 => Just(None), 1 => Just(Some(Hold::Paused))];
    let numbers = (0..5_u32, 0..1_u64 << 33, 0..1000_u32, 0..8_u8, 0..6_u8);
    (numbers, class, hold, any::<bool>(), 0..300_u64).prop_map(
        |((ready, bytes, files, user, priority), class, hold, started_any, later)| QueueState {
            ready,
            unit_bytes: bytes,
            unit_files: files,
            ready_bytes: u64::from(ready) * bytes,
            ready_files: u64::from(ready) * u64::from(files),
            share: format!("g{}/u{user}", user % 3),
            class,
            priority,
            hold,
            not_before: (later > 200).then(|| std::time::Duration::from_secs(later)),
            deadline: (later < 50).then(|| std::time::Duration::from_secs(100 * later)),
            started_any,
            ..QueueState::default()
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let limit = || prop_oneof![Just(None), (0..6_u32).prop_map(Some)];
    prop_oneof![
        6 => (any::<u8>(), state()).prop_map(|(n, state)| Call::Queue(n, state)),
        1 => any::<u8>().prop_map(Call::NoQueue),
        2 => (0..4_u8, 0..6_u32, any::<bool>()).prop_map(|(n, s, d)| Call::Agent(n, s, d)),
        1 => (0..4_u8).prop_map(Call::NoAgent),
        5 => (any::<u8>(), 0..1_u64 << 34).prop_map(|(n, bytes)| Call::End(n, bytes)),
        3 => (any::<u8>(), -1.0..1e9, 0..9_u32, 0..9_u32)
            .prop_map(|(n, goodput, c, p)| Call::Report(n, goodput, c, p)),
        1 => (0..4_u8, limit(), limit(), 0..8_u8)
            .prop_map(|(n, s, c, state)| Call::Configure(n, s, c, state)),
        1 => any::<u8>().prop_map(Call::Refused),
        3 => (0..400_u16).prop_map(Call::Wait),
    ]
}

/// What the caller knows.
struct Caller {
    scheduler: Scheduler,
    config: Config,
    queues: BTreeSet<QueueKey>,
    agents: BTreeMap<String, (u32, bool)>,
    running: BTreeMap<LeaseId, Grant>,
    now: f64,
}

impl Caller {
    fn new() -> Self {
        let config = configured(&[]);
        Self {
            scheduler: Scheduler::new(config.clone()),
            config,
            queues: BTreeSet::new(),
            agents: BTreeMap::new(),
            running: BTreeMap::new(),
            now: 0.0,
        }
    }

    fn lease(&self, number: u8) -> Option<LeaseId> {
        let count = self.running.len().max(1);
        self.running
            .keys()
            .nth(usize::from(number) % count)
            .copied()
    }

    fn call(&mut self, call: &Call) {
        let now = seconds(self.now);
        match call {
            Call::Queue(number, state) => {
                self.queues.insert(key_of(*number));
                self.scheduler.set_queue(&key_of(*number), state.clone());
            }
            Call::NoQueue(number) => {
                self.queues.remove(&key_of(*number));
                self.scheduler.remove_queue(&key_of(*number));
            }
            Call::Agent(number, slots, draining) => {
                let name = format!("agent{number}");
                let mut state = agent("h", *slots);
                state.draining = *draining;
                self.scheduler.set_agent(&name, state);
                self.agents.insert(name, (*slots, *draining));
            }
            Call::NoAgent(number) => {
                let name = format!("agent{number}");
                self.scheduler.remove_agent(&name);
                self.agents.remove(&name);
                let lost = self.running.values().filter(|grant| grant.agent == name);
                let lost: Vec<LeaseId> = lost.map(|grant| grant.lease).collect();
                for lease in lost {
                    self.running.remove(&lease);
                    self.scheduler.lease_ended(lease, 0, 0, now);
                }
            }
            Call::End(number, bytes) => {
                if let Some(lease) = self.lease(*number) {
                    self.running.remove(&lease);
                    self.scheduler.lease_ended(lease, *bytes, 3, now);
                }
            }
            Call::Report(number, goodput, concurrency, parallelism) => {
                if let Some(lease) = self.lease(*number) {
                    // An agent does not use more than it was given.
                    let share = self.running[&lease].share;
                    let report = LeaseReport {
                        goodput: *goodput,
                        setting: Share {
                            concurrency: share.concurrency.min(*concurrency),
                            parallelism: share.parallelism.min(*parallelism),
                        },
                        limited_by: None,
                    };
                    self.scheduler.lease_report(lease, report, now);
                }
            }
            Call::Configure(number, sessions, channels, state) => {
                let endpoint = EndpointConfig {
                    state: match state {
                        0 => EndpointState::Down,
                        1 => EndpointState::Draining,
                        2 => EndpointState::Banned,
                        _ => EndpointState::Open,
                    },
                    limits: Limits {
                        sessions: *sessions,
                        channels: *channels,
                        ..Limits::default()
                    },
                };
                let name = ENDPOINTS[usize::from(*number)].into();
                self.config.endpoints.insert(name, endpoint);
                let share = ShareConfig {
                    units: sessions.map(|units| units + 1),
                    weight: f64::from(*state),
                    ..ShareConfig::default()
                };
                self.config.shares.insert("g1".to_owned(), share);
                self.scheduler.configure(self.config.clone());
            }
            Call::Refused(number) => {
                let name = ENDPOINTS[usize::from(number % 4)].into();
                self.scheduler.session_refused(&name, 3, now);
            }
            Call::Wait(tenths) => self.now += f64::from(*tenths) / 10.0,
        }
    }

    /// Sessions and channels that leases were given, at an endpoint.
    fn used(&self, endpoint: &str) -> (u32, u32) {
        let grants = self.running.values();
        let here = grants.filter(|grant| {
            *grant.queue.source == *endpoint || *grant.queue.destination == *endpoint
        });
        here.fold((0, 0), |(sessions, channels), grant| {
            (
                sessions + grant.share.concurrency,
                channels + grant.share.channels(),
            )
        })
    }

    fn step(&mut self) -> Vec<Grant> {
        let before: Vec<(u32, u32)> = ENDPOINTS.iter().map(|name| self.used(name)).collect();
        let now = seconds(self.now);
        for (lease, share) in self.scheduler.shares(now) {
            self.running.get_mut(&lease).unwrap().share = share;
        }
        let grants = self.scheduler.step(now);
        for grant in &grants {
            assert!(self.queues.contains(&grant.queue));
            self.running.insert(grant.lease, grant.clone());
        }
        for (name, before) in ENDPOINTS.iter().zip(before) {
            let limits = self
                .config
                .endpoints
                .get(*name)
                .copied()
                .unwrap_or_default();
            let (sessions, channels) = self.used(name);
            // A limit that was lowered below what runs is not passed any further.
            let most = |limit: Option<u32>, before| limit.unwrap_or(u32::MAX).max(before);
            assert!(sessions <= most(limits.limits.sessions, before.0));
            assert!(channels <= most(limits.limits.channels, before.1));
        }
        for (name, (slots, draining)) in &self.agents {
            let units = |grants: &mut dyn Iterator<Item = &Grant>| {
                u32::try_from(grants.filter(|grant| grant.agent == *name).count()).unwrap()
            };
            let new = units(&mut grants.iter());
            // One first unit of a job may run beyond the slots.
            assert!(new == 0 || units(&mut self.running.values()) <= *slots + 1 && !draining);
        }
        grants
    }

    /// A queue that is not held waits for something that it names.
    fn check_work_conserving(&self) {
        for queue in &self.queues {
            let why = self.scheduler.why(queue);
            assert!(!why.contains(&Reason::Scheduling), "{queue:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn budgets_hold_nothing_idles_and_nothing_leaks(
        calls in prop::collection::vec(call(), 1..120)
    ) {
        let mut caller = Caller::new();
        caller.call(&Call::Agent(0, 4, false));
        for call in &calls {
            caller.call(call);
            caller.step();
            caller.check_work_conserving();
        }
        // When all is over, nothing is left.
        for queue in caller.queues.clone() {
            caller.scheduler.remove_queue(&queue);
        }
        for lease in caller.running.keys() {
            caller.scheduler.lease_ended(*lease, 1, 1, seconds(caller.now));
        }
        caller.scheduler.configure(Config::default());
        caller.scheduler.step(seconds(caller.now + 1000.0));
        prop_assert_eq!(caller.scheduler.sizes(), [0; 7]);
    }

    #[test]
    fn equal_calls_give_equal_grants(calls in prop::collection::vec(call(), 1..60)) {
        let run = || {
            let mut caller = Caller::new();
            caller.call(&Call::Agent(0, 4, false));
            calls
                .iter()
                .map(|call| {
                    caller.call(call);
                    caller.step()
                })
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn telling_the_same_again_changes_nothing(calls in prop::collection::vec(call(), 1..60)) {
        let run = |times: usize| {
            let mut caller = Caller::new();
            caller.call(&Call::Agent(0, 4, false));
            calls
                .iter()
                .map(|call| {
                    let is_absolute = matches!(
                        call,
                        Call::Queue(..) | Call::NoQueue(_) | Call::Agent(..) | Call::Configure(..)
                    );
                    for _ in 0..if is_absolute { times } else { 1 } {
                        caller.call(call);
                    }
                    caller.step()
                })
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(run(1), run(3));
    }
}
