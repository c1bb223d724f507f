//! One run: starts the network, the transfers and the loads, and reads the counters of the
//! receiving kernels.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::RunError;
use super::clients::Task;
use super::evolution::{BIN_SECONDS, Course, Evolution};
use super::loads::Loads;
use super::payload::{FileSet, Payload, SourceFile};
use super::record::{Fidelity, RunOutcome};
use super::sample::Sample;
use super::simulated::simulate;
use super::transfer::Transfer;
use super::watch::{SenderSeries, Watch};
use crate::network::{self, Network};
use crate::peers::SystemCpu;
use crate::scenario::{Cell, Method, NodeFate, Scenario};
use crate::stats;

/// How often connections are looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// With a set of files the sender is looked at in one of so many looks: the kernel walks through
/// all its table of connections for one, a millisecond each that the transfer lacks where files are
/// small.
const SENDER_LOOKS: u32 = 5;

/// Payload from which on data counts as flowing, bytes: more than a login and a directory take.
const FIRST_DATA_BYTES: u64 = 32 << 10;

/// How long the first data may take, beside 50 round trips.
const FIRST_DATA_TIMEOUT: Duration = Duration::from_secs(20);

/// How long other connections have the path for themselves before the transfer starts.
const LOAD_LEAD: Duration = Duration::from_secs(2);

/// What is to be run.
pub(super) struct Job<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) method: &'a Method,
    pub(super) cell: &'a Cell,
    pub(super) seed: u64,
    pub(super) payload: &'a Payload,
    /// Where event logs of tuned transfers go; names begin with the run's number.
    pub(super) events: PathBuf,
    pub(super) number: u32,
}

impl Job<'_> {
    /// Runs one method in one cell. Every run has a network of its own, so nothing of an earlier
    /// one is left: no packet, no metric of a route, no state of a random number.
    pub(super) fn measure(&self, samples: &mut Vec<Sample>) -> Result<RunOutcome, RunError> {
        let (scenario, method) = (self.scenario, self.method);
        let network = Network::start(&scenario.network(self.cell, method, self.seed))?;
        let loopback = !scenario.path.is_emulated();
        let mut transfers = Vec::new();
        for index in 0..method.transfers as usize {
            let events = self.events.join(format!("{}-{index}.jsonl", self.number));
            let task = Task {
                payload: self.payload,
                channels: self.cell.channels,
                events: (method.is_tuned() && scenario.evolves(method)).then_some(&*events),
            };
            let nodes = self.cell.nodes;
            let transfer = Transfer::prepare(method, &network, index, task, loopback, nodes)?;
            transfers.push(transfer);
        }
        let others = ["left", if loopback { "left" } else { "right" }]
            .map(|side| format!("{side}{}", method.transfers));
        let beside = match network.host(&others[1]) {
            Ok(host) => Some(Watch::of(host)?),
            Err(_) => None,
        };
        let mut loads = Loads::new(scenario, self.cell, others);
        if loads.at(&network, None)? {
            std::thread::sleep(LOAD_LEAD);
        }
        let began = Instant::now();
        transfers[0].start(&network, 0.0)?;
        let run = Measurement {
            job: self,
            network: &network,
            began,
            looks: 0,
            transfers,
            beside,
            loads,
            node_ends: scenario.node_ends(self.cell),
            samples,
        };
        let mut outcome = match self.payload {
            Payload::Endless => run.stream(),
            Payload::File(file) => run.file(file),
            Payload::Files(set) => run.files(set),
        }?;
        outcome.simulated = simulate(scenario, method, self.cell, self.seed)?;
        Ok(outcome)
    }
}

struct Measurement<'a> {
    job: &'a Job<'a>,
    network: &'a Network,
    began: Instant,
    looks: u32,
    transfers: Vec<Transfer>,
    /// The receiving kernel of other TCP connections.
    beside: Option<Watch>,
    loads: Loads,
    /// Data nodes that are still to end: when, which, and how.
    node_ends: Vec<(f64, u32, NodeFate)>,
    samples: &'a mut Vec<Sample>,
}

