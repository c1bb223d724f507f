//! The scheduler's leases and queues beside those of the database.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_scheduler as scheduler;
use godwit_scheduler::{LeaseId, Scheduler};
use godwit_service_api::{
    agent::{Lease, Share},
    job::{Class, JobOptions},
    site::{EndpointState, Limits},
    why::{Why, WhyCode},
};
use jiff::Timestamp;
use uuid::Uuid;

use super::Board;
use crate::store::{
    Store, StoreError,
    model::{
        AgentRecord, GrantOrder, GrantedUnit, Held, JobFilter, Leadership, QueueKey, QueueRecord,
    },
};

/// Between two readings of what operators and users set.
const SETTINGS: Duration = Duration::from_secs(5);

/// Between two decisions about shares.
const SHARES: Duration = Duration::from_secs(1);

/// Jobs that are read at a time.
const JOBS_TOGETHER: usize = 500;

/// What the scheduler is told and what it said, for as long as one node leads.
pub(super) struct Books {
    scheduler: Scheduler,
    /// The time of the scheduler is that of the database, in steps of our monotonic clock.
    began: (Duration, Instant),
    leases: HashMap<Lease, Granted>,
    queues: HashMap<QueueKey, scheduler::QueueKey>,
    jobs: HashMap<Uuid, Facts>,
    agents: HashSet<String>,
    settings_read: Option<Instant>,
    shares_decided: Instant,
}

struct Granted {
    id: LeaseId,
    agent: String,
    bytes: u64,
    files: u32,
}

/// What is needed of a job.
struct Facts {
    options: JobOptions,
    created: Duration,
    started: bool,
}

