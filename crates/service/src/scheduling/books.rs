//! The scheduler's leases and queues beside those of the database.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use godwit_scheduler as scheduler;
use godwit_scheduler::{LeaseId, Scheduler};
use godwit_service_api::{
    agent::{Lease, Share},
    job::JobOptions,
    site::EndpointState,
    why::{Why, WhyCode},
};
use uuid::Uuid;

use super::{
    Board,
    convert::{class, code, limits, of_api, since_1970, to_api},
    holders::{Granted, Holders},
    lifetimes::Lifetimes,
    links::LinksSaid,
    said::Said,
    waiting::WaitingQueues,
};
use crate::{
    metrics::Fleet,
    store::{
        Store, StoreError,
        agents::Which,
        model::{
            AgentRecord, GrantOrder, GrantedUnit, JobFilter, Leadership, LeasedUnit, LostUnit,
            QueueKey,
        },
    },
};

/// Between two readings of what operators and users set.
const SETTINGS: Duration = Duration::from_secs(5);

/// Between two rounds: what other processes changed, shares of sums, figures of jobs. Between them
/// the leader looks at what has polled since, and at what waits where units became ready.
const ROUND: Duration = Duration::from_secs(1);

/// Slices at leisure take this part of the time at most.
const LEISURE_PART: u32 = 10;

/// What was read as the last poll may have come after another that is stored later.
const OVERLAP: Duration = Duration::from_millis(200);

/// Jobs whose queues one look reads.
const JOBS_TOGETHER: usize = 250;

/// Jobs, and agents, that each round reads in turn, whether or not they have changed.
const JOBS_IN_TURN: usize = 250;
const AGENTS_IN_TURN: i64 = 500;

/// Jobs that are reasoned about at a time, but for those that take longer than this.
const REASONED_TOGETHER: usize = 1000;
const REASONS_LIMIT: Duration = Duration::from_millis(5);

/// Jobs that are written at a time.
const WRITTEN_TOGETHER: usize = 100;

/// What the scheduler is told and what it said, for as long as one node leads.
pub(super) struct Books {
    scheduler: Scheduler,
    /// The time of the scheduler is that of the database, in steps of our monotonic clock.
    began: (Duration, Instant),
    waiting: WaitingQueues,
    holders: Holders,
    said: Said,
    lifetimes: Lifetimes,
    settings_read: Option<Instant>,
    /// When those that have polled were read last.
    polls_read: Option<Instant>,
    /// When the next round is due, and the next slice at leisure.
    round: Instant,
    leisure: Instant,
    /// Whether rounds read in turn.
    in_turn: bool,
    links: LinksSaid,
}

impl Books {
    pub(super) async fn open(store: &Store, board: &Board) -> Result<Self, StoreError> {
        let written = store.jobs_now().await?;
        board.set_jobs(written.clone());
        Ok(Self {
            scheduler: Scheduler::new(scheduler::Config::default()),
            began: (since_1970(store.now().await?), Instant::now()),
            waiting: WaitingQueues::default(),
            holders: Holders::default(),
            said: Said::new(written),
            lifetimes: Lifetimes::default(),
            settings_read: None,
            polls_read: None,
            round: Instant::now(),
            leisure: Instant::now(),
            in_turn: true,
            links: LinksSaid::default(),
        })
    }

    fn now(&self) -> Duration {
        self.began.0 + self.began.1.elapsed()
    }

