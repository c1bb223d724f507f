//! Statistics of a handful of repeats: median, mean, range and a confidence interval.
//!
//! Everything here takes finite samples in any order and any unit, and answers in the same unit.

use serde::{Deserialize, Serialize};

/// What a few repeats of one measurement say together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Samples.
    pub count: usize,
    /// Middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Half the width of the two-sided 95 % confidence interval of the mean (Student's t, so
    /// samples are taken for independent and roughly normal); `None` for fewer than two samples.
    pub half_width: Option<f64>,
}

impl Summary {
    /// Of these samples; `None` when there are none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let median = median(samples)?;
        let mean = mean(samples)?;
        Some(Summary {
            count: samples.len(),
            median,
            mean,
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            half_width: half_width(samples),
        })
    }

    /// Lower end of the confidence interval, or the mean itself for a single sample.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width.unwrap_or(0.0)
    }

    /// Upper end of the confidence interval, or the mean itself for a single sample.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width.unwrap_or(0.0)
    }
}

/// The middle sample, or the mean of the two in the middle; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The least sample that at least this share of all samples does not pass; `None` without samples.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count"
)]
pub fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The arithmetic mean; `None` without samples.
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Standard deviation of the population that these are samples of (n - 1 in the denominator).
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
pub fn standard_deviation(samples: &[f64]) -> Option<f64> {
    if samples.len() < 2 {
        return None;
    }
    let mean = mean(samples)?;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    Some((squares / (samples.len() - 1) as f64).sqrt())
}

/// Half the width of the 95 % confidence interval of the mean: t s / sqrt(n).
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn half_width(samples: &[f64]) -> Option<f64> {
    let deviation = standard_deviation(samples)?;
    let count = samples.len();
    Some(student_t_975(count - 1) * deviation / (count as f64).sqrt())
}

/// 97.5 % quantile of Student's t with this many degrees of freedom, at least 1. From the usual
/// table; between its rows the more careful neighbour.
pub fn student_t_975(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match degrees {
        0 => f64::INFINITY,
        1..=30 => TABLE[degrees - 1],
        31..=39 => 2.042,
        40..=59 => 2.021,
        60..=119 => 2.000,
        _ => 1.980,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
    }

    #[test]
    fn one_sample_has_no_interval() {
        let summary = Summary::of(&[7.0]).expect("a sample");
        assert_eq!((summary.median, summary.mean), (7.0, 7.0));
        assert_eq!(summary.half_width, None);
        assert_eq!((summary.low(), summary.high()), (7.0, 7.0));
    }

    #[test]
    fn the_median_takes_the_middle_in_any_order() {
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
    }

    #[test]
    fn the_interval_is_the_textbook_one() {
        // n = 5, mean 10, s = sqrt(2.5) = 1.5811, t = 2.776: 1.963.
        let summary = Summary::of(&[8.0, 9.0, 10.0, 11.0, 12.0]).expect("samples");
        let half = summary.half_width.expect("an interval");
        assert!((half - 1.9629).abs() < 1e-3, "{half}");
        assert!((summary.low() - 8.037).abs() < 1e-3);
        assert_eq!((summary.min, summary.max), (8.0, 12.0));
    }

    #[test]
    fn quantiles_fall_towards_the_normal_one() {
        let values: Vec<f64> = (1..200).map(student_t_975).collect();
        assert!(values.windows(2).all(|pair| pair[0] >= pair[1]));
        assert!(values.iter().all(|t| *t > 1.95));
    }
}
