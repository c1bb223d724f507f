//! What the leader, the gateway and the API of one process tell each other, in memory.
//!
//! Nothing here must outlive the process: what is lost comes again with the next polls of agents
//! and the next step of the leader. On a node that does not lead, the reasons and shares are empty.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_service_api::{
    agent::{Lease, Share, UnitProgress},
    why::Why,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

/// A report that is older says nothing any more.
const REPORT_LIFE: Duration = Duration::from_secs(10);

/// Changed jobs that a slow reader may be behind.
const CHANGES: usize = 1024;

/// Shared by all parts of a process.
pub struct Board {
    leader: Notify,
    changes: broadcast::Sender<Uuid>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    leads: bool,
    agents: HashMap<String, Arc<Notify>>,
    free_slots: HashMap<String, u32>,
    shares: HashMap<Lease, Share>,
    /// Shares that the agent was not told yet.
    untold: HashMap<String, BTreeMap<Lease, Share>>,
    jobs: HashMap<Lease, Uuid>,
    reports: HashMap<Lease, (Instant, UnitProgress)>,
    why: HashMap<Uuid, Vec<Why>>,
}

/// What the agents of a job report of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Bytes safe at the destination that no result has counted.
    pub bytes: u64,
    /// Bytes a second.
    pub goodput: f64,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            leader: Notify::new(),
            changes: broadcast::Sender::new(CHANGES),
            state: Mutex::default(),
        }
    }
}

impl Board {
    /// There is new work, or what was taken is free: the leader looks at once.
    pub fn wake_leader(&self) {
        self.leader.notify_one();
    }

    /// Something of a job changed: readers of its events look, and agents that may have to stop
    /// poll again.
    pub fn job_changed(&self, job: Uuid) {
        // Nobody reads.
        let _ = self.changes.send(job);
    }

    /// A job was canceled, paused or resumed.
    pub fn job_steered(&self, job: Uuid) {
        self.job_changed(job);
        self.wake_leader();
        let waiting: Vec<_> = self.state.lock().agents.values().cloned().collect();
        waiting.iter().for_each(|agent| agent.notify_waiters());
    }

    /// Jobs that change from here on.
    pub fn changes(&self) -> broadcast::Receiver<Uuid> {
        self.changes.subscribe()
    }

    /// Why a job waits or is slow.
    pub fn why(&self, job: Uuid) -> Vec<Why> {
        self.state.lock().why.get(&job).cloned().unwrap_or_default()
    }

    /// How fast a job is.
    pub fn pace(&self, job: Uuid) -> Pace {
        let state = self.state.lock();
        let of_job = state.jobs.iter().filter(|(_, of)| **of == job);
        of_job.fold(Pace::default(), |pace, (lease, _)| {
            match state
                .reports
                .get(lease)
                .filter(|(at, _)| at.elapsed() < REPORT_LIFE)
            {
                Some((_, report)) => Pace {
                    bytes: pace.bytes.saturating_add(report.bytes),
                    goodput: pace.goodput + report.goodput,
                },
                None => pace,
            }
        })
    }

    /// This process leads.
    pub fn leads(&self) -> bool {
        self.state.lock().leads
    }

    pub(crate) async fn leader_woken(&self) {
        self.leader.notified().await;
    }

    /// What wakes polls of an agent.
    pub(crate) fn agent(&self, name: &str) -> Arc<Notify> {
        let mut state = self.state.lock();
        Arc::clone(state.agents.entry(name.to_owned()).or_default())
    }

    pub(crate) fn wake_agent(&self, name: &str) {
        self.agent(name).notify_waiters();
    }

    /// What a poll says.
    pub(crate) fn polled(&self, agent: &str, free_slots: u32, units: &[UnitProgress]) {
        let mut state = self.state.lock();
        state.free_slots.insert(agent.to_owned(), free_slots);
        let now = Instant::now();
        for unit in units {
            state.reports.insert(unit.lease, (now, unit.clone()));
        }
    }

    /// Units that an agent could take, as its last poll to this process says.
    pub(crate) fn free_slots(&self, agent: &str) -> Option<u32> {
        self.state.lock().free_slots.get(agent).copied()
    }

    /// The share of a unit that is granted.
    pub(crate) fn share(&self, lease: Lease) -> Option<Share> {
        self.state.lock().shares.get(&lease).copied()
    }

    /// Shares that changed since the agent was told.
    pub(crate) fn take_shares(&self, agent: &str) -> Vec<(Lease, Share)> {
        let untold = self.state.lock().untold.remove(agent);
        untold.unwrap_or_default().into_iter().collect()
    }

    /// A unit began with this share.
    pub(crate) fn granted(&self, lease: Lease, job: Uuid, share: Share) {
        let mut state = self.state.lock();
        state.shares.insert(lease, share);
        state.jobs.insert(lease, job);
    }

    pub(crate) fn share_changed(&self, agent: &str, lease: Lease, share: Share) {
        let mut state = self.state.lock();
        state.shares.insert(lease, share);
        state
            .untold
            .entry(agent.to_owned())
            .or_default()
            .insert(lease, share);
    }

    /// Leases that are no more are forgotten.
    pub(crate) fn keep(&self, is_held: impl Fn(&Lease) -> bool) {
        let mut state = self.state.lock();
        state.shares.retain(|lease, _| is_held(lease));
        state.jobs.retain(|lease, _| is_held(lease));
        state
            .reports
            .retain(|lease, (at, _)| is_held(lease) || at.elapsed() < REPORT_LIFE);
        for untold in state.untold.values_mut() {
            untold.retain(|lease, _| is_held(lease));
        }
    }

    /// What agents reported since the last call.
    pub(crate) fn reports_since(&self, since: Instant) -> Vec<UnitProgress> {
        let state = self.state.lock();
        let fresh = state.reports.values().filter(|(at, _)| *at >= since);
        fresh.map(|(_, report)| report.clone()).collect()
    }

    pub(crate) fn set_why(&self, why: HashMap<Uuid, Vec<Why>>) {
        self.state.lock().why = why;
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        let mut state = self.state.lock();
        state.leads = leads;
        if !leads {
            (state.shares, state.untold) = Default::default();
            state.why.clear();
        }
    }
}
