//! Figures: panels of lines with confidence bands, or bars, as one SVG each.
//!
//! Colours are CSS variables, so that one figure serves light and dark pages and paper; series also
//! differ in the shape of their points. Widths of text are estimated, since nothing here knows
//! fonts.

mod scale;
mod svg;

pub use scale::{Axis, Scale, number};
pub use svg::escape;

use svg::{Anchor, Svg};

/// Styles of figures, for pages that hold them; [`Figure::to_svg`] can put it inside.
pub const STYLE: &str = include_str!("chart.css");

/// Colours that differ; further series start again with the first.
pub const COLOURS: usize = 8;

/// A measured or computed point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Horizontal.
    pub x: f64,
    /// Vertical.
    pub y: f64,
    /// Interval around `y`.
    pub interval: Option<(f64, f64)>,
    /// What pointing at it tells.
    pub tip: String,
    /// Whether it is doubtful: drawn hollow.
    pub doubtful: bool,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Measured: line, band and points of the shape with this number.
    Measured(usize),
    /// Computed: a dashed line, the dashes by number.
    Computed(usize),
    /// Published by others: points alone.
    Published,
}

/// A line of points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name.
    pub label: String,
    /// Number of its colour; `None` is neutral.
    pub colour: Option<usize>,
    /// How it is drawn.
    pub look: Look,
    /// From left to right.
    pub points: Vec<Point>,
}

/// One coordinate system.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What sets it apart from its neighbours; may be empty.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Drawn in this order.
    pub series: Vec<Series>,
}

/// A bar with its interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Name.
    pub label: String,
    /// Number of its colour.
    pub colour: usize,
    /// Length.
    pub value: f64,
    /// Interval around it.
    pub interval: Option<(f64, f64)>,
    /// Text at its end.
    pub text: String,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// Lines in one or more panels.
    Lines {
        /// What it shows, for those who cannot see it.
        name: String,
        /// In rows.
        panels: Vec<Panel>,
    },
    /// Horizontal bars.
    Bars {
        /// What it shows, for those who cannot see it.
        name: String,
        /// Horizontal axis.
        axis: Axis,
        /// From above.
        bars: Vec<Bar>,
    },
}

/// Estimated width of a character at 12 px.
const CHARACTER: f64 = 6.6;

impl Figure {
    /// As an element of a page, or with `alone` as a file of its own. `id` starts the ids of parts
    /// and must be unique in the page.
    pub fn to_svg(&self, id: &str, alone: bool) -> String {
        let style = alone.then_some(STYLE);
        match self {
            Figure::Lines { name, panels } => lines(name, panels, id, style),
            Figure::Bars { name, axis, bars } => draw_bars(name, axis, bars, style),
        }
    }
}

