//! Transfers against time: goodput, channels, and what a tuner decided.

use serde::{Deserialize, Serialize};

use super::Sample;
use crate::judge::GoodputSeries;

/// Length of a bin, s.
pub(super) const BIN_SECONDS: f64 = 0.5;

/// Most decisions that are kept of one transfer: far more than epochs fit into a run.
const CHOICES_MAX: usize = 10_000;

/// All transfers of a run against time, from the first data of the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evolution {
    /// Length of all bins, s.
    pub bin_seconds: f64,
    /// In the order they started.
    pub transfers: Vec<Course>,
    /// Goodput of other TCP connections beside them, bit/s; empty without any.
    pub beside_bps: Vec<f64>,
}

/// One transfer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Goodput in each bin as the receiving kernel counts it, bit/s; 0 before it starts.
    pub goodput_bps: Vec<f64>,
    /// Connections with data at the end of each bin, as the receiving kernel counts them.
    pub channels: Vec<u32>,
    /// Settings that its program chose.
    pub choices: Vec<Choice>,
}

/// A setting that was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// When, s; below 0 before the first data.
    pub seconds: f64,
    /// Movers.
    pub concurrency: u32,
    /// Channels of each.
    pub parallelism: u32,
    /// Why, in the words of the tuner.
    pub reason: String,
}

impl Evolution {
    /// Goodput of all transfers together in each bin, bit/s.
    pub fn total_bps(&self) -> Vec<f64> {
        let bins = self.transfers.iter().map(|t| t.goodput_bps.len()).max();
        (0..bins.unwrap_or(0))
            .map(|bin| {
                let of = |course: &Course| course.goodput_bps.get(bin).copied();
                self.transfers.iter().filter_map(of).sum()
            })
            .collect()
    }

    /// One transfer's goodput, to be judged.
    pub fn series<'a>(&self, goodput_bps: &'a [f64]) -> GoodputSeries<'a> {
        GoodputSeries {
            bin_seconds: self.bin_seconds,
            goodput_bps,
        }
    }
}

impl Course {
    /// Of samples in the order they were taken, in whole bins from `origin`, s.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times and rates have fewer digits, and casts of floats saturate"
    )]
    pub(super) fn of(samples: &[Sample], origin: f64) -> Course {
        let end = samples.last().map_or(origin, |sample| sample.seconds);
        let bins = ((end - origin) / BIN_SECONDS).max(0.0) as usize;
        let edge = |index: usize| origin + index as f64 * BIN_SECONDS;
        let moved: Vec<f64> = (0..=bins).map(|i| bytes_at(samples, edge(i))).collect();
        Course {
            goodput_bps: (moved.windows(2))
                .map(|pair| ((pair[1] - pair[0]) * 8.0 / BIN_SECONDS).round())
                .collect(),
            channels: (1..=bins)
                .map(|i| before(samples, edge(i)).map_or(0, |sample| sample.channels))
                .collect(),
            choices: Vec::new(),
        }
    }
}

/// The last sample that is not later.
fn before(samples: &[Sample], seconds: f64) -> Option<&Sample> {
    let later = samples.partition_point(|sample| sample.seconds <= seconds);
    samples[..later].last()
}

/// What had arrived by then, straight lines between samples.
#[allow(clippy::cast_precision_loss, reason = "rates have fewer digits")]
fn bytes_at(samples: &[Sample], seconds: f64) -> f64 {
    let later = samples.partition_point(|sample| sample.seconds <= seconds);
    let at = |index: usize| (samples[index].seconds, samples[index].bytes as f64);
    if later == 0 || later == samples.len() {
        return later.checked_sub(1).map_or(0.0, |last| at(last).1);
    }
    let ((t0, b0), (t1, b1)) = (at(later - 1), at(later));
    b0 + (b1 - b0) * (seconds - t0) / (t1 - t0)
}

/// The `decision` events of a log; `shift` is added to their times. What is not understood is
/// skipped, as readers of event logs must: a transfer that was cut off leaves half a line.
pub(super) fn choices(log: &str, shift: f64) -> Vec<Choice> {
    #[derive(Deserialize)]
    struct Line {
        event: String,
        t: f64,
        to: To,
        #[serde(default)]
        reason: String,
    }
    #[derive(Deserialize)]
    struct To {
        concurrency: u32,
        parallelism: u32,
    }
    (log.lines())
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter(|line| line.event == "decision")
        .take(CHOICES_MAX)
        .map(|line| Choice {
            seconds: line.t + shift,
            concurrency: line.to.concurrency,
            parallelism: line.to.parallelism,
            reason: line.reason,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, bytes: u64, channels: u32) -> Sample {
        Sample {
            transfer: 0,
            seconds,
            bytes,
            channels,
        }
    }

    #[test]
    fn bins_begin_with_the_data_and_lie_between_samples() {
        // 1000 bytes a second from 1.0 on, 4000 from 2.0 on; samples do not meet the edges.
        let samples = [
            sample(0.5, 0, 0),
            sample(1.0, 0, 1),
            sample(1.6, 600, 1),
            sample(2.0, 1000, 2),
            sample(2.3, 2200, 2),
            sample(2.7, 3800, 4),
        ];
        let course = Course::of(&samples, 1.0);
        assert_eq!(course.goodput_bps, [8_000.0, 8_000.0, 32_000.0]);
        assert_eq!(course.channels, [1, 2, 2]);
    }

    #[test]
    fn a_transfer_that_starts_later_is_empty_until_then() {
        let samples = [sample(3.0, 0, 0), sample(4.0, 1000, 2)];
        let course = Course::of(&samples, 1.0);
        assert_eq!(course.goodput_bps[..4], [0.0; 4]);
        assert_eq!(course.goodput_bps[4..], [8_000.0, 8_000.0]);
        assert_eq!(Course::of(&[], 0.0), Course::default());
    }

    #[test]
    fn totals_add_up_bin_by_bin() {
        let course = |goodput_bps: &[f64]| Course {
            goodput_bps: goodput_bps.to_vec(),
            ..Course::default()
        };
        let evolution = Evolution {
            bin_seconds: BIN_SECONDS,
            transfers: vec![course(&[1.0, 2.0]), course(&[10.0, 20.0, 30.0])],
            beside_bps: Vec::new(),
        };
        assert_eq!(evolution.total_bps(), [11.0, 22.0, 30.0]);
    }

    #[test]
    fn decisions_are_read_from_event_logs() {
        let log = r#"{"t":0.0,"event":"start","command":"godwit"}
{"t":0.01,"event":"decision","to":{"concurrency":1,"parallelism":4,"pipelining":8},"reason":"start"}
{"t":1.2,"event":"epoch","setting":{"concurrency":1,"parallelism":4},"goodput_bps":1e8,"new":[1]}
{"t":1.2,"event":"decision","from":{"concurrency":1,"parallelism":4,"pipelining":8},"to":{"concurrency":2,"parallelism":8},"reason":"more"}
{"t":1.3,"event":"decis"#;
        let choices = choices(log, 0.5);
        assert_eq!(choices.len(), 2);
        assert_eq!(
            choices[1],
            Choice {
                seconds: 1.7,
                concurrency: 2,
                parallelism: 8,
                reason: "more".into(),
            }
        );
    }
}
