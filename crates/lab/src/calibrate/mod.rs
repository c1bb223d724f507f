//! How accurate the emulator is on this machine: round trips, rates, lateness, and how many
//! channels at which rate it can emulate.

mod show;
mod traffic;

use std::time::Duration;

use serde::Serialize;

pub use traffic::{Bulk, round_trips};

use crate::emulator::{Mode, Report, Threads};
use crate::network::{self, Error, Network, NetworkConfig, Paths};
use crate::path::{PathConfig, Queue, QueueLimit};

/// One-way delay of the paths that rates are measured on, ns.
const DELAY_NS: u64 = 10_000_000;
/// Round trips are right within this share and [`RTT_SLACK_US`] of what was asked for.
pub const RTT_ERROR_MAX: f64 = 0.01;
/// What the endpoints themselves may take, us.
pub const RTT_SLACK_US: f64 = 100.0;
/// Rates are right within this share of what was asked for.
pub const RATE_ERROR_MAX: f64 = 0.005;
/// Share of the possible goodput that a run on the frontier reaches.
const FULL: f64 = 0.97;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Probes for each round-trip time.
    pub probes: usize,
    /// Time for each rate after a ramp of the same length.
    pub time: Duration,
    /// Whether to measure the whole frontier, or only its corners.
    pub whole_frontier: bool,
    /// Times that a point of the frontier is tried until it holds, at least 1.
    pub tries: usize,
}

impl Effort {
    /// Two to five minutes.
    pub const FULL: Effort = Effort {
        probes: 100,
        time: Duration::from_secs(3),
        whole_frontier: true,
        tries: 3,
    };
    /// About half a minute.
    pub const QUICK: Effort = Effort {
        probes: 40,
        time: Duration::from_millis(1500),
        whole_frontier: false,
        tries: 2,
    };
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Calibration {
    /// Processors this process may use.
    pub processors: usize,
    /// Round trips on an otherwise idle path.
    pub rtts: Vec<RttCheck>,
    /// Rates of a saturated path.
    pub rates: Vec<RateCheck>,
    /// Rates and channels.
    pub frontier: Vec<FrontierPoint>,
}

/// One round-trip time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RttCheck {
    /// Asked for, us, serialisation included.
    pub asked_us: f64,
    /// Median of the probes, us.
    pub median_us: f64,
    /// 99th percentile, us.
    pub p99_us: f64,
    /// Whether the median is within [`RTT_ERROR_MAX`] and [`RTT_SLACK_US`].
    pub within_bounds: bool,
}

/// One rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateCheck {
    /// Asked for, bit/s.
    pub asked_bps: u64,
    /// Measured by receivers, converted to IP packets, bit/s.
    pub measured_bps: f64,
    /// Measured / asked - 1.
    pub error: f64,
    /// Whether the error is within [`RATE_ERROR_MAX`].
    pub within_bounds: bool,
    /// What the emulator says.
    pub emulator: Report,
}

/// One combination of rate and channels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrontierPoint {
    /// Rate, bit/s.
    pub rate_bps: u64,
    /// TCP connections.
    pub channels: usize,
    /// Threads of the emulator.
    pub threads: usize,
    /// Goodput, bit/s.
    pub goodput_bps: f64,
    /// Whether the emulator kept up and the path was full.
    pub holds: bool,
    /// How often it was tried. A virtual machine that loses its processors for milliseconds spoils
    /// a try now and then; what holds once is within reach, and every run says for itself whether
    /// it was faithful.
    pub tries: usize,
    /// What the emulator says.
    pub emulator: Report,
}

/// Measures. `progress` gets the name of the next step.
///
/// # Errors
/// [`Error`], above all [`Error::Unavailable`].
pub fn calibrate(effort: Effort, mut progress: impl FnMut(&str)) -> Result<Calibration, Error> {
    let mut calibration = Calibration {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        ..Calibration::default()
    };
    for rtt_ms in [1, 20, 100] {
        progress(&format!("round trips of {rtt_ms} ms"));
        calibration.rtts.push(check_rtt(rtt_ms, effort)?);
    }
    for mbps in [10, 100, 622, 1000] {
        progress(&format!("{mbps} Mbit/s"));
        let check = check_rate(mbps * 1_000_000, Mode::Offload, effort)?;
        calibration.rates.push(check);
    }
    let points: &[(u64, &[usize])] = if effort.whole_frontier {
        &[
            (1_000, &[1, 8, 32, 64, 128]),
            (2_500, &[8, 32, 64, 128, 256]),
            (5_000, &[8, 32, 64, 128]),
            (10_000, &[8, 32, 64, 128]),
        ]
    } else {
        &[(1_000, &[32, 128]), (2_500, &[128]), (10_000, &[64])]
    };
    for &(mbps, channels) in points {
        for &channels in channels {
            progress(&format!("{mbps} Mbit/s, {channels} channels"));
            let mut point = frontier_point(mbps * 1_000_000, channels, Threads::Auto, effort.time)?;
            while !point.holds && point.tries < effort.tries {
                let tries = point.tries + 1;
                point = frontier_point(mbps * 1_000_000, channels, Threads::Auto, effort.time)?;
                point.tries = tries;
            }
            calibration.frontier.push(point);
        }
    }
    Ok(calibration)
}

