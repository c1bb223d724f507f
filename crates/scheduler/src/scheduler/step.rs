//! The step: which unit of which queue starts, and what keeps the others from it.

use std::{collections::BTreeMap, time::Duration};

use super::{AGED, Blocked, Lease, Queue, Scheduler, part};
use crate::{
    allotment::split,
    budget::Shortage,
    charge::{Usage, cost},
    line::{At, Lane, Line, NodeId},
    model::{Class, EndpointState, Grant, QueueState, Share},
    places::{Kept, LinkId, Place},
};

/// How often learned limits are looked at.
const RELAX: Duration = Duration::from_secs(1);
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
/// About how long a unit of several files runs at most, so that shares hold soon after a user comes
/// who had no work before.
const UNIT_TIME: Duration = Duration::from_secs(10);
/// And at least, where the rest of a job is spread over all agents.
const UNIT_TIME_LEAST: Duration = Duration::from_secs(1);
/// A session is kept for so long for a queue that waits for its other end.
const KEEP: Duration = Duration::from_secs(10);
/// Cost of a unit on a link of which nothing is known: the path may be slow, and all slots would be
/// taken for long.
const FIRST_COST: f64 = 16e6;

/// Sessions and channels that are free for a unit, and who takes it.
struct Opening {
    sessions: u32,
    channels: u32,
    agent: String,
}

impl Scheduler {
    /// Hands out all that is free. Looks only at queues that wait for what was freed, and at none
    /// where no agent is idle.
    pub fn step(&mut self, now: Duration) -> Vec<Grant> {
        self.advance(now);
        self.pass_time();
        let mut grants = Vec::new();
        for lane in Lane::ALL {
            self.hand_out(lane, &mut grants);
        }
        grants
    }

