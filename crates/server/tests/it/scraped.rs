//! Reads the text format of Prometheus, more strictly than Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

/// Values by name and labels, as they stand: `a_total{x="1"}`.
#[derive(Debug)]
pub(crate) struct Scraped(BTreeMap<String, f64>);

impl Scraped {
    /// # Panics
    /// Where it is not well formed.
    pub(crate) fn of(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.contains('\r'), "{text:?}");
        let (mut values, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let (mut name, mut kind) = ("", "");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (of, help) = help.split_once(' ').unwrap();
                assert!(seen.insert(of), "twice: {of}");
                assert!(help.ends_with('.'), "{line}");
                (name, kind) = (of, "");
            } else if let Some(of) = line.strip_prefix("# TYPE ") {
                let (of, is) = of.split_once(' ').unwrap();
                assert_eq!(of, name, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&is), "{line}");
                assert_eq!(is == "counter", name.ends_with("_total"), "{line}");
                kind = is;
            } else {
                assert!(!kind.is_empty(), "no type: {line}");
                let (labelled, value) = line.rsplit_once(' ').unwrap();
                let (of, labels) = labelled.split_once('{').unwrap_or((labelled, "}"));
                let base = match kind {
                    "histogram" => (["_bucket", "_sum", "_count"].iter())
                        .find_map(|suffix| of.strip_suffix(suffix))
                        .unwrap(),
                    _ => of,
                };
                assert_eq!(base, name, "{line}");
                assert!(is_name(of), "{line}");
                check_labels(labels);
                let value: f64 = value.parse().unwrap();
                assert!(kind == "gauge" || value >= 0.0, "{line}");
                let old = values.insert(labelled.to_owned(), value);
                assert!(old.is_none(), "twice: {line}");
            }
        }
        Self(values)
    }

    /// # Panics
    /// Where there is none.
    pub(crate) fn value(&self, labelled: &str) -> f64 {
        match self.get(labelled) {
            Some(value) => value,
            None => panic!("no {labelled}: {self:#?}"),
        }
    }

    pub(crate) fn get(&self, labelled: &str) -> Option<f64> {
        self.0.get(labelled).copied()
    }

    /// All names, without labels.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let names = self.0.keys().map(|key| key.split('{').next().unwrap());
        names.collect()
    }
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    starts
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
}

/// What stands behind `{`: `x="1",y="2"}`; no value in our tests holds a quotation mark.
fn check_labels(labels: &str) {
    let labels = labels.strip_suffix('}').unwrap();
    for label in labels.split_terminator("\",") {
        let (name, value) = label.split_once("=\"").unwrap();
        assert!(is_name(name), "{labels}");
        assert!(!value.trim_end_matches('"').contains('"'), "{labels}");
    }
}

/// Names of metrics that begin with one of `prefixes`, in what the dashboards of Grafana or the
/// file of alerts ask for.
pub(crate) fn asked_for(prefixes: &[&str]) -> BTreeSet<String> {
    let dashboards = [
        include_str!("../../../../packaging/grafana/godwit.json"),
        include_str!("../../../../packaging/grafana/godwit-service.json"),
    ];
    let alerts = include_str!("../../../../packaging/prometheus/godwit.rules.yml");
    let dashboards = dashboards.map(|text| serde_json::from_str(text).unwrap());
    let mut questions: Vec<&str> = Vec::new();
    let mut rest: Vec<&serde_json::Value> = dashboards.iter().collect();
    while let Some(value) = rest.pop() {
        match value {
            serde_json::Value::Array(values) => rest.extend(values),
            serde_json::Value::Object(fields) => rest.extend(fields.values()),
            serde_json::Value::String(text) => questions.push(text),
            _ => {}
        }
    }
    questions.extend(alerts.lines().filter(|line| line.contains("expr: ")));
    let words = questions
        .into_iter()
        .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    let ours = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
    ours.map(str::to_owned).collect()
}
