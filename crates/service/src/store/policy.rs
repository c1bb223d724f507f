//! What is decided about units without a database: how segments are cut, when a file is tried
//! again, how a unit that loses its agents is split.

use std::{ops::Range, time::Duration};

use godwit_service_api::agent::MAX_UNIT_FILES;

/// Most bytes of a unit with more than one file.
pub const MAX_UNIT_BYTES: u64 = 4 << 30;

/// Most files of the first unit of a job, so that small jobs start and end early.
pub const FIRST_UNIT_FILES: usize = 16;

/// Most bytes of the first unit of a job with more than one file.
pub const FIRST_UNIT_BYTES: u64 = 256 << 20;

/// A file of unknown size counts as this when units are cut.
pub const ASSUMED_BYTES: u64 = 64 << 20;

/// A unit that so many agents lost is split.
pub const LOSSES_TO_SPLIT: u32 = 3;

const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(600);

/// Places of a segment that go into one unit each. `first`: the first is the first of the job.
pub fn cut(sizes: &[Option<u64>], first: bool) -> Vec<(Range<usize>, u64)> {
    let mut units = Vec::new();
    let (mut start, mut bytes) = (0, 0_u64);
    for (place, size) in sizes.iter().enumerate() {
        let size = size.unwrap_or(ASSUMED_BYTES);
        let (most_files, most_bytes) = match first && units.is_empty() {
            true => (FIRST_UNIT_FILES, FIRST_UNIT_BYTES),
            false => (MAX_UNIT_FILES, MAX_UNIT_BYTES),
        };
        let full = place - start == most_files || bytes.saturating_add(size) > most_bytes;
        if place > start && full {
            units.push((start..place, bytes));
            (start, bytes) = (place, 0);
        }
        bytes = bytes.saturating_add(size);
    }
    if start < sizes.len() {
        units.push((start..sizes.len(), bytes));
    }
    units
}

/// A file of more bytes is copied by several agents, unless the settings say otherwise.
pub const DIVIDE_ABOVE: u64 = 4 << 30;

/// Most ranges of a file.
const RANGES_MAX: u64 = 1000;

/// Ranges of a file of more than `above` bytes: 64, where that makes them neither short nor long.
/// Agents without work take the next range, so there are more ranges than agents. They begin at
/// multiples of `unit` where the destination wants that.
pub fn ranges(size: u64, above: u64, unit: Option<u64>) -> Vec<Range<u64>> {
    let usual = (size / 64).clamp(above / 8, above.max(1));
    let length = usual
        .max(size.div_ceil(RANGES_MAX))
        .next_multiple_of(unit.unwrap_or(RANGE_UNIT).max(1));
    let starts = (0..size.div_ceil(length)).map(|number| number * length);
    starts
        .map(|start| start..size.min(start + length))
        .collect()
}

/// Ranges begin at multiples of this, where the destination wants nothing else.
const RANGE_UNIT: u64 = 1 << 20;

/// How long a file waits after so many attempts that failed: 5 s, doubled each time, at most 10
/// minutes, and up to a quarter more by `seed`, so that what failed together comes back apart.
pub fn retry_after(attempts: u32, seed: u64) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(1 << attempts.saturating_sub(1).min(10));
    let delay = doubled.min(LAST_RETRY);
    // Fibonacci hashing spreads neighbours.
    let part = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    delay + delay.mul_f64(part as f64 / 4096.0)
}

/// What becomes of a unit whose agent was lost.
#[derive(Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// It goes back to the queue.
    Again,
    /// Two units take its place.
    Halves(Vec<u32>, Vec<u32>),
    /// Its only file has cost too many agents.
    Poison(u32),
}

/// Decides by the places that are still open and the losses so far, this one included.
pub fn after_loss(open: &[u32], losses: u32) -> AfterLoss {
    match open {
        _ if losses < LOSSES_TO_SPLIT => AfterLoss::Again,
        [] => AfterLoss::Again,
        [only] => AfterLoss::Poison(*only),
        _ => {
            let (left, right) = open.split_at(open.len() / 2);
            AfterLoss::Halves(left.to_vec(), right.to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(sizes: &[Option<u64>], first: bool) -> Vec<usize> {
        cut(sizes, first).iter().map(|(r, _)| r.len()).collect()
    }

    #[test]
    fn units_hold_a_thousand_files_or_four_gibibytes() {
        assert_eq!(lengths(&[Some(1); 2500], false), [1000, 1000, 500]);
        assert_eq!(lengths(&[Some(1 << 30); 9], false), [4, 4, 1]);
        assert_eq!(
            lengths(&[Some(5), Some(9 << 30), Some(5)], false),
            [1, 1, 1]
        );
        assert_eq!(lengths(&[None; 130], false), [64, 64, 2]);
        assert_eq!(lengths(&[], false), [0; 0]);
    }

    #[test]
    fn the_first_unit_of_a_job_is_small() {
        assert_eq!(lengths(&[Some(1); 1000], true), [16, 984]);
        assert_eq!(lengths(&[Some(100 << 20); 5], true), [2, 3]);
        assert_eq!(lengths(&[Some(1 << 40); 2], true), [1, 1]);
    }

    #[test]
    fn units_cover_the_segment_and_no_size_overflows() {
        let units = cut(&[Some(u64::MAX), Some(u64::MAX), Some(0)], false);
        let places: Vec<usize> = units.iter().flat_map(|(r, _)| r.clone()).collect();
        assert_eq!(places, [0, 1, 2]);
    }

    #[test]
    fn ranges_cover_the_file_and_are_neither_short_nor_many() {
        let lengths = |size, above| -> Vec<u64> {
            let ranges = ranges(size, above, None);
            let ends = ranges.windows(2).all(|pair| pair[0].end == pair[1].start);
            assert!(ends && ranges[0].start == 0 && ranges[ranges.len() - 1].end == size);
            ranges.iter().map(|range| range.end - range.start).collect()
        };
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(lengths(5 * gib, 4 * gib), [512 * mib; 10]);
        assert_eq!(lengths(64 * gib, 4 * gib), [gib; 64]);
        assert_eq!(lengths(1 << 40, 4 * gib), [4 * gib; 256]);
        assert_eq!(lengths((3 << 20) + 1, 2 * mib), [mib, mib, mib, 1]);
        assert!(lengths(1 << 50, 4 * gib).len() <= 1000);
        let of_parts = ranges(5 * gib, 4 * gib, Some(7_000_000));
        assert!(of_parts.iter().all(|range| range.start % 7_000_000 == 0));
        assert_eq!(of_parts.last().map(|range| range.end), Some(5 * gib));
    }

    #[test]
    fn retries_wait_longer_each_time_up_to_a_limit() {
        let base: Vec<u64> = (1..=9).map(|n| retry_after(n, 0).as_secs()).collect();
        assert_eq!(base, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert!((0..100).all(|s| retry_after(40, s) < Duration::from_secs(750)));
        assert_ne!(retry_after(3, 1), retry_after(3, 2));
    }

    #[test]
    fn a_unit_that_loses_three_agents_is_split_down_to_one_file() {
        assert_eq!(after_loss(&[1, 2, 3], 2), AfterLoss::Again);
        assert_eq!(
            after_loss(&[1, 2, 3], 3),
            AfterLoss::Halves(vec![1], vec![2, 3])
        );
        assert_eq!(after_loss(&[7], 3), AfterLoss::Poison(7));
    }
}
