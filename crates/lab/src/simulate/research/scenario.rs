//! The words of a research network.

use std::collections::BTreeSet;

use godwit_sim::{
    fluid::FluidLink,
    network::{InvalidTopology, LinkConfig, Route, Topology},
    path::PathConfig,
};
use serde::{Deserialize, Serialize};

use crate::scenario::{Rate, Share, Size, Time, error::Invalid, whole};

/// Light in fibre, km/s.
const KM_PER_SECOND: f64 = 200_000.0;
/// Between a site and its router, s.
const ACCESS_S: f64 = 0.000_1;
/// Most sites, links, users and transfers of a scenario.
const SITES_MAX: usize = 500;
const LINKS_MAX: usize = 2000;
const USERS_MAX: u32 = 10_000;
const TRANSFERS_MAX: u32 = 1_000_000;

/// Users of a network, and what they move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResearchStudy {
    /// Users.
    pub users: u32,
    /// Transfers that begin in a day.
    pub transfers: u32,
    /// Hours in which they begin.
    pub hours: u32,
    /// Days, each with a seed.
    pub seeds: u32,
    /// Largest window of a connection.
    pub window: Size,
    /// Queue of each link, as the time that it takes to drain.
    pub queue: Time,
    /// Connections of a transfer that is alone and static.
    pub channels: u32,
    /// Round trips of a login.
    pub login_round_trips: u32,
    /// Bytes of a transfer.
    pub size: Sizes,
    /// Bytes of one of its files.
    pub file: Sizes,
    /// The transfer service.
    pub service: ServiceSpec,
    /// Where users and data are.
    pub site: Vec<MapSite>,
    /// What connects them, in both directions.
    pub link: Vec<MapLink>,
}

/// A lognormal distribution, cut off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Half are larger.
    pub median: Size,
    /// Deviation of the natural logarithm.
    pub sigma: f64,
    /// None is larger.
    pub max: Size,
}

/// Agents and budgets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Agents, each on a host of its own; they reach all sites.
    pub agents: u32,
    /// Units of an agent at a time.
    pub slots: u32,
    /// Sessions that an endpoint takes.
    pub sessions: u32,
    /// Data channels that it takes.
    pub channels: u32,
    /// From the end of a unit, or the arrival of a job, to the first byte of the next: the leader's
    /// look, the agent's poll, the commands.
    pub look: Time,
}

/// A site with its data transfer node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapSite {
    /// Its name.
    pub name: String,
    /// Between its data transfer node and its router.
    pub rate: Rate,
    /// How often users are there, and data, beside others.
    pub weight: f64,
}

/// A link between two routers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapLink {
    /// One site.
    pub from: String,
    /// The other.
    pub to: String,
    /// In each direction.
    pub rate: Rate,
    /// Length of its fibre.
    pub km: f64,
    /// Loss whatever the load, of a segment.
    pub loss: Option<Share>,
}

impl ResearchStudy {
    /// Says what is wrong with it.
    pub(in crate::simulate) fn check(&self) -> Result<(), Invalid> {
        let wrong =
            |field: &str, reason: String| Err(Invalid::new(format!("research.{field}"), reason));
        let service = &self.service;
        for (field, value, most) in [
            ("users", self.users, USERS_MAX),
            ("transfers", self.transfers, TRANSFERS_MAX),
            ("hours", self.hours, 24 * 7),
            ("seeds", self.seeds, 100),
            ("channels", self.channels, 1024),
            ("login_round_trips", self.login_round_trips, 100),
            ("service.agents", service.agents, 1000),
            ("service.slots", service.slots, 1000),
            ("service.sessions", service.sessions, 100_000),
            ("service.channels", service.channels, 100_000),
        ] {
            if !(1..=most).contains(&value) {
                return wrong(field, format!("must lie between 1 and {most}"));
            }
        }
        if self.window.0 < 10_000 {
            return wrong("window", "must be at least 10 kB".into());
        }
        for (field, time, most) in [
            ("queue", self.queue, 10.0),
            ("service.look", service.look, 10.0),
        ] {
            if !(0.001..=most).contains(&time.0) {
                return wrong(field, format!("must lie between 1 ms and {most} s"));
            }
        }
        for (field, sizes) in [("size", self.size), ("file", self.file)] {
            if !(0.0..=5.0).contains(&sizes.sigma) {
                return wrong(&format!("{field}.sigma"), "must lie between 0 and 5".into());
            }
            if sizes.median.0 == 0 || sizes.max < sizes.median {
                let reason = "must not be less than the median, which is above 0".into();
                return wrong(&format!("{field}.max"), reason);
            }
        }
        self.check_map()
    }

