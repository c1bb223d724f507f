//! Expectations of a scenario and values of the paper, compared with the measurements.

use std::fmt::Write as _;

use super::format::{seconds, short};
use super::group::{Group, best, curves, varying};
use super::judged::{Judged, judged};
use crate::runner::Results;
use crate::scenario::{Expectation, Facet, PaperValue, Quantity, Theory};

/// Shares of what is sent again below this one are too rare to be counted in seconds.
const RARE: f64 = 1e-4;

/// Whether something that was expected came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    Yes,
    No,
    /// The cells it speaks of did not run.
    NotMeasured,
}

/// An expectation and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectationResult {
    pub(super) what: String,
    pub(super) met: Met,
    /// What was seen, method by method.
    pub(super) seen: String,
}

/// All expectations of a scenario.
pub(super) fn verdicts(results: &Results, groups: &[Group<'_>]) -> Vec<ExpectationResult> {
    (results.scenario.expect.iter())
        .map(|expectation| verdict(results, groups, expectation))
        .collect()
}

fn verdict(results: &Results, groups: &[Group<'_>], expect: &Expectation) -> ExpectationResult {
    let mut met = Met::NotMeasured;
    let mut seen = Vec::new();
    let all_judged = judged(results, groups);
    let facets = varying(groups);
    let applies = !(expect.full_only && results.environment.quick);
    for method in results.scenario.method.iter().filter(|_| applies) {
        if !expect.methods.is_empty() && !expect.methods.contains(&method.name) {
            continue;
        }
        let ours: Vec<&Group<'_>> = (groups.iter())
            .filter(|group| group.method.name == method.name && group.cell.is_at(&expect.at))
            .filter(|group| group.goodput().is_some())
            .collect();
        let checks = [
            bounds(&ours, expect),
            of_links(results, &ours, expect),
            linear(&ours, expect),
            near_theory(results, &ours, expect),
            retransmitted(&ours, expect),
        ];
        let of_method = |judged: &&Judged<'_>| {
            judged.group.method.name == method.name && judged.group.cell.is_at(&expect.at)
        };
        let judgements = all_judged
            .iter()
            .filter(of_method)
            .flat_map(|judged| judgement(judged, expect, &facets));
        for (holds, text) in checks.into_iter().flatten().chain(judgements) {
            met = match (met, holds) {
                (Met::No, _) | (_, false) => Met::No,
                _ => Met::Yes,
            };
            seen.push(format!("{}: {text}", method.label));
        }
    }
    ExpectationResult {
        what: expect.what.clone(),
        met,
        seen: seen.join("; "),
    }
}

/// Whether all medians keep the bounds, and what they are; `None` without bounds or cells.
fn bounds(groups: &[&Group<'_>], expect: &Expectation) -> Option<(bool, String)> {
    if expect.at_least.is_none() && expect.at_most.is_none() {
        return None;
    }
    let medians: Vec<f64> = (groups.iter())
        .filter_map(|group| Some(group.goodput()?.median))
        .collect();
    let low = medians.iter().copied().reduce(f64::min)?;
    let high = medians.iter().copied().reduce(f64::max)?;
    let holds = expect.at_least.is_none_or(|least| low >= least.0 / 1e6)
        && expect.at_most.is_none_or(|most| high <= most.0 / 1e6);
    let text = if medians.len() == 1 {
        format!("{} Mbit/s", short(low))
    } else {
        format!("{} to {} Mbit/s", short(low), short(high))
    };
    Some((holds, text))
}

/// Whether all medians are such a share of what the links of all nodes carry, and the least.
fn of_links(
    results: &Results,
    groups: &[&Group<'_>],
    expect: &Expectation,
) -> Option<(bool, String)> {
    let least = expect.links_at_least?;
    let worst = (groups.iter())
        .filter_map(|group| Some((share_of_links(results, group)?, group)))
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (share, group) = worst;
    let text = format!(
        "at least {} % of all links ({} nodes)",
        short(share * 100.0),
        group.cell.nodes
    );
    Some((share >= least.0, text))
}

fn share_of_links(results: &Results, group: &Group<'_>) -> Option<f64> {
    let links = results.scenario.links_bps(&group.cell);
    Some(group.goodput()?.median * 1e6 / links)
}

/// Whether goodput is in proportion to channels, and the largest deviation.
fn linear(groups: &[&Group<'_>], expect: &Expectation) -> Option<(bool, String)> {
    let linear = expect.linear.as_ref()?;
    let of = |channels: u32| {
        let group = groups
            .iter()
            .find(|group| group.cell.channels == channels)?;
        Some(group.goodput()?.median)
    };
    let one = of(1)?;
    let worst = (linear.channels.iter())
        .filter(|channels| **channels > 1)
        .filter_map(|&channels| {
            let deviation = of(channels)? / (one * f64::from(channels)) - 1.0;
            Some((channels, deviation))
        })
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    let text = format!(
        "one channel {} Mbit/s, largest deviation {:+.1} % at N = {}",
        short(one),
        worst.1 * 100.0,
        worst.0
    );
    Some((worst.1.abs() <= linear.within.0, text))
}

/// Whether goodput is near the first theory, and the largest factor between them.
fn near_theory(
    results: &Results,
    groups: &[&Group<'_>],
    expect: &Expectation,
) -> Option<(bool, String)> {
    let factor = expect.theory_factor?;
    let curves = curves(results);
    let theory = |group: &Group<'_>| match results.scenario.theory.first()? {
        Theory::Simulation => Some(group.simulated(|run| run.goodput_bps / 1e6)?.median),
        _ => {
            let channels = f64::from(group.cell.channels);
            let curve = curves.first()?;
            Some(curve.goodput(&results.scenario, &group.cell, channels))
        }
    };
    let ratios = (groups.iter())
        .filter(|group| !group.method.is_tuned())
        .filter_map(|group| Some((group.goodput()?.median / theory(group)?, *group)));
    within(factor, "theory", ratios)
}

/// Whether as much is sent again as in the simulator, and the largest factor between them.
fn retransmitted(groups: &[&Group<'_>], expect: &Expectation) -> Option<(bool, String)> {
    let factor = expect.retransmitted_factor?;
    let ratios = (groups.iter()).filter_map(|group| {
        let here = group.summary(|run| run.sender.retransmitted())?.mean;
        let simulated = group.simulated(|run| run.retransmitted)?.mean;
        Some((here.max(RARE) / simulated.max(RARE), *group))
    });
    within(factor, "what the simulator sends again", ratios)
}

/// Whether all ratios lie within a factor, how many do, and the farthest.
fn within<'a>(
    factor: f64,
    of: &str,
    ratios: impl Iterator<Item = (f64, &'a Group<'a>)>,
) -> Option<(bool, String)> {
    let ratios: Vec<_> = ratios.collect();
    let is_within = |ratio: f64| ratio.ln().abs() <= factor.ln();
    let count = ratios.iter().filter(|(ratio, _)| is_within(*ratio)).count();
    let farthest = ratios
        .iter()
        .max_by(|a, b| a.0.ln().abs().total_cmp(&b.0.ln().abs()));
    let (ratio, group) = farthest?;
    let cell = &group.cell;
    let text = format!(
        "{count} of {} cells, farthest is {} of {of} ({}, {}, loss {}, RTT {:.0} ms, N = {})",
        ratios.len(),
        short(*ratio),
        cell.congestion_control,
        cell.rate,
        cell.loss,
        cell.rtt_s() * 1e3,
        cell.channels
    );
    Some((is_within(*ratio), text))
}

/// What of a judgement an expectation asks for: whether it holds, and what was seen.
fn judgement(judged: &Judged<'_>, expect: &Expectation, facets: &[Facet]) -> Vec<(bool, String)> {
    let mut all = Vec::new();
    if let (Some(least), Some(steady)) = (expect.steady_at_least, judged.steady) {
        let text = format!("{} % of the best static", short(steady.median * 100.0));
        all.push((steady.median >= least.0, text));
    }
    if let (Some(most), Some(settled)) = (expect.converges_within, judged.converged()) {
        let text = format!("there after {}", after(settled));
        all.push((settled <= most.0, text));
    }
    let slowest = judged.adapted().iter().copied().reduce(f64::max);
    if let (Some(most), Some(slowest)) = (expect.adapts_within, slowest) {
        let text = format!("slowest adaptation {}", after(slowest));
        all.push((slowest <= most.0, text));
    }
    if let (Some(most), Some(regret)) = (expect.regret_at_most, judged.regret) {
        let text = format!("{} % lost on the way", short(regret * 100.0));
        all.push((regret <= most.0, text));
    }
    let both = judged.channels.zip(judged.fewest);
    if let (Some(most), Some((channels, fewest))) = (expect.channels_at_most, both) {
        let text = format!("{} channels where {fewest} suffice", short(channels));
        all.push((channels <= most * f64::from(fewest), text));
    }
    if let (Some(least), Some(jain)) = (expect.jain_at_least, judged.jain) {
        all.push((jain >= least, format!("Jain's index {jain:.3}")));
    }
    if let (Some(least), Some((_, share))) = (expect.leaves_at_least, judged.beside) {
        let text = format!("leaves {} % to others", short(share * 100.0));
        all.push((share >= least.0, text));
    }
    let group = judged.group;
    let place: String = (facets.iter())
        .map(|facet| format!("{}, ", group.cell.facet(*facet, group.method)))
        .collect();
    (all.into_iter())
        .map(|(holds, text)| (holds, format!("{place}{text}")))
        .collect()
}

/// A value of the paper, and ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) what: String,
    pub(super) source: String,
    pub(super) paper: String,
    /// Method and value; empty when the cells did not run.
    pub(super) ours: Vec<(String, String)>,
}

/// All values of the paper.
pub(super) fn beside(results: &Results, groups: &[Group<'_>]) -> Vec<Beside> {
    (results.scenario.paper.iter())
        .map(|paper| Beside {
            what: paper.what.clone(),
            source: paper.source.clone(),
            paper: paper.value.clone(),
            ours: (results.scenario.method.iter())
                .filter_map(|method| {
                    let ours: Vec<&Group<'_>> = (groups.iter())
                        .filter(|group| group.method.name == method.name)
                        .filter(|group| group.cell.is_at(&paper.at))
                        .collect();
                    Some((method.label.clone(), value(results, groups, &ours, paper)?))
                })
                .collect(),
        })
        .collect()
}

fn value(
    results: &Results,
    all: &[Group<'_>],
    groups: &[&Group<'_>],
    paper: &PaperValue,
) -> Option<String> {
    let judged_first = || {
        let first: &Group<'_> = groups.first()?;
        let is_first = |judged: &Judged<'_>| std::ptr::eq(judged.group, first);
        judged(results, all).into_iter().find(is_first)
    };
    match paper.ours {
        Quantity::Goodput => {
            let summary = groups.first()?.goodput()?;
            let mut text = format!("{} Mbit/s", short(summary.mean));
            if let Some(half) = summary.half_width {
                // Writing to a string cannot fail.
                let _ = write!(text, " ± {}", short(half));
            }
            Some(text)
        }
        Quantity::BestGoodput => {
            let (_, channels, goodput) = best(groups)?;
            let at = match channels {
                0 => String::new(),
                channels => format!(" at N = {channels}"),
            };
            Some(format!("{} Mbit/s{at}", short(goodput)))
        }
        Quantity::BestChannels if groups.first()?.method.is_tuned() => {
            let channels = groups.first()?.summary(|outcome| outcome.channels_mean)?;
            Some(format!("{} (settled)", short(channels.median)))
        }
        Quantity::BestChannels => {
            let (fewest, highest, _) = best(groups)?;
            Some(if fewest == highest {
                format!("{fewest}")
            } else {
                format!("{fewest} (within 2 %), {highest} (highest)")
            })
        }
        Quantity::Convergence => {
            let settled = judged_first()?.converged()?;
            Some(after(settled))
        }
        Quantity::Fairness => {
            let jain = judged_first()?.jain?;
            Some(format!("Jain's index {jain:.3}"))
        }
        Quantity::OfLinks => {
            let shares: Vec<String> = (groups.iter())
                .filter_map(|group| {
                    let share = share_of_links(results, group)?;
                    Some(format!("{share:.3} ({} nodes)", group.cell.nodes))
                })
                .collect();
            (!shares.is_empty()).then(|| shares.join(", "))
        }
        Quantity::Gain => {
            let (_, channels, goodput) = best(groups)?;
            let one = groups.iter().find(|group| group.cell.channels == 1)?;
            let gain = goodput / one.goodput()?.median - 1.0;
            Some(format!("{:+.0} % at N = {channels}", gain * 100.0))
        }
    }
}

/// A time with its unit, or that there was none.
fn after(value: f64) -> String {
    match value.is_finite() {
        true => format!("{} s", seconds(value)),
        false => seconds(value),
    }
}
