//! Writes SVG: elements with escaped text, coordinates to a tenth of a pixel.

use std::fmt::Write as _;

/// Text as it may stand in XML and HTML, attributes included.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML at all.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Where text hangs on its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The shape of a point, so that series differ without colour.
const SHAPES: usize = 4;

/// A canvas.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

// Writing to a string cannot fail, so results of write! are dropped below.
impl Svg {
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        );
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let points = coordinates(points.iter());
        let _ = writeln!(
            self.body,
            r#"<polyline class="{class}" points="{points}"/>"#
        );
    }

    pub(super) fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let points = coordinates(points.iter());
        let _ = writeln!(self.body, r#"<polygon class="{class}" points="{points}"/>"#);
    }

    pub(super) fn rectangle(&mut self, class: &str, at: (f64, f64), width: f64, height: f64) {
        let place = rectangle_at(at, width, height);
        let _ = writeln!(self.body, r#"<rect class="{class}" {place}/>"#);
    }

    /// A mark of the shape with this number, with a tip for those who point at it.
    pub(super) fn point(&mut self, class: &str, shape: usize, at: (f64, f64), tip: &str) {
        let (x, y) = at;
        let tip = if tip.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(tip))
        };
        let around = |offsets: &[(f64, f64)]| {
            let points: Vec<(f64, f64)> = offsets.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
            coordinates(points.iter())
        };
        let polygon = match shape % SHAPES {
            0 => {
                let _ = writeln!(
                    self.body,
                    r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.6">{tip}</circle>"#
                );
                return;
            }
            1 => around(&[(-3.3, -3.3), (3.3, -3.3), (3.3, 3.3), (-3.3, 3.3)]),
            2 => around(&[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)]),
            _ => around(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
        };
        let _ = writeln!(
            self.body,
            r#"<polygon class="{class}" points="{polygon}">{tip}</polygon>"#
        );
    }

    /// Limits what `draw` draws to a rectangle; `id` must be unique in the page.
    pub(super) fn clipped(
        &mut self,
        id: &str,
        at: (f64, f64),
        width: f64,
        height: f64,
        draw: impl FnOnce(&mut Svg),
    ) {
        let place = rectangle_at(at, width, height);
        let _ = writeln!(
            self.body,
            r#"<clipPath id="{id}"><rect {place}/></clipPath><g clip-path="url(#{id})">"#
        );
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// The whole element; `style` makes it stand alone as a file.
    pub(super) fn finish(self, width: f64, height: f64, name: &str, style: Option<&str>) -> String {
        // Alone it may lie on a page of any colour, so it brings its own ground.
        let style = style.map_or(String::new(), |style| {
            format!(
                "<style>{style}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
            )
        });
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             aria-label=\"{}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\">\n{style}{}</svg>\n",
            escape(name),
            self.body
        )
    }
}

/// The attributes of a rectangle.
fn rectangle_at((x, y): (f64, f64), width: f64, height: f64) -> String {
    format!(r#"x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#)
}

fn coordinates<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> String {
    let texts: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(
            escape("a<b>&\"c\"\u{1}"),
            "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}"
        );
    }
}
