//! Tuners and simultaneous transfers, compared with the static settings of the same run.

use super::format::{seconds, short};
use super::group::{Group, best};
use crate::judge::{self, Judgement, Phase};
use crate::runner::{Results, RunOutcome};
use crate::stats::{self, Summary};

/// All repeats of a tuned method, or of several transfers at once, in one cell.
#[derive(Debug, Clone)]
pub(super) struct Judged<'a> {
    pub(super) group: &'a Group<'a>,
    /// Goodput of the steady part over the best static one; `None` without static runs beside it.
    pub(super) steady: Option<Summary>,
    /// Until goodput stayed near the best static one, s: median over runs for each phase;
    /// infinite when it did not.
    pub(super) settled: Vec<f64>,
    /// Payload lost against the best static settings, median over runs.
    pub(super) regret: Option<f64>,
    /// Channels in the steady part.
    pub(super) channels: Option<f64>,
    /// The fewest static channels within 2 % of the best.
    pub(super) fewest: Option<u32>,
    /// Jain's index over the transfers, median over runs; `None` for one transfer.
    pub(super) jain: Option<f64>,
    /// Goodput of other TCP connections, Mbit/s, and their share of everything.
    pub(super) beside: Option<(f64, f64)>,
}

/// In the order of the groups; empty when nothing is to be judged.
pub(super) fn judged<'a>(results: &Results, groups: &'a [Group<'a>]) -> Vec<Judged<'a>> {
    (groups.iter())
        .filter(|group| results.scenario.evolves(group.method))
        .filter(|group| group.method.is_tuned() || group.method.transfers > 1)
        .filter(|group| group.used().next().is_some())
        .map(|group| judge_group(results, groups, group))
        .collect()
}

/// The spans of a scenario in which nothing changes, with what the best static setting beside
/// `group` gets in each; `None` when none ran.
pub(super) fn phases(
    results: &Results,
    groups: &[Group<'_>],
    group: &Group<'_>,
) -> Option<Vec<Phase>> {
    let kin = statics(groups, group);
    let steps = results.scenario.steps();
    let end = results.scenario.run.evolve?.0;
    let ends = steps.iter().copied().chain([end]);
    (std::iter::once(0.0).chain(steps.iter().copied()).zip(ends))
        .map(|(from, until)| {
            let of = |group: &&Group<'_>| {
                if steps.is_empty() {
                    return Some(group.goodput()?.mean * 1e6);
                }
                // Later half: the way to the new goodput is no setting's fault.
                let middle = f64::midpoint(from, until);
                let means: Vec<f64> = (group.used())
                    .filter_map(|outcome| {
                        let evolution = outcome.evolution.as_ref()?;
                        let total = evolution.total_bps();
                        evolution.series(&total).mean(middle, until)
                    })
                    .collect();
                stats::mean(&means)
            };
            let best_bps = kin.iter().filter_map(of).reduce(f64::max)?;
            Some(Phase {
                from,
                until,
                best_bps,
            })
        })
        .collect()
}

/// Single transfers with a fixed number of channels, otherwise alike.
fn statics<'a>(groups: &'a [Group<'a>], group: &Group<'_>) -> Vec<&'a Group<'a>> {
    (groups.iter())
        .filter(|other| !other.method.is_tuned() && other.method.transfers == 1)
        .filter(|other| other.method.is_kin(group.method) && other.cell.is_beside(&group.cell))
        .collect()
}

fn judge_group<'a>(results: &Results, groups: &'a [Group<'a>], group: &'a Group<'a>) -> Judged<'a> {
    let phases = phases(results, groups, group).unwrap_or_default();
    let all: Vec<Judgement> = (group.used())
        .filter_map(|outcome| {
            let evolution = outcome.evolution.as_ref()?;
            let total = evolution.total_bps();
            judge::judge(evolution.series(&total), &phases)
        })
        .collect();
    let median = |of: &dyn Fn(&Judgement) -> f64| {
        let values: Vec<f64> = all.iter().map(of).collect();
        stats::median(&values)
    };
    let over = |of: fn(&RunOutcome) -> Option<f64>| {
        let values: Vec<f64> = group.used().filter_map(of).collect();
        stats::median(&values)
    };
    let single = group.method.transfers == 1;
    let settled = (0..phases.len())
        // Staggered transfers do not converge before the last has begun.
        .filter(|_| single)
        .filter_map(|phase| median(&|judged| judged.settled[phase].unwrap_or(f64::INFINITY)))
        .collect();
    let ratios: Vec<f64> = all.iter().map(|judged| judged.steady_ratio).collect();
    let beside = over(|outcome| Some(outcome.beside_bps? / 1e6));
    let share = over(|outcome| {
        let beside = outcome.beside_bps?;
        Some(beside / (beside + outcome.goodput_bps).max(1.0))
    });
    Judged {
        group,
        steady: Summary::of(&ratios),
        settled,
        regret: median(&|judged| judged.regret).filter(|_| single),
        channels: over(|outcome| Some(outcome.channels_mean)),
        fewest: best(&statics(groups, group)).map(|(fewest, _, _)| fewest),
        jain: over(|outcome| judge::jain(&outcome.transfers_bps)).filter(|_| !single),
        beside: beside.zip(share),
    }
}

impl Judged<'_> {
    /// How long until it was there, s; infinite for never.
    pub(super) fn converged(&self) -> Option<f64> {
        self.settled.first().copied()
    }

    /// And how long after each change of load or path.
    pub(super) fn adapted(&self) -> &[f64] {
        self.settled.get(1..).unwrap_or_default()
    }
}

/// Heads of the table of judgements beside those that name the cell, and what goes below.
type Column = (&'static str, fn(&Judged<'_>) -> Option<String>);

/// Columns in their order; those without anything in them are left out.
pub(super) const COLUMNS: &[Column] = &[
    ("steady, Mbit/s", |j| Some(short(j.group.goodput()?.median))),
    ("of best static, %", |j| {
        let steady = j.steady?;
        let half = steady
            .half_width
            .map_or(String::new(), |half| format!(" ± {}", short(half * 100.0)));
        Some(format!("{}{half}", short(steady.mean * 100.0)))
    }),
    ("there after, s", |j| j.converged().map(seconds)),
    ("lost on the way, %", |j| Some(short(j.regret? * 100.0))),
    ("after each change, s", |j| {
        let all: Vec<String> = j.adapted().iter().copied().map(seconds).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }),
    ("N at the end", |j| Some(short(j.channels?))),
    ("fewest static N", |j| Some(j.fewest?.to_string())),
    ("Jain", |j| Some(format!("{:.3}", j.jain?))),
    ("other TCP, Mbit/s", |j| Some(short(j.beside?.0))),
    ("its share, %", |j| Some(short(j.beside?.1 * 100.0))),
];
