//! Panels of lines, bands and points.

use super::labels;
use super::svg::{Anchor, Svg};
use super::{Frame, Look, Panel, Series, colour_class, width_of};

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
pub(super) fn draw(
    name: &str,
    panels: &[Panel],
    columns: Option<usize>,
    id: &str,
    style: Option<&str>,
) -> String {
    let columns = columns.unwrap_or(match panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    });
    let single = panels.len() == 1;
    let (width, inner_height) = if single {
        (760.0, 330.0)
    } else {
        (1000.0, 240.0)
    };
    let mut svg = Svg::default();
    let mut top = labels::legend(&mut svg, panels, single, width) + 12.0;
    let label_room = if single {
        labels::direct_room(panels)
    } else {
        14.0
    };
    let column_width = width / columns as f64;
    for (row, of_row) in panels.chunks(columns).enumerate() {
        let titled = of_row.iter().any(|panel| !panel.title.is_empty());
        let head = if titled { 46.0 } else { 30.0 };
        for (column, panel) in of_row.iter().enumerate() {
            let frame = Frame {
                left: column as f64 * column_width + 52.0,
                top: top + head,
                width: column_width - 52.0 - label_room,
                height: inner_height,
            };
            let id = format!("{id}-{row}-{column}");
            draw_panel(&mut svg, panel, frame, &id, single);
        }
        top += head + inner_height + 52.0;
    }
    svg.finish(width, top, name, style)
}

fn draw_panel(svg: &mut Svg, panel: &Panel, frame: Frame, id: &str, direct: bool) {
    draw_axes(svg, panel, frame);
    let place = |x: f64, y: f64| (frame.x(panel.x.place(x)), frame.y(panel.y.place(y)));
    svg.clipped(
        id,
        (frame.left - 6.0, frame.top - 6.0),
        frame.width + 12.0,
        frame.height + 7.0,
        |svg| {
            for series in &panel.series {
                draw_series(svg, series, &place);
            }
        },
    );
    if direct {
        labels::direct(svg, panel, frame);
    }
}

fn draw_axes(svg: &mut Svg, panel: &Panel, frame: Frame) {
    if !panel.title.is_empty() {
        svg.text(
            "title",
            (frame.left, frame.top - 30.0),
            Anchor::Start,
            &panel.title,
        );
    }
    svg.text(
        "axis",
        (frame.left - 44.0, frame.top - 14.0),
        Anchor::Start,
        &panel.y.label,
    );
    for (value, text) in &panel.y.ticks {
        let y = frame.y(panel.y.place(*value));
        svg.line("grid", (frame.left, y), (frame.right(), y));
        svg.text("tick", (frame.left - 7.0, y + 4.0), Anchor::End, text);
    }
    let bottom = frame.bottom();
    svg.line("frame", (frame.left, bottom), (frame.right(), bottom));
    let mut taken = f64::NEG_INFINITY;
    for (value, text) in &panel.x.ticks {
        let x = frame.x(panel.x.place(*value));
        svg.line("frame", (x, bottom), (x, bottom + 4.0));
        // Ticks that lie close go without text.
        let half = width_of(text) / 2.0;
        if x - half > taken {
            svg.text("tick", (x, bottom + 17.0), Anchor::Middle, text);
            taken = x + half + 3.0;
        }
    }
    let middle = frame.left + frame.width / 2.0;
    svg.text(
        "axis",
        (middle, bottom + 36.0),
        Anchor::Middle,
        &panel.x.label,
    );
}

fn draw_series(svg: &mut Svg, series: &Series, place: &dyn Fn(f64, f64) -> (f64, f64)) {
    let class = colour_class(series.colour);
    let line: Vec<(f64, f64)> = series.points.iter().map(|p| place(p.x, p.y)).collect();
    match series.look {
        Look::Computed(dashes) => {
            svg.polyline(&format!("computed dash{} {class}", dashes % 3), &line);
        }
        Look::Course => svg.polyline(&format!("line course {class}"), &line),
        Look::Marks => {
            for (point, at) in series.points.iter().zip(&line) {
                svg.point(&format!("point {class}"), 0, *at, &point.tip);
            }
        }
        Look::Published => {
            for (point, at) in series.points.iter().zip(&line) {
                svg.point(&format!("published {class}"), 3, *at, &point.tip);
            }
        }
        Look::Measured(shape) => {
            let with_interval = || {
                (series.points.iter())
                    .filter_map(|point| point.interval.map(|interval| (point, interval)))
            };
            let upper = with_interval().map(|(p, (_, high))| place(p.x, high));
            let lower = with_interval().map(|(p, (low, _))| place(p.x, low));
            let lower: Vec<(f64, f64)> = lower.collect();
            if lower.len() > 1 {
                let band: Vec<(f64, f64)> = upper.chain(lower.into_iter().rev()).collect();
                svg.polygon(&format!("band {class}"), &band);
            }
            // A band narrower than a point is not seen; whiskers are, when they are wide.
            for (point, (low, high)) in with_interval() {
                svg.line(
                    &format!("whisker {class}"),
                    place(point.x, low),
                    place(point.x, high),
                );
            }
            svg.polyline(&format!("line {class}"), &line);
            for (point, at) in series.points.iter().zip(&line) {
                let kind = if point.doubtful {
                    "point hollow"
                } else {
                    "point"
                };
                svg.point(&format!("{kind} {class}"), shape, *at, &point.tip);
            }
        }
    }
}
