//! Transfers whose limit is known by construction, and the limit that godwit names.

use godwit_sim::{
    path::Rng,
    transfer::{Host, Hosts, LiveConfig, run_live_between},
};
use godwit_tune::{
    Bottleneck, Bounds, Method, Setting,
    bottleneck::{LimitBytes, classify},
};
use serde::Serialize;

use super::{
    drawn::{Drawn, PAYLOAD_BYTES, SEGMENT_BYTES, Traffic, WINDOW_BYTES, segments},
    format::LimitStudy,
    parallel::Workers,
};

/// Channels that the tuner may use.
const CHANNELS_MAX: u32 = 128;
/// Most channels where their number is fixed.
const FIXED_MAX: f64 = 16.0;
/// What the limit allows over what anything else allows, at most.
const MARGIN: f64 = 0.5;
/// A slower end, or cap, allows at least this part of what the path would.
const SLOWEST: f64 = 0.05;
/// How many times the limit the other parts of hosts allow.
const OTHERS: (f64, f64) = (2.0, 20.0);
const MOVERS_MAX: u64 = 4;
const PROCESSORS: (f64, f64) = (0.5, 4.0);
/// Window that a path alone is to limit, in bandwidth-delay products with its queue.
const WINDOWS_OF_PATH: (f64, f64) = (2.0, 6.0);
const LOSS: (f64, f64) = (1e-6, 0.02);
/// Goodput under loss stays below theory times this, also in the first seconds, whose windows are
/// those of slow start, and above theory over [`BELOW_THEORY`] (`loss/matrix`).
const ABOVE_THEORY: f64 = 6.0;
const BELOW_THEORY: f64 = 3.0;
const QUEUE_BDP: (f64, f64) = (0.05, 2.0);
const ATTEMPTS: u64 = 10_000;
/// Cases of each kind of a quick run.
const QUICK_OF_EACH: u32 = 5;

/// What limits a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The windows of its channels.
    Window,
    /// The rate of the path.
    Path,
    /// Random loss.
    Loss,
    /// The processors of an end.
    Processor,
    /// Storage that is read.
    Source,
    /// Storage that is written.
    Destination,
    /// The user's cap.
    Policy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Window,
        Self::Path,
        Self::Loss,
        Self::Processor,
        Self::Source,
        Self::Destination,
        Self::Policy,
    ];

    /// As tables show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Path => "path",
            Self::Loss => "loss",
            Self::Processor => "processor",
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Policy => "policy",
        }
    }

    /// Whether this is a right name of it.
    pub fn is_named(self, name: Option<Bottleneck>) -> bool {
        use Bottleneck as B;
        match self {
            Self::Window => matches!(name, Some(B::ReceiveWindow | B::SendBuffer)),
            Self::Path => name == Some(B::PathCapacity),
            Self::Loss => name == Some(B::NetworkLoss),
            Self::Processor => name == Some(B::Cpu),
            Self::Source => name == Some(B::SourceStorage),
            Self::Destination => name == Some(B::DestinationStorage),
            Self::Policy => name == Some(B::Policy),
        }
    }
}

/// A case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitCase {
    /// What limits it.
    pub kind: Kind,
    /// Of this kind and the study.
    pub seed: u64,
    pub(super) path: Drawn,
    #[serde(skip)]
    pub(super) hosts: Hosts,
    /// The client sends; otherwise it receives.
    pub sends: bool,
    /// A fixed number of channels; `None`: the tuner chooses.
    pub channels: Option<u32>,
    /// What the limit allows, bit/s.
    pub limit_bps: f64,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitRun {
    /// What was drawn.
    pub case: LimitCase,
    /// The name of most bytes.
    pub named: Option<&'static str>,
    /// Whether that is right.
    pub is_right: bool,
    /// Mean over the second half, bit/s.
    pub goodput_bps: f64,
    /// Mean number of channels there.
    pub mean_channels: f64,
}

/// All cases.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitsResult {
    /// By kind.
    pub runs: Vec<LimitRun>,
}

pub(super) fn run(study: &LimitStudy, quick: bool, workers: Workers<'_>) -> LimitsResult {
    let of_each = match quick {
        true => study.of_each.min(QUICK_OF_EACH),
        false => study.of_each,
    } as usize;
    let runs = workers.map(Kind::ALL.len() * of_each, |index| {
        let (kind, n) = (Kind::ALL[index / of_each], (index % of_each) as u64);
        on(study, LimitCase::of(study, kind, study.seed + n))
    });
    LimitsResult { runs }
}

