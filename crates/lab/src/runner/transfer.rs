//! One transfer of a run: its servers, its clients, and the kernels between them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::RunError;
use super::evolution::{self, Course};
use super::programs::{self, Ends, Serving, Task};
use super::sample::Sample;
use super::watch::Watch;
use crate::file_error::io_error;
use crate::network::{self, Network};
use crate::peers::grid::Grid;
use crate::peers::process::{Finished, Options, Process};
use crate::scenario::{CLIENT_HOST, Direction, Method, Server};

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
    pub(super) sender: Watch,
    pub(super) receiver: Watch,
    events: Option<PathBuf>,
}

impl Transfer {
    /// Starts the servers of transfer `index`. `events` is where its event log goes.
    pub(super) fn prepare(
        method: &Method,
        network: &Network,
        index: usize,
        task: Task<'_>,
        loopback: bool,
    ) -> Result<Transfer, RunError> {
        let from = format!("left{index}");
        let to = if loopback {
            from.clone()
        } else {
            format!("right{index}")
        };
        let (source, sink) = (network.host(&from)?, network.host(&to)?);
        let receiver = Watch::of(sink)?;
        let sender = Watch::of(source)?;
        let hosts = [source, sink].map(|host| host.address().into());
        let is_certified = method.protect.is_some() || method.server == Server::GodwitdHttps;
        let grid = is_certified.then(|| Grid::new(&hosts));
        let grid = grid.transpose().map_err(network::Error::from)?;
        let serve = |host| Serving::start(method, host, task.payload, grid.as_ref());
        let (at_source, at_sink, client_host) = match method.direction {
            Direction::Get => (Some(serve(source)?), None, to),
            Direction::Put => (None, Some(serve(sink)?), from),
            Direction::ThirdParty => {
                let client = CLIENT_HOST.to_owned();
                (Some(serve(source)?), Some(serve(sink)?), client)
            }
        };
        let ends = Ends {
            source: at_source.as_ref(),
            destination: at_sink.as_ref(),
        };
        let commands = programs::commands(method, ends, task);
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
            sender,
            receiver,
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
        self.receiver.look()?;
        Ok(Sample {
            transfer,
            seconds: now(),
            bytes: self.receiver.bytes(),
            channels: self.receiver.live(),
        })
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