impl Books {
    pub(super) async fn open(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            scheduler: Scheduler::new(scheduler::Config::default()),
            began: (since_1970(store.now().await?), Instant::now()),
            leases: HashMap::new(),
            queues: HashMap::new(),
            jobs: HashMap::new(),
            agents: HashSet::new(),
            settings_read: None,
            shares_decided: Instant::now(),
        })
    }

    fn now(&self) -> Duration {
        self.began.0 + self.began.1.elapsed()
    }

    /// Reads what there is, and hands out what is free.
    pub(super) async fn look(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
    ) -> Result<(), StoreError> {
        if self.settings_read.is_none_or(|at| at.elapsed() >= SETTINGS) {
            self.configure(store).await?;
            // Priorities and deadlines may have changed.
            self.jobs.clear();
            self.settings_read = Some(Instant::now());
        }
        let agents = store.agents().await?;
        self.agents_are(&agents, board);
        let queues = store.queues().await?;
        let leased = store.leased().await?;
        let links: BTreeMap<QueueKey, &QueueRecord> =
            queues.iter().map(|queue| (queue.key, queue)).collect();
        self.learn_jobs(store, queues.iter().map(|queue| queue.job))
            .await?;
        for (key, record) in &links {
            self.queue_is(*key, record);
        }
        let gone: Vec<_> = (self.queues.keys().filter(|key| !links.contains_key(key)))
            .copied()
            .collect();
        for key in gone {
            if let Some(key) = self.queues.remove(&key) {
                self.scheduler.remove_queue(&key);
            }
        }
        self.leases_are(store, board, &leased).await?;
        let now = self.now();
        for report in board.reports_since(self.shares_decided) {
            if let Some(running) = self.leases.get(&report.lease) {
                let report = scheduler::LeaseReport {
                    goodput: report.goodput,
                    setting: of_api(report.setting),
                    limited_by: report.limited_by,
                };
                self.scheduler.lease_report(running.id, report, now);
            }
        }
        self.hand_out(store, board, leader, &agents).await?;
        if self.shares_decided.elapsed() >= SHARES {
            self.shares_decided = Instant::now();
            self.decide_shares(board);
        }
        self.explain(board, &queues);
        Ok(())
    }

    async fn configure(&mut self, store: &Store) -> Result<(), StoreError> {
        let mut config = scheduler::Config::default();
        for share in store.shares().await? {
            let weight = share.weight;
            let node = scheduler::ShareConfig {
                weight,
                ..Default::default()
            };
            config.shares.insert(share.path, node);
        }
        for endpoint in store.endpoints().await? {
            let limits = limits(&endpoint.limits);
            let state = match endpoint.state {
                EndpointState::Open => scheduler::EndpointState::Open,
                EndpointState::Draining => scheduler::EndpointState::Draining,
                EndpointState::Banned => scheduler::EndpointState::Banned,
            };
            let place = scheduler::EndpointConfig { state, limits };
            config.endpoints.insert(endpoint.name.into(), place);
        }
        for link in store.links().await? {
            let ends = (link.source.into(), link.destination.into());
            config.links.insert(ends, limits(&link.limits));
        }
        self.scheduler.configure(config);
        Ok(())
    }

    fn agents_are(&mut self, agents: &[AgentRecord], board: &Board) {
        let alive = agents.iter().filter(|agent| agent.alive);
        let mut seen = HashSet::new();
        for agent in alive {
            let free = agent.description.slots.saturating_sub(agent.units);
            let said = board.free_slots(&agent.name).unwrap_or(free);
            let state = scheduler::AgentState {
                host: agent.description.host.clone(),
                labels: agent.description.labels.clone(),
                endpoints: agent.description.endpoints.clone(),
                slots: agent.description.slots,
                // Its last poll may be older than its last grant.
                free: free.min(said.max(free.min(1))),
                draining: agent.draining || said == 0 && free == agent.description.slots,
            };
            self.scheduler.set_agent(&agent.name, state);
            seen.insert(agent.name.clone());
        }
        for gone in self.agents.difference(&seen) {
            self.scheduler.remove_agent(gone);
        }
        self.agents = seen;
    }

    async fn learn_jobs(
        &mut self,
        store: &Store,
        jobs: impl Iterator<Item = Uuid>,
    ) -> Result<(), StoreError> {
        let unknown: HashSet<Uuid> = jobs.filter(|job| !self.jobs.contains_key(job)).collect();
        let unknown: Vec<Uuid> = unknown.into_iter().collect();
        for ids in unknown.chunks(JOBS_TOGETHER) {
            let filter = JobFilter {
                ids: ids.to_vec(),
                ..JobFilter::default()
            };
            let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            for job in store.jobs(&filter, None, limit).await?.items {
                let facts = Facts {
                    options: job.options,
                    created: since_1970(job.created),
                    started: job.started.is_some(),
                };
                self.jobs.insert(job.id, facts);
            }
        }
        Ok(())
    }

    fn queue_is(&mut self, key: QueueKey, record: &QueueRecord) {
        let Some(facts) = self.jobs.get(&record.job) else {
            return;
        };
        let options = &facts.options;
        let waits = record.ready == 0;
        let units = if waits { record.waiting } else { record.ready };
        let state = scheduler::QueueState {
            ready: u32::try_from(units).unwrap_or(u32::MAX),
            unit_bytes: record.next_bytes,
            unit_files: record.next_files,
            ready_bytes: record.bytes,
            share: options
                .share
                .clone()
                .unwrap_or_else(|| record.owner.clone()),
            class: class(options.class),
            priority: options.priority,
            created: facts.created,
            deadline: options.deadline.map(since_1970),
            labels: options.labels.clone(),
            hold: record.held.map(|held| match held {
                Held::Paused => scheduler::Hold::Paused,
                Held::AfterJob => scheduler::Hold::AfterJob,
            }),
            not_before: record.not_before.filter(|_| waits).map(since_1970),
            started_any: facts.started,
        };
        let name = self
            .queues
            .entry(key)
            .or_insert_with(|| scheduler::QueueKey {
                job: record.job.as_u128(),
                source: Arc::from(record.source.as_str()),
                destination: Arc::from(record.destination.as_str()),
            });
        self.scheduler.set_queue(name, state);
    }

    /// Leases that ended are told, and those that an earlier leader granted.
    async fn leases_are(
        &mut self,
        store: &Store,
        board: &Board,
        leased: &[crate::store::model::LeasedUnit],
    ) -> Result<(), StoreError> {
        let now = self.now();
        let held: HashSet<Lease> = leased.iter().map(|unit| unit.lease).collect();
        let ended: Vec<Lease> = (self.leases.keys().filter(|lease| !held.contains(lease)))
            .copied()
            .collect();
        for lease in ended {
            if let Some(running) = self.leases.remove(&lease) {
                let Granted {
                    id, bytes, files, ..
                } = running;
                self.scheduler.lease_ended(id, bytes, files, now);
            }
        }
        board.keep(|lease| held.contains(lease));
        if leased
            .iter()
            .all(|unit| self.leases.contains_key(&unit.lease))
        {
            return Ok(());
        }
        let links = store.links().await?;
        for unit in leased {
            let Some(link) = links.iter().find(|link| link.number == unit.queue.link) else {
                continue;
            };
            if self.leases.contains_key(&unit.lease) {
                continue;
            }
            let share = Share {
                concurrency: 1,
                parallelism: 1,
            };
            let started = scheduler::StartedLease {
                queue: scheduler::QueueKey {
                    // Its job matters for turns alone, and those are over.
                    job: u128::from(unit.queue.job.unsigned_abs()),
                    source: Arc::from(link.source.as_str()),
                    destination: Arc::from(link.destination.as_str()),
                },
                path: String::new(),
                class: scheduler::Class::Normal,
                agent: unit.agent.clone(),
                share: of_api(share),
                bytes: unit.bytes,
                files: unit.files,
            };
            let running = Granted {
                id: self.scheduler.lease_started(started, now),
                agent: unit.agent.clone(),
                bytes: unit.bytes,
                files: unit.files,
            };
            self.leases.insert(unit.lease, running);
        }
        Ok(())
    }

    async fn hand_out(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
        agents: &[AgentRecord],
    ) -> Result<(), StoreError> {
        let now = self.now();
        let grants = self.scheduler.step(now);
        if grants.is_empty() {
            return Ok(());
        }
        let queue_of = |name: &scheduler::QueueKey| {
            let mut queues = self.queues.iter();
            queues
                .find(|(_, queue)| *queue == name)
                .map(|(key, _)| *key)
        };
        let mut orders = Vec::with_capacity(grants.len());
        let mut waiting: HashMap<(String, QueueKey), Vec<(LeaseId, scheduler::Share)>> =
            HashMap::new();
        let mut idle = Vec::new();
        for grant in grants {
            let agent = agents.iter().find(|agent| agent.name == grant.agent);
            let Some((agent, queue)) = agent.zip(queue_of(&grant.queue)) else {
                idle.push(grant.lease);
                continue;
            };
            orders.push(GrantOrder {
                queue,
                agent: agent.name.clone(),
                incarnation: agent.incarnation,
            });
            let of_order = waiting.entry((grant.agent, queue)).or_default();
            of_order.push((grant.lease, grant.share));
        }
        let granted = store.grant(leader, &orders).await;
        for unit in granted.iter().flatten() {
            let order = (unit.agent.clone(), unit.queue);
            let Some((id, share)) = waiting.get_mut(&order).and_then(Vec::pop) else {
                continue;
            };
            self.started(unit, id, share, board);
        }
        // Nothing started for these.
        idle.extend(waiting.into_values().flatten().map(|(id, _)| id));
        idle.into_iter()
            .for_each(|id| self.scheduler.lease_ended(id, 0, 0, now));
        granted.map(|_| ())
    }

    fn started(&mut self, unit: &GrantedUnit, id: LeaseId, share: scheduler::Share, board: &Board) {
        let files = match &unit.work {
            godwit_service_api::agent::Work::Copy(files) => files.len(),
            godwit_service_api::agent::Work::List { .. } => 1,
        };
        let running = Granted {
            id,
            agent: unit.agent.clone(),
            bytes: unit.bytes,
            files: u32::try_from(files).unwrap_or(u32::MAX),
        };
        self.leases.insert(unit.lease, running);
        board.granted(unit.lease, unit.job, to_api(share));
        board.wake_agent(&unit.agent);
        board.job_changed(unit.job);
    }

    fn decide_shares(&mut self, board: &Board) {
        let shares: HashMap<LeaseId, scheduler::Share> =
            self.scheduler.shares(self.now()).into_iter().collect();
        for (lease, running) in &self.leases {
            if let Some(share) = shares.get(&running.id) {
                board.share_changed(&running.agent, *lease, to_api(*share));
            }
        }
    }

    fn explain(&self, board: &Board, queues: &[QueueRecord]) {
        let mut why: HashMap<Uuid, Vec<Why>> = HashMap::new();
        for queue in queues {
            let Some(name) = self.queues.get(&queue.key) else {
                continue;
            };
            let reasons = self.scheduler.why(name).into_iter().map(|reason| Why {
                code: code(reason.code()),
                text: reason.to_string(),
            });
            let of_job = why.entry(queue.job).or_default();
            for reason in reasons {
                if !of_job.contains(&reason) {
                    of_job.push(reason);
                }
            }
        }
        board.set_why(why);
    }
}

