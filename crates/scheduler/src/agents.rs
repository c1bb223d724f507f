//! Agents: which reach what, and which of them is least loaded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{line::Lane, model::AgentState};

/// Units beyond its slots that an agent takes where they are the first of their jobs: all slots
/// may be taken for long.
const FIRST_UNITS_BEYOND: u32 = 1;

/// Agents with equal patterns and labels.
pub(crate) type ClassId = usize;

#[derive(Debug)]
struct Reach {
    patterns: Vec<String>,
    labels: Vec<String>,
    /// Agents with a free slot on a host with room, least loaded first.
    idle: BTreeSet<(u64, String)>,
    /// The same for first units.
    idle_for_first: BTreeSet<(u64, String)>,
    /// Free slots of the idle ones.
    free: u32,
    /// All.
    members: u32,
}

impl Reach {
    fn has(&self, labels: &[String]) -> bool {
        labels.iter().all(|label| self.labels.contains(label))
    }

    fn reaches(&self, endpoint: &str) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|pattern| matches(pattern, endpoint))
    }
}

#[derive(Debug)]
struct Agent {
    state: AgentState,
    class: ClassId,
    /// Leases that the scheduler knows of.
    running: u32,
    /// What it said to be free, less what it was given since.
    free: u32,
}

impl Agent {
    fn available(&self) -> u32 {
        if self.state.draining {
            return 0;
        }
        self.free.min(self.state.slots.saturating_sub(self.running))
    }

    fn takes_first_units(&self) -> bool {
        let slots = self.state.slots;
        let most = slots.saturating_add(FIRST_UNITS_BEYOND);
        !self.state.draining && slots > 0 && self.running < most
    }

    /// Part of its slots in use, in a unit that sorts.
    fn load(&self) -> u64 {
        u64::from(self.running) * 1_000_000 / u64::from(self.state.slots.max(1))
    }
}

/// Why no agent takes a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAgent {
    /// None reaches both ends and has the labels.
    Unreachable,
    /// Those that do have no free slot, or their hosts have none.
    Busy { agents: u32 },
}

#[derive(Debug, Default)]
pub(crate) struct Agents {
    classes: Vec<Reach>,
    class_of: BTreeMap<(Vec<String>, Vec<String>), ClassId>,
    agents: BTreeMap<String, Agent>,
    /// Units that run on agents that are gone.
    orphans: BTreeMap<String, u32>,
    host_limits: BTreeMap<String, u32>,
    host_units: BTreeMap<String, u32>,
    /// Agents of hosts with a limit.
    of_host: BTreeMap<String, BTreeSet<String>>,
    /// Classes with an idle agent.
    idle: BTreeSet<ClassId>,
    /// The same for first units.
    idle_for_first: BTreeSet<ClassId>,
    /// Whether a class reaches an endpoint. Only looked up.
    reached: HashMap<(ClassId, u32), bool>,
}

impl Agents {
    pub(crate) fn set_hosts(&mut self, limits: &BTreeMap<String, u32>) {
        if self.host_limits == *limits {
            return;
        }
        self.host_limits.clone_from(limits);
        self.of_host.clear();
        for (name, agent) in &self.agents {
            if limits.contains_key(&agent.state.host) {
                let of_host = self.of_host.entry(agent.state.host.clone());
                of_host.or_default().insert(name.clone());
            }
        }
        let names: Vec<String> = self.agents.keys().cloned().collect();
        names.iter().for_each(|name| self.list(name));
    }

