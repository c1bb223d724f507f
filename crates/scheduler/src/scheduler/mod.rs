//! The scheduler: its state, what callers tell it, and the shares of running leases.

mod reasons;
mod step;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use godwit_tune::Setting;

use crate::{
    agents::{Agents, ClassId, NoAgent},
    allotment::{Taker, allot},
    budget::Shortage,
    charge::{Usage, as_float, cost},
    line::{At, Domain, Lane, Line, NodeId},
    model::{
        AgentState, Class, Config, EndpointName, EndpointState, Hold, LeaseId, LeaseReport,
        QueueKey, QueueState, Share, StartedLease,
    },
    places::{LinkId, Place, Places},
    tree::{NodeName, Reached, Tree},
};

/// A job that waited so long is put level with the last one that was served.
const AGED: Duration = Duration::from_secs(1800);
/// Most sessions and channels that a report may claim; more count as this many.
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
    started: Duration,
    /// What was charged for when it started.
    expected: Usage,
    /// Cost over which weights were divided: of class and deadline.
    boost: f64,
    share: Share,
    /// Sessions and channels that it may be using.
    held: (u32, u32),
    /// Seconds of sessions and channels that were held until then.
    held_seconds: (f64, f64),
    held_until: Duration,
    limited_by: Option<String>,
    /// Bytes a second, by the last report.
    goodput: f64,
    /// Bytes that reports said so far, and when the last one came.
    reported: f64,
    reported_at: Duration,
    /// Bytes that were added to sums, which run on at the last goodput between reports.
    counted: f64,
}

impl Lease {
    /// It may use so much from now on.
    fn hold(&mut self, held: (u32, u32), now: Duration) {
        let seconds = now.saturating_sub(self.held_until).as_secs_f64();
        self.held_seconds.0 += f64::from(self.held.0) * seconds;
        self.held_seconds.1 += f64::from(self.held.1) * seconds;
        (self.held, self.held_until) = (held, now);
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
        let (leaf, group) = (queue.leaf, queue.group);
        if let Some(at) = from {
            self.tree.leave(leaf, Line::new(lane, at, group));
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
            started: now,
            expected: Usage {
                bytes: lease.bytes,
                files: lease.files,
                ..Usage::default()
            },
            boost: 1.0,
            share: lease.share,
            held: (lease.share.concurrency, lease.share.channels()),
            held_seconds: (0.0, 0.0),
            held_until: now,
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
            place.others += u32::from(!lease.scavenger);
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
        let Some(mut lease) = self.leases.remove(&id) else {
            return;
        };
        lease.hold(lease.held, self.now);
        let began = bytes > 0 || files > 0;
        let (session_seconds, channel_seconds) = lease.held_seconds;
        let used = Usage {
            bytes,
            files,
            session_seconds: session_seconds * f64::from(u8::from(began)),
            channel_seconds: channel_seconds * f64::from(u8::from(began)),
        };
        let paid = self.costs(&lease.domains, &lease.expected, lease.boost);
        let mut differences = self.costs(&lease.domains, &used, lease.boost);
        for ((_, cost), (_, paid)) in differences.iter_mut().zip(paid) {
            *cost -= paid;
        }
        self.tree.correct(lease.job, &differences);
        self.tree.remove_running(lease.job, lease.bytes);
        self.agents.ended(&lease.agent);
        for place in self.places.of(lease.link) {
            place.leases.remove(&id);
            place.others -= u32::from(!lease.scavenger);
            place.budget.units -= 1;
            place.budget.sessions -= lease.held.0;
            place.budget.channels -= lease.held.1;
            place.add_pace(cost(bytes, files), self.now.saturating_sub(lease.started));
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
        self.wake_link(lease.link);
        let nodes: Vec<NodeId> = self.tree.ancestry(lease.job).collect();
        nodes.into_iter().for_each(|node| self.wake(At::Node(node)));
        self.places.release(lease.link);
        self.tree.release(lease.job);
    }

    /// What so much costs in each domain: in slots by bytes, at endpoints by what is limited there.
    fn costs(&self, domains: &[Domain], usage: &Usage, boost: f64) -> Vec<(Domain, f64)> {
        let cost = |domain: &Domain| {
            let place = domain.endpoint.map(|id| &self.places.endpoints[&id]);
            place.map_or(usage.cost(), |place| usage.cost_at(&place.budget))
        };
        let costs = domains.iter().map(|domain| (*domain, cost(domain) / boost));
        costs.collect()
    }

    fn wake_link(&mut self, link: LinkId) {
        self.wake(At::Endpoint(link.0));
        self.wake(At::Endpoint(link.1));
        self.wake(At::Link(link));
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
        let before = lease.held;
        lease.hold(held, self.now);
        let link = lease.link;
        for place in self.places.of(link) {
            place.budget.sessions = place.budget.sessions - before.0 + held.0;
            place.budget.channels = place.budget.channels - before.1 + held.1;
            if let Some(sum) = &mut place.sum {
                sum.add_bytes(bytes);
            }
        }
        if held.0 < before.0 || held.1 < before.1 {
            self.wake_link(link);
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
                lease.hold(next, self.now);
                for place in self.places.of(lease.link) {
                    place.budget.sessions += more.0;
                    place.budget.channels += more.1;
                }
                changes.push((*id, *share));
            }
        }
        changes
    }

    /// Reports of leases come at different times: between them each counts at its last goodput.
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
        let mut changed = Vec::new();
        for (id, place) in &mut self.places.endpoints {
            // What the links had is where the sum begins.
            let (start, before) = (place_start(place), place.tuned());
            let links = links_of.get(id).copied().filter(|links| *links > 1);
            place.tune(links, start, &tuning, now);
            changed.extend((place.tuned() != before).then_some(At::Endpoint(*id)));
        }
        for (link, place) in &mut self.places.links {
            let alone = !is_shared(&link.0) && !is_shared(&link.1);
            let (start, before) = (place_start(place), place.tuned());
            place.tune(alone.then_some(1), start, &tuning, now);
            changed.extend((place.tuned() != before).then_some(At::Link(*link)));
        }
        changed.into_iter().for_each(|at| self.wake(at));
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
