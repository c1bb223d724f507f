//! The programs of a method: how each is started, and which arguments select what it moves.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::payload::Payload;
use crate::host::Host;
use crate::network;
use crate::peers::gct::{self, GctServer};
use crate::peers::godwit::{self, Godwitd, GodwitdConfig};
use crate::peers::grid::{self, Grid};
use crate::peers::iperf3::{self, Iperf3Server};
use crate::peers::process::{Options, Process};
use crate::peers::striped::StripedGodwitd;
use crate::peers::tar::{self, TarServer};
use crate::peers::{self, Missing, Usage, http, plain_ftp};
use crate::scenario::{Client, Direction, Method, NodeFate, Server};

/// Bytes asked of `/dev/zero`: more than any run takes (2 h at 100 Gbit/s).
const ENDLESS_BYTES: u64 = 100_000_000_000_000;

/// Seconds asked of `iperf3`: longer than any run.
const ENDLESS_SECONDS: u32 = 86_400;

/// Whether both programs of a method are installed.
pub(super) fn available(method: &Method) -> Result<(), Missing> {
    if method.protect.is_some() {
        grid::available()?;
    }
    match method.server {
        Server::GodwitdHttps => {
            grid::available()?;
            godwit::binary("godwitd").map(drop)?;
        }
        Server::Godwitd => godwit::binary("godwitd").map(drop)?,
        Server::GlobusGridftpServer => gct::SERVER.available().map(drop)?,
        Server::Iperf3 => iperf3::IPERF3.available().map(drop)?,
        Server::Tar => tar::available()?,
    }
    match method.client {
        Client::Godwit => godwit::binary("godwit").map(drop),
        Client::GlobusUrlCopy => gct::URL_COPY.available().map(drop),
        Client::Iperf3 => iperf3::IPERF3.available().map(drop),
        Client::Curl => plain_ftp::CURL.available().map(drop),
        Client::Lftp => plain_ftp::LFTP.available().map(drop),
        Client::Rclone => plain_ftp::RCLONE.available().map(drop),
        Client::Davix => http::DAVIX_GET.available().map(drop),
        Client::Aria2 => http::ARIA2.available().map(drop),
        Client::Tar => tar::available(),
    }
}

/// Our server for clients of HTTPS.
#[derive(Debug)]
pub(super) struct HttpsDoor {
    server: Godwitd,
    address: SocketAddr,
    /// The certificate of the CA that clients trust.
    authority: PathBuf,
    /// And its directory.
    authorities: PathBuf,
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

    fn url(&self, path: &str) -> String {
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
    fn node_hosts(&self) -> Vec<IpAddr> {
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
            Serving::Iperf3(_) | Serving::Tar(_) => String::new(),
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Serving::Gct(server) => server.addr(),
            Serving::Godwitd(server) => server.addr(),
            Serving::Striped(server) => server.front().addr(),
            Serving::GodwitdHttps(door) => door.address,
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

/// What is to be moved.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) payload: &'a Payload,
    /// Parallel channels; 0 where the program chooses them.
    pub(super) channels: u32,
    /// Where the event log goes, for programs that write one.
    pub(super) events: Option<&'a Path>,
}

/// A URL as an argument of the method's client.
fn url_for(method: &Method, url: String) -> String {
    match method.protect {
        Some(_) => url.replacen("ftp://", "gsiftp://", 1),
        None => url,
    }
}

/// Where the data of a run comes from: a device, a file or a directory.
fn source(payload: &Payload) -> PathBuf {
    match payload {
        Payload::Endless => PathBuf::from("/dev/zero"),
        Payload::File(file) => file.path().to_owned(),
        Payload::Files(set) => set.source(),
    }
}

/// Where it goes to. A file goes nowhere, but for clients that cannot write there.
fn target(payload: &Payload) -> PathBuf {
    match payload {
        Payload::Endless | Payload::File(_) => PathBuf::from("/dev/null"),
        Payload::Files(set) => set.target(),
    }
}

/// The path as an argument of clients: directories end in `/`.
fn argument(path: &Path, payload: &Payload) -> String {
    let slash = match payload {
        Payload::Endless | Payload::File(_) => "",
        Payload::Files(_) => "/",
    };
    format!("{}{slash}", path.display())
}

impl Ends<'_> {
    fn from(&self, payload: &Payload, local: &str) -> String {
        let path = argument(&source(payload), payload);
        let local = || format!("{local}{path}");
        self.source.map_or_else(local, |server| server.url(&path))
    }

    fn to(&self, payload: &Payload, local: &str) -> String {
        let path = argument(&target(payload), payload);
        let local = || format!("{local}{path}");
        (self.destination).map_or_else(local, |server| server.url(&path))
    }

    /// The server of a program that only fetches.
    fn server(&self) -> Result<&Serving, peers::Error> {
        self.source
            .ok_or_else(|| misused("it only fetches, and there is no server to fetch from"))
    }

    /// Stripes of a transfer, each with the channels of the cell.
    fn stripes(&self) -> u32 {
        let nodes = [self.source, self.destination].into_iter().flatten();
        let most = nodes.map(|server| server.node_ports().len()).max();
        u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX).max(1)
    }

