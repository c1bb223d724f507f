//! Sessions that move small files side by side end together: what one has asked for no other can
//! take, so that a slow one must not still be at hundreds of files when the others have nothing
//! left.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::depth::with_overhead;
use crate::report::progress::Counters;

/// One of the sessions; it goes when this is dropped.
pub(crate) struct RateSlot {
    counters: Arc<Counters>,
    key: u64,
    round_trip: Duration,
    /// 0: not known yet.
    rate: f64,
}

impl RateSlot {
    /// A session with this round trip begins.
    pub(crate) fn new(counters: &Arc<Counters>, round_trip: Duration) -> Self {
        let mut rates = counters.session_rates.lock();
        let key = rates.next;
        rates.next += 1;
        drop(rates);
        Self {
            counters: Arc::clone(counters),
            key,
            round_trip,
            rate: 0.0,
        }
    }

    /// It goes at `rate`, bytes/s.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        if rate == self.rate {
            return;
        }
        self.rate = rate;
        let mut rates = self.counters.session_rates.lock();
        rates.known.retain(|(key, _)| *key != self.key);
        rates.known.push((self.key, rate));
    }

    /// Whether it would still be at the `backlog` bytes that it has asked for when all the rest
    /// could be there. A moment of a round trip is no loss. Never where it is not known how much is
    /// left.
    pub(crate) fn falls_behind(&self, backlog: f64) -> bool {
        let counters = &self.counters;
        if !counters.scanned.load(Ordering::Relaxed) {
            return false;
        }
        let left = |found: &AtomicU64, done: &AtomicU64| {
            let found = found.load(Ordering::Relaxed);
            found.saturating_sub(done.load(Ordering::Relaxed))
        };
        let files = left(&counters.files_found, &counters.files_done);
        let bytes = left(&counters.bytes_found, &counters.bytes_done);
        let known = counters.session_rates.sum();
        falls_behind(
            backlog,
            self.rate,
            with_overhead(files, bytes),
            known,
            self.round_trip,
        )
    }
}

impl Drop for RateSlot {
    fn drop(&mut self) {
        let mut rates = self.counters.session_rates.lock();
        rates.known.retain(|(key, _)| *key != self.key);
    }
}

/// A session that has not moved anything yet is taken for one as the others are. `known`: the rates
/// that are known, in sum, and of how many.
#[allow(clippy::cast_precision_loss, reason = "sessions as a rate")]
fn falls_behind(
    backlog: f64,
    own: f64,
    left: f64,
    known: (f64, usize),
    round_trip: Duration,
) -> bool {
    let (sum, sessions) = known;
    let (own, all) = match own > 0.0 {
        true => (own, sum),
        false if sessions == 0 => return false,
        false => {
            let mean = sum / sessions as f64;
            (mean, sum + mean)
        }
    };
    all > 0.0 && backlog / own > left / all + round_trip.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(60);

    #[test]
    fn a_slow_session_stops_before_the_end_and_the_fast_one_does_not() {
        // 10 MB in flight each; at 10 MB/s that is a second, at 100 MB/s a tenth.
        let known = (110e6, 2);
        assert!(!falls_behind(10e6, 10e6, 1e9, known, RTT), "much is left");
        assert!(falls_behind(10e6, 10e6, 80e6, known, RTT));
        assert!(!falls_behind(10e6, 100e6, 80e6, known, RTT));
        assert!(!falls_behind(5e6, 10e6, 80e6, known, RTT));
    }

    #[test]
    fn no_session_waits_for_ever() {
        // Sessions hold all that is left, and not all of them can hold too much of it.
        let left = 30e6;
        let sessions = [(20e6, 10e6), (9e6, 50e6), (1e6, 1e6)];
        let sum: f64 = sessions.iter().map(|(_, rate)| rate).sum();
        let takers = sessions
            .iter()
            .filter(|(backlog, rate)| !falls_behind(*backlog, *rate, left, (sum, 3), RTT));
        assert!(takers.count() > 0);
        assert!(
            !falls_behind(0.0, 1.0, 0.0, (1e9, 2), RTT),
            "it has nothing to do"
        );
        assert!(!falls_behind(9e9, 1e6, 9e9, (1e6, 1), RTT), "alone");
    }

    #[test]
    fn a_new_session_is_taken_for_one_as_the_others() {
        assert!(!falls_behind(10e6, 0.0, 1e9, (0.0, 0), RTT));
        assert!(!falls_behind(10e6, 0.0, 1e9, (100e6, 2), RTT));
        assert!(falls_behind(10e6, 0.0, 10e6, (100e6, 2), RTT));
    }

    #[test]
    fn sessions_that_ended_no_longer_count() {
        let counters = Arc::new(Counters::default());
        counters.bytes_found.store(1000, Ordering::Relaxed);
        let mut slow = RateSlot::new(&counters, Duration::ZERO);
        let mut fast = RateSlot::new(&counters, Duration::ZERO);
        slow.set_rate(1.0);
        fast.set_rate(99.0);
        assert!(!slow.falls_behind(100.0), "more may be found");
        counters.scanned.store(true, Ordering::Relaxed);
        assert!(slow.falls_behind(100.0));
        slow.set_rate(50.0);
        assert!(!slow.falls_behind(100.0));
        slow.set_rate(1.0);
        drop(fast);
        assert!(!slow.falls_behind(100.0));
    }
}
