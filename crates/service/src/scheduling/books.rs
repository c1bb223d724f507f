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

use super::{
    Board,
    lifetimes::{Ending, Lifetimes},
};
use crate::{
    metrics::{Fleet, QueueState},
    store::{
        Store, StoreError,
        model::{
            AgentRecord, GrantOrder, GrantedUnit, Held, JobFilter, JobNow, Leadership, LeasedUnit,
            QueueKey, QueueRecord,
        },
    },
};

/// Between two readings of what operators and users set.
const SETTINGS: Duration = Duration::from_secs(5);

/// Between two looks at everything; between them the leader looks at what has polled since, and at
/// the queues when units became ready.
const WHOLE: Duration = Duration::from_secs(1);

/// A look at everything takes this part of the time at most.
const WHOLE_PART: u32 = 10;

/// What was read as the last poll may have come after another that is stored later.
const OVERLAP: Duration = Duration::from_millis(200);

/// A report that is older says nothing any more.
const REPORT_LIFE: Duration = Duration::from_secs(10);

/// Jobs that are read or written at a time.
const JOBS_TOGETHER: usize = 500;

/// What the scheduler is told and what it said, for as long as one node leads.
pub(super) struct Books {
    scheduler: Scheduler,
    /// The time of the scheduler is that of the database, in steps of our monotonic clock.
    began: (Duration, Instant),
    leases: HashMap<Lease, Granted>,
    queues: HashMap<QueueKey, scheduler::QueueKey>,
    /// The same by the scheduler's names.
    keys: HashMap<scheduler::QueueKey, QueueKey>,
    jobs: HashMap<Uuid, Facts>,
    agents: HashMap<String, Uuid>,
    /// Last polls of agents that the scheduler has heard of.
    heard: HashMap<String, Timestamp>,
    lifetimes: Lifetimes,
    /// What the database has.
    written: HashMap<Uuid, JobNow>,
    settings_read: Option<Instant>,
    /// When the next look is at everything, and the last poll of the one before.
    whole: Instant,
    seen: Timestamp,
}

struct Granted {
    id: LeaseId,
    /// What others say of it is not trusted.
    agent: String,
    job: Uuid,
    bytes: u64,
    files: u32,
    share: Share,
}

/// What is needed of a job.
struct Facts {
    options: JobOptions,
    created: Duration,
    started: bool,
    learned: Instant,
}

