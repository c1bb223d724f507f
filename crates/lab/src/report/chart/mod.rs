//! Figures: panels of lines with confidence bands, or bars, as one SVG each.
//!
//! Colours are CSS variables, so that one figure serves light and dark pages and paper; series also
//! differ in the shape of their points. Widths of text are estimated, since nothing here knows
//! fonts.

mod bars;
mod labels;
mod lines;
mod scale;
mod svg;

pub use scale::{Axis, Scale, number};
pub use svg::escape;

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

impl Point {
    /// One that tells nothing but where it is.
    pub fn at(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            interval: None,
            tip: String::new(),
            doubtful: false,
        }
    }
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
    /// Against time: a line alone, for there are many points.
    Course,
    /// Moments on a course: points alone, not named.
    Marks,
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
        /// Panels beside each other; `None` for as many as look well.
        columns: Option<usize>,
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
            Figure::Lines {
                name,
                columns,
                panels,
            } => lines::draw(name, panels, *columns, id, style),
            Figure::Bars { name, axis, bars } => bars::draw(name, axis, bars, style),
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

#[allow(clippy::cast_precision_loss, reason = "lengths of labels")]
fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

fn colour_class(colour: Option<usize>) -> String {
    colour.map_or("neutral".to_owned(), |colour| {
        format!("c{}", colour % COLOURS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_without_data_is_still_a_figure() {
        let empty = Figure::Lines {
            name: "nothing".into(),
            columns: None,
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
            columns: Some(2),
            panels: vec![panel],
        };
        let svg = one.to_svg("f", false);
        assert!(
            svg.contains("axes &lt;alone&gt;") && !svg.contains("NaN"),
            "{svg}"
        );
    }
}
