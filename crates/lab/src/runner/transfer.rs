//! One transfer of a run: its servers, its clients, and the kernels between them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::RunError;
use super::clients::{self, Task};
use super::evolution::{self, Course};
use super::sample::Sample;
use super::serving::{Ends, Serving};
use super::watch::Watch;
use crate::file_error::io_error;
use crate::host::Host;
use crate::network::{self, Network};
use crate::peers::grid::Grid;
use crate::peers::process::{Finished, Options, Process};
use crate::scenario::{CLIENT_HOST, Direction, Method, NodeFate, Server, node_host};

/// How long a client may take to end in good order, so that its event log is whole.
const END_GRACE: Duration = Duration::from_secs(3);

/// Servers and clients of one transfer, from its own host to its own host.
pub(super) struct Transfer {
    commands: Vec<Command>,
    client_host: String,
    clients: Vec<Process>,
    servers: Vec<Serving>,
    /// Whose servers they are, where they are not for anybody.
    _grid: Option<Grid>,
    /// When its clients started, s after those of the first transfer; `None` before.
    pub(super) started: Option<f64>,
    /// When it is to start, s after the first data of the first.
    pub(super) due: f64,
    pub(super) senders: Vec<Watch>,
    pub(super) receivers: Vec<Watch>,
    events: Option<PathBuf>,
}

impl Transfer {
    /// Starts the servers of transfer `index`, with so many data `nodes` each. `events` is where
    /// its event log goes.
    pub(super) fn prepare(
        method: &Method,
        network: &Network,
        index: usize,
        task: Task<'_>,
        loopback: bool,
        nodes: u32,
    ) -> Result<Transfer, RunError> {
        let from = format!("left{index}");
        let to = if loopback {
            from.clone()
        } else {
            format!("right{index}")
        };
        let (source, sink) = (network.host(&from)?, network.host(&to)?);
        let nodes_of = |side| nodes_of(network, side, nodes, method);
        let (source_nodes, sink_nodes) = (nodes_of("left")?, nodes_of("right")?);
        let all = [source, sink]
            .into_iter()
            .chain(source_nodes.iter().copied());
        let all = all.chain(sink_nodes.iter().copied());
        let hosts: Vec<IpAddr> = all.map(|host| host.address().into()).collect();
        let is_certified = method.protect.is_some()
            || method.server == Server::GodwitdHttps
            || nodes > 0 && method.server == Server::Godwitd;
        let grid = is_certified.then(|| Grid::new(&hosts));
        let grid = grid.transpose().map_err(network::Error::from)?;
        let serve = |host, nodes: &[&Host]| match nodes {
            [] => Serving::start(method, host, task.payload, grid.as_ref()),
            _ => Serving::start_striped(method, host, nodes, grid.as_ref()),
        };
        let (at_source, at_sink, client_host) = match method.direction {
            Direction::Get => (Some(serve(source, &source_nodes)?), None, to),
            Direction::Put => (None, Some(serve(sink, &sink_nodes)?), from),
            Direction::ThirdParty => {
                let (from, to) = (serve(source, &source_nodes)?, serve(sink, &sink_nodes)?);
                (Some(from), Some(to), CLIENT_HOST.to_owned())
            }
        };
        let senders = watches(source, &source_nodes, at_source.as_ref())?;
        let receivers = watches(sink, &sink_nodes, at_sink.as_ref())?;
        let ends = Ends {
            source: at_source.as_ref(),
            destination: at_sink.as_ref(),
        };
        let commands = clients::commands(method, ends, task);
        let mut commands = commands.map_err(network::Error::from)?;
        if let Some(grid) = grid.as_ref().filter(|_| method.protect.is_some()) {
            for command in &mut commands {
                command.envs(grid.of_user());
            }
        }
        Ok(Transfer {
            commands,
            client_host,
            clients: Vec::new(),
            servers: at_source.into_iter().chain(at_sink).collect(),
            _grid: grid,
            started: None,
            due: method.start_of(index),
            senders,
            receivers,
            events: task.events.map(Path::to_owned),
        })
    }

    /// Starts the clients; `now` in s after the start of the first transfer.
    pub(super) fn start(&mut self, network: &Network, now: f64) -> Result<(), RunError> {
        let host = network.host(&self.client_host)?;
        self.started = Some(now);
        for command in self.commands.drain(..) {
            self.clients.push(host.spawn(command, Options::default())?);
        }
        Ok(())
    }

