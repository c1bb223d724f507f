//! Results as plain text, for the terminal.

use std::io::{self, Write};

use super::group::{disturbance, groups};
use super::verdict::{Met, beside, short, verdicts};
use crate::runner::Results;
use crate::scenario::Facet;

/// Writes a table, the paper's values and what became of the expectations.
///
/// # Errors
/// What `out` says.
pub fn summarise(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let groups = groups(results);
    let facets: Vec<Facet> = (results.scenario.figure.panels.iter().copied())
        .chain(results.scenario.series_facets())
        .chain([Facet::Rate, Facet::Delay, Facet::Loss, Facet::Background])
        .filter(|facet| *facet != Facet::Method && *facet != Facet::Channels)
        .filter(|facet| varies(*facet, &groups))
        .collect();
    let mut seen = Vec::new();
    for facet in facets {
        if !seen.contains(&facet) {
            seen.push(facet);
        }
    }
    writeln!(
        out,
        "\n{:<34} {:>4}  {:>10} {:>9}  {:>19}  {:>8} {:>8}",
        "goodput, Mbit/s", "N", "mean", "95 % ±", "min .. max", "resent %", "RTT ms"
    )?;
    for group in &groups {
        let mut name = vec![group.method.label.clone()];
        name.extend(
            seen.iter()
                .map(|facet| group.cell.facet(*facet, group.method)),
        );
        let mark = format!("  {}", group.remarks());
        let mark = mark.trim_end();
        let Some(goodput) = group.goodput() else {
            writeln!(
                out,
                "{:<34} {:>4}{mark}",
                name.join(", "),
                group.cell.channels
            )?;
            continue;
        };
        let of = |pick: fn(&crate::runner::Outcome) -> f64| {
            group.summary(pick).map_or(0.0, |summary| summary.median)
        };
        writeln!(
            out,
            "{:<34} {:>4}  {:>10} {:>9}  {:>19}  {:>8.2} {:>8.1}{mark}",
            name.join(", "),
            group.cell.channels,
            short(goodput.mean),
            goodput.half_width.map_or("-".to_owned(), short),
            format!("{} .. {}", short(goodput.min), short(goodput.max)),
            of(|outcome| outcome.sender.retransmitted() * 100.0),
            of(|outcome| outcome.sender.rtt_ms),
        )?;
    }
    for value in beside(results, &groups) {
        writeln!(
            out,
            "\npaper, {} ({}): {}",
            value.what, value.source, value.paper
        )?;
        for (method, ours) in value.ours {
            writeln!(out, "  ours, {method}: {ours}")?;
        }
    }
    if let Some(warning) = disturbance(results) {
        writeln!(out, "\n{warning}")?;
    }
    let verdicts = verdicts(results, &groups);
    if !verdicts.is_empty() {
        writeln!(out)?;
    }
    for verdict in verdicts {
        let word = match verdict.met {
            Met::Yes => "as expected",
            Met::No => "NOT AS EXPECTED",
            Met::NotMeasured => "not measured",
        };
        writeln!(out, "{word}: {}", verdict.what)?;
        if !verdict.seen.is_empty() {
            writeln!(out, "  {}", verdict.seen)?;
        }
    }
    Ok(())
}

pub(super) fn varies(facet: Facet, groups: &[super::group::Group<'_>]) -> bool {
    let of = |group: &super::group::Group<'_>| group.cell.facet(facet, group.method);
    groups
        .first()
        .is_some_and(|first| groups.iter().any(|group| of(group) != of(first)))
}
