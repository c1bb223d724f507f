//! The scheduler's leases and queues beside those of the database.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use godwit_scheduler as scheduler;
use godwit_scheduler::Scheduler;
use godwit_service_api::{agent::Lease, job::JobOptions, site::EndpointState};
use uuid::Uuid;

use super::{
    Board,
    convert::{class, limits, of_api, since_1970},
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
        model::{AgentRecord, JobFilter, Leadership, LeasedUnit, LostUnit},
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
    /// Jobs whose queues one look reads, fewer than [`JOBS_TOGETHER`] where those took too long.
    together: usize,
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
            together: JOBS_TOGETHER,
            links: LinksSaid::default(),
        })
    }

    fn now(&self) -> Duration {
        self.began.0 + self.began.1.elapsed()
    }

    /// The clock of the database may be set. Time of the scheduler never goes back.
    async fn read_clock(&mut self, store: &Store) -> Result<(), StoreError> {
        let now = since_1970(store.now().await?);
        self.began = (now.max(self.now()), Instant::now());
        Ok(())
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
            self.read_clock(store).await?;
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
        let jobs = self.waiting.next(self.together);
        if jobs.is_empty() {
            return Ok(false);
        }
        let queues = match store.queues_of(&jobs).await {
            Ok(queues) => queues,
            // The database ends a statement that takes too long. What is known is handed out.
            Err(error) if error.is_passing() => {
                let first = jobs.first();
                tracing::warn!(%error, ?first, number = jobs.len(), "queues of jobs not read");
                self.together = (jobs.len() / 2).max(1);
                if let [job] = jobs[..] {
                    // It is read when its turn comes.
                    self.waiting.put_off(job);
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        self.together = (self.together * 2).min(JOBS_TOGETHER);
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

mod grants;
mod reasons;
#[cfg(test)]
mod tests;
