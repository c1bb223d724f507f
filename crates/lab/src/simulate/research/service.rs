//! Transfers as jobs of the service: its scheduler decides, here are its leader, agents and
//! sessions.
//!
//! A job is cut as the store cuts it: units of up to 4 GiB or 1000 files, the first one smaller,
//! and large files in ranges. An agent keeps the sessions of a job for two seconds, so that the
//! next unit finds connections that are open, as large as they were.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use godwit_scheduler::{
    AgentState, Config, EndpointConfig, EndpointName, Grant, LeaseId, LeaseReport, Limits,
    QueueKey, QueueState, Scheduler, Share,
};
use godwit_sim::fluid::{Fluid, FluidFlow, FluidId};

use super::{
    alone::window,
    outcome::{DayOutcome, LONGEST_DAYS},
    scenario::{Map, Passage, ResearchStudy},
    timeline::Timeline,
    workload::DrawnTransfer,
};

/// As the store cuts jobs: most bytes and files of a unit, and of the first one.
const UNIT: (u64, u64) = (4 << 30, 1000);
const FIRST_UNIT: (u64, u64) = (256 << 20, 16);
/// A larger file is divided into about 64 ranges, of at least this, bytes.
const RANGES: u64 = 64;
const RANGE_LEAST: u64 = 512 << 20;
/// The leader looks so long after it was woken, s.
const LOOK_S: f64 = 0.02;
/// It decides about shares as often, s; agents report every second time.
const ROUND_S: f64 = 1.0;
/// An agent keeps the sessions of a job for so long without a unit, s.
const KEPT_S: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ServiceEvent {
    Arrival(usize),
    Look,
    Round(u64),
    /// The unit's first byte may be sent.
    Start(LeaseId),
}

struct SimulatedJob {
    key: QueueKey,
    share: String,
    passage: Passage,
    file_bytes: u64,
    left: u64,
    running: u32,
    started_any: bool,
    created: Duration,
}

impl SimulatedJob {
    fn is_divided(&self) -> bool {
        self.file_bytes > UNIT.0
    }

    /// Bytes and files of the next unit.
    fn unit(&self) -> (u64, u64) {
        if self.is_divided() {
            let range = (self.file_bytes / RANGES).clamp(RANGE_LEAST, UNIT.0);
            return (range.min(self.left), 1);
        }
        let (bytes, files) = if self.started_any { UNIT } else { FIRST_UNIT };
        let files = (bytes / self.file_bytes.max(1)).clamp(1, files);
        let files = files.min(self.left.div_ceil(self.file_bytes.max(1)));
        ((files * self.file_bytes).min(self.left), files)
    }

    fn state(&self) -> QueueState {
        let (bytes, files) = self.unit();
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let ready = self.left.div_ceil(bytes.max(1));
        QueueState {
            ready: small(ready),
            unit_bytes: bytes,
            unit_files: small(files),
            ready_bytes: self.left,
            ready_files: match self.is_divided() {
                true => ready,
                false => self.left.div_ceil(self.file_bytes.max(1)),
            },
            share: self.share.clone(),
            priority: 3,
            created: self.created,
            started_any: self.started_any,
            ..QueueState::default()
        }
    }

    /// The first files of the next unit, bytes.
    fn take(&mut self, files: u64) -> u64 {
        let (bytes, all) = self.unit();
        let taken = if files >= all {
            bytes
        } else {
            files * self.file_bytes
        };
        self.left -= taken.min(self.left);
        self.started_any = true;
        taken
    }
}

struct SimulatedUnit {
    job: usize,
    agent: String,
    bytes: u64,
    files: u32,
    share: Share,
    flow: Option<FluidId>,
    /// Moved when it was last reported.
    reported: f64,
}

/// Connections that wait for the next unit of a job.
struct KeptChannels {
    since_s: f64,
    connections: u32,
    under_way_bytes: f64,
}

struct SimulatedService<'a> {
    study: &'a ResearchStudy,
    fluid: Fluid,
    scheduler: Scheduler,
    events: Timeline<ServiceEvent>,
    jobs: Vec<SimulatedJob>,
    units: BTreeMap<LeaseId, SimulatedUnit>,
    by_flow: BTreeMap<FluidId, LeaseId>,
    kept: BTreeMap<(String, usize), Vec<KeptChannels>>,
    looks: bool,
    unfinished: usize,
    outcome: DayOutcome,
}

