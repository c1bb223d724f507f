//! The figure of transfers against time: goodput, channels, decisions.

use super::chart::{Axis, Figure, Look, Panel, Point, Scale, Series};
use super::group::{Group, varying};
use super::judged::phases;
use crate::judge::Phase;
use crate::runner::{Choice, Course, Evolution, Results};
use crate::scenario::Method;

/// Panels beside each other: goodput and channels.
const COLUMNS: usize = 2;

/// Settings that are worth a mark each; of a tuner that changes its mind every epoch more would
/// only make a line.
const MARKS_MAX: usize = 200;

/// One row of the figure: transfers that share axes.
struct Row<'a> {
    title: String,
    /// Colour, name and course of each.
    courses: Vec<(usize, String, &'a Course)>,
    phases: Vec<Phase>,
    bin_seconds: f64,
    beside_bps: &'a [f64],
}

/// Tuned methods and simultaneous transfers: a row for each cell, and one for each method with
/// several transfers. Each is shown by its first faithful run, since decisions of repeats do not
/// line up. `None` when nothing evolves.
pub(super) fn figure(results: &Results, groups: &[Group<'_>]) -> Option<Figure> {
    let rows = rows(results, groups);
    let panels: Vec<Panel> = rows.iter().flat_map(|row| panels(results, row)).collect();
    (!panels.is_empty()).then(|| Figure::Lines {
        name: format!("{}: against time", results.scenario.title),
        columns: Some(COLUMNS),
        panels,
    })
}

fn rows<'a>(results: &Results, groups: &'a [Group<'a>]) -> Vec<Row<'a>> {
    let facets = varying(groups);
    let number = |method: &Method| {
        let same = |other: &Method| other.name == method.name;
        results.scenario.method.iter().position(same).unwrap_or(0)
    };
    let mut rows: Vec<(&Group<'_>, Row<'a>)> = Vec::new();
    for group in groups {
        let method = group.method;
        let Some(evolution) = shown(group) else {
            continue;
        };
        let single = method.transfers == 1;
        let courses = evolution
            .transfers
            .iter()
            .enumerate()
            .map(|(index, course)| {
                if single {
                    (number(method), method.label.clone(), course)
                } else {
                    (index, format!("transfer {}", index + 1), course)
                }
            });
        let same_row = |(first, _): &&mut (&Group<'_>, Row<'a>)| {
            single && first.method.transfers == 1 && first.cell == group.cell
        };
        if let Some((_, row)) = rows.iter_mut().find(same_row) {
            row.courses.extend(courses);
            continue;
        }
        let mut title: Vec<String> = (facets.iter())
            .map(|facet| group.cell.facet(*facet, method))
            .collect();
        if !single {
            title.insert(0, method.label.clone());
        } else if groups.iter().any(|group| group.method.transfers > 1) {
            title.insert(0, "one transfer at a time".to_owned());
        }
        let row = Row {
            title: title.join(", "),
            courses: courses.collect(),
            phases: phases(results, groups, group).unwrap_or_default(),
            bin_seconds: evolution.bin_seconds,
            beside_bps: &evolution.beside_bps,
        };
        rows.push((group, row));
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The run that stands for a group; `None` where static settings are only what others are held
/// against.
fn shown<'a>(group: &'a Group<'a>) -> Option<&'a Evolution> {
    let judged = group.method.is_tuned() || group.method.transfers > 1;
    (group.used().filter(|_| judged)).find_map(|outcome| outcome.evolution.as_ref())
}

fn panels(results: &Results, row: &Row<'_>) -> [Panel; 2] {
    let seconds = results.scenario.run.evolve.map_or(1.0, |evolve| evolve.0);
    let time = || Axis::over("Time from the first data, s", Scale::Linear, [seconds]);
    let mut goodput: Vec<Series> = Vec::new();
    let mut channels: Vec<Series> = Vec::new();
    if !row.phases.is_empty() {
        let ends =
            |phase: &Phase| [phase.from, phase.until].map(|x| Point::at(x, phase.best_bps / 1e6));
        goodput.push(Series {
            label: "best static".to_owned(),
            colour: None,
            look: Look::Computed(0),
            points: row.phases.iter().flat_map(ends).collect(),
        });
    }
    if !row.beside_bps.is_empty() {
        goodput.push(Series {
            label: "other TCP".to_owned(),
            colour: None,
            look: Look::Course,
            points: middles(row.beside_bps, row.bin_seconds),
        });
    }
    for (colour, label, course) in &row.courses {
        let series = |look, label: &str, points| Series {
            label: label.to_owned(),
            colour: Some(*colour),
            look,
            points,
        };
        goodput.push(series(
            Look::Course,
            label,
            middles(&course.goodput_bps, row.bin_seconds),
        ));
        channels.push(series(Look::Course, label, steps(course, row.bin_seconds)));
        // Of one colour with the line that they belong to, so they need no name.
        channels.push(series(Look::Marks, "", marks(course)));
    }
    let heights =
        |all: &[Series]| -> Vec<f64> { all.iter().flat_map(|s| &s.points).map(|p| p.y).collect() };
    let tops = [heights(&goodput), heights(&channels)];
    let [goodput_axis, channel_axis] = [("Goodput, Mbit/s", 0), ("Channels", 1)]
        .map(|(label, index)| Axis::over(label, Scale::Linear, tops[index].iter().copied()));
    for (at, index) in results.scenario.steps().into_iter().zip(0..) {
        let label = if index == 0 {
            "load or path changes"
        } else {
            ""
        };
        for (all, top) in [
            (&mut goodput, goodput_axis.high),
            (&mut channels, channel_axis.high),
        ] {
            all.push(Series {
                label: label.to_owned(),
                colour: None,
                look: Look::Computed(1),
                points: vec![Point::at(at, 0.0), Point::at(at, top)],
            });
        }
    }
    [
        Panel {
            title: row.title.clone(),
            x: time(),
            y: goodput_axis,
            series: goodput,
        },
        Panel {
            title: String::new(),
            x: time(),
            y: channel_axis,
            series: channels,
        },
    ]
}

/// Mbit/s in the middle of each bin.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn middles(goodput_bps: &[f64], bin_seconds: f64) -> Vec<Point> {
    (goodput_bps.iter().enumerate())
        .map(|(bin, bps)| Point::at((bin as f64 + 0.5) * bin_seconds, bps / 1e6))
        .collect()
}

/// Channels as a staircase.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn steps(course: &Course, bin_seconds: f64) -> Vec<Point> {
    (course.channels.iter().enumerate())
        .flat_map(|(bin, &channels)| {
            let start = bin as f64 * bin_seconds;
            [start, start + bin_seconds].map(|x| Point::at(x, f64::from(channels)))
        })
        .collect()
}

/// What its program decided, as far as it changed anything.
fn marks(course: &Course) -> Vec<Point> {
    let setting = |choice: &Choice| (choice.concurrency, choice.parallelism);
    let mut last = None;
    (course.choices.iter())
        .filter(|choice| last.replace(setting(choice)) != Some(setting(choice)))
        .filter(|choice| choice.seconds >= 0.0)
        .take(MARKS_MAX)
        .map(|choice| Point {
            tip: format!(
                "{:.1} s: {} x {}: {}",
                choice.seconds, choice.concurrency, choice.parallelism, choice.reason
            ),
            ..Point::at(
                choice.seconds,
                f64::from(choice.concurrency) * f64::from(choice.parallelism),
            )
        })
        .collect()
}