    /// Says whether it reaches things that no agent did.
    pub(crate) fn set(&mut self, name: &str, mut state: AgentState) -> bool {
        let known = self.classes.len();
        state.labels.sort();
        state.endpoints.sort();
        let running = self.take_out(name);
        let key = (state.endpoints.clone(), state.labels.clone());
        let class = *self.class_of.entry(key).or_insert_with_key(|key| {
            self.classes.push(Reach {
                patterns: key.0.clone(),
                labels: key.1.clone(),
                idle: BTreeSet::new(),
                idle_for_first: BTreeSet::new(),
                free: 0,
                members: 0,
            });
            self.classes.len() - 1
        });
        self.classes[class].members += 1;
        let host = state.host.clone();
        if self.host_limits.contains_key(&host) {
            let of_host = self.of_host.entry(host.clone()).or_default();
            of_host.insert(name.to_owned());
        }
        let agent = Agent {
            free: state.free,
            state,
            class,
            running,
        };
        self.agents.insert(name.to_owned(), agent);
        self.list(name);
        self.add_to_host(&host, running);
        self.classes.len() > known
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let running = self.take_out(name);
        if running > 0 {
            self.orphans.insert(name.to_owned(), running);
        }
    }

    /// Takes the agent out of everything; gives how many units it runs.
    fn take_out(&mut self, name: &str) -> u32 {
        self.unlist(name);
        let Some(agent) = self.agents.remove(name) else {
            return self.orphans.remove(name).unwrap_or(0);
        };
        self.classes[agent.class].members -= 1;
        if let Some(of_host) = self.of_host.get_mut(&agent.state.host) {
            of_host.remove(name);
            if of_host.is_empty() {
                self.of_host.remove(&agent.state.host);
            }
        }
        self.take_from_host(&agent.state.host, agent.running);
        agent.running
    }

    fn unlist(&mut self, name: &str) {
        if let Some(agent) = self.agents.get(name) {
            let place = (agent.load(), name.to_owned());
            let class = &mut self.classes[agent.class];
            if class.idle.remove(&place) {
                class.free -= agent.available();
            }
            if class.idle.is_empty() {
                self.idle.remove(&agent.class);
            }
            class.idle_for_first.remove(&place);
            if class.idle_for_first.is_empty() {
                self.idle_for_first.remove(&agent.class);
            }
        }
    }

    /// Lists the agent as idle if it is.
    fn list(&mut self, name: &str) {
        self.unlist(name);
        let Some(agent) = self.agents.get(name) else {
            return;
        };
        if !self.host_has_room(&agent.state.host) {
            return;
        }
        let place = (agent.load(), name.to_owned());
        if agent.takes_first_units() {
            let class = &mut self.classes[agent.class];
            class.idle_for_first.insert(place.clone());
            self.idle_for_first.insert(agent.class);
        }
        let free = agent.available();
        if free > 0 {
            let class = &mut self.classes[agent.class];
            class.idle.insert(place);
            class.free += free;
            self.idle.insert(agent.class);
        }
    }

    fn host_has_room(&self, host: &str) -> bool {
        let used = self.host_units.get(host).copied().unwrap_or(0);
        let limit = self.host_limits.get(host);
        limit.is_none_or(|limit| used < *limit)
    }

    fn add_to_host(&mut self, host: &str, units: u32) {
        if units > 0 {
            *self.host_units.entry(host.to_owned()).or_default() += units;
            self.list_host(host);
        }
    }

    fn take_from_host(&mut self, host: &str, units: u32) {
        if let Some(used) = self.host_units.get_mut(host) {
            *used = used.saturating_sub(units);
            if *used == 0 {
                self.host_units.remove(host);
            }
            self.list_host(host);
        }
    }

    fn list_host(&mut self, host: &str) {
        let names = self.of_host.get(host).cloned().unwrap_or_default();
        names.iter().for_each(|name| self.list(name));
    }

    /// A unit runs on the agent.
    pub(crate) fn started(&mut self, name: &str) {
        self.unlist(name);
        match self.agents.get_mut(name) {
            Some(agent) => {
                agent.running += 1;
                agent.free = agent.free.saturating_sub(1);
                let host = agent.state.host.clone();
                self.add_to_host(&host, 1);
            }
            None => *self.orphans.entry(name.to_owned()).or_default() += 1,
        }
        self.list(name);
    }

