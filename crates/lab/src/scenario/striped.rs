//! Networks of striped servers: each data node is a host behind a link of its own.
//!
//! ```text
//!   get          left0 (front end) ── right0 (client)      left0-1 ... left0-n ══ right
//!   put          left0 (client) ── right0 (front end)      left ══ right0-1 ... right0-n
//!   third party  both: left0-1 ... left0-n ══ right, where right0 and right0-1 ... right0-n are
//! ```
//!
//! `══` are links as the path has them, one a node. Front ends reach their nodes over `──` too.

use super::cell::Cell;
use super::format::{Direction, Method, NodeFate, PathChange, Scenario};
use super::network::{DATA_LINK, add_client, constant, nanoseconds, random, whole};
use crate::host::HostConfig;
use crate::network::{Join, Member, NetworkConfig, Paths};
use crate::path::{Alteration, Loss, PathConfig};

/// Rate of control channels and node links, bit/s: no bottleneck.
const CONTROL_BPS: u64 = 1_000_000_000;

/// The sides whose nodes have links, and whether data comes from there.
struct Sides {
    near: &'static str,
    far: &'static str,
    sends: bool,
}

impl Sides {
    fn of(method: &Method) -> Sides {
        match method.direction {
            Direction::Get | Direction::ThirdParty => Sides {
                near: "left",
                far: "right",
                sends: true,
            },
            Direction::Put => Sides {
                near: "right",
                far: "left",
                sends: false,
            },
        }
    }

    /// Names of the links of a node: the way of the data, and back.
    fn links(&self, node: u32) -> [String; 2] {
        let node = node_host(self.near, node);
        let [away, here] = [
            format!("{node}>{}", self.far),
            format!("{}>{node}", self.far),
        ];
        if self.sends {
            [away, here]
        } else {
            [here, away]
        }
    }

    /// Names of the links between a node and its front end.
    fn inside(&self, node: u32) -> [String; 2] {
        let node = node_host(self.near, node);
        [
            format!("{}>{node}", self.near),
            format!("{node}>{}", self.near),
        ]
    }
}

/// The host of a data node, from 1, of the server at `left0` or `right0`.
pub fn node_host(side: &str, node: u32) -> String {
    format!("{side}0-{node}")
}

impl Scenario {
    /// The cell as one of its nodes has it.
    fn cell_of_node(&self, cell: &Cell, node: u32) -> Cell {
        let mut cell = cell.clone();
        for link in self.nodes.link.iter().filter(|link| link.node == node) {
            cell.rate = link.rate.unwrap_or(cell.rate);
            cell.delay = link.delay.unwrap_or(cell.delay);
            cell.loss = link.loss.unwrap_or(cell.loss);
        }
        cell
    }

    /// The ways of the data of a cell, for a look at their values.
    pub(super) fn paths_of(&self, cell: &Cell) -> Vec<PathConfig> {
        let nodes = (1..=cell.nodes).map(|node| self.cell_of_node(cell, node));
        let cells = std::iter::once(cell.clone()).chain(nodes);
        cells.map(|cell| self.path.forward(&cell, 1)).collect()
    }

    /// What the links of all nodes carry together, bit/s; that of the path without nodes.
    pub fn links_bps(&self, cell: &Cell) -> f64 {
        match cell.nodes {
            0 => cell.rate.0,
            nodes => (1..=nodes)
                .map(|node| self.cell_of_node(cell, node).rate.0)
                .sum(),
        }
    }

    /// The links over which data goes.
    pub fn data_links(&self, cell: &Cell, method: &Method) -> Vec<String> {
        let sides = Sides::of(method);
        match cell.nodes {
            0 => vec![DATA_LINK.to_owned()],
            nodes => (1..=nodes)
                .map(|node| sides.links(node)[0].clone())
                .collect(),
        }
    }