    /// Of the ends, for clients that speak HTTPS.
    fn door(&self) -> Option<&HttpsDoor> {
        match self.source.or(self.destination) {
            Some(Serving::GodwitdHttps(door)) => Some(door),
            _ => None,
        }
    }
}

fn misused(text: &'static str) -> peers::Error {
    peers::Error::Os {
        action: "start a client".into(),
        source: std::io::Error::other(text),
    }
}

/// The command lines of the clients: one, but for programs with one mover that are to have more.
pub(super) fn commands(
    method: &Method,
    ends: Ends<'_>,
    task: Task<'_>,
) -> Result<Vec<Command>, peers::Error> {
    let parallelism = method.parallelism.unwrap_or(task.channels).max(1);
    let movers = (task.channels / parallelism).max(1);
    match method.client {
        Client::Godwit => Ok(vec![godwit(method, ends, task)?]),
        Client::GlobusUrlCopy => (0..movers)
            .map(|_| url_copy(method, ends, task, parallelism))
            .collect(),
        Client::Iperf3 => {
            let server = ends.server()?.address();
            let mut command = iperf3::IPERF3.command()?;
            command
                .args(["--client", &server.ip().to_string()])
                .args(["--port", &server.port().to_string()])
                .args(["--reverse", "--parallel", &task.channels.to_string()])
                .args(["--time", &ENDLESS_SECONDS.to_string()]);
            if let Some(buffer) = method.tcp_buffer {
                command.args(["--window", &buffer.0.to_string()]);
            }
            Ok(vec![command])
        }
        Client::Curl | Client::Rclone | Client::Davix | Client::Aria2
            if let Some(door) = ends.door() =>
        {
            Ok(vec![of_https(method, door, task)?])
        }
        Client::Davix | Client::Aria2 => Err(misused("it speaks HTTPS only")),
        Client::Curl => {
            let serving = ends.server()?;
            let mut command = plain_ftp::CURL.command()?;
            command.args(["--disable", "--silent", "--show-error"]);
            if matches!(serving, Serving::Gct(_)) {
                command.args(plain_ftp::CURL_TYPE_FIRST);
            }
            command
                .args(["--output", &argument(&target(task.payload), task.payload)])
                .arg(plain_ftp::absolute_url(
                    serving.address(),
                    &argument(&source(task.payload), task.payload),
                ));
            Ok(vec![command])
        }
        Client::Lftp => Ok(vec![lftp(ends, task)?]),
        Client::Rclone => {
            let mut command = plain_ftp::RCLONE.command()?;
            command
                .arg("copy")
                .args(plain_ftp::rclone_remote(ends.server()?.address()))
                .args(["--transfers", &task.channels.to_string()])
                // It fetches a large file in parts, breaks each off when it has enough, and takes
                // the 426 for a failure (before 1.62).
                .args(["--multi-thread-streams", "0"])
                .args(&method.arguments)
                .arg(format!(":ftp:{}", source(task.payload).display()))
                .arg(target(task.payload));
            Ok(vec![command])
        }
        Client::Tar => {
            let server = ends.server()?.address();
            Ok(vec![tar::fetch(server, &target(task.payload))?])
        }
    }
}

