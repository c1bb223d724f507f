//! Every tuner over many drawn paths.

use godwit_sim::transfer::{Course, LiveConfig, run_live};
use godwit_tune::{Bounds, Method, Setting};
use serde::Serialize;

use super::{
    channels::ratio,
    drawn::{Drawn, Traffic},
    format::TunerStudy,
    parallel::Workers,
};

const BOUNDS: Bounds = Bounds::up_to(128);
/// Paths of a quick run.
const QUICK_PATHS: u32 = 40;
/// A number of channels suffices from this share of the best goodput on.
const SUFFICIENT: f64 = 0.98;
/// Goodput has converged from this share of the best on.
const CONVERGED: f64 = 0.9;
/// Length of the bins in which it must stay there, s.
const BIN_S: f64 = 1.0;

/// One tuner on one path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunerRun {
    /// Goodput of the last third over that of the best static number.
    pub steady: f64,
    /// Time from which on goodput stayed at 90 % of the best, s; until the path changed, if it did.
    /// `None`: it did not.
    pub convergence_s: Option<f64>,
    /// The same after the change, s from there; `None` too where nothing changed.
    pub adaptation_s: Option<f64>,
    /// Share of the bytes of the best static number that it did not move.
    pub regret: f64,
    /// Channels in the last third.
    pub channels: f64,
    /// The same over the fewest that suffice.
    pub channels_ratio: f64,
    /// Packets sent again over packets sent.
    pub loss: f64,
    /// What flows of others moved, over what they moved beside one channel; `None` without any.
    pub left_to_others: Option<f64>,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PathResult {
    pub(super) path: Drawn,
    /// Of the best static number, bit/s.
    pub(super) best_bps: f64,
    /// Fewest channels that suffice.
    pub(super) sufficient: u32,
    /// Packets sent again over packets sent, with the fewest that suffice.
    pub(super) best_loss: f64,
    /// By method.
    pub(super) runs: Vec<TunerRun>,
}

/// All paths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunersResult {
    /// Names of the methods.
    pub(super) methods: Vec<String>,
    pub(super) paths: Vec<PathResult>,
}

pub(super) fn run(study: &TunerStudy, quick: bool, workers: Workers<'_>) -> TunersResult {
    let paths = if quick {
        study.paths.min(QUICK_PATHS)
    } else {
        study.paths
    };
    TunersResult {
        methods: study.methods.clone(),
        paths: workers.map(paths as usize, |index| {
            on(study, Drawn::of(study, index as u64 + 1))
        }),
    }
}

/// A transfer, and what others moved meanwhile, bytes.
struct Told {
    course: Course,
    others_bytes: u64,
}

fn transfer(study: &TunerStudy, path: &Drawn, method: &Method) -> Told {
    let (mut simulation, channels, others) = path.simulation(study.seconds);
    let mut tuner = method.build(None, BOUNDS, path.seed);
    let config = LiveConfig {
        channels,
        epoch_s: study.epoch.0,
        until_s: f64::from(study.seconds),
        seed: path.seed,
    };
    let course = run_live(&mut simulation, &config, &mut *tuner);
    let moved = others
        .iter()
        .map(|flow| simulation.stats(*flow).delivered_bytes);
    Told {
        course,
        others_bytes: moved.sum(),
    }
}

fn on(study: &TunerStudy, path: Drawn) -> PathResult {
    let end = f64::from(study.seconds);
    let (half, tail) = (end / 2.0, end * 2.0 / 3.0);
    let fixed: Vec<(u32, Told)> = (study.numbers.iter())
        .map(|n| {
            (
                *n,
                transfer(study, &path, &Method::Static(Setting::new(1, *n))),
            )
        })
        .collect();
    let best = |from: f64, to: f64| {
        let all = fixed
            .iter()
            .map(|(_, told)| told.course.goodput_bps(from, to));
        all.fold(0.0, f64::max)
    };
    let (best_bps, best_mean) = (best(tail, end), best(0.0, end));
    let first_bps = best(end / 4.0, half);
    let (sufficient, enough) = (fixed.iter())
        .find(|(_, told)| told.course.goodput_bps(tail, end) >= SUFFICIENT * best_bps)
        .unwrap_or(&fixed[0]);
    let beside_one = fixed[0].1.others_bytes;
    let runs = study.methods.iter().map(|method| {
        let method = Method::parse(method).expect("checked when it was read");
        let told = transfer(study, &path, &method);
        let course = &told.course;
        let channels = course.channels(tail, end);
        let changes = path.traffic.changes();
        TunerRun {
            steady: of(course.goodput_bps(tail, end), best_bps),
            convergence_s: if changes {
                stays(course, 0.0, half, CONVERGED * first_bps)
            } else {
                stays(course, 0.0, end, CONVERGED * best_bps)
            },
            adaptation_s: (changes)
                .then(|| stays(course, half, end, CONVERGED * best_bps))
                .flatten(),
            regret: 1.0 - of(course.goodput_bps(0.0, end), best_mean),
            channels,
            channels_ratio: channels / f64::from(*sufficient),
            loss: ratio(course.retransmitted, course.sent),
            left_to_others: matches!(path.traffic, Traffic::Flows(_))
                .then(|| ratio(told.others_bytes, beside_one)),
        }
    });
    PathResult {
        runs: runs.collect(),
        best_bps,
        sufficient: *sufficient,
        best_loss: ratio(enough.course.retransmitted, enough.course.sent),
        path,
    }
}

fn of(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

/// Seconds after `from` from which on every bin reached `enough` until `to`.
fn stays(course: &Course, from: f64, to: f64, enough: f64) -> Option<f64> {
    let mut begins = None;
    let mut at = from;
    while at + BIN_S <= to + 1e-9 {
        let reached = course.goodput_bps(at, at + BIN_S) >= enough;
        begins = reached.then(|| begins.unwrap_or(at - from));
        at += BIN_S;
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::load;
    use godwit_sim::transfer::Look;

    #[test]
    fn convergence_begins_behind_the_last_slow_second() {
        let looks = (0..=200_u64).map(|n| Look {
            at_s: n as f64 * 0.05,
            bytes: 1000 * n - if n > 60 { 10_000 } else { 0 },
            channels: 1,
            sent: 0,
            retransmitted: 0,
        });
        let course = Course {
            looks: looks.collect(),
            ..Course::default()
        };
        let full = 160_000.0;
        assert_eq!(stays(&course, 0.0, 10.0, 0.9 * full), Some(4.0));
        assert_eq!(stays(&course, 5.0, 10.0, 0.9 * full), Some(0.0));
        assert_eq!(stays(&course, 0.0, 10.0, 1.1 * full), None);
    }

    #[test]
    fn equal_seeds_give_equal_results_on_any_number_of_threads() {
        let mut study = load("sim/tuners").unwrap().scenario.tuners.unwrap();
        study.paths = 3;
        study.seconds = 3;
        study.numbers = vec![1, 4];
        study.methods = vec!["godwit".into(), "apt".into()];
        // Few packets: tests are not optimised.
        study.packets_per_second = 500;
        study.packets_per_second_max = 2000;
        let one = run(&study, false, Workers::silent(1));
        assert_eq!(one, run(&study, false, Workers::silent(2)));
        assert_eq!(one.paths.len(), 3);
        assert!(one.paths.iter().all(|path| path.best_bps > 0.0));
    }
}