/// The scheduler spells codes as the API does.
fn code(text: &str) -> WhyCode {
    serde_json::from_value(text.into()).unwrap_or(WhyCode::Scheduling)
}

fn since_1970(at: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

fn limits(limits: &Limits) -> scheduler::Limits {
    scheduler::Limits {
        sessions: limits.sessions,
        channels: limits.channels,
        bytes_per_second: limits.bytes_per_second,
        files_per_second: limits.files_per_second,
    }
}

fn class(class: Class) -> scheduler::Class {
    match class {
        Class::Urgent => scheduler::Class::Urgent,
        Class::Normal => scheduler::Class::Normal,
        Class::Scavenger => scheduler::Class::Scavenger,
    }
}

fn of_api(share: Share) -> scheduler::Share {
    scheduler::Share {
        concurrency: share.concurrency.max(1),
        parallelism: share.parallelism.max(1),
    }
}

fn to_api(share: scheduler::Share) -> Share {
    Share {
        concurrency: share.concurrency,
        parallelism: share.parallelism,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_the_scheduler_have_the_codes_of_the_api() {
        assert_eq!(code("no_agent"), WhyCode::NoAgent);
        assert_eq!(code(scheduler::Reason::Paused.code()), WhyCode::Paused);
        assert_eq!(code(scheduler::Reason::AfterJob.code()), WhyCode::AfterJob);
    }
}