    /// A unit of the agent ended.
    pub(crate) fn ended(&mut self, name: &str) {
        self.unlist(name);
        if let Some(agent) = self.agents.get_mut(name) {
            agent.running = agent.running.saturating_sub(1);
            agent.free = agent.free.saturating_add(1).min(agent.state.slots);
            let host = agent.state.host.clone();
            self.take_from_host(&host, 1);
        } else if let Some(running) = self.orphans.get_mut(name) {
            *running -= 1;
            if *running == 0 {
                self.orphans.remove(name);
            }
        }
        self.list(name);
    }

    /// Classes with an agent that takes a unit.
    pub(crate) fn idle(&self, lane: Lane) -> &BTreeSet<ClassId> {
        match lane {
            Lane::Fast => &self.idle_for_first,
            Lane::Fair | Lane::Scavenger => &self.idle,
        }
    }

    /// Classes that reach both endpoints and have the labels, with agents or without.
    pub(crate) fn classes(&mut self, ends: [(u32, &str); 2], labels: &[String]) -> Vec<ClassId> {
        let classes = self.classes.iter().enumerate();
        let found = classes.filter(|(class, reach)| {
            reach.has(labels)
                && ends.iter().all(|(id, name)| {
                    let known = self.reached.entry((*class, *id));
                    *known.or_insert_with(|| reach.reaches(name))
                })
        });
        found.map(|(class, _)| class).collect()
    }

    /// The same without what is known already.
    pub(crate) fn classes_now(&self, ends: [&str; 2], labels: &[String]) -> Vec<ClassId> {
        let classes = self.classes.iter().enumerate();
        let found = classes
            .filter(|(_, reach)| reach.has(labels) && ends.iter().all(|name| reach.reaches(name)));
        found.map(|(class, _)| class).collect()
    }

    /// Units that the agents of these classes take now.
    pub(crate) fn free(&self, classes: &[ClassId]) -> u32 {
        let free = classes.iter().map(|class| self.classes[*class].free);
        free.fold(0, u32::saturating_add)
    }

    /// The agent of these classes that takes a unit.
    pub(crate) fn choose(&self, classes: &[ClassId], lane: Lane) -> Result<&str, NoAgent> {
        let classes_idle = classes.iter().map(|class| match lane {
            Lane::Fast => &self.classes[*class].idle_for_first,
            Lane::Fair | Lane::Scavenger => &self.classes[*class].idle,
        });
        let idle = classes_idle.filter_map(BTreeSet::first);
        if let Some((_, name)) = idle.min() {
            return Ok(name);
        }
        let agents = classes.iter().map(|class| self.classes[*class].members);
        match agents.sum() {
            0 => Err(NoAgent::Unreachable),
            agents => Err(NoAgent::Busy { agents }),
        }
    }

    /// Forgets what was known of an endpoint that is no more.
    pub(crate) fn forget_endpoints(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.reached.retain(|(_, endpoint), _| is_alive(*endpoint));
    }
}

/// Whether a pattern, in which `*` stands for any text, matches all of an endpoint's name: as it
/// is, or with the port that a name without one means. Of several patterns with commas between them
/// one is enough.
pub fn matches(patterns: &str, endpoint: &str) -> bool {
    patterns.split(',').any(|pattern| {
        fits(pattern, endpoint)
            || usual_port(endpoint).is_some_and(|port| fits(pattern, &format!("{endpoint}:{port}")))
    })
}

fn usual_port(endpoint: &str) -> Option<u16> {
    let (scheme, host) = endpoint.split_once("://")?;
    let has_port = |(_, port): (&str, &str)| !port.contains(']');
    if host.rsplit_once(':').is_some_and(has_port) {
        return None;
    }
    match scheme {
        "gsiftp" => Some(2811),
        "ftp" | "ftpes" => Some(21),
        "sshftp" => Some(22),
        "https" | "davs" => Some(443),
        "http" | "dav" => Some(80),
        _ => None,
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