    /// What happens by itself as time passes.
    fn pass_time(&mut self) {
        let now = self.now;
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.remove(&(at, id));
            self.set_active(id);
        }
        while let Some((time, at)) = self.refills.first().copied()
            && time <= now
        {
            self.refills.remove(&(time, at));
            self.wake(at);
        }
        while let Some((at, id)) = self.ageing.first().copied()
            && at <= now
        {
            self.ageing.remove(&(at, id));
            self.level_if_aged(id);
        }
        if now >= self.relaxed + RELAX {
            self.relaxed = now;
            let places = self.places.endpoints.iter_mut();
            let relaxed = places.filter_map(|(id, place)| place.budget.relax(now).then_some(*id));
            let relaxed: Vec<u32> = relaxed.collect();
            for id in relaxed {
                self.wake(At::Endpoint(id));
            }
        }
        if self.grouped != self.agents_version {
            self.grouped = self.agents_version;
            let ids: Vec<u32> = self.queues.keys().copied().collect();
            ids.into_iter().for_each(|id| self.regroup(id));
        }
        if now >= self.collected + COLLECT {
            self.collect();
        }
    }

    fn collect(&mut self) {
        self.collected = self.now;
        self.places.collect(&self.config);
        let endpoints = &self.places.endpoints;
        let is_alive = |id: u32| endpoints.contains_key(&id);
        self.tree
            .collect(|domain| domain.endpoint.is_none_or(is_alive));
        self.agents.forget_endpoints(is_alive);
        for link in self.places.links.values_mut() {
            let version = self.agents_version;
            link.reach.retain(|_, (of, _)| *of == version);
        }
    }

    /// Grants to the queues of a lane until none can start anything. For slots, the first queue of
    /// each line that was freed competes with those that wait for nothing else.
    fn hand_out(&mut self, lane: Lane, grants: &mut Vec<Grant>) {
        let freed = self
            .freed
            .range((lane, At::Slots)..=(lane, At::Node(NodeId::MAX)));
        let places: Vec<At> = freed.map(|(_, at)| *at).collect();
        let mut heads = BTreeMap::new();
        self.find_open(lane);
        for at in &places {
            self.represent(lane, *at, &mut heads);
        }
        while let Some(leaf) = self.tree.first(lane, &[At::Slots, At::Freed], &self.open) {
            let id = self.next_with(lane, leaf);
            let queue = &self.queues[&id];
            let (link, at) = (queue.link, queue.waits_in(lane));
            match self.check(id, lane) {
                Ok(opening) => {
                    let grant = self.grant(id, opening, lane);
                    grants.push(grant);
                }
                // The idle agents of its group are there by the choice of the queue.
                Err(Blocked::Agents(_)) => break,
                Err(blocked) => self.blocked(id, lane, &blocked),
            }
            if self.find_open(lane) {
                for at in &places {
                    self.represent(lane, *at, &mut heads);
                }
            }
            let ends = [At::Endpoint(link.0), At::Endpoint(link.1), At::Link(link)];
            for at in ends.into_iter().chain(at) {
                self.represent(lane, at, &mut heads);
            }
        }
        for leaf in heads.into_values() {
            self.tree.leave(leaf, self.line_of_head(lane, leaf));
        }
    }

    /// The first queue that waits where something was freed, and that has an idle agent, competes
    /// for slots.
    fn represent(&mut self, lane: Lane, at: At, heads: &mut BTreeMap<At, NodeId>) {
        let mut head = None;
        if self.freed.contains(&(lane, at)) {
            head = self.tree.first(lane, &[at], &self.open);
            if head.is_none() && !self.tree.has_waiting(lane, at) {
                self.freed.remove(&(lane, at));
            }
        }
        let before = match head {
            Some(leaf) => heads.insert(at, leaf),
            None => heads.remove(&at),
        };
        if before == head {
            return;
        }
        if let Some(leaf) = before {
            self.tree.leave(leaf, self.line_of_head(lane, leaf));
        }
        if let Some(leaf) = head {
            self.tree.join(leaf, self.line_of_head(lane, leaf));
        }
    }

    fn line_of_head(&self, lane: Lane, leaf: NodeId) -> Line {
        let queue = &self.queues[&self.by_leaf[&leaf]];
        Line::new(lane, At::Freed, queue.group)
    }

    /// The queue whose turn it is; where others wait for an end of it that was freed, their order
    /// is kept.
    fn next_with(&self, lane: Lane, leaf: NodeId) -> u32 {
        let id = self.by_leaf[&leaf];
        let queue = &self.queues[&id];
        for domain in &queue.domains[1..] {
            let Some(end) = domain.endpoint.map(At::Endpoint) else {
                continue;
            };
            if self.freed.contains(&(lane, end))
                && let Some(other) = self.tree.first(lane, &[end], &self.open)
                && self.tree.standing(other, domain) < self.tree.standing(leaf, domain)
            {
                return self.by_leaf[&other];
            }
        }
        id
    }

    /// The queue waits for what it has not got.
    fn blocked(&mut self, id: u32, lane: Lane, blocked: &Blocked) {
        let queue = &self.queues[&id];
        let at = match blocked {
            Blocked::Hold(_) | Blocked::RetryAt(_) => None,
            Blocked::Agents(_) => Some(At::Slots),
            Blocked::State(endpoint, _)
            | Blocked::Endpoint(endpoint, _)
            | Blocked::LeftOver(endpoint)
            | Blocked::PathFull {
                endpoint: Some(endpoint),
                ..
            } => Some(At::Endpoint(*endpoint)),
            Blocked::Link(_) | Blocked::Beside | Blocked::PathFull { endpoint: None, .. } => {
                Some(At::Link(queue.link))
            }
            Blocked::Share(reached) => Some(At::Node(reached.node)),
            Blocked::NotFirst(node) => Some(At::Node(*node)),
        };
        if let Blocked::Endpoint(_, short) | Blocked::Link(short) = blocked
            && let Shortage::Bytes { wait, .. } | Shortage::Files { wait, .. } = short
            && let Some(at) = at
        {
            self.refills.insert((self.now + *wait, at));
        }
        if let Some(at) = at {
            self.freed.remove(&(lane, at));
        }
        self.wait_at(id, lane, at);
        if let (Lane::Fair, Blocked::Endpoint(full, _)) = (lane, blocked) {
            self.keep_other_end(id, *full);
        }
    }

    /// A queue whose ends are both full would start units only when both are freed at once, and so
    /// fall behind those that need one of them. Where it is far behind and the next one at the end
    /// that is full, a session of its other end stays free for it.
    fn keep_other_end(&mut self, id: u32, full: u32) {
        let queue = &self.queues[&id];
        let end = if queue.link.0 == full {
            queue.link.1
        } else {
            queue.link.0
        };
        let next = |end| {
            self.tree
                .first(Lane::Fair, &[At::Endpoint(end)], &self.open)
        };
        let (Some(other), Some(first)) = (next(end), next(full)) else {
            return;
        };
        let domain = queue.domains[1..]
            .iter()
            .find(|domain| domain.endpoint == Some(end));
        let lags = domain.is_some_and(|domain| self.tree.lags(queue.leaf, other, domain));
        let place = &self.places.endpoints[&end];
        // Where a session is free and kept for another, that one is not waited for.
        let is_full = self.places.endpoints[&full].budget.room(self.now).is_err();
        if end == full
            || !is_full
            || first != queue.leaf
            || !lags
            || self.is_kept(place)
            || place.budget.room(self.now).is_err()
        {
            return;
        }
        let until = self.now + KEEP;
        if let Some(place) = self.places.endpoints.get_mut(&end) {
            place.kept = Some(Kept {
                queue: id,
                waits_at: full,
                until,
            });
            self.refills.insert((until, At::Endpoint(end)));
        }
    }

    /// Whether a session of the endpoint is kept for a queue that still waits.
    pub(super) fn is_kept(&self, place: &Place) -> bool {
        place.kept.is_some_and(|kept| {
            let queue = self.queues.get(&kept.queue);
            let waits = queue.is_some_and(|queue| {
                queue.is_active && queue.waits_at == Some(At::Endpoint(kept.waits_at))
            });
            waits && self.now < kept.until
        })
    }

    /// Whether the next unit is the first of its job, and may start before the share's turn.
    pub(super) fn check_first(&self, queue: &Queue) -> Result<(), Blocked> {
        let running = self.fast.get(&queue.owner).copied().unwrap_or(0);
        if self.tree.units(queue.job) > 0 || queue.state.started_any {
            return Err(Blocked::NotFirst(queue.job));
        }
        if running >= FAST_UNITS {
            return Err(Blocked::NotFirst(queue.owner));
        }
        Ok(())
    }

    fn level_if_aged(&mut self, id: u32) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.ages_at = queue.is_active.then(|| (queue.waits_since + AGED).max(now));
        if queue.ages_at.is_some_and(|at| at <= now) {
            queue.waits_since = now;
            queue.ages_at = Some(now + AGED);
            self.tree.level(queue.job, &queue.domains);
            self.tree.level(queue.leaf, &queue.domains);
        }
        self.ageing.extend(queue.ages_at.map(|at| (at, id)));
    }

    fn check(&self, id: u32, lane: Lane) -> Result<Opening, Blocked> {
        let queue = &self.queues[&id];
        if lane == Lane::Fast {
            self.check_first(queue)?;
        }
        let (sessions, channels) = self.check_places(queue, lane)?;
        let classes = &self.groups[queue.group as usize];
        let agent = self.agents.choose(classes, lane).map_err(Blocked::Agents)?;
        Ok(Opening {
            sessions,
            channels,
            agent: agent.to_owned(),
        })
    }

    /// Whether others than scavengers wait for an endpoint.
    fn is_wanted(&self, endpoint: u32) -> bool {
        let is_freed = self.freed.contains(&(Lane::Fair, At::Endpoint(endpoint)));
        !is_freed && self.places.endpoints[&endpoint].waiting > 0
    }

    /// Everything but agents.
    pub(super) fn check_places(&self, queue: &Queue, lane: Lane) -> Result<(u32, u32), Blocked> {
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
            let place = &self.places.endpoints[&id];
            let is_other = |kept: &Kept| self.queues[&kept.queue].leaf != queue.leaf;
            if more.0 < 2
                && lane != Lane::Fast
                && self.is_kept(place)
                && place.kept.as_ref().is_some_and(is_other)
            {
                let (used, limit) = (budget.sessions, budget.session_limit());
                return Err(Blocked::Endpoint(id, Shortage::Sessions { used, limit }));
            }
            room = least(room, more);
        }
        let link = &self.places.links[&queue.link];
        room = least(room, link.budget.room(self.now).map_err(Blocked::Link)?);
        self.check_sums(queue.link, lane)?;
        let wanted = [source, destination]
            .into_iter()
            .find(|id| self.is_wanted(*id));
        match wanted {
            _ if lane != Lane::Scavenger => Ok(room),
            Some(endpoint) => Err(Blocked::LeftOver(endpoint)),
            // Connections of equal rights would share the path with it.
            None if link.others > 0 => Err(Blocked::Beside),
            None => Ok(room),
        }
    }

    /// No more units than the tuned sums have channels, but for a few.
    fn check_sums(&self, link: LinkId, lane: Lane) -> Result<(), Blocked> {
        let beyond = match lane {
            Lane::Fast => FAST_BEYOND,
            Lane::Fair | Lane::Scavenger => 0,
        };
        let names = [Some(link.0), Some(link.1), None];
        for (endpoint, place) in names.into_iter().zip(self.around(link)) {
            let Some(setting) = place.tuned() else {
                continue;
            };
            let (channels, units) = (setting.channels(), place.budget.units);
            if units >= channels.max(LEAST_UNITS).saturating_add(beyond) {
                return Err(Blocked::PathFull {
                    endpoint,
                    channels,
                    units,
                });
            }
        }
        Ok(())
    }

    /// The ends of a link and the link.
    fn around(&self, link: LinkId) -> impl Iterator<Item = &Place> {
        let ends = [link.0, link.1].map(|id| &self.places.endpoints[&id]);
        ends.into_iter().chain(self.places.links.get(&link))
    }

    fn grant(&mut self, id: u32, opening: Opening, lane: Lane) -> Grant {
        let share = self.first_share(id, &opening);
        // Until its first report: what the others have.
        let sums = self.around(self.queues[&id].link).filter_map(|place| {
            let units = place.budget.units.saturating_add(1);
            Some(place.sum.as_ref()?.rate() / f64::from(units))
        });
        let goodput = sums.reduce(f64::min).unwrap_or(0.0);
        let files_max = self.files_max(id);
        let now = self.now;
        let queue = &self.queues[&id];
        let boost = boost(&queue.state, now);
        let files = queue.state.unit_files.min(files_max);
        let bytes = part_of_unit(&queue.state, files);
        let seconds = self.expected_seconds(queue.link, cost(bytes, files));
        let expected = Usage {
            bytes,
            files,
            session_seconds: f64::from(share.concurrency) * seconds,
            channel_seconds: f64::from(share.channels()) * seconds,
        };
        let costs = self.costs(&queue.domains, &expected, boost);
        self.tree.charge(queue.leaf, &costs);
        let queue = self.queues.get_mut(&id).expect("the queue is alive");
        let state = &mut queue.state;
        let lease = Lease {
            key: queue.key.clone(),
            link: queue.link,
            job: queue.job,
            owner: queue.owner,
            domains: queue.domains.clone(),
            scavenger: lane == Lane::Scavenger,
            fast: lane == Lane::Fast,
            agent: opening.agent.clone(),
            bytes,
            files,
            started: now,
            expected,
            boost,
            share,
            held: (share.concurrency, share.channels()),
            held_seconds: (0.0, 0.0),
            held_until: now,
            limited_by: None,
            goodput,
            reported: 0.0,
            reported_at: now,
            counted: 0.0,
        };
        state.ready_bytes = state.ready_bytes.saturating_sub(bytes);
        state.ready_files = state.ready_files.saturating_sub(files.into());
        if files < state.unit_files {
            state.unit_files -= files;
            state.unit_bytes -= bytes;
        } else {
            state.ready -= 1;
            // The one after it is not known: as the mean. As the rest of this one it would be taken
            // for a small unit, and the queue for one with little left.
            let left = u64::from(state.ready.max(1));
            let mean = u32::try_from(state.ready_files / left).unwrap_or(u32::MAX);
            state.unit_files = mean.max(1);
            state.unit_bytes = state.ready_bytes / left;
        }
        state.started_any = true;
        queue.waits_since = now;
        for end in [queue.link.0, queue.link.1] {
            if let Some(place) = self.places.endpoints.get_mut(&end) {
                place.kept = place.kept.filter(|kept| kept.queue != id);
            }
        }
        let queue_key = queue.key.clone();
        let lease = self.start(lease);
        self.set_active(id);
        Grant {
            lease,
            queue: queue_key,
            agent: opening.agent,
            share,
            files,
        }
    }

    /// How long a unit of such a cost will run, by those that ended.
    fn expected_seconds(&self, link: LinkId, cost: f64) -> f64 {
        let ends = [link.0, link.1].map(|id| &self.places.endpoints[&id]);
        let places = self.places.links.get(&link).into_iter().chain(ends);
        let pace = places.filter_map(|place| place.pace).next();
        pace.map_or(UNIT_TIME_LEAST.as_secs_f64(), |pace| cost / pace.max(1.0))
    }

    /// Most files of a unit of the queue, so that it ends in time for others, and so that agents
    /// end together: each unit is an equal part of what is left for all units that may run, as in
    /// guided self-scheduling (Polychronopoulos and Kuck 1987).
    fn files_max(&self, id: u32) -> u32 {
        let queue = &self.queues[&id];
        let state = &queue.state;
        let unit = cost(state.unit_bytes, state.unit_files);
        let wanted = match self.places.links[&queue.link].pace {
            None => FIRST_COST,
            Some(pace) => {
                let rest = cost(state.ready_bytes, state.ready_files);
                let rest = rest / f64::from(self.units_at_once(queue));
                let least = pace * UNIT_TIME_LEAST.as_secs_f64();
                rest.max(least).min(pace * UNIT_TIME.as_secs_f64())
            }
        };
        part(wanted / unit, state.unit_files).max(1)
    }

    /// Units of a queue that could run at a time: what runs on its link, and what may begin.
    fn units_at_once(&self, queue: &Queue) -> u32 {
        let free = self.agents.free(&self.groups[queue.group as usize]);
        let running = self.places.links[&queue.link].budget.units;
        let limits = self.around(queue.link).filter_map(Place::tuned);
        let limit = limits.map(|setting| setting.channels().max(LEAST_UNITS));
        let limit = limit.min().unwrap_or(u32::MAX);
        free.saturating_add(running).min(limit).max(1)
    }

    /// An equal part of the tuned sum, as far as there is room; one channel where others wait.
    fn first_share(&self, id: u32, opening: &Opening) -> Share {
        let queue = &self.queues[&id];
        let is_scarce = self.is_wanted(queue.link.0) || self.is_wanted(queue.link.1);
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
}

/// Bytes of so many files of the next unit, as if all were equal.
fn part_of_unit(state: &QueueState, files: u32) -> u64 {
    if files >= state.unit_files {
        return state.unit_bytes;
    }
    state.unit_bytes / u64::from(state.unit_files) * u64::from(files)
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
