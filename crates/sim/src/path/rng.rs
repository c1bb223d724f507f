//! Seeded random numbers for a path, one stream of them for each purpose.

use godwit_tune::random::Random;

/// Eight bytes of state, good enough for drop decisions.
#[derive(Debug, Clone)]
pub struct Rng(Random);

impl Rng {
    /// A generator for one purpose. Each purpose has its own `stream`, so that switching one
    /// feature of a path on does not change the decisions of the others.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let outer = Random::new(seed).next_u64();
        let inner = Random::new(outer ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03)).next_u64();
        Rng(Random::new(inner))
    }

    /// Uniform over all values.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// True with probability `p`; draws a number in any case.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Uniform in `0..=max`.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the high half of the product is below 2^64"
    )]
    pub fn up_to(&mut self, max: u64) -> u64 {
        let span = u128::from(max) + 1;
        ((u128::from(self.next_u64()) * span) >> 64) as u64
    }

    /// Exponentially distributed with the given mean, at least 1.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "nanoseconds; float casts saturate"
    )]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let drawn = -(1.0 - self.unit()).ln() * mean as f64;
        (drawn as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_change() {
        // Published SplitMix64 outputs for the state 1234567.
        let mut rng = Rng(Random::new(1_234_567));
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut rng = Rng::new(7, 0);
        let n = 100_000;
        let unit: f64 = (0..n).map(|_| rng.unit()).sum::<f64>() / f64::from(n);
        assert!((unit - 0.5).abs() < 0.005, "{unit}");
        let total: u64 = (0..n).map(|_| rng.exponential(1_000)).sum();
        assert!((98_000_000..102_000_000).contains(&total), "{total}");
        assert!((0..1000).all(|_| rng.up_to(3) <= 3));
    }
}
