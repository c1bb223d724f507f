//! `godwit explain`: reads an event log and reports what was moved, how fast, under which settings,
//! and what limited it.
//!
//! Accepts unknown events and keys, foreign lines, a truncated last line, several runs in one file.

mod text;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use godwit_tune::Bottleneck;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// The contents of a log.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// In the order of the log.
    pub runs: Vec<Run>,
    /// Lines that are no events: truncated or foreign.
    pub lines_ignored: u64,
}

/// One run of `godwit cp`. What the log lacks is 0, empty or absent.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// Bytes of complete files; without a summary those of the epochs.
    pub bytes: u64,
    /// Seconds; without a summary the time of the last event.
    pub seconds: f64,
    /// Bits per second over all of it.
    pub goodput_bps: f64,
    /// Complete files.
    pub files_done: u64,
    /// Failed files.
    pub files_failed: u64,
    /// Exit status; absent if the log ends before the run.
    pub exit: Option<u64>,
    /// Attempts that failed and were repeated.
    pub retries: u64,
    /// Bytes that TCP sent again.
    pub retransmitted_bytes: Option<u64>,
    /// As measured.
    pub epochs: Vec<SettingSpan>,
    /// Neighbouring epochs with the same setting as one, with what limited most bytes of it.
    pub phases: Vec<SettingSpan>,
    /// What limited it, most bytes first.
    pub limits: Vec<LimitShare>,
    /// Where files passed through this machine: the server that the other waited for, most bytes
    /// first.
    pub slower_sides: Vec<SlowerShare>,
    /// Most small files in flight on a control channel; 1 without a pipeline, 0 if unknown.
    pub pipelining: u64,
    /// Why the last setting was chosen.
    pub last_reason: String,
}

/// Time under one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingSpan {
    /// Its end, seconds since the start of the process.
    pub until: f64,
    /// Control channels, each with its own mover.
    pub concurrency: u64,
    /// Stripes of its transfers, each with so many data channels; 1 without.
    pub stripes: u64,
    /// Data channels of each.
    pub parallelism: u64,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bits per second of them.
    pub goodput_bps: f64,
    /// The word of the log.
    pub limited_by: Option<String>,
    /// The word of the log.
    pub slower_side: Option<String>,
}

impl SettingSpan {
    /// Control channels, stripes and data channels.
    fn setting(&self) -> [u64; 3] {
        [self.concurrency, self.stripes, self.parallelism]
    }
}

/// What limited a part of a run, and what helps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitShare {
    /// The word of the log.
    pub limited_by: String,
    /// Of the measured bytes, `0..=1`.
    pub share: f64,
    /// What helps; absent for words of later versions.
    pub advice: Option<&'static str>,
}

/// Which server was the slower one for a part of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowerShare {
    /// The word of the log: `source` or `destination`.
    pub side: String,
    /// Of the measured bytes, `0..=1`.
    pub share: f64,
}

/// Reads the log at `path`.
///
/// # Errors
/// The file cannot be read, or holds no event.
pub fn read(path: &Path) -> Result<Explanation> {
    let doing = || format!("read event log {}", path.display());
    let file = File::open(path).map_err(|e| Error::local(doing(), &e))?;
    let mut explanation = Explanation::default();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(|e| Error::local(doing(), &e))?;
        explanation.take(&line);
    }
    if explanation.runs.is_empty() {
        return Err(Error::Usage(format!(
            "{}: holds no event: give the file of cp --events",
            path.display()
        )));
    }
    explanation.runs.iter_mut().for_each(Run::finish);
    Ok(explanation)
}

impl Explanation {
    fn take(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let event = serde_json::from_slice::<Value>(line).ok();
        let Some((event, name)) = event.as_ref().and_then(|e| Some((e, e["event"].as_str()?)))
        else {
            self.lines_ignored += 1;
            return;
        };
        // A log without its beginning is a run, too.
        if name == "start" || self.runs.is_empty() {
            self.runs.push(Run::default());
        }
        if let Some(run) = self.runs.last_mut() {
            run.take(name, event);
        }
    }
}

