//! The main figure of a scenario: which cells become which points.

use super::chart::{Axis, Bar, Figure, Look, Panel, Point, Scale, Series};
use super::format::short;
use super::group::{Curve, Group, curves};
use crate::runner::Results;
use crate::scenario::{Cell, Facet, Scenario, X};

/// Points of a computed curve.
const CURVE_POINTS: u32 = 120;

/// The figure of results; `None` when nothing was measured.
pub(super) fn figure(results: &Results, groups: &[Group<'_>]) -> Option<Figure> {
    let measured: Vec<&Group<'_>> = groups
        .iter()
        .filter(|group| group.goodput().is_some())
        .collect();
    if measured.is_empty() {
        return None;
    }
    if results.scenario.figure.x == X::Method {
        return Some(bars(results, &measured));
    }
    let mut titles: Vec<String> = Vec::new();
    for group in &measured {
        let title = facets(&results.scenario.figure.panels, group);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let highest = (measured.iter())
        .filter_map(|group| Some(group.goodput()?.high().max(group.goodput()?.max)))
        .fold(0.0, f64::max);
    let shared: Vec<f64> = (measured.iter())
        .filter_map(|group| Some(group.goodput()?.median))
        .chain([highest.min(capacity(&results.scenario, &measured))])
        .collect();
    let panels = (titles.into_iter())
        .map(|title| {
            let inside: Vec<&Group<'_>> = (measured.iter().copied())
                .filter(|group| facets(&results.scenario.figure.panels, group) == title)
                .collect();
            panel(results, title, &inside, &shared)
        })
        .collect();
    Some(Figure::Lines {
        name: results.scenario.title.clone(),
        columns: None,
        panels,
    })
}

fn capacity(scenario: &Scenario, groups: &[&Group<'_>]) -> f64 {
    (groups.iter())
        .map(|group| scenario.capacity_bps(&group.cell) / 1e6)
        .fold(0.0, f64::max)
}

fn facets(facets: &[Facet], group: &Group<'_>) -> String {
    let texts: Vec<String> = facets
        .iter()
        .map(|facet| group.cell.facet(*facet, group.method))
        .collect();
    texts.join(", ")
}

/// What the figure shows and how sure it is.
pub(super) fn caption(results: &Results, groups: &[Group<'_>]) -> String {
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
    if groups
        .iter()
        .flat_map(Group::used)
        .any(|outcome| outcome.stopped)
    {
        text.push_str(" Runs that took too long were stopped: the table says which.");
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

/// One series with its groups: those that agree in all that sets series apart.
struct Line<'a> {
    /// Everything but the method.
    variant: String,
    groups: Vec<&'a Group<'a>>,
}

fn panel(results: &Results, title: String, groups: &[&Group<'_>], heights: &[f64]) -> Panel {
    let scenario = &results.scenario;
    let axis = scenario.figure.x;
    let facets_of_series = scenario.series_facets();
    let variants: Vec<Facet> = (facets_of_series.iter().copied())
        .filter(|facet| *facet != Facet::Method)
        .collect();
    let by_method = facets_of_series.contains(&Facet::Method);

    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for group in groups {
        let variant = facets(&variants, group);
        if !names.contains(&variant) {
            names.push(variant.clone());
        }
        let same = |line: &&mut Line<'_>| {
            line.variant == variant && line.groups[0].method.name == group.method.name
        };
        match lines.iter_mut().find(same) {
            Some(line) => line.groups.push(group),
            None => lines.push(Line {
                variant,
                groups: vec![group],
            }),
        }
    }

    let colour_by_variant = names.len() > 1;
    let method_number = |group: &Group<'_>| {
        (scenario.method.iter())
            .position(|m| m.name == group.method.name)
            .unwrap_or(0)
    };
    let mut series = Vec::new();
    let curves = curves(results);
    for (number, curve) in curves.iter().enumerate() {
        for (index, name) in names.iter().enumerate() {
            let fixed = |line: &&Line<'_>| !line.groups[0].method.is_tuned();
            let mut of_name = lines.iter().filter(|line| line.variant == *name);
            let Some(line) = of_name.find(fixed) else {
                continue;
            };
            series.push(Series {
                label: curve.label.clone(),
                colour: colour_by_variant.then_some(index),
                look: Look::Computed(number),
                points: curve_points(scenario, curve, axis, &line.groups),
            });
        }
    }
    for line in &lines {
        let index = names.iter().position(|name| *name == line.variant);
        let points = line.groups.iter().filter_map(|group| {
            let simulated = group.simulated(|run| run.goodput_bps / 1e6)?;
            Some(Point::at(group.cell.x(axis)?, simulated.median))
        });
        let points: Vec<Point> = points.collect();
        if !points.is_empty() {
            series.push(Series {
                label: "simulated".to_owned(),
                colour: index.filter(|_| colour_by_variant),
                look: Look::Computed(curves.len()),
                points,
            });
        }
        let first = line.groups[0];
        // Where each method has a panel of its own, shapes have nothing to tell.
        let shape = if by_method { method_number(first) } else { 0 };
        let colour = if colour_by_variant {
            names
                .iter()
                .position(|name| *name == line.variant)
                .unwrap_or(0)
        } else {
            method_number(first)
        };
        let mut label = Vec::new();
        if !line.variant.is_empty() {
            label.push(line.variant.clone());
        }
        let named = label.iter().any(|part| part.contains(&first.method.label));
        if !named && (by_method || label.is_empty()) {
            label.push(first.method.label.clone());
        }
        series.push(Series {
            label: label.join(", "),
            colour: Some(colour),
            look: Look::Measured(shape),
            points: line
                .groups
                .iter()
                .filter_map(|group| point(group, axis))
                .collect(),
        });
    }
    series.extend(published(results, groups));

    let xs: Vec<f64> = groups
        .iter()
        .filter_map(|group| group.cell.x(axis))
        .collect();
    let x_scale = if scenario.figure.log_x {
        Scale::Log
    } else {
        Scale::Linear
    };
    let y_scale = if scenario.figure.log_y {
        Scale::Log
    } else {
        Scale::Linear
    };
    let mut x = Axis::at(x_label(axis), x_scale, xs);
    // What a tuner settled at is no tick, but has its place.
    for at in groups.iter().filter_map(|group| place(group, axis)) {
        (x.low, x.high) = (x.low.min(at), x.high.max(at));
    }
    Panel {
        title,
        x,
        y: Axis::over("Goodput, Mbit/s", y_scale, heights.iter().copied()),
        series,
    }
}

fn x_label(axis: X) -> &'static str {
    match axis {
        X::Channels => "Parallel channels N",
        X::Rate => "Rate of the bottleneck, Mbit/s",
        X::Delay => "One-way delay, ms",
        X::Loss => "Random loss, %",
        X::Background => "Background traffic, % of the link",
        X::FileSize => "Size of a file, kB",
        X::Nodes => "Data nodes",
        X::Method => "",
    }
}

/// The interval drawn around a mean: the confidence interval, or for fewer than three runs, where
/// that says nothing, their range.
fn interval(group: &Group<'_>) -> Option<(f64, f64)> {
    let goodput = group.goodput()?;
    match goodput.count {
        1 => None,
        2 => Some((goodput.min, goodput.max)),
        _ => Some((goodput.low().max(0.0), goodput.high())),
    }
}

/// Where a group stands on the horizontal axis; a tuner at the channels that it settled at.
fn place(group: &Group<'_>, axis: X) -> Option<f64> {
    let settled = || {
        Some(
            group
                .summary(|outcome| outcome.channels_mean)?
                .median
                .max(1.0),
        )
    };
    match axis {
        X::Channels => group.cell.x(axis).or_else(settled),
        _ => group.cell.x(axis),
    }
}

fn point(group: &Group<'_>, axis: X) -> Option<Point> {
    let goodput = group.goodput()?;
    Some(Point {
        x: place(group, axis)?,
        y: goodput.mean,
        interval: interval(group),
        tip: format!(
            "{}, N = {}: {} Mbit/s ({} to {}, {} runs)",
            group.method.label,
            place(group, X::Channels).map_or_else(|| "?".to_owned(), short),
            short(goodput.mean),
            short(goodput.min),
            short(goodput.max),
            goodput.count
        ),
        doubtful: group.only_unfaithful(),
    })
}

fn curve_points(scenario: &Scenario, curve: &Curve, axis: X, groups: &[&Group<'_>]) -> Vec<Point> {
    let computed =
        |x: f64, cell: &Cell, channels: f64| Point::at(x, curve.goodput(scenario, cell, channels));
    if axis == X::Channels {
        let numbers = groups.iter().map(|group| f64::from(group.cell.channels));
        let low = numbers.clone().fold(f64::INFINITY, f64::min);
        let high = numbers.fold(1.0, f64::max);
        let cell = &groups[0].cell;
        return (0..=CURVE_POINTS)
            .map(|i| low * (high / low).powf(f64::from(i) / f64::from(CURVE_POINTS)))
            .map(|n| computed(n, cell, n))
            .collect();
    }
    (groups.iter())
        .filter_map(|group| {
            let channels = f64::from(group.cell.channels);
            Some(computed(group.cell.x(axis)?, &group.cell, channels))
        })
        .collect()
}

/// The paper's values that lie in this panel.
fn published(results: &Results, groups: &[&Group<'_>]) -> Option<Series> {
    let axis = results.scenario.figure.x;
    let points: Vec<Point> = (results.scenario.paper.iter())
        .filter_map(|paper| {
            let there = groups.iter().find(|group| group.cell.is_at(&paper.at))?;
            let y = paper.goodput?.0 / 1e6;
            Some(Point {
                tip: format!("paper, {}: {}", paper.source, paper.value),
                ..Point::at(there.cell.x(axis)?, y)
            })
        })
        .collect();
    (!points.is_empty()).then(|| Series {
        label: "paper".to_owned(),
        colour: None,
        look: Look::Published,
        points,
    })
}

fn bars(results: &Results, groups: &[&Group<'_>]) -> Figure {
    let bars: Vec<Bar> = (groups.iter())
        .filter_map(|group| {
            let goodput = group.goodput()?;
            let variant = facets(&results.scenario.series_facets(), group);
            let label = if variant.is_empty() {
                group.method.label.clone()
            } else {
                format!("{}, {variant}", group.method.label)
            };
            Some(Bar {
                label,
                colour: usize::from(group.cell.channels != 1),
                value: goodput.mean,
                interval: interval(group),
                text: short(goodput.mean),
            })
        })
        .collect();
    let ends = bars
        .iter()
        .map(|bar| bar.interval.map_or(bar.value, |(_, high)| high));
    Figure::Bars {
        name: results.scenario.title.clone(),
        axis: Axis::over("Goodput, Mbit/s", Scale::Linear, ends),
        bars,
    }
}
