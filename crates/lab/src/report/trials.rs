//! Pages of fault campaigns and soaks, in Markdown.

use std::fmt::Write as _;

use super::FigureFile;
use super::chart::{Axis, Figure, Look, Panel, Point, Scale, Series};
use super::markdown::section;
use super::tables::{Kind, Table, environment};
use crate::faults::{Outcome, Row};
use crate::runner::Environment;
use crate::soak::verdict::Resource;
use crate::soak::{Side, Soak};

/// A campaign of faults.
pub fn faults(here: &Environment, seed: u64, rows: &[Row], outcomes: &[Outcome]) -> String {
    let mut text = "# Faults\n\n\
         Each fault is injected into one `godwit cp -r`, which is repeated until it \
         succeeds. Meanwhile every file with a final name at the target is compared \
         with its source, from the moment it appears. The kernels of both hosts count \
         the bytes that are sent again: those beyond the same command without a fault. \
         The promise for each fault is at most 1 % of the bytes and one block (1 MiB) \
         for each channel. A kind passes if each of its faults kept all promises. Bytes \
         that lay unread in receive buffers of the kernels when the fault happened are \
         listed separately: no program has control over them, and they are lost with \
         the program that would have read them.\n\n"
        .to_owned();
    let cells = |row: &Row| {
        vec![
            row.kind.map_or("all", crate::faults::Kind::name).to_owned(),
            row.faults.to_string(),
            row.happened.to_string(),
            row.overcome.to_string(),
            row.runs_max.to_string(),
            format!("{:.2}", giga(row.bytes)),
            format!("{:.3}", row.resent_percent()),
            format!("{:.0}", giga(row.resent_bytes) * 1000.0),
            format!("{:.0}", giga(row.promised_bytes) * 1000.0),
            format!("{:.1}", giga(row.resent_worst_bytes) * 1000.0),
            format!("{:.1}", giga(row.unread_bytes) * 1000.0),
            row.sent_too_much.to_string(),
            row.lost_too_much.to_string(),
            row.failed.to_string(),
            if row.keeps() { "pass" } else { "**fail**" }.to_owned(),
        ]
    };
    text.push_str(&section(&Table {
        title: "By kind",
        kind: Kind::Figures,
        head: vec![
            "fault",
            "faults",
            "met a running command",
            "got over in one run",
            "most runs",
            "GB",
            "sent again, %",
            "MB",
            "promised for all at most, MB",
            "worst, MB",
            "unread in kernels, MB in all",
            "more than promised",
            "even without what lay unread",
            "broke another promise",
            "verdict",
        ],
        rows: rows.iter().map(cells).collect(),
    }));
    let broken: Vec<&Outcome> = outcomes.iter().filter(|o| !o.findings.is_empty()).collect();
    if !broken.is_empty() {
        text.push_str("## Broken promises\n\n");
    }
    for outcome in broken {
        let findings = outcome.findings.join("\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "Number {}, {}:\n\n```\n{findings}\n```\n",
            outcome.fault.number, outcome.fault
        );
    }
    text.push_str(&section(&environment(here, seed)));
    text
}

/// A soak, and its figure.
pub fn soak(here: &Environment, soak: &Soak) -> (String, FigureFile) {
    let figure = FigureFile {
        name: "soak.svg".to_owned(),
        svg: courses(soak).to_svg("f", true),
    };
    let done = soak.done;
    let verdict = if soak.is_good() {
        "flat"
    } else {
        "not flat, or something broke"
    };
    let mut text = format!(
        "# Soak\n\n**{verdict}**: {:.0} minutes of transfers, listings, aborts and deaths over \
         loopback: {} short commands or jobs, {} interruptions or deaths, {} files.\n\n\
         ![Soak]({})\n\n",
        soak.seconds / 60.0,
        done.commands,
        done.cut_short,
        done.files,
        figure.name,
    );
    let rows = soak.verdicts.iter().map(|verdict| {
        let shown = |value: u64| match verdict.quantity {
            Resource::ResidentBytes => format!("{:.1} MB", giga(value) * 1000.0),
            Resource::Descriptors | Resource::Threads => value.to_string(),
        };
        vec![
            format!("{}: {}", verdict.side, name(verdict.quantity)),
            shown(verdict.early),
            shown(verdict.late),
            if verdict.flat { "flat" } else { "grows" }.to_owned(),
        ]
    });
    text.push_str(&section(&Table {
        title: "Medians",
        kind: Kind::Figures,
        head: vec!["", "second fifth", "last fifth", ""],
        rows: rows.collect(),
    }));
    for finding in &soak.findings {
        let _ = writeln!(text, "```\n{finding}\n```\n");
    }
    text.push_str(&section(&environment(here, soak.seed)));
    (text, figure)
}

