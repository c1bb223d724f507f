//! What the results store of one run.

use serde::{Deserialize, Serialize};

use super::evolution::Evolution;
use super::simulated::Simulated;
use crate::emulator::Report;
use crate::load::Sharing;
use crate::path::Counters;
use crate::scenario::Cell;

/// One run of one method in one cell: a line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number in the order they ran, from 1.
    pub number: u32,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Which attempt, from 1: a run on a path that was not the one asked for is tried again.
    pub attempt: u32,
    /// Seed of the path.
    pub seed: u64,
    /// Name of the method.
    pub method: String,
    /// Where in the sweep.
    pub cell: Cell,
    /// What it gave; `None` when it failed.
    pub result: Option<RunOutcome>,
    /// Why it failed.
    pub error: Option<String>,
}

impl RunOutcome {
    /// Processors that anything but the two programs and the emulator took, the hypervisor
    /// included: 1 is one whole.
    pub fn other_cpus(&self) -> f64 {
        (self.other_cpu_seconds + self.stolen_cpu_seconds) / self.seconds
    }
}

impl Run {
    /// Whether the emulator kept its promise while this was measured.
    pub fn is_faithful(&self) -> bool {
        (self.result.as_ref()).is_none_or(|result| result.fidelity.unfaithful.is_empty())
    }

    /// Goodput, bit/s, of a run that did not fail.
    pub fn goodput_bps(&self) -> Option<f64> {
        self.result.as_ref().map(|result| result.goodput_bps)
    }
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Payload the receivers' kernels received in order, or of files what arrived, over `seconds`;
    /// all transfers together.
    pub goodput_bps: f64,
    /// The payload, bytes.
    pub bytes: u64,
    /// Length of what was measured, s.
    pub seconds: f64,
    /// Files that arrived whole; 0 where it was no set of files.
    #[serde(default)]
    pub files: u32,
    /// Whether the run was stopped before all had arrived.
    #[serde(default)]
    pub stopped: bool,
    /// From the start of the client to its first data, s: process start, login, connections.
    pub first_data_seconds: f64,
    /// Connections that data came over, from the start of the run.
    pub channels_seen: usize,
    /// Connections that data came over at once, mean over what was measured.
    #[serde(default)]
    pub channels_mean: f64,
    /// Goodput of each transfer, bit/s.
    #[serde(default)]
    pub transfers_bps: Vec<f64>,
    /// Goodput of other TCP connections beside them, bit/s; `None` without any.
    #[serde(default)]
    pub beside_bps: Option<f64>,
    /// What the sending kernel saw meanwhile.
    pub sender: Sender,
    /// Processor time of the client meanwhile, s; the kernel's work in interrupts not included.
    pub client_cpu_seconds: f64,
    /// And of the server, its data nodes included.
    pub server_cpu_seconds: f64,
    /// And of front ends without their data nodes; 0 where there are none.
    #[serde(default)]
    pub front_end_cpu_seconds: f64,
    /// What came over the link of each data node meanwhile, headers included, bit/s.
    #[serde(default)]
    pub nodes_bps: Vec<f64>,
    /// Processor time that the hypervisor kept from this machine meanwhile, s.
    pub stolen_cpu_seconds: f64,
    /// Processor time that anything else took meanwhile, s: neither the two programs nor the
    /// emulator, but the scenario's load, and whatever else runs on the machine.
    pub other_cpu_seconds: f64,
    /// How busy processes of the scenario shared processors with the two programs.
    #[serde(default)]
    pub sharing: Option<Sharing>,
    /// Whether the emulated path was the one asked for.
    pub fidelity: Fidelity,
    /// All of it against time, where a method is seen evolving.
    #[serde(default)]
    pub evolution: Option<Evolution>,
    /// The same run in the packet simulator, where the scenario asks for it.
    #[serde(default)]
    pub simulated: Option<Simulated>,
}

/// What the kernel of the sending host saw of the data connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sender {
    /// Payload sent, retransmissions included, bytes.
    pub bytes_sent: u64,
    /// Payload sent again, bytes.
    pub bytes_retransmitted: u64,
    /// Payload in flight per connection, bytes: median over samples 100 ms apart.
    pub in_flight_bytes: f64,
    /// Smoothed round-trip time, ms: mean over connections, median over samples.
    pub rtt_ms: f64,
    /// Smallest round-trip time of any connection, ms.
    pub rtt_min_ms: f64,
    /// Share of busy time in which the receiver's window had no room, `0..=1`.
    pub receive_window_limited: f64,
    /// Share of busy time in which the send buffer had no more, `0..=1`.
    pub send_buffer_limited: f64,
}

impl Sender {
    /// Retransmitted over sent bytes, `0..=1`.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn retransmitted(&self) -> f64 {
        self.bytes_retransmitted as f64 / self.bytes_sent.max(1) as f64
    }
}

/// The emulator's report in what matters to a reader of results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// How late packets were delivered on average, us.
    pub lateness_mean_us: f64,
    /// Median, us.
    pub lateness_p50_us: f64,
    /// 99th percentile, us.
    pub lateness_p99_us: f64,
    /// Maximum, us.
    pub lateness_max_us: f64,
    /// Processors that the emulator took: the sum over its threads, 1 is one whole.
    pub emulator_cpus: f64,
    /// Whether its threads ran at real-time priority.
    pub realtime: bool,
    /// Packets on the way of the data that a full queue dropped.
    pub dropped_queue_full: u64,
    /// That RED dropped.
    pub dropped_red: u64,
    /// That were lost on the wire.
    pub dropped_loss: u64,
    /// Packets of the transfer and of other connections on the way of the data.
    pub packets: u64,
    /// Longest queue since the start of the run, packets.
    pub queue_peak_packets: u64,
    /// Why the run is not to be trusted; empty when it is.
    pub unfaithful: Vec<String>,
}

impl Fidelity {
    /// Of a report; `links` are the ways of the data.
    pub fn of(report: &Report, links: &[String]) -> Fidelity {
        let counters = links.iter().filter_map(|link| report.link(link));
        let sum = |of: fn(&Counters) -> u64| counters.clone().map(of).sum();
        let longest = counters.clone().map(|link| link.queue_peak_packets).max();
        Fidelity {
            lateness_mean_us: report.lateness.mean_us,
            lateness_p50_us: report.lateness.p50_us,
            lateness_p99_us: report.lateness.p99_us,
            lateness_max_us: report.lateness.max_us,
            emulator_cpus: report.cpu_shares.iter().sum(),
            realtime: report.realtime,
            dropped_queue_full: sum(|link| link.dropped_queue_full),
            dropped_red: sum(|link| link.dropped_red),
            dropped_loss: sum(|link| link.dropped_loss),
            packets: sum(|link| link.packets),
            queue_peak_packets: longest.unwrap_or_default(),
            unfaithful: report.unfaithful.clone(),
        }
    }
}
