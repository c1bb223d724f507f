//! A GridFTP server between which units move, started again as often as it ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::faults::Error;
use crate::peers::START_TIMEOUT;
use crate::peers::godwit::Godwitd;
use crate::peers::request::fetch;

/// A GridFTP server.
#[derive(Debug)]
pub(super) struct FileServer {
    pub(super) root: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) password_file: Option<PathBuf>,
    pub(super) running: Option<Godwitd>,
    pub(super) metrics: Option<SocketAddr>,
    /// Bytes that came in, by those before it and by this one.
    pub(super) received: (u64, u64),
    pub(super) said: String,
}

impl FileServer {
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let config = Godwitd::serving(&self.root).port(self.address.port());
            let config = config.arg("--metrics").arg("127.0.0.1:0");
            let config = match &self.password_file {
                None => config.anonymous("rw"),
                Some(file) => config
                    .anonymous("off")
                    .arg("--tls=false")
                    .arg("--allow-clear-passwords=true")
                    .arg("--password-file")
                    .arg(file),
            };
            match config.start() {
                Ok(server) => {
                    self.address = server.addr();
                    self.metrics = None;
                    self.running = Some(server);
                    return Ok(());
                }
                // The sockets of the dead one may take a moment to go.
                Err(_) if self.address.port() != 0 && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn die(&mut self) {
        if let Some(server) = self.running.take() {
            self.said.push_str(&server.log());
            self.received = (self.received.0 + self.received.1, 0);
        }
    }

    /// Bytes that came in.
    pub(super) fn look(&mut self) -> u64 {
        if let Some(server) = &self.running {
            if self.metrics.is_none() {
                let log = server.log();
                let address = log.split_once("metrics on http://");
                let address = address.and_then(|(_, rest)| rest.split_once('/')?.0.parse().ok());
                self.metrics = address;
            }
            let text = self
                .metrics
                .and_then(|address| fetch(address, "/metrics").ok());
            let text = text.unwrap_or_default();
            let line = "godwitd_transfer_bytes_total{direction=\"in\"} ";
            let bytes = text
                .lines()
                .find_map(|found| found.strip_prefix(line)?.parse().ok());
            self.received.1 = bytes.unwrap_or(self.received.1);
        }
        self.received.0 + self.received.1
    }
}
