//! The page of static curves and chunks.

use std::fmt::Write as _;

use super::table;
use crate::{
    report::{
        FigureFile,
        chart::{Axis, Figure, Look, Panel, Point, Scale, Series},
    },
    simulate::{
        channels::{BIN_S, ChannelsResult, ChunkRun, Variant, VariantResult},
        format::{SimPaper, SimScenario},
    },
};

/// A variant is near the paper with a goodput within this share of it,
const NEAR_GOODPUT: f64 = 0.05;
/// and a number of channels within this one.
const NEAR_CHANNELS: f64 = 0.25;
/// Variants whose transfers are drawn in time.
const DRAWN: usize = 4;

pub(super) fn write(
    text: &mut String,
    scenario: &SimScenario,
    result: &ChannelsResult,
    name: &str,
) -> Vec<FigureFile> {
    let paper = scenario.paper;
    if let Some(paper) = paper {
        let _ = writeln!(text, "**{}**\n", sentence(result, &paper));
    }
    let mut files = Vec::new();
    let mut show = |text: &mut String, suffix: &str, figure: Figure, caption: &str| {
        let file = format!("{name}{suffix}.svg");
        let _ = writeln!(text, "![{}]({file})\n\n{caption}\n", scenario.title);
        files.push(FigureFile {
            name: file,
            svg: figure.to_svg("f", true),
        });
    };
    show(
        text,
        "",
        curves(result, paper),
        "Static numbers of channels, one panel for each delay of the access links. The diamond is \
         where the paper's GridFTP-APT ended.",
    );
    if result
        .variants
        .iter()
        .any(|variant| !variant.chunks.is_empty())
    {
        show(
            text,
            "-time",
            in_time(result, paper),
            "The tuner in time on the variants whose best static number comes nearest to the \
             paper's, in bins of half a second. The dashed line is the paper's goodput.",
        );
    }
    text.push_str("## Static numbers of channels\n\n");
    let paper_n = paper.map(|paper| paper.channels);
    let beside = paper_n.map_or("at 1".to_owned(), |n| format!("at {n}, Mbit/s"));
    let head = [
        "variant",
        "best N",
        "there, Mbit/s",
        "range",
        "sent again, %",
        &beside,
        "near",
    ];
    table(
        text,
        &head,
        result.variants.iter().map(|found| {
            let best = found.best();
            let value = |of: fn(&crate::simulate::StaticPoint) -> String| {
                best.as_ref().map_or("–".to_owned(), of)
            };
            vec![
                variant_name(&found.variant),
                value(|p| p.channels.to_string()),
                value(|p| mbit(p.goodput_bps)),
                value(|p| format!("{} – {}", mbit(p.range_bps.0), mbit(p.range_bps.1))),
                value(|p| format!("{:.2}", 100.0 * p.loss_ratio)),
                at(found, paper_n.unwrap_or(1)).map_or("–".to_owned(), mbit),
                yes(paper.is_some_and(|paper| is_near(found, &paper))),
            ]
        }),
    );
    chunks(text, result, paper);
    files
}

fn chunks(text: &mut String, result: &ChannelsResult, paper: Option<SimPaper>) {
    text.push_str("## The tuner in chunks\n\n");
    let rows = result.variants.iter().flat_map(|found| {
        found.chunks.iter().map(move |run| {
            let channels: Vec<String> = run.channels.iter().map(u32::to_string).collect();
            let settled: Vec<String> = run.settled_s.iter().map(|s| format!("{s:.0}")).collect();
            vec![
                variant_name(&found.variant),
                run.label.to_owned(),
                channels.join(", "),
                settled.join(", "),
                mbit(run.goodput_bps),
                yes(paper.is_some_and(|paper| run_is_near(run, &paper))),
            ]
        })
    });
    let head = [
        "variant",
        "connections",
        "N at the end",
        "settled, s",
        "Mbit/s then",
        "near",
    ];
    table(text, &head, rows);
}

/// What was reproduced, in one sentence.
fn sentence(result: &ChannelsResult, paper: &SimPaper) -> String {
    let near = result.variants.iter().filter(|found| is_near(found, paper));
    let runs: Vec<&ChunkRun> = result.variants.iter().flat_map(|v| &v.chunks).collect();
    let runs_near = runs.iter().filter(|run| run_is_near(run, paper)).count();
    format!(
        "The paper's {} at N = {} after {:.0} s: {} of {} variants have their best static number \
         there (N within a quarter, goodput within {:.0} %), and {} of {} transfers under \
         GridFTP-APT end there; which ones, the tables say.",
        paper.goodput,
        paper.channels,
        paper.after.0,
        near.count(),
        result.variants.len(),
        100.0 * NEAR_GOODPUT,
        runs_near,
        runs.len(),
    )
}

fn within(value: f64, of: f64, share: f64) -> bool {
    (value / of - 1.0).abs() <= share
}

fn is_near(found: &VariantResult, paper: &SimPaper) -> bool {
    found.best().is_some_and(|best| {
        within(
            f64::from(best.channels),
            f64::from(paper.channels),
            NEAR_CHANNELS,
        ) && within(best.goodput_bps, paper.goodput.0, NEAR_GOODPUT)
    })
}

