//! The page: figures, tables, how they were made.

use std::fmt::Write as _;

use super::chart::{self, escape};
use super::figure::figure;
use super::group::{Group, disturbance, groups, measured_window_bytes};
use super::verdict::{Met, beside, short, verdicts};
use crate::runner::{Outcome, Results};
use crate::scenario::{Facet, X};
use crate::stats;

const STYLE: &str = include_str!("page.css");

/// One self-contained page about all results: no script, nothing loaded from elsewhere.
pub fn page(all: &[Results]) -> String {
    let title = match all {
        [one] => one.scenario.title.clone(),
        _ => "Results of the godwit lab".to_owned(),
    };
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    if all.len() > 1 {
        body.push_str("<nav><ol>\n");
        for (number, results) in all.iter().enumerate() {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(
                body,
                "<li><a href=\"#s{number}\">{}</a> <span class=\"soft\">{}</span></li>",
                escape(&results.scenario.title),
                escape(&results.environment.scenario)
            );
        }
        body.push_str("</ol></nav>\n");
    }
    for (number, results) in all.iter().enumerate() {
        body.push_str(&section(results, number, all.len() > 1));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{}</title>\n<style>\n{STYLE}\n{}\n</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         </body>\n</html>\n",
        escape(&title),
        chart::STYLE
    )
}

fn section(results: &Results, number: usize, headed: bool) -> String {
    let groups = groups(results);
    let mut text = format!("<section id=\"s{number}\">\n");
    if headed {
        let _ = writeln!(text, "<h2>{}</h2>", escape(&results.scenario.title));
    }
    if !results.scenario.source.is_empty() {
        let _ = writeln!(
            text,
            "<p class=\"soft\">After {}</p>",
            escape(&results.scenario.source)
        );
    }
    let _ = writeln!(text, "<p>{}</p>", escape(results.scenario.about.trim()));
    if results.environment.quick {
        text.push_str(
            "<p class=\"note\">Quick variant: few cells, short runs, few repeats. It shows the \
             shape.</p>\n",
        );
    }
    if let Some(warning) = disturbance(results) {
        let _ = writeln!(text, "<p class=\"note\">{}</p>", escape(&warning));
    }
    if let Some(figure) = figure(results, &groups) {
        let _ = writeln!(
            text,
            "<figure>\n{}<figcaption>{}</figcaption>\n</figure>",
            figure.to_svg(&format!("f{number}"), false),
            escape(&caption(results, &groups))
        );
    }
    text.push_str(&paper_table(results, &groups));
    text.push_str(&expectation_table(results, &groups));
    text.push_str(&measurement_table(&groups));
    text.push_str(&how(results, &groups));
    text.push_str(&environment(results));
    text.push_str("</section>\n");
    text
}

