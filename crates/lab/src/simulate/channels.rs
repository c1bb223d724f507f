//! Static numbers of channels, and a tuner in chunks, over variants of a topology.

use godwit_sim::{
    Simulation,
    network::Topology,
    transfer::{ChannelConfig, ChunkConfig, Course, LiveConfig, Sharing, run_chunks, run_live},
};
use godwit_tune::{Bounds, Method, Setting};
use serde::Serialize;

use super::{
    format::{Assumption, ChunkStudy, SimScenario, StaticStudy, build},
    parallel::Workers,
};
use crate::stats;

/// What no tuner may pass: the default of `godwit cp`.
const BOUNDS: Bounds = Bounds::up_to(128);
/// Length of the bins of courses, s.
pub(super) const BIN_S: f64 = 0.5;

/// What a variant takes for what the paper does not say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// One-way delay of each access link, s.
    pub access_delay_s: f64,
    /// Gentle RED.
    pub gentle: bool,
    /// Shortest timeout, s.
    pub min_rto_s: f64,
    /// Granularity of round trips, s.
    pub tick_s: f64,
    /// What else differs; empty where nothing does.
    pub also: String,
}

/// One number of channels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StaticPoint {
    /// Channels.
    pub channels: u32,
    /// Mean over the runs, bit/s.
    pub goodput_bps: f64,
    /// Smallest and largest of the runs, bit/s.
    pub range_bps: (f64, f64),
    /// Packets sent again over packets sent.
    pub loss_ratio: f64,
}

/// A tuner in time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChunkRun {
    /// How connections and bytes were handled.
    pub label: &'static str,
    /// Channels at the end, of each run.
    pub channels: Vec<u32>,
    /// When the last decision that changed something was, s; of each run.
    pub settled_s: Vec<f64>,
    /// Goodput of the last quarter, bit/s; mean over the runs.
    pub goodput_bps: f64,
    /// Goodput in bins of half a second, bit/s; of the first run.
    pub bins_bps: Vec<f64>,
    /// When the first run decided on how many channels.
    pub decisions: Vec<(f64, u32)>,
}

/// All of a variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantResult {
    /// Which.
    pub variant: Variant,
    /// By number of channels.
    pub points: Vec<StaticPoint>,
    /// Chunks, if the scenario has some.
    pub chunks: Vec<ChunkRun>,
}

/// All variants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelsResult {
    /// In the order of the scenario.
    pub variants: Vec<VariantResult>,
}

impl VariantResult {
    /// The best number of channels.
    pub(super) fn best(&self) -> Option<StaticPoint> {
        let all = self.points.iter().copied();
        all.max_by(|a, b| a.goodput_bps.total_cmp(&b.goodput_bps))
    }
}

pub(super) fn run(scenario: &SimScenario, quick: bool, workers: Workers<'_>) -> ChannelsResult {
    let all = assumptions(scenario, quick);
    let variants = workers.map(all.len(), |index| {
        let assumed = &all[index];
        let (topology, channel) = build(scenario, assumed).expect("checked when it was read");
        let study = scenario
            .channels
            .as_ref()
            .expect("checked when it was read");
        let points = study
            .numbers
            .iter()
            .filter(|n| !quick || [1, 4, 13, 32].contains(*n));
        VariantResult {
            variant: variant(assumed, &channel),
            points: points
                .map(|n| point(study, &topology, &channel, *n, quick))
                .collect(),
            chunks: (scenario.chunks.as_ref())
                .map(|chunks| in_chunks(chunks, &topology, &channel, quick))
                .unwrap_or_default(),
        }
    });
    ChannelsResult { variants }
}

/// Everything that varies, with everything; then what is changed alone.
fn assumptions(scenario: &SimScenario, quick: bool) -> Vec<Assumption> {
    let vary = &scenario.vary;
    let delays: Vec<f64> = ends(&vary.access_delay, quick, |time| time.0, 0.0);
    let gentle = ends(&vary.gentle, quick, |gentle| *gentle, false);
    let timers = ends(&vary.timers, quick, |timers| Some(*timers), None);
    let mut all = Vec::new();
    for access_delay_s in &delays {
        for gentle in &gentle {
            for timers in &timers {
                all.push(Assumption {
                    access_delay_s: *access_delay_s,
                    gentle: *gentle,
                    timers: *timers,
                    ..Assumption::default()
                });
            }
        }
    }
    for access_delay_s in &delays {
        for also in &scenario.also {
            all.push(Assumption {
                access_delay_s: *access_delay_s,
                access_rate_bps: also.access_rate.map(|rate| rate.0),
                timers: timers.first().copied().flatten(),
                gentle: gentle.first().copied().unwrap_or_default(),
                also: Some(*also),
            });
        }
    }
    all
}

/// The values, or with `quick` the first and the last; `none` where there are none.
fn ends<T, U>(values: &[T], quick: bool, of: impl Fn(&T) -> U, none: U) -> Vec<U> {
    if values.is_empty() {
        return vec![none];
    }
    let last = values.len() - 1;
    let kept = values
        .iter()
        .enumerate()
        .filter(|(at, _)| !quick || [0, last].contains(at));
    kept.map(|(_, value)| of(value)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "times in ns")]