fn on(study: &LimitStudy, case: LimitCase) -> LimitRun {
    let (mut simulation, channels, _) = case.path.simulation(study.seconds);
    let end = f64::from(study.seconds);
    let method = match case.channels {
        Some(n) => Method::Static(Setting::new(1, n)),
        None => Method::parse(&study.tuner).expect("checked when it was read"),
    };
    let mut tuner = method.build(None, Bounds::up_to(CHANNELS_MAX), case.seed);
    let config = LiveConfig {
        channels,
        epoch_s: study.epoch.0,
        until_s: end,
        seed: case.seed,
    };
    let course = run_live_between(&mut simulation, &config, Some(&case.hosts), &mut *tuner);
    let mut limits = LimitBytes::default();
    for seen in &course.epochs {
        limits.add(classify(seen), seen.bytes);
    }
    let named = limits.most();
    LimitRun {
        named: named.map(Bottleneck::as_str),
        is_right: case.kind.is_named(named),
        goodput_bps: course.goodput_bps(end / 2.0, end),
        mean_channels: course.channels(end / 2.0, end),
        case,
    }
}

/// Even by its logarithm.
fn between(rng: &mut Rng, (low, high): (f64, f64)) -> f64 {
    low * (high / low).powf(rng.unit())
}

/// What loss leaves a CUBIC channel at most, bit/s: theory (RFC 9438 §5.1 and Mathis, whichever is
/// more), and what measurements were above it.
fn of_loss(loss: f64, rtt_s: f64) -> f64 {
    match loss > 0.0 {
        true => {
            let window = (1.22 / loss.sqrt()).max(1.054 * (rtt_s / loss).powf(0.75));
            ABOVE_THEORY * window * PAYLOAD_BYTES * 8.0 / rtt_s
        }
        false => f64::INFINITY,
    }
}

impl LimitCase {
    /// The case of a seed: drawn again until its limit is the only one.
    pub(super) fn of(study: &LimitStudy, kind: Kind, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 1 + kind as u64);
        (0..ATTEMPTS)
            .find_map(|_| Self::draw(study, kind, seed, &mut rng))
            .expect("the ranges of a study hold cases of every kind")
    }

    fn draw(study: &LimitStudy, kind: Kind, seed: u64, rng: &mut Rng) -> Option<Self> {
        let rate_bps = between(rng, (study.rate[0].0, study.rate[1].0));
        let rtt_s = between(rng, (study.rtt[0].0, study.rtt[1].0));
        let queue_bdp = between(rng, QUEUE_BDP);
        let bdp_bytes = rate_bps * rtt_s / 8.0;
        let (is_lossy, loss) = (rng.unit() < 0.5, between(rng, LOSS));
        let window = (WINDOW_BYTES, (3.0 * bdp_bytes).max(2.0 * WINDOW_BYTES));
        let window_bytes = match kind {
            Kind::Path => {
                (between(rng, WINDOWS_OF_PATH) * (1.0 + queue_bdp) * bdp_bytes).max(WINDOW_BYTES)
            }
            _ => between(rng, window),
        };
        let loss = match kind {
            Kind::Window | Kind::Path => 0.0,
            Kind::Loss => loss,
            _ if is_lossy => loss,
            _ => 0.0,
        };
        let (traffic, cross) = match kind {
            Kind::Path if is_lossy => {
                let share = 0.1 + 0.4 * rng.unit();
                (Traffic::Constant(share), share)
            }
            _ => (Traffic::None, 0.0),
        };
        let of_path = rate_bps * (1.0 - cross) * PAYLOAD_BYTES / SEGMENT_BYTES;
        let of_window = window_bytes * 8.0 / rtt_s;
        let of_loss = of_loss(loss, rtt_s);
        let n = between(rng, (1.0, FIXED_MAX)).round();
        // With all channels that it may have, or with so many.
        let number = |one_bps: f64| match f64::from(CHANNELS_MAX) * one_bps <= MARGIN * of_path {
            true => (None, f64::from(CHANNELS_MAX) * one_bps),
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most FIXED_MAX"
            )]
            false => (Some(n as u32), n * one_bps),
        };
        let (channels, limit_bps) = match kind {
            Kind::Window => number(of_window),
            Kind::Loss => number(of_loss),
            Kind::Path => (None, of_path),
            // One channel could carry twice as much.
            _ => {
                let path_bps = of_path
                    .min(of_window)
                    .min(of_loss / ABOVE_THEORY / BELOW_THEORY);
                (None, path_bps * between(rng, (SLOWEST, MARGIN)))
            }
        };
        let is_alone = match kind {
            Kind::Window => limit_bps <= MARGIN * of_path,
            Kind::Loss => limit_bps <= MARGIN * of_path && of_loss <= MARGIN * of_window,
            Kind::Path => true,
            // Slower, and what sockets hold would be most of a transfer.
            _ => limit_bps >= study.rate[0].0,
        };
        if !is_alone {
            return None;
        }
        let packets = [study.packets_per_second, study.packets_per_second_max];
        let segments = segments(packets, rate_bps, rtt_s, window_bytes, loss)?;
        // Only a part of a host is compared with a part of a host.
        let of_hosts = match kind {
            Kind::Window | Kind::Path | Kind::Loss => of_path,
            _ => limit_bps,
        };
        let hosts = hosts(kind, of_hosts, rng);
        Some(Self {
            kind,
            seed,
            sends: hosts.sends,
            hosts,
            channels,
            limit_bps,
            path: Drawn {
                seed,
                rate_bps,
                rtt_s,
                queue_bdp,
                window_bytes,
                loss,
                traffic,
                segments,
                refused: 0,
            },
        })
    }
}

