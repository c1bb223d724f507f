//! Nodes, links and static routes.
//!
//! A link goes in one direction; each packet of a flow follows the route that was computed when the
//! flow opened: the one of least delay, and of these the one of fewest links.

mod link;
mod routes;

use std::collections::BTreeMap;

pub(crate) use link::Link;
pub use routes::Route;

use crate::path::{InvalidPath, PathConfig};

/// Most links of a topology: more than any scenario needs, and few enough for an index of 16 bits.
pub const LINKS_MAX: usize = 10_000;

/// One direction of a link between two nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Name of the node it begins at.
    pub from: String,
    /// Name of the node it ends at.
    pub to: String,
    /// Rate, delay, queue and loss.
    pub path: PathConfig,
}

/// A link or a route that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidTopology {
    /// The field: `link[2].path.queue.limit`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl InvalidTopology {
    fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}

/// Checked links between named nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    nodes: BTreeMap<String, usize>,
    /// With the indices of both nodes.
    links: Vec<(usize, usize, PathConfig)>,
}

impl Topology {
    /// Nodes are those that links name.
    ///
    /// # Errors
    /// [`InvalidTopology`] for the first link that is wrong: one from a node to itself, a second
    /// one between the same nodes, a path that makes no sense; or where there are none, or more
    /// than [`LINKS_MAX`].
    pub fn new(links: &[LinkConfig]) -> Result<Self, InvalidTopology> {
        if links.is_empty() {
            return Err(InvalidTopology::new("link", "there is none"));
        }
        if links.len() > LINKS_MAX {
            let reason = format!("{} links, {LINKS_MAX} at most", links.len());
            return Err(InvalidTopology::new("link", reason));
        }
        let mut topology = Self {
            nodes: BTreeMap::new(),
            links: Vec::new(),
        };
        for (index, link) in links.iter().enumerate() {
            let field = |name: &str| format!("link[{index}].{name}");
            if link.from.is_empty() {
                return Err(InvalidTopology::new(field("from"), "needs a name"));
            }
            if link.to.is_empty() {
                return Err(InvalidTopology::new(field("to"), "needs a name"));
            }
            if link.from == link.to {
                let reason = format!("leads from {} to itself", link.from);
                return Err(InvalidTopology::new(field("to"), reason));
            }
            (link.path.check()).map_err(
                |InvalidPath {
                     field: name,
                     reason,
                 }| {
                    InvalidTopology::new(field(&format!("path.{name}")), reason)
                },
            )?;
            let (from, to) = (topology.node(&link.from), topology.node(&link.to));
            if topology
                .links
                .iter()
                .any(|(f, t, _)| (*f, *t) == (from, to))
            {
                let reason = format!("a second link from {} to {}", link.from, link.to);
                return Err(InvalidTopology::new(field("to"), reason));
            }
            topology.links.push((from, to, link.path.clone()));
        }
        Ok(topology)
    }

    fn node(&mut self, name: &str) -> usize {
        let next = self.nodes.len();
        *self.nodes.entry(name.to_owned()).or_insert(next)
    }

    /// The route from one node to another and the one back.
    ///
    /// # Errors
    /// [`InvalidTopology`] whose field is `from` or `to`: a node is unknown, or no links lead
    /// there.
    pub fn route(&self, from: &str, to: &str) -> Result<Route, InvalidTopology> {
        let known = |field: &str, name: &str| {
            (self.nodes.get(name).copied())
                .ok_or_else(|| InvalidTopology::new(field, format!("no link names {name}")))
        };
        let (start, end) = (known("from", from)?, known("to", to)?);
        if start == end {
            return Err(InvalidTopology::new("to", format!("is {from} itself")));
        }
        let way = |start, end, from: &str, to: &str| {
            let found = routes::shortest(self.nodes.len(), &self.links, start, end);
            found.ok_or_else(|| {
                InvalidTopology::new("to", format!("no links lead from {from} to {to}"))
            })
        };
        Ok(Route {
            forward: way(start, end, from, to)?,
            back: way(end, start, to, from)?,
        })
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &PathConfig> {
        self.links.iter().map(|(_, _, path)| path)
    }

    /// One-way delays of a route there and back, ns; queues and transmission times not included.
    pub fn round_trip_ns(&self, route: &Route) -> u64 {
        let all = route.forward.iter().chain(&route.back);
        all.map(|link| self.links[usize::from(*link)].2.delay_ns)
            .sum()
    }
}