/// What clients of HTTPS fetch, and how.
fn of_https(method: &Method, door: &HttpsDoor, task: Task<'_>) -> Result<Command, peers::Error> {
    let from = door.url(&argument(&source(task.payload), task.payload));
    // aria2 keeps a file of its own beside what it fetches.
    let to = match task.payload {
        Payload::File(file) if method.client == Client::Aria2 => file.target().to_owned(),
        payload => target(payload),
    };
    let channels = task.channels.to_string();
    let is_one = !matches!(task.payload, Payload::Files(_));
    let mut command;
    match method.client {
        Client::Rclone => {
            command = plain_ftp::RCLONE.command()?;
            command
                .args(["copy", "--config", "/dev/null", "--webdav-vendor", "other"])
                .args(["--webdav-url", &door.url("")])
                .arg("--ca-cert")
                .arg(&door.authority)
                .args(["--transfers", &channels])
                .args(&method.arguments)
                .arg(format!(":webdav:{}", source(task.payload).display()))
                .arg(to);
        }
        Client::Davix => {
            command = http::DAVIX_GET.command()?;
            command.arg("--capath").arg(&door.authorities);
            match is_one {
                true => command.arg(from),
                // It looks into directories of WebDAV alone.
                false => {
                    command.args(["-r", &channels]);
                    command.arg(format!("{}/", from.replacen("https", "davs", 1)))
                }
            };
            command.arg(to);
        }
        Client::Aria2 => {
            command = http::ARIA2.command()?;
            command
                .args(["--quiet", "--no-conf", "--allow-overwrite=true"])
                .args(["--file-allocation=none", "--auto-file-renaming=false"])
                .args(["--min-split-size=1M", "--split", &channels])
                .args(["--max-connection-per-server", &channels])
                .arg("--ca-certificate")
                .arg(&door.authority);
            match task.payload {
                // It lists no directories.
                Payload::Files(set) => {
                    let urls = set.names().map(|name| format!("{from}/{name}\n"));
                    let list = set.side().join("urls");
                    let written = fs::write(&list, urls.collect::<String>());
                    written.map_err(peers::Error::os("write a list for aria2"))?;
                    command.arg("--dir").arg(to).arg("--input-file").arg(list);
                    command.args(["--max-concurrent-downloads", &channels]);
                }
                _ => {
                    let folder = to.parent().unwrap_or(Path::new("/"));
                    let name = to.file_name().unwrap_or_default();
                    command.arg("--dir").arg(folder).arg("--out").arg(name);
                    command.arg(from);
                }
            }
        }
        _ => {
            command = plain_ftp::CURL.command()?;
            command
                .args([
                    "--disable",
                    "--silent",
                    "--show-error",
                    "--fail",
                    "--cacert",
                ])
                .arg(&door.authority)
                .arg("--output")
                .arg(to)
                .arg(from);
        }
    }
    Ok(command)
}

fn lftp(ends: Ends<'_>, task: Task<'_>) -> Result<Command, peers::Error> {
    let (verb, target) = match (task.payload, task.channels) {
        (Payload::Files(set), files) => (format!("mirror --parallel={files}"), set.target()),
        (Payload::File(file), 1) => ("get".to_owned(), file.target().to_owned()),
        (Payload::File(file), parts) => (format!("pget -n {parts}"), file.target().to_owned()),
        (Payload::Endless, _) => ("get".to_owned(), target(task.payload)),
    };
    let to = match task.payload {
        Payload::Files(_) => "",
        Payload::File(_) | Payload::Endless => "-o ",
    };
    let script = format!(
        "set net:timeout 20; set net:max-retries 1; set ftp:ssl-allow no; \
         set cmd:fail-exit yes; set xfer:clobber yes; open ftp://{}; {verb} \"{}\" {to}\"{}\"",
        ends.server()?.address(),
        source(task.payload).display(),
        target.display(),
    );
    let mut command = plain_ftp::LFTP.command()?;
    command.args(["--norc", "-c", &script]);
    Ok(command)
}

