//! The names of series: a legend, or labels where lines end.

use super::svg::{Anchor, Svg};
use super::{Frame, Look, Panel, Series, colour_class, width_of};

/// Draws what the series are called; how high it got. In a figure of one panel measured series are
/// named where they end, so only the others stand here.
pub(super) fn legend(svg: &mut Svg, panels: &[Panel], single: bool, width: f64) -> f64 {
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
            Look::Course => {
                let class = format!("line course {class}");
                svg.line(&class, (x, y - 4.0), (x + 26.0, y - 4.0));
            }
            Look::Marks => {
                svg.point(&format!("point {class}"), 0, (x + 13.0, y - 4.0), "");
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

/// Room that names of measured series take beside a panel, px.
pub(super) fn direct_room(panels: &[Panel]) -> f64 {
    let widest = (panels.iter().flat_map(|panel| &panel.series))
        .filter(|series| matches!(series.look, Look::Measured(_)))
        .map(|series| width_of(&series.label))
        .fold(0.0, f64::max);
    widest + 22.0
}

/// Names measured series at their last points, moved apart where they would overlap.
pub(super) fn direct(svg: &mut Svg, panel: &Panel, frame: Frame) {
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
}
