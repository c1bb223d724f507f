//! The page of tuners over drawn paths.

use std::fmt::Write as _;

use super::table;
use crate::{
    report::{
        FigureFile,
        chart::{Axis, Bar, Figure, Scale},
    },
    simulate::{
        drawn::Traffic,
        format::SimScenario,
        tuners::{PathResult, TunerRun, TunersResult},
    },
    stats::{median, quantile},
};

pub(super) fn write(
    text: &mut String,
    scenario: &SimScenario,
    result: &TunersResult,
    name: &str,
) -> Vec<FigureFile> {
    let paths: Vec<&PathResult> = result.paths.iter().collect();
    let file = format!("{name}.svg");
    let _ = writeln!(
        text,
        "![{}]({file})\n\nGoodput of the last third over that of the best static number: the \
         median over paths, and the tenth below and above.\n",
        scenario.title
    );
    all(text, "All paths", result, &paths);
    type Is = fn(&PathResult) -> bool;
    let groups: [(&str, Is); 9] = [
        ("Not beside TCP flows of others", |p| {
            !matches!(p.path.traffic, Traffic::Flows(_))
        }),
        ("Round trips below 20 ms", |p| p.path.rtt_s < 0.02),
        ("Round trips of 20 to 100 ms", |p| {
            (0.02..0.1).contains(&p.path.rtt_s)
        }),
        ("Round trips from 100 ms", |p| p.path.rtt_s >= 0.1),
        ("Random loss", |p| p.path.loss > 0.0),
        ("No loss but by the queue", |p| p.path.loss == 0.0),
        ("Beside traffic that does not yield", |p| {
            matches!(p.path.traffic, Traffic::Constant(_))
        }),
        ("Beside TCP flows of others", |p| {
            matches!(p.path.traffic, Traffic::Flows(_))
        }),
        ("Paths that change in mid-transfer", |p| {
            p.path.traffic.changes()
        }),
    ];
    for (title, is) in groups {
        let some: Vec<&PathResult> = paths.iter().copied().filter(|path| is(path)).collect();
        if !some.is_empty() {
            all(text, title, result, &some);
        }
    }
    how(text, &paths);
    worst(text, result, &paths);
    vec![FigureFile {
        name: file,
        svg: figure(result, &paths).to_svg("f", true),
    }]
}

fn all(text: &mut String, title: &str, result: &TunersResult, paths: &[&PathResult]) {
    let _ = writeln!(text, "## {title}: {}\n", paths.len());
    let head = [
        "tuner",
        "steady, % of best static: median",
        "a tenth is below",
        "converged, %",
        "median of these, s",
        "regret, %: median",
        "a tenth is above",
        "channels",
        "times the fewest that suffice",
        "sent again, %",
        "left to others, %",
        "adapted, %",
    ];
    table(
        text,
        &head,
        result.methods.iter().enumerate().map(|(at, method)| {
            let runs: Vec<&TunerRun> = paths.iter().map(|path| &path.runs[at]).collect();
            let over =
                |of: fn(&TunerRun) -> f64| -> Vec<f64> { runs.iter().map(|r| of(r)).collect() };
            let some = |of: fn(&TunerRun) -> Option<f64>| -> Vec<f64> {
                runs.iter().filter_map(|r| of(r)).collect()
            };
            let changed = paths
                .iter()
                .filter(|path| path.path.traffic.changes())
                .count();
            let converged = some(|r| r.convergence_s);
            vec![
                method.clone(),
                percent(median(&over(|r| r.steady))),
                percent(quantile(&over(|r| r.steady), 0.1)),
                percent(share(converged.len(), runs.len())),
                median(&converged).map_or(dash(), |s| format!("{s:.0}")),
                percent(median(&over(|r| r.regret))),
                percent(quantile(&over(|r| r.regret), 0.9)),
                median(&over(|r| r.channels)).map_or(dash(), |n| format!("{n:.1}")),
                median(&over(|r| r.channels_ratio)).map_or(dash(), |n| format!("{n:.2}")),
                median(&over(|r| r.loss)).map_or(dash(), |l| format!("{:.2}", 100.0 * l)),
                percent(median(&some(|r| r.left_to_others))),
                percent(share(some(|r| r.adaptation_s).len(), changed)),
            ]
        }),
    );
}