/// Every run ended near the paper's number, and their goodput near its goodput.
fn run_is_near(run: &ChunkRun, paper: &SimPaper) -> bool {
    let n = f64::from(paper.channels);
    (run.channels.iter()).all(|channels| within(f64::from(*channels), n, NEAR_CHANNELS))
        && within(run.goodput_bps, paper.goodput.0, NEAR_GOODPUT)
}

/// How far the best static number lies from the paper's: the sum of both relative distances.
fn distance(found: &VariantResult, paper: &SimPaper) -> f64 {
    found.best().map_or(f64::INFINITY, |best| {
        (f64::from(best.channels) / f64::from(paper.channels))
            .ln()
            .abs()
            + (best.goodput_bps / paper.goodput.0).ln().abs()
    })
}

fn at(found: &VariantResult, n: u32) -> Option<f64> {
    let point = found.points.iter().find(|point| point.channels == n)?;
    Some(point.goodput_bps)
}

fn curves(result: &ChannelsResult, paper: Option<SimPaper>) -> Figure {
    let mut delays: Vec<f64> = result
        .variants
        .iter()
        .map(|v| v.variant.access_delay_s)
        .collect();
    delays.dedup();
    delays.sort_by(f64::total_cmp);
    delays.dedup();
    let highest = result
        .variants
        .iter()
        .flat_map(|v| &v.points)
        .map(|p| p.goodput_bps / 1e6);
    let highest: Vec<f64> = highest.collect();
    let numbers: Vec<f64> = (result.variants.iter().take(1))
        .flat_map(|v| &v.points)
        .map(|point| f64::from(point.channels))
        .collect();
    let panels = delays.iter().map(|delay| {
        let of_delay = result
            .variants
            .iter()
            .filter(|v| v.variant.access_delay_s == *delay);
        let lines = of_delay.enumerate().map(|(index, found)| Series {
            label: short_name(&found.variant),
            colour: Some(index),
            look: Look::Measured(index),
            points: (found.points.iter())
                .map(|point| Point {
                    interval: Some((point.range_bps.0 / 1e6, point.range_bps.1 / 1e6)),
                    tip: format!("N = {}: {} Mbit/s", point.channels, mbit(point.goodput_bps)),
                    ..Point::at(f64::from(point.channels), point.goodput_bps / 1e6)
                })
                .collect(),
        });
        let published = paper.map(|paper| Series {
            label: "paper".into(),
            colour: None,
            look: Look::Published,
            points: vec![Point::at(f64::from(paper.channels), paper.goodput.0 / 1e6)],
        });
        Panel {
            title: format!("access links of {:.0} ms", 1e3 * delay),
            x: Axis::at("channels", Scale::Log, numbers.clone()),
            y: Axis::over("goodput, Mbit/s", Scale::Linear, highest.iter().copied()),
            series: lines.chain(published).collect(),
        }
    });
    Figure::Lines {
        name: "goodput against the number of channels".into(),
        columns: Some(2),
        panels: panels.collect(),
    }
}

fn in_time(result: &ChannelsResult, paper: Option<SimPaper>) -> Figure {
    let mut nearest: Vec<&VariantResult> = result.variants.iter().collect();
    if let Some(paper) = paper {
        nearest.sort_by(|a, b| distance(a, &paper).total_cmp(&distance(b, &paper)));
    }
    nearest.truncate(DRAWN);
    let panels = nearest.into_iter().map(|found| {
        let lines = found.chunks.iter().enumerate().map(|(index, run)| Series {
            label: run.label.to_owned(),
            colour: Some(index),
            look: Look::Course,
            points: course(run),
        });
        let end = found
            .chunks
            .iter()
            .map(|run| run.bins_bps.len())
            .max()
            .unwrap_or(0);
        let end = place(end);
        let level = paper.map(|paper| Series {
            label: "paper".into(),
            colour: None,
            look: Look::Computed(0),
            points: [0.0, end]
                .map(|x| Point::at(x, paper.goodput.0 / 1e6))
                .to_vec(),
        });
        Panel {
            title: variant_name(&found.variant),
            x: Axis::over("time, s", Scale::Linear, [end]),
            y: Axis::over("goodput, Mbit/s", Scale::Linear, [100.0]),
            series: lines.chain(level).collect(),
        }
    });
    Figure::Lines {
        name: "goodput of the tuner in time".into(),
        columns: Some(2),
        panels: panels.collect(),
    }
}

fn course(run: &ChunkRun) -> Vec<Point> {
    let bins = run.bins_bps.iter().enumerate();
    bins.map(|(bin, bps)| Point::at(place(bin) + BIN_S / 2.0, bps / 1e6))
        .collect()
}

#[allow(clippy::cast_precision_loss, reason = "numbers of bins")]
fn place(bin: usize) -> f64 {
    bin as f64 * BIN_S
}

fn short_name(variant: &Variant) -> String {
    if !variant.also.is_empty() {
        return variant.also.clone();
    }
    let timers = format!(
        "RTO from {:.1} s, tick {:.0} ms",
        variant.min_rto_s,
        1e3 * variant.tick_s
    );
    match variant.gentle {
        true => format!("gentle, {timers}"),
        false => timers,
    }
}

fn variant_name(variant: &Variant) -> String {
    format!(
        "{:.0} ms, {}",
        1e3 * variant.access_delay_s,
        short_name(variant)
    )
}

fn mbit(bps: f64) -> String {
    format!("{:.1}", bps / 1e6)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "" }.to_owned()
}
