//! The scheduler: its state, what callers tell it of agents and queues.

mod leases;
mod reasons;
mod step;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    agents::{Agents, ClassId, NoAgent},
    budget::Shortage,
    line::{At, Domain, Lane, Line, NodeId},
    model::{
        AgentState, Class, Config, EndpointName, EndpointState, Hold, LeaseId, QueueKey, QueueState,
    },
    places::{LinkId, Places},
    tree::{NodeName, Reached, Tree},
};
use leases::Lease;

/// A job that waited so long is put level with the last one that was served.
const AGED: Duration = Duration::from_secs(1800);

#[derive(Debug)]
struct Queue {
    key: QueueKey,
    state: QueueState,
    link: LinkId,
    leaf: NodeId,
    job: NodeId,
    owner: NodeId,
    domains: Vec<Domain>,
    /// Of agents that it can go to.
    group: u32,
    is_active: bool,
    /// Since when it waits for its next grant.
    waits_since: Duration,
    /// When it is seen whether it has waited for too long.
    ages_at: Option<Duration>,
    /// What its next unit waits for.
    waits_at: Option<At>,
    /// The same, where it is the first of its job.
    first_waits_at: Option<At>,
}

impl Queue {
    /// In which it waits whether or not its next unit is the first of its job.
    fn lane(&self) -> Lane {
        match self.state.class {
            Class::Scavenger => Lane::Scavenger,
            Class::Urgent | Class::Normal => Lane::Fair,
        }
    }

    fn waits_in(&self, lane: Lane) -> Option<At> {
        match lane {
            Lane::Fast => self.first_waits_at,
            Lane::Fair | Lane::Scavenger => self.waits_at,
        }
    }
}

/// What keeps a queue from starting a unit.
#[derive(Debug)]
enum Blocked {
    Hold(Hold),
    RetryAt(Duration),
    State(u32, EndpointState),
    Share(Reached),
    Endpoint(u32, Shortage),
    Link(Shortage),
    PathFull {
        /// `None`: the link's own sum.
        endpoint: Option<u32>,
        channels: u32,
        units: u32,
    },
    /// Others wait for the endpoint.
    LeftOver(u32),
    /// Others have the link.
    Beside,
    /// It is not the first unit of the job, or the share has enough of them.
    NotFirst(NodeId),
    Agents(NoAgent),
}