fn how(text: &mut String, paths: &[&PathResult]) {
    let refused: u32 = paths.iter().map(|path| path.path.refused).sum();
    let segments: Vec<f64> = paths
        .iter()
        .map(|path| f64::from(path.path.segments))
        .collect();
    let single = segments.iter().filter(|n| **n <= 1.0).count();
    let rtts: Vec<f64> = paths.iter().map(|path| 1e3 * path.path.rtt_s).collect();
    let rates: Vec<f64> = paths.iter().map(|path| path.path.rate_bps / 1e6).collect();
    let losses: Vec<f64> = paths.iter().map(|path| 100.0 * path.best_loss).collect();
    let fewest: Vec<f64> = paths
        .iter()
        .map(|path| f64::from(path.sufficient))
        .collect();
    let tenths = |values: &[f64]| -> String {
        let value = |share| quantile(values, share).map_or(dash(), |v| format!("{v:.3}"));
        format!("{}, {}, {}", value(0.1), value(0.5), value(0.9))
    };
    let _ = writeln!(
        text,
        "## How it was simulated\n\n\
         A transfer is judged beside static numbers of channels on the same path and with the same \
         seed. The best static number is the one with most goodput, whatever it leaves to others. \
         Steady is the last third; converged means that every second from then on brought \
         90 % of the best, until the path changed if it did. Left to others is what TCP flows of \
         others moved over what they moved beside one channel.\n\n\
         Paths with many packets a second would take too long, so their packets stand for several \
         segments: windows grow by as many bytes a round trip, but a loss takes all segments of a \
         packet. A window and a round trip keep enough packets; a path where that needs too many \
         is drawn again, {refused} times for these {} paths. So fast paths with short round trips, \
         and fast ones with much loss, are missing. {single} paths have packets of one segment.\n",
        paths.len(),
    );
    table(
        text,
        &["", "tenth, median, nine tenths"],
        [
            vec!["rate, Mbit/s".into(), tenths(&rates)],
            vec!["round trip, ms".into(), tenths(&rtts)],
            vec!["segments a packet".into(), tenths(&segments)],
            vec!["fewest channels that suffice".into(), tenths(&fewest)],
            vec!["sent again with these, %".into(), tenths(&losses)],
        ],
    );
}

/// Paths on which the default tuner did worst, to be looked at.
fn worst(text: &mut String, result: &TunersResult, paths: &[&PathResult]) {
    let Some(at) = result.methods.iter().position(|method| method == "godwit") else {
        return;
    };
    let mut sorted: Vec<&&PathResult> = paths.iter().collect();
    sorted.sort_by(|a, b| a.runs[at].steady.total_cmp(&b.runs[at].steady));
    text.push_str("## Worst for godwit\n\n");
    let head = [
        "path",
        "seed",
        "rate, Mbit/s",
        "RTT, ms",
        "queue, BDP",
        "window, KB",
        "loss, %",
        "segments",
        "fewest",
        "channels",
        "steady, %",
    ];
    table(
        text,
        &head,
        sorted.iter().take(10).map(|found| {
            let path = &found.path;
            vec![
                traffic(path.traffic),
                path.seed.to_string(),
                format!("{:.0}", path.rate_bps / 1e6),
                format!("{:.0}", 1e3 * path.rtt_s),
                format!("{:.2}", path.queue_bdp),
                format!("{:.0}", path.window_bytes / 1e3),
                format!("{:.4}", 100.0 * path.loss),
                path.segments.to_string(),
                found.sufficient.to_string(),
                format!("{:.1}", found.runs[at].channels),
                percent(Some(found.runs[at].steady)),
            ]
        }),
    );
}

fn traffic(traffic: Traffic) -> String {
    match traffic {
        Traffic::None => "alone".into(),
        Traffic::Constant(share) => format!("beside {:.0} %", 100.0 * share),
        Traffic::Flows(flows) => format!("beside {flows} flows"),
        Traffic::Begins(share) => format!("then beside {:.0} %", 100.0 * share),
        Traffic::Slows(share) => format!("then {:.0} % of the rate", 100.0 * share),
    }
}

fn figure(result: &TunersResult, paths: &[&PathResult]) -> Figure {
    let bars = result.methods.iter().enumerate().map(|(at, method)| {
        let steady: Vec<f64> = paths
            .iter()
            .map(|path| 100.0 * path.runs[at].steady)
            .collect();
        let value = |share| quantile(&steady, share).unwrap_or(0.0);
        Bar {
            label: method.clone(),
            colour: usize::from(method != "godwit"),
            value: value(0.5),
            interval: Some((value(0.1), value(0.9))),
            text: format!("{:.1}", value(0.5)),
        }
    });
    let bars: Vec<Bar> = bars.collect();
    let longest = bars
        .iter()
        .filter_map(|bar| bar.interval)
        .map(|(_, high)| high);
    Figure::Bars {
        name: "steady goodput by tuner".into(),
        axis: Axis::over("% of the best static number", Scale::Linear, longest),
        bars,
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of runs")]
fn share(part: usize, of: usize) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

fn percent(value: Option<f64>) -> String {
    value.map_or(dash(), |value| format!("{:.1}", 100.0 * value))
}

fn dash() -> String {
    "–".to_owned()
}
