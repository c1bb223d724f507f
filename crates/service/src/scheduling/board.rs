//! What the leader, the gateway and the API of one process tell each other, in memory.
//!
//! Nothing here must outlive the process: what is lost comes again with the next polls of agents
//! and the next look at the database.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use godwit_service_api::agent::{Lease, Share};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use super::history::{History, Sample};
use crate::{
    metrics::Metrics,
    store::model::{JobNow, LinkTally},
};

/// Changed jobs that a slow reader may be behind.
const CHANGES: usize = 1024;

/// Polls of an agent at a time. It sends one, and perhaps another in place of one that it gave up.
pub(crate) const POLLS_MAX: u32 = 4;

/// A poll that is under way.
pub(crate) struct PollPermit {
    board: Arc<Board>,
    agent: String,
}

impl Drop for PollPermit {
    fn drop(&mut self) {
        let mut state = self.board.state.lock();
        if let Some(polls) = state.polls.get_mut(&self.agent) {
            *polls -= 1;
            if *polls == 0 {
                state.polls.remove(&self.agent);
            }
        }
    }
}

/// Shared by all parts of a process.
pub struct Board {
    leader: Notify,
    changes: broadcast::Sender<Uuid>,
    metrics: Arc<Metrics>,
    state: Mutex<Boarded>,
}

#[derive(Default)]
struct Boarded {
    leads: bool,
    /// Units became ready since the leader read the queues.
    has_new_work: bool,
    /// Units were ready when it did, and some were left.
    work_waits: bool,
    /// What agents hold, as a node that does not lead has seen it last.
    held: HashSet<(String, Lease)>,
    agents: HashMap<String, Arc<Notify>>,
    /// How many are under way.
    polls: HashMap<String, u32>,
    /// What agents were told that their units may use.
    told: HashMap<String, Vec<(Lease, Share)>>,
    jobs: HashMap<Uuid, JobNow>,
    /// Files that ended and that the database has not counted by pair of endpoints.
    links: BTreeMap<i64, LinkTally>,
    history: History,
    /// Directories that users wait to look into, and that no agent has taken.
    browses: HashSet<Uuid>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            leader: Notify::new(),
            changes: broadcast::Sender::new(CHANGES),
            metrics: Arc::default(),
            state: Mutex::default(),
        }
    }
}

impl Board {
    /// What the process has done.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What was taken is free: the leader looks at once.
    pub fn wake_leader(&self) {
        // Another node looks every second.
        if self.leads() {
            self.leader.notify_one();
        }
    }

    /// There is new work: the leader reads the queues at once.
    pub fn work_came(&self) {
        self.state.lock().has_new_work = true;
        self.wake_leader();
    }

    /// Something of a job changed: readers of its events look, and agents that may have to stop
    /// poll again.
    pub fn job_changed(&self, job: Uuid) {
        // Nobody reads.
        let _ = self.changes.send(job);
    }

