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

mod config;
mod error;

use std::net::Ipv4Addr;

pub use config::{HOSTS_MAX, Join, Member, NetworkConfig, Paths};
pub use error::Error;

use parking_lot::Mutex;

use crate::emulator::{Control, Emulator, Port, Report};
use crate::host::Host;
use crate::netns::{self, Unavailable};
use crate::peers::usage::SystemCpu;
use crate::state::RunDir;

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
    /// At the start of the lap; none where `/proc/stat` says nothing.
    cpu: Mutex<Option<SystemCpu>>,
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
            cpu: Mutex::new(SystemCpu::now().ok()),
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
        let now = SystemCpu::now().ok();
        let mut cpu = self.cpu.lock();
        if let (Some(now), Some(before)) = (now, *cpu) {
            report.stolen_seconds = now.stolen_since(&before).as_secs_f64();
        }
        *cpu = now;
        drop(cpu);
        let mut drops = self.interface_drops.lock();
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

/// Congestion controls that every namespace may choose.
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

/// Whether hosts may use a congestion control: the machine has it, and allows it to namespaces or
/// can be made to by us.
pub fn is_allowed(congestion_control: &str) -> bool {
    let listed = |key: &str| {
        std::fs::read_to_string(crate::state::setting_file(key)).is_ok_and(|names| {
            names
                .split_ascii_whitespace()
                .any(|n| n == congestion_control)
        })
    };
    let may_change = rustix::process::geteuid().is_root() && !netns::in_user_namespace();
    listed(ALLOWED) || (may_change && listed("net.ipv4.tcp_available_congestion_control"))
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
        run.change_setting(ALLOWED, |allowed| {
            let listed = allowed.split_ascii_whitespace().any(|name| name == wanted);
            (!listed).then(|| format!("{allowed} {wanted}"))
        })
        .map_err(|error| {
            Unavailable::new(
                format!("congestion control {wanted} is not allowed in namespaces: {error}"),
                format!("as root, add it to {ALLOWED}"),
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