    /// Hosts, sites and links of a cell with nodes, without the settings of hosts.
    pub(super) fn striped_network(&self, cell: &Cell, method: &Method, seed: u64) -> NetworkConfig {
        let sides = Sides::of(method);
        let member = |name: String, site: &str| Member {
            host: HostConfig::new(name),
            site: site.to_owned(),
        };
        let plain = |delay_ns: u64| PathConfig {
            rate_bps: Some(CONTROL_BPS),
            delay_ns,
            ..PathConfig::default()
        };
        let control = Paths::same(plain(nanoseconds(cell.delay.0)));
        let mut members = vec![
            member(format!("{}0", sides.near), sides.near),
            member(format!("{}0", sides.far), sides.far),
        ];
        let mut joins = vec![Join {
            from: sides.near.to_owned(),
            to: sides.far.to_owned(),
            paths: control,
        }];
        for node in 1..=cell.nodes {
            let name = node_host(sides.near, node);
            members.push(member(name.clone(), &name));
            let seed = seed.wrapping_add(u64::from(node) << 40);
            let data = self.path.forward(&self.cell_of_node(cell, node), seed);
            let back = PathConfig {
                loss: Loss::None,
                cross_traffic: Vec::new(),
                seed: seed.wrapping_add(1 << 32),
                ..data.clone()
            };
            let (from, to) = match sides.sends {
                true => (name.as_str(), sides.far),
                false => (sides.far, name.as_str()),
            };
            joins.push(Join {
                from: from.to_owned(),
                to: to.to_owned(),
                paths: Paths {
                    forward: data,
                    back,
                },
            });
            joins.push(Join {
                from: sides.near.to_owned(),
                to: name.clone(),
                paths: Paths::same(plain(nanoseconds(self.nodes.delay.0))),
            });
        }
        let mut config = NetworkConfig {
            members,
            joins,
            ..NetworkConfig::sides(0, 0, Paths::same(PathConfig::default()))
        };
        if method.direction == Direction::ThirdParty {
            for node in 1..=cell.nodes {
                config
                    .members
                    .push(member(node_host(sides.far, node), sides.far));
            }
            let delay = self.hosts.client_delay.unwrap_or(cell.delay);
            add_client(&mut config, &plain(nanoseconds(delay.0)));
        }
        config
    }

    /// What a change alters on the links of the nodes that it concerns.
    pub(super) fn node_alterations(
        &self,
        change: &PathChange,
        cell: &Cell,
        method: &Method,
    ) -> Vec<(String, Alteration)> {
        let sides = Sides::of(method);
        let concerned = (1..=cell.nodes).filter(|node| change.node.is_none_or(|of| of == *node));
        let mut all = Vec::new();
        for node in concerned {
            let [data, back] = sides.links(node);
            let mut add = |links: &[&String], to: Alteration| {
                all.extend(links.iter().map(|link| ((*link).clone(), to.clone())));
            };
            if let Some(rate) = change.rate {
                add(&[&data, &back], Alteration::RateBps(whole(rate.0)));
            }
            if let Some(delay) = change.delay {
                add(&[&data, &back], Alteration::DelayNs(nanoseconds(delay.0)));
            }
            if let Some(loss) = change.loss {
                add(&[&data], Alteration::Loss(random(loss)));
            }
            if let Some(share) = change.background {
                let rate = change.rate.unwrap_or(self.cell_of_node(cell, node).rate);
                add(&[&data], Alteration::CrossTraffic(constant(rate, share)));
            }
            let all_links = [&sides.inside(node)[..], &[data, back]].concat();
            match change.becomes {
                Some(NodeFate::Cut) => add(&all_links.iter().collect::<Vec<_>>(), Alteration::Cut),
                Some(NodeFate::Healed) => {
                    add(&all_links.iter().collect::<Vec<_>>(), Alteration::Heal)
                }
                Some(NodeFate::Killed | NodeFate::Drained) | None => {}
            }
        }
        all
    }

    /// Which nodes end themselves, or are ended: when, in s from the first data, which, and how.
    pub fn node_ends(&self, cell: &Cell) -> Vec<(f64, u32, NodeFate)> {
        let ends = self.change.iter().filter_map(|change| {
            let fate = change.becomes?;
            let node = change.node.filter(|node| *node <= cell.nodes)?;
            matches!(fate, NodeFate::Killed | NodeFate::Drained).then_some((
                change.at.0,
                node,
                fate,
            ))
        });
        ends.collect()
    }
}
