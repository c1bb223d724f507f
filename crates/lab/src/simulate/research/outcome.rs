//! What a day gave: to users, by size, on links.

use std::collections::BTreeMap;

use godwit_sim::fluid::{Fluid, LinkUse};
use serde::Serialize;

use super::{
    scenario::{Map, ResearchStudy},
    workload::DrawnTransfer,
};
use crate::stats::{median, quantile};

/// Sizes of transfers that are told apart: each class ends here, bytes.
pub(in crate::simulate) const CLASSES: [(&str, u64); 5] = [
    ("below 1 GB", 1_000_000_000),
    ("1 to 10 GB", 10_000_000_000),
    ("10 to 100 GB", 100_000_000_000),
    ("100 GB to 1 TB", 1_000_000_000_000),
    ("from 1 TB", u64::MAX),
];
/// A simulation ends after so many days, whatever has not ended.
pub(super) const LONGEST_DAYS: f64 = 14.0;
/// Links that are named.
const NAMED: usize = 5;

/// When transfers ended, and what links did.
#[derive(Debug, PartialEq)]
pub(super) struct DayOutcome {
    ends_s: Vec<Option<f64>>,
    links: Vec<LinkUse>,
    until_s: f64,
}

impl DayOutcome {
    pub(super) fn new(transfers: &[DrawnTransfer]) -> Self {
        Self {
            ends_s: vec![None; transfers.len()],
            links: Vec::new(),
            until_s: 0.0,
        }
    }

    pub(super) fn ended(&mut self, transfer: usize, at_s: f64) {
        self.ends_s[transfer] = Some(at_s);
    }

    pub(super) fn finish(&mut self, fluid: &mut Fluid, map: &Map) {
        self.until_s = fluid.now_s();
        let all = (0..map.links.len()).filter_map(|link| fluid.link_use(link));
        self.links = all.collect();
    }
}

/// A day under one way to share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DayResult {
    /// Transfers that ended.
    pub(in crate::simulate) ended: usize,
    /// Payload that was moved in the hours in which transfers began, bit/s; each transfer counts as
    /// even.
    pub(in crate::simulate) goodput_bps: f64,
    /// When the last one ended, s.
    pub(in crate::simulate) last_s: f64,
    /// Median and 95th percentile of completion, s, and transfers, by size.
    pub(in crate::simulate) classes: Vec<(f64, f64, usize)>,
    /// Among users, of their bytes a second while they had a transfer.
    pub(in crate::simulate) jain: f64,
    /// Among users, of the time that their transfers would need on an empty network over the time
    /// that they took.
    pub(in crate::simulate) jain_of_alone: f64,
    /// Tenth, median of that part.
    pub(in crate::simulate) of_alone: (f64, f64),
    /// Tenth, median, mean of bytes a second of users while they had a transfer, bit/s.
    pub(in crate::simulate) user_bps: (f64, f64, f64),
    /// Bytes lost over bytes sent on all links.
    pub(in crate::simulate) loss: f64,
    /// The links that were full for longest: name, share of the hours, mean queue over its length
    /// in these hours, loss, most connections.
    pub(in crate::simulate) fullest: Vec<LinkResult>,
}

/// A direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkResult {
    pub(in crate::simulate) name: String,
    /// Share of the day in which it was full.
    pub(in crate::simulate) full: f64,
    /// Mean delay of its queue over that of a full one.
    pub(in crate::simulate) queue: f64,
    pub(in crate::simulate) loss: f64,
    pub(in crate::simulate) connections_max: u32,
}

/// 1 where all are equal, 1/n where one has everything (Jain, Chiu, Hawe 1984).
#[allow(clippy::cast_precision_loss, reason = "counts of users")]
pub(super) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 {
        sum * sum / (values.len() as f64 * squares)
    } else {
        1.0
    }
}