impl Run {
    fn take(&mut self, name: &str, event: &Value) {
        let number = |key: &str| event[key].as_f64().unwrap_or(0.0);
        let count = |key: &str| event[key].as_u64().unwrap_or(0);
        let word = |key: &str| event[key].as_str().unwrap_or("").to_owned();
        if self.exit.is_none() {
            self.seconds = self.seconds.max(number("t"));
        }
        let setting = if name == "decision" { "to" } else { "setting" };
        let pipelining = event[setting]["pipelining"].as_u64().unwrap_or(0);
        self.pipelining = self.pipelining.max(pipelining);
        match name {
            "start" => self.command = word("command"),
            "retry" => self.retries += 1,
            "decision" => self.last_reason = word("reason"),
            "epoch" => self.epochs.push(SettingSpan {
                until: number("t"),
                concurrency: event["setting"]["concurrency"].as_u64().unwrap_or(0),
                stripes: event["setting"]["stripes"].as_u64().unwrap_or(1),
                parallelism: event["setting"]["parallelism"].as_u64().unwrap_or(0),
                seconds: number("seconds"),
                bytes: count("bytes"),
                goodput_bps: number("goodput_bps"),
                limited_by: event["limited_by"].as_str().map(str::to_owned),
                slower_side: event["slower_side"].as_str().map(str::to_owned),
            }),
            "summary" => {
                self.bytes = count("bytes");
                self.seconds = number("seconds");
                self.files_done = count("files_done");
                self.files_failed = count("files_failed");
                self.retransmitted_bytes = event["retransmitted_bytes"].as_u64();
                self.exit = Some(count("exit"));
            }
            _ => {}
        }
    }

    fn finish(&mut self) {
        self.phases = self
            .epochs
            .chunk_by(|a, b| a.setting() == b.setting())
            .filter_map(together)
            .collect();
        let total = sum(&self.epochs).max(1);
        let slower = by_word(&self.epochs, |epoch| epoch.slower_side.as_deref());
        let shares = slower.into_iter().map(|(side, bytes)| SlowerShare {
            side: side.to_owned(),
            share: ratio(bytes, total),
        });
        self.slower_sides = shares.collect();
        self.limits = by_word(&self.epochs, limit_of)
            .into_iter()
            .map(|(word, bytes)| LimitShare {
                limited_by: word.to_owned(),
                share: ratio(bytes, total),
                advice: Bottleneck::ALL
                    .into_iter()
                    .find(|limit| limit.as_str() == word)
                    .map(Bottleneck::advice),
            })
            .collect();
        if self.exit.is_none() {
            self.bytes = sum(&self.epochs);
        }
        self.goodput_bps = rate(self.bytes, self.seconds);
    }
}

/// Merges epochs; `None` without any.
fn together(epochs: &[SettingSpan]) -> Option<SettingSpan> {
    let bytes = sum(epochs);
    let seconds = epochs.iter().map(|e| e.seconds).sum();
    Some(SettingSpan {
        seconds,
        bytes,
        goodput_bps: rate(bytes, seconds),
        limited_by: most(epochs, limit_of),
        slower_side: most(epochs, |epoch| epoch.slower_side.as_deref()),
        ..epochs.last()?.clone()
    })
}

fn sum(epochs: &[SettingSpan]) -> u64 {
    epochs.iter().fold(0, |sum, e| sum.saturating_add(e.bytes))
}

fn limit_of(epoch: &SettingSpan) -> Option<&str> {
    epoch.limited_by.as_deref()
}

/// The word of most bytes.
fn most(epochs: &[SettingSpan], of: fn(&SettingSpan) -> Option<&str>) -> Option<String> {
    by_word(epochs, of)
        .first()
        .map(|(word, _)| (*word).to_owned())
}

/// Bytes under each word, most first.
fn by_word(epochs: &[SettingSpan], of: fn(&SettingSpan) -> Option<&str>) -> Vec<(&str, u64)> {
    let mut words = BTreeMap::<&str, u64>::new();
    for epoch in epochs {
        if let Some(word) = of(epoch) {
            let bytes = words.entry(word).or_default();
            *bytes = bytes.saturating_add(epoch.bytes);
        }
    }
    let mut words: Vec<_> = words.into_iter().collect();
    words.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    words
}

