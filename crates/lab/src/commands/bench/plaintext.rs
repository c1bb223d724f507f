//! Benchmark cells without encryption: memory to memory and file to file at several parallelisms,
//! up to a thousand channels.
//!
//! The limit, on paper: loopback TCP copies each byte twice (sender into the kernel, kernel to
//! receiver), a file source adds a page-cache read that `sendfile` hands over without a copy, and a
//! file target adds one copy into the page cache plus the allocation of its pages, which on a
//! virtual machine costs more than the copy.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    BenchError, RUN_LIMIT,
    files::{Files, check_and_remove, run_with_room},
    godwit_cp,
    record::RunResult,
    testbed::{Testbed, goodput_cell, of_rate, of_transfer},
};
use crate::peers::{
    Error, Tool, Usage,
    gct::{self, GctServer},
    godwit::Godwitd,
    iperf3::{self, Iperf3Server, Iperf3Test},
};

/// The contender that all are held against.
const OURS: &str = "godwit <- godwitd";

const CP: Tool = Tool::new("cp", "coreutils");
const DD: Tool = Tool::new("dd", "coreutils");

/// Channels that the last cell goes up to; the server's own bound is above.
const CHANNELS: [u16; 6] = [1, 4, 16, 64, 256, 1000];

/// The server and the client of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Programs {
    Gct,
    Godwit,
    /// The same, and the tuner chooses how many channels.
    Tuned,
    GodwitFromGct,
    GctFromGodwit,
    Iperf3,
    /// Iperf3 with `sendfile` (-Z).
    Iperf3Zero,
    /// What the kernel needs to write the file on one processor, without a network.
    Cp,
    /// What it needs for the pages of the target alone, filled from a buffer that stays in the
    /// processor's cache.
    Dd,
}

impl Programs {
    fn name(self) -> &'static str {
        match self {
            Self::Gct => "GCT <- GCT",
            Self::Godwit => OURS,
            Self::Tuned => "godwit <- godwitd, tuned",
            Self::GodwitFromGct => "godwit <- GCT",
            Self::GctFromGodwit => "GCT <- godwitd",
            Self::Iperf3 => "iperf3 -R",
            Self::Iperf3Zero => "iperf3 -R -Z",
            Self::Cp => "cp, no network",
            Self::Dd => "dd of zeros, no network",
        }
    }
}

/// What moves.
struct TransferTask {
    source: PathBuf,
    target: PathBuf,
    bytes: u64,
    /// From memory to memory: the length is said, nothing is left behind.
    memory: bool,
    channels: u16,
}

impl TransferTask {
    fn memory(channels: u16, bytes: u64) -> Self {
        Self {
            source: PathBuf::from("/dev/zero"),
            target: PathBuf::from("/dev/null"),
            bytes,
            memory: true,
            channels,
        }
    }
}

/// Servers of the cells.
pub(super) struct Plaintext {
    gct: Option<GctServer>,
    godwitd: Godwitd,
    iperf3: Option<Iperf3Server>,
}