fn caption(results: &Results, groups: &[Group<'_>]) -> String {
    let repeats = groups.iter().map(|group| group.used().count());
    let (least, most) = (
        repeats.clone().min().unwrap_or(0),
        repeats.max().unwrap_or(0),
    );
    let marks = match results.scenario.figure.x {
        X::Method => "Bars",
        _ => "Points",
    };
    let mut text = match (least, most) {
        (_, 0 | 1) => format!("{marks} are single runs."),
        (_, 2) => format!("{marks} are means of up to 2 runs, whiskers are their range."),
        (least, most) => {
            let runs = if least == most {
                format!("{most} runs")
            } else {
                format!("{least} to {most} runs")
            };
            format!(
                "{marks} are means of {runs}, bands and whiskers are 95 % confidence intervals \
                 (Student's t)."
            )
        }
    };
    if groups.iter().any(Group::only_unfaithful) {
        text.push_str(" Hollow points come from runs that the emulator did not keep up with.");
    }
    if !results.scenario.theory.is_empty() {
        text.push_str(" Dashed lines are computed, not measured.");
    }
    if results
        .scenario
        .paper
        .iter()
        .any(|paper| paper.goodput.is_some())
    {
        text.push_str(" Diamonds are the paper's values.");
    }
    text
}

fn table(class: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>");
    for cell in head {
        let _ = write!(text, "<th>{}</th>", escape(cell));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td>{}</td>", escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}

fn paper_table(results: &Results, groups: &[Group<'_>]) -> String {
    let rows: Vec<Vec<String>> = (beside(results, groups).into_iter())
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
    if rows.is_empty() {
        return String::new();
    }
    let head = ["", "paper", "here", "source"];
    format!(
        "<h3>The paper and here</h3>\n{}",
        table("words", &head, &rows)
    )
}

fn expectation_table(results: &Results, groups: &[Group<'_>]) -> String {
    let rows: Vec<Vec<String>> = (verdicts(results, groups).into_iter())
        .map(|verdict| {
            let word = match verdict.met {
                Met::Yes => "✓ yes",
                Met::No => "✗ no",
                Met::NotMeasured => "– not measured",
            };
            vec![
                word.to_owned(),
                verdict.what,
                verdict.seen.replace("; ", "\n"),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["", "expected", "seen"];
    format!(
        "<h3>What was expected</h3>\n{}",
        table("words verdicts", &head, &rows)
    )
}

fn measurement_table(groups: &[Group<'_>]) -> String {
    let facets: Vec<Facet> = [
        Facet::Rate,
        Facet::Delay,
        Facet::Loss,
        Facet::Background,
        Facet::CongestionControl,
    ]
    .into_iter()
    .filter(|facet| super::text::varies(*facet, groups))
    .collect();
    let mut head = vec!["method"];
    head.extend(facets.iter().map(|facet| match facet {
        Facet::Rate => "rate",
        Facet::Delay => "RTT",
        Facet::Loss => "loss",
        Facet::Background => "background",
        _ => "congestion control",
    }));
    head.extend([
        "N",
        "goodput, Mbit/s",
        "± 95 %",
        "range",
        "runs",
        "resent, %",
        "in flight per channel, KB",
        "RTT seen, ms",
        "late p99, us",
        "other CPUs",
        "remarks",
    ]);
    let rows: Vec<Vec<String>> = (groups.iter())
        .map(|group| {
            let mut row = vec![group.method.label.clone()];
            row.extend(facets.iter().map(|facet| {
                let text = group.cell.facet(*facet, group.method);
                text.trim_start_matches("RTT ")
                    .trim_start_matches("loss ")
                    .trim_start_matches("background ")
                    .to_owned()
            }));
            row.push(group.cell.channels.to_string());
            let of = |pick: fn(&Outcome) -> f64| {
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
            row.extend([
                of(|outcome| outcome.sender.retransmitted() * 100.0),
                of(|outcome| outcome.sender.in_flight_bytes / 1e3),
                of(|outcome| outcome.sender.rtt_ms),
                of(|outcome| outcome.fidelity.lateness_p99_us),
                of(Outcome::other_cpus),
                group.remarks(),
            ]);
            row
        })
        .collect();
    format!("<h3>Measurements</h3>\n{}", table("figures", &head, &rows))
}

fn how(results: &Results, groups: &[Group<'_>]) -> String {
    let run = &results.scenario.run;
    let mut text = match results.scenario.work.file {
        None => format!(
            "Memory to memory (/dev/zero to /dev/null) without end. Goodput is the payload that \
             the receiving kernel took in order, over {} from {} after the first data; headers, \
             retransmissions, login and the ramp are not in it.",
            run.measure, run.ramp
        ),
        Some(size) => format!(
            "A file of {size} from memory to /dev/null. Goodput is its size over the life of the \
             client's process, login included."
        ),
    };
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
    let outcomes: Vec<&Outcome> = groups.iter().flat_map(Group::used).collect();
    let p99: Vec<f64> = outcomes
        .iter()
        .map(|o| o.fidelity.lateness_p99_us)
        .collect();
    let emulator: Vec<f64> = outcomes.iter().map(|o| o.fidelity.emulator_cpus).collect();
    if let (Some(p99), Some(cpus)) = (stats::median(&p99), stats::median(&emulator)) {
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
    format!("<h3>How it was measured</h3>\n<p>{}</p>\n", escape(&text))
}

fn environment(results: &Results) -> String {
    let here = &results.environment;
    let programs: Vec<String> = (here.programs.iter())
        .map(|(name, version)| {
            if version.starts_with(name.as_str()) {
                version.clone()
            } else {
                format!("{name}: {version}")
            }
        })
        .collect();
    let rows: Vec<Vec<String>> = [
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
        ("kernel", format!("Linux {}", here.kernel)),
        ("programs", programs.join("\n")),
        ("lab", format!("godwit-lab {}", here.lab)),
        ("seed", results.scenario.run.seed.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| vec![name.to_owned(), value])
    .collect();
    format!(
        "<h3>Environment</h3>\n{}<details><summary>The scenario</summary>\n<pre>{}</pre></details>\n",
        table("words", &["", ""], &rows),
        escape(&results.scenario_text)
    )
}
