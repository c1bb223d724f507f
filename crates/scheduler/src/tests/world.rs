//! A small world to try the scheduler in: queues that are always told, units that take time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    AgentState, Class, Config, EndpointConfig, Grant, LeaseId, Limits, QueueKey, QueueState,
    Scheduler,
};

pub(super) const GIB: u64 = 1 << 30;

pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

pub(super) fn key(job: u128, source: &str, destination: &str) -> QueueKey {
    QueueKey {
        job,
        source: Arc::from(source),
        destination: Arc::from(destination),
    }
}

pub(super) fn agent(host: &str, slots: u32) -> AgentState {
    AgentState {
        host: host.to_owned(),
        endpoints: vec!["*".to_owned()],
        slots,
        free: slots,
        ..AgentState::default()
    }
}

/// An endpoint that takes so many sessions.
pub(super) fn sessions(sessions: u32) -> EndpointConfig {
    EndpointConfig {
        limits: Limits {
            sessions: Some(sessions),
            ..Limits::default()
        },
        ..EndpointConfig::default()
    }
}

pub(super) fn configured(endpoints: &[(&str, EndpointConfig)]) -> Config {
    Config {
        endpoints: endpoints
            .iter()
            .map(|(name, config)| (Arc::from(*name), *config))
            .collect(),
        ..Config::default()
    }
}

/// So many units of a GiB.
pub(super) fn queue(share: &str, ready: u32) -> QueueState {
    QueueState {
        ready,
        unit_bytes: GIB,
        unit_files: 1,
        ready_bytes: u64::from(ready) * GIB,
        ready_files: u64::from(ready),
        share: share.to_owned(),
        priority: 3,
        started_any: true,
        ..QueueState::default()
    }
}

pub(super) fn of_class(class: Class, state: QueueState) -> QueueState {
    QueueState { class, ..state }
}

/// Units that run, and when they end.
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) now: Duration,
    ends: BTreeSet<(Duration, LeaseId)>,
    running: BTreeMap<LeaseId, (Grant, u64)>,
    /// Bytes that ended, by the share that pays.
    pub(super) done: BTreeMap<String, u64>,
    shares: BTreeMap<QueueKey, (String, u64)>,
    unit_seconds: f64,
    /// How often as long units from a source take.
    pub(super) slow: BTreeMap<&'static str, f64>,
}

impl World {
    /// In which a GiB takes so many seconds.
    pub(super) fn new(scheduler: Scheduler, unit_seconds: f64) -> Self {
        Self {
            scheduler,
            now: Duration::ZERO,
            ends: BTreeSet::new(),
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            shares: BTreeMap::new(),
            unit_seconds,
            slow: BTreeMap::new(),
        }
    }

    pub(super) fn set_queue(&mut self, key: &QueueKey, state: QueueState) {
        let known = (state.share.clone(), state.unit_bytes);
        self.shares.insert(key.clone(), known);
        self.scheduler.set_queue(key, state);
    }

    /// Starts what may start, then moves the clock to the next end of a unit.
    pub(super) fn advance(&mut self) -> Vec<Grant> {
        let grants = self.start();
        self.end();
        grants
    }

    pub(super) fn start(&mut self) -> Vec<Grant> {
        let grants = self.scheduler.step(self.now);
        for (place, grant) in grants.iter().enumerate() {
            let bytes = self.shares[&grant.queue].1;
            // Not all at the same moment.
            let spread = 1.0 + 0.1 * f64::from(u32::try_from(place % 10).unwrap());
            #[allow(clippy::cast_precision_loss)]
            let length = self.unit_seconds * spread * bytes as f64 / GIB as f64;
            let slow = self.slow.get(&*grant.queue.source).unwrap_or(&1.0);
            let length = length * slow;
            self.ends.insert((self.now + seconds(length), grant.lease));
            self.running.insert(grant.lease, (grant.clone(), bytes));
        }
        grants
    }

    pub(super) fn end(&mut self) {
        if let Some((at, lease)) = self.ends.pop_first() {
            self.now = self.now.max(at);
            if let Some((grant, bytes)) = self.running.remove(&lease) {
                let share = self.shares[&grant.queue].0.clone();
                *self.done.entry(share).or_default() += bytes;
                self.scheduler.lease_ended(lease, bytes, 1, self.now);
            }
        } else {
            self.now += seconds(1.0);
        }
    }

    pub(super) fn run_until(&mut self, until: f64) {
        while self.now < seconds(until) {
            self.advance();
        }
    }
}

/// 1 where all are equal, 1/n where one has everything (Jain 1984).
#[allow(clippy::cast_precision_loss)]
pub(super) fn jain(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let sum: f64 = values.clone().sum();
    let squares: f64 = values.clone().map(|value| value * value).sum();
    sum * sum / (values.count() as f64 * squares)
}