/// Position and size of the inside of a panel, px.
#[derive(Debug, Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn x(&self, place: f64) -> f64 {
        self.left + place * self.width
    }

    fn y(&self, place: f64) -> f64 {
        self.top + (1.0 - place) * self.height
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn lines(name: &str, panels: &[Panel], id: &str, style: Option<&str>) -> String {
    let columns = match panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    let single = panels.len() == 1;
    let (width, inner_height) = if single {
        (760.0, 330.0)
    } else {
        (1000.0, 240.0)
    };
    let mut svg = Svg::default();
    let mut top = legend(&mut svg, panels, single, width) + 12.0;
    let label_room = if single {
        direct_label_room(panels)
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

/// Draws what the series are called; how high it got. In a figure of one panel measured series are
/// named where they end, so only the others stand here.
fn legend(svg: &mut Svg, panels: &[Panel], single: bool, width: f64) -> f64 {
    let mut known: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        let named_elsewhere = single && matches!(series.look, Look::Measured(_));
        // Computed curves are many, one a colour; the first stands for all.
        let same = |other: &&Series| {
            other.label == series.label
                && (other.look == series.look)
                && (other.colour == series.colour || matches!(series.look, Look::Computed(_)))
        };
        if !named_elsewhere && !series.label.is_empty() && !known.iter().any(same) {
            known.push(series);
        }
    }
    let (mut x, mut y) = (52.0, 14.0);
    for series in &known {
        let room = 34.0 + width_of(&series.label) + 18.0;
        if x + room > width && x > 52.0 {
            x = 52.0;
            y += 20.0;
        }
        let neutral = matches!(series.look, Look::Computed(_)) && !single;
        let class = colour_class(if neutral { None } else { series.colour });
        match series.look {
            Look::Measured(shape) => {
                svg.line(&format!("line {class}"), (x, y - 4.0), (x + 26.0, y - 4.0));
                svg.point(&format!("point {class}"), shape, (x + 13.0, y - 4.0), "");
            }
            Look::Computed(dashes) => {
                let class = format!("computed dash{} {class}", dashes % 3);
                svg.line(&class, (x, y - 4.0), (x + 26.0, y - 4.0));
            }
            Look::Published => {
                svg.point(&format!("published {class}"), 3, (x + 13.0, y - 4.0), "");
            }
        }
        svg.text("label", (x + 32.0, y), Anchor::Start, &series.label);
        x += room;
    }
    if known.is_empty() { 0.0 } else { y }
}

#[allow(clippy::cast_precision_loss, reason = "lengths of labels")]
fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

fn direct_label_room(panels: &[Panel]) -> f64 {
    let widest = (panels.iter().flat_map(|panel| &panel.series))
        .filter(|series| matches!(series.look, Look::Measured(_)))
        .map(|series| width_of(&series.label))
        .fold(0.0, f64::max);
    widest + 22.0
}

fn colour_class(colour: Option<usize>) -> String {
    colour.map_or("neutral".to_owned(), |colour| {
        format!("c{}", colour % COLOURS)
    })
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
        draw_direct_labels(svg, panel, frame);
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

/// Names measured series at their last points, moved apart where they would overlap.
fn draw_direct_labels(svg: &mut Svg, panel: &Panel, frame: Frame) {
    const APART: f64 = 15.0;
    let mut labels: Vec<(f64, f64, &Series)> = (panel.series.iter())
        .filter(|series| matches!(series.look, Look::Measured(_)))
        .filter_map(|series| {
            let last = series.points.last()?;
            let y = frame.y(panel.y.place(last.y).clamp(0.0, 1.0));
            Some((frame.x(panel.x.place(last.x)), y, series))
        })
        .collect();
    labels.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places: Vec<f64> = labels.iter().map(|label| label.1).collect();
    spread(&mut places, APART, frame.top, frame.bottom());
    let left = frame.right() + 14.0;
    for ((x, y, series), place) in labels.iter().zip(places) {
        let class = colour_class(series.colour);
        svg.line(
            &format!("leader {class}"),
            (x + 5.0, *y),
            (left - 3.0, place),
        );
        svg.text(
            &format!("label {class}"),
            (left, place + 4.0),
            Anchor::Start,
            &series.label,
        );
    }
}

/// Moves sorted places at least `apart` from each other, within bounds where there is room, as
/// little as may be: groups that touch are centred on the mean of where they wanted to be.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn spread(places: &mut [f64], apart: f64, low: f64, high: f64) {
    // Each cluster: first index, count, centre.
    let mut clusters: Vec<(usize, usize, f64)> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        clusters.push((index, 1, *place));
        while let [.., before, last] = clusters[..] {
            let reach = (before.1 + last.1) as f64 / 2.0 * apart;
            if last.2 - before.2 >= reach {
                break;
            }
            let count = before.1 + last.1;
            let centre = (before.2 * before.1 as f64 + last.2 * last.1 as f64) / count as f64;
            clusters.truncate(clusters.len() - 2);
            clusters.push((before.0, count, centre));
        }
    }
    for (first, count, centre) in clusters {
        let half = (count - 1) as f64 * apart / 2.0;
        let centre = centre.min(high - half).max(low + half);
        for offset in 0..count {
            places[first + offset] = centre - half + offset as f64 * apart;
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn draw_bars(name: &str, axis: &Axis, bars: &[Bar], style: Option<&str>) -> String {
    const ROW: f64 = 30.0;
    let label_room = bars
        .iter()
        .map(|bar| width_of(&bar.label))
        .fold(0.0, f64::max)
        + 18.0;
    let text_room = bars
        .iter()
        .map(|bar| width_of(&bar.text))
        .fold(0.0, f64::max)
        + 14.0;
    let width = 760.0;
    let frame = Frame {
        left: label_room,
        top: 8.0,
        width: width - label_room - text_room,
        height: bars.len() as f64 * ROW,
    };
    let mut svg = Svg::default();
    for (value, text) in &axis.ticks {
        let x = frame.x(axis.place(*value));
        svg.line("grid", (x, frame.top), (x, frame.bottom()));
        svg.text("tick", (x, frame.bottom() + 16.0), Anchor::Middle, text);
    }
    for (index, bar) in bars.iter().enumerate() {
        let top = frame.top + index as f64 * ROW + 6.0;
        let middle = top + (ROW - 12.0) / 2.0;
        let end = frame.x(axis.place(bar.value).clamp(0.0, 1.0));
        let class = colour_class(Some(bar.colour));
        svg.text(
            "label",
            (frame.left - 8.0, middle + 4.0),
            Anchor::End,
            &bar.label,
        );
        svg.rectangle(
            &format!("bar {class}"),
            (frame.left, top),
            end - frame.left,
            ROW - 12.0,
        );
        let mut text_at = end;
        if let Some((low, high)) = bar.interval {
            let x = |value| frame.x(axis.place(value).clamp(0.0, 1.0));
            svg.line("whisker neutral", (x(low), middle), (x(high), middle));
            text_at = text_at.max(x(high));
        }
        svg.text(
            "label",
            (text_at + 8.0, middle + 4.0),
            Anchor::Start,
            &bar.text,
        );
    }
    let middle = frame.left + frame.width / 2.0;
    svg.text(
        "axis",
        (middle, frame.bottom() + 36.0),
        Anchor::Middle,
        &axis.label,
    );
    svg.finish(width, frame.bottom() + 46.0, name, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_moved_apart_and_stay_inside() {
        let mut places = [100.0, 101.0, 102.0, 300.0];
        spread(&mut places, 15.0, 0.0, 310.0);
        assert_eq!(places, [86.0, 101.0, 116.0, 300.0]);
        let mut low = [309.0, 310.0];
        spread(&mut low, 15.0, 0.0, 310.0);
        assert_eq!(low, [295.0, 310.0]);
        spread(&mut [], 15.0, 0.0, 1.0);
    }

    #[test]
    fn a_figure_without_data_is_still_a_figure() {
        let empty = Figure::Lines {
            name: "nothing".into(),
            panels: Vec::new(),
        };
        assert!(empty.to_svg("f", true).starts_with("<svg"));
        let panel = Panel {
            title: String::new(),
            x: Axis::at("x", Scale::Log, vec![]),
            y: Axis::over("y", Scale::Linear, []),
            series: vec![],
        };
        let one = Figure::Lines {
            name: "axes <alone>".into(),
            panels: vec![panel],
        };
        let svg = one.to_svg("f", false);
        assert!(
            svg.contains("axes &lt;alone&gt;") && !svg.contains("NaN"),
            "{svg}"
        );
    }
}
