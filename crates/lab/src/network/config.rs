//! The hosts of a network, their sites, and the paths between them: plain data.

use serde::{Deserialize, Serialize};

use super::Error;
use crate::emulator::{EmulatorConfig, Link};
use crate::host::HostConfig;
use crate::path::PathConfig;

/// Most hosts of one network: their addresses share one /24.
pub const HOSTS_MAX: usize = 200;

/// Both directions between two sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    /// From the first site to the second.
    pub forward: PathConfig,
    /// And back.
    pub back: PathConfig,
}

impl Paths {
    /// The same path in both directions, with seeds of their own. Cross traffic goes both ways too.
    pub fn same(path: PathConfig) -> Paths {
        let mut back = path.clone();
        back.seed = back.seed.wrapping_add(1);
        Paths {
            forward: path,
            back,
        }
    }
}

/// A host and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The host.
    pub host: HostConfig,
    /// Name of its site. Hosts of one site see each other without delay.
    pub site: String,
}

/// The paths between two sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// First site.
    pub from: String,
    /// Second site. All hosts of the first share one path to all hosts of the second.
    pub to: String,
    /// What lies between; links are named `from>to` and `to>from`.
    pub paths: Paths,
}

/// Hosts, paths and how to emulate them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// At most [`HOSTS_MAX`].
    pub members: Vec<Member>,
    /// Sites that are not joined cannot reach each other.
    pub joins: Vec<Join>,
    /// Largest IP packet, bytes; 576 and more. Default 1500.
    #[serde(default = "NetworkConfig::default_mtu")]
    pub mtu: u32,
    /// How to emulate.
    #[serde(default)]
    pub emulator: EmulatorConfig,
    /// What programs may ask for as socket buffer, bytes; raises `net.core.rmem_max` and
    /// `wmem_max` of the machine while the network exists. Default: the machine's limits.
    #[serde(default)]
    pub socket_buffer_max: Option<u64>,
}

impl NetworkConfig {
    /// `left` and `right`, one path between them.
    pub fn pair(paths: Paths) -> NetworkConfig {
        let mut config = NetworkConfig::sides(1, 1, paths);
        config.members[0].host.name = "left".into();
        config.members[1].host.name = "right".into();
        config
    }

    /// `left0`, `left1`... and `right0`...: all on the left share one path to all on the right.
    /// Several senders and one bottleneck, or a client and data nodes behind one switch.
    pub fn sides(left: usize, right: usize, paths: Paths) -> NetworkConfig {
        let members = |site: &'static str, count| {
            (0..count).map(move |index| Member {
                host: HostConfig::new(format!("{site}{index}")),
                site: site.into(),
            })
        };
        NetworkConfig {
            members: members("left", left)
                .chain(members("right", right))
                .collect(),
            joins: vec![Join {
                from: "left".into(),
                to: "right".into(),
                paths,
            }],
            mtu: NetworkConfig::default_mtu(),
            emulator: EmulatorConfig::default(),
            socket_buffer_max: None,
        }
    }

    /// `left` and `right` as in [`NetworkConfig::pair`], and a `client` that reaches both over
    /// `control`: third-party transfers.
    pub fn third_party(paths: Paths, control: Paths) -> NetworkConfig {
        let mut config = NetworkConfig::pair(paths);
        config.members.push(Member {
            host: HostConfig::new("client"),
            site: "client".into(),
        });
        for site in ["left", "right"] {
            config.joins.push(Join {
                from: "client".into(),
                to: site.into(),
                paths: control.clone(),
            });
        }
        config
    }

    /// Changes the configuration of every host.
    #[must_use]
    pub fn each_host(mut self, change: impl Fn(HostConfig) -> HostConfig) -> NetworkConfig {
        for member in &mut self.members {
            member.host = change(std::mem::take(&mut member.host));
        }
        self
    }

    /// Checks everything that can be checked without making the network.
    ///
    /// # Errors
    /// [`Error::Config`], for the first field that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |field: String, reason: &str| Error::Config {
            field,
            reason: reason.to_owned(),
        };
        if self.members.is_empty() || self.members.len() > HOSTS_MAX {
            return Err(wrong("members".into(), "must be 1 to 200 hosts"));
        }
        if !(576..=65_535).contains(&self.mtu) {
            return Err(wrong("mtu".into(), "must be 576 to 65535"));
        }
        for (index, member) in self.members.iter().enumerate() {
            let name = &member.host.name;
            let field = format!("members[{index}].host.name");
            let odd = |c: char| !c.is_ascii_alphanumeric() && c != '-';
            if name.is_empty() || name.contains(odd) || name == "localhost" {
                return Err(wrong(field, "must be letters, digits and -"));
            }
            if self.members[..index].iter().any(|m| m.host.name == *name) {
                return Err(wrong(field, "is taken already"));
            }
        }
        for (index, join) in self.joins.iter().enumerate() {
            let field = |part: &str| format!("joins[{index}].{part}");
            for (part, site) in [("from", &join.from), ("to", &join.to)] {
                if !self.members.iter().any(|member| member.site == *site) {
                    return Err(wrong(field(part), "no host is at this site"));
                }
            }
            if join.from == join.to {
                return Err(wrong(field("to"), "must be another site"));
            }
            let same = |other: &Join| {
                (&other.from, &other.to) == (&join.from, &join.to)
                    || (&other.from, &other.to) == (&join.to, &join.from)
            };
            if self.joins[..index].iter().any(same) {
                return Err(wrong(field("to"), "these sites are joined already"));
            }
            for (part, path) in [("forward", &join.paths.forward), ("back", &join.paths.back)] {
                path.check().map_err(|invalid| {
                    let field = field(&format!("paths.{part}.{}", invalid.field));
                    wrong(field, invalid.reason)
                })?;
            }
        }
        Ok(())
    }

    fn default_mtu() -> u32 {
        1500
    }

    pub(super) fn links(&self, sites: &[&str]) -> Vec<Link> {
        let number = |name: &str| sites.iter().position(|site| *site == name).unwrap_or(0);
        let link = |from: &str, to: &str, path: &PathConfig| Link {
            name: format!("{from}>{to}"),
            from_site: number(from),
            to_site: number(to),
            path: path.clone(),
        };
        (self.joins.iter())
            .flat_map(|Join { from, to, paths }| {
                [link(from, to, &paths.forward), link(to, from, &paths.back)]
            })
            .collect()
    }
}