fn name(quantity: Resource) -> &'static str {
    match quantity {
        Resource::ResidentBytes => "resident memory",
        Resource::Descriptors => "descriptors",
        Resource::Threads => "threads",
    }
}

/// A panel for each quantity, a line for each side.
fn courses(soak: &Soak) -> Figure {
    let panels = Resource::ALL.map(|quantity| {
        let (label, unit) = match quantity {
            Resource::ResidentBytes => ("MB", 1e-6),
            Resource::Descriptors | Resource::Threads => ("number", 1.0),
        };
        let series: Vec<Series> = [Side::Server, Side::Client]
            .into_iter()
            .enumerate()
            .map(|(colour, side)| Series {
                label: side.to_string(),
                colour: Some(colour),
                look: Look::Course,
                points: (soak.samples.iter())
                    .filter(|sample| sample.side == side)
                    .map(|sample| {
                        let value = real(quantity.of(&sample.level)) * unit;
                        Point::at(sample.seconds / 60.0, value)
                    })
                    .collect(),
            })
            .collect();
        let all = || series.iter().flat_map(|series| &series.points);
        Panel {
            title: name(quantity).to_owned(),
            x: Axis::over("minutes", Scale::Linear, all().map(|point| point.x)),
            y: Axis::over(label, Scale::Linear, all().map(|point| point.y)),
            series,
        }
    });
    Figure::Lines {
        name: "resident memory, descriptors and threads of both sides against time".to_owned(),
        columns: None,
        panels: panels.into(),
    }
}

fn giga(bytes: u64) -> f64 {
    real(bytes) / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "shown to a few digits")]
fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Fault, Kind as FaultKind, summarise};
    use crate::soak::verdict::judge;
    use crate::soak::{Done, Level, UsageSample};

    #[test]
    fn a_page_of_faults_has_a_row_a_kind_and_quotes_what_broke() {
        let outcome = |number, findings: Vec<String>| Outcome {
            fault: Fault::draw(1, number, &[FaultKind::Cut]),
            happened: true,
            runs: 2,
            seconds: 1.0,
            bytes: 2_000_000_000,
            resent_bytes: 1_000_000,
            unread_bytes: 0,
            resent_max: 500_000,
            findings,
        };
        let outcomes = [outcome(0, vec![]), outcome(1, vec!["a differs".into()])];
        let here = Environment::of_ours("faults", false);
        let page = faults(&here, 9, &summarise(&outcomes), &outcomes);
        assert!(
            page.contains("| cut | 2 | 2 | 0 | 2 | 4.00 | 0.050 | 2 | 1 | 1.0 | 0.0 | 2 | 2 | 1 |"),
            "{page}"
        );
        assert!(
            page.contains("a differs") && page.contains("| seed | 9 |"),
            "{page}"
        );
    }

    #[test]
    fn a_page_of_a_soak_says_what_grows_and_shows_it() {
        let level = |n: u64| Level {
            resident_bytes: n << 24,
            descriptors: 20,
            threads: 5,
        };
        let samples: Vec<UsageSample> = (1..=100_u32)
            .flat_map(|second| {
                [Side::Server, Side::Client].map(|side| UsageSample {
                    seconds: f64::from(second),
                    side,
                    level: level(match side {
                        Side::Server => u64::from(second),
                        Side::Client => 1,
                    }),
                })
            })
            .collect();
        let done = Soak {
            seed: 1,
            seconds: 100.0,
            done: Done::default(),
            verdicts: judge(&samples, 100.0),
            samples,
            findings: Vec::new(),
        };
        let (page, figure) = soak(&Environment::of_ours("soak", true), &done);
        assert!(page.contains("not flat"), "{page}");
        assert_eq!(page.matches("| grows |").count(), 1, "{page}");
        assert_eq!(page.matches("| flat |").count(), 5, "{page}");
        assert!(figure.svg.contains("descriptors") && !figure.svg.contains("NaN"));
    }
}
