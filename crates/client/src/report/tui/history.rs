//! The state of a transfer, as much as a screen shows.

use std::collections::VecDeque;

use godwit_engine::host::terminal::escaped;
use serde::{Deserialize, Serialize};

use crate::report::{
    events::{Event, FileState, SettingView},
    progress::{DisplayedRate, Phase, Snapshot},
};

/// Seconds of goodput that are kept.
pub(crate) const HISTORY_MAX: usize = 120;

/// Files that are kept: the last ones.
const FILES_MAX: usize = 20;

/// Characters kept of a line of text.
const TEXT_MAX: usize = 200;

/// A transfer as shown to users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TransferHistory {
    /// Its process.
    pub(crate) pid: u32,
    /// The first source.
    pub(crate) source: String,
    /// Sources beside it.
    pub(crate) more_sources: usize,
    pub(crate) destination: String,
    /// Since it began.
    pub(crate) seconds: f64,
    /// A word of [`Phase`].
    pub(crate) phase: String,
    pub(crate) bytes: u64,
    /// Of the files found so far.
    pub(crate) bytes_total: u64,
    /// The plan is complete.
    pub(crate) total_known: bool,
    pub(crate) files: u64,
    pub(crate) files_failed: u64,
    pub(crate) files_total: u64,
    pub(crate) channels: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) setting: Option<SettingView>,
    /// Why that setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// A word of [`godwit_tune::Bottleneck`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limited_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loss_ratio: Option<f64>,
    /// Over some seconds.
    pub(crate) goodput_bps: f64,
    /// Of each whole second, the last ones.
    pub(crate) history_bps: VecDeque<u64>,
    /// Failed attempts that were repeated.
    pub(crate) retries: u64,
    pub(crate) recent: VecDeque<FileLine>,
    /// The last warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
    /// Files reported since the last progress.
    #[serde(skip)]
    pub(crate) heard: usize,
    #[serde(skip)]
    pub(crate) rate: DisplayedRate,
    /// The current second: its start and the bytes then.
    #[serde(skip)]
    pub(crate) second: Option<(f64, u64)>,
}

/// A file and its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileLine {
    pub(crate) path: String,
    /// `moving`, or a word of [`FileState`].
    pub(crate) state: String,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl TransferHistory {
    /// Something happened.
    pub(crate) fn on_event(&mut self, event: &Event) {
        match event {
            Event::Start { endpoints, .. } => {
                let mut endpoints = endpoints.iter();
                self.destination = endpoints.next_back().map(|e| short(e)).unwrap_or_default();
                self.source = endpoints.next().map(|e| short(e)).unwrap_or_default();
                self.more_sources = endpoints.count();
            }
            Event::Epoch {
                loss_ratio, rtt_ms, ..
            } => (self.loss_ratio, self.rtt_ms) = (*loss_ratio, *rtt_ms),
            // The display has one setting: where files are sent to.
            Event::Decision {
                side: Some("source"),
                ..
            } => {}
            Event::Decision { to, reason, .. } => {
                (self.setting, self.reason) = (Some(*to), Some(short(reason)));
            }
            Event::Retry { path, error, .. } => {
                self.retries += 1;
                self.warning = Some(short(&format!("trying {path} again: {error}")));
            }
            Event::Begins { path, bytes } => self.remember(FileLine {
                path: short(path),
                state: "moving".to_owned(),
                bytes: bytes.unwrap_or_default(),
                error: None,
            }),
            Event::File {
                path,
                bytes,
                size,
                state,
                error,
                ..
            } => {
                self.files_failed += u64::from(*state == FileState::Failed);
                self.heard += 1;
                // More lines of small files would not be read.
                if self.heard > FILES_MAX && *state != FileState::Failed {
                    return;
                }
                self.remember(FileLine {
                    path: short(path),
                    state: word(*state).to_owned(),
                    bytes: size.unwrap_or(*bytes),
                    error: error.as_ref().map(|error| short(&error.explained())),
                });
            }
            Event::Warning { text } => self.warning = Some(short(text)),
            _ => {}
        }
    }

    /// Takes the counters, `seconds` after the start.
    pub(crate) fn on_progress(&mut self, now: &Snapshot, seconds: f64) {
        self.seconds = seconds;
        self.heard = 0;
        self.phase = match now.phase {
            Phase::Scan => "scan",
            Phase::Transfer => "transfer",
            Phase::Verify => "verify",
        }
        .to_owned();
        (self.bytes, self.bytes_total) = (now.bytes, now.bytes_total);
        self.total_known = now.total_known;
        (self.files, self.files_total) = (now.files, now.files_total);
        self.channels = now.channels;
        if let Some(setting) = now.setting {
            self.setting = Some(setting.into());
        }
        self.limited_by = now.limited_by.map(|limit| limit.to_string());
        self.rate.update(now.bytes);
        self.goodput_bps = self.rate.bps;
        let (began, before) = *self.second.get_or_insert((seconds, now.bytes));
        let passed = seconds - began;
        if passed >= 1.0 {
            let bits = now.bytes.saturating_sub(before) as f64 * 8.0;
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate in bit/s"
            )]
            self.history_bps.push_back((bits / passed) as u64);
            if self.history_bps.len() > HISTORY_MAX {
                self.history_bps.pop_front();
            }
            self.second = Some((seconds, now.bytes));
        }
    }

    /// Replaces the line of a file. Lines of moving files are kept longest.
    fn remember(&mut self, line: FileLine) {
        self.recent.retain(|known| known.path != line.path);
        self.recent.push_back(line);
        if self.recent.len() > FILES_MAX {
            let over = self.recent.iter().position(|known| known.state != "moving");
            self.recent.remove(over.unwrap_or(0));
        }
    }

    /// Fraction done, 0 to 1; `None` while unknown.
    pub(crate) fn part_done(&self) -> Option<f64> {
        (self.total_known && self.bytes_total > 0)
            .then(|| (self.bytes as f64 / self.bytes_total as f64).min(1.0))
    }

    /// Seconds left at this rate; `None` if unknown.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        let left = self.bytes_total.saturating_sub(self.bytes) as f64 * 8.0;
        (self.total_known && left > 0.0 && self.goodput_bps > 0.0).then(|| left / self.goodput_bps)
    }
}

