//! The scheduler: its state, and the step that hands out what is free.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use godwit_tune::Setting;

use crate::{
    agents::{Agents, NoAgent},
    allotment::{Taker, allot, split},
    budget::Shortage,
    model::{
        AgentState, Class, Config, EndpointName, EndpointState, FILE_COST, Grant, Hold, LeaseId,
        LeaseReport, QueueKey, QueueState, Share, StartedLease,
    },
    places::{LinkId, Place, Places},
    selection::Selection,
    tree::{Domain, NodeId, NodeName, Reached, Tree},
    why::{Reason, TakenLimit},
};

/// A domain counts as contended for so long after somebody waited for it.
const CONTENDED: Duration = Duration::from_secs(30);
/// A job that waited so long is put level with the last one that was served.
const AGED: Duration = Duration::from_secs(1800);
/// Without changes there is still a step so often: rates and learned limits recover.
const IDLE_STEP: Duration = Duration::from_secs(1);
/// How often what nothing names any more is removed.
const COLLECT: Duration = Duration::from_secs(600);
/// First units of a share that may run before its turn.
const FAST_UNITS: u32 = 2;
/// Units that may run on a link whatever its tuned sum says.
const LEAST_UNITS: u32 = 4;
/// More units than the tuned sum has channels that first units may be.
const FAST_BEYOND: u32 = 8;
/// Channels of a unit on a path of which nothing is known.
const FIRST_CHANNELS: u32 = 2;
/// How many holders of a limit a reason names.
const HOLDERS: usize = 3;
/// Most sessions and channels that a report is believed.
const REPORTED_MAX: u32 = 4096;

#[derive(Debug)]
struct Queue {
    key: QueueKey,
    state: QueueState,
    link: LinkId,
    leaf: NodeId,
    job: NodeId,
    owner: NodeId,
    domains: Vec<Domain>,
    is_active: bool,
    /// Since when it waits for its next grant.
    waits_since: Duration,
    /// The pass of a step in which it was found to be blocked.
    blocked_in: u64,
}

#[derive(Debug)]
struct Lease {
    key: QueueKey,
    link: LinkId,
    job: NodeId,
    owner: NodeId,
    domains: Vec<Domain>,
    scavenger: bool,
    fast: bool,
    agent: String,
    bytes: u64,
    files: u32,
    /// Cost over which weights were divided: of class and deadline.
    boost: f64,
    share: Share,
    /// Sessions and channels that it may be using.
    held: (u32, u32),
    limited_by: Option<String>,
    /// Bytes a second, by the last report.
    goodput: f64,
    /// Bytes that reports said so far, and when the last one came.
    reported: f64,
    reported_at: Duration,
    /// Bytes that were added to sums, which run on at the last goodput between reports.
    counted: f64,
}

/// Which queues a pass of a step looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// First units of jobs.
    Fast,
    /// All but scavengers.
    Fair,
    Scavenger,
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
    PathFull { channels: u32, units: u32 },
    LeftOver,
    Agents(NoAgent),
}

/// Sessions and channels that are free for a unit, and who takes it.
struct Opening {
    sessions: u32,
    channels: u32,
    agent: String,
}

