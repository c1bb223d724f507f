//! Measures of a tuner, computed from goodput against time: convergence, regret, adaptation,
//! fairness.
//!
//! Nothing here measures or draws. Times are seconds from the first data of a transfer, goodput is
//! in bit/s. A tuner is compared with the best static setting of the same scenario in each
//! [`Phase`], a span between changes of path or load.
//!
//! | Figure | Meaning |
//! |---|---|
//! | [`Judgement::steady_ratio`] | goodput in the last third over the best static one |
//! | [`Judgement::settled`] | how long until goodput stays at [`NEAR`] of the best static one: convergence in the first phase, adaptation in later ones |
//! | [`Judgement::regret`] | payload missing over the whole time, as a share of what the best static setting would have moved |
//! | [`jain`] | fairness between transfers |

/// Share of the best static goodput from which on a tuner counts as there.
pub const NEAR: f64 = 0.9;

/// Goodput counts as a mean over this long, s: a single bin may dip without meaning anything.
/// Chosen arbitrarily; longer hides probes that cost goodput, shorter takes the noise of loss for
/// them.
pub const WINDOW_SECONDS: f64 = 2.0;

/// Part of a run that counts as steady, from its end.
pub const STEADY_PART: f64 = 1.0 / 3.0;

/// Goodput against time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoodputSeries<'a> {
    /// Length of a bin, s; above 0.
    pub bin_seconds: f64,
    /// Goodput of each, bit/s.
    pub goodput_bps: &'a [f64],
}

/// A span in which neither path nor load changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Where it begins, s.
    pub from: f64,
    /// Where it ends, s.
    pub until: f64,
    /// What the best static setting gets in it, bit/s; above 0.
    pub best_bps: f64,
}

/// What became of one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Goodput in the steady part over the best static one of the last phase.
    pub steady_ratio: f64,
    /// For each phase, how long until goodput stays near the best static one until the phase ends,
    /// s; `None` when it never does.
    pub settled: Vec<Option<f64>>,
    /// Payload lost against the best static settings, as a share of theirs; below 0 when there
    /// was more.
    pub regret: f64,
}

impl GoodputSeries<'_> {
    /// How long it is, s.
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    pub fn seconds(&self) -> f64 {
        self.goodput_bps.len() as f64 * self.bin_seconds
    }

    /// Mean over the bins that begin in `from..until`, s; `None` without any.
    pub fn mean(&self, from: f64, until: f64) -> Option<f64> {
        crate::stats::mean(self.between(from, until))
    }

    /// Mean over the steady part.
    pub fn steady(&self) -> Option<f64> {
        self.mean(self.seconds() * (1.0 - STEADY_PART), f64::INFINITY)
    }

    /// How long after `from` goodput first stays at `level` until `until`, s: the start of the
    /// first window from which on the mean of every window is at least that.
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    pub fn stays_at(&self, level: f64, from: f64, until: f64) -> Option<f64> {
        let bins = self.between(from, until);
        let window = self.bins(WINDOW_SECONDS).clamp(1, bins.len().max(1));
        let after_last_low = (bins.windows(window))
            .rposition(|part| part.iter().sum::<f64>() < level * window as f64)
            .map_or(0, |low| low + 1);
        let windows = bins.len().checked_sub(window)? + 1;
        (after_last_low < windows).then_some(after_last_low as f64 * self.bin_seconds)
    }

    fn between(&self, from: f64, until: f64) -> &[f64] {
        let count = self.goodput_bps.len();
        let (from, until) = (self.bins(from).min(count), self.bins(until).min(count));
        &self.goodput_bps[from.min(until)..until]
    }

    /// Bins up to a time, rounded; beyond the end for infinity.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    fn bins(&self, seconds: f64) -> usize {
        (seconds / self.bin_seconds).round() as usize
    }
}

/// Holds a transfer against the best static settings; `None` without phases or data.
pub fn judge(series: GoodputSeries<'_>, phases: &[Phase]) -> Option<Judgement> {
    let last = phases.last()?;
    // Of the same bins, so that a transfer which is cut off in the middle of one loses nothing.
    let (mut moved, mut possible) = (0.0, 0.0);
    for phase in phases {
        for goodput in series.between(phase.from, phase.until) {
            moved += goodput;
            possible += phase.best_bps;
        }
    }
    Some(Judgement {
        steady_ratio: series.steady()? / last.best_bps,
        settled: (phases.iter())
            .map(|phase| series.stays_at(NEAR * phase.best_bps, phase.from, phase.until))
            .collect(),
        regret: 1.0 - moved / possible,
    })
}