    fn check_map(&self) -> Result<(), Invalid> {
        let wrong =
            |field: String, reason: String| Err(Invalid::new(format!("research.{field}"), reason));
        if !(2..=SITES_MAX).contains(&self.site.len()) {
            return wrong("site".into(), format!("there must be 2 to {SITES_MAX}"));
        }
        if self.link.len() > LINKS_MAX {
            return wrong("link".into(), format!("there must be at most {LINKS_MAX}"));
        }
        let mut names = BTreeSet::new();
        for (at, site) in self.site.iter().enumerate() {
            if !names.insert(&site.name) {
                return wrong(format!("site[{at}].name"), "is another site's, too".into());
            }
            if !site.rate.0.is_finite() {
                return wrong(format!("site[{at}].rate"), "must be limited".into());
            }
            if !(site.weight > 0.0 && site.weight.is_finite()) {
                return wrong(format!("site[{at}].weight"), "must be above 0".into());
            }
        }
        for (at, link) in self.link.iter().enumerate() {
            for (end, name) in [("from", &link.from), ("to", &link.to)] {
                if !names.contains(name) {
                    return wrong(
                        format!("link[{at}].{end}"),
                        format!("no site is called {name}"),
                    );
                }
            }
            if !link.rate.0.is_finite() {
                return wrong(format!("link[{at}].rate"), "must be limited".into());
            }
            if !(1.0..=40_000.0).contains(&link.km) {
                return wrong(
                    format!("link[{at}].km"),
                    "must lie between 1 and 40000".into(),
                );
            }
            if link.loss.is_some_and(|loss| loss.0 > 0.1) {
                return wrong(format!("link[{at}].loss"), "must be at most 10 %".into());
            }
        }
        Map::new(self).map(|_| ())
    }
}

/// Links as the rate model knows them, and the routes between all sites.
#[derive(Debug)]
pub(super) struct Map {
    /// Directions of links: those of sites first, out of the site and into it.
    pub(super) links: Vec<FluidLink>,
    pub(super) names: Vec<String>,
    /// By source and destination.
    routes: Vec<Vec<Option<Passage>>>,
}

/// A way between two sites.
#[derive(Debug, Clone)]
pub(super) struct Passage {
    pub(super) links: Vec<usize>,
    pub(super) back_s: f64,
    pub(super) rtt_s: f64,
    /// Of the slowest link, bit/s.
    pub(super) rate_bps: f64,
}

impl Map {
    pub(super) fn new(study: &ResearchStudy) -> Result<Self, Invalid> {
        let node = |name: &str| format!("{name} data");
        let sites = study.site.iter().map(|site| {
            let loss = 0.0;
            (
                node(&site.name),
                site.name.clone(),
                site.rate.0,
                ACCESS_S,
                loss,
            )
        });
        let between = study.link.iter().map(|link| {
            let loss = link.loss.map_or(0.0, |loss| loss.0);
            let delay_s = link.km / KM_PER_SECOND;
            (
                link.from.clone(),
                link.to.clone(),
                link.rate.0,
                delay_s,
                loss,
            )
        });
        let (mut configs, mut links, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (from, to, rate_bps, delay_s, loss) in sites.chain(between) {
            for (from, to) in [(&from, &to), (&to, &from)] {
                let path = PathConfig {
                    delay_ns: whole(delay_s * 1e9),
                    ..PathConfig::default()
                };
                let (from, to) = (from.clone(), to.clone());
                names.push(format!("{from} to {to}"));
                configs.push(LinkConfig { from, to, path });
                links.push(FluidLink {
                    rate_bps,
                    delay_s,
                    queue_s: study.queue.0,
                    loss,
                });
            }
        }
        let first = 2 * study.site.len();
        let topology = Topology::new(&configs).map_err(|error| in_study(&error, first))?;
        let way = |route: &Route| -> Passage {
            let delay = |way: &[u16]| -> f64 {
                way.iter()
                    .map(|link| links[usize::from(*link)].delay_s)
                    .sum()
            };
            let slowest = (route.forward.iter())
                .map(|link| links[usize::from(*link)].rate_bps)
                .fold(f64::INFINITY, f64::min);
            Passage {
                links: route
                    .forward
                    .iter()
                    .map(|link| usize::from(*link))
                    .collect(),
                back_s: delay(&route.back),
                rtt_s: delay(&route.forward) + delay(&route.back),
                rate_bps: slowest,
            }
        };
        let mut routes = Vec::new();
        for (at, source) in study.site.iter().enumerate() {
            let mut row = Vec::new();
            for destination in &study.site {
                if source.name == destination.name {
                    row.push(None);
                    continue;
                }
                let (from, to) = (node(&source.name), node(&destination.name));
                let route = topology.route(&from, &to).map_err(|_| {
                    let reason = format!("no links lead to {}", destination.name);
                    Invalid::new(format!("research.site[{at}].name"), reason)
                })?;
                row.push(Some(way(&route)));
            }
            routes.push(row);
        }
        Ok(Self {
            links,
            names,
            routes,
        })
    }

    /// The way between two different sites.
    pub(super) fn passage(&self, source: usize, destination: usize) -> &Passage {
        let found = self.routes[source][destination].as_ref();
        found.expect("transfers have different ends")
    }
}

/// Links of the topology are those of sites, then two for each of the scenario.
fn in_study(error: &InvalidTopology, first: usize) -> Invalid {
    let index = (error.field.strip_prefix("link["))
        .and_then(|rest| rest.split_once(']'))
        .and_then(|(index, rest)| Some((index.parse::<usize>().ok()?.checked_sub(first)?, rest)));
    let field = match index {
        Some((index, rest)) => format!("link[{}]{rest}", index / 2),
        None => error.field.clone(),
    };
    Invalid::new(format!("research.{field}"), error.reason.clone())
}
