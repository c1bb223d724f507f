//! The servers of a method, and what its ends are called.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::payload::Payload;
use crate::host::Host;
use crate::network;
use crate::peers::gct::GctServer;
use crate::peers::godwit::{Godwitd, GodwitdConfig};
use crate::peers::grid::Grid;
use crate::peers::iperf3::Iperf3Server;
use crate::peers::process::{Options, Process};
use crate::peers::s3::S3Server;
use crate::peers::ssh::SshServer;
use crate::peers::striped::StripedGodwitd;
use crate::peers::tar::TarServer;
use crate::peers::{self, Usage};
use crate::scenario::{Direction, Method, NodeFate, Server};

/// Our server for clients of HTTPS.
#[derive(Debug)]
pub(super) struct HttpsDoor {
    server: Godwitd,
    address: SocketAddr,
    /// The certificate of the CA that clients trust.
    pub(super) authority: PathBuf,
    /// And its directory.
    pub(super) authorities: PathBuf,
}

impl HttpsDoor {
    fn start(ip: IpAddr, access: &str, grid: &Grid) -> Result<Self, peers::Error> {
        peers::on_a_free_port(ip, |address| {
            let config = grid.of_godwitd(Godwitd::serving("/").ip(ip));
            let config = config
                .anonymous(access)
                .arg("--https")
                .arg(address.to_string());
            Ok(Self {
                server: config.start()?,
                address,
                authority: grid.authority(),
                authorities: grid.authorities(),
            })
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        let path = peers::encode_path(path.trim_start_matches('/'));
        format!("https://{}/{path}", self.address)
    }
}

/// A running server.
#[derive(Debug)]
pub(super) enum Serving {
    Gct(GctServer),
    Godwitd(Godwitd),
    Striped(StripedGodwitd),
    GodwitdHttps(HttpsDoor),
    Buckets(S3Server),
    Sshd(SshServer),
    Iperf3(Iperf3Server),
    Tar(TarServer),
}

impl Serving {
    /// Starts a server with its data nodes, each in its host. Otherwise as [`Serving::start`].
    pub(super) fn start_striped(
        method: &Method,
        host: &Host,
        nodes: &[&Host],
        grid: Option<&Grid>,
    ) -> Result<Serving, network::Error> {
        let ip = IpAddr::V4(host.address());
        let addresses: Vec<IpAddr> = nodes.iter().map(|node| node.address().into()).collect();
        let spawn = |at: IpAddr, command: Command| {
            let of_address = |host: &&&Host| IpAddr::V4(host.address()) == at;
            let host = nodes.iter().find(of_address).copied().unwrap_or(host);
            let spawned = host.enter(|| Process::spawn(command, Options::default()));
            spawned.unwrap_or_else(|error| {
                let source = std::io::Error::other(error.to_string());
                Err(peers::Error::os("start a program on a host")(source))
            })
        };
        Ok(match (method.server, grid) {
            (Server::GlobusGridftpServer, _) => {
                let config = GctServer::serving("/").ip(ip).data_nodes_at(&addresses);
                Serving::Gct(config.start_by(&spawn)?)
            }
            (_, Some(grid)) => {
                let config = Godwitd::serving("/").ip(ip).anonymous(access(method));
                let config = foreign_hosts(method, config);
                let root = Path::new("/");
                let started = StripedGodwitd::start(config, root, &addresses, grid, &spawn)?;
                Serving::Striped(started)
            }
            (_, None) => return Err(misused("data nodes need certificates").into()),
        })
    }

    /// Lets a data node die, or end in good order; `node` from 0.
    pub(super) fn end_node(&self, node: usize, fate: NodeFate) -> Result<(), peers::Error> {
        let signal = match fate {
            NodeFate::Killed => Signal::KILL,
            NodeFate::Drained => Signal::TERM,
            NodeFate::Cut | NodeFate::Healed => return Ok(()),
        };
        match self {
            Serving::Gct(server) => server.signal_node(node, signal),
            Serving::Striped(server) => server.signal_node(node, signal),
            _ => Ok(()),
        }
    }

    /// Starts the server in its host. It serves the whole machine, and lets clients write where the
    /// direction asks for it; nothing else can reach it. With a `grid` it is for its user alone.
    /// `tar` offers the source alone.
    pub(super) fn start(
        method: &Method,
        host: &Host,
        payload: &Payload,
        grid: Option<&Grid>,
    ) -> Result<Serving, network::Error> {
        let ip = IpAddr::V4(host.address());
        let access = access(method);
        let started = host.enter(|| match method.server {
            Server::Godwitd => {
                let config = Godwitd::serving("/").ip(ip).anonymous(access);
                let config = foreign_hosts(method, config);
                let config = match grid {
                    Some(grid) => grid.of_godwitd(config),
                    None => config,
                };
                config.start().map(Serving::Godwitd)
            }
            Server::GodwitdHttps => match grid {
                Some(grid) => HttpsDoor::start(ip, access, grid).map(Serving::GodwitdHttps),
                None => Err(misused("HTTPS needs a certificate")),
            },
            Server::GlobusGridftpServer => {
                let config = GctServer::serving("/").ip(ip);
                let config = match grid {
                    Some(grid) => grid.of_gct(config),
                    None => config,
                };
                config.start().map(Serving::Gct)
            }
            Server::Versitygw => {
                let root = source(payload);
                let root = root.parent().unwrap_or(Path::new("/"));
                S3Server::gateway(root, ip).map(Serving::Buckets)
            }
            Server::Sshd => SshServer::start(ip).map(Serving::Sshd),
            Server::Iperf3 => Iperf3Server::start(ip).map(Serving::Iperf3),
            Server::Tar => TarServer::start(&source(payload), ip).map(Serving::Tar),
        })?;
        Ok(started?)
    }

    pub(super) fn usage(&self) -> Usage {
        match self {
            Serving::Gct(server) => server.usage(),
            Serving::Godwitd(server) => server.usage(),
            Serving::Striped(server) => server.usage(),
            Serving::GodwitdHttps(door) => door.server.usage(),
            Serving::Buckets(server) => server.usage(),
            Serving::Sshd(server) => server.usage(),
            Serving::Iperf3(server) => server.process().usage(),
            Serving::Tar(server) => server.process().usage(),
        }
    }

    /// Of its front end alone; nothing where it has no data nodes.
    pub(super) fn front_usage(&self) -> Usage {
        match self {
            Serving::Gct(server) if !server.node_ports().is_empty() => server.front_usage(),
            Serving::Striped(server) => server.front_usage(),
            _ => Usage::default(),
        }
    }

    /// Where each of its data nodes hears of its front end.
    pub(super) fn node_ports(&self) -> Vec<u16> {
        match self {
            Serving::Gct(server) => server.node_ports(),
            Serving::Striped(server) => {
                let addresses = server.node_addresses();
                addresses.iter().map(SocketAddr::port).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Hosts of its data nodes, for clients that must be told.
    pub(super) fn node_hosts(&self) -> Vec<IpAddr> {
        match self {
            Serving::Striped(server) => {
                let addresses = server.node_addresses();
                addresses.iter().map(SocketAddr::ip).collect()
            }
            _ => Vec::new(),
        }
    }

    fn url(&self, path: &str) -> String {
        match self {
            Serving::Gct(server) => server.machine_url(path),
            Serving::Godwitd(server) => server.url(path),
            Serving::Striped(server) => server.front().url(path),
            Serving::GodwitdHttps(door) => door.url(path),
            Serving::Buckets(server) => server.url(path),
            Serving::Sshd(_) | Serving::Iperf3(_) | Serving::Tar(_) => String::new(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Serving::Gct(server) => server.addr(),
            Serving::Godwitd(server) => server.addr(),
            Serving::Striped(server) => server.front().addr(),
            Serving::GodwitdHttps(door) => door.address,
            Serving::Buckets(server) => server.addr(),
            Serving::Sshd(server) => server.addr(),
            Serving::Iperf3(server) => server.addr(),
            Serving::Tar(server) => server.addr(),
        }
    }
}

/// What anybody may do there.
fn access(method: &Method) -> &'static str {
    match method.direction {
        Direction::Get => "ro",
        Direction::Put | Direction::ThirdParty => "rw",
    }
}

fn foreign_hosts(method: &Method, config: GodwitdConfig) -> GodwitdConfig {
    match method.direction {
        Direction::ThirdParty => config.arg("--allow-foreign-data-hosts"),
        Direction::Get | Direction::Put => config,
    }
}

/// Where data comes from and goes to: servers, or the client's own host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) source: Option<&'a Serving>,
    pub(super) destination: Option<&'a Serving>,
}

/// Where the data of a run comes from: a device, a file or a directory.
pub(super) fn source(payload: &Payload) -> PathBuf {
    match payload {
        Payload::Endless => PathBuf::from("/dev/zero"),
        Payload::File(file) => file.path().to_owned(),
        Payload::Files(set) => set.source(),
    }
}

/// Where it goes to. A file goes nowhere, unless its client cannot write there.
pub(super) fn target(payload: &Payload) -> PathBuf {
    match payload {
        Payload::Endless | Payload::File(_) => PathBuf::from("/dev/null"),
        Payload::Files(set) => set.target(),
    }
}

/// The path as an argument of clients: directories end in `/`.
pub(super) fn argument(path: &Path, payload: &Payload) -> String {
    let slash = match payload {
        Payload::Endless | Payload::File(_) => "",
        Payload::Files(_) => "/",
    };
    format!("{}{slash}", path.display())
}

impl Ends<'_> {
    pub(super) fn from(&self, payload: &Payload, local: &str) -> String {
        let path = argument(&source(payload), payload);
        let local = || format!("{local}{path}");
        self.source.map_or_else(local, |server| server.url(&path))
    }

    pub(super) fn to(&self, payload: &Payload, local: &str) -> String {
        let path = argument(&target(payload), payload);
        let local = || format!("{local}{path}");
        (self.destination).map_or_else(local, |server| server.url(&path))
    }

    /// The server of a program that only fetches.
    pub(super) fn server(&self) -> Result<&Serving, peers::Error> {
        self.source
            .ok_or_else(|| misused("it only fetches, and there is no server to fetch from"))
    }

    /// Stripes of a transfer, each with the channels of the cell.
    pub(super) fn stripes(&self) -> u32 {
        let nodes = [self.source, self.destination].into_iter().flatten();
        let most = nodes.map(|server| server.node_ports().len()).max();
        u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX).max(1)
    }

    /// Of the ends, for clients that speak S3.
    pub(super) fn buckets(&self) -> Option<&S3Server> {
        match self.source.or(self.destination) {
            Some(Serving::Buckets(server)) => Some(server),
            _ => None,
        }
    }

    /// Of the ends, for clients that speak HTTPS.
    pub(super) fn door(&self) -> Option<&HttpsDoor> {
        match self.source.or(self.destination) {
            Some(Serving::GodwitdHttps(door)) => Some(door),
            _ => None,
        }
    }
}

pub(super) fn misused(text: &'static str) -> peers::Error {
    peers::Error::Os {
        action: "start a client".into(),
        source: std::io::Error::other(text),
    }
}