/// Jain's index of fairness, (sum x)^2 / (n sum x^2): 1 when all have the same, 1/n when one has
/// all. `None` when all have nothing. (Jain, Chiu, Hawe, "A Quantitative Measure of Fairness",
/// 1984.)
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The smallest number of channels with at least `share` of the highest goodput; `None` without
/// points.
pub fn smallest_within(points: &[(u32, f64)], share: f64) -> Option<u32> {
    let highest = points.iter().map(|point| point.1).reduce(f64::max)?;
    (points.iter())
        .filter(|(_, goodput)| *goodput >= share * highest)
        .map(|(channels, _)| *channels)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(goodput_bps: &[f64]) -> GoodputSeries<'_> {
        GoodputSeries {
            bin_seconds: 0.5,
            goodput_bps,
        }
    }

    fn phase(from: f64, until: f64, best_bps: f64) -> Phase {
        Phase {
            from,
            until,
            best_bps,
        }
    }

    /// Bins of half a second: so many of each value.
    fn steps(parts: &[(usize, f64)]) -> Vec<f64> {
        (parts.iter())
            .flat_map(|&(count, value)| std::iter::repeat_n(value, count))
            .collect()
    }

    #[test]
    fn convergence_is_when_goodput_is_near_for_good() {
        // 3 s at half, then near; windows of 2 s that are mostly near are near from 2.5 s on.
        let bins = steps(&[(6, 50.0), (34, 100.0)]);
        assert_eq!(series(&bins).stays_at(90.0, 0.0, 20.0), Some(3.0));
        let bins = steps(&[(6, 80.0), (34, 100.0)]);
        assert_eq!(series(&bins).stays_at(90.0, 0.0, 20.0), Some(2.0));
        // A late probe of 2 s that costs half is not being there.
        let bins = steps(&[(6, 50.0), (20, 100.0), (4, 50.0), (10, 100.0)]);
        assert_eq!(series(&bins).stays_at(90.0, 0.0, 20.0), Some(15.0));
        // A dip of one bin is forgiven.
        let bins = steps(&[(20, 100.0), (1, 70.0), (19, 100.0)]);
        assert_eq!(series(&bins).stays_at(90.0, 0.0, 20.0), Some(0.0));
        let bins = steps(&[(40, 80.0)]);
        assert_eq!(series(&bins).stays_at(90.0, 0.0, 20.0), None);
        assert_eq!(series(&[]).stays_at(90.0, 0.0, 20.0), None);
    }

    #[test]
    fn a_perfect_transfer_has_no_regret() {
        let bins = steps(&[(60, 100.0)]);
        let judged = judge(series(&bins), &[phase(0.0, 30.0, 100.0)]).expect("judged");
        assert_eq!(
            judged,
            Judgement {
                steady_ratio: 1.0,
                settled: vec![Some(0.0)],
                regret: 0.0,
            }
        );
    }

    #[test]
    fn regret_is_what_the_way_there_cost() {
        // 3 of 30 s without anything.
        let bins = steps(&[(6, 0.0), (54, 100.0)]);
        let judged = judge(series(&bins), &[phase(0.0, 30.0, 100.0)]).expect("judged");
        assert!((judged.regret - 0.1).abs() < 1e-9, "{judged:?}");
        assert!((judged.steady_ratio - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_phase_has_its_own_best() {
        // The path halves at 10 s and doubles again at 20 s; the transfer follows 4 s late.
        let bins = steps(&[(20, 100.0), (20, 50.0), (8, 50.0), (12, 100.0)]);
        let phases = [
            phase(0.0, 10.0, 100.0),
            phase(10.0, 20.0, 50.0),
            phase(20.0, 30.0, 100.0),
        ];
        let judged = judge(series(&bins), &phases).expect("judged");
        assert_eq!(judged.settled, [Some(0.0), Some(0.0), Some(4.0)]);
        assert!((judged.regret - 200.0 / 2500.0).abs() < 1e-9);
    }

    #[test]
    fn a_transfer_that_ends_early_is_judged_by_what_there_is() {
        let bins = steps(&[(20, 100.0)]);
        let judged = judge(series(&bins), &[phase(0.0, 60.0, 100.0)]).expect("judged");
        assert!(judged.regret.abs() < 1e-9);
        assert_eq!(judge(series(&[]), &[phase(0.0, 60.0, 100.0)]), None);
        assert_eq!(judge(series(&bins), &[]), None);
    }

    #[test]
    fn jains_index_goes_from_one_to_one_over_n() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn few_channels_suffice_within_a_share() {
        let points = [(1, 34.0), (8, 270.0), (32, 964.0), (64, 966.0)];
        assert_eq!(smallest_within(&points, 0.98), Some(32));
        assert_eq!(smallest_within(&points, 1.0), Some(64));
        assert_eq!(smallest_within(&[], 0.98), None);
    }
}