/// The scheduler. See the crate's contract.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    tree: Tree,
    places: Places,
    agents: Agents,
    /// Rises when agents may reach other things than before.
    agents_version: u64,
    /// The version by which queues have their groups.
    grouped: u64,
    groups: Vec<Vec<ClassId>>,
    group_of: BTreeMap<Vec<ClassId>, u32>,
    /// Groups with an idle agent, and the idle classes that say so.
    open: Vec<u32>,
    open_for: BTreeSet<ClassId>,
    ids: BTreeMap<QueueKey, u32>,
    queues: BTreeMap<u32, Queue>,
    by_leaf: BTreeMap<NodeId, u32>,
    queues_made: u32,
    active: BTreeSet<u32>,
    delayed: BTreeSet<(Duration, u32)>,
    leases: BTreeMap<LeaseId, Lease>,
    leases_made: u64,
    /// First units that run, by share.
    fast: BTreeMap<NodeId, u32>,
    /// Where something was freed, and queues wait.
    freed: BTreeSet<(Lane, At)>,
    /// When rates have room again.
    refills: BTreeSet<(Duration, At)>,
    /// When it is seen which queues have waited for too long.
    ageing: BTreeSet<(Duration, u32)>,
    now: Duration,
    relaxed: Duration,
    collected: Duration,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Scheduler {
    /// Without agents and queues.
    pub fn new(config: Config) -> Self {
        let mut scheduler = Self {
            config: Config::default(),
            tree: Tree::new(),
            places: Places::default(),
            agents: Agents::default(),
            agents_version: 1,
            grouped: 1,
            groups: Vec::new(),
            group_of: BTreeMap::new(),
            open: Vec::new(),
            open_for: BTreeSet::new(),
            ids: BTreeMap::new(),
            queues: BTreeMap::new(),
            by_leaf: BTreeMap::new(),
            queues_made: 0,
            active: BTreeSet::new(),
            delayed: BTreeSet::new(),
            leases: BTreeMap::new(),
            leases_made: 0,
            fast: BTreeMap::new(),
            freed: BTreeSet::new(),
            refills: BTreeSet::new(),
            ageing: BTreeSet::new(),
            now: Duration::ZERO,
            relaxed: Duration::ZERO,
            collected: Duration::ZERO,
        };
        scheduler.configure(config);
        scheduler
    }

    /// Replaces the configuration. Units beyond its limits continue.
    pub fn configure(&mut self, config: Config) {
        if self.config == config {
            return;
        }
        self.tree.configure(&config.shares);
        self.places.configure(&config);
        self.agents.set_hosts(&config.hosts);
        self.config = config;
        for id in self.active.clone() {
            self.stand_up(id);
            self.line_up(id);
        }
    }

    /// An agent is alive, and this is what it is.
    pub fn set_agent(&mut self, name: &str, state: AgentState) {
        self.agents_version += u64::from(self.agents.set(name, state));
    }

    /// An agent is gone. Its leases end by [`Scheduler::lease_ended`].
    pub fn remove_agent(&mut self, name: &str) {
        self.agents.remove(name);
    }

    /// What waits in a queue now, whatever was known of it.
    pub fn set_queue(&mut self, key: &QueueKey, state: QueueState) {
        if let Some(id) = self.ids.get(key).copied() {
            let old = &self.queues[&id].state;
            if *old == state {
                return;
            }
            let scavenger = |state: &QueueState| state.class == Class::Scavenger;
            if old.share == state.share && scavenger(old) == scavenger(&state) {
                self.replace_state(id, state);
                return;
            }
            self.remove_queue(key);
        }
        let (link, domains) = self.place(key, state.class);
        self.places.hold(link);
        let owner = self.tree.share(&state.share);
        let job = self.tree.child(owner, NodeName::Job(key.job));
        let id = self.queues_made;
        self.queues_made += 1;
        let leaf = self.tree.child(job, NodeName::Queue(id));
        self.tree.hold(leaf);
        self.ids.insert(key.clone(), id);
        self.by_leaf.insert(leaf, id);
        let queue = Queue {
            key: key.clone(),
            state: QueueState::default(),
            link,
            leaf,
            job,
            owner,
            domains,
            group: 0,
            is_active: false,
            waits_since: state.created,
            ages_at: None,
            waits_at: None,
            first_waits_at: None,
        };
        self.queues.insert(id, queue);
        self.replace_state(id, state);
    }

    /// A queue is empty for good.
    pub fn remove_queue(&mut self, key: &QueueKey) {
        let Some(id) = self.ids.remove(key) else {
            return;
        };
        self.replace_state(id, QueueState::default());
        if let Some(queue) = self.queues.remove(&id) {
            if let Some(at) = queue.ages_at {
                self.ageing.remove(&(at, id));
            }
            self.by_leaf.remove(&queue.leaf);
            self.tree.release(queue.leaf);
            self.places.release(queue.link);
        }
    }

    fn place(&mut self, key: &QueueKey, class: Class) -> (LinkId, Vec<Domain>) {
        let link = (
            self.places.id(&key.source),
            self.places.id(&key.destination),
        );
        let scavenger = class == Class::Scavenger;
        let mut endpoints = vec![None, Some(link.0), Some(link.1)];
        endpoints.dedup();
        let domains = endpoints.into_iter().map(|endpoint| Domain {
            endpoint,
            scavenger,
        });
        (link, domains.collect())
    }

    fn replace_state(&mut self, id: u32, state: QueueState) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        if let Some(at) = queue.state.not_before {
            self.delayed.remove(&(at, id));
        }
        let is_other = queue.state.labels != state.labels
            || queue.state.unit_bytes != state.unit_bytes
            || queue.state.started_any != state.started_any;
        if is_other {
            self.stand_up(id);
        }
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        self.tree
            .set_weight(queue.job, weight_of_priority(state.priority));
        queue.state = state;
        if let Some(at) = queue.state.not_before.filter(|at| *at > self.now) {
            self.delayed.insert((at, id));
        }
        self.regroup(id);
        self.set_active(id);
    }

    /// Enters or leaves the competition, as the state of the queue says.
    fn set_active(&mut self, id: u32) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let state = &queue.state;
        let waits = state.not_before.is_some_and(|at| at > self.now);
        let is_active = state.ready > 0 && state.hold.is_none() && !waits;
        if is_active && !queue.is_active {
            queue.is_active = true;
            queue.waits_since = queue.waits_since.max(self.now);
            if queue.ages_at.is_none() {
                let at = queue.waits_since + AGED;
                queue.ages_at = Some(at);
                self.ageing.insert((at, id));
            }
            self.tree.activate(queue.leaf, &queue.domains);
            self.active.insert(id);
        }
        if is_active {
            self.line_up(id);
        } else if queue.is_active {
            self.stand_up(id);
            self.leave_active(id);
        }
    }

    fn leave_active(&mut self, id: u32) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.is_active = false;
            self.tree.deactivate(queue.leaf, &queue.domains);
            self.active.remove(&id);
        }
    }

    /// Waits for a slot first: what else it must wait for is seen when its turn comes.
    fn line_up(&mut self, id: u32) {
        let queue = &self.queues[&id];
        let lane = queue.lane();
        let is_first = !queue.state.started_any && lane == Lane::Fair;
        let (place, first) = (queue.waits_at, queue.first_waits_at);
        self.wait_at(id, lane, place.or(Some(At::Slots)));
        let first = first.or(Some(At::Slots)).filter(|_| is_first);
        self.wait_at(id, Lane::Fast, first);
    }

    /// Waits for nothing.
    fn stand_up(&mut self, id: u32) {
        let lane = self.queues[&id].lane();
        self.wait_at(id, lane, None);
        self.wait_at(id, Lane::Fast, None);
    }

    /// Moves the queue to another line.
    fn wait_at(&mut self, id: u32, lane: Lane, to: Option<At>) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let seat = match lane {
            Lane::Fast => &mut queue.first_waits_at,
            Lane::Fair | Lane::Scavenger => &mut queue.waits_at,
        };
        let from = std::mem::replace(seat, to);
        if from == to {
            return;
        }
        let (leaf, group, link) = (queue.leaf, queue.group, queue.link);
        let is_own_lane = lane == queue.lane();
        if let Some(at) = from {
            self.tree.leave(leaf, Line::new(lane, at, group));
            // Nothing is kept for a queue that waits elsewhere.
            for end in [link.0, link.1].into_iter().filter(|_| is_own_lane) {
                let place = self.places.endpoints.get_mut(&end);
                let kept = place.and_then(|place| place.kept.take_if(|kept| kept.queue == id));
                if kept.is_some() {
                    self.wake(At::Endpoint(end));
                }
            }
            for endpoint in waited_for(lane, at) {
                let place = self.places.endpoints.get_mut(&endpoint);
                let place = place.expect("queues hold their endpoints");
                place.waiting -= 1;
                if place.waiting == 0 {
                    // Scavengers may start.
                    self.wake(At::Endpoint(endpoint));
                }
            }
        }
        if let Some(at) = to {
            self.tree.join(leaf, Line::new(lane, at, group));
            for endpoint in waited_for(lane, at) {
                if let Some(place) = self.places.endpoints.get_mut(&endpoint) {
                    place.waiting += 1;
                }
            }
        }
    }

    /// Something was freed: the next step looks at those that wait for it.
    fn wake(&mut self, at: At) {
        for lane in Lane::ALL {
            if self.tree.has_waiting(lane, at) {
                self.freed.insert((lane, at));
            }
        }
    }

    /// The queue goes to the agents that there are now.
    fn regroup(&mut self, id: u32) {
        let group = self.find_group(id);
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        if queue.group == group {
            return;
        }
        let (lane, waits_at, first) = (queue.lane(), queue.waits_at, queue.first_waits_at);
        self.stand_up(id);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.group = group;
        }
        self.wait_at(id, lane, waits_at);
        self.wait_at(id, Lane::Fast, first);
    }

    /// The agents that the queue can go to.
    fn find_group(&mut self, id: u32) -> u32 {
        let queue = &self.queues[&id];
        let (link, labels) = (queue.link, &queue.state.labels);
        let version = self.agents_version;
        let known = self.places.links.get(&link);
        if let Some((of, group)) = known.and_then(|place| place.reach.get(labels))
            && *of == version
        {
            return *group;
        }
        let ends = [link.0, link.1].map(|id| (id, &**self.places.name(id)));
        let classes = self.agents.classes(ends, labels);
        let next = u32::try_from(self.groups.len()).expect("fewer groups than memory holds");
        let group = *self.group_of.entry(classes).or_insert_with_key(|classes| {
            self.groups.push(classes.clone());
            next
        });
        if let Some(place) = self.places.links.get_mut(&link) {
            place.reach.insert(labels.clone(), (version, group));
        }
        // A new group may have an idle agent already.
        self.open_for.clear();
        group
    }

    /// Sees which groups have an agent that is idle for a lane; says whether that has changed.
    fn find_open(&mut self, lane: Lane) -> bool {
        let idle = self.agents.idle(lane);
        if *idle == self.open_for {
            return false;
        }
        self.open_for.clone_from(idle);
        let groups = (0_u32..).zip(&self.groups);
        let open = groups.filter(|(_, classes)| classes.iter().any(|class| idle.contains(class)));
        let open = open.map(|(group, _)| group).collect();
        let before = std::mem::replace(&mut self.open, open);
        before != self.open
    }

    /// An endpoint refused a session beside so many: no more are opened for a while.
    pub fn session_refused(&mut self, endpoint: &EndpointName, beside: u32, now: Duration) {
        self.advance(now);
        let id = self.places.known(endpoint);
        if let Some(place) = id.and_then(|id| self.places.endpoints.get_mut(&id)) {
            place.budget.refused(beside, now);
        }
    }

    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn wake_link(&mut self, link: LinkId) {
        self.wake(At::Endpoint(link.0));
        self.wake(At::Endpoint(link.1));
        self.wake(At::Link(link));
    }
}

