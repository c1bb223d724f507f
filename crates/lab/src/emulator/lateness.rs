//! A histogram of how late packets were delivered; a sample costs a few nanoseconds.

use serde::Serialize;

/// Steps within each power of two: values are known to 1/16.
const STEPS_LOG2: u32 = 4;
const STEPS: u64 = 1 << STEPS_LOG2;
/// Enough for any u64.
const BUCKETS: usize = ((64 - STEPS_LOG2 as usize) + 1) << STEPS_LOG2;

/// Counts of durations in logarithmic buckets.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

/// How late packets were delivered, beyond the time the path model gave them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Packets delivered.
    pub packets: u64,
    /// Mean, us.
    pub mean_us: f64,
    /// Median, us, to 6 %.
    pub p50_us: f64,
    /// 99th percentile, us, to 6 %.
    pub p99_us: f64,
    /// Maximum, us.
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            count: 0,
            total_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// `packets` samples of `ns`.
    pub(super) fn record(&mut self, ns: u64, packets: u64) {
        self.counts[bucket(ns)] += packets;
        self.count += packets;
        self.total_ns = self.total_ns.saturating_add(ns.saturating_mul(packets));
        self.max_ns = self.max_ns.max(ns);
    }

    pub(super) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// All zero again, without giving memory back.
    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.total_ns, self.max_ns) = (0, 0, 0);
    }

    #[allow(clippy::cast_precision_loss, reason = "reported to a few digits")]
    pub(super) fn summary(&self) -> Lateness {
        let us = |ns: u64| ns as f64 / 1000.0;
        Lateness {
            packets: self.count,
            mean_us: us(self.total_ns) / (self.count.max(1)) as f64,
            p50_us: us(self.quantile(50)),
            p99_us: us(self.quantile(99)),
            max_us: us(self.max_ns),
        }
    }

    /// The upper end of the bucket where `percent` of the samples are reached.
    fn quantile(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_end(index).min(self.max_ns);
            }
        }
        0
    }
}

#[allow(clippy::cast_possible_truncation, reason = "below BUCKETS")]
fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let exponent = ns.ilog2() - STEPS_LOG2;
    let step = (ns >> exponent) - STEPS;
    (((u64::from(exponent) + 1) << STEPS_LOG2) + step) as usize
}

fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let exponent = (index >> STEPS_LOG2) - 1;
    let step = index & (STEPS - 1);
    let end = (u128::from(STEPS + step + 1) << exponent) - 1;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_everything_in_order() {
        for ns in [0, 1, 15, 16, 17, 1000, 123_456, 1 << 40, u64::MAX] {
            let index = bucket(ns);
            assert!(index < BUCKETS, "{ns}");
            assert!(upper_end(index) >= ns, "{ns}");
            assert!(index == 0 || upper_end(index - 1) < ns, "{ns}");
        }
    }

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(us * 1000, 1);
        }
        let lateness = histogram.summary();
        assert_eq!(lateness.packets, 1000);
        assert!((lateness.mean_us - 500.5).abs() < 0.1);
        assert!((500.0..535.0).contains(&lateness.p50_us), "{lateness:?}");
        assert!((990.0..=1000.0).contains(&lateness.p99_us), "{lateness:?}");
        assert!((lateness.max_us - 1000.0).abs() < 0.1);
        histogram.clear();
        assert_eq!(histogram.summary(), Lateness::default());
    }
}