/// `by_user`: users have shares of their own; otherwise all jobs are those of one.
pub(super) fn run(
    study: &ResearchStudy,
    map: &Map,
    transfers: &[DrawnTransfer],
    by_user: bool,
) -> DayOutcome {
    let names: Vec<EndpointName> = (study.site.iter())
        .map(|site| Arc::from(format!("gsiftp://{}", site.name)))
        .collect();
    let mut events = Timeline::default();
    for (at, transfer) in transfers.iter().enumerate() {
        events.at(transfer.at_s, ServiceEvent::Arrival(at));
    }
    let jobs = transfers
        .iter()
        .enumerate()
        .map(|(at, transfer)| SimulatedJob {
            key: QueueKey {
                job: at as u128,
                source: names[transfer.source].clone(),
                destination: names[transfer.destination].clone(),
            },
            share: match by_user {
                true => format!("users/u{}", transfer.user),
                false => "users/all".to_owned(),
            },
            passage: map.passage(transfer.source, transfer.destination).clone(),
            file_bytes: transfer.file_bytes,
            left: transfer.bytes,
            running: 0,
            started_any: false,
            created: Duration::from_secs_f64(transfer.at_s),
        });
    let mut service = SimulatedService {
        study,
        fluid: Fluid::new(map.links.clone()),
        scheduler: scheduler(study, &names),
        events,
        jobs: jobs.collect(),
        units: BTreeMap::new(),
        by_flow: BTreeMap::new(),
        kept: BTreeMap::new(),
        looks: false,
        unfinished: transfers.len(),
        outcome: DayOutcome::new(transfers),
    };
    service.run();
    service.outcome.finish(&mut service.fluid, map);
    service.outcome
}

fn scheduler(study: &ResearchStudy, names: &[EndpointName]) -> Scheduler {
    let spec = study.service;
    let endpoint = EndpointConfig {
        limits: Limits {
            sessions: Some(spec.sessions),
            channels: Some(spec.channels),
            ..Limits::default()
        },
        ..EndpointConfig::default()
    };
    let mut scheduler = Scheduler::new(Config {
        endpoints: names.iter().map(|name| (name.clone(), endpoint)).collect(),
        ..Config::default()
    });
    for agent in 0..spec.agents {
        let state = AgentState {
            host: format!("h{agent}"),
            endpoints: vec!["*".to_owned()],
            slots: spec.slots,
            free: spec.slots,
            ..AgentState::default()
        };
        scheduler.set_agent(&format!("a{agent}"), state);
    }
    scheduler
}