fn variant(assumed: &Assumption, channel: &ChannelConfig) -> Variant {
    let also = assumed.also.map_or(String::new(), |also| {
        let parts = [
            also.header.map(|size| format!("headers of {size}")),
            also.initial_window.map(|n| format!("initial window {n}")),
            also.limited_transmit
                .map(|on| format!("{} limited transmit", if on { "with" } else { "no" })),
            also.access_rate
                .map(|rate| format!("access links of {rate}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    Variant {
        access_delay_s: assumed.access_delay_s,
        gentle: assumed.gentle,
        min_rto_s: channel.sender.min_rto_ns as f64 / 1e9,
        tick_s: channel.sender.tick_ns as f64 / 1e9,
        also,
    }
}

fn point(
    study: &StaticStudy,
    topology: &Topology,
    channel: &ChannelConfig,
    n: u32,
    quick: bool,
) -> StaticPoint {
    let (mut goodputs, mut sent, mut again) = (Vec::new(), 0, 0);
    for seed in 1..=u64::from(if quick { 1 } else { study.seeds }) {
        let config = LiveConfig {
            channels: channel.clone(),
            epoch_s: study.until.0,
            until_s: study.until.0,
            seed,
        };
        let mut tuner = Method::Static(Setting::new(1, n)).build(None, Bounds::up_to(n), seed);
        let course = run_live(&mut simulation(topology, seed), &config, &mut *tuner);
        goodputs.push(course.goodput_bps(study.settle.0, study.until.0));
        sent += course.sent;
        again += course.retransmitted;
    }
    StaticPoint {
        channels: n,
        goodput_bps: stats::mean(&goodputs).unwrap_or(0.0),
        range_bps: (
            goodputs.iter().copied().fold(f64::INFINITY, f64::min),
            goodputs.iter().copied().fold(0.0, f64::max),
        ),
        loss_ratio: ratio(again, sent),
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of packets")]
pub(super) fn ratio(part: u64, of: u64) -> f64 {
    if of > 0 { part as f64 / of as f64 } else { 0.0 }
}

fn simulation(topology: &Topology, seed: u64) -> Simulation {
    Simulation::new(topology.clone(), seed).expect("checked when it was read")
}

/// What becomes of connections between chunks, and how they share one.
const WAYS: [(&str, Option<(bool, bool)>); 5] = [
    ("restart, equal parts", Some((false, true))),
    ("restart, one queue", Some((false, false))),
    ("stay, equal parts", Some((true, true))),
    ("stay, one queue", Some((true, false))),
    ("live, as godwit", None),
];

fn in_chunks(
    study: &ChunkStudy,
    topology: &Topology,
    channel: &ChannelConfig,
    quick: bool,
) -> Vec<ChunkRun> {
    let runs = WAYS.iter().map(|(label, way)| {
        let seeds = 1..=u64::from(if quick { 1 } else { study.seeds });
        let courses: Vec<Course> = seeds
            .map(|seed| course(study, topology, channel, *way, seed))
            .collect();
        let until = study.until.0;
        let last: Vec<f64> = (courses.iter())
            .map(|course| course.goodput_bps(0.75 * until, until))
            .collect();
        ChunkRun {
            label,
            channels: courses.iter().map(|course| settled(course).1).collect(),
            settled_s: courses.iter().map(|course| settled(course).0).collect(),
            goodput_bps: stats::mean(&last).unwrap_or(0.0),
            bins_bps: courses.first().map(|c| bins(c, until)).unwrap_or_default(),
            decisions: (courses.iter().take(1))
                .flat_map(|course| &course.decisions)
                .map(|(at, decision)| (*at, decision.setting.channels()))
                .collect(),
        }
    });
    runs.collect()
}

fn course(
    study: &ChunkStudy,
    topology: &Topology,
    channel: &ChannelConfig,
    way: Option<(bool, bool)>,
    seed: u64,
) -> Course {
    let method = Method::parse(&study.tuner).expect("checked when it was read");
    let mut tuner = method.build(None, BOUNDS, seed);
    let mut simulation = simulation(topology, seed);
    match way {
        Some((reuses, even)) => {
            let config = ChunkConfig {
                channels: channel.clone(),
                sharing: if even {
                    Sharing::Even
                } else {
                    Sharing::Queue(study.block)
                },
                reuses,
                delta_s: study.delta.0,
                until_s: study.until.0,
                seed,
            };
            run_chunks(&mut simulation, &config, &mut *tuner)
        }
        None => {
            let config = LiveConfig {
                channels: channel.clone(),
                epoch_s: study.delta.0,
                until_s: study.until.0,
                seed,
            };
            run_live(&mut simulation, &config, &mut *tuner)
        }
    }
}

/// When the setting changed last, and to how many channels.
fn settled(course: &Course) -> (f64, u32) {
    let mut last = (0.0, 0);
    for (at, decision) in &course.decisions {
        let channels = decision.setting.channels();
        if channels != last.1 {
            last = (*at, channels);
        }
    }
    last
}

fn bins(course: &Course, until: f64) -> Vec<f64> {
    let starts = std::iter::successors(Some(0.0), |at| Some(at + BIN_S));
    starts
        .take_while(|at| at + BIN_S <= until)
        .map(|at| course.goodput_bps(at, at + BIN_S))
        .collect()
}
