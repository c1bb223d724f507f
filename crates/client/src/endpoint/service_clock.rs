//! The clock of a service that signed requests are held against.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    time::{Duration, SystemTime},
};

/// Clocks that differ by less than this are not the reason for a refusal: services allow 15
/// minutes, and their `Date` is of whole seconds.
const DIFFERENCE_MIN_SECONDS: u64 = 60;

/// How far the service's clock is from ours, where it has refused ours.
#[derive(Debug, Default)]
pub(crate) struct ServiceClock {
    ahead_seconds: AtomicI64,
    /// The user has not heard of it.
    is_news: AtomicBool,
}

impl ServiceClock {
    /// The time at the service, as far as it is known.
    pub(crate) fn now(&self) -> SystemTime {
        self.at(SystemTime::now())
    }

    fn at(&self, ours: SystemTime) -> SystemTime {
        let ahead = self.ahead_seconds();
        let by = Duration::from_secs(ahead.unsigned_abs());
        let theirs = match ahead < 0 {
            true => ours.checked_sub(by),
            false => ours.checked_add(by),
        };
        theirs.unwrap_or(ours)
    }

    /// How far it is ahead; negative: behind.
    pub(crate) fn ahead_seconds(&self) -> i64 {
        self.ahead_seconds.load(Ordering::Relaxed)
    }

    /// True once after it was learned.
    pub(crate) fn is_to_be_told(&self) -> bool {
        self.is_news.swap(false, Ordering::Relaxed)
    }

    /// The service says that it is `theirs`. True if that is another time than was supposed.
    pub(crate) fn learn(&self, theirs: SystemTime) -> bool {
        self.learn_at(SystemTime::now(), theirs)
    }

    fn learn_at(&self, ours: SystemTime, theirs: SystemTime) -> bool {
        let seconds = |since: Duration| i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let ahead = match theirs.duration_since(ours) {
            Ok(ahead) => seconds(ahead),
            Err(behind) => -seconds(behind.duration()),
        };
        let is_other = ahead.abs_diff(self.ahead_seconds()) >= DIFFERENCE_MIN_SECONDS;
        if is_other {
            self.ahead_seconds.store(ahead, Ordering::Relaxed);
            self.is_news.store(true, Ordering::Relaxed);
        }
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_is_learned_once() {
        let clock = ServiceClock::default();
        let ours = SystemTime::UNIX_EPOCH + Duration::from_hours(1000);
        for hours in [990, 1020] {
            let theirs = SystemTime::UNIX_EPOCH + Duration::from_hours(hours);
            assert!(clock.learn_at(ours, theirs));
            assert_eq!(clock.at(ours), theirs);
            assert!(!clock.learn_at(ours, theirs + Duration::from_secs(1)));
        }
        assert!(clock.learn_at(ours, ours));
        assert!(!clock.learn_at(ours, ours + Duration::from_secs(5)));
        assert_eq!(clock.at(ours), ours);
    }
}