impl Measurement<'_> {
    /// Data without end: what arrives in the steady part, then everything is ended.
    fn stream(mut self) -> Result<RunOutcome, RunError> {
        let (ramp, measure) = self.job.scenario.span(self.job.method, self.job.cell);
        let first = self.wait_for_data()?;
        self.schedule_changes()?;
        while self.look(Some(first))? < first + ramp {
            self.must_run()?;
        }
        let meters = self.meters()?;
        let mut seen = SenderSeries::start(self.transfers.iter_mut().flat_map(|t| &mut t.senders))?;
        let start = self.look(Some(first))?;
        self.network.lap()?;
        let end = loop {
            let now = self.look(Some(first))?;
            seen.look(self.transfers.iter_mut().flat_map(|t| &mut t.senders))?;
            self.must_run()?;
            if now >= start + measure {
                break now;
            }
        };
        let report = self.network.lap()?;
        let used = self.meters()?.since(&meters);
        let mut outcome = self.outcome(first, (start, end), &used, &seen, &report);
        let mut evolution =
            (self.job.scenario.evolves(self.job.method)).then(|| self.evolution(first));
        for (index, transfer) in self.transfers.iter_mut().enumerate() {
            let course = evolution.as_mut().map(|e| &mut e.transfers[index]);
            transfer.end(course, first)?;
        }
        outcome.evolution = evolution;
        Ok(outcome)
    }

    /// One file: its size over the life of the client.
    fn file(mut self, file: &SourceFile) -> Result<RunOutcome, RunError> {
        let meters = self.meters()?;
        self.network.lap()?;
        let mut seen = SenderSeries::start(self.transfers.iter_mut().flat_map(|t| &mut t.senders))?;
        let first = self.wait_for_data()?;
        let limit = self.job.scenario.run.measure.0;
        while self.transfers[0].is_running()? {
            let now = self.look(Some(first))?;
            seen.look(self.transfers.iter_mut().flat_map(|t| &mut t.senders))?;
            if now > limit {
                return Err(RunError::TooLong { seconds: limit });
            }
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let report = self.network.lap()?;
        let used = self.meters()?.since(&meters);
        let mut outcome = self.outcome(first, (0.0, seconds), &used, &seen, &report);
        outcome.bytes = file.bytes();
        outcome.goodput_bps = rate_bps(outcome.bytes, seconds);
        outcome.transfers_bps = vec![outcome.goodput_bps];
        for finished in self.transfers[0].end(None, first)? {
            finished.success().map_err(network::Error::from)?;
        }
        Ok(outcome)
    }

    /// A set of files: what arrived over the life of the client, or until the run was stopped.
    fn files(mut self, set: &FileSet) -> Result<RunOutcome, RunError> {
        let meters = self.meters()?;
        self.network.lap()?;
        let mut seen = SenderSeries::start(self.transfers.iter_mut().flat_map(|t| &mut t.senders))?;
        let limit = self.job.scenario.run.measure.0;
        let mut first = None;
        let done = loop {
            let due = self.began + SAMPLE_INTERVAL * (self.looks + 1);
            if self.transfers[0].ended_within(due.saturating_duration_since(Instant::now()))? {
                break true;
            }
            let now = self.look(None)?;
            if first.is_none() && self.transfers[0].bytes_received() >= FIRST_DATA_BYTES {
                first = Some(now);
            }
            if self.looks.is_multiple_of(SENDER_LOOKS) {
                seen.look(self.transfers.iter_mut().flat_map(|t| &mut t.senders))?;
            }
            if now >= limit {
                break false;
            }
        };
        let seconds = self.began.elapsed().as_secs_f64();
        let report = self.network.lap()?;
        let used = self.meters()?.since(&meters);
        let log = self.transfers[0].log();
        for finished in self.transfers[0].end(None, 0.0)? {
            if done {
                finished.success().map_err(network::Error::from)?;
            }
        }
        let arrived = set.arrived()?;
        let wanted = self.job.cell.files;
        if done && arrived.files != wanted {
            return Err(RunError::Incomplete {
                found: arrived.files,
                wanted,
                log,
            });
        }
        let first = first.unwrap_or(seconds);
        let mut outcome = self.outcome(first, (0.0, seconds), &used, &seen, &report);
        outcome.bytes = arrived.bytes;
        outcome.files = arrived.files;
        outcome.stopped = !done;
        outcome.goodput_bps = rate_bps(outcome.bytes, seconds);
        outcome.transfers_bps = vec![outcome.goodput_bps];
        Ok(outcome)
    }

    fn wait_for_data(&mut self) -> Result<f64, RunError> {
        let limit = FIRST_DATA_TIMEOUT.as_secs_f64() + 50.0 * self.job.cell.rtt_s();
        loop {
            let now = self.look(None)?;
            if self.transfers[0].bytes_received() >= FIRST_DATA_BYTES {
                return Ok(now);
            }
            self.must_run()?;
            if now > limit {
                return Err(RunError::NoData {
                    seconds: limit,
                    log: self.transfers[0].log(),
                });
            }
        }
    }

    /// Tells the emulator what is to become of the path, now that its time begins.
    fn schedule_changes(&self) -> Result<(), RunError> {
        let control = self.network.control();
        for (at, link, to) in self
            .job
            .scenario
            .alterations(self.job.cell, self.job.method)
        {
            (control.alter(&link, Duration::from_secs_f64(at), to))
                .map_err(network::Error::from)?;
        }
        Ok(())
    }

    /// Waits for the time of the next samples and takes them, and does what is due. The time, s.
    fn look(&mut self, first: Option<f64>) -> Result<f64, RunError> {
        self.looks += 1;
        let due = self.began + SAMPLE_INTERVAL * self.looks;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let began = self.began;
        let now = || began.elapsed().as_secs_f64();
        let seconds = now();
        for (number, transfer) in (0..).zip(&mut self.transfers) {
            self.samples.push(transfer.look(number, now)?);
        }
        if let Some(beside) = &mut self.beside {
            beside.look()?;
            self.samples.push(Sample {
                transfer: self.job.method.transfers,
                seconds: now(),
                bytes: beside.bytes(),
                channels: beside.live(),
            });
        }
        if let Some(first) = first {
            let since = seconds - first;
            self.loads.at(self.network, Some(since))?;
            let (due, later) = (self.node_ends.drain(..)).partition(|(at, ..)| since >= *at);
            self.node_ends = later;
            let due: Vec<(f64, u32, NodeFate)> = due;
            for (_, node, fate) in due {
                self.transfers[0].end_node(node, fate)?;
            }
            for transfer in &mut self.transfers {
                if transfer.started.is_none() && since >= transfer.due {
                    transfer.start(self.network, now())?;
                }
            }
        }
        Ok(seconds)
    }

    fn must_run(&mut self) -> Result<(), RunError> {
        for transfer in &mut self.transfers {
            if !transfer.is_running()? {
                return Err(RunError::Ended {
                    log: transfer.log(),
                });
            }
        }
        Ok(())
    }

    fn meters(&self) -> Result<Meters, RunError> {
        let (clients, servers): (Vec<_>, Vec<_>) = self.transfers.iter().map(Transfer::cpu).unzip();
        Ok(Meters {
            client: clients.iter().sum(),
            server: servers.iter().sum(),
            front_end: self.transfers.iter().map(Transfer::front_end_cpu).sum(),
            machine: SystemCpu::now().map_err(network::Error::from)?,
        })
    }

    /// Samples of one transfer that were taken in a span, ends included.
    fn samples_of(&self, transfer: u32, (start, end): (f64, f64)) -> Vec<Sample> {
        let inside = |sample: &&Sample| {
            let late = sample.seconds - end;
            // The last look begins at `end`, so what it sees has been seen a moment later.
            sample.seconds >= start && late < SAMPLE_INTERVAL.as_secs_f64() / 2.0
        };
        (self.samples.iter().filter(|s| s.transfer == transfer))
            .filter(inside)
            .copied()
            .collect()
    }

    #[allow(clippy::cast_precision_loss, reason = "rates have fewer digits")]
    fn outcome(
        &self,
        first: f64,
        span: (f64, f64),
        used: &Used,
        seen: &SenderSeries,
        report: &crate::emulator::Report,
    ) -> RunOutcome {
        let links = (self.job.scenario).data_links(self.job.cell, self.job.method);
        let fidelity = Fidelity::of(report, &links);
        let of_link = |link: &String| {
            let delivered = report.link(link).map_or(0, |link| link.delivered_bytes);
            rate_bps(delivered, report.seconds)
        };
        let nodes_bps = match self.job.cell.nodes {
            0 => Vec::new(),
            _ => links.iter().map(of_link).collect(),
        };
        let emulator = fidelity.emulator_cpus * report.seconds;
        let others = (used.busy - used.client - used.server - emulator).max(0.0);
        let count = self.job.method.transfers;
        let transfers: Vec<Vec<Sample>> = (0..count).map(|i| self.samples_of(i, span)).collect();
        let transfers_bps: Vec<f64> = transfers.iter().map(|s| goodput_bps(s)).collect();
        let live = transfers.iter().flatten().map(|s| f64::from(s.channels));
        let live: Vec<f64> = live.collect();
        let bytes = transfers.iter().map(|samples| moved(samples).0).sum();
        RunOutcome {
            goodput_bps: transfers_bps.iter().sum(),
            bytes,
            seconds: span.1 - span.0,
            files: 0,
            stopped: false,
            first_data_seconds: first,
            channels_seen: (self.transfers.iter().flat_map(|t| &t.receivers))
                .map(Watch::receivers)
                .sum(),
            channels_mean: stats::mean(&live).unwrap_or(0.0) * f64::from(count),
            beside_bps: (self.beside.as_ref()).map(|_| goodput_bps(&self.samples_of(count, span))),
            transfers_bps,
            sender: seen.summary(self.transfers.iter().flat_map(|t| &t.senders)),
            client_cpu_seconds: used.client,
            server_cpu_seconds: used.server,
            front_end_cpu_seconds: used.front_end,
            nodes_bps,
            stolen_cpu_seconds: used.stolen,
            other_cpu_seconds: others,
            sharing: self.loads.sharing(),
            fidelity,
            evolution: None,
            simulated: None,
        }
    }

    fn evolution(&self, first: f64) -> Evolution {
        let course = |transfer| Course::of(&self.samples_of(transfer, (0.0, f64::INFINITY)), first);
        let count = self.job.method.transfers;
        Evolution {
            bin_seconds: BIN_SECONDS,
            transfers: (0..count).map(course).collect(),
            beside_bps: course(count).goodput_bps,
        }
    }
}