    /// Looks at the receiving kernel.
    pub(super) fn look(
        &mut self,
        transfer: u32,
        now: impl Fn() -> f64,
    ) -> Result<Sample, RunError> {
        self.receivers.iter_mut().try_for_each(Watch::look)?;
        Ok(Sample {
            transfer,
            seconds: now(),
            bytes: self.bytes_received(),
            channels: self.receivers.iter().map(Watch::live).sum(),
        })
    }

    /// Payload that the receiving kernels have received so far.
    pub(super) fn bytes_received(&self) -> u64 {
        self.receivers.iter().map(Watch::bytes).sum()
    }

    /// Lets a data node of the servers die, or end in good order: of the side whose nodes have
    /// links. `node` from 1.
    pub(super) fn end_node(&self, node: u32, fate: NodeFate) -> Result<(), RunError> {
        let Some(server) = self.servers.first() else {
            return Ok(());
        };
        let ended = server.end_node(node as usize - 1, fate);
        Ok(ended.map_err(network::Error::from)?)
    }

    /// Whether all clients still run, of a transfer that has started.
    pub(super) fn is_running(&mut self) -> Result<bool, RunError> {
        for client in &mut self.clients {
            if !client.is_running().map_err(network::Error::from)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits at most `timeout` for the end of the first client; whether it has come.
    pub(super) fn ended_within(&mut self, timeout: Duration) -> Result<bool, RunError> {
        let Some(first) = self.clients.first_mut() else {
            return Ok(false);
        };
        Ok(first.ended_within(timeout).map_err(network::Error::from)?)
    }

    /// What the clients printed.
    pub(super) fn log(&self) -> String {
        self.clients.iter().map(Process::log).collect()
    }

    /// Processor time of clients and of servers so far.
    pub(super) fn cpu(&self) -> (Duration, Duration) {
        let clients = self.clients.iter().map(|client| client.usage().cpu());
        let servers = self.servers.iter().map(|server| server.usage().cpu());
        (clients.sum(), servers.sum())
    }

    /// Processor time of front ends so far, without their data nodes.
    pub(super) fn front_end_cpu(&self) -> Duration {
        self.servers
            .iter()
            .map(|server| server.front_usage().cpu())
            .sum()
    }

    /// Ends the clients, in good order where they write an event log, and adds to `course` what
    /// they decided; `origin` is the first data of the first transfer.
    pub(super) fn end(
        &mut self,
        course: Option<&mut Course>,
        origin: f64,
    ) -> Result<Vec<Finished>, RunError> {
        let all: Result<Vec<Finished>, _> = (self.clients.drain(..))
            .map(|client| match &self.events {
                Some(_) => client.terminate(END_GRACE),
                None => client.stop(),
            })
            .collect();
        let finished = all.map_err(network::Error::from)?;
        if let (Some(course), Some(events)) = (course, &self.events) {
            let log = std::fs::read_to_string(events).map_err(io_error(events))?;
            let shift = self.started.unwrap_or(0.0) - origin;
            course.choices = evolution::choices(&log, shift);
        }
        Ok(finished)
    }
}

/// The hosts of the data nodes of the server on a side; none where the client is there.
fn nodes_of<'a>(
    network: &'a Network,
    side: &str,
    nodes: u32,
    method: &Method,
) -> Result<Vec<&'a Host>, RunError> {
    let is_served = match method.direction {
        Direction::Get => side == "left",
        Direction::Put => side == "right",
        Direction::ThirdParty => true,
    };
    let nodes = if is_served { nodes } else { 0 };
    let hosts = (1..=nodes).map(|node| network.host(&node_host(side, node)));
    Ok(hosts.collect::<Result<_, _>>()?)
}

/// The kernels that data passes at one end: of the data nodes, where there are some.
fn watches(host: &Host, nodes: &[&Host], server: Option<&Serving>) -> Result<Vec<Watch>, RunError> {
    if nodes.is_empty() {
        return Ok(vec![Watch::of(host)?]);
    }
    let ports = server.map(Serving::node_ports).unwrap_or_default();
    let of =
        |(index, node): (usize, &&Host)| Ok(Watch::of(node)?.without(ports.get(index).copied()));
    nodes.iter().enumerate().map(of).collect()
}