/// Seconds that intervals cover together; they begin in order.
fn covered_s(intervals: &[(f64, f64)]) -> f64 {
    let (mut sum, mut until) = (0.0, f64::NEG_INFINITY);
    for (from, to) in intervals {
        sum += (to - from.max(until)).max(0.0);
        until = until.max(*to);
    }
    sum
}

#[allow(clippy::cast_precision_loss, reason = "bytes of transfers")]
pub(super) fn result(
    study: &ResearchStudy,
    map: &Map,
    transfers: &[DrawnTransfer],
    day: &DayOutcome,
) -> DayResult {
    let span = 3600.0 * f64::from(study.hours);
    #[derive(Default)]
    struct User {
        bytes: f64,
        intervals: Vec<(f64, f64)>,
        ideal_s: f64,
        took_s: f64,
    }
    let mut users: BTreeMap<usize, User> = BTreeMap::new();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); CLASSES.len()];
    let (mut moved, mut last_s, mut ended) = (0.0, 0.0_f64, 0);
    for (transfer, end) in transfers.iter().zip(&day.ends_s) {
        let passage = map.passage(transfer.source, transfer.destination);
        let bytes = transfer.bytes as f64;
        let end_s = end.unwrap_or(day.until_s);
        let took = end_s - transfer.at_s;
        ended += usize::from(end.is_some());
        last_s = last_s.max(end_s);
        moved += bytes * ((span - transfer.at_s) / took.max(1e-9)).clamp(0.0, 1.0);
        let class = CLASSES.iter().position(|(_, most)| transfer.bytes < *most);
        times[class.unwrap_or(CLASSES.len() - 1)].push(took);
        let user = users.entry(transfer.user).or_default();
        user.bytes += bytes;
        user.intervals.push((transfer.at_s, end_s));
        user.ideal_s +=
            f64::from(study.login_round_trips) * passage.rtt_s + bytes * 8.0 / passage.rate_bps;
        user.took_s += took;
    }
    let rates: Vec<f64> = (users.values())
        .map(|user| 8.0 * user.bytes / covered_s(&user.intervals).max(1e-9))
        .collect();
    let alone: Vec<f64> = users
        .values()
        .map(|user| user.ideal_s / user.took_s.max(1e-9))
        .collect();
    let of = |values: &[f64], share| quantile(values, share).unwrap_or(0.0);
    let sum = |pick: fn(&LinkUse) -> f64| -> f64 { day.links.iter().map(pick).sum() };
    let mut fullest: Vec<usize> = (0..day.links.len()).collect();
    fullest.sort_by(|a, b| day.links[*b].full_s.total_cmp(&day.links[*a].full_s));
    let fullest = fullest.into_iter().take(NAMED).map(|at| {
        let (used, until) = (&day.links[at], day.until_s.max(1e-9));
        LinkResult {
            name: map.names[at].clone(),
            full: used.full_s / until,
            queue: used.queue_s2 / until / map.links[at].queue_s,
            loss: used.lost_bytes / used.bytes.max(1.0),
            connections_max: used.connections_max,
        }
    });
    DayResult {
        ended,
        goodput_bps: 8.0 * moved / span,
        last_s,
        classes: (times.iter())
            .map(|times| (median(times).unwrap_or(0.0), of(times, 0.95), times.len()))
            .collect(),
        jain: jain(&rates),
        jain_of_alone: jain(&alone),
        of_alone: (of(&alone, 0.1), of(&alone, 0.5)),
        user_bps: (
            of(&rates, 0.1),
            of(&rates, 0.5),
            rates.iter().sum::<f64>() / (rates.len() as f64).max(1.0),
        ),
        loss: sum(|used| used.lost_bytes) / sum(|used| used.bytes).max(1.0),
        fullest: fullest.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_overlap_count_once() {
        assert_eq!(
            covered_s(&[(0.0, 4.0), (1.0, 2.0), (3.0, 6.0), (8.0, 9.0)]),
            7.0
        );
        assert_eq!(jain(&[1.0, 1.0, 1.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    }
}
