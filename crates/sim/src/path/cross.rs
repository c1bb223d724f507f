//! Cross traffic: when packets of other connections arrive at the queue.

use super::config::{CrossTraffic, Pattern};
use super::rng::Rng;

/// One source of packets without a receiver.
#[derive(Debug, Clone)]
pub(super) struct Source {
    config: CrossTraffic,
    rng: Rng,
    next_ns: u64,
    /// What the division of the last gap left, so that the mean rate is exact.
    remainder: u64,
    /// End of the current burst.
    burst_end_ns: u64,
}

impl Source {
    /// A source that starts at `start_ns`, at a random phase: several of them must not march in
    /// step.
    pub(super) fn new(config: CrossTraffic, mut rng: Rng, start_ns: u64) -> Source {
        let mut source = Source {
            config,
            rng: rng.clone(),
            next_ns: start_ns,
            remainder: 0,
            burst_end_ns: u64::MAX,
        };
        let gap = source.even_gap();
        source.next_ns += rng.up_to(gap);
        source.rng = rng;
        if let Pattern::OnOff { on_ns, random, .. } = config.pattern {
            source.burst_end_ns = source.next_ns.saturating_add(source.draw(on_ns, random));
        }
        source
    }

    /// When the next packet arrives, ns.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next packet: its size in bytes.
    pub(super) fn take(&mut self) -> u32 {
        let gap = self.even_gap();
        let gap = match self.config.pattern {
            Pattern::Poisson => self.rng.exponential(gap),
            Pattern::Constant | Pattern::OnOff { .. } => gap,
        };
        self.next_ns = self.next_ns.saturating_add(gap);
        if let Pattern::OnOff {
            on_ns,
            off_ns,
            random,
        } = self.config.pattern
        {
            // A burst may be shorter than a gap; it still sends one packet.
            if self.next_ns >= self.burst_end_ns {
                let off = self.draw(off_ns, random);
                self.next_ns = self.next_ns.max(self.burst_end_ns.saturating_add(off));
                let on = self.draw(on_ns, random);
                self.burst_end_ns = self.next_ns.saturating_add(on);
            }
        }
        self.config.packet_bytes
    }

    fn draw(&mut self, mean_ns: u64, random: bool) -> u64 {
        if random {
            self.rng.exponential(mean_ns)
        } else {
            mean_ns
        }
    }

    /// Time between packets at the configured rate, ns; at least 1.
    fn even_gap(&mut self) -> u64 {
        let work =
            u128::from(self.config.packet_bytes) * 8_000_000_000 + u128::from(self.remainder);
        let rate = u128::from(self.config.rate_bps);
        self.remainder = u64::try_from(work % rate).unwrap_or(0);
        u64::try_from(work / rate).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sent_bits(config: CrossTraffic, for_ns: u64) -> u64 {
        let mut source = Source::new(config, Rng::new(1, 1), 0);
        let mut bits = 0;
        while source.next_ns() < for_ns {
            bits += u64::from(source.take()) * 8;
        }
        bits
    }

    #[test]
    fn constant_traffic_keeps_its_rate_exactly() {
        for rate in [1_000_000, 622_080_000, 333_333_333] {
            let bits = sent_bits(CrossTraffic::constant(rate), 10 * SECOND);
            assert!(bits.abs_diff(rate * 10) <= 2 * 12_000, "{rate}: {bits}");
        }
    }

    #[test]
    fn poisson_traffic_keeps_its_mean() {
        let config = CrossTraffic {
            pattern: Pattern::Poisson,
            ..CrossTraffic::constant(100_000_000)
        };
        let bits = sent_bits(config, 20 * SECOND);
        assert!(bits.abs_diff(2_000_000_000) < 40_000_000, "{bits}");
    }

    #[test]
    fn bursts_and_pauses_share_the_time() {
        for random in [false, true] {
            let config = CrossTraffic {
                pattern: Pattern::OnOff {
                    on_ns: SECOND / 100,
                    off_ns: SECOND * 3 / 100,
                    random,
                },
                ..CrossTraffic::constant(100_000_000)
            };
            // A quarter of 100 Mbit/s for 100 s.
            let bits = sent_bits(config, 100 * SECOND);
            assert!(bits.abs_diff(2_500_000_000) < 125_000_000, "{bits}");
        }
    }
}
