//! Our server with data nodes: a front end, and a process on each node.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::godwit::{self, Godwitd, GodwitdConfig};
use super::grid::{Grid, HOST_SUBJECT};
use super::process::{Process, Spawn, Stream};
use super::usage::Usage;
use super::{Error, START_TIMEOUT};

/// How a data node is started again where it was.
#[derive(Debug)]
struct NodePlace {
    address: SocketAddr,
    root: PathBuf,
    link: Vec<(&'static str, PathBuf)>,
}

/// A data node: where it is, and its process, if it is there.
#[derive(Debug)]
struct StripedNode {
    place: NodePlace,
    process: Option<Process>,
}

/// A running front end and its nodes. Dropping it kills all of them.
#[derive(Debug)]
pub struct StripedGodwitd {
    front: Godwitd,
    nodes: Vec<StripedNode>,
}

impl StripedGodwitd {
    /// Starts nodes at these addresses for `root`, and then the front end as `config` has it; all
    /// prove who they are by the certificates of `grid`, which must be for their addresses.
    ///
    /// # Errors
    /// As [`GodwitdConfig::start`], of any of them.
    pub fn start(
        config: GodwitdConfig,
        root: &Path,
        addresses: &[IpAddr],
        grid: &Grid,
        spawn: &Spawn<'_>,
    ) -> Result<StripedGodwitd, Error> {
        StripedGodwitd::start_via(config, root, addresses, grid, spawn, |address| address)
    }

    /// The same, where the front end is told another address of each node: something is in between.
    ///
    /// # Errors
    /// As [`StripedGodwitd::start`].
    pub fn start_via(
        config: GodwitdConfig,
        root: &Path,
        addresses: &[IpAddr],
        grid: &Grid,
        spawn: &Spawn<'_>,
        mut via: impl FnMut(SocketAddr) -> SocketAddr,
    ) -> Result<StripedGodwitd, Error> {
        let [cert, key] = grid.node();
        let link = vec![
            ("--node-cert", cert),
            ("--node-key", key),
            ("--node-ca", grid.authority()),
        ];
        let mut nodes = Vec::new();
        let mut config = config.arg("--privsep=false");
        for ip in addresses {
            let mut place = NodePlace {
                address: SocketAddr::new(*ip, 0),
                root: root.to_owned(),
                link: link.clone(),
            };
            let (process, address) = place.start(spawn)?;
            place.address = address;
            config = config.arg("--data-nodes").arg(via(address).to_string());
            nodes.push(StripedNode {
                place,
                process: Some(process),
            });
        }
        for (flag, path) in link {
            config = config.arg(flag).arg(path);
        }
        let front = config.start_by(spawn)?;
        Ok(StripedGodwitd { front, nodes })
    }

    /// The front end.
    pub fn front(&self) -> &Godwitd {
        &self.front
    }

    /// Where each node hears of its front end.
    pub fn node_addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.place.address).collect()
    }

    /// Sends a signal to all processes of a node, from 0. Nothing where it is gone.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    ///
    /// # Panics
    /// There is no such node.
    pub fn signal_node(&self, index: usize, signal: Signal) -> Result<(), Error> {
        match &self.nodes[index].process {
            Some(process) => process.signal_group(signal),
            None => Ok(()),
        }
    }

    /// Kills what is left of a node, and starts it again where it was.
    ///
    /// # Errors
    /// As [`StripedGodwitd::start`].
    ///
    /// # Panics
    /// There is no such node.
    pub fn restart_node(&mut self, index: usize, spawn: &Spawn<'_>) -> Result<(), Error> {
        let node = &mut self.nodes[index];
        node.process = None;
        let (process, _) = node.place.start(spawn)?;
        node.process = Some(process);
        Ok(())
    }

    /// What the front end has cost so far, without nodes.
    pub fn front_usage(&self) -> Usage {
        self.front.usage()
    }

    /// What all its processes have cost so far.
    pub fn usage(&self) -> Usage {
        let nodes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        Usage::sum(self.front.usage(), nodes.map(Process::usage))
    }

    /// What all its processes printed so far.
    pub fn log(&self) -> String {
        let nodes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        let logs = nodes.map(Process::log);
        std::iter::once(self.front.log()).chain(logs).collect()
    }
}

impl NodePlace {
    /// Starts it. Its process, and where it listens.
    fn start(&self, spawn: &Spawn<'_>) -> Result<(Process, SocketAddr), Error> {
        let mut command = Command::new(godwit::binary("godwitd")?);
        command
            .args(["--data-node", "--privsep=false"])
            .args(["--front-ends", HOST_SUBJECT])
            .args(["--node-listen", &self.address.to_string()])
            .arg("--root")
            .arg(&self.root);
        for (flag, path) in &self.link {
            command.arg(flag).arg(path);
        }
        let mut process = spawn(self.address.ip(), command)?;
        let address =
            process.wait_for_line(Stream::Stdout, "say where it is", START_TIMEOUT, |line| {
                line.strip_prefix("data node on ")?.trim().parse().ok()
            })?;
        Ok((process, address))
    }
}