/// Who gets what. See the crate's contract.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    tree: Tree,
    places: Places,
    agents: Agents,
    /// Rises when agents may reach other things than before.
    agents_version: u64,
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
    contended: BTreeMap<Domain, Duration>,
    /// What others than scavengers waited for in the last step.
    wanted: BTreeSet<u32>,
    wanted_agents: BTreeSet<usize>,
    now: Duration,
    passes: u64,
    is_changed: bool,
    stepped: Duration,
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
            ids: BTreeMap::new(),
            queues: BTreeMap::new(),
            by_leaf: BTreeMap::new(),
            queues_made: 0,
            active: BTreeSet::new(),
            delayed: BTreeSet::new(),
            leases: BTreeMap::new(),
            leases_made: 0,
            fast: BTreeMap::new(),
            contended: BTreeMap::new(),
            wanted: BTreeSet::new(),
            wanted_agents: BTreeSet::new(),
            now: Duration::ZERO,
            passes: 0,
            is_changed: true,
            stepped: Duration::ZERO,
            collected: Duration::ZERO,
        };
        scheduler.configure(config);
        scheduler
    }

    /// Puts this configuration in the place of the one before. What runs beyond it goes on.
    pub fn configure(&mut self, config: Config) {
        self.tree.configure(&config.shares);
        self.places.configure(&config);
        self.agents.set_hosts(&config.hosts);
        self.config = config;
        self.is_changed = true;
    }

    /// An agent is alive, and this is what it is.
    pub fn set_agent(&mut self, name: &str, state: AgentState) {
        self.agents_version += u64::from(self.agents.set(name, state));
        self.is_changed = true;
    }

    /// An agent is gone. Its leases end by [`Scheduler::lease_ended`].
    pub fn remove_agent(&mut self, name: &str) {
        self.agents.remove(name);
        self.agents_version += 1;
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
            is_active: false,
            waits_since: state.created,
            blocked_in: 0,
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
        self.tree
            .set_weight(queue.job, weight_of_priority(state.priority));
        queue.state = state;
        if let Some(at) = queue.state.not_before.filter(|at| *at > self.now) {
            self.delayed.insert((at, id));
        }
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
        if is_active {
            self.is_changed = true;
        }
        if is_active == queue.is_active {
            return;
        }
        queue.is_active = is_active;
        if is_active {
            queue.waits_since = queue.waits_since.max(self.now);
            self.tree.activate(queue.leaf, &queue.domains);
            self.active.insert(id);
        } else {
            self.tree.deactivate(queue.leaf, &queue.domains);
            self.active.remove(&id);
        }
    }

    /// Counts a unit that runs already, e.g. after a restart of the caller.
    pub fn lease_started(&mut self, lease: StartedLease, now: Duration) -> LeaseId {
        self.advance(now);
        let (link, domains) = self.place(&lease.queue, lease.class);
        let owner = self.tree.share(&lease.path);
        let job = self.tree.child(owner, NodeName::Job(lease.queue.job));
        self.start(Lease {
            key: lease.queue,
            link,
            job,
            owner,
            domains,
            scavenger: lease.class == Class::Scavenger,
            fast: false,
            agent: lease.agent,
            bytes: lease.bytes,
            files: lease.files,
            boost: 1.0,
            share: lease.share,
            held: (lease.share.concurrency, lease.share.channels()),
            limited_by: None,
            goodput: 0.0,
            reported: 0.0,
            reported_at: now,
            counted: 0.0,
        })
    }

    fn start(&mut self, lease: Lease) -> LeaseId {
        self.leases_made += 1;
        let id = LeaseId(self.leases_made);
        self.tree.hold(lease.job);
        self.tree.add_running(lease.job, lease.bytes);
        self.agents.started(&lease.agent);
        self.places.hold(lease.link);
        let now = self.now;
        for place in self.places.of(lease.link) {
            place.leases.insert(id);
            place.budget.units += 1;
            place.budget.sessions += lease.held.0;
            place.budget.channels += lease.held.1;
            let bytes = as_float(lease.bytes);
            place.budget.take(bytes, f64::from(lease.files), now);
        }
        if lease.fast {
            *self.fast.entry(lease.owner).or_default() += 1;
        }
        self.leases.insert(id, lease);
        id
    }

    /// A unit ended, or never began: these bytes and files are what it cost.
    pub fn lease_ended(&mut self, id: LeaseId, bytes: u64, files: u32, now: Duration) {
        self.advance(now);
        let Some(lease) = self.leases.remove(&id) else {
            return;
        };
        self.is_changed = true;
        let difference = cost(bytes, files) - cost(lease.bytes, lease.files);
        self.tree
            .correct(lease.job, &lease.domains, difference / lease.boost);
        self.tree.remove_running(lease.job, lease.bytes);
        self.agents.ended(&lease.agent);
        for place in self.places.of(lease.link) {
            place.leases.remove(&id);
            place.budget.units -= 1;
            place.budget.sessions -= lease.held.0;
            place.budget.channels -= lease.held.1;
            let more = as_float(bytes) - as_float(lease.bytes);
            let files = f64::from(files) - f64::from(lease.files);
            place.budget.take(more, files, self.now);
            if let Some(sum) = &mut place.sum {
                sum.add_bytes(as_float(bytes) - lease.counted);
            }
        }
        if lease.fast
            && let Some(running) = self.fast.get_mut(&lease.owner)
        {
            *running -= 1;
            if *running == 0 {
                self.fast.remove(&lease.owner);
            }
        }
        self.places.release(lease.link);
        self.tree.release(lease.job);
    }

    /// An agent says how a unit does.
    pub fn lease_report(&mut self, id: LeaseId, report: LeaseReport, now: Duration) {
        self.advance(now);
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let seconds = self.now.saturating_sub(lease.reported_at).as_secs_f64();
        lease.goodput = match report.goodput {
            goodput if goodput.is_finite() => goodput.max(0.0),
            _ => 0.0,
        };
        lease.reported += lease.goodput * seconds;
        lease.reported_at = self.now;
        let bytes = lease.reported - lease.counted;
        lease.counted = lease.reported;
        lease.limited_by = report.limited_by;
        let sessions = report.setting.concurrency.min(REPORTED_MAX);
        let channels = report.setting.channels().min(REPORTED_MAX);
        let held = (
            sessions.max(lease.share.concurrency),
            channels.max(lease.share.channels()),
        );
        let before = std::mem::replace(&mut lease.held, held);
        self.is_changed |= held.0 < before.0 || held.1 < before.1;
        for place in self.places.of(lease.link) {
            place.budget.sessions = place.budget.sessions - before.0 + held.0;
            place.budget.channels = place.budget.channels - before.1 + held.1;
            if let Some(sum) = &mut place.sum {
                sum.add_bytes(bytes);
            }
        }
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

    /// Hands out all that is free. Nothing is done where nothing has changed since the last step.
    pub fn step(&mut self, now: Duration) -> Vec<Grant> {
        self.advance(now);
        let now = self.now;
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.remove(&(at, id));
            self.set_active(id);
        }
        if !self.is_changed && now < self.stepped + IDLE_STEP {
            return Vec::new();
        }
        (self.is_changed, self.stepped) = (false, now);
        self.contended.retain(|_, until| *until > now);
        self.wanted.clear();
        self.wanted_agents.clear();
        for place in self.places.endpoints.values_mut() {
            place.waiting = 0;
            place.budget.relax(now);
        }
        if now >= self.collected + COLLECT {
            self.collect();
        }
        let mut grants = Vec::new();
        if !self.agents.any_idle() {
            if !self.active.is_empty() {
                self.mark_contended(None);
            }
            return grants;
        }
        for pass in [Pass::Fast, Pass::Fair, Pass::Scavenger] {
            self.pass(pass, &mut grants);
        }
        grants
    }

    fn collect(&mut self) {
        self.collected = self.now;
        self.places.collect(&self.config);
        let endpoints = &self.places.endpoints;
        let is_alive = |id: u32| endpoints.contains_key(&id);
        self.tree
            .collect(|domain| domain.endpoint.is_none_or(is_alive));
        self.agents.forget_endpoints(is_alive);
        self.contended
            .retain(|domain, _| domain.endpoint.is_none_or(is_alive));
        for link in self.places.links.values_mut() {
            let version = self.agents_version;
            link.reach.retain(|_, (of, _)| *of == version);
        }
    }

    fn mark_contended(&mut self, endpoint: Option<u32>) {
        for scavenger in [false, true] {
            let domain = Domain {
                endpoint,
                scavenger,
            };
            self.contended.insert(domain, self.now + CONTENDED);
        }
    }

    /// Grants to the queues of one pass until none can start anything.
    fn pass(&mut self, pass: Pass, grants: &mut Vec<Grant>) {
        self.passes += 1;
        let mut selections: BTreeMap<Domain, Selection> = BTreeMap::new();
        let candidates: Vec<u32> = self.active.iter().copied().collect();
        for id in candidates {
            if !self.takes_part(id, pass) {
                continue;
            }
            if let Err(blocked) = self.check_places(&self.queues[&id], pass) {
                self.note(id, &blocked);
                continue;
            }
            self.level_if_aged(id);
            let queue = &self.queues[&id];
            for domain in self.competes_in(queue) {
                let selection = selections.entry(domain);
                let selection = selection.or_insert_with(|| Selection::new(domain));
                selection.insert(&self.tree, queue.leaf);
            }
        }
        // No domain is always first.
        let mut domains: Vec<Domain> = selections.keys().copied().collect();
        let first = usize::try_from(self.passes).unwrap_or(0) % domains.len().max(1);
        domains.rotate_left(first);
        while !domains.is_empty() {
            domains.retain(|domain| {
                let Some(mut id) = self.next_in(&mut selections, *domain, pass) else {
                    return false;
                };
                // Where two domains are contended the other one's order is kept, too.
                let others = self.competes_in(&self.queues[&id]);
                if let Some(other) = others.into_iter().find(|other| other != domain)
                    && let Some(first) = self.next_in(&mut selections, other, pass)
                {
                    id = first;
                }
                match self.check(id, pass) {
                    Ok(opening) => {
                        let grant = self.grant(id, opening, pass);
                        grants.push(grant);
                    }
                    Err(blocked) => {
                        self.note(id, &blocked);
                        self.leave_out(id);
                    }
                }
                true
            });
        }
    }

    fn leave_out(&mut self, id: u32) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.blocked_in = self.passes;
        }
    }

    /// The queue whose turn it is in a domain, without those that cannot start anything.
    fn next_in(
        &self,
        selections: &mut BTreeMap<Domain, Selection>,
        domain: Domain,
        pass: Pass,
    ) -> Option<u32> {
        let selection = selections.get_mut(&domain)?;
        while let Some(leaf) = selection.next(&self.tree) {
            let id = self.by_leaf[&leaf];
            let queue = &self.queues[&id];
            if queue.is_active && queue.blocked_in != self.passes && self.takes_part(id, pass) {
                return Some(id);
            }
            selection.remove_next(&self.tree, leaf);
        }
        None
    }

    fn takes_part(&self, id: u32, pass: Pass) -> bool {
        let queue = &self.queues[&id];
        let scavenger = queue.state.class == Class::Scavenger;
        match pass {
            Pass::Fast => !scavenger && self.is_first(queue),
            Pass::Fair => !scavenger,
            Pass::Scavenger => scavenger,
        }
    }

    /// Whether the next unit is the first of its job, and may start before the share's turn.
    fn is_first(&self, queue: &Queue) -> bool {
        let running = self.fast.get(&queue.owner).copied().unwrap_or(0);
        !queue.state.started_any && self.tree.units(queue.job) == 0 && running < FAST_UNITS
    }

    /// The contended domains of a queue decide its turn: agents where they are scarce, otherwise
    /// endpoints.
    fn competes_in(&self, queue: &Queue) -> Vec<Domain> {
        let all = queue.domains[0];
        if self.contended.contains_key(&all) {
            return vec![all];
        }
        let ends = queue.domains[1..].iter().copied();
        let found: Vec<Domain> = ends
            .filter(|domain| self.contended.contains_key(domain))
            .collect();
        if found.is_empty() { vec![all] } else { found }
    }

    fn level_if_aged(&mut self, id: u32) {
        let now = self.now;
        if let Some(queue) = self.queues.get_mut(&id)
            && now >= queue.waits_since + AGED
        {
            queue.waits_since = now;
            self.tree.level(queue.job, &queue.domains);
            self.tree.level(queue.leaf, &queue.domains);
        }
    }

    /// Remembers who waited for what.
    fn note(&mut self, id: u32, blocked: &Blocked) {
        let queue = &self.queues[&id];
        let (link, scavenger) = (queue.link, queue.state.class == Class::Scavenger);
        let places: Vec<u32> = match blocked {
            Blocked::Endpoint(endpoint, _) | Blocked::State(endpoint, _) => vec![*endpoint],
            Blocked::Link(_) | Blocked::PathFull { .. } => vec![link.0, link.1],
            Blocked::Agents(NoAgent::Busy { .. }) => {
                self.mark_contended(None);
                if !scavenger {
                    let classes = self.reach(id);
                    self.wanted_agents.extend(classes);
                }
                return;
            }
            _ => return,
        };
        for endpoint in places {
            self.mark_contended(Some(endpoint));
            if scavenger {
                continue;
            }
            self.wanted.insert(endpoint);
            if let Some(place) = self.places.endpoints.get_mut(&endpoint) {
                place.waiting += 1;
            }
        }
    }

    fn check(&mut self, id: u32, pass: Pass) -> Result<Opening, Blocked> {
        let (sessions, channels) = self.check_places(&self.queues[&id], pass)?;
        let mut classes = self.reach(id);
        let all = classes.len();
        if pass == Pass::Scavenger {
            classes.retain(|class| !self.wanted_agents.contains(class));
        }
        if classes.len() < all && classes.is_empty() {
            return Err(Blocked::LeftOver);
        }
        let agent = self.agents.choose(&classes).map_err(Blocked::Agents)?;
        Ok(Opening {
            sessions,
            channels,
            agent: agent.to_owned(),
        })
    }

    /// Classes of agents that the queue can go to.
    fn reach(&mut self, id: u32) -> Vec<usize> {
        let queue = &self.queues[&id];
        let (link, labels) = (queue.link, &queue.state.labels);
        let version = self.agents_version;
        if let Some(place) = self.places.links.get(&link)
            && let Some((of, classes)) = place.reach.get(labels)
            && *of == version
        {
            return classes.clone();
        }
        let ends = [link.0, link.1].map(|id| (id, &**self.places.name(id)));
        let classes = self.agents.classes(ends, labels);
        if let Some(place) = self.places.links.get_mut(&link) {
            let known = (version, classes.clone());
            place.reach.insert(labels.clone(), known);
        }
        classes
    }

    /// Everything but agents.
    fn check_places(&self, queue: &Queue, pass: Pass) -> Result<(u32, u32), Blocked> {
        let state = &queue.state;
        if let Some(hold) = state.hold {
            return Err(Blocked::Hold(hold));
        }
        if let Some(at) = state.not_before.filter(|at| *at > self.now) {
            return Err(Blocked::RetryAt(at));
        }
        let (source, destination) = queue.link;
        let mut room = (u32::MAX, u32::MAX);
        let least = |room: (u32, u32), more: (u32, u32)| (room.0.min(more.0), room.1.min(more.1));
        for id in [source, destination] {
            let place = &self.places.endpoints[&id];
            let closed = match place.state {
                EndpointState::Open => false,
                EndpointState::Down => place.budget.units > 0,
                EndpointState::Draining | EndpointState::Banned => true,
            };
            if closed {
                return Err(Blocked::State(id, place.state));
            }
        }
        if let Some(reached) = self.tree.limit_reached(queue.leaf, state.unit_bytes) {
            return Err(Blocked::Share(reached));
        }
        for id in [source, destination] {
            let budget = &self.places.endpoints[&id].budget;
            let more = budget
                .room(self.now)
                .map_err(|short| Blocked::Endpoint(id, short))?;
            room = least(room, more);
        }
        let link = &self.places.links[&queue.link];
        room = least(room, link.budget.room(self.now).map_err(Blocked::Link)?);
        self.check_sums(queue.link, pass)?;
        let is_wanted = |id| self.wanted.contains(&id);
        if pass == Pass::Scavenger && (is_wanted(source) || is_wanted(destination)) {
            return Err(Blocked::LeftOver);
        }
        Ok(room)
    }

    /// No more units than the tuned sums have channels, but for a few.
    fn check_sums(&self, link: LinkId, pass: Pass) -> Result<(), Blocked> {
        let beyond = match pass {
            Pass::Fast => FAST_BEYOND,
            Pass::Fair | Pass::Scavenger => 0,
        };
        for place in self.around(link) {
            let Some(setting) = place.tuned() else {
                continue;
            };
            let (channels, units) = (setting.channels(), place.budget.units);
            if units >= channels.max(LEAST_UNITS).saturating_add(beyond) {
                return Err(Blocked::PathFull { channels, units });
            }
        }
        Ok(())
    }

    /// The ends of a link and the link.
    fn around(&self, link: LinkId) -> impl Iterator<Item = &Place> {
        let ends = [link.0, link.1].map(|id| &self.places.endpoints[&id]);
        ends.into_iter().chain(self.places.links.get(&link))
    }

    fn grant(&mut self, id: u32, opening: Opening, pass: Pass) -> Grant {
        let share = self.first_share(id, &opening);
        // Until its first report: what the others have.
        let sums = self.around(self.queues[&id].link).filter_map(|place| {
            let units = place.budget.units.saturating_add(1);
            Some(place.sum.as_ref()?.rate() / f64::from(units))
        });
        let goodput = sums.reduce(f64::min).unwrap_or(0.0);
        let now = self.now;
        let queue = self.queues.get_mut(&id).expect("the queue is alive");
        let state = &mut queue.state;
        let boost = boost(state, now);
        let cost = cost(state.unit_bytes, state.unit_files) / boost;
        self.tree.charge(queue.leaf, &queue.domains, cost);
        let lease = Lease {
            key: queue.key.clone(),
            link: queue.link,
            job: queue.job,
            owner: queue.owner,
            domains: queue.domains.clone(),
            scavenger: pass == Pass::Scavenger,
            fast: pass == Pass::Fast,
            agent: opening.agent.clone(),
            bytes: state.unit_bytes,
            files: state.unit_files,
            boost,
            share,
            held: (share.concurrency, share.channels()),
            limited_by: None,
            goodput,
            reported: 0.0,
            reported_at: now,
            counted: 0.0,
        };
        state.ready -= 1;
        state.ready_bytes = state.ready_bytes.saturating_sub(state.unit_bytes);
        state.started_any = true;
        queue.waits_since = now;
        let queue_key = queue.key.clone();
        let lease = self.start(lease);
        self.set_active(id);
        Grant {
            lease,
            queue: queue_key,
            agent: opening.agent,
            share,
        }
    }

    /// An equal part of the tuned sum, as far as there is room; one channel where others wait.
    fn first_share(&self, id: u32, opening: &Opening) -> Share {
        let queue = &self.queues[&id];
        let is_scarce = self.around(queue.link).any(|place| place.waiting > 0);
        let sums = self.around(queue.link).filter_map(|place| {
            let setting = place.tuned()?;
            let each = setting.channels() / (place.budget.units + 1);
            Some((each, setting.parallelism))
        });
        let (each, parallelism) = sums.min().unwrap_or((FIRST_CHANNELS, FIRST_CHANNELS));
        if is_scarce || queue.state.class == Class::Scavenger {
            return split(1, 1, 1);
        }
        let sessions = opening.sessions.min(queue.state.unit_files);
        split(each.min(opening.channels), parallelism, sessions)
    }

    /// Lets the sums of channels decide by what was reported, and says which leases get another
    /// share. To be called every second or so.
    pub fn shares(&mut self, now: Duration) -> Vec<(LeaseId, Share)> {
        self.advance(now);
        self.count_bytes();
        self.tune();
        let takers: Vec<Taker> = self
            .leases
            .iter()
            .map(|(id, lease)| Taker {
                lease: *id,
                link: lease.link,
                scavenger: lease.scavenger,
                files: lease.files,
            })
            .collect();
        let mut changes = Vec::new();
        let wanted = allot(&takers, &self.places);
        // What is given up makes room first, as far as agents have confirmed it already.
        for lowers in [true, false] {
            for (id, share) in &wanted {
                let Some(lease) = self.leases.get_mut(id) else {
                    continue;
                };
                let (old, held) = (lease.share, lease.held);
                if *share == old || lowers != (share.channels() <= old.channels()) {
                    continue;
                }
                let next = (held.0.max(share.concurrency), held.1.max(share.channels()));
                let more = (next.0 - held.0, next.1 - held.1);
                if !self.places.have_room_for(lease.link, more) {
                    continue;
                }
                lease.share = *share;
                lease.held = next;
                for place in self.places.of(lease.link) {
                    place.budget.sessions += more.0;
                    place.budget.channels += more.1;
                }
                changes.push((*id, *share));
            }
        }
        changes
    }

    /// Reports of all leases do not come at once: between them each goes on as before.
    fn count_bytes(&mut self) {
        for lease in self.leases.values_mut() {
            let since = self.now.saturating_sub(lease.reported_at).as_secs_f64();
            let so_far = lease.reported + lease.goodput * since;
            let so_far = so_far.min(as_float(lease.bytes).max(lease.reported));
            for place in self.places.of(lease.link) {
                if let Some(sum) = &mut place.sum {
                    sum.add_bytes(so_far - lease.counted);
                }
            }
            lease.counted = so_far;
        }
    }

    /// A link that has its ends to itself is tuned by itself; an endpoint of several links by the
    /// sum over them.
    fn tune(&mut self) {
        let (tuning, now) = (self.config.tuning, self.now);
        let busy: Vec<LinkId> = self
            .places
            .links
            .iter()
            .filter(|(_, place)| !place.leases.is_empty())
            .map(|(link, _)| *link)
            .collect();
        let mut links_of: BTreeMap<u32, u32> = BTreeMap::new();
        for link in &busy {
            for end in BTreeSet::from([link.0, link.1]) {
                *links_of.entry(end).or_default() += 1;
            }
        }
        let is_shared = |end: &u32| links_of.get(end).is_some_and(|links| *links > 1);
        for (id, place) in &mut self.places.endpoints {
            // What the links had is where the sum begins.
            let start = place_start(place);
            place.tune(is_shared(id), start, &tuning, now);
        }
        for (link, place) in &mut self.places.links {
            let alone = !is_shared(&link.0) && !is_shared(&link.1);
            let start = place_start(place);
            place.tune(alone, start, &tuning, now);
        }
    }

    /// Why a queue waits, most telling first; why it is slow where all of it runs.
    pub fn why(&self, key: &QueueKey) -> Vec<Reason> {
        let queue = self.ids.get(key).map(|id| &self.queues[id]);
        let Some(queue) = queue.filter(|queue| queue.state.ready > 0) else {
            return self.limited_by(key);
        };
        let pass = match queue.state.class {
            Class::Scavenger => Pass::Scavenger,
            Class::Urgent | Class::Normal if self.is_first(queue) => Pass::Fast,
            Class::Urgent | Class::Normal => Pass::Fair,
        };
        let blocked = self
            .check_places(queue, pass)
            .and_then(|_| self.check_agents(queue));
        match blocked {
            Ok(()) => vec![Reason::Scheduling],
            Err(blocked) => self.reasons(queue, blocked),
        }
    }

    fn check_agents(&self, queue: &Queue) -> Result<(), Blocked> {
        let ends = [queue.link.0, queue.link.1].map(|id| &**self.places.name(id));
        let classes = self.agents.classes_now(ends, &queue.state.labels);
        self.agents
            .choose(&classes)
            .map(|_| ())
            .map_err(Blocked::Agents)
    }

    fn limited_by(&self, key: &QueueKey) -> Vec<Reason> {
        let mut of = 0;
        let mut limits: BTreeMap<&str, u32> = BTreeMap::new();
        let (Some(source), Some(destination)) = (
            self.places.known(&key.source),
            self.places.known(&key.destination),
        ) else {
            return Vec::new();
        };
        let link = self.places.links.get(&(source, destination));
        let leases = link.into_iter().flat_map(|link| &link.leases);
        for lease in leases.map(|id| &self.leases[id]) {
            if lease.key == *key {
                of += 1;
                let limit = lease.limited_by.as_deref();
                limits.extend(limit.map(|limit| (limit, 0)));
                if let Some(units) = limit.and_then(|limit| limits.get_mut(limit)) {
                    *units += 1;
                }
            }
        }
        let most = limits.into_iter().max_by_key(|(_, units)| *units);
        most.map(|(limit, units)| Reason::LimitedBy {
            limit: limit.to_owned(),
            units,
            of,
        })
        .into_iter()
        .collect()
    }

    fn reasons(&self, queue: &Queue, blocked: Blocked) -> Vec<Reason> {
        let share_used = |scavenger| Reason::ShareUsed {
            share: self.tree.path(queue.owner),
            units: self.tree.units(queue.owner),
            scavenger,
        };
        let name = |id: u32| self.places.name(id).to_string();
        let one = match blocked {
            Blocked::Hold(Hold::Paused) => Reason::Paused,
            Blocked::Hold(Hold::Credential) => Reason::CredentialExpired,
            Blocked::Hold(Hold::AfterJob) => Reason::AfterJob,
            Blocked::RetryAt(at) => Reason::RetryAt {
                at,
                wait: at.saturating_sub(self.now),
            },
            Blocked::State(id, EndpointState::Down) => Reason::EndpointDown { endpoint: name(id) },
            Blocked::State(id, state) => Reason::Banned {
                endpoint: name(id),
                draining: state == EndpointState::Draining,
            },
            Blocked::Share(reached) => {
                let share = self.tree.path(reached.node);
                let (unit, used, limit) = match reached.limit_units {
                    Some(limit) => ("units", reached.units.into(), limit.into()),
                    None => (
                        "bytes",
                        reached.bytes,
                        reached.limit_bytes.unwrap_or(u64::MAX),
                    ),
                };
                Reason::Quota {
                    share,
                    unit,
                    used,
                    limit,
                }
            }
            Blocked::Endpoint(id, short) => {
                let place = &self.places.endpoints[&id];
                return self.shortage(queue, name(id), Some(id), place, short);
            }
            Blocked::Link(short) => {
                let place = &self.places.links[&queue.link];
                let name = self.places.link_name(queue.link);
                return self.shortage(queue, name, None, place, short);
            }
            Blocked::PathFull { channels, units } => Reason::PathFull {
                place: self.places.link_name(queue.link),
                channels,
                units,
            },
            Blocked::LeftOver => share_used(true),
            Blocked::Agents(NoAgent::Busy { agents }) => {
                return vec![Reason::AgentsBusy { agents }, share_used(false)];
            }
            Blocked::Agents(NoAgent::Unreachable) => Reason::NoAgent {
                link: self.places.link_name(queue.link),
                labels: queue.state.labels.clone(),
            },
        };
        vec![one]
    }

    /// Who has what of a limit that is reached.
    fn shortage(
        &self,
        queue: &Queue,
        place_name: String,
        endpoint: Option<u32>,
        place: &Place,
        short: Shortage,
    ) -> Vec<Reason> {
        let rate = |unit, limit, wait| Reason::Rate {
            place: place_name.clone(),
            is_link: endpoint.is_none(),
            unit,
            limit,
            wait,
        };
        let (unit, used, limit) = match short {
            Shortage::Bytes { wait, per_second } => {
                return vec![rate("bytes", per_second, wait)];
            }
            Shortage::Files { wait, per_second } => {
                return vec![rate("files", per_second.into(), wait)];
            }
            Shortage::Sessions { used, limit } => ("sessions", used, limit),
            Shortage::Channels { used, limit } => ("channels", used, limit),
        };
        let mut held: BTreeMap<NodeId, u32> = BTreeMap::new();
        for lease in place.leases.iter().map(|id| &self.leases[id]) {
            let (sessions, channels) = lease.held;
            let amount = if unit == "sessions" {
                sessions
            } else {
                channels
            };
            *held.entry(lease.owner).or_default() += amount;
        }
        let own = held.remove(&queue.owner).unwrap_or(0);
        let mut holders: Vec<(String, u32)> = held
            .into_iter()
            .map(|(owner, amount)| (self.tree.path(owner), amount))
            .collect();
        holders.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        holders.truncate(HOLDERS);
        let domain = Domain {
            endpoint: endpoint.or(Some(queue.link.1)),
            ..queue.domains[0]
        };
        let fraction = self.tree.fraction(queue.owner, &domain);
        let mut reasons = vec![Reason::Limit(TakenLimit {
            place: place_name,
            is_link: endpoint.is_none(),
            unit,
            used,
            limit,
            own,
            fair: part(fraction, limit),
            holders,
        })];
        if own > 0 && own >= part(fraction, limit) {
            reasons.push(Reason::ShareUsed {
                share: self.tree.path(queue.owner),
                units: self.tree.units(queue.owner),
                scavenger: false,
            });
        }
        reasons
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

#[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a cost
fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

/// What a unit costs, in bytes: its files count, too.
fn cost(bytes: u64, files: u32) -> f64 {
    as_float(bytes.saturating_add(u64::from(files).saturating_mul(FILE_COST)))
}

/// What the cost of a unit is divided by: its class, and how near its deadline is.
fn boost(state: &QueueState, now: Duration) -> f64 {
    let class = match state.class {
        Class::Urgent => 2.0,
        Class::Normal | Class::Scavenger => 1.0,
    };
    let deadline = state.deadline.map_or(1.0, |deadline| {
        let all = deadline.saturating_sub(state.created).as_secs_f64();
        let left = deadline.saturating_sub(now).as_secs_f64();
        1.0 + 3.0 * (1.0 - left / all.max(1.0)).clamp(0.0, 1.0)
    });
    class * deadline
}

/// Each priority weighs twice the one below it.
fn weight_of_priority(priority: u8) -> f64 {
    f64::from(1_u32 << priority.clamp(1, 5)) / 8.0
}

/// Where a sum begins: at what runs, where more than one unit does.
fn place_start(place: &Place) -> Option<Setting> {
    let budget = &place.budget;
    let parallelism = budget.channels / budget.sessions.max(1);
    (budget.units > 1).then(|| Setting::new(budget.sessions, parallelism))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and a fraction is not negative"
)]
fn part(fraction: f64, limit: u32) -> u32 {
    (fraction * f64::from(limit)).round() as u32
}
