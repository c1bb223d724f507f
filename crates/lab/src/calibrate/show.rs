//! Prints a calibration: a table, and the frontier as a figure.

use std::fmt;

use super::{Calibration, FrontierPoint};
use crate::report::chart::{Axis, Figure, Look, Panel, Point, Scale, Series};

impl Calibration {
    /// Goodput against channels, a line for each rate; what did not hold is hollow.
    pub fn frontier_figure(&self) -> Figure {
        let mut rates: Vec<u64> = self.frontier.iter().map(|point| point.rate_bps).collect();
        rates.dedup();
        let series = (rates.iter().enumerate())
            .map(|(index, &rate)| Series {
                label: format!("{} Gbit/s", gigabits(rate)),
                colour: Some(index),
                look: Look::Measured(index),
                points: (self.frontier.iter())
                    .filter(|point| point.rate_bps == rate)
                    .map(drawn)
                    .collect(),
            })
            .collect();
        let channels = self.frontier.iter().map(|point| count(point.channels));
        let goodputs = self.frontier.iter().map(|point| point.goodput_bps / 1e6);
        Figure::Lines {
            name: "Highest rates and numbers of channels that are emulated faithfully".to_owned(),
            columns: None,
            panels: vec![Panel {
                title: "hollow: the emulator fell behind, or the path was not full".to_owned(),
                x: Axis::at("TCP channels", Scale::Log, channels.collect()),
                y: Axis::over("goodput, Mbit/s", Scale::Log, goodputs),
                series,
            }],
        }
    }
}

fn drawn(point: &FrontierPoint) -> Point {
    let late = point.emulator.lateness;
    Point {
        x: count(point.channels),
        y: point.goodput_bps / 1e6,
        interval: None,
        tip: format!(
            "{} Gbit/s, {} channels: {:.0} Mbit/s, packets {:.0} us late on average, one in a \
             hundred {:.0} us",
            gigabits(point.rate_bps),
            point.channels,
            point.goodput_bps / 1e6,
            late.mean_us,
            late.p99_us
        ),
        doubtful: !point.holds,
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates")]
fn gigabits(bps: u64) -> f64 {
    bps as f64 / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn count(n: usize) -> f64 {
    n as f64
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = |good: bool| if good { "ok" } else { "OUT OF BOUNDS" };
        writeln!(f, "{} processors\n", self.processors)?;
        writeln!(f, "round trip, us    median       p99")?;
        for check in &self.rtts {
            writeln!(
                f,
                "{:>14.0} {:>9.0} {:>9.0}  {}",
                check.asked_us,
                check.median_us,
                check.p99_us,
                verdict(check.within_bounds)
            )?;
        }
        writeln!(f, "\nrate, Mbit/s    measured   error %")?;
        for check in &self.rates {
            #[allow(clippy::cast_precision_loss, reason = "rates")]
            let asked = check.asked_bps as f64 / 1e6;
            writeln!(
                f,
                "{asked:>12.0} {:>11.2} {:>9.3}  {}",
                check.measured_bps / 1e6,
                check.error * 100.0,
                verdict(check.within_bounds)
            )?;
        }
        writeln!(
            f,
            "\n   Gbit/s channels threads goodput Mbit/s   late us: mean  p50   p99     max  CPU %"
        )?;
        for point in &self.frontier {
            let late = point.emulator.lateness;
            #[allow(clippy::cast_precision_loss, reason = "rates")]
            let rate = point.rate_bps as f64 / 1e9;
            let cpu: f64 = point.emulator.cpu_shares.iter().sum();
            writeln!(
                f,
                "{rate:>9.1} {:>8} {:>7} {:>14.0} {:>15.0} {:>4.0} {:>5.0} {:>7.0} {:>6.0}  {}",
                point.channels,
                point.threads,
                point.goodput_bps / 1e6,
                late.mean_us,
                late.p50_us,
                late.p99_us,
                late.max_us,
                cpu * 100.0,
                match (point.holds, point.tries) {
                    (true, 1) => "holds".to_owned(),
                    (true, tries) => format!("holds (try {tries})"),
                    (false, tries) => format!("does not hold ({tries} tries)"),
                }
            )?;
            for reason in &point.emulator.unfaithful {
                writeln!(f, "          {reason}")?;
            }
        }
        Ok(())
    }
}