#[allow(clippy::cast_precision_loss)] // a share for people
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[allow(clippy::cast_precision_loss)] // a rate for people
fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(log: &str) -> Explanation {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, log).unwrap();
        read(&path).unwrap()
    }

    const START: &str = r#"{"t":0.0,"event":"start","command":"godwit cp a b"}"#;

    fn epoch(t: u32, c: u32, limit: &str) -> String {
        format!(
            r#"{{"t":{t},"event":"epoch","setting":{{"concurrency":{c},"parallelism":4}},
            "seconds":1.0,"bytes":1000000,"goodput_bps":8000000.0,"limited_by":"{limit}"}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn a_run_is_explained_with_settings_limits_and_advice() {
        let log = [
            START.to_owned(),
            r#"{"t":0.0,"event":"decision","to":{"pipelining":32},"reason":"default"}"#.to_owned(),
            epoch(1, 1, "receive-window"),
            epoch(2, 1, "receive-window"),
            epoch(3, 2, "path-capacity"),
            r#"{"t":4,"event":"summary","bytes":4000000,"seconds":4.0,"files_done":1,
            "files_failed":0,"exit":0}"#
                .replace('\n', ""),
        ];
        let explanation = explain(&log.join("\n"));
        let run = &explanation.runs[0];
        assert_eq!(
            (run.phases.len(), run.bytes, run.exit),
            (2, 4_000_000, Some(0))
        );
        assert_eq!(run.limits[0].limited_by, "receive-window");
        assert_eq!(
            run.limits[0].advice,
            Some(Bottleneck::ReceiveWindow.advice())
        );
        let text = explanation.to_string();
        for part in [
            "godwit cp a b",
            "8.00 Mbit/s",
            "1 x 4",
            "2 x 4",
            "path-capacity",
            "67 %",
            "up to 32 small files in flight",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn of_two_servers_the_slower_one_is_named() {
        let of = |side: &str| {
            let key = format!("\"slower_side\":\"{side}\",\"limited_by\"");
            epoch(1, 1, "remote").replace("\"limited_by\"", &key)
        };
        let log = [
            of("source"),
            of("source"),
            of("destination"),
            epoch(4, 1, "cpu"),
        ];
        let explanation = explain(&log.join("\n"));
        let shares = &explanation.runs[0].slower_sides;
        assert_eq!((shares[0].side.as_str(), shares[0].share), ("source", 0.5));
        let text = explanation.to_string();
        assert!(text.contains("the source was the slower server for 50 % of the bytes"));
        assert!(
            text.contains("the destination was the slower server for 25 %"),
            "{text}"
        );
    }

    #[test]
    fn strange_lines_later_words_and_a_cut_end_do_no_harm() {
        let log = [
            r#"{"event":"comet","tail":1}"#.to_owned(),
            "not json".to_owned(),
            epoch(1, 1, "cosmic-rays"),
            START.to_owned(),
            epoch(7, 3, "cpu"),
            r#"{"t":8,"event":"summ"#.to_owned(),
        ];
        let explanation = explain(&log.join("\n"));
        assert_eq!((explanation.runs.len(), explanation.lines_ignored), (2, 2));
        assert_eq!(explanation.runs[0].limits[0].advice, None);
        let cut = &explanation.runs[1];
        assert_eq!((cut.exit, cut.bytes, cut.seconds), (None, 1_000_000, 7.0));
        assert!(explanation.to_string().contains("ends before the run did"));
        for nonsense in [
            "{}",
            r#"{"event":"epoch"}"#,
            r#"{"event":"summary","t":"x"}"#,
        ] {
            let _ = explain(&format!("{START}\n{nonsense}")).to_string();
        }
    }

    #[test]
    fn files_that_are_no_log_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "hello\n").unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("holds no event")
        );
        assert!(read(&dir.path().join("none")).is_err());
    }
}
