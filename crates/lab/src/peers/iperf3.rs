//! `iperf3`: the goodput of a path without any file transfer.
//!
//! It cannot pick a free port, so one is picked for it and tried again when it was taken meanwhile.
//! A server runs one test at a time and refuses others meanwhile.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::process::{Options, Process, Stream};
use super::usage::Usage;
use super::{Error, RUN_TIMEOUT, START_TIMEOUT, Tool};

/// The program, client and server in one.
pub const IPERF3: Tool = Tool::new("iperf3", "iperf3");

/// A running `iperf3 -s`. Dropping it ends it.
#[derive(Debug)]
pub struct Iperf3Server {
    process: Process,
    addr: SocketAddr,
}

impl Iperf3Server {
    /// Starts a server on a free port of `ip`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`] when every port tried was taken,
    /// [`Error::TimedOut`].
    pub fn start(ip: IpAddr) -> Result<Iperf3Server, Error> {
        super::on_a_free_port(ip, |addr| {
            let mut command = IPERF3.command()?;
            command
                .args(["--server", "--forceflush"])
                .args(["--bind", &ip.to_string()])
                .args(["--port", &addr.port().to_string()]);
            let mut process = Process::spawn(command, Options::default())?;
            process.wait_for_line(
                Stream::Stdout,
                "say that it listens",
                START_TIMEOUT,
                |line| line.starts_with("Server listening on ").then_some(()),
            )?;
            Ok(Iperf3Server { process, addr })
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process, to signal or watch it.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// One test from a client's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iperf3Test {
    /// Parallel TCP connections.
    pub streams: u16,
    /// How long the sender sends, without the seconds left out at the start.
    pub seconds: u16,
    /// Seconds at the start that are not counted, to leave out TCP's ramp.
    pub omit_seconds: u16,
    /// Whether the server sends and the client receives.
    pub reverse: bool,
    /// Whether the sender sends with `sendfile` (`-Z`).
    pub zero_copy: bool,
    /// Socket buffer asked for, bytes; 0 leaves it to the kernel.
    pub window_bytes: u32,
}

impl Default for Iperf3Test {
    /// One connection, client to server, for one second.
    fn default() -> Iperf3Test {
        Iperf3Test {
            streams: 1,
            seconds: 1,
            omit_seconds: 0,
            reverse: false,
            zero_copy: false,
            window_bytes: 0,
        }
    }
}

/// What a test measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Iperf3Report {
    /// Payload received per second, bit/s, all connections together.
    pub goodput_bps: f64,
    /// Segments that the sender sent again, where the kernel says.
    pub retransmits: Option<f64>,
    /// What the client cost.
    pub client: Usage,
    /// The whole JSON report.
    pub json: String,
}

impl Iperf3Test {
    /// Runs the test against `server`.
    ///
    /// # Errors
    /// As [`Tool::run`]; [`Error::Unexpected`] when the report holds no result, for which its
    /// `error` entry says why: the exit status is 0 even then.
    pub fn run(&self, server: SocketAddr) -> Result<Iperf3Report, Error> {
        let mut command = IPERF3.command()?;
        command
            .args(["--client", &server.ip().to_string()])
            .args(["--port", &server.port().to_string()])
            .args(["--time", &self.seconds.to_string()])
            .args(["--omit", &self.omit_seconds.to_string()])
            .args(["--parallel", &self.streams.to_string()])
            .args(["--connect-timeout", "10000", "--json"]);
        if self.reverse {
            command.arg("--reverse");
        }
        if self.zero_copy {
            command.arg("--zerocopy");
        }
        if self.window_bytes > 0 {
            command.args(["--window", &self.window_bytes.to_string()]);
        }
        let sending = Duration::from_secs(u64::from(self.seconds) + u64::from(self.omit_seconds));
        let finished = super::process::run(command, RUN_TIMEOUT + sending)?.success()?;
        let json = finished.stdout_text();
        let Some(goodput_bps) = number_in(&json, "sum_received", "bits_per_second") else {
            return Err(Error::Unexpected {
                program: finished.program,
                expected: "sum_received.bits_per_second",
                log: json,
            });
        };
        Ok(Iperf3Report {
            goodput_bps,
            retransmits: number_in(&json, "sum_sent", "retransmits"),
            client: finished.usage,
            json,
        })
    }
}

/// The number of `key` in the object of `object`. The report nests no object inside the two we
/// read, so the first `}` ends them, and a JSON parser would be a dependency for two numbers.
fn number_in(json: &str, object: &str, key: &str) -> Option<f64> {
    let (_, rest) = json.split_once(&format!("\"{object}\":"))?;
    let (fields, _) = rest.split_once('}')?;
    let (_, value) = fields.split_once(&format!("\"{key}\":"))?;
    let end = value.find([',', '\n']).unwrap_or(value.len());
    value[..end].trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::peers::present;

    #[test]
    fn numbers_are_read_from_their_own_object() {
        let json = "{\"sum_sent\":{\"bits_per_second\":1.5,\"retransmits\":7},\
                    \"sum_received\":{\n\"bits_per_second\":\t2.5\n}}";
        assert_eq!(
            number_in(json, "sum_received", "bits_per_second"),
            Some(2.5)
        );
        assert_eq!(number_in(json, "sum_sent", "retransmits"), Some(7.0));
        assert_eq!(number_in(json, "sum_received", "retransmits"), None);
        assert_eq!(number_in("{}", "sum_sent", "retransmits"), None);
    }

    #[test]
    fn measures_loopback() {
        if present("measures_loopback", IPERF3.available()).is_none() {
            return;
        }
        let server = Iperf3Server::start(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("starts");
        let report = Iperf3Test::default().run(server.addr()).expect("measures");
        assert!(report.goodput_bps > 0.0, "{}", report.json);
    }

    #[test]
    fn a_test_without_a_server_is_an_error() {
        let test = "a_test_without_a_server_is_an_error";
        if present(test, IPERF3.available()).is_none() {
            return;
        }
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let port = crate::peers::free_port(ip).expect("a port");
        let result = Iperf3Test::default().run(SocketAddr::new(ip, port));
        assert!(result.is_err(), "{result:?}");
    }
}
