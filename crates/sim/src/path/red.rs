//! Random early detection as ns-2's `queue/red.cc` does it, without its adaptive mode.

use super::config::RedConfig;
use super::rng::Rng;

/// The estimator and the drop decision. Queue lengths are in the unit of the thresholds.
#[derive(Debug, Clone)]
pub(super) struct Red {
    config: RedConfig,
    rng: Rng,
    /// Average queue, ns-2's `v_ave`.
    average: f64,
    /// Arrivals since the last drop while above `min`, ns-2's `count`.
    count: u64,
    /// Whether the average was above `min` at the last arrival, ns-2's `old`.
    above_min: bool,
}

/// What RED makes of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedVerdict {
    Accept,
    /// Dropped at random, or since the average is at `max` or above.
    Drop,
}

impl Red {
    pub(super) fn new(config: RedConfig, rng: Rng, queue: f64) -> Red {
        Red {
            config,
            rng,
            average: queue,
            count: 0,
            above_min: false,
        }
    }

    pub(super) fn mean_packet_bytes(&self) -> u32 {
        self.config.mean_packet_bytes
    }

    #[cfg(test)]
    pub(super) fn average(&self) -> f64 {
        self.average
    }

    /// One arrival at a queue of `queue`, of which `packets` packets, after `idle_packets` packets
    /// could have been sent while it was empty.
    pub(super) fn arrive(&mut self, queue: f64, packets: usize, idle_packets: u64) -> RedVerdict {
        // avg <- (1 - w_q)^(m+1) avg + w_q q, with m = 0 for a queue that was not empty. Beyond
        // i32::MAX packets nothing is left of the average anyway.
        let steps = i32::try_from(idle_packets.saturating_add(1)).unwrap_or(i32::MAX);
        let weight = self.config.weight;
        self.average = self.average * (1.0 - weight).powi(steps) + weight * queue;
        self.count += 1;
        if self.average < self.config.min || packets <= 1 {
            self.above_min = false;
            return RedVerdict::Accept;
        }
        if self.average >= self.all_dropped_from() {
            self.count = 0;
            return RedVerdict::Drop;
        }
        if !self.above_min {
            self.above_min = true;
            self.count = 1;
            return RedVerdict::Accept;
        }
        if self.rng.unit() <= self.drop_probability() {
            self.count = 0;
            return RedVerdict::Drop;
        }
        RedVerdict::Accept
    }

    /// Called when the queue itself was full.
    pub(super) fn overflowed(&mut self) {
        self.count = 0;
    }

    /// Average queue from which on nothing passes.
    fn all_dropped_from(&self) -> f64 {
        if self.config.gentle {
            2.0 * self.config.max
        } else {
            self.config.max
        }
    }

    /// p_b = max_p (avg - min) / (max - min), or where it is gentle from max on
    /// p_b = max_p + (1 - max_p) (avg - max) / max; spread by the count since the last drop.
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of packets between drops"
    )]
    fn drop_probability(&self) -> f64 {
        let RedConfig {
            min, max, max_p, ..
        } = self.config;
        let base = if self.average < max {
            max_p * (self.average - min) / (max - min)
        } else {
            max_p + (1.0 - max_p) * (self.average - max) / max
        };
        let base = base.min(1.0);
        let spent = self.count as f64 * base;
        if self.config.wait {
            if spent < 1.0 {
                0.0
            } else if spent < 2.0 {
                base / (2.0 - spent)
            } else {
                1.0
            }
        } else if spent < 1.0 {
            base / (1.0 - spent)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(wait: bool) -> RedConfig {
        RedConfig {
            min: 25.0,
            max: 75.0,
            max_p: 0.1,
            weight: 0.002,
            mean_packet_bytes: 1000,
            wait,
            gentle: false,
        }
    }

    fn red(wait: bool) -> Red {
        Red::new(config(wait), Rng::new(1, 1), 0.0)
    }

    #[test]
    fn the_average_is_that_of_the_formula() {
        let mut red = red(true);
        let mut reference = 0.0;
        let arrivals = [(0, 0), (3, 0), (9, 0), (40, 0), (0, 700), (1, 0), (20, 0)];
        for (queue, idle) in arrivals.repeat(50) {
            red.arrive(f64::from(queue), 2, idle);
            for _ in 0..idle {
                reference *= 1.0 - 0.002;
            }
            reference = (1.0 - 0.002) * reference + 0.002 * f64::from(queue);
            assert!((red.average() - reference).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_is_dropped_below_min_and_all_at_max() {
        let mut red = red(true);
        assert!((0..100_000).all(|_| red.arrive(24.0, 24, 0) == RedVerdict::Accept));
        for _ in 0..10_000 {
            red.arrive(90.0, 90, 0);
        }
        assert!((0..100).all(|_| red.arrive(90.0, 90, 0) == RedVerdict::Drop));
    }

    #[test]
    fn a_gentle_queue_drops_all_from_twice_max_only() {
        let dropped = |queue: f64| {
            let gentle = RedConfig {
                gentle: true,
                ..config(false)
            };
            let mut red = Red::new(gentle, Rng::new(1, 1), queue);
            (0..20_000)
                .filter(|_| red.arrive(queue, 99, 0) == RedVerdict::Drop)
                .count()
        };
        // p_b = 0.1 + 0.9 x 25/75 = 0.4: drops are one packet apart by 0.4 / (1 - 0.4), else two.
        let between = dropped(100.0);
        assert!((14_600..15_400).contains(&between), "{between}");
        assert_eq!(dropped(150.0), 20_000);
    }

    /// Gaps between drops at a constant average of 50, where p_b = 0.05.
    fn gaps(wait: bool) -> Vec<u32> {
        let mut red = Red::new(config(wait), Rng::new(3, 1), 50.0);
        let mut gaps = Vec::new();
        let mut gap = 0;
        for _ in 0..100_000 {
            gap += 1;
            if red.arrive(50.0, 50, 0) == RedVerdict::Drop {
                gaps.push(gap);
                gap = 0;
            }
        }
        gaps.split_off(1)
    }

    #[test]
    fn drops_are_spread_as_in_the_paper() {
        // Uniform on 1..=1/p_b, mean 10.5.
        let gaps = gaps(false);
        assert!(gaps.iter().all(|gap| (1..=20).contains(gap)));
        let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
        assert!((9.8..11.2).contains(&mean), "{mean}");
    }

    #[test]
    fn drops_are_spread_as_in_ns2() {
        // Uniform on 1/p_b..=2/p_b, mean 30.
        let gaps = gaps(true);
        assert!(gaps.iter().all(|gap| (20..=40).contains(gap)));
        let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
        assert!((29.0..31.5).contains(&mean), "{mean}");
    }
}