impl Books {
    pub(super) async fn open(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            scheduler: Scheduler::new(scheduler::Config::default()),
            began: (since_1970(store.now().await?), Instant::now()),
            leases: HashMap::new(),
            queues: HashMap::new(),
            keys: HashMap::new(),
            jobs: HashMap::new(),
            agents: HashMap::new(),
            heard: HashMap::new(),
            lifetimes: Lifetimes::default(),
            written: store.jobs_now().await?,
            settings_read: None,
            whole: Instant::now(),
            seen: Timestamp::UNIX_EPOCH,
        })
    }

    fn now(&self) -> Duration {
        self.began.0 + self.began.1.elapsed()
    }

    /// Reads what has changed, and hands out what is free.
    pub(super) async fn look(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
    ) -> Result<(), StoreError> {
        if self.settings_read.is_none_or(|at| at.elapsed() >= SETTINGS) {
            self.configure(store).await?;
            self.settings_read = Some(Instant::now());
        }
        let began = Instant::now();
        let is_whole = began >= self.whole;
        if is_whole {
            self.forget_old_facts(began);
        }
        let since = match is_whole {
            true => Timestamp::UNIX_EPOCH,
            false => self.seen.checked_sub(OVERLAP).unwrap_or_default(),
        };
        let agents = store.agents_since(since).await?;
        self.agents_are(&agents, is_whole);
        let queues = match is_whole | board.take_new_work() {
            true => Some(store.queues().await?),
            false => None,
        };
        if let Some(queues) = &queues {
            self.queues_are(store, queues).await?;
        }
        let read = began.elapsed();
        let leased = store.leased_since(since).await?;
        let jobs = leased.iter().map(|unit| unit.job);
        self.learn_jobs(store, jobs).await?;
        let heard: HashSet<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        let may_have_ended = |unit: &Granted| is_whole || heard.contains(unit.agent.as_str());
        self.leases_are(store, &leased, may_have_ended).await?;
        self.reported(&agents);
        let granted = self.hand_out(store, board, leader).await?;
        board.metrics().granted(granted);
        if let Some(queues) = &queues {
            let ready = queues.iter().filter(|queue| queue.held.is_none());
            let ready: u64 = ready.map(|queue| queue.ready).sum();
            board.set_work_waits(ready > granted);
        }
        if let (true, Some(queues)) = (is_whole, &queues) {
            let granted = began.elapsed();
            self.decide_shares(store, board, leader).await?;
            let jobs = self.jobs_now(&agents, queues);
            let reasoned = began.elapsed();
            self.write_jobs(store, leader, &jobs).await?;
            board.set_jobs(jobs);
            board.metrics().set_fleet(Some(self.fleet(&agents, queues)));
            let all = began.elapsed();
            tracing::debug!(
                ?read,
                ?granted,
                ?reasoned,
                ?all,
                "the leader looked at everything"
            );
            self.whole = Instant::now() + WHOLE.max(all * WHOLE_PART);
        }
        Ok(())
    }

    async fn queues_are(
        &mut self,
        store: &Store,
        queues: &[QueueRecord],
    ) -> Result<(), StoreError> {
        self.learn_jobs(store, queues.iter().map(|queue| queue.job))
            .await?;
        for record in queues {
            self.queue_is(record.key, record);
        }
        let there: HashSet<QueueKey> = queues.iter().map(|queue| queue.key).collect();
        let gone: Vec<_> = (self.queues.keys().filter(|key| !there.contains(key)))
            .copied()
            .collect();
        for key in gone {
            if let Some(name) = self.queues.remove(&key) {
                self.scheduler.remove_queue(&name);
                self.keys.remove(&name);
            }
        }
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
        self.lifetimes = Lifetimes::new(store.credential_ends().await?);
        Ok(())
    }

    /// Agents are as the last polls say; `whole`: there are no others.
    fn agents_are(&mut self, agents: &[AgentRecord], whole: bool) {
        let alive = agents.iter().filter(|agent| agent.alive);
        let mut seen = HashMap::new();
        if whole {
            // The clock of the database may have been set back.
            self.seen = Timestamp::UNIX_EPOCH;
        }
        for agent in alive {
            let free = agent.description.slots.saturating_sub(agent.units);
            let said = agent.report.free_slots;
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
            self.seen = self.seen.max(agent.seen);
            seen.insert(agent.name.clone(), agent.incarnation);
        }
        if !whole {
            self.agents.extend(seen);
            return;
        }
        for gone in self.agents.keys().filter(|name| !seen.contains_key(*name)) {
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
                    learned: Instant::now(),
                };
                self.jobs.insert(job.id, facts);
            }
        }
        Ok(())
    }

    /// Priorities and deadlines may have changed: what was read first is read again, of so many
    /// jobs that the look takes no longer for it.
    fn forget_old_facts(&mut self, now: Instant) {
        let old = |facts: &Facts| now.saturating_duration_since(facts.learned) >= SETTINGS;
        let mut old: Vec<_> = (self.jobs.iter().filter(|(_, facts)| old(facts)))
            .map(|(id, facts)| (facts.learned, *id))
            .collect();
        if old.len() > JOBS_TOGETHER {
            old.select_nth_unstable(JOBS_TOGETHER);
        }
        for (_, id) in old.into_iter().take(JOBS_TOGETHER) {
            self.jobs.remove(&id);
        }
    }

    fn queue_is(&mut self, key: QueueKey, record: &QueueRecord) {
        let Some(facts) = self.jobs.get(&record.job) else {
            return;
        };
        let options = &facts.options;
        let is_held = self.ending(record).is_some_and(|ending| ending.holds);
        let held = match record.held {
            Some(Held::Paused) => Some(scheduler::Hold::Paused),
            Some(Held::AfterJob) => Some(scheduler::Hold::AfterJob),
            None => is_held.then_some(scheduler::Hold::Credential),
        };
        let waits = record.ready == 0;
        let units = if waits { record.waiting } else { record.ready };
        let state = scheduler::QueueState {
            ready: u32::try_from(units).unwrap_or(u32::MAX),
            unit_bytes: record.next_bytes,
            unit_files: record.next_files,
            ready_bytes: record.bytes,
            ready_files: record.files,
            share: options
                .share
                .clone()
                .unwrap_or_else(|| record.owner.clone()),
            class: class(options.class),
            priority: options.priority,
            created: facts.created,
            deadline: options.deadline.map(since_1970),
            labels: options.labels.clone(),
            hold: held,
            not_before: record.not_before.filter(|_| waits).map(since_1970),
            started_any: facts.started,
        };
        let name = self.queues.entry(key).or_insert_with(|| {
            let name = scheduler::QueueKey {
                job: record.job.as_u128(),
                source: Arc::from(record.source.as_str()),
                destination: Arc::from(record.destination.as_str()),
            };
            self.keys.insert(name.clone(), key);
            name
        });
        self.scheduler.set_queue(name, state);
    }

    /// A credential of the queue's owner that ends soon.
    fn ending(&self, queue: &QueueRecord) -> Option<Ending> {
        let ends = [queue.source.as_str(), queue.destination.as_str()];
        let now = i64::try_from(self.now().as_secs()).ok()?;
        let now = Timestamp::from_second(now).ok()?;
        self.lifetimes.ending(&queue.owner, ends, now)
    }

    /// Leases that ended are told, and those that an earlier leader granted.
    async fn leases_are(
        &mut self,
        store: &Store,
        leased: &[LeasedUnit],
        may_have_ended: impl Fn(&Granted) -> bool,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let held: HashSet<Lease> = leased.iter().map(|unit| unit.lease).collect();
        let ended = (self.leases.iter())
            .filter(|(lease, unit)| !held.contains(lease) && may_have_ended(unit));
        let ended: Vec<Lease> = ended.map(|(lease, _)| *lease).collect();
        for lease in ended {
            if let Some(running) = self.leases.remove(&lease) {
                let Granted {
                    id, bytes, files, ..
                } = running;
                self.scheduler.lease_ended(id, bytes, files, now);
            }
        }
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
            let options = self.jobs.get(&unit.job).map(|facts| &facts.options);
            let started = scheduler::StartedLease {
                queue: scheduler::QueueKey {
                    job: unit.job.as_u128(),
                    source: Arc::from(link.source.as_str()),
                    destination: Arc::from(link.destination.as_str()),
                },
                path: (options.and_then(|options| options.share.clone()))
                    .unwrap_or_else(|| unit.owner.clone()),
                class: class(options.map(|options| options.class).unwrap_or_default()),
                agent: unit.agent.clone(),
                share: of_api(unit.share),
                bytes: unit.bytes,
                files: unit.files,
            };
            let running = Granted {
                id: self.scheduler.lease_started(started, now),
                agent: unit.agent.clone(),
                job: unit.job,
                bytes: unit.bytes,
                files: unit.files,
                share: unit.share,
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
    ) -> Result<u64, StoreError> {
        let now = self.now();
        let grants = self.scheduler.step(now);
        if grants.is_empty() {
            return Ok(0);
        }
        let mut orders = Vec::with_capacity(grants.len());
        let mut waiting: HashMap<(String, QueueKey, Share), Vec<LeaseId>> = HashMap::new();
        let mut idle = Vec::new();
        for grant in grants {
            let agent = self.agents.get(&grant.agent);
            let Some((incarnation, queue)) = agent.zip(self.keys.get(&grant.queue).copied()) else {
                idle.push(grant.lease);
                continue;
            };
            orders.push(GrantOrder {
                queue,
                agent: grant.agent.clone(),
                incarnation: *incarnation,
                share: to_api(grant.share),
                files: grant.files,
            });
            let order = (grant.agent, queue, to_api(grant.share));
            waiting.entry(order).or_default().push(grant.lease);
        }
        let granted = store.grant(leader, &orders).await;
        for unit in granted.iter().flatten() {
            let order = (unit.agent.clone(), unit.queue, unit.share);
            if let Some(id) = waiting.get_mut(&order).and_then(Vec::pop) {
                self.started(unit, id, board);
            }
        }
        // Nothing started for these.
        idle.extend(waiting.into_values().flatten());
        idle.into_iter()
            .for_each(|id| self.scheduler.lease_ended(id, 0, 0, now));
        granted.map(|units| units.len() as u64)
    }

    fn started(&mut self, unit: &GrantedUnit, id: LeaseId, board: &Board) {
        let files = match &unit.work {
            godwit_service_api::agent::Work::Copy(files) => files.len(),
            godwit_service_api::agent::Work::List { .. } => 1,
        };
        let running = Granted {
            id,
            agent: unit.agent.clone(),
            job: unit.job,
            bytes: unit.bytes,
            files: u32::try_from(files).unwrap_or(u32::MAX),
            share: unit.share,
        };
        self.leases.insert(unit.lease, running);
        if let Some(facts) = self.jobs.get_mut(&unit.job) {
            facts.started = true;
        }
        board.wake_agent(&unit.agent);
        board.job_changed(unit.job);
    }

    /// Reports of polls that the scheduler has not heard.
    fn reported(&mut self, agents: &[AgentRecord]) {
        let now = self.now();
        for agent in agents {
            if self.heard.insert(agent.name.clone(), agent.seen) == Some(agent.seen) {
                continue;
            }
            for report in &agent.report.units {
                let running = self.leases.get(&report.lease);
                if let Some(running) = running.filter(|running| running.agent == agent.name) {
                    let report = scheduler::LeaseReport {
                        goodput: report.goodput,
                        setting: of_api(report.setting),
                        limited_by: report.limited_by.clone(),
                    };
                    self.scheduler.lease_report(running.id, report, now);
                }
            }
        }
    }

    async fn decide_shares(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
    ) -> Result<(), StoreError> {
        let decided = self.scheduler.shares(self.now()).into_iter();
        let decided: HashMap<LeaseId, Share> =
            decided.map(|(id, share)| (id, to_api(share))).collect();
        let mut changed = BTreeMap::new();
        for (lease, running) in &self.leases {
            if let Some(share) = decided.get(&running.id).filter(|s| **s != running.share) {
                changed.insert(*lease, *share);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        store.set_shares(leader, &changed).await?;
        for (lease, share) in changed {
            if let Some(running) = self.leases.get_mut(&lease) {
                running.share = share;
                board.wake_agent(&running.agent);
            }
        }
        Ok(())
    }

    /// Why jobs wait, and how fast they are.
    fn jobs_now(&self, agents: &[AgentRecord], queues: &[QueueRecord]) -> HashMap<Uuid, JobNow> {
        let mut jobs: HashMap<Uuid, JobNow> = HashMap::new();
        for queue in queues {
            let Some(name) = self.queues.get(&queue.key) else {
                continue;
            };
            let reasons = self.scheduler.why(name).into_iter().map(|reason| Why {
                code: code(reason.code()),
                text: reason.to_string(),
            });
            let why = &mut jobs.entry(queue.job).or_default().why;
            let reasons = reasons.filter(|why| why.code != WhyCode::CredentialExpired);
            let ending = self.ending(queue).map(|ending| ending.why);
            for reason in reasons.chain(ending) {
                if !why.contains(&reason) {
                    why.push(reason);
                }
            }
        }
        let now = self.now();
        let fresh = |agent: &&AgentRecord| now.saturating_sub(since_1970(agent.seen)) < REPORT_LIFE;
        for agent in agents.iter().filter(fresh) {
            for report in &agent.report.units {
                let running = self.leases.get(&report.lease);
                if let Some(running) = running.filter(|running| running.agent == agent.name) {
                    let job = jobs.entry(running.job).or_default();
                    job.bytes = job.bytes.saturating_add(report.open_bytes);
                    job.goodput += report.goodput;
                }
            }
        }
        jobs
    }

    /// The whole service, for the metrics.
    fn fleet(&self, agents: &[AgentRecord], queues: &[QueueRecord]) -> Fleet {
        let mut fleet = Fleet {
            units: self.leases.len() as u64,
            ..Fleet::default()
        };
        for queue in queues {
            let class = self.jobs.get(&queue.job).map(|facts| facts.options.class);
            let state = match queue.held {
                Some(Held::Paused) => QueueState::Paused,
                Some(Held::AfterJob) => QueueState::AfterJob,
                None if queue.ready == 0 => QueueState::Retry,
                None => QueueState::Ready,
            };
            let waiting = fleet.waiting.entry((class.unwrap_or_default(), state));
            let waiting = waiting.or_default();
            waiting.files += queue.files;
            waiting.bytes = waiting.bytes.saturating_add(queue.bytes);
        }
        for unit in self.leases.values() {
            fleet.files += u64::from(unit.files);
            fleet.bytes = fleet.bytes.saturating_add(unit.bytes);
        }
        let now = self.now();
        for agent in agents {
            let count = match (agent.alive, agent.draining) {
                (false, _) => &mut fleet.agents_gone,
                (true, true) => &mut fleet.agents_draining,
                (true, false) => &mut fleet.agents_alive,
            };
            *count += 1;
            if now.saturating_sub(since_1970(agent.seen)) < REPORT_LIFE {
                let units = agent.report.units.iter();
                let units = units.filter(|report| self.leases.contains_key(&report.lease));
                fleet.goodput += units.map(|report| report.goodput).sum::<f64>();
            }
        }
        fleet
    }

    /// Writes what has changed, for the other nodes.
    async fn write_jobs(
        &mut self,
        store: &Store,
        leader: Leadership,
        jobs: &HashMap<Uuid, JobNow>,
    ) -> Result<(), StoreError> {
        let changed = jobs
            .iter()
            .filter(|(id, now)| self.written.get(id) != Some(now));
        let changed = changed.map(|(id, now)| (*id, Some(now.clone())));
        let gone = self.written.keys().filter(|id| !jobs.contains_key(id));
        let changed = changed.chain(gone.map(|id| (*id, None)));
        // The rest follows in the next second.
        let changed: Vec<_> = changed.take(JOBS_TOGETHER).collect();
        if changed.is_empty() {
            return Ok(());
        }
        store.set_jobs_now(leader, &changed).await?;
        for (id, now) in changed {
            match now {
                Some(now) => drop(self.written.insert(id, now)),
                None => drop(self.written.remove(&id)),
            }
        }
        Ok(())
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