/// Ends of which at most one part is no faster than the limit.
fn hosts(kind: Kind, limit_bps: f64, rng: &mut Rng) -> Hosts {
    let sends = rng.unit() < 0.5 && kind != Kind::Destination;
    let at_source = sends || rng.unit() < 0.5;
    let mut end = |slow_processor: bool, slow_storage: bool| {
        let movers = 1 + rng.up_to(MOVERS_MAX - 1);
        let processors = between(rng, PROCESSORS);
        let processor_bps = limit_bps * between(rng, OTHERS);
        let storage_bps = limit_bps * between(rng, OTHERS);
        #[allow(clippy::cast_precision_loss, reason = "a few threads")]
        let used = processors.min(movers as f64);
        Host {
            movers: u32::try_from(movers).unwrap_or(1),
            processors,
            mover_bps: match slow_processor {
                true => limit_bps / used,
                // Of one mover, since one channel has no more.
                false => processor_bps / processors.min(1.0),
            },
            storage_bps: match slow_storage {
                true => limit_bps,
                false => storage_bps,
            },
        }
    };
    let is_processor = kind == Kind::Processor;
    let source = end(is_processor && at_source, kind == Kind::Source);
    let destination = end(is_processor && !at_source, kind == Kind::Destination);
    let (has_cap, cap_bps) = (rng.unit() < 0.5, limit_bps * between(rng, OTHERS));
    Hosts {
        sends,
        source,
        destination,
        cap_bps: match kind {
            Kind::Policy => Some(limit_bps),
            _ => has_cap.then_some(cap_bps),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::load;

    /// Few packets, and few turns of movers: tests are not optimised.
    fn study(of_each: u32) -> LimitStudy {
        let mut study = load("sim/limits").unwrap().scenario.limits.unwrap();
        study.of_each = of_each;
        study.seconds = 4;
        study.rtt[0].0 = 0.01;
        study.packets_per_second = 500;
        study.packets_per_second_max = 2000;
        study
    }

    #[test]
    fn every_kind_of_limit_is_named_on_any_number_of_threads() {
        let result = run(&study(3), false, Workers::silent(2));
        for kind in Kind::ALL {
            let of = || result.runs.iter().filter(|run| run.case.kind == kind);
            let right = of().filter(|run| run.is_right).count();
            let names: Vec<_> = of().map(|run| run.named).collect();
            assert!(right >= 2, "{kind:?}: {names:?}");
        }
        let first = (result.runs.into_iter()).filter(|run| run.case.seed == 1);
        assert_eq!(
            first.collect::<Vec<_>>(),
            run(&study(1), false, Workers::silent(1)).runs
        );
    }

    #[test]
    fn a_limit_allows_half_of_anything_else() {
        let study = study(1);
        for (kind, seed) in Kind::ALL
            .into_iter()
            .flat_map(|k| (1..=50).map(move |s| (k, s)))
        {
            let case = LimitCase::of(&study, kind, seed);
            let (path, hosts) = (&case.path, &case.hosts);
            let most = match kind {
                Kind::Loss => CHANNELS_MAX,
                _ => 1,
            };
            let channels = f64::from(case.channels.unwrap_or(most));
            let of_window = path.window_bytes * 8.0 / path.rtt_s;
            let threads = |host: &Host| host.processors.min(f64::from(host.movers));
            let ends = [hosts.source, hosts.destination];
            let of_processors = ends.map(|host| threads(&host) * host.mover_bps);
            let least = |all: [f64; 2]| all[0].min(all[1]);
            let others = [
                (Kind::Path, path.rate_bps),
                (Kind::Window, channels * of_window),
                (Kind::Processor, least(of_processors)),
                (Kind::Source, hosts.source.storage_bps),
                (Kind::Destination, hosts.destination.storage_bps),
                (Kind::Policy, hosts.cap_bps.unwrap_or(f64::INFINITY)),
            ];
            for (other, bps) in others.into_iter().filter(|(other, _)| *other != kind) {
                assert!(bps >= 1.99 * case.limit_bps, "{other:?}: {bps} of {case:?}");
            }
        }
    }
}
