//! The time resolution of the emulator.
//!
//! Each wake-up costs some microseconds of a processor that the endpoints need, and each frame
//! handed over costs the host that gets it a way through its network stack. What may be late by a
//! share of a long delay need not be measured as finely as what takes a tenth of a millisecond:
//! network interfaces gather frames for as long before they interrupt.

/// Shortest sleep while packets flow, ns, where delays are short, and at most.
const QUANTUM_NS: std::ops::RangeInclusive<u64> = 40_000..=100_000;

/// What part of a delay may be added to it.
const DELAY_SHARE: u64 = 250;

/// The grain of time of one emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    quantum_ns: u64,
}

impl Pace {
    /// For paths of which the shortest delays packets by so much one way, ns.
    pub(super) fn of(delay_ns: u64) -> Pace {
        Pace {
            quantum_ns: (delay_ns / DELAY_SHARE).clamp(*QUANTUM_NS.start(), *QUANTUM_NS.end()),
        }
    }

    /// Shortest sleep while packets flow, ns: packets due in between are this late at most.
    /// Surviving neighbours of one frame that are due within this time are delivered as one, with
    /// the last.
    pub(super) fn quantum_ns(self) -> u64 {
        self.quantum_ns
    }

    /// When to wake up, ns, where the next packet is due at `due` and packets flow: soon enough to
    /// know arrivals, which are made even inside.
    pub(super) fn wake(self, now: u64, due: u64) -> u64 {
        due.clamp(now + self.quantum_ns, now + self.quantum_ns * 5 / 2)
    }

    /// Below one frame in this time on average the thread watches its ports instead, ns: then each
    /// packet is seen when it comes.
    pub(super) fn sparse_ns(self) -> u64 {
        self.quantum_ns * 25 / 8
    }

    /// The time over which that average is taken, ns.
    pub(super) fn memory_ns(self) -> u64 {
        self.quantum_ns * 25
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_delays_are_measured_less_finely() {
        let quantum = |delay_ms: u64| Pace::of(delay_ms * 1_000_000).quantum_ns();
        assert_eq!(
            [0, 1, 10, 20, 30, 100].map(quantum),
            [40_000, 40_000, 40_000, 80_000, 100_000, 100_000]
        );
    }

    #[test]
    fn sleeps_end_when_the_next_is_due_within_bounds() {
        let pace = Pace::of(0);
        assert_eq!(pace.wake(1000, 0), 41_000);
        assert_eq!(pace.wake(1000, 51_000), 51_000);
        assert_eq!(pace.wake(1000, u64::MAX), 101_000);
    }
}
