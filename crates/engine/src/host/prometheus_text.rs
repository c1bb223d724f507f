//! Metrics in the text format of Prometheus, version 0.0.4.
//!
//! By hand: prometheus-client writes OpenMetrics only, and from counters of its own; the counters
//! that are written here exist already.
//!
//! ```text
//!   # HELP godwitd_logins_total Logins that have succeeded.
//!   # TYPE godwitd_logins_total counter
//!   godwitd_logins_total{method="gsi"} 3
//! ```

use std::{
    fmt::{Display, Write as _},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What the text is, for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name and value of a label.
pub type Label<'a> = (&'a str, &'a str);

/// Upper limits of the buckets of a [`Histogram`], in seconds; the last bucket has none.
const LIMITS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; LIMITS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = LIMITS.partition_point(|limit| *limit < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Relaxed);
    }
}

/// A text in the making. Each name comes once, with all its values.
#[derive(Debug, Default)]
pub struct PrometheusText {
    text: String,
}

/// A metric whose values are being written.
pub struct Metric<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl PrometheusText {
    /// What only grows, from 0 when the process starts; its name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.begin(name, "counter", help)
    }

    /// What comes and goes.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        self.begin(name, "gauge", help)
    }

    /// How long something took; its name ends in `_seconds`.
    pub fn histogram(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        debug_assert!(name.ends_with("_seconds"), "{name}");
        self.begin(name, "histogram", help)
    }

    /// All of it.
    pub fn into_text(self) -> String {
        self.text
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> Metric<'_> {
        debug_assert!(!help.contains(['\n', '\\']), "{help:?}");
        let text = &mut self.text;
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Metric { text, name }
    }
}

impl Metric<'_> {
    /// The one value that it has.
    pub fn value(&mut self, value: impl Display) {
        self.labelled(&[], value);
    }

    /// One of its values.
    pub fn labelled(&mut self, labels: &[Label<'_>], value: impl Display) -> &mut Self {
        self.sample("", labels, value);
        self
    }

    /// One of the distributions of a histogram.
    #[allow(clippy::cast_precision_loss, reason = "a sum of times")]
    pub fn distribution(&mut self, labels: &[Label<'_>], of: &Histogram) -> &mut Self {
        let mut count = 0;
        for (place, bucket) in of.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            let limit = LIMITS.get(place).map(f64::to_string);
            let limit = limit.as_deref().unwrap_or("+Inf");
            self.sample("_bucket", &[labels, &[("le", limit)]].concat(), count);
        }
        let seconds = of.micros.load(Relaxed) as f64 / 1e6;
        self.sample("_sum", labels, seconds);
        self.sample("_count", labels, count);
        self
    }

    fn sample(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (number, (label, of)) in labels.iter().enumerate() {
            let opens = if number == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{opens}{label}=\"");
            for c in of.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    // Terminals act on them, and the format has no way to write them.
                    c if c.is_control() => self.text.push('?'),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let mut text = PrometheusText::default();
        text.gauge("a", "What comes and goes.").value(0.5);
        text.counter("b_total", "What grows.")
            .labelled(&[("x", "1"), ("y", "a\"b\\c\nd\u{1b}")], 7_u64)
            .labelled(&[("x", "2"), ("y", "")], u64::MAX);
        assert_eq!(
            text.into_text(),
            "# HELP a What comes and goes.\n# TYPE a gauge\na 0.5\n\
             # HELP b_total What grows.\n# TYPE b_total counter\n\
             b_total{x=\"1\",y=\"a\\\"b\\\\c\\nd?\"} 7\n\
             b_total{x=\"2\",y=\"\"} 18446744073709551615\n"
        );
    }

    #[test]
    fn buckets_of_a_histogram_hold_those_of_the_buckets_before() {
        let histogram = Histogram::default();
        for millis in [1, 2, 30_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut text = PrometheusText::default();
        text.histogram("a_seconds", "How long.")
            .distribution(&[("x", "1")], &histogram);
        let text = text.into_text();
        for line in [
            "# TYPE a_seconds histogram",
            "a_seconds_bucket{x=\"1\",le=\"0.001\"} 1",
            "a_seconds_bucket{x=\"1\",le=\"0.0025\"} 2",
            "a_seconds_bucket{x=\"1\",le=\"10\"} 2",
            "a_seconds_bucket{x=\"1\",le=\"+Inf\"} 3",
            "a_seconds_sum{x=\"1\"} 30.003",
            "a_seconds_count{x=\"1\"} 3",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}: {text}");
        }
    }
}