    /// A job was canceled, paused or resumed, of which these agents hold units.
    pub fn job_steered(&self, job: Uuid, agents: &[String]) {
        self.job_changed(job);
        self.work_came();
        agents.iter().for_each(|agent| self.wake_agent(agent));
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

    /// How fast a job was and with what, since this process began to see it move.
    pub(crate) fn history(&self, job: Uuid) -> Vec<Sample> {
        self.state.lock().history.of(job)
    }

    /// Takes down how fast jobs are now.
    pub(crate) fn take_samples(&self) {
        let mut state = self.state.lock();
        let Boarded { jobs, history, .. } = &mut *state;
        history.take(jobs);
    }

    /// Files between pairs of endpoints ended.
    pub(crate) fn count_links(&self, links: BTreeMap<i64, LinkTally>) {
        if links.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for (link, tally) in links {
            let all = state.links.entry(link).or_default();
            all.finished += tally.finished;
            all.failed += tally.failed;
            all.bytes = all.bytes.saturating_add(tally.bytes);
        }
    }

    /// All that was counted since this was asked last.
    pub(crate) fn take_links(&self) -> BTreeMap<i64, LinkTally> {
        std::mem::take(&mut self.state.lock().links)
    }

    /// This process leads.
    pub fn leads(&self) -> bool {
        self.state.lock().leads
    }

    pub(crate) async fn leader_woken(&self) {
        self.leader.notified().await;
    }

    /// Counts a poll of an agent; `None`: there are too many.
    pub(crate) fn enter_poll(self: &Arc<Self>, agent: &str) -> Option<PollPermit> {
        let mut state = self.state.lock();
        let polls = state.polls.entry(agent.to_owned()).or_default();
        if *polls >= POLLS_MAX {
            return None;
        }
        *polls += 1;
        Some(PollPermit {
            board: Arc::clone(self),
            agent: agent.to_owned(),
        })
    }

    /// What wakes polls of an agent.
    pub(crate) fn agent(&self, name: &str) -> Arc<Notify> {
        let mut state = self.state.lock();
        Arc::clone(state.agents.entry(name.to_owned()).or_default())
    }

    pub(crate) fn wake_agent(&self, name: &str) {
        let agent = self.state.lock().agents.get(name).cloned();
        if let Some(agent) = agent {
            agent.notify_waiters();
        }
    }

    /// A user waits to look into a directory.
    pub(crate) fn browse_came(&self, id: Uuid) {
        self.state.lock().browses.insert(id);
        self.wake_agents();
    }

    /// Those are all that wait by the database: agents look for those that are new.
    pub(crate) fn set_browses(&self, waiting: Vec<Uuid>) {
        let waiting: HashSet<Uuid> = waiting.into_iter().collect();
        let before = std::mem::replace(&mut self.state.lock().browses, waiting.clone());
        if !waiting.is_subset(&before) {
            self.wake_agents();
        }
    }

    /// An agent may get one.
    pub(crate) fn browses_wait(&self) -> bool {
        !self.state.lock().browses.is_empty()
    }

    fn wake_agents(&self) {
        let state = self.state.lock();
        state
            .agents
            .values()
            .for_each(|agent| agent.notify_waiters());
    }

    /// Whether shares changed since the agent was told.
    pub(crate) fn are_news(&self, agent: &str, shares: &[(Lease, Share)]) -> bool {
        let mut state = self.state.lock();
        let told = state.told.entry(agent.to_owned()).or_default();
        let are_news = shares.iter().any(|share| !told.contains(share));
        *told = shares.to_vec();
        are_news
    }

    /// Units became ready since this was asked last.
    pub(crate) fn take_new_work(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_new_work)
    }

    /// An agent with a free slot may get something.
    pub(crate) fn work_waits(&self) -> bool {
        self.state.lock().work_waits
    }

    pub(crate) fn set_work_waits(&self, waits: bool) {
        self.state.lock().work_waits = waits;
    }

    /// What agents hold by the database: those with a new unit look for it.
    pub(crate) fn held_are(&self, held: HashSet<(String, Lease)>) {
        let mut state = self.state.lock();
        let new: HashSet<String> = (held.difference(&state.held))
            .map(|(agent, _)| agent.clone())
            .collect();
        state.held = held;
        drop(state);
        new.iter().for_each(|agent| self.wake_agent(agent));
    }

    pub(crate) fn set_jobs(&self, jobs: HashMap<Uuid, JobNow>) {
        self.state.lock().jobs = jobs;
    }

    /// What changed of that; `None`: there is nothing to say.
    pub(crate) fn change_jobs(&self, changes: Vec<(Uuid, Option<JobNow>)>) {
        let mut state = self.state.lock();
        for (job, now) in changes {
            match now {
                Some(now) => drop(state.jobs.insert(job, now)),
                None => drop(state.jobs.remove(&job)),
            }
        }
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        self.state.lock().leads = leads;
        if !leads {
            self.metrics.set_fleet(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_of_an_agent_are_limited_while_they_last() {
        let board = Arc::<Board>::default();
        let polls: Vec<_> = (0..POLLS_MAX).map(|_| board.enter_poll("a")).collect();
        assert!(polls.iter().all(Option::is_some) && board.enter_poll("a").is_none());
        assert!(board.enter_poll("b").is_some());
        drop(polls);
        assert!(board.enter_poll("a").is_some() && board.state.lock().polls.is_empty());
    }

    #[test]
    fn a_share_is_news_once() {
        let (board, lease) = (Board::default(), Lease { unit: 1, epoch: 1 });
        let share = |concurrency| Share {
            concurrency,
            parallelism: 1,
        };
        assert!(board.are_news("a", &[(lease, share(1))]));
        assert!(!board.are_news("a", &[(lease, share(1))]));
        assert!(board.are_news("a", &[(lease, share(2))]));
    }
}