    /// Reads what has changed, hands out what is free, and does a little of what has time. Says
    /// when the next look is due where nothing wakes the leader before.
    pub(super) async fn look(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
    ) -> Result<Duration, StoreError> {
        let began = Instant::now();
        if self.settings_read.is_none_or(|at| at.elapsed() >= SETTINGS) {
            self.configure(store).await?;
            self.settings_read = Some(began);
        }
        let is_round = began >= self.round;
        self.read_polls(store).await?;
        let has_new_work = board.take_new_work();
        if is_round || has_new_work {
            self.read_marks(store, is_round).await?;
        }
        if is_round {
            self.waiting.read_granted();
            self.holders.drop_silent(store.lease(), &mut self.scheduler);
        }
        if self.in_turn && is_round {
            self.read_agents_in_turn(store).await?;
        }
        self.waiting.pass_time(self.now());
        if self.in_turn && (is_round || !self.waiting.is_complete()) {
            self.turn_to_jobs(store).await?;
        }
        let has_read = self.read_jobs(store).await?;
        if !self.waiting.is_behind() && !self.said.is_of_this_term {
            let queues = self.waiting.all().map(|queue| queue.record.job);
            self.said.keep(&queues.collect());
        }
        let read = began.elapsed();
        let granted = self.hand_out(store, board, leader).await?;
        board.metrics().granted(granted);
        if has_read {
            board.set_work_waits(self.waiting.ready() > granted);
        }
        let handed_out = began.elapsed();
        if is_round {
            self.decide_shares(store, board, leader).await?;
            self.said.moving(self.holders.progress());
            board.metrics().set_fleet(Some(self.fleet()));
            self.said.turn = self.said.turn.or(Some(0));
            self.round = Instant::now() + ROUND;
        }
        let in_round = began.elapsed();
        let at_leisure = Instant::now();
        if at_leisure >= self.leisure {
            self.reason();
            self.write(store, leader).await?;
            self.leisure = Instant::now() + at_leisure.elapsed() * (LEISURE_PART - 1);
        }
        board.change_jobs(self.said.take_unposted());
        let (waiting, holders) = (&self.waiting, &self.holders);
        self.links.write(store, leader, waiting, holders).await?;
        let all = began.elapsed();
        tracing::trace!(
            ?read,
            ?handed_out,
            ?in_round,
            ?all,
            is_round,
            "parts of a look"
        );
        Ok(self.rest(all))
    }

    /// Time to the next look.
    fn rest(&self, took: Duration) -> Duration {
        if self.waiting.is_behind() && self.in_turn {
            // A third of the time at least is left to the polls.
            return took / 2;
        }
        let now = Instant::now();
        let is_waited_for = self.said.turn.is_some() || self.said.has_more();
        let next = match is_waited_for {
            true => self.round.min(self.leisure),
            false => self.round,
        };
        next.saturating_duration_since(now)
    }

