//! Loss on the wire: random, or in bursts.

use super::config::Loss;
use super::rng::Rng;

#[derive(Debug, Clone)]
pub(super) struct LossProcess {
    config: Loss,
    rng: Rng,
    in_bad: bool,
}

impl LossProcess {
    pub(super) fn new(config: Loss, rng: Rng) -> LossProcess {
        LossProcess {
            config,
            rng,
            in_bad: false,
        }
    }

    /// Starts another process, in its good state; the sequence of random numbers continues.
    pub(super) fn set(&mut self, config: Loss) {
        self.config = config;
        self.in_bad = false;
    }

    /// Whether the next packet is lost.
    pub(super) fn next_is_lost(&mut self) -> bool {
        match self.config {
            Loss::None => false,
            Loss::Random { ratio } => self.rng.chance(ratio),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                bad,
                good,
            } => {
                let turn = if self.in_bad { to_good } else { to_bad };
                if self.rng.chance(turn) {
                    self.in_bad = !self.in_bad;
                }
                self.rng.chance(if self.in_bad { bad } else { good })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(config: Loss, seed: u64, packets: usize) -> Vec<bool> {
        let mut process = LossProcess::new(config, Rng::new(seed, 1));
        (0..packets).map(|_| process.next_is_lost()).collect()
    }

    fn count(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64
    }

    #[test]
    fn random_loss_lies_within_binomial_bounds() {
        let packets = 200_000;
        for ratio in [0.0001, 0.001, 0.01, 0.3] {
            for seed in 1..=5 {
                let losses = count(&lost(Loss::Random { ratio }, seed, packets));
                let mean = ratio * packets as f64;
                // Four standard deviations; the seeds are fixed.
                let bound = 4.0 * (mean * (1.0 - ratio)).sqrt();
                assert!((losses - mean).abs() < bound, "{ratio} {seed}: {losses}");
            }
        }
    }

    #[test]
    fn bursts_have_the_asked_mean_length_and_ratio() {
        let config = Loss::GilbertElliott {
            to_bad: 0.001,
            to_good: 0.1,
            bad: 1.0,
            good: 0.0,
        };
        let lost = lost(config, 1, 1_000_000);
        let ratio = count(&lost) / lost.len() as f64;
        let expected = config.mean_ratio();
        assert!((ratio / expected - 1.0).abs() < 0.1, "{ratio} {expected}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let length = count(&lost) / bursts as f64;
        assert!((9.0..11.0).contains(&length), "{length}");
    }

    #[test]
    fn the_extremes_are_exact() {
        assert!(
            lost(Loss::Random { ratio: 1.0 }, 1, 1000)
                .iter()
                .all(|&l| l)
        );
        assert!(
            lost(Loss::Random { ratio: 0.0 }, 1, 1000)
                .iter()
                .all(|&l| !l)
        );
        assert!(lost(Loss::None, 1, 10).iter().all(|&l| !l));
    }
}
