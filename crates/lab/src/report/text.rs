//! Results as plain text, for the terminal.

use std::io::{self, Write};

use super::format::short;
use super::group::{Group, disturbance, groups, varying};
use super::tables::judgements;
use super::verdict::{Met, beside, verdicts};
use crate::runner::Results;

/// Writes a table, the paper's values and what became of the expectations.
///
/// # Errors
/// What `out` says.
pub fn summarise(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let groups = groups(results);
    let facets = varying(&groups);
    writeln!(
        out,
        "\n{:<34} {:>4}  {:>10} {:>9}  {:>19}  {:>8} {:>8}",
        "goodput, Mbit/s", "N", "mean", "95 % ±", "min .. max", "resent %", "RTT ms"
    )?;
    for group in &groups {
        let mut name = vec![group.method.label.clone()];
        name.extend(
            facets
                .iter()
                .map(|facet| group.cell.facet(*facet, group.method)),
        );
        let mark = format!("  {}", group.remarks());
        let mark = mark.trim_end();
        let Some(goodput) = group.goodput() else {
            writeln!(out, "{:<34} {:>4}{mark}", name.join(", "), channels(group))?;
            continue;
        };
        let of = |pick: fn(&crate::runner::RunOutcome) -> f64| {
            group.summary(pick).map_or(0.0, |summary| summary.median)
        };
        writeln!(
            out,
            "{:<34} {:>4}  {:>10} {:>9}  {:>19}  {:>8.2} {:>8.1}{mark}",
            name.join(", "),
            channels(group),
            short(goodput.mean),
            goodput.half_width.map_or("-".to_owned(), short),
            format!("{} .. {}", short(goodput.min), short(goodput.max)),
            of(|outcome| outcome.sender.retransmitted() * 100.0),
            of(|outcome| outcome.sender.rtt_ms),
        )?;
    }
    let judged = judgements(results, &groups);
    for row in &judged.rows {
        writeln!(out)?;
        for (name, cell) in judged.head.iter().zip(row) {
            writeln!(out, "  {name:<22} {cell}")?;
        }
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

/// How many, or what a tuner settled at.
fn channels(group: &Group<'_>) -> String {
    match group.cell.channels {
        0 => group
            .summary(|outcome| outcome.channels_mean)
            .map_or("?".to_owned(), |mean| format!("~{:.0}", mean.median)),
        fixed => fixed.to_string(),
    }
}
