//! Hosts joined by emulated paths: the network that experiments run on.
//!
//! ```no_run
//! use godwit_lab::network::{Network, NetworkConfig, Paths};
//! use godwit_lab::path::PathConfig;
//!
//! // 1 Gbit/s, 10 ms each way.
//! let path = PathConfig::new(1_000_000_000, 10_000_000);
//! let network = Network::start(&NetworkConfig::pair(Paths::same(path)))?;
//! let (left, right) = (network.host("left")?, network.host("right")?);
//! let address = right.address();
//! let found = left.enter(|| std::net::TcpStream::connect((address, 2811)).is_ok())?;
//! let report = network.lap()?;
//! println!("{found} {report:?}");
//! # Ok::<(), godwit_lab::network::Error>(())
//! ```

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::emulator::{self, Control, Emulator, EmulatorConfig, Link, Port, Report};
use crate::host::{Host, HostConfig};
use crate::netns::{self, Unavailable};
use crate::path::PathConfig;
use crate::peers;
use crate::state::RunDir;

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

    fn links(&self, sites: &[&str]) -> Vec<Link> {
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

/// Why there is no network, or it cannot do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine does not let us: it must be prepared, or another user must run this.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The configuration makes no sense.
    #[error("{field}: {reason}")]
    Config {
        /// Which field: `joins[0].paths.forward.rate_bps`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No host of that name.
    #[error("no host {0}")]
    NoSuchHost(String),
    /// The kernel refused a setting of a host.
    #[error("host {host}: set {key} to {value}: {source}")]
    Setting {
        /// The host.
        host: String,
        /// The setting.
        key: String,
        /// The value it did not like.
        value: String,
        /// What it said.
        source: io::Error,
    },
    /// The kernel refused us something else.
    #[error("host {host}: {action}: {source}")]
    Os {
        /// The host; `-` for the network as a whole.
        host: String,
        /// What was attempted.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The emulator.
    #[error(transparent)]
    Emulator(#[from] emulator::Error),
    /// What killed runs left behind cannot be removed.
    #[error("remove what is left of earlier runs: {0}")]
    Leftovers(#[source] io::Error),
    /// A result cannot be written.
    #[error("write {}: {source}", path.display())]
    Output {
        /// Where.
        path: std::path::PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A program in a host.
    #[error(transparent)]
    Program(#[from] peers::Error),
}

impl Error {
    pub(crate) fn os(host: &str, action: &str) -> impl FnOnce(io::Error) -> Error + use<> {
        let (host, action) = (host.to_owned(), action.to_owned());
        move |source| Error::Os {
            host,
            action,
            source,
        }
    }
}

/// A running network. Dropping it stops the emulator and kills what still runs in its hosts.
#[derive(Debug)]
pub struct Network {
    // In the order they are dropped: programs first, which the run directory kills, while the
    // emulator still forwards what they have to say.
    run: RunDir,
    emulator: Emulator,
    hosts: Vec<Host>,
    /// Of each host, at the start of the lap.
    interface_drops: Mutex<Vec<u64>>,
}

impl Network {
    /// Makes hosts and paths, after removing what killed runs left behind.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Unavailable`], [`Error::Setting`], [`Error::Os`],
    /// [`Error::Emulator`].
    pub fn start(config: &NetworkConfig) -> Result<Network, Error> {
        config.check()?;
        netns::available()?;
        let run = RunDir::create().map_err(Error::os("-", "make a directory for the network"))?;
        prepare_machine(config, &run)?;
        let names: Vec<(String, Ipv4Addr)> = (config.members.iter().zip(1..=u8::MAX))
            .map(|(member, number)| (member.host.name.clone(), Ipv4Addr::new(10, 77, 0, number)))
            .collect();
        let mut sites: Vec<&str> = Vec::new();
        let mut hosts = Vec::new();
        let mut ports = Vec::new();
        for (member, (_, address)) in config.members.iter().zip(&names) {
            let known = sites.iter().position(|site| *site == member.site);
            let site = known.unwrap_or_else(|| {
                sites.push(&member.site);
                sites.len() - 1
            });
            let mode = config.emulator.mode;
            let (host, device) =
                Host::create(&member.host, *address, config.mtu, mode, &names, &run)?;
            hosts.push(host);
            ports.push(Port {
                device,
                address: *address,
                site,
            });
        }
        let links = config.links(&sites);
        let emulator = Emulator::start(config.emulator, ports, links)?;
        Ok(Network {
            interface_drops: Mutex::new(vec![0; hosts.len()]),
            run,
            emulator,
            hosts,
        })
    }

    /// A host by name.
    ///
    /// # Errors
    /// [`Error::NoSuchHost`].
    pub fn host(&self, name: &str) -> Result<&Host, Error> {
        (self.hosts.iter())
            .find(|host| host.name() == name)
            .ok_or_else(|| Error::NoSuchHost(name.to_owned()))
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What changes the paths, from any thread.
    pub fn control(&self) -> Control {
        self.emulator.control()
    }

    /// What happened since the last call or the start: call it right before a run and right after,
    /// and keep the second.
    ///
    /// # Errors
    /// [`Error::Emulator`], [`Error::Os`].
    pub fn lap(&self) -> Result<Report, Error> {
        let mut report = self.emulator.lap()?;
        let drops = self.interface_drops.lock();
        let mut drops = drops.unwrap_or_else(PoisonError::into_inner);
        for (host, before) in self.hosts.iter().zip(&mut *drops) {
            let total = host.interface_drops()?;
            let drops = total - std::mem::replace(before, total);
            if drops > 0 {
                report.unfaithful.push(format!(
                    "the interface of host {} dropped {drops} packets that no path decided on",
                    host.name()
                ));
            }
        }
        Ok(report)
    }

    /// The directory with its hosts' files while it runs; `HOST/net` in it is the namespace, for
    /// nsenter(1).
    pub fn directory(&self) -> std::path::PathBuf {
        self.run.path()
    }
}

/// Settings that only the machine has, for as long as networks need them.
fn prepare_machine(config: &NetworkConfig, run: &RunDir) -> Result<(), Error> {
    let available = std::fs::read_to_string(crate::state::setting_file(
        "net.ipv4.tcp_available_congestion_control",
    ))
    .unwrap_or_default();
    for member in &config.members {
        let Some(wanted) = &member.host.congestion_control else {
            continue;
        };
        if !available
            .split_ascii_whitespace()
            .any(|name| name == wanted)
        {
            return Err(Unavailable::new(
                format!("congestion control {wanted} is not in this kernel"),
                format!("as root: modprobe tcp_{wanted}"),
            )
            .into());
        }
        // A namespace may only choose what the machine allows everybody.
        let key = "net.ipv4.tcp_allowed_congestion_control";
        run.change_setting(key, |allowed| {
            let listed = allowed.split_ascii_whitespace().any(|name| name == wanted);
            (!listed).then(|| format!("{allowed} {wanted}"))
        })
        .map_err(|error| {
            Unavailable::new(
                format!("congestion control {wanted} is not allowed in namespaces: {error}"),
                format!("as root: sysctl -w {key}='reno cubic {wanted}'"),
            )
        })?;
    }
    for key in ["net.core.rmem_max", "net.core.wmem_max"] {
        let Some(wanted) = config.socket_buffer_max else {
            break;
        };
        run.change_setting(key, |limit| {
            let enough = limit.parse::<u64>().is_ok_and(|limit| limit >= wanted);
            (!enough).then(|| wanted.to_string())
        })
        .map_err(|error| {
            Unavailable::new(
                format!("socket buffers of {wanted} bytes: {key}: {error}"),
                format!("as root: sysctl -w {key}={wanted}"),
            )
        })?;
    }
    Ok(())
}