/// Payload and time between the first and the last sample.
fn moved(samples: &[Sample]) -> (u64, f64) {
    match samples {
        [first, .., last] => (last.bytes - first.bytes, last.seconds - first.seconds),
        _ => (0, 0.0),
    }
}

fn goodput_bps(samples: &[Sample]) -> f64 {
    let (bytes, seconds) = moved(samples);
    rate_bps(bytes, seconds)
}

#[allow(clippy::cast_precision_loss, reason = "rates have fewer digits")]
fn rate_bps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

/// Processor time so far.
struct Meters {
    client: Duration,
    server: Duration,
    front_end: Duration,
    machine: SystemCpu,
}

/// Processor time between two readings, s.
struct Used {
    client: f64,
    server: f64,
    front_end: f64,
    stolen: f64,
    busy: f64,
}

impl Meters {
    fn since(&self, earlier: &Meters) -> Used {
        Used {
            client: self.client.saturating_sub(earlier.client).as_secs_f64(),
            server: self.server.saturating_sub(earlier.server).as_secs_f64(),
            front_end: (self.front_end.saturating_sub(earlier.front_end)).as_secs_f64(),
            busy: self.machine.busy_since(&earlier.machine).as_secs_f64(),
            stolen: self.machine.stolen_since(&earlier.machine).as_secs_f64(),
        }
    }
}
