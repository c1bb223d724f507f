//! What the leader, the gateway and the API of one process tell each other, in memory.
//!
//! Nothing here must outlive the process: what is lost comes again with the next polls of agents
//! and the next look at the database.

use std::{collections::HashMap, sync::Arc};

use godwit_service_api::agent::{Lease, Share};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use crate::store::model::JobNow;

/// Changed jobs that a slow reader may be behind.
const CHANGES: usize = 1024;

/// Shared by all parts of a process.
pub struct Board {
    leader: Notify,
    changes: broadcast::Sender<Uuid>,
    state: Mutex<Boarded>,
}

#[derive(Default)]
struct Boarded {
    leads: bool,
    agents: HashMap<String, Arc<Notify>>,
    /// What agents were told that their units may use.
    told: HashMap<String, Vec<(Lease, Share)>>,
    jobs: HashMap<Uuid, JobNow>,
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

    /// Why a job waits or is slow, and how fast it is, as the leader said within the last seconds.
    pub fn job(&self, job: Uuid) -> JobNow {
        self.state
            .lock()
            .jobs
            .get(&job)
            .cloned()
            .unwrap_or_default()
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

    /// Shares that changed since the agent was told.
    pub(crate) fn untold(&self, agent: &str, shares: Vec<(Lease, Share)>) -> Vec<(Lease, Share)> {
        let mut state = self.state.lock();
        let told = state.told.entry(agent.to_owned()).or_default();
        let untold = shares.iter().filter(|share| !told.contains(share));
        let untold = untold.copied().collect();
        *told = shares;
        untold
    }

    pub(crate) fn set_jobs(&self, jobs: HashMap<Uuid, JobNow>) {
        self.state.lock().jobs = jobs;
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        self.state.lock().leads = leads;
    }
}
