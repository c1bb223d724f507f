//! The tree of shares with jobs and queues as its leaves, and the virtual times of its nodes.
//!
//! A node has one start tag for each *domain* in which its queues compete: an endpoint, or the
//! slots of agents. A unit of cost `c` moves the tags of its queue and of all nodes above it by `c`
//! over their weights, in each of its domains. Among siblings the smallest tag is next. A node that
//! had nothing to start is put level with the last sibling that was served, so that idleness earns
//! nothing; one that could not use its turn keeps a bounded credit.
//!
//! Queues wait in *lines*, one for each place that keeps them from starting. A node keeps, for each
//! line, its children with queues in the line in order of their tags, so that the first queue of a
//! line is found from the root down, and a charge moves only the nodes that pay.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    line::{At, Domain, Lane, Line, NodeId},
    model::ShareConfig,
};

/// The root, which all paths begin at.
pub(crate) const ROOT: NodeId = 0;

/// Cost over weight that a node may be behind its siblings while other limits keep it from its
/// turn: what it catches up with at once when they no longer do.
const CREDIT: f64 = (16_u64 << 30) as f64;

/// What a node is called among its siblings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeName {
    /// A part of a path.
    Share(String),
    Job(u128),
    Queue(u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    start: f64,
    /// Queues below with something to start.
    active: u32,
}

#[derive(Debug)]
struct Node {
    name: NodeName,
    parent: NodeId,
    children: BTreeMap<NodeName, NodeId>,
    /// Order of making, for siblings with equal tags.
    rank: u64,
    config: ShareConfig,
    /// Running units below, and their bytes.
    units: u32,
    bytes: u64,
    /// Queues and leases that name this node.
    references: u32,
    tags: BTreeMap<Domain, Tag>,
    /// The largest start tag of a child that was served.
    served: BTreeMap<Domain, f64>,
    /// Lines that the node is in, and the children that wait in them; a queue has no children.
    lines: BTreeMap<Line, BTreeSet<Turn>>,
}

/// Where a node stands among its siblings: the smallest is next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turn {
    start: f64,
    rank: u64,
    node: NodeId,
}