fn word(state: FileState) -> &'static str {
    match state {
        FileState::Verified => "verified",
        FileState::Done => "done",
        FileState::Failed => "failed",
    }
}

/// Shortens and escapes a text for the terminal.
fn short(text: &str) -> String {
    escaped(text).chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, state: FileState) -> Event {
        Event::File {
            path: path.to_owned(),
            bytes: 5,
            size: Some(7),
            seconds: 1.0,
            checksum: None,
            computed: None,
            state,
            error: None,
        }
    }

    #[test]
    fn of_many_files_the_last_are_kept_and_those_that_move() {
        let mut history = TransferHistory::default();
        history.on_event(&Event::Begins {
            path: "large".to_owned(),
            bytes: Some(9),
        });
        for i in 0..100 {
            history.on_event(&file(&format!("f{i}"), FileState::Done));
        }
        assert_eq!(history.recent.len(), FILES_MAX);
        assert_eq!(history.recent[0].path, "large");
        assert_eq!(
            history.recent[FILES_MAX - 1].path,
            "f19",
            "no more between two looks"
        );
        history.on_progress(&Snapshot::default(), 1.0);
        history.on_event(&file("f100", FileState::Done));
        assert_eq!(history.recent[FILES_MAX - 1].path, "f100");
        history.on_event(&file("large", FileState::Failed));
        let large: Vec<_> = history
            .recent
            .iter()
            .filter(|f| f.path == "large")
            .collect();
        assert_eq!(large.len(), 1);
        assert_eq!((large[0].state.as_str(), large[0].bytes), ("failed", 7));
        assert_eq!(history.files_failed, 1);
    }

    #[test]
    fn each_second_has_its_goodput() {
        let mut history = TransferHistory::default();
        for tenths in 0..=30_u32 {
            let now = Snapshot {
                bytes: u64::from(tenths) * 1000,
                bytes_total: 60_000,
                total_known: true,
                ..Snapshot::default()
            };
            history.on_progress(&now, f64::from(tenths) / 10.0);
        }
        assert_eq!(history.history_bps.len(), 3);
        assert!(
            history
                .history_bps
                .iter()
                .all(|bps| bps.abs_diff(80_000) < 9000)
        );
        assert_eq!(history.part_done(), Some(0.5));
    }

    #[test]
    fn names_in_the_history_cannot_control_the_terminal() {
        let mut history = TransferHistory::default();
        history.on_event(&file("a\u{1b}[2Jb\n", FileState::Verified));
        assert_eq!(history.recent[0].path, "a?[2Jb?");
        let text = serde_json::to_string(&history).unwrap();
        let heard: TransferHistory = serde_json::from_str(&text).unwrap();
        assert_eq!(heard.recent, history.recent);
        let newer =
            serde_json::from_str::<TransferHistory>(r#"{"pid":7,"of_tomorrow":1}"#).unwrap();
        assert_eq!(newer.pid, 7);
    }
}