#[cfg(test)]
impl Scheduler {
    /// Shares and jobs, queues, active and delayed ones, leases, endpoints, links.
    pub(crate) fn sizes(&self) -> [usize; 7] {
        [
            self.tree.len(),
            self.queues.len() + self.ids.len() + self.by_leaf.len(),
            self.active.len(),
            self.delayed.len(),
            self.leases.len() + self.fast.len(),
            self.places.endpoints.len(),
            self.places.links.len(),
        ]
    }
}

/// Endpoints that a queue keeps from scavengers while it waits there.
fn waited_for(lane: Lane, at: At) -> impl Iterator<Item = u32> {
    let ends = match at {
        At::Endpoint(endpoint) => [Some(endpoint), None],
        At::Link((source, destination)) => {
            let other = (source != destination).then_some(destination);
            [Some(source), other]
        }
        At::Slots | At::Freed | At::Node(_) => [None, None],
    };
    let counts = lane == Lane::Fair;
    ends.into_iter().flatten().filter(move |_| counts)
}

/// Each priority weighs twice the one below it.
fn weight_of_priority(priority: u8) -> f64 {
    f64::from(1_u32 << priority.clamp(1, 5)) / 8.0
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and a fraction is not negative"
)]
fn part(fraction: f64, limit: u32) -> u32 {
    (fraction * f64::from(limit)).round() as u32
}
