//! Maps values to pixels and places the ticks of an axis.

/// How values spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithms; values must be above 0.
    Log,
}

/// One axis of a panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Name and unit.
    pub label: String,
    /// Spread.
    pub scale: Scale,
    /// Smallest value shown.
    pub low: f64,
    /// Largest value shown; above `low`.
    pub high: f64,
    /// Where ticks go, with their text.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis that shows all of `values`; a linear one starts at 0. Ticks are round numbers.
    pub fn over(label: &str, scale: Scale, values: impl IntoIterator<Item = f64>) -> Axis {
        let (low, high) = bounds(values, scale);
        let (low, high, ticks) = match scale {
            Scale::Linear => {
                let step = step(high / 5.0);
                let high = (high / step * 0.999).ceil() * step;
                let ticks = (0..=20).map(|i| f64::from(i) * step);
                (
                    0.0,
                    high,
                    ticks.take_while(|t| *t <= high * 1.001).collect(),
                )
            }
            Scale::Log => log_ticks(low, high),
        };
        Axis {
            label: label.to_owned(),
            scale,
            low,
            high,
            ticks: ticks.into_iter().map(|t| (t, number(t))).collect(),
        }
    }

    /// An axis whose ticks are the measured values themselves: numbers of channels, for instance.
    pub fn at(label: &str, scale: Scale, mut values: Vec<f64>) -> Axis {
        values.retain(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = match (values.first(), values.last()) {
            (Some(&low), Some(&high)) if high > low => (low, high),
            (Some(&only), _) => (only * 0.5, only * 1.5 + 1.0),
            _ => (1.0, 2.0),
        };
        let margin = 0.04;
        let (low, high) = match scale {
            Scale::Linear => (low - (high - low) * margin, high + (high - low) * margin),
            Scale::Log => {
                let ratio = (high / low).powf(margin);
                (low / ratio, high * ratio)
            }
        };
        Axis {
            label: label.to_owned(),
            scale,
            low,
            high,
            ticks: values.into_iter().map(|t| (t, number(t))).collect(),
        }
    }

    /// Where a value lies, `0..=1` from `low` to `high`; beyond for values beyond.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => {
                let floor = self.low * 1e-3;
                (value.max(floor) / self.low).ln() / (self.high / self.low).ln()
            }
        }
    }
}

fn bounds(values: impl IntoIterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let usable = |v: &f64| v.is_finite() && (scale == Scale::Linear || *v > 0.0);
    let (low, high) = (values.into_iter().filter(usable))
        .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| {
            (low.min(v), high.max(v))
        });
    if high > 0.0 { (low, high) } else { (1.0, 10.0) }
}

/// The round number, 1, 2 or 5 times a power of ten, at or above `least`.
fn step(least: f64) -> f64 {
    let power = 10.0_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0];
    let fits = factor.into_iter().find(|f| f * power >= least * 0.999);
    fits.unwrap_or(10.0) * power
}

/// Bounds and ticks at 1, 2, 5 times powers of ten that enclose the values; fewer over many
/// decades.
fn log_ticks(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let decades = (high / low).log10();
    let factors: &[f64] = if decades > 2.5 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let mut all = Vec::new();
    for power in -9..=15 {
        all.extend(factors.iter().map(|f| f * 10.0_f64.powi(power)));
    }
    let first = all.iter().rposition(|t| *t <= low * 1.001).unwrap_or(0);
    let last = all
        .iter()
        .position(|t| *t >= high * 0.999)
        .unwrap_or(all.len() - 1);
    let ticks = all[first..=last.max(first + 1)].to_vec();
    (ticks[0], ticks[ticks.len() - 1], ticks)
}

/// A tick's text: no more digits than it has.
pub fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn linear_axes_start_at_nothing_and_end_round() {
        let axis = Axis::over("y", Scale::Linear, [34.0, 965.0]);
        assert_eq!(ticks(&axis), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!((axis.place(0.0), axis.place(500.0)), (0.0, 0.5));
        let axis = Axis::over("y", Scale::Linear, [0.01, 0.033]);
        assert_eq!(ticks(&axis), ["0", "0.01", "0.02", "0.03", "0.04"]);
    }

    #[test]
    fn logarithmic_axes_enclose_their_values() {
        let axis = Axis::over("y", Scale::Log, [3.0, 900.0]);
        assert_eq!(
            ticks(&axis),
            ["2", "5", "10", "20", "50", "100", "200", "500", "1000"]
        );
        assert!((axis.place(2.0)).abs() < 1e-12);
        let wide = Axis::over("y", Scale::Log, [0.2, 900.0]);
        assert_eq!(ticks(&wide), ["0.1", "1", "10", "100", "1000"]);
        assert!(wide.place(0.0) < 0.0, "nothing lies below, not nowhere");
    }

    #[test]
    fn measured_values_can_be_the_ticks() {
        let axis = Axis::at("N", Scale::Log, vec![64.0, 1.0, 8.0, 8.0]);
        assert_eq!(ticks(&axis), ["1", "8", "64"]);
        assert!((axis.place(8.0) - 0.5).abs() < 1e-9);
        assert!(axis.place(1.0) > 0.0 && axis.place(64.0) < 1.0);
    }

    #[test]
    fn odd_values_still_make_an_axis() {
        for values in [vec![], vec![f64::NAN], vec![0.0], vec![5.0]] {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = Axis::over("y", scale, values.clone());
                assert!(axis.high > axis.low, "{values:?}");
                assert!(axis.place(5.0).is_finite());
            }
            assert!(
                Axis::at("x", Scale::Linear, values.clone())
                    .place(3.0)
                    .is_finite()
            );
        }
    }
}
