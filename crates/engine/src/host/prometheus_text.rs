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

use std::fmt::{Display, Write as _};

/// What the text is, for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name and value of a label.
pub type Label<'a> = (&'a str, &'a str);

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
        self.text.push_str(self.name);
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
        self
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
}
