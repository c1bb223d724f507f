//! Horizontal bars.

use super::svg::{Anchor, Svg};
use super::{Axis, Bar, Frame, colour_class, width_of};

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
pub(super) fn draw(name: &str, axis: &Axis, bars: &[Bar], style: Option<&str>) -> String {
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