impl Plaintext {
    /// Starts the servers that are installed. They serve the root of the machine: /dev/zero must be
    /// in reach.
    pub(super) fn start(testbed: &mut Testbed<'_>) -> Result<Self, BenchError> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let gct = match gct::available() {
            _ if testbed.options.no_peers => None,
            Ok(()) => Some(GctServer::serving("/").ip(ip).start()?),
            Err(missing) => {
                testbed.leave_out("", "GCT", &missing.to_string())?;
                None
            }
        };
        let iperf3 = match iperf3::IPERF3.available() {
            _ if testbed.options.no_peers => None,
            Ok(_) => Some(Iperf3Server::start(ip)?),
            Err(missing) => {
                testbed.leave_out("", "iperf3", &missing.to_string())?;
                None
            }
        };
        Ok(Self {
            gct,
            godwitd: Godwitd::serving("/").ip(ip).anonymous("ro").start()?,
            iperf3,
        })
    }

    pub(super) fn run(
        &self,
        testbed: &mut Testbed<'_>,
        files: &mut Files,
    ) -> Result<(), BenchError> {
        for &channels in &testbed.options.parallelism {
            let bytes = testbed.options.memory_gb * 1_000_000_000 / testbed.scale();
            let work = TransferTask::memory(channels, bytes);
            let all = [
                Programs::Gct,
                Programs::Godwit,
                Programs::Iperf3,
                Programs::GodwitFromGct,
            ];
            let more = [Programs::Iperf3Zero, Programs::GctFromGodwit];
            self.compare(testbed, &work, &[&all[..], &more[..]].concat())?;
        }
        for &channels in &testbed.options.parallelism {
            if !testbed.is_asked_for(&format!("file/{channels}")) {
                continue;
            }
            let work = TransferTask {
                source: files.source(testbed)?.to_owned(),
                target: files.target(),
                bytes: files.bytes(testbed),
                memory: false,
                channels,
            };
            let all = [
                Programs::Gct,
                Programs::Godwit,
                Programs::GodwitFromGct,
                Programs::GctFromGodwit,
                Programs::Tuned,
                Programs::Cp,
                Programs::Dd,
            ];
            self.compare(testbed, &work, &all)?;
        }
        let title = "memory to memory by the number of channels, one mover at each end";
        let last = CHANNELS.last().copied().unwrap_or_default();
        let name = |channels: u16| (channels, format!("godwit, {channels} channels"));
        let cell = goodput_cell("channels".into(), title.into(), &name(last).1);
        let bytes = testbed.options.memory_gb * 1_000_000_000 / testbed.scale();
        testbed.compare(cell, &CHANNELS.map(name), |channels| {
            self.measure(
                Programs::Godwit,
                &TransferTask::memory(*channels, bytes),
                Duration::ZERO,
            )
        })
    }

    fn compare(
        &self,
        testbed: &mut Testbed<'_>,
        work: &TransferTask,
        all: &[Programs],
    ) -> Result<(), BenchError> {
        let kind = if work.memory { "memory" } else { "file" };
        let title = format!(
            "{kind} to {kind}, {} channels, {:.1} GB",
            work.channels,
            work.bytes as f64 / 1e9
        );
        let cell = goodput_cell(format!("{kind}/{}", work.channels), title, OURS);
        let long = Duration::from_secs(if testbed.options.quick { 1 } else { 3 });
        let there: Vec<(Programs, String)> = all
            .iter()
            .filter(|ends| self.is_there(**ends))
            .map(|ends| (*ends, ends.name().to_owned()))
            .collect();
        testbed.compare(cell, &there, |ends| self.measure(*ends, work, long))
    }

    fn is_there(&self, ends: Programs) -> bool {
        match ends {
            Programs::Godwit | Programs::Tuned | Programs::Cp | Programs::Dd => true,
            Programs::Gct | Programs::GodwitFromGct | Programs::GctFromGodwit => self.gct.is_some(),
            Programs::Iperf3 | Programs::Iperf3Zero => self.iperf3.is_some(),
        }
    }

    /// `long`: of those that run for a time and not for a number of bytes.
    fn measure(
        &self,
        ends: Programs,
        work: &TransferTask,
        long: Duration,
    ) -> Result<RunResult, BenchError> {
        if let (Programs::Iperf3 | Programs::Iperf3Zero, Some(server)) = (ends, &self.iperf3) {
            return iperf3(server, ends == Programs::Iperf3Zero, work.channels, long);
        }
        if let Programs::Cp | Programs::Dd = ends {
            let command = alone(ends, work)?;
            let finished = run_with_room(command, work.bytes, RUN_LIMIT)?;
            check_and_remove(&work.target, work.bytes)?;
            return Ok(of_transfer(work.bytes, finished.usage, Usage::default()));
        }
        let source = work.source.display().to_string();
        let url = match (ends, &self.gct) {
            (Programs::Gct | Programs::GodwitFromGct, Some(server)) => server.machine_url(&source),
            _ => self.godwitd.url(&source),
        };
        let usage = || match (ends, &self.gct) {
            (Programs::Gct | Programs::GodwitFromGct, Some(server)) => server.usage(),
            _ => self.godwitd.usage(),
        };
        let before = usage();
        let room = if work.memory { 0 } else { work.bytes };
        let client = run_with_room(fetch(ends, &url, work)?, room, RUN_LIMIT)?;
        let server = usage().since(&before);
        if !work.memory {
            check_and_remove(&work.target, work.bytes)?;
        }
        Ok(of_transfer(work.bytes, client.usage, server))
    }
}

/// What makes the target without a network.
fn alone(ends: Programs, work: &TransferTask) -> Result<Command, BenchError> {
    if ends == Programs::Cp {
        let mut command = CP.command().map_err(Error::from)?;
        command.arg(&work.source).arg(&work.target);
        return Ok(command);
    }
    let mut command = DD.command().map_err(Error::from)?;
    command.args([
        "if=/dev/zero",
        "bs=256K",
        "iflag=count_bytes",
        "status=none",
    ]);
    command.arg(format!("count={}", work.bytes));
    let mut target = OsString::from("of=");
    target.push(&work.target);
    command.arg(target);
    Ok(command)
}

/// One download, from start to end of the client's process. No contender verifies: GCT's client
/// does not by default.
fn fetch(ends: Programs, url: &str, work: &TransferTask) -> Result<Command, BenchError> {
    let (p, length) = (work.channels.to_string(), work.bytes.to_string());
    let mut command;
    if let Programs::Gct | Programs::GctFromGodwit = ends {
        command = gct::URL_COPY.command().map_err(Error::from)?;
        command.args(["-p", &p]);
        if work.memory {
            command.args(["-len", &length]);
        }
        command.arg(url).arg(file_url(&work.target));
    } else {
        command = godwit_cp()?;
        if ends != Programs::Tuned {
            command.args(["-c", "1", "-p", &p, "--max-channels", &p]);
        }
        if work.memory {
            command.args(["--length", &length]);
        }
        command.arg(url).arg(&work.target);
    }
    Ok(command)
}

fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn iperf3(
    server: &Iperf3Server,
    zero_copy: bool,
    streams: u16,
    long: Duration,
) -> Result<RunResult, BenchError> {
    let before = server.process().usage();
    let test = Iperf3Test {
        streams,
        seconds: u16::try_from(long.as_secs()).unwrap_or(u16::MAX),
        reverse: true,
        zero_copy,
        ..Iperf3Test::default()
    };
    let report = test.run(server.addr())?;
    let used = server.process().usage().since(&before);
    Ok(of_rate(report.goodput_bps / 8.0, long, report.client, used))
}