fn godwit(method: &Method, ends: Ends<'_>, task: Task<'_>) -> Result<Command, peers::Error> {
    let mut command = Command::new(godwit::binary("godwit")?);
    // Each run finds out for itself.
    // What is measured may be a file that is all hole.
    command.args([
        "cp",
        "--quiet",
        "--no-verify",
        "--no-path-memory",
        "--no-sparse",
    ]);
    if !method.one_user {
        command.arg("--alone");
    }
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            command.args([name, &value]);
        }
    };
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    if method.is_tuned() {
        option("--tuner", method.tuner.clone());
        option("--epoch", method.epoch.map(|epoch| epoch.0.to_string()));
        let mode = method.epoch_mode.map(|mode| mode.name().to_owned());
        option("--epoch-mode", mode);
        option("--max-channels", text(method.max_channels));
        option("--parallelism", text(method.parallelism));
    } else {
        let parallelism = method.parallelism.unwrap_or(task.channels);
        option("--parallelism", text(Some(parallelism)));
        option("--concurrency", text(Some(task.channels / parallelism)));
        option("--max-channels", text(Some(task.channels * ends.stripes())));
    }
    let buffer = method.tcp_buffer.map(|size| size.0.to_string());
    option("--tcp-buffer", buffer);
    let endless = matches!(task.payload, Payload::Endless);
    option("--length", endless.then(|| ENDLESS_BYTES.to_string()));
    if let Some(events) = task.events {
        command.arg("--events").arg(events);
    }
    if let Payload::Files(set) = task.payload {
        command.arg("--recursive");
        // It keeps one of downloads by default; here it must not outlive the run.
        if method.direction == Direction::Get {
            command.arg("--journal").arg(set.side().join("journal"));
        }
    }
    if let Some(protect) = method.protect {
        command.args(["--protect", protect.name()]);
    }
    if let Some(door) = ends.door() {
        command.arg("--ca").arg(&door.authority);
    }
    // Nothing proves that nodes belong to their front end.
    for server in [ends.source, ends.destination].into_iter().flatten() {
        for host in server.node_hosts() {
            command.args(["--data-host", &host.to_string()]);
        }
    }
    let ends = [ends.from(task.payload, ""), ends.to(task.payload, "")];
    command.args(&method.arguments);
    command.args(ends.map(|end| url_for(method, end)));
    Ok(command)
}

fn url_copy(
    method: &Method,
    ends: Ends<'_>,
    task: Task<'_>,
    parallelism: u32,
) -> Result<Command, peers::Error> {
    let mut command = gct::URL_COPY.command()?;
    match task.payload {
        // As shipped, unless the method has arguments of its own: files one by one, in stream mode.
        Payload::Files(_) => command.args(["-r", "-cd"]),
        Payload::Endless | Payload::File(_) => command.args(["-p", &parallelism.to_string()]),
    };
    if let Some(buffer) = method.tcp_buffer {
        command.args(["-tcp-bs", &buffer.0.to_string()]);
    }
    // Between servers a length would be asked room for, and /dev/zero has no end anyway.
    let endless = matches!(task.payload, Payload::Endless);
    if endless && method.direction != Direction::ThirdParty {
        command.args(["-len", &ENDLESS_BYTES.to_string()]);
    }
    let (from, to) = (
        ends.from(task.payload, "file://"),
        ends.to(task.payload, "file://"),
    );
    if let Some(protect) = method.protect {
        command.args(["-s", grid::HOST_SUBJECT]);
        command.args(protect.of_url_copy());
    }
    command.args(&method.arguments);
    command.args([from, to].map(|end| url_for(method, end)));
    Ok(command)
}
