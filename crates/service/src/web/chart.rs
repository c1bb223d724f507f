//! Pictures of what a job did over time, as SVG without a style of its own.

use std::{fmt::Write as _, time::Instant};

use maud::{Markup, html};

use super::text::{ago, rate};
use crate::scheduling::Sample;

/// Units of the picture, which grows with the page.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 150.0;

/// Space for the numbers on the left, and for the times below.
const LEFT: f64 = 78.0;
const BELOW: f64 = 20.0;
const ABOVE: f64 = 8.0;

/// One line, and perhaps a second that bounds it.
struct Chart<'a> {
    title: String,
    samples: &'a [Sample],
    value: fn(&Sample) -> f64,
    /// The least that the height stands for.
    least: f64,
    limit: Option<fn(&Sample) -> f64>,
    name: fn(f64) -> String,
}

/// How fast a job was.
pub(super) fn goodput(samples: &[Sample]) -> Markup {
    let last = samples.last().map_or(0.0, |sample| sample.goodput);
    let most = samples
        .iter()
        .map(|sample| sample.goodput)
        .fold(0.0, f64::max);
    let chart = Chart {
        title: format!("Goodput, at most {}, last {}", rate(most), rate(last)),
        samples,
        value: |sample| sample.goodput * 8.0,
        least: 1e6,
        limit: None,
        name: |bits| rate(bits / 8.0),
    };
    html! {
        figure {
            figcaption { "Goodput over time" }
            (chart.svg())
        }
    }
}

/// How many data channels it used, and how many it was allowed.
pub(super) fn channels(samples: &[Sample]) -> Markup {
    let (used, allowed, sessions) = samples.last().map_or((0, 0, 0), |sample| {
        (sample.channels, sample.allowed, sample.sessions)
    });
    let chart = Chart {
        title: format!("Data channels, last {used} in {sessions} sessions, of {allowed} allowed"),
        samples,
        value: |sample| f64::from(sample.channels),
        least: 4.0,
        limit: Some(|sample| f64::from(sample.allowed)),
        name: |value| format!("{value:.0}"),
    };
    html! {
        figure {
            figcaption {
                "Data channels over time: "
                span class="key" {} "in use"
                span class="key limit" {} "allowed by the service"
            }
            (chart.svg())
        }
    }
}

impl Chart<'_> {
    fn svg(&self) -> Markup {
        let most = self.samples.iter().map(|sample| {
            let limit = self.limit.map_or(0.0, |limit| limit(sample));
            (self.value)(sample).max(limit)
        });
        let top = round_up(most.fold(self.least, f64::max));
        let span = match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => last.at.duration_since(first.at).as_secs_f64().max(1.0),
            _ => 1.0,
        };
        let bottom = HEIGHT - BELOW;
        let x = |at: Instant| {
            let first = self.samples.first().map_or(at, |first| first.at);
            LEFT + at.duration_since(first).as_secs_f64() / span * (WIDTH - LEFT)
        };
        let y = |value: f64| bottom - value / top * (bottom - ABOVE);
        let path = |value: fn(&Sample) -> f64| {
            let mut path = String::new();
            for sample in self.samples {
                let start = if path.is_empty() { 'M' } else { 'L' };
                // Writing to a text never fails.
                let _ = write!(path, "{start}{:.1} {:.1}", x(sample.at), y(value(sample)));
            }
            path
        };
        let line = path(self.value);
        let began = self
            .samples
            .first()
            .map_or(0, |first| first.at.elapsed().as_secs());
        let area = format!("{line}L{WIDTH} {bottom}L{LEFT} {bottom}Z");
        let view = format!("0 0 {WIDTH} {HEIGHT}");
        html! {
            svg class="chart" viewBox=(view) role="img" aria-label=(self.title) {
                title { (self.title) }
                @for part in [0.0, 0.5, 1.0] {
                    @let height = y(part * top);
                    line class="grid" x1=(LEFT) x2=(WIDTH) y1=(height) y2=(height) {}
                    text x=(LEFT - 8.0) y=(height + 4.0) text-anchor="end" {
                        ((self.name)(part * top))
                    }
                }
                path class="area" d=(area) {}
                path class="line" d=(line) {}
                @if let Some(limit) = self.limit {
                    path class="limit" d=(path(limit)) {}
                }
                text x=(LEFT) y=(HEIGHT - 4.0) { (ago(std::time::Duration::from_secs(began))) }
                text x=(WIDTH) y=(HEIGHT - 4.0) text-anchor="end" {
                    (self.samples.last().map_or(String::new(), |last| ago(last.at.elapsed())))
                }
            }
        }
    }
}

/// The next of 1, 2, 5, 10, 20 ... that is not less.
fn round_up(value: f64) -> f64 {
    if value <= 1.0 {
        return 1.0;
    }
    let base = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    let step = steps.iter().find(|step| *step * base >= value * 0.999_999);
    step.unwrap_or(&10.0) * base
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_chart_of_any_samples_is_small_and_whole() {
        let now = Instant::now();
        let sample = |n: u32| Sample {
            at: now + Duration::from_secs(u64::from(n) * 5),
            goodput: f64::from(n) * 1e6,
            sessions: n,
            channels: 4 * n,
            allowed: 128,
        };
        for count in [0, 1, 2, 240] {
            let samples: Vec<Sample> = (0..count).map(sample).collect();
            for chart in [goodput(&samples), channels(&samples)] {
                let text = chart.into_string();
                assert!(text.len() < 12_000, "{}", text.len());
                assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("style="));
            }
        }
        assert_eq!(
            [0.0, 1.0, 3.0, 99.0, 128.0].map(round_up),
            [1.0, 1.0, 4.0, 100.0, 200.0]
        );
    }
}
