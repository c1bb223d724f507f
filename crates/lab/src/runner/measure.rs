//! One run: network, server, load, client, and what the receiving kernel counts.

use std::path::Path;
use std::time::{Duration, Instant};

use godwit_engine::tcp_diag::TcpDiag;

use super::RunError;
use super::programs::{self, Fetch, Serving};
use super::record::{Fidelity, Outcome, Sample, Sender};
use crate::host::Host;
use crate::ledger::Ledger;
use crate::load::{ComputeLoad, Grouping, TrafficLoad};
use crate::network::{self, Network};
use crate::peers::process::Options;
use crate::peers::{Process, SystemCpu};
use crate::scenario::{Cell, Load, Method, Scenario};
use crate::stats;

/// How often connections are looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Payload from which on data counts as flowing, bytes: more than a login and a directory take.
const FIRST_DATA_BYTES: u64 = 32 << 10;

/// Payload from which on a connection counts as a data channel, bytes.
const CHANNEL_BYTES: u64 = 8 << 10;

/// How long the first data may take, beside 50 round trips.
const FIRST_DATA_TIMEOUT: Duration = Duration::from_secs(20);

/// How long other connections have the path for themselves before the transfer starts.
const LOAD_LEAD: Duration = Duration::from_secs(2);

/// The way of the data, by the names of [`crate::network::NetworkConfig::sides`].
const DATA_LINK: &str = "left>right";

/// Runs one method in one cell. Every run has a network of its own, so nothing of an earlier one
/// is left: no packet, no metric of a route, no state of a random number.
pub(super) fn measure(
    scenario: &Scenario,
    method: &Method,
    cell: &Cell,
    seed: u64,
    fetch: Fetch<'_>,
    samples: &mut Vec<Sample>,
) -> Result<Outcome, RunError> {
    let network = Network::start(&scenario.network(cell, method, seed))?;
    let (left, right) = (network.host("left0")?, network.host("right0")?);
    let mut receiver = Watch::of(right)?;
    let mut sender = Watch::of(left)?;
    let serving = Serving::start(method.server, left)?;
    let mut loads = Loads::new(scenario);
    if loads.at(&network, None)? {
        std::thread::sleep(LOAD_LEAD);
    }
    let command = programs::command(method, &serving, fetch).map_err(network::Error::from)?;
    let client = right.spawn(command, Options::default())?;
    let run = Measurement {
        network: &network,
        began: Instant::now(),
        client,
        serving: &serving,
        receiver: &mut receiver,
        sender: &mut sender,
        loads: &mut loads,
        samples,
    };
    match fetch.file {
        Some(file) => run.file(scenario, cell, file),
        None => run.stream(scenario, cell),
    }
}

/// The connections of a host, those that have closed included.
struct Watch {
    diag: TcpDiag,
    ledger: Ledger,
}

impl Watch {
    fn of(host: &Host) -> Result<Watch, RunError> {
        let diag = host.enter(TcpDiag::open)?.map_err(RunError::Diag)?;
        Ok(Watch {
            diag,
            ledger: Ledger::default(),
        })
    }

    fn look(&mut self) -> Result<(), RunError> {
        let now = self.diag.connections().map_err(RunError::Diag)?;
        self.ledger.update(&now);
        Ok(())
    }
}

struct Measurement<'a> {
    network: &'a Network,
    began: Instant,
    client: Process,
    serving: &'a Serving,
    receiver: &'a mut Watch,
    sender: &'a mut Watch,
    loads: &'a mut Loads<'a>,
    samples: &'a mut Vec<Sample>,
}

