//! What the leader, the gateway and the API of one process tell each other, in memory.
//!
//! Nothing here must outlive the process: what is lost comes again with the next polls of agents
//! and the next look at the database.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use godwit_service_api::{
    agent::{Lease, Share},
    why::WhyCode,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use super::history::{History, Sample};
use crate::{
    metrics::Metrics,
    store::{
        browsing::{AgentReach, WaitingBrowse},
        model::{JobNow, LinkTally},
    },
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
    agents: HashMap<String, Known>,
    /// How many are under way.
    polls: HashMap<String, u32>,
    /// What agents were told that their units may use.
    told: HashMap<String, Vec<(Lease, Share)>>,
    jobs: HashMap<Uuid, JobNow>,
    /// Files that ended and that the database has not counted by pair of endpoints.
    links: BTreeMap<i64, LinkTally>,
    history: History,
    /// Directories that users wait to look into, and that no agent has taken.
    browses: HashMap<Uuid, WaitingBrowse>,
}

/// An agent that has polled this process.
#[derive(Default)]
struct Known {
    wake: Arc<Notify>,
    reach: AgentReach,
}

impl Known {
    fn may_look(&self, browse: &WaitingBrowse) -> bool {
        self.reach.may_look(&browse.endpoints, &browse.labels)
    }
}

impl Boarded {
    fn wake_for(&self, browse: &WaitingBrowse) {
        let agents = self.agents.values();
        let agents = agents.filter(|known| known.may_look(browse));
        agents.for_each(|known| known.wake.notify_waiters());
    }
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

    /// What each of these jobs waits for first; `None`: it moves, or nothing is known of it.
    pub(crate) fn hindrances(&self, jobs: &[Uuid]) -> Vec<Option<WhyCode>> {
        let state = self.state.lock();
        let of = |job: &Uuid| {
            let now = state.jobs.get(job).filter(|now| now.goodput <= 0.0)?;
            now.why.first().map(|why| why.code)
        };
        jobs.iter().map(of).collect()
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

    /// What wakes polls of an agent, which reaches this.
    pub(crate) fn agent(&self, name: &str, reach: AgentReach) -> Arc<Notify> {
        let mut state = self.state.lock();
        let known = state.agents.entry(name.to_owned()).or_default();
        known.reach = reach;
        Arc::clone(&known.wake)
    }

    pub(crate) fn wake_agent(&self, name: &str) {
        if let Some(agent) = self.state.lock().agents.get(name) {
            agent.wake.notify_waiters();
        }
    }

    /// A user waits to look into a directory: agents that may look poll again.
    pub(crate) fn browse_came(&self, browse: WaitingBrowse) {
        let mut state = self.state.lock();
        state.wake_for(&browse);
        state.browses.insert(browse.id, browse);
    }

    /// Those are all that wait by the database: agents look for those that are new.
    pub(crate) fn set_browses(&self, waiting: Vec<WaitingBrowse>) {
        let mut state = self.state.lock();
        for browse in &waiting {
            if !state.browses.contains_key(&browse.id) {
                state.wake_for(browse);
            }
        }
        let waiting = waiting.into_iter().map(|browse| (browse.id, browse));
        state.browses = waiting.collect();
    }

    /// The agent may get one.
    pub(crate) fn browse_waits_for(&self, agent: &str) -> bool {
        let state = self.state.lock();
        let known = state.agents.get(agent);
        let mut browses = state.browses.values();
        known.is_some_and(|known| browses.any(|browse| known.may_look(browse)))
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
    use godwit_service_api::agent::AgentDescription;

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

    #[tokio::test]
    async fn a_question_wakes_the_agents_that_may_look_and_no_others() {
        let board = Board::default();
        let reach = |endpoint: &str, label: &str| {
            AgentReach::of(&AgentDescription {
                endpoints: vec![endpoint.to_owned()],
                labels: vec![label.to_owned()],
                ..AgentDescription::default()
            })
        };
        let agents = [
            ("a", "ftp://*", "x"),
            ("b", "ftp://*", "y"),
            ("c", "gsiftp://*", "x"),
        ];
        let wakes = agents.map(|(name, endpoint, label)| board.agent(name, reach(endpoint, label)));
        let browse = |id, labels: &[&str]| WaitingBrowse {
            id: Uuid::from_u128(id),
            endpoints: vec!["ftp://h".to_owned()],
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        };
        let woken = async |wakes: &[Arc<Notify>; 3], come: &dyn Fn()| {
            let mut waiting = wakes.each_ref().map(|wake| Box::pin(wake.notified()));
            waiting
                .iter_mut()
                .for_each(|wait| _ = wait.as_mut().enable());
            come();
            let mut is_woken = [false; 3];
            for (wait, is_woken) in waiting.iter_mut().zip(&mut is_woken) {
                let at_once = tokio::time::timeout(Default::default(), wait.as_mut());
                *is_woken = at_once.await.is_ok();
            }
            is_woken
        };
        let with_label = browse(1, &["x"]);
        let come = || board.browse_came(with_label.clone());
        assert_eq!(woken(&wakes, &come).await, [true, false, false]);
        let known = || board.set_browses(vec![with_label.clone()]);
        assert_eq!(woken(&wakes, &known).await, [false; 3]);
        assert!(board.browse_waits_for("a") && !board.browse_waits_for("b"));
        let both = || board.set_browses(vec![with_label.clone(), browse(2, &[])]);
        assert_eq!(woken(&wakes, &both).await, [true, true, false]);
        assert!(board.browse_waits_for("b") && !board.browse_waits_for("c"));
        board.set_browses(Vec::new());
        assert!(!board.browse_waits_for("a"));
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
