//! Tables and sentences about results, for pages of every kind.

use std::fmt::Write as _;

use super::format::short;
use super::group::{Group, disturbance, measured_window_bytes, varying};
use super::judged::{COLUMNS, judged};
use super::verdict::{Met, beside, verdicts};
use crate::load::Sharing;
use crate::runner::{Environment, Results, RunOutcome};
use crate::scenario::Facet;
use crate::stats::{self, Summary};

/// A table; cells may hold line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What cells hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Words,
    Verdicts,
    Figures,
}

/// All tables with something in them, in the order of a page.
pub(super) fn tables(results: &Results, groups: &[Group<'_>]) -> Vec<Table> {
    let mut all = vec![
        paper(results, groups),
        expectations(results, groups),
        judgements(results, groups),
        simulations(groups),
        measurements(results, groups),
    ];
    all.retain(|table| !table.rows.is_empty());
    all
}

/// What a reader must know before anything else.
pub(super) fn warnings(results: &Results) -> Vec<String> {
    let quick = results.environment.quick.then(|| {
        "Quick variant: few cells, short runs, few repeats. It shows the shape.".to_owned()
    });
    quick.into_iter().chain(disturbance(results)).collect()
}

fn paper(results: &Results, groups: &[Group<'_>]) -> Table {
    let rows = (beside(results, groups).into_iter())
        .map(|value| {
            let ours: Vec<String> = (value.ours.iter())
                .map(|(method, ours)| format!("{method}: {ours}"))
                .collect();
            let ours = if ours.is_empty() {
                "not measured".to_owned()
            } else {
                ours.join("\n")
            };
            vec![value.what, value.paper, ours, value.source]
        })
        .collect();
    Table {
        title: "The paper and here",
        kind: Kind::Words,
        head: vec!["", "paper", "here", "source"],
        rows,
    }
}

fn expectations(results: &Results, groups: &[Group<'_>]) -> Table {
    let rows = (verdicts(results, groups).into_iter())
        .map(|verdict| {
            let word = match verdict.met {
                Met::Yes => "✓ yes",
                Met::No => "✗ no",
                Met::NotMeasured => "– not measured",
            };
            let seen = verdict.seen.replace("; ", "\n");
            vec![word.to_owned(), verdict.what, seen]
        })
        .collect();
    Table {
        title: "What was expected",
        kind: Kind::Verdicts,
        head: vec!["", "expected", "seen"],
        rows,
    }
}

/// The head of a facet, and how its cells begin without it.
fn facet_head(facet: Facet) -> (&'static str, &'static str) {
    match facet {
        Facet::Rate => ("rate", ""),
        Facet::Delay => ("RTT", "RTT "),
        Facet::Loss => ("loss", "loss "),
        Facet::Background => ("background", "background "),
        Facet::Compute => ("ext.cmp", "ext.cmp = "),
        Facet::Traffic => ("ext.tfr", "ext.tfr = "),
        Facet::Files => ("files", ""),
        Facet::Nodes => ("nodes", "nodes "),
        Facet::CongestionControl => ("congestion control", ""),
        Facet::Channels | Facet::Method => ("", ""),
    }
}

/// Method and coordinates of a group.
fn place(group: &Group<'_>, facets: &[Facet]) -> Vec<String> {
    let coordinates = facets.iter().map(|facet| {
        let text = group.cell.facet(*facet, group.method);
        text.trim_start_matches(facet_head(*facet).1).to_owned()
    });
    std::iter::once(group.method.label.clone())
        .chain(coordinates)
        .collect()
}

fn place_head(facets: &[Facet]) -> Vec<&'static str> {
    let heads = facets.iter().map(|facet| facet_head(*facet).0);
    std::iter::once("method").chain(heads).collect()
}

/// Tuners and simultaneous transfers against static settings.
pub(super) fn judgements(results: &Results, groups: &[Group<'_>]) -> Table {
    let all = judged(results, groups);
    let columns: Vec<_> = (COLUMNS.iter())
        .filter(|(_, of)| all.iter().any(|judged| of(judged).is_some()))
        .collect();
    let facets = varying(groups);
    let mut head = place_head(&facets);
    head.extend(columns.iter().map(|(name, _)| *name));
    let rows = (all.iter())
        .map(|judged| {
            let mut row = place(judged.group, &facets);
            let cells = columns.iter().map(|(_, of)| of(judged));
            row.extend(cells.map(|cell| cell.unwrap_or_else(|| "–".to_owned())));
            row
        })
        .collect();
    Table {
        title: "Against the best static setting",
        kind: Kind::Figures,
        head,
        rows,
    }
}

/// Kernels beside the simulator.
fn simulations(groups: &[Group<'_>]) -> Table {
    let facets = varying(groups);
    let mut head = place_head(&facets);
    head.extend([
        "N",
        "kernel, Mbit/s",
        "simulator, Mbit/s",
        "kernel over simulator",
        "kernel resent, %",
        "simulator resent, %",
    ]);
    let rows = groups.iter().filter_map(|group| {
        let (here, there) = (
            group.goodput()?,
            group.simulated(|run| run.goodput_bps / 1e6)?,
        );
        let again = group.summary(|run| run.sender.retransmitted() * 100.0)?;
        let simulated_again = group.simulated(|run| run.retransmitted * 100.0)?;
        let range = |of: &Summary| {
            let (median, min, max) = (short(of.median), short(of.min), short(of.max));
            format!("{median} ({min} – {max})")
        };
        let mut row = place(group, &facets);
        row.extend([
            group.cell.channels.to_string(),
            range(&here),
            range(&there),
            format!("{:.3}", here.median / there.median),
            short(again.mean),
            short(simulated_again.mean),
        ]);
        Some(row)
    });
    Table {
        title: "The kernel and the simulator",
        kind: Kind::Figures,
        head,
        rows: rows.collect(),
    }
}

fn measurements(results: &Results, groups: &[Group<'_>]) -> Table {
    let facets = varying(groups);
    let mut head = place_head(&facets);
    head.extend(["N", "goodput, Mbit/s", "± 95 %", "range", "runs"]);
    let files = groups.iter().any(|group| group.cell.files > 0);
    if files {
        head.extend(["files/s", "client CPU, s", "server CPU, s"]);
    }
    let nodes = groups.iter().any(|group| group.cell.nodes > 0);
    if nodes {
        head.extend([
            "of all links, %",
            "front ends' CPU, s/GB",
            "nodes' CPU, s/GB",
        ]);
    }
    head.extend([
        "resent, %",
        "in flight per channel, KB",
        "RTT seen, ms",
        "late p99, us",
        "other CPUs",
        "remarks",
    ]);
    let rows = (groups.iter())
        .map(|group| {
            let mut row = place(group, &facets);
            row.push(match group.cell.channels {
                0 => "tuned".to_owned(),
                channels => channels.to_string(),
            });
            let of = |pick: fn(&RunOutcome) -> f64| {
                group
                    .summary(pick)
                    .map_or("–".to_owned(), |summary| short(summary.median))
            };
            match group.goodput() {
                Some(goodput) => row.extend([
                    short(goodput.mean),
                    goodput.half_width.map_or("–".to_owned(), short),
                    format!("{} – {}", short(goodput.min), short(goodput.max)),
                    goodput.count.to_string(),
                ]),
                None => row.extend(["–", "–", "–", "0"].map(str::to_owned)),
            }
            if files {
                row.extend([
                    of(|outcome| f64::from(outcome.files) / outcome.seconds),
                    of(|outcome| outcome.client_cpu_seconds),
                    of(|outcome| outcome.server_cpu_seconds),
                ]);
            }
            if nodes {
                let links_bps = results.scenario.links_bps(&group.cell);
                let share = group.summary(|outcome| outcome.goodput_bps / links_bps * 100.0);
                row.extend([
                    share.map_or("–".to_owned(), |share| short(share.median)),
                    of(|outcome| per_gb(outcome.front_end_cpu_seconds, outcome)),
                    of(|outcome| {
                        let nodes = outcome.server_cpu_seconds - outcome.front_end_cpu_seconds;
                        per_gb(nodes, outcome)
                    }),
                ]);
            }
            row.extend([
                of(|outcome| outcome.sender.retransmitted() * 100.0),
                of(|outcome| outcome.sender.in_flight_bytes / 1e3),
                of(|outcome| outcome.sender.rtt_ms),
                of(|outcome| outcome.fidelity.lateness_p99_us),
                of(RunOutcome::other_cpus),
                group.remarks(),
            ]);
            row
        })
        .collect();
    Table {
        title: "Measurements",
        kind: Kind::Figures,
        head,
        rows,
    }
}

#[allow(clippy::cast_precision_loss, reason = "sizes have fewer digits")]
fn per_gb(seconds: f64, outcome: &RunOutcome) -> f64 {
    seconds / (outcome.bytes as f64 / 1e9).max(f64::MIN_POSITIVE)
}

/// How it was measured, in sentences.
pub(super) fn method(results: &Results, groups: &[Group<'_>]) -> String {
    let scenario = &results.scenario;
    let run = &scenario.run;
    let mut text = match (scenario.work.file, scenario.work.files) {
        (_, Some(size)) => format!(
            "{size} in files of one size in one directory, from memory to memory. Goodput is the \
             payload over the life of the client's process, login and listing included; \
             checksums are not compared. A run that is not done after {} is stopped, and the \
             bytes that had arrived by then count.",
            run.measure
        ),
        (None, None) => format!(
            "Memory to memory (/dev/zero to /dev/null) without end. Goodput is the payload that \
             the receiving kernel took in order, over {} from {} after the first data; headers, \
             retransmissions, login and the ramp are not in it.",
            run.measure, run.ramp
        ),
        (Some(size), None) => format!(
            "A file of {size} from memory to /dev/null. Goodput is its size over the life of the \
             client's process, login included."
        ),
    };
    // Writing to a string cannot fail, here and below.
    if run.round_trips > 0 {
        let _ = write!(
            text,
            " Both spans are {} round trips longer.",
            run.round_trips
        );
    }
    if let Some(evolve) = run.evolve {
        let _ = write!(
            text,
            " Methods that evolve run for {evolve} from their first data; their goodput is that of \
             the last third. They are there once every {:.0} s from then on bring {:.0} % of the \
             best static setting, and lose on the way what it would have moved beyond them, slow \
             start included.",
            crate::judge::WINDOW_SECONDS,
            crate::judge::NEAR * 100.0,
        );
    }
    if !scenario.path.is_emulated() {
        text.push_str(" There is no emulated path: both ends meet over loopback.");
    }
    text.push_str(
        " Runs are interleaved, repeat by repeat, every other one backwards; each has a network \
         of its own, and repeat r the seed of the scenario + r, the same for all methods.",
    );
    if let Some(window) = measured_window_bytes(results) {
        let _ = write!(
            text,
            " {:.1} KB of payload were in flight per channel where channels did not fill the path.",
            window / 1e3
        );
    }
    text.push_str(sharing(results));
    let outcomes: Vec<&RunOutcome> = groups.iter().flat_map(Group::used).collect();
    let median = |of: fn(&RunOutcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(|outcome| of(outcome)).collect();
        stats::median(&values)
    };
    let lateness = median(|outcome| outcome.fidelity.lateness_p99_us);
    let cpus = median(|outcome| outcome.fidelity.emulator_cpus);
    if let (Some(p99), Some(cpus), true) = (lateness, cpus, scenario.path.is_emulated()) {
        let unfaithful: usize = groups.iter().map(Group::unfaithful).sum();
        let _ = write!(
            text,
            " Fidelity: one packet in a hundred was delivered {p99:.0} us late or more (median \
             over runs), the emulator took {:.0} % of one processor; {unfaithful} of {} runs were \
             unfaithful and are left out where faithful ones remain.",
            cpus * 100.0,
            results.runs.len()
        );
    }
    text
}

/// With whom busy processes shared processors: whether more movers could get more of them.
fn sharing(results: &Results) -> &'static str {
    let seen = (results.runs.iter()).find_map(|run| run.result.as_ref()?.sharing);
    match seen {
        Some(Sharing::ByThread) => {
            " Busy processes were in the scheduling group of the programs, so that the kernel \
             shared processors thread by thread."
        }
        Some(Sharing::ByGroup) => {
            " Busy processes were in a scheduling group of their own, so that the kernel shared \
             processors by group, however many threads each had."
        }
        None => "",
    }
}

/// Machine, kernel, versions.
pub(super) fn environment(here: &Environment, seed: u64) -> Table {
    let programs: Vec<String> = (here.programs.iter())
        .map(|(name, version)| {
            if version.starts_with(name.as_str()) {
                version.clone()
            } else {
                format!("{name}: {version}")
            }
        })
        .collect();
    let autogroups = match here.autogroups {
        Some(true) => "kernel.sched_autogroup_enabled = 1",
        Some(false) => "kernel.sched_autogroup_enabled = 0",
        None => "no autogroups",
    };
    let rows = [
        ("scenario", here.scenario.clone()),
        ("command", here.command.clone()),
        ("began", format!("{} UTC", here.began)),
        (
            "machine",
            format!(
                "{} x {}, {} GB",
                here.processors, here.processor, here.memory_gb
            ),
        ),
        ("kernel", format!("Linux {}, {autogroups}", here.kernel)),
        ("programs", programs.join("\n")),
        ("lab", format!("godwit-lab {}", here.lab)),
        ("seed", seed.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| vec![name.to_owned(), value])
    .collect();
    Table {
        title: "Environment",
        kind: Kind::Words,
        head: vec!["", ""],
        rows,
    }
}
