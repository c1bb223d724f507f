//! How much one user may ask of one process.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::problem::{Answer, ApiError, Kind};

/// Users that are remembered before those who have rested are forgotten.
const USERS_KEPT: usize = 10_000;

/// Streamed answers of one user at a time: events and receipts.
const STREAMS_MAX: u32 = 32;

/// Requests a second, and how many at once.
#[derive(Clone, Copy, Debug)]
pub struct RequestRate {
    /// In the long run.
    pub per_second: f64,
    /// At once after a rest.
    pub burst: f64,
}

/// What users have asked of late.
pub(crate) struct Limits {
    rate: RequestRate,
    users: Mutex<HashMap<String, User>>,
}

struct User {
    tokens: f64,
    at: Instant,
    streams: u32,
}

/// A streamed answer.
pub(crate) struct StreamPermit {
    limits: Arc<Limits>,
    user: String,
}

impl Limits {
    pub(super) fn new(rate: RequestRate) -> Self {
        Self {
            rate,
            users: Mutex::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn take_request(&self, user: &str) -> Answer<()> {
        let (mut users, now) = (self.users.lock(), Instant::now());
        if users.len() >= USERS_KEPT && !users.contains_key(user) {
            let rest = Duration::from_secs_f64(self.rate.burst / self.rate.per_second);
            users.retain(|_, user| user.streams > 0 || now.duration_since(user.at) < rest);
        }
        let entry = users.entry(user.to_owned()).or_insert(User {
            tokens: self.rate.burst,
            at: now,
            streams: 0,
        });
        let since = now.duration_since(entry.at).as_secs_f64();
        entry.tokens = (entry.tokens + since * self.rate.per_second).min(self.rate.burst);
        entry.at = now;
        if entry.tokens < 1.0 {
            let wait = ((1.0 - entry.tokens) / self.rate.per_second).ceil();
            let detail = format!("at most {} requests a second", self.rate.per_second);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a few seconds at most"
            )]
            let seconds = wait.max(1.0) as u64;
            return Err(ApiError::new(Kind::RateLimit, detail).after(seconds));
        }
        entry.tokens -= 1.0;
        Ok(())
    }

    /// Counts a streamed answer.
    pub(crate) fn take_stream(self: &Arc<Self>, user: &str) -> Answer<StreamPermit> {
        let mut users = self.users.lock();
        // Its request was counted.
        if let Some(entry) = users.get_mut(user) {
            if entry.streams >= STREAMS_MAX {
                let detail = format!("at most {STREAMS_MAX} streams at a time");
                return Err(ApiError::new(Kind::RateLimit, detail).after(5));
            }
            entry.streams += 1;
        }
        Ok(StreamPermit {
            limits: Arc::clone(self),
            user: user.to_owned(),
        })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(entry) = self.limits.users.lock().get_mut(&self.user) {
            entry.streams = entry.streams.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_burst_and_others_are_not_concerned() {
        let limits = Limits::new(RequestRate {
            per_second: 0.001,
            burst: 3.0,
        });
        for _ in 0..3 {
            assert!(limits.take_request("a").is_ok());
        }
        assert!(limits.take_request("a").is_err());
        assert!(limits.take_request("b").is_ok());
    }

    #[test]
    fn streams_of_a_user_are_limited_while_they_last() {
        let limits = Arc::new(Limits::new(RequestRate {
            per_second: 1.0,
            burst: 3.0,
        }));
        limits.take_request("a").unwrap();
        let permits: Vec<_> = (0..STREAMS_MAX).map(|_| limits.take_stream("a")).collect();
        assert!(limits.take_stream("a").is_err());
        drop(permits);
        assert!(limits.take_stream("a").is_ok());
    }
}
