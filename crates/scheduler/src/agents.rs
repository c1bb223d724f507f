//! Agents: which reach what, and which of them is least loaded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::AgentState;

/// Agents with equal patterns and labels.
type ClassId = usize;

#[derive(Debug)]
struct Reach {
    patterns: Vec<String>,
    labels: Vec<String>,
    /// Agents with a free slot, least loaded first.
    idle: BTreeSet<(u64, String)>,
    /// All.
    members: u32,
}

impl Reach {
    fn has(&self, labels: &[String]) -> bool {
        self.members > 0 && labels.iter().all(|label| self.labels.contains(label))
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
    /// Whether a class reaches an endpoint. Only looked up.
    reached: HashMap<(ClassId, u32), bool>,
}

impl Agents {
    pub(crate) fn set_hosts(&mut self, limits: &BTreeMap<String, u32>) {
        self.host_limits.clone_from(limits);
    }

    /// Says whether some agent may reach other things than before.
    pub(crate) fn set(&mut self, name: &str, mut state: AgentState) -> bool {
        let before = self.agents.get(name).map(|agent| agent.class);
        state.labels.sort();
        state.endpoints.sort();
        let running = self.take_out(name);
        let key = (state.endpoints.clone(), state.labels.clone());
        let class = *self.class_of.entry(key).or_insert_with_key(|key| {
            self.classes.push(Reach {
                patterns: key.0.clone(),
                labels: key.1.clone(),
                idle: BTreeSet::new(),
                members: 0,
            });
            self.classes.len() - 1
        });
        self.classes[class].members += 1;
        if running > 0 {
            *self.host_units.entry(state.host.clone()).or_default() += running;
        }
        let agent = Agent {
            free: state.free,
            state,
            class,
            running,
        };
        self.agents.insert(name.to_owned(), agent);
        self.list(name);
        before != Some(class)
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let running = self.take_out(name);
        if running > 0 {
            self.orphans.insert(name.to_owned(), running);
        }
    }

    /// Takes the agent out of everything; gives how many units it runs.
    fn take_out(&mut self, name: &str) -> u32 {
        let Some(agent) = self.agents.remove(name) else {
            return self.orphans.remove(name).unwrap_or(0);
        };
        let class = &mut self.classes[agent.class];
        class.idle.remove(&(agent.load(), name.to_owned()));
        class.members -= 1;
        release_host(&mut self.host_units, &agent.state.host, agent.running);
        agent.running
    }

    fn unlist(&mut self, name: &str) {
        if let Some(agent) = self.agents.get(name) {
            let place = (agent.load(), name.to_owned());
            self.classes[agent.class].idle.remove(&place);
        }
    }

    fn list(&mut self, name: &str) {
        if let Some(agent) = self.agents.get(name)
            && agent.available() > 0
        {
            let place = (agent.load(), name.to_owned());
            self.classes[agent.class].idle.insert(place);
        }
    }

    /// A unit runs on the agent.
    pub(crate) fn started(&mut self, name: &str) {
        self.unlist(name);
        match self.agents.get_mut(name) {
            Some(agent) => {
                agent.running += 1;
                agent.free = agent.free.saturating_sub(1);
                *self.host_units.entry(agent.state.host.clone()).or_default() += 1;
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
            release_host(&mut self.host_units, &agent.state.host, 1);
        } else if let Some(running) = self.orphans.get_mut(name) {
            *running -= 1;
            if *running == 0 {
                self.orphans.remove(name);
            }
        }
        self.list(name);
    }

    pub(crate) fn any_idle(&self) -> bool {
        self.classes.iter().any(|class| !class.idle.is_empty())
    }

    /// Classes that reach both endpoints and have the labels.
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

    /// The agent of these classes that takes a unit.
    pub(crate) fn choose(&self, classes: &[ClassId]) -> Result<&str, NoAgent> {
        let least = classes
            .iter()
            .filter_map(|class| {
                let mut idle = self.classes[*class].idle.iter();
                idle.find(|(_, name)| self.host_has_room(name))
            })
            .min();
        if let Some((_, name)) = least {
            return Ok(name);
        }
        let agents = classes.iter().map(|class| self.classes[*class].members);
        match agents.sum() {
            0 => Err(NoAgent::Unreachable),
            agents => Err(NoAgent::Busy { agents }),
        }
    }

    fn host_has_room(&self, name: &str) -> bool {
        let host = &self.agents[name].state.host;
        let used = self.host_units.get(host).copied().unwrap_or(0);
        let limit = self.host_limits.get(host);
        limit.is_none_or(|limit| used < *limit)
    }

    /// Forgets what was known of an endpoint that is no more.
    pub(crate) fn forget_endpoints(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.reached.retain(|(_, endpoint), _| is_alive(*endpoint));
    }
}

fn release_host(units: &mut BTreeMap<String, u32>, host: &str, running: u32) {
    if let Some(used) = units.get_mut(host) {
        *used = used.saturating_sub(running);
        if *used == 0 {
            units.remove(host);
        }
    }
}

/// Whether a pattern, in which `*` stands for any text, matches all of a name.
pub fn matches(pattern: &str, name: &str) -> bool {
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