impl Eq for Turn {}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.start
            .total_cmp(&other.start)
            .then(self.rank.cmp(&other.rank))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A limit of a node that is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) node: NodeId,
    pub(crate) units: u32,
    pub(crate) limit_units: Option<u32>,
    pub(crate) bytes: u64,
    pub(crate) limit_bytes: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    made: u64,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            free: Vec::new(),
            made: 0,
        };
        tree.insert(NodeName::Share(String::new()), ROOT);
        tree
    }

    fn insert(&mut self, name: NodeName, parent: NodeId) -> NodeId {
        let node = Node {
            name,
            parent,
            children: BTreeMap::new(),
            rank: self.made,
            config: ShareConfig::default(),
            units: 0,
            bytes: 0,
            references: 0,
            tags: BTreeMap::new(),
            served: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        self.made += 1;
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = Some(node);
            return id;
        }
        let id = u32::try_from(self.nodes.len()).expect("fewer nodes than memory holds");
        self.nodes.push(Some(node));
        id
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id as usize].as_ref().expect("the node is alive")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id as usize].as_mut().expect("the node is alive")
    }

    /// The child of a name; it is made where it is missing.
    pub(crate) fn child(&mut self, parent: NodeId, name: NodeName) -> NodeId {
        if let Some(child) = self.node(parent).children.get(&name) {
            return *child;
        }
        let child = self.insert(name.clone(), parent);
        self.node_mut(parent).children.insert(name, child);
        child
    }

    /// The node of a path; empty parts are left out.
    pub(crate) fn share(&mut self, path: &str) -> NodeId {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(ROOT, |at, part| {
            self.child(at, NodeName::Share(part.to_owned()))
        })
    }

    /// The node's path of shares.
    pub(crate) fn path(&self, node: NodeId) -> String {
        let mut parts: Vec<&str> = self
            .ancestry(node)
            .filter_map(|at| match &self.node(at).name {
                NodeName::Share(part) => Some(&**part),
                _ => None,
            })
            .collect();
        parts.reverse();
        parts.join("/")
    }

    /// The node and those above it, without the root.
    pub(crate) fn ancestry(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let first = (node != ROOT).then_some(node);
        std::iter::successors(first, |at| {
            let parent = self.node(*at).parent;
            (parent != ROOT).then_some(parent)
        })
    }

    /// Weights and limits of all shares; what is not named has the default.
    pub(crate) fn configure(&mut self, shares: &BTreeMap<String, ShareConfig>) {
        for node in self.nodes.iter_mut().flatten() {
            if matches!(node.name, NodeName::Share(_)) {
                node.config = ShareConfig::default();
            }
        }
        for (path, config) in shares {
            let node = self.share(path);
            let weight = config.weight;
            let valid = weight.is_finite() && weight > 0.0;
            self.node_mut(node).config = ShareConfig {
                weight: if valid { weight } else { 1.0 },
                ..*config
            };
        }
    }

    /// The weight of a job among the jobs of its share.
    pub(crate) fn set_weight(&mut self, node: NodeId, weight: f64) {
        self.node_mut(node).config.weight = weight;
    }

    pub(crate) fn hold(&mut self, node: NodeId) {
        self.node_mut(node).references += 1;
    }

    /// Undoes [`Tree::hold`]; jobs and queues that are named no more are removed.
    pub(crate) fn release(&mut self, node: NodeId) {
        self.node_mut(node).references -= 1;
        let mut at = node;
        while !matches!(self.node(at).name, NodeName::Share(_)) && self.is_unused(at) {
            at = self.remove(at);
        }
    }

    fn is_unused(&self, node: NodeId) -> bool {
        let node = self.node(node);
        node.references == 0 && node.children.is_empty()
    }

    fn remove(&mut self, id: NodeId) -> NodeId {
        let node = self.nodes[id as usize].take().expect("the node is alive");
        self.node_mut(node.parent).children.remove(&node.name);
        self.free.push(id);
        node.parent
    }

    /// Removes shares without jobs and configuration, and domains that are no more.
    pub(crate) fn collect(&mut self, is_alive: impl Fn(&Domain) -> bool) {
        for id in (1..self.nodes.len()).rev() {
            let mut at = u32::try_from(id).expect("fewer nodes than memory holds");
            while at != ROOT
                && self.nodes[at as usize].is_some()
                && self.is_unused(at)
                && self.node(at).config == ShareConfig::default()
            {
                at = self.remove(at);
            }
        }
        for node in self.nodes.iter_mut().flatten() {
            node.tags.retain(|domain, _| is_alive(domain));
            node.served.retain(|domain, _| is_alive(domain));
        }
    }

    /// A queue has something to start.
    pub(crate) fn activate(&mut self, leaf: NodeId, domains: &[Domain]) {
        let path: Vec<NodeId> = self.ancestry(leaf).collect();
        for node in path {
            let parent = self.node(node).parent;
            for domain in domains {
                let served = self.served(parent, domain);
                let tag = self.node_mut(node).tags.entry(*domain).or_default();
                if tag.active == 0 {
                    tag.start = tag.start.max(served);
                }
                tag.active += 1;
            }
        }
    }

    /// A queue has nothing to start any more.
    pub(crate) fn deactivate(&mut self, leaf: NodeId, domains: &[Domain]) {
        let path: Vec<NodeId> = self.ancestry(leaf).collect();
        for node in path {
            for domain in domains {
                if let Some(tag) = self.node_mut(node).tags.get_mut(domain) {
                    tag.active -= 1;
                }
            }
        }
    }

    fn served(&self, parent: NodeId, domain: &Domain) -> f64 {
        self.node(parent).served.get(domain).copied().unwrap_or(0.0)
    }

    /// Where the node stands in the domain.
    fn turn(&self, id: NodeId, domain: &Domain) -> Turn {
        let node = self.node(id);
        Turn {
            start: node.tags.get(domain).map_or(0.0, |tag| tag.start),
            rank: node.rank,
            node: id,
        }
    }

    /// Moves the node among its siblings, in all lines that the domain orders.
    fn set_start(&mut self, id: NodeId, domain: &Domain, start: f64) {
        let before = self.turn(id, domain);
        self.node_mut(id).tags.entry(*domain).or_default().start = start;
        let (after, parent) = (self.turn(id, domain), self.node(id).parent);
        let lines = self.node(id).lines.range(Line::all_of(*domain));
        let lines: Vec<Line> = lines.map(|(line, _)| *line).collect();
        let parent = self.node_mut(parent);
        for line in lines {
            if let Some(siblings) = parent.lines.get_mut(&line) {
                siblings.remove(&before);
                siblings.insert(after);
            }
        }
    }

    /// The queue waits in the line.
    pub(crate) fn join(&mut self, leaf: NodeId, line: Line) {
        self.node_mut(leaf).lines.entry(line).or_default();
        let mut at = leaf;
        while at != ROOT {
            let (turn, parent) = (self.turn(at, &line.domain), self.node(at).parent);
            let siblings = self.node_mut(parent).lines.entry(line).or_default();
            let is_linked = !siblings.is_empty();
            siblings.insert(turn);
            if is_linked {
                return;
            }
            at = parent;
        }
    }

    /// Undoes [`Tree::join`].
    pub(crate) fn leave(&mut self, leaf: NodeId, line: Line) {
        let mut at = leaf;
        loop {
            self.node_mut(at).lines.remove(&line);
            if at == ROOT {
                return;
            }
            let (turn, parent) = (self.turn(at, &line.domain), self.node(at).parent);
            let Some(siblings) = self.node_mut(parent).lines.get_mut(&line) else {
                return;
            };
            siblings.remove(&turn);
            if !siblings.is_empty() {
                return;
            }
            at = parent;
        }
    }

    /// Whether a queue waits there, whatever agents it can go to.
    pub(crate) fn has_waiting(&self, lane: Lane, at: At) -> bool {
        let lines = Line::all_at(lane, at);
        self.node(ROOT).lines.range(lines).next().is_some()
    }

    /// Whose turn it is of those that wait there and can go to agents of these groups. The places
    /// are ordered by one domain.
    pub(crate) fn first(&self, lane: Lane, places: &[At], groups: &[u32]) -> Option<NodeId> {
        let mut node = ROOT;
        loop {
            let lines = &self.node(node).lines;
            let keys = places.iter().flat_map(|at| {
                let of_group = |group: &u32| Line::new(lane, *at, *group);
                groups.iter().map(of_group)
            });
            let found = keys.filter_map(|line| lines.get(&line)?.first()).min();
            match found {
                Some(turn) => node = turn.node,
                None => return (node != ROOT).then_some(node),
            }
        }
    }

    /// Where a queue stands in the domain, from the root down: the smallest is next.
    pub(crate) fn standing(&self, leaf: NodeId, domain: &Domain) -> Vec<Turn> {
        let path = self.ancestry(leaf).map(|id| self.turn(id, domain));
        let mut path: Vec<Turn> = path.collect();
        path.reverse();
        path
    }

    /// Whether a queue is behind another in the domain by half of what it could catch up with.
    pub(crate) fn lags(&self, leaf: NodeId, other: NodeId, domain: &Domain) -> bool {
        let (own, theirs) = (self.standing(leaf, domain), self.standing(other, domain));
        let mut levels = own.iter().zip(&theirs);
        let parted = levels.find(|(own, theirs)| own.node != theirs.node);
        parted.is_some_and(|(own, theirs)| {
            let weight = self.node(own.node).config.weight;
            own.start + CREDIT / 2.0 / weight < theirs.start
        })
    }

    /// The node has waited for long: it is as far as the last of its siblings that was served.
    pub(crate) fn level(&mut self, id: NodeId, domains: &[Domain]) {
        let parent = self.node(id).parent;
        for domain in domains {
            let served = self.served(parent, domain);
            if let Some(start) = self.node(id).tags.get(domain).map(|tag| tag.start) {
                self.set_start(id, domain, start.min(served));
            }
        }
    }

    /// A unit starts: its costs move the tags of all that pay for it.
    pub(crate) fn charge(&mut self, leaf: NodeId, costs: &[(Domain, f64)]) {
        let path: Vec<NodeId> = self.ancestry(leaf).collect();
        for id in path {
            let (parent, weight) = (self.node(id).parent, self.node(id).config.weight);
            for (domain, cost) in costs {
                let least = self.served(parent, domain) - CREDIT / weight;
                let start = self.turn(id, domain).start.max(least);
                self.set_start(id, domain, start + cost / weight);
                let served = self.node_mut(parent).served.entry(*domain).or_default();
                *served = served.max(start);
            }
        }
    }

    /// A unit cost so much more than was charged, or less.
    pub(crate) fn correct(&mut self, node: NodeId, differences: &[(Domain, f64)]) {
        let path: Vec<NodeId> = self.ancestry(node).collect();
        for id in path {
            let weight = self.node(id).config.weight;
            for (domain, difference) in differences {
                if let Some(start) = self.node(id).tags.get(domain).map(|tag| tag.start) {
                    self.set_start(id, domain, start + difference / weight);
                }
            }
        }
    }

    /// A unit runs.
    pub(crate) fn add_running(&mut self, node: NodeId, bytes: u64) {
        let path: Vec<NodeId> = self.ancestry(node).collect();
        for id in path {
            let node = self.node_mut(id);
            node.units += 1;
            node.bytes = node.bytes.saturating_add(bytes);
        }
    }

    /// A unit ended.
    pub(crate) fn remove_running(&mut self, node: NodeId, bytes: u64) {
        let path: Vec<NodeId> = self.ancestry(node).collect();
        for id in path {
            let node = self.node_mut(id);
            node.units -= 1;
            node.bytes = node.bytes.saturating_sub(bytes);
        }
    }

    /// The limit that keeps a unit of so many bytes from starting.
    pub(crate) fn limit_reached(&self, leaf: NodeId, bytes: u64) -> Option<Reached> {
        self.ancestry(leaf).find_map(|id| {
            let node = self.node(id);
            let units = node.config.units.is_some_and(|most| node.units >= most);
            let full = node.units > 0
                && node
                    .config
                    .bytes
                    .is_some_and(|most| node.bytes.saturating_add(bytes) > most);
            (units || full).then(|| Reached {
                node: id,
                units: node.units,
                limit_units: node.config.units.filter(|_| units),
                bytes: node.bytes,
                limit_bytes: node.config.bytes.filter(|_| !units),
            })
        })
    }

    /// Units that run below the node.
    pub(crate) fn units(&self, node: NodeId) -> u32 {
        self.node(node).units
    }

    /// The part of a domain that the node's weights give it while its siblings want theirs.
    pub(crate) fn fraction(&self, node: NodeId, domain: &Domain) -> f64 {
        let wants = |id: NodeId| {
            let tag = self.node(id).tags.get(domain);
            tag.is_some_and(|tag| tag.active > 0)
        };
        self.ancestry(node)
            .map(|id| {
                let own = self.node(id).config.weight;
                let siblings = self.node(self.node(id).parent).children.values();
                let others: f64 = siblings
                    .filter(|sibling| **sibling != id && wants(**sibling))
                    .map(|sibling| self.node(*sibling).config.weight)
                    .sum();
                own / (own + others)
            })
            .product()
    }

    /// Nodes without the root.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.iter().flatten().count() - 1
    }
}
