//! How often logins may fail: by address and by user.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::AccessError;

/// Logins that may fail before one has to wait.
const FAILURES_MAX: f64 = 20.0;

/// One more may fail after this.
const FORGIVE: Duration = Duration::from_secs(15);

/// Addresses and users that are remembered.
const KEPT_MAX: usize = 100_000;

/// Failures of late, each of which is forgiven after a while.
#[derive(Default)]
pub(super) struct Attempts {
    failures: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Attempts {
    /// Whether this address or user may try.
    pub(super) fn check(&self, who: Option<&str>) -> Result<(), AccessError> {
        let failures = self.failures.lock();
        let Some(record) = who.and_then(|who| failures.get(who)) else {
            return Ok(());
        };
        let over = left(record, Instant::now()) - (FAILURES_MAX - 1.0);
        match over > 0.0 {
            true => Err(AccessError::TooMany(FORGIVE.mul_f64(over).as_secs() + 1)),
            false => Ok(()),
        }
    }

    /// It failed.
    pub(super) fn failed(&self, who: Option<&str>) {
        let Some(who) = who else {
            return;
        };
        let (mut failures, now) = (self.failures.lock(), Instant::now());
        if failures.len() >= KEPT_MAX {
            failures.retain(|_, record| left(record, now) > 0.0);
        }
        // All that are kept have failed of late: an attack from everywhere, where a new address
        // makes no difference.
        if failures.len() < KEPT_MAX || failures.contains_key(who) {
            let record = failures.entry(who.to_owned()).or_insert((0.0, now));
            *record = (left(record, now) + 1.0, now);
        }
    }

    /// What was counted as a failure was none.
    pub(super) fn forgive(&self, who: Option<&str>) {
        let mut failures = self.failures.lock();
        if let Some(record) = who.and_then(|who| failures.get_mut(who)) {
            record.0 = (record.0 - 1.0).max(0.0);
        }
    }
}

fn left((failures, at): &(f64, Instant), now: Instant) -> f64 {
    let forgiven = now.duration_since(*at).as_secs_f64() / FORGIVE.as_secs_f64();
    (failures - forgiven).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_too_often_has_to_wait_and_others_have_not() {
        let attempts = Attempts::default();
        for _ in 0..20 {
            assert!(attempts.check(Some("a")).is_ok());
            attempts.failed(Some("a"));
        }
        assert!(matches!(
            attempts.check(Some("a")),
            Err(AccessError::TooMany(1..=16))
        ));
        attempts.forgive(Some("a"));
        assert!(attempts.check(Some("a")).is_ok());
        assert!(attempts.check(Some("b")).is_ok());
        assert!(attempts.check(None).is_ok());
    }
}