/// A pair of hosts with a queue of one bandwidth-delay product of the round trip, at least 500
/// packets, and buffers that do not limit.
fn network(rate_bps: u64, mode: Mode, threads: Threads, channels: usize) -> NetworkConfig {
    let bdp_packets = rate_bps / 8 * (2 * DELAY_NS) / 1_000_000_000 / 1500;
    let path = PathConfig {
        queue: Queue {
            limit: QueueLimit::Packets(bdp_packets.max(500)),
            ..Queue::default()
        },
        ..PathConfig::new(rate_bps, DELAY_NS)
    };
    let mut config =
        NetworkConfig::pair(Paths::same(path)).each_host(|host| host.tuned_buffers(64 << 20));
    // An ordinary user takes what the machine allows.
    if network::is_allowed("cubic") {
        config = config.each_host(|host| host.congestion_control("cubic"));
    }
    config.emulator.mode = mode;
    config.emulator.threads = threads;
    config.emulator.channels = u32::try_from(channels).unwrap_or(u32::MAX);
    config
}

/// Round trips at 1 Gbit/s.
///
/// # Errors
/// As [`calibrate`].
pub fn check_rtt(rtt_ms: u64, effort: Effort) -> Result<RttCheck, Error> {
    let path = PathConfig::new(1_000_000_000, rtt_ms * 500_000);
    let network = Network::start(&NetworkConfig::pair(Paths::same(path)))?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    let rtts = round_trips(left, right, effort.probes, Duration::from_millis(5))?;
    let us = |percent: usize| {
        let index = (rtts.len() * percent / 100).min(rtts.len().saturating_sub(1));
        rtts.get(index)
            .map_or(f64::INFINITY, |rtt| rtt.as_secs_f64() * 1e6)
    };
    #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
    // 36 bytes take 0.3 us each way.
    let asked_us = rtt_ms as f64 * 1000.0 + 0.6;
    let median_us = us(50);
    let bound = asked_us * RTT_ERROR_MAX + RTT_SLACK_US;
    Ok(RttCheck {
        asked_us,
        median_us,
        p99_us: us(99),
        within_bounds: (median_us - asked_us).abs() <= bound,
    })
}

/// The rate of a path that four channels saturate.
///
/// # Errors
/// As [`calibrate`].
pub fn check_rate(asked_bps: u64, mode: Mode, effort: Effort) -> Result<RateCheck, Error> {
    let (goodput, emulator) = measure(&network(asked_bps, mode, Threads::Auto, 4), 4, effort.time)?;
    let measured_bps = goodput / payload_share();
    #[allow(clippy::cast_precision_loss, reason = "rates")]
    let error = measured_bps / asked_bps as f64 - 1.0;
    Ok(RateCheck {
        asked_bps,
        measured_bps,
        error,
        within_bounds: error.abs() <= RATE_ERROR_MAX,
        emulator,
    })
}

/// Whether `channels` at `rate_bps` are still emulated faithfully.
///
/// # Errors
/// As [`calibrate`].
pub fn frontier_point(
    rate_bps: u64,
    channels: usize,
    threads: Threads,
    time: Duration,
) -> Result<FrontierPoint, Error> {
    let config = network(rate_bps, Mode::Offload, threads, channels);
    let (goodput_bps, emulator) = measure(&config, channels, time)?;
    #[allow(clippy::cast_precision_loss, reason = "rates")]
    let possible = rate_bps as f64 * payload_share();
    Ok(FrontierPoint {
        rate_bps,
        channels,
        threads: emulator.cpu_shares.len(),
        goodput_bps,
        holds: emulator.is_faithful() && goodput_bps >= FULL * possible,
        tries: 1,
        emulator,
    })
}

/// Goodput of bulk traffic from left to right, and what the emulator says of the measured time.
fn measure(
    config: &NetworkConfig,
    channels: usize,
    time: Duration,
) -> Result<(f64, Report), Error> {
    let network = Network::start(config)?;
    let bulk = Bulk {
        channels,
        buffer_bytes: None,
        ramp: time,
        time,
    };
    let (left, right) = (network.host("left")?, network.host("right")?);
    let mut began = Ok(());
    let goodput_bps = bulk.run(left, right, || began = network.lap().map(|_| ()))?;
    began?;
    Ok((goodput_bps, network.lap()?))
}

/// Bytes of payload in an IP packet of 1500: TCP over IPv4 with timestamps has 52 bytes of headers.
fn payload_share() -> f64 {
    1448.0 / 1500.0
}

impl Calibration {
    /// Whether round trips and rates are what was asked for.
    pub fn is_within_bounds(&self) -> bool {
        self.rtts.iter().all(|check| check.within_bounds)
            && self.rates.iter().all(|check| check.within_bounds)
    }
}