    /// Units that agents lost.
    pub(super) fn lost(&mut self, units: &[LostUnit]) {
        let now = self.now();
        for unit in units {
            self.waiting.read_again(unit.queue.job);
            self.holders.end(&unit.lease, &mut self.scheduler, now);
        }
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

    /// Agents that have polled since the last look, and what they hold.
    async fn read_polls(&mut self, store: &Store) -> Result<(), StoreError> {
        let asked = Instant::now();
        let within = self.polls_read.map(|at| asked - at + OVERLAP);
        let which = within.map_or(Which::All, Which::Within);
        let agents = store.some_agents(which).await?;
        // Of just those agents: what another holds has not ended because its poll has become too
        // old meanwhile. One that polls between has a lease that is not looked for.
        let leased = match within {
            None => store.leased().await?,
            Some(_) => store.leased_by(&numbers(&agents)).await?,
        };
        let names: HashSet<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        self.leases_are(store, &leased, |agent| names.contains(agent))
            .await?;
        let now = self.now();
        self.holders.agents_are(agents, &mut self.scheduler, now);
        self.polls_read = Some(asked);
        Ok(())
    }

    /// Some agents in turn, and what they hold.
    async fn read_agents_in_turn(&mut self, store: &Store) -> Result<(), StoreError> {
        let turn = self.holders.turn;
        let agents = store
            .some_agents(Which::After(turn, AGENTS_IN_TURN))
            .await?;
        let is_full = agents.len() as i64 == AGENTS_IN_TURN;
        let last = agents.last().filter(|_| is_full);
        let last = last.map(|agent| agent.number);
        let leased = store.leased_by(&numbers(&agents)).await?;
        let names: HashSet<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        self.leases_are(store, &leased, |agent| names.contains(agent))
            .await?;
        let now = self.now();
        self.holders.agents_are(agents, &mut self.scheduler, now);
        self.holders.turn = last.unwrap_or(0);
        Ok(())
    }

    /// Which jobs have changed.
    async fn read_marks(&mut self, store: &Store, is_round: bool) -> Result<(), StoreError> {
        let asked = Instant::now();
        let within = self.waiting.marks_within(asked, is_round);
        let marks = store.changed_jobs(within).await?;
        self.waiting.marks_are(&marks, is_round, asked);
        Ok(())
    }

    /// Some jobs are read in turn.
    async fn turn_to_jobs(&mut self, store: &Store) -> Result<(), StoreError> {
        let open = store.open_jobs(self.waiting.turn(), JOBS_IN_TURN).await?;
        let is_end = open.len() < JOBS_IN_TURN;
        self.waiting.read_in_turn(&open, is_end);
        Ok(())
    }

    /// Some of the jobs that are to be read. Says whether there were any.
    async fn read_jobs(&mut self, store: &Store) -> Result<bool, StoreError> {
        let jobs = self.waiting.next(JOBS_TOGETHER);
        if jobs.is_empty() {
            return Ok(false);
        }
        let queues = store.queues_of(&jobs).await?;
        // Jobs without queues have nothing that waits.
        let before = jobs.iter().flat_map(|job| self.waiting.of(*job));
        let mut idle: HashSet<Uuid> = before.map(|queue| queue.record.job).collect();
        for queue in &queues {
            idle.remove(&queue.job);
        }
        for job in idle {
            self.said.why(job, Vec::new());
        }
        let now = self.now();
        let (scheduler, lifetimes) = (&mut self.scheduler, &self.lifetimes);
        self.waiting
            .jobs_are(&jobs, queues, scheduler, lifetimes, now);
        self.said.first.extend(jobs);
        Ok(true)
    }

    /// Leases that ended are told, and those that an earlier leader granted.
    async fn leases_are(
        &mut self,
        store: &Store,
        leased: &[LeasedUnit],
        is_of_these: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let held: HashSet<Lease> = leased.iter().map(|unit| unit.lease).collect();
        self.holders
            .end_others(&held, is_of_these, &mut self.scheduler, now);
        let is_known = |unit: &&LeasedUnit| self.holders.leases.contains_key(&unit.lease);
        let unknown: Vec<&LeasedUnit> = leased.iter().filter(|unit| !is_known(unit)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let links = store.links().await?;
        let links: HashMap<i64, _> = links.iter().map(|link| (link.number, link)).collect();
        let options = options_of(store, &unknown).await?;
        for unit in unknown {
            let Some(link) = links.get(&unit.queue.link) else {
                continue;
            };
            let options = options.get(&unit.job);
            let started = scheduler::StartedLease {
                queue: scheduler::QueueKey {
                    job: unit.job.as_u128(),
                    source: link.source.as_str().into(),
                    destination: link.destination.as_str().into(),
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
                link: unit.queue.link,
                bytes: unit.bytes,
                files: unit.files,
                share: unit.share,
            };
            self.holders.leases.insert(unit.lease, running);
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
            let agent = self.holders.agent(&grant.agent);
            let Some((agent, queue)) = agent.zip(self.waiting.key(&grant.queue)) else {
                idle.push(grant.lease);
                continue;
            };
            orders.push(GrantOrder {
                queue,
                agent: grant.agent.clone(),
                incarnation: agent.record.incarnation,
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
        // Nothing started for these: what was known of them was wrong.
        for ((_, queue, _), leases) in waiting {
            if !leases.is_empty() {
                self.waiting.doubt(queue.job);
                idle.extend(leases);
            }
        }
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
            link: unit.queue.link,
            bytes: unit.bytes,
            files: u32::try_from(files).unwrap_or(u32::MAX),
            share: unit.share,
        };
        self.holders.leases.insert(unit.lease, running);
        self.waiting.granted(unit.queue.job);
        self.said.first.insert(unit.queue.job);
        board.wake_agent(&unit.agent);
        board.job_changed(unit.job);
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
        for (lease, running) in &self.holders.leases {
            if let Some(share) = decided.get(&running.id).filter(|s| **s != running.share) {
                changed.insert(*lease, *share);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        store.set_shares(leader, &changed).await?;
        for (lease, share) in changed {
            if let Some(running) = self.holders.leases.get_mut(&lease) {
                running.share = share;
                board.wake_agent(&running.agent);
            }
        }
        Ok(())
    }

    /// Says of some jobs why they wait: of those that were read, then of all others in turn.
    fn reason(&mut self) {
        let (began, now) = (Instant::now(), self.now());
        for _ in 0..REASONED_TOGETHER {
            if began.elapsed() >= REASONS_LIMIT {
                break;
            }
            let first = self.said.first.pop_first();
            let job = match (first, self.said.turn) {
                (Some(job), _) => job,
                (None, Some(turn)) => {
                    let next = self.waiting.after(turn);
                    self.said.turn = next.map(|queue| queue.record.key.job);
                    let Some(job) = self.said.turn else {
                        break;
                    };
                    job
                }
                (None, None) => break,
            };
            self.waiting.see_credentials(job, &self.lifetimes, now);
            self.reason_about(job, now);
        }
    }

    fn reason_about(&mut self, job: i64, now: Duration) {
        let mut why: Vec<Why> = Vec::new();
        let mut id = None;
        for queue in self.waiting.of(job) {
            id = Some(queue.record.job);
            let reasons = self.scheduler.why(&queue.name).into_iter();
            let reasons = reasons.map(|reason| Why {
                code: code(reason.code()),
                text: reason.to_string(),
            });
            let reasons = reasons.filter(|why| why.code != WhyCode::CredentialExpired);
            let ending = self.lifetimes.of(&queue.record, now);
            for reason in reasons.chain(ending.map(|ending| ending.why)) {
                if !why.contains(&reason) {
                    why.push(reason);
                }
            }
        }
        if let Some(id) = id {
            self.said.why(id, why);
        }
    }

    /// Writes some of what has changed, for the other nodes.
    async fn write(&mut self, store: &Store, leader: Leadership) -> Result<(), StoreError> {
        let some = self.said.unwritten(WRITTEN_TOGETHER);
        if some.is_empty() {
            return Ok(());
        }
        store.set_jobs_now(leader, &some).await?;
        self.said.written(some);
        Ok(())
    }

    /// The whole service, for the metrics.
    fn fleet(&self) -> Fleet {
        let mut fleet = Fleet {
            waiting: self.waiting.amounts(),
            units: self.holders.leases.len() as u64,
            ..Fleet::default()
        };
        for unit in self.holders.leases.values() {
            fleet.files += u64::from(unit.files);
            fleet.bytes = fleet.bytes.saturating_add(unit.bytes);
        }
        for agent in self.holders.agents() {
            let record = &agent.record;
            let count = match (record.alive, record.draining) {
                (false, _) => &mut fleet.agents_gone,
                (true, true) => &mut fleet.agents_draining,
                (true, false) => &mut fleet.agents_alive,
            };
            *count += 1;
            if agent.is_fresh() {
                let units = record.report.units.iter();
                let units = units.filter(|report| self.holders.leases.contains_key(&report.lease));
                fleet.goodput += units.map(|report| report.goodput).sum::<f64>();
            }
        }
        fleet
    }
}

/// How the jobs of these units are done.
async fn options_of(
    store: &Store,
    units: &[&LeasedUnit],
) -> Result<HashMap<Uuid, JobOptions>, StoreError> {
    let jobs: HashSet<Uuid> = units.iter().map(|unit| unit.job).collect();
    let jobs: Vec<Uuid> = jobs.into_iter().collect();
    let mut options = HashMap::with_capacity(jobs.len());
    for ids in jobs.chunks(JOBS_TOGETHER) {
        let filter = JobFilter {
            ids: ids.to_vec(),
            ..JobFilter::default()
        };
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let found = store.jobs(&filter, None, limit).await?.items;
        options.extend(found.into_iter().map(|job| (job.id, job.options)));
    }
    Ok(options)
}

fn numbers(agents: &[AgentRecord]) -> Vec<i64> {
    agents.iter().map(|agent| agent.number).collect()
}

#[cfg(test)]
mod tests;
