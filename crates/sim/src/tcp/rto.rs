//! The retransmission timeout (RFC 6298), with ns-2's clock tick.

use super::MAX_RTO_NS;
use crate::SECOND;

/// Before the first round trip (RFC 6298 §2.1; ns-2 has 3 s of RFC 2988, which no scenario here
/// ever waits for).
const INITIAL_NS: u64 = SECOND;
/// Doublings of the timeout at most.
const BACK_OFF_MAX: u32 = 6;

#[derive(Debug)]
pub(crate) struct Rto {
    min_ns: u64,
    tick_ns: u64,
    /// SRTT and RTTVAR, ns.
    smoothed: Option<(f64, f64)>,
    least_ns: u64,
    backed_off: u32,
}

impl Rto {
    pub(super) fn new(min_ns: u64, tick_ns: u64) -> Self {
        Self {
            min_ns,
            tick_ns,
            smoothed: None,
            least_ns: u64::MAX,
            backed_off: 0,
        }
    }

    /// SRTT <- 7/8 SRTT + 1/8 R, RTTVAR <- 3/4 RTTVAR + 1/4 |SRTT - R|.
    #[allow(clippy::cast_precision_loss, reason = "round trips, ns")]
    pub(super) fn sample(&mut self, exact_ns: u64) {
        self.least_ns = self.least_ns.min(exact_ns);
        let r = match self.tick_ns {
            0 => exact_ns,
            // ns-2: int((now - ts) / tcp_tick_ + 0.5), at least one tick.
            tick => (exact_ns + tick / 2) / tick * tick,
        };
        let r = r.max(self.tick_ns) as f64;
        self.smoothed = Some(match self.smoothed {
            None => (r, r / 2.0),
            Some((srtt, var)) => {
                let error = r - srtt;
                (srtt + error / 8.0, var + (error.abs() - var) / 4.0)
            }
        });
    }

    /// SRTT + max(G, 4 RTTVAR), at least the minimum, doubled for each timeout in a row. G is the
    /// tick, below which ns-2 lets 4 RTTVAR never fall; without one it is the minimum, as in Linux:
    /// else a steady round trip as long as the minimum would time out.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and casts of floats saturate"
    )]
    pub(crate) fn current(&self) -> u64 {
        let granularity = if self.tick_ns > 0 {
            self.tick_ns
        } else {
            self.min_ns
        };
        let base = match self.smoothed {
            None => INITIAL_NS,
            Some((srtt, var)) => {
                (srtt as u64).saturating_add(((4.0 * var) as u64).max(granularity))
            }
        };
        let base = base.max(self.min_ns).max(1);
        base.saturating_mul(1 << self.backed_off).min(MAX_RTO_NS)
    }

    pub(super) fn back_off(&mut self) {
        self.backed_off = (self.backed_off + 1).min(BACK_OFF_MAX);
    }

    /// New data was acknowledged.
    pub(super) fn restore(&mut self) {
        self.backed_off = 0;
    }

    /// Smoothed round trip, ns; `None` before any.
    pub(crate) fn srtt_ns(&self) -> Option<f64> {
        self.smoothed.map(|(srtt, _)| srtt)
    }

    /// Shortest round trip, ns; `None` before any.
    pub(crate) fn least_ns(&self) -> Option<u64> {
        (self.least_ns < u64::MAX).then_some(self.least_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MS;

    #[test]
    fn a_steady_round_trip_ends_at_the_minimum_and_doubles_after_timeouts() {
        let mut rto = Rto::new(200 * MS, 0);
        assert_eq!(rto.current(), SECOND);
        rto.sample(100 * MS);
        assert_eq!(rto.current(), 300 * MS, "R + 4 R / 2");
        for _ in 0..50 {
            rto.sample(100 * MS);
        }
        assert_eq!(rto.current(), 300 * MS, "R + 200 ms");
        rto.back_off();
        rto.back_off();
        assert_eq!(rto.current(), 1200 * MS);
        rto.restore();
        assert_eq!(rto.current(), 300 * MS);
        (0..99).for_each(|_| rto.back_off());
        assert_eq!(rto.current(), 300 * MS * 64);
    }

    #[test]
    fn a_tick_rounds_round_trips() {
        let mut rto = Rto::new(0, 100 * MS);
        for _ in 0..50 {
            rto.sample(20 * MS);
        }
        assert_eq!(rto.srtt_ns(), Some(100e6), "at least one tick");
        assert_eq!(rto.current(), 200 * MS, "and one more");
        assert_eq!(rto.least_ns(), Some(20 * MS));
    }
}
