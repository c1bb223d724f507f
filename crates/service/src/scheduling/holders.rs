//! Agents and what they hold, as they were read.
//!
//! A look reads the agents that have polled since the last one. Beside that all are read in turn,
//! some at a time.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use godwit_scheduler as scheduler;
use godwit_scheduler::{LeaseId, Scheduler};
use godwit_service_api::agent::{Lease, Share, UnitProgress};
use uuid::Uuid;

use super::convert::of_api;
use crate::store::model::{AgentRecord, Pace};

/// A report that is older says nothing any more.
const REPORT_LIFE: Duration = Duration::from_secs(10);

/// A unit that an agent holds.
pub(super) struct Granted {
    pub(super) id: LeaseId,
    /// What others say of it is not trusted.
    pub(super) agent: String,
    pub(super) job: Uuid,
    /// By number.
    pub(super) link: i64,
    pub(super) bytes: u64,
    pub(super) files: u32,
    pub(super) share: Share,
}

/// An agent, and when a poll of it was seen last.
pub(super) struct KnownAgent {
    pub(super) record: AgentRecord,
    heard: Instant,
}

impl KnownAgent {
    /// Its report says what it does now.
    pub(super) fn is_fresh(&self) -> bool {
        self.heard.elapsed() < REPORT_LIFE
    }
}

/// What agents report of units together.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitsProgress {
    /// Bytes that no result has counted.
    pub(super) bytes: u64,
    /// Bytes a second.
    pub(super) goodput: f64,
    pub(super) pace: Pace,
}

#[derive(Default)]
struct Gathered<'a> {
    sum: UnitsProgress,
    /// How many units each of these holds back.
    limits: BTreeMap<&'a str, u32>,
}

impl<'a> Gathered<'a> {
    fn add(&mut self, running: &Granted, report: &'a UnitProgress) {
        let channels = |share: Share| share.concurrency.saturating_mul(share.parallelism);
        let (sum, setting) = (&mut self.sum, report.setting);
        sum.bytes = sum.bytes.saturating_add(report.open_bytes);
        sum.goodput += report.goodput;
        let pace = &mut sum.pace;
        pace.units += 1;
        pace.sessions = pace.sessions.saturating_add(setting.concurrency);
        pace.channels = pace.channels.saturating_add(channels(setting));
        pace.allowed = pace.allowed.saturating_add(channels(running.share));
        if let Some(limit) = &report.limited_by {
            *self.limits.entry(limit).or_default() += 1;
        }
    }

    fn finish(mut self) -> UnitsProgress {
        let most = self.limits.into_iter().max_by_key(|(_, units)| *units);
        self.sum.pace.limited_by = most.map(|(limit, _)| limit.to_owned());
        self.sum
    }
}

#[derive(Default)]
pub(super) struct Holders {
    agents: HashMap<String, KnownAgent>,
    pub(super) leases: HashMap<Lease, Granted>,
    /// The agent that was read in turn last, by number.
    pub(super) turn: i64,
}

impl Holders {
    /// Agents are as these say; their reports, if they are new.
    pub(super) fn agents_are(
        &mut self,
        records: Vec<AgentRecord>,
        scheduler: &mut Scheduler,
        now: Duration,
    ) {
        let read = Instant::now();
        for record in records {
            let known = self.agents.get(&record.name);
            let known = known.filter(|known| known.record.seen == record.seen);
            let heard = known.map_or(read, |known| known.heard);
            match record.alive {
                true => scheduler.set_agent(&record.name, state(&record)),
                false => scheduler.remove_agent(&record.name),
            }
            if known.is_none() {
                self.reported(&record, scheduler, now);
            }
            let name = record.name.clone();
            self.agents.insert(name, KnownAgent { record, heard });
        }
    }

    fn reported(&self, record: &AgentRecord, scheduler: &mut Scheduler, now: Duration) {
        for report in &record.report.units {
            let running = self.leases.get(&report.lease);
            if let Some(running) = running.filter(|running| running.agent == record.name) {
                let report = scheduler::LeaseReport {
                    goodput: report.goodput,
                    setting: of_api(report.setting),
                    limited_by: report.limited_by.clone(),
                };
                scheduler.lease_report(running.id, report, now);
            }
        }
    }

    /// Agents that have not polled for the length of a lease get nothing.
    pub(super) fn drop_silent(&mut self, lease: Duration, scheduler: &mut Scheduler) {
        for (name, agent) in &mut self.agents {
            if agent.record.alive && agent.heard.elapsed() > lease {
                agent.record.alive = false;
                scheduler.remove_agent(name);
            }
        }
    }

    /// These agents hold these leases and no others.
    pub(super) fn end_others(
        &mut self,
        held: &HashSet<Lease>,
        is_of_these: impl Fn(&str) -> bool,
        scheduler: &mut Scheduler,
        now: Duration,
    ) {
        let ended = self.leases.iter();
        let ended = ended.filter(|(lease, unit)| !held.contains(lease) && is_of_these(&unit.agent));
        let ended: Vec<Lease> = ended.map(|(lease, _)| *lease).collect();
        for lease in ended {
            self.end(&lease, scheduler, now);
        }
    }

    /// A unit ended.
    pub(super) fn end(&mut self, lease: &Lease, scheduler: &mut Scheduler, now: Duration) {
        if let Some(running) = self.leases.remove(lease) {
            scheduler.lease_ended(running.id, running.bytes, running.files, now);
        }
    }

    pub(super) fn agent(&self, name: &str) -> Option<&KnownAgent> {
        self.agents.get(name)
    }

    pub(super) fn agents(&self) -> impl Iterator<Item = &KnownAgent> {
        self.agents.values()
    }

    /// What agents report of jobs.
    pub(super) fn progress(&self) -> HashMap<Uuid, UnitsProgress> {
        let mut jobs: HashMap<Uuid, Gathered<'_>> = HashMap::new();
        for (running, report) in self.reports() {
            jobs.entry(running.job).or_default().add(running, report);
        }
        let jobs = jobs.into_iter();
        jobs.map(|(job, all)| (job, all.finish())).collect()
    }

    /// The same of pairs of endpoints, by number.
    pub(super) fn progress_of_links(&self) -> HashMap<i64, UnitsProgress> {
        let mut links: HashMap<i64, Gathered<'_>> = HashMap::new();
        for (running, report) in self.reports() {
            links.entry(running.link).or_default().add(running, report);
        }
        let links = links.into_iter();
        links.map(|(link, all)| (link, all.finish())).collect()
    }

    /// Fresh reports of units by the agents that hold them.
    fn reports(&self) -> impl Iterator<Item = (&Granted, &UnitProgress)> {
        let agents = self.agents().filter(|agent| agent.is_fresh());
        agents.flat_map(|agent| {
            let reports = agent.record.report.units.iter();
            reports.filter_map(|report| {
                let running = self.leases.get(&report.lease)?;
                (running.agent == agent.record.name).then_some((running, report))
            })
        })
    }
}

fn state(agent: &AgentRecord) -> scheduler::AgentState {
    let free = agent.description.slots.saturating_sub(agent.units);
    let said = agent.report.free_slots;
    scheduler::AgentState {
        host: agent.description.host.clone(),
        labels: agent.description.labels.clone(),
        endpoints: agent.description.endpoints.clone(),
        slots: agent.description.slots,
        // Its last poll may be older than its last grant.
        free: free.min(said.max(free.min(1))),
        draining: agent.draining || said == 0 && free == agent.description.slots,
    }
}
