//! How well a transfer was tuned.

use super::{
    Condition,
    arena::{STEP_S, Track},
};
use crate::{Bounds, Setting};

/// What counts as converged and recovered, of the best static goodput.
const CONVERGED: f64 = 0.9;
/// What a setting must reach to be sufficient, of the best static goodput.
const SUFFICIENT: f64 = 0.98;
/// Dips shorter than this do not count against convergence, s.
const SMOOTH_S: f64 = 1.0;

/// The best that settings held throughout can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Highest goodput under each load, bit/s.
    pub of_load: Vec<f64>,
    /// Fewest channels that reach 98 % of it under the last load.
    pub channels: u32,
    /// Bytes of the best single setting over the whole transfer, times 8.
    pub bits: f64,
}

/// A run in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Share of the best static setting's bytes that was lost; negative where the tuner did better.
    pub regret: f64,
    /// Time after which goodput stayed at 90 % of the best under the first load, s; infinite where
    /// it never did.
    pub convergence_s: f64,
    /// Longest time to come back to 90 % of the best after a change of load, s; 0 without a change.
    pub adaptation_s: f64,
    /// Goodput of the last third of the last load, over the best.
    pub steady: f64,
    /// Channels there over the fewest that are sufficient.
    pub channels: f64,
}

impl Score {
    /// Whether the transfer ended below 90 % of what was possible.
    pub fn failed(&self) -> bool {
        self.steady < CONVERGED
    }
}

/// Sweeps all static settings within `bounds`.
#[allow(
    clippy::missing_panics_doc,
    reason = "a load and a setting are always there"
)]
pub fn best(condition: &Condition, bounds: Bounds) -> Best {
    let max = bounds.channels_max.max(1);
    let settings: Vec<Setting> = std::iter::successors(Some(1_u32), |nc| Some(nc * 2))
        .take_while(|nc| *nc <= max)
        .flat_map(|nc| (1..=max / nc).map(move |np| Setting::new(nc, np)))
        .collect();
    let lasts = lengths(condition);
    let table: Vec<(u32, Vec<f64>)> = settings
        .iter()
        .map(|setting| {
            let of_load = condition
                .loads
                .iter()
                .map(|load| condition.steady(*setting, load, 0));
            (setting.channels(), of_load.map(|s| s.goodput_bps).collect())
        })
        .collect();
    let of_load: Vec<f64> = (0..condition.loads.len())
        .map(|at| table.iter().map(|(_, g)| g[at]).fold(0.0, f64::max))
        .collect();
    let last = of_load.len() - 1;
    let channels = table
        .iter()
        .filter(|(_, g)| g[last] >= SUFFICIENT * of_load[last])
        .map(|(n, _)| *n)
        .min()
        .expect("the best is sufficient");
    let bits = table
        .iter()
        .map(|(_, g)| g.iter().zip(&lasts).map(|(g, s)| g * s).sum())
        .fold(0.0, f64::max);
    Best {
        of_load,
        channels,
        bits,
    }
}

/// How long each load lasts, s.
fn lengths(condition: &Condition) -> Vec<f64> {
    let ends = condition.loads[1..]
        .iter()
        .map(|l| l.from_s)
        .chain([condition.seconds]);
    condition
        .loads
        .iter()
        .zip(ends)
        .map(|(load, end)| end - load.from_s)
        .collect()
}

/// Judges a transfer that began at 0 and had the path for itself.
pub fn score(track: &Track, condition: &Condition, best: &Best) -> Score {
    let starts: Vec<usize> = condition.loads.iter().map(|l| steps(l.from_s)).collect();
    let end = track.goodput_bps.len();
    let spans: Vec<(usize, usize)> = starts
        .iter()
        .zip(starts[1..].iter().chain([&end]))
        .map(|(from, to)| (*from, *to))
        .collect();
    let stays: Vec<f64> = spans
        .iter()
        .zip(&best.of_load)
        .map(|((from, to), best)| {
            stays_after(&smoothed(&track.goodput_bps[*from..*to]), CONVERGED * best)
        })
        .collect();
    let (from, to) = spans[spans.len() - 1];
    let tail = to - (to - from) / 3;
    let total: f64 = track.goodput_bps.iter().sum::<f64>() * STEP_S;
    Score {
        regret: 1.0 - total / best.bits,
        convergence_s: stays[0],
        adaptation_s: stays[1..].iter().copied().fold(0.0, f64::max),
        steady: mean(track.goodput_bps[tail..to].iter().copied())
            / best.of_load[best.of_load.len() - 1],
        channels: mean(track.channels[tail..to].iter().map(|n| f64::from(*n)))
            / f64::from(best.channels),
    }
}

/// Jain's index of what transfers got: 1 where all got the same, 1/n where one got all.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    if squares > 0.0 {
        sum * sum / (count(shares.len()) * squares)
    } else {
        1.0
    }
}

/// Time after which `goodput` stays at `enough`, s; infinite where it ends below.
fn stays_after(goodput: &[f64], enough: f64) -> f64 {
    match goodput.iter().rposition(|g| *g < enough) {
        None => 0.0,
        Some(last) if last + 1 == goodput.len() => f64::INFINITY,
        Some(last) => count(last + 1) * STEP_S,
    }
}

/// Each sample with those of the second around it.
fn smoothed(goodput: &[f64]) -> Vec<f64> {
    let reach = steps(SMOOTH_S / 2.0);
    (0..goodput.len())
        .map(|at| {
            let around = &goodput[at.saturating_sub(reach)..(at + reach).min(goodput.len())];
            mean(around.iter().copied())
        })
        .collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    values.sum::<f64>() / count(n.max(1))
}

#[allow(clippy::cast_precision_loss)] // numbers of samples are small
fn count(n: usize) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a run are few and positive"
)]
fn steps(seconds: f64) -> usize {
    (seconds / STEP_S).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Fixed,
        model::arena::{Entrant, run},
    };

    const BOUNDS: Bounds = Bounds::up_to(128);

    fn of_static(n: u32) -> Score {
        let path = Condition::path(1e9, 0.02, 86_000.0);
        let tuner = Box::new(Fixed::new(Setting::new(1, n), BOUNDS));
        let entrant = Entrant {
            tuner,
            epoch_s: 1.0,
            from_s: 0.0,
        };
        score(&run(entrant, &path, 1), &path, &best(&path, BOUNDS))
    }

    #[test]
    fn the_smallest_sufficient_setting_is_found() {
        let path = Condition::path(1e9, 0.02, 86_000.0);
        // 28.5 channels would make 98 %.
        assert_eq!(best(&path, BOUNDS).channels, 29);
    }

    #[test]
    fn a_static_setting_that_fits_has_nothing_to_regret() {
        let score = of_static(30);
        assert!(
            score.regret < 0.01 && score.convergence_s < 1.0 && score.steady > 0.99,
            "{score:?}"
        );
        assert!(!score.failed());
    }

    #[test]
    fn too_few_channels_fail() {
        let score = of_static(8);
        assert!(
            score.failed() && score.convergence_s.is_infinite(),
            "{score:?}"
        );
        assert!((score.regret - 0.72).abs() < 0.02, "{score:?}");
    }

    #[test]
    fn jain_of_known_shares() {
        assert_eq!(jain(&[1.0, 1.0, 1.0, 1.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
    }
}
