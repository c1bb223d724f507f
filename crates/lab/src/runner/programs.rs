//! The programs of a method: how each is started and told what to fetch.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use crate::host::Host;
use crate::network;
use crate::peers::gct::{self, GctServer};
use crate::peers::godwit::{self, Godwitd};
use crate::peers::iperf3::{self, Iperf3Server};
use crate::peers::{self, Missing, Usage, plain_ftp};
use crate::scenario::{Client, Method, Server};

/// Octets asked of `/dev/zero`: more than any run takes (2 h at 1 Gbit/s, 13 min at 10).
const ENDLESS_BYTES: u64 = 1_000_000_000_000;

/// Seconds asked of `iperf3`: longer than any run.
const ENDLESS_SECONDS: u32 = 86_400;

/// Whether both programs of a method are installed.
pub(super) fn available(method: &Method) -> Result<(), Missing> {
    match method.server {
        Server::Godwitd => godwit::binary("godwitd").map(drop)?,
        Server::GlobusGridftpServer => gct::SERVER.available().map(drop)?,
        Server::Iperf3 => iperf3::IPERF3.available().map(drop)?,
    }
    match method.client {
        Client::Godwit => godwit::binary("godwit").map(drop),
        Client::GlobusUrlCopy => gct::URL_COPY.available().map(drop),
        Client::Iperf3 => iperf3::IPERF3.available().map(drop),
        Client::Curl => plain_ftp::CURL.available().map(drop),
        Client::Lftp => plain_ftp::LFTP.available().map(drop),
    }
}

/// A running server.
#[derive(Debug)]
pub(super) enum Serving {
    Gct(GctServer),
    Godwitd(Godwitd),
    Iperf3(Iperf3Server),
}

impl Serving {
    /// Starts the server in its host. It serves the whole machine, read-only.
    pub(super) fn start(server: Server, host: &Host) -> Result<Serving, network::Error> {
        let ip = IpAddr::V4(host.address());
        let started = host.enter(|| match server {
            Server::Godwitd => Godwitd::serving("/")
                .ip(ip)
                .anonymous("ro")
                .start()
                .map(Serving::Godwitd),
            Server::GlobusGridftpServer => GctServer::serving("/").ip(ip).start().map(Serving::Gct),
            Server::Iperf3 => Iperf3Server::start(ip).map(Serving::Iperf3),
        })?;
        Ok(started?)
    }

    pub(super) fn usage(&self) -> Usage {
        match self {
            Serving::Gct(server) => server.usage(),
            Serving::Godwitd(server) => server.usage(),
            Serving::Iperf3(server) => server.process().usage(),
        }
    }

    fn url(&self, path: &str) -> String {
        match self {
            Serving::Gct(server) => server.machine_url(path),
            Serving::Godwitd(server) => server.url(path),
            Serving::Iperf3(_) => String::new(),
        }
    }

    fn address(&self) -> std::net::SocketAddr {
        match self {
            Serving::Gct(server) => server.addr(),
            Serving::Godwitd(server) => server.addr(),
            Serving::Iperf3(server) => server.addr(),
        }
    }
}

/// What a client is to fetch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fetch<'a> {
    /// A file of the serving machine; `None` is `/dev/zero` without end.
    pub(super) file: Option<&'a Path>,
    /// Where a client puts it that cannot write to `/dev/null`.
    pub(super) target: &'a Path,
    /// Parallel channels.
    pub(super) channels: u32,
}

/// The command line of the client.
pub(super) fn command(
    method: &Method,
    serving: &Serving,
    fetch: Fetch<'_>,
) -> Result<Command, peers::Error> {
    let source = match fetch.file {
        Some(path) => path.to_string_lossy().into_owned(),
        None => "/dev/zero".to_owned(),
    };
    let buffer = method.tcp_buffer.map(|size| size.0.to_string());
    let channels = fetch.channels.to_string();
    let endless = ENDLESS_BYTES.to_string();
    let mut command;
    match method.client {
        Client::Godwit => {
            command = Command::new(godwit::binary("godwit")?);
            command
                .args(["cp", "--quiet", "--no-verify"])
                .args(["--concurrency", "1", "--parallelism", &channels])
                .args(["--max-channels", &channels]);
            if let Some(buffer) = &buffer {
                command.args(["--tcp-buffer", buffer]);
            }
            if fetch.file.is_none() {
                command.args(["--length", &endless]);
            }
            command.arg(serving.url(&source)).arg("/dev/null");
        }
        Client::GlobusUrlCopy => {
            command = gct::URL_COPY.command()?;
            command.args(["-p", &channels]);
            if let Some(buffer) = &buffer {
                command.args(["-tcp-bs", buffer]);
            }
            if fetch.file.is_none() {
                command.args(["-len", &endless]);
            }
            command.arg(serving.url(&source)).arg("file:///dev/null");
        }
        Client::Iperf3 => {
            command = iperf3::IPERF3.command()?;
            let server = serving.address();
            command
                .args(["--client", &server.ip().to_string()])
                .args(["--port", &server.port().to_string()])
                .args(["--reverse", "--parallel", &channels])
                .args(["--time", &ENDLESS_SECONDS.to_string()]);
            if let Some(buffer) = &buffer {
                command.args(["--window", buffer]);
            }
        }
        Client::Curl => {
            command = plain_ftp::CURL.command()?;
            command.args(["--disable", "--silent", "--show-error"]);
            if matches!(serving, Serving::Gct(_)) {
                command.args(plain_ftp::CURL_TYPE_FIRST);
            }
            command
                .args(["--output", "/dev/null"])
                .arg(plain_ftp::absolute_url(serving.address(), &source));
        }
        Client::Lftp => {
            command = plain_ftp::LFTP.command()?;
            let get = match fetch.channels {
                1 => "get".to_owned(),
                more => format!("pget -n {more}"),
            };
            let script = format!(
                "set net:timeout 20; set net:max-retries 1; set ftp:ssl-allow no; \
                 set cmd:fail-exit yes; set xfer:clobber yes; open ftp://{}; {get} \"{source}\" -o \"{}\"",
                serving.address(),
                fetch.target.display(),
            );
            command.args(["--norc", "-c", &script]);
        }
    }
    Ok(command)
}
