//! Conditions of one kind, drawn from a seed.

use super::{Condition, Cpu, Family, Load};
use crate::random::Random;

impl Family {
    /// A condition of this kind. Paths are 100 Mbit/s to 10 Gbit/s, 2 to 100 ms, noise 0.5 to 10 %;
    /// half of the conditions show evidence, half goodput only.
    pub fn draw(self, seed: u64) -> Condition {
        let mut draw = Draw(Random::new(seed));
        let capacity_bps = draw.log(1e8, 1e10);
        let rtt_s = draw.log(0.002, 0.1);
        let bdp_bytes = capacity_bps * rtt_s / 8.0;
        // Wide: a channel could carry twice the path.
        let mut condition = Condition {
            family: self,
            noise: draw.log(0.005, 0.1),
            evidence: draw.chance(0.5),
            ..Condition::path(capacity_bps, rtt_s, 2.0 * bdp_bytes)
        };
        let load = &mut condition.loads[0];
        match self {
            Self::OneIsEnough => {}
            Self::Window => condition.window_bytes = bdp_bytes / draw.log(1.0, 100.0),
            Self::Shallow => condition.shallow = draw.even(0.05, 0.25),
            Self::Lossy => {
                // A channel carries 1/200 to 1/10 of the path.
                let each = capacity_bps / draw.log(10.0, 200.0);
                condition.loss = (1.5 * (1448.0 * 8.0 / rtt_s / each).powi(2)).min(0.02);
            }
            Self::Background => {
                condition.window_bytes = bdp_bytes / draw.log(1.0, 50.0);
                load.constant = draw.even(0.1, 0.5);
            }
            Self::Contended => {
                condition.window_bytes = bdp_bytes / draw.log(0.5, 8.0);
                load.flows = draw.count(1.0, 20.0);
            }
            Self::CpuByThread | Self::CpuByGroup => {
                condition.cpu = Some(Cpu {
                    cores: f64::from(draw.count(2.0, 16.0)),
                    core_bps: capacity_bps / draw.log(1.0, 8.0),
                    by_group: self == Self::CpuByGroup,
                });
                load.busy = draw.count(4.0, 64.0);
            }
            Self::Storage => {
                condition.window_bytes = bdp_bytes / draw.log(1.0, 20.0);
                condition.storage_bps = Some(capacity_bps * draw.even(0.1, 0.8));
            }
            Self::Varying => {
                condition.seconds = 90.0;
                condition.window_bytes = bdp_bytes / draw.log(1.0, 30.0);
                let busy = Load {
                    from_s: 30.0,
                    constant: draw.even(0.3, 0.7),
                    ..Load::default()
                };
                condition.loads.push(busy);
                condition.loads.push(Load {
                    from_s: 60.0,
                    ..Load::default()
                });
            }
        }
        condition.window_bytes = condition.window_bytes.max(WINDOW_MIN_BYTES);
        condition
    }
}

/// No system of the last twenty years has smaller windows.
const WINDOW_MIN_BYTES: f64 = 16_384.0;

struct Draw(Random);

impl Draw {
    fn even(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.unit()
    }

    /// Evenly over the logarithm.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        self.even(low.ln(), high.ln()).exp()
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between two small numbers"
    )]
    fn count(&mut self, low: f64, high: f64) -> u32 {
        self.log(low, high).round() as u32
    }

    fn chance(&mut self, p: f64) -> bool {
        self.0.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    #[test]
    fn the_same_seed_is_the_same_condition() {
        for family in Family::ALL {
            assert_eq!(family.draw(5), family.draw(5));
            assert_ne!(family.draw(5), family.draw(6));
        }
    }

    #[test]
    fn every_condition_moves_something() {
        for family in Family::ALL {
            for seed in 0..200 {
                let condition = family.draw(seed);
                let steady = condition.steady(Setting::new(1, 1), &condition.loads[0], 0);
                assert!(steady.goodput_bps > 1e4, "{condition:?}");
            }
        }
    }
}