impl Measurement<'_> {
    /// Data without end: what arrives in the steady part, then everything is ended.
    fn stream(mut self, scenario: &Scenario, cell: &Cell) -> Result<Outcome, RunError> {
        let first = self.wait_for_data(cell)?;
        let ramped = first + scenario.run.ramp.0;
        while self.look(Some(first))?.seconds < ramped {
            self.must_run()?;
        }
        let meters = self.meters()?;
        let mut seen = SenderSeries::start(self.sender)?;
        let start = self.look(Some(first))?;
        self.network.lap()?;
        let end = loop {
            let now = self.look(Some(first))?;
            seen.look(self.sender)?;
            self.must_run()?;
            if now.seconds >= start.seconds + scenario.run.measure.0 {
                break now;
            }
        };
        let report = self.network.lap()?;
        let used = self.meters()?.since(&meters);
        let bytes = end.bytes - start.bytes;
        let seconds = end.seconds - start.seconds;
        let outcome = self.outcome(bytes, seconds, first, &used, &seen, &report);
        self.client.stop().map_err(network::Error::from)?;
        Ok(outcome)
    }

    /// One file: its size over the life of the client.
    fn file(mut self, scenario: &Scenario, cell: &Cell, file: &Path) -> Result<Outcome, RunError> {
        let meters = self.meters()?;
        self.network.lap()?;
        let mut seen = SenderSeries::start(self.sender)?;
        let first = self.wait_for_data(cell)?;
        let limit = scenario.run.measure.0;
        while self.client.is_running().map_err(network::Error::from)? {
            let now = self.look(Some(first))?;
            seen.look(self.sender)?;
            if now.seconds > limit {
                return Err(RunError::TooLong { seconds: limit });
            }
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let report = self.network.lap()?;
        let used = self.meters()?.since(&meters);
        let bytes = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        let outcome = self.outcome(bytes, seconds, first, &used, &seen, &report);
        let finished = self.client.stop().map_err(network::Error::from)?;
        finished.success().map_err(network::Error::from)?;
        Ok(outcome)
    }

    fn wait_for_data(&mut self, cell: &Cell) -> Result<f64, RunError> {
        let limit = FIRST_DATA_TIMEOUT.as_secs_f64() + 50.0 * cell.rtt_s();
        loop {
            let now = self.look(None)?;
            if now.bytes >= FIRST_DATA_BYTES {
                return Ok(now.seconds);
            }
            self.must_run()?;
            if now.seconds > limit {
                return Err(RunError::NoData {
                    seconds: limit,
                    log: self.client.log(),
                });
            }
        }
    }

    /// Waits for the time of the next sample and takes it.
    fn look(&mut self, first: Option<f64>) -> Result<Sample, RunError> {
        let taken = u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        let due = self.began + SAMPLE_INTERVAL * (taken + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        self.receiver.look()?;
        let sample = Sample {
            seconds: self.began.elapsed().as_secs_f64(),
            bytes: self.receiver.ledger.bytes_received(),
        };
        self.samples.push(sample);
        if let Some(first) = first {
            self.loads.at(self.network, Some(sample.seconds - first))?;
        }
        Ok(sample)
    }

    fn must_run(&mut self) -> Result<(), RunError> {
        if self.client.is_running().map_err(network::Error::from)? {
            return Ok(());
        }
        Err(RunError::Ended {
            log: self.client.log(),
        })
    }

    fn meters(&self) -> Result<Meters, RunError> {
        Ok(Meters {
            client: self.client.usage().cpu(),
            server: self.serving.usage().cpu(),
            machine: SystemCpu::now().map_err(network::Error::from)?,
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "rates have fewer digits")]
    fn outcome(
        &self,
        bytes: u64,
        seconds: f64,
        first: f64,
        used: &Used,
        seen: &SenderSeries,
        report: &crate::emulator::Report,
    ) -> Outcome {
        let fidelity = Fidelity::of(report, DATA_LINK);
        let emulator = fidelity.emulator_cpus * report.seconds;
        let others = (used.busy - used.client - used.server - emulator).max(0.0);
        Outcome {
            goodput_bps: bytes as f64 * 8.0 / seconds,
            bytes,
            seconds,
            first_data_seconds: first,
            channels_seen: self.receiver.ledger.receivers(CHANNEL_BYTES),
            sender: seen.summary(self.sender),
            client_cpu_seconds: used.client,
            server_cpu_seconds: used.server,
            stolen_cpu_seconds: used.stolen,
            other_cpu_seconds: others,
            fidelity,
        }
    }
}

/// Processor time so far.
struct Meters {
    client: Duration,
    server: Duration,
    machine: SystemCpu,
}

/// Processor time between two readings, s.
struct Used {
    client: f64,
    server: f64,
    stolen: f64,
    busy: f64,
}

impl Meters {
    fn since(&self, earlier: &Meters) -> Used {
        Used {
            client: self.client.saturating_sub(earlier.client).as_secs_f64(),
            server: self.server.saturating_sub(earlier.server).as_secs_f64(),
            busy: self.machine.busy_since(&earlier.machine).as_secs_f64(),
            stolen: self.machine.stolen_since(&earlier.machine).as_secs_f64(),
        }
    }
}

/// What is only known by looking again and again at the sending kernel.
struct SenderSeries {
    before: Ledger,
    in_flight: Vec<f64>,
    rtts_ms: Vec<f64>,
}

impl SenderSeries {
    fn start(watch: &mut Watch) -> Result<SenderSeries, RunError> {
        watch.look()?;
        Ok(SenderSeries {
            before: watch.ledger.clone(),
            in_flight: Vec::new(),
            rtts_ms: Vec::new(),
        })
    }

    fn look(&mut self, watch: &mut Watch) -> Result<(), RunError> {
        let now = watch.diag.connections().map_err(RunError::Diag)?;
        let data: Vec<_> = (now.iter())
            .filter(|c| c.bytes_sent > CHANNEL_BYTES)
            .collect();
        let flights: Vec<f64> = (data.iter())
            .map(|c| f64::from(c.unacked) * f64::from(c.segment_bytes))
            .collect();
        let rtts: Vec<f64> = data.iter().map(|c| f64::from(c.rtt_us) / 1e3).collect();
        self.in_flight.extend(stats::mean(&flights));
        self.rtts_ms.extend(stats::mean(&rtts));
        watch.ledger.update(&now);
        Ok(())
    }

    /// From the start until now.
    #[allow(clippy::cast_precision_loss, reason = "shares of time")]
    fn summary(&self, watch: &Watch) -> Sender {
        let mut sender = Sender::default();
        let (mut busy, mut window, mut buffer) = (0, 0, 0);
        let mut rtt_min_us = u32::MAX;
        for c in watch.ledger.connections() {
            if c.bytes_sent <= CHANNEL_BYTES {
                continue;
            }
            let before = (self.before.connections())
                .find(|b| b.cookie == c.cookie)
                .copied()
                .unwrap_or_default();
            sender.bytes_sent += c.bytes_sent - before.bytes_sent;
            sender.bytes_retransmitted += c.bytes_retransmitted - before.bytes_retransmitted;
            busy += c.busy_us.saturating_sub(before.busy_us);
            window +=
                (c.receive_window_limited_us).saturating_sub(before.receive_window_limited_us);
            buffer += (c.send_buffer_limited_us).saturating_sub(before.send_buffer_limited_us);
            rtt_min_us = rtt_min_us.min(c.rtt_min_us);
        }
        sender.in_flight_bytes = stats::median(&self.in_flight).unwrap_or(0.0);
        sender.rtt_ms = stats::median(&self.rtts_ms).unwrap_or(0.0);
        if rtt_min_us < u32::MAX {
            sender.rtt_min_ms = f64::from(rtt_min_us) / 1e3;
        }
        sender.receive_window_limited = window as f64 / busy.max(1) as f64;
        sender.send_buffer_limited = buffer as f64 / busy.max(1) as f64;
        sender
    }
}

/// What else goes on, each thing in its time.
struct Loads<'a> {
    scenario: &'a Scenario,
    running: Vec<Option<Running>>,
}

/// A load; dropping it ends it.
#[allow(dead_code, reason = "held until it is to end")]
enum Running {
    Tcp(TrafficLoad),
    Compute(ComputeLoad),
}

impl<'a> Loads<'a> {
    fn new(scenario: &'a Scenario) -> Loads<'a> {
        Loads {
            scenario,
            running: scenario.load.iter().map(|_| None).collect(),
        }
    }

    /// Starts and ends what is due; `seconds` since the first data, `None` before the transfer.
    /// Whether anything goes on.
    fn at(&mut self, network: &Network, seconds: Option<f64>) -> Result<bool, RunError> {
        for (load, running) in self.scenario.load.iter().zip(&mut self.running) {
            let (from, until) = load.times();
            let started = match (from, seconds) {
                (None, _) => true,
                (Some(from), Some(now)) => now >= from.0,
                (Some(_), None) => false,
            };
            let ended = until.is_some_and(|until| seconds.is_some_and(|now| now >= until.0));
            let due = started && !ended;
            if due && running.is_none() {
                *running = Some(match *load {
                    Load::Tcp { flows, .. } => Running::Tcp(TrafficLoad::start(
                        network.host("left1")?,
                        network.host("right1")?,
                        flows,
                    )?),
                    Load::Compute { processes, .. } => {
                        Running::Compute(ComputeLoad::start(processes as usize, Grouping::WithUs)?)
                    }
                });
            } else if !due {
                *running = None;
            }
        }
        Ok(self.running.iter().any(Option::is_some))
    }
}