impl SimulatedService<'_> {
    fn run(&mut self) {
        self.events.at(0.0, ServiceEvent::Round(0));
        let limit_s = LONGEST_DAYS * 86_400.0;
        while self.unfinished > 0
            && let Some(until) = self.events.next_s().filter(|until| *until < limit_s)
        {
            for flow in self.fluid.run_until(until) {
                self.ended(flow);
            }
            while let Some(event) = self.events.due(self.fluid.now_s()) {
                match event {
                    ServiceEvent::Arrival(at) => {
                        let job = &self.jobs[at];
                        self.scheduler.set_queue(&job.key, job.state());
                        self.wake();
                    }
                    ServiceEvent::Look => {
                        self.looks = false;
                        self.look();
                    }
                    ServiceEvent::Round(number) => self.round(number),
                    ServiceEvent::Start(lease) => self.start(lease),
                }
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.fluid.now_s())
    }

    fn wake(&mut self) {
        if !self.looks {
            self.looks = true;
            self.events
                .at(self.fluid.now_s() + LOOK_S, ServiceEvent::Look);
        }
    }

    fn look(&mut self) {
        let grants = self.scheduler.step(self.now());
        let mut told = BTreeSet::new();
        for grant in grants {
            told.insert(self.granted(grant));
        }
        for at in told {
            let job = &self.jobs[at];
            self.scheduler.set_queue(&job.key, job.state());
        }
    }

    fn granted(&mut self, grant: Grant) -> usize {
        let at = usize::try_from(grant.queue.job).unwrap_or(usize::MAX);
        let now_s = self.fluid.now_s();
        let job = &mut self.jobs[at];
        let bytes = job.take(grant.files.into());
        if bytes == 0 {
            // The scheduler counted units by their mean.
            let now = Duration::from_secs_f64(now_s);
            self.scheduler.lease_ended(grant.lease, 0, 0, now);
            return at;
        }
        job.running += 1;
        let key = (grant.agent, at);
        let is_kept = self.kept.get_mut(&key).is_some_and(|all| {
            all.retain(|kept| now_s - kept.since_s <= KEPT_S);
            !all.is_empty()
        });
        let login = match is_kept {
            true => 0.0,
            false => f64::from(self.study.login_round_trips) * job.passage.rtt_s,
        };
        let look = self.study.service.look.0 - LOOK_S;
        self.events.at(
            now_s + look.max(0.0) + login,
            ServiceEvent::Start(grant.lease),
        );
        let unit = SimulatedUnit {
            job: at,
            agent: key.0,
            bytes,
            files: grant.files,
            share: grant.share,
            flow: None,
            reported: 0.0,
        };
        self.units.insert(grant.lease, unit);
        at
    }

    fn start(&mut self, lease: LeaseId) {
        let Some(unit) = self.units.get_mut(&lease) else {
            return;
        };
        let connections = unit.share.channels();
        let kept = self.kept.get_mut(&(unit.agent.clone(), unit.job));
        let kept = kept.and_then(Vec::pop);
        let job = &self.jobs[unit.job];
        #[allow(clippy::cast_precision_loss, reason = "bytes of a unit")]
        let bytes = unit.bytes as f64;
        let flow = self.fluid.open(FluidFlow {
            links: job.passage.links.clone(),
            back_s: job.passage.back_s,
            connections,
            window_bytes: window(self.study),
            under_way_bytes: kept.map(|kept| {
                let part = f64::from(connections) / f64::from(kept.connections);
                kept.under_way_bytes * part.min(1.0)
            }),
            bytes,
        });
        unit.flow = Some(flow);
        self.by_flow.insert(flow, lease);
    }

    fn ended(&mut self, flow: FluidId) {
        let (now, now_s) = (self.now(), self.fluid.now_s());
        let state = self.fluid.state(flow);
        self.fluid.close(flow);
        let unit = (self.by_flow.remove(&flow))
            .and_then(|lease| Some((lease, self.units.remove(&lease)?)));
        let Some((lease, unit)) = unit else {
            return;
        };
        self.scheduler
            .lease_ended(lease, unit.bytes, unit.files, now);
        if let Some(state) = state {
            let kept = KeptChannels {
                since_s: now_s,
                connections: unit.share.channels(),
                under_way_bytes: state.goodput_bps / 8.0 * state.rtt_min_s,
            };
            self.kept
                .entry((unit.agent, unit.job))
                .or_default()
                .push(kept);
        }
        let job = &mut self.jobs[unit.job];
        job.running -= 1;
        if job.running == 0 && job.left == 0 {
            self.scheduler.remove_queue(&job.key);
            self.unfinished -= 1;
            self.outcome.ended(unit.job, now_s);
        }
        self.wake();
    }

    /// Reports of agents, and what they may use from now on.
    fn round(&mut self, number: u64) {
        let (now, now_s) = (self.now(), self.fluid.now_s());
        self.events
            .at(now_s + ROUND_S, ServiceEvent::Round(number + 1));
        self.kept.retain(|_, all| {
            all.retain(|kept| now_s - kept.since_s <= KEPT_S);
            !all.is_empty()
        });
        for (lease, unit) in &mut self.units {
            if lease.0 % 2 != number % 2 {
                continue;
            }
            let moved = unit.flow.and_then(|flow| self.fluid.state(flow));
            let moved = moved.map_or(0.0, |state| state.bytes);
            let report = LeaseReport {
                goodput: (moved - unit.reported) / (2.0 * ROUND_S),
                setting: unit.share,
                limited_by: None,
            };
            unit.reported = moved;
            self.scheduler.lease_report(*lease, report, now);
        }
        for (lease, share) in self.scheduler.shares(now) {
            if let Some(unit) = self.units.get_mut(&lease) {
                unit.share = share;
                if let Some(flow) = unit.flow {
                    self.fluid.set_connections(flow, share.channels());
                }
            }
        }
        self.wake();
    }
}
