//! How long a question is waited for that can be asked again.

use std::time::Duration;

use crate::error::Error;

/// Before the first answer is given up, beside what the server reads for it.
const FIRST: Duration = Duration::from_secs(5);

/// A server that makes a checksum reads at least so many bytes a second, unless it is busy.
const READ_BYTES_PER_SECOND: u64 = 100_000_000;

/// Limits for the answer to one question, which is asked again over another connection when none
/// comes: each is twice the one before, and all together are as long as one question may take.
///
/// XRootD 5.5 makes a checksum now and then and never sends the answer; to the same question it
/// answers at once then. Others may have lost a connection that looks alive.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    limit: Duration,
    left: Duration,
}

impl Patience {
    /// For an answer for which the server may have to read so many bytes; `None`: not known.
    /// `whole` is the limit of all questions together.
    #[must_use]
    pub fn new(bytes: Option<u64>, whole: Duration) -> Self {
        let reading = Duration::from_secs(bytes.unwrap_or(0) / READ_BYTES_PER_SECOND);
        Self::from(FIRST + reading, whole)
    }

    /// What would be left for less than the limit that follows belongs to this one.
    fn from(limit: Duration, left: Duration) -> Self {
        match left < limit.saturating_mul(3) {
            true => Self {
                limit: left,
                left: Duration::ZERO,
            },
            false => Self {
                limit,
                left: left.saturating_sub(limit),
            },
        }
    }

    /// For the question that is asked now, see
    /// [`Request::answered_within`](crate::Request::answered_within).
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether to ask again, with the next limit, after this failure.
    pub fn asks_again(&mut self, failure: &Error) -> bool {
        let may = failure.is_unanswered() && !self.left.is_zero();
        if may {
            *self = Self::from(self.limit.saturating_mul(2), self.left);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::{Cause, Step},
        url::{Origin, Scheme},
    };

    fn failure(step: Step, cause: Cause) -> Error {
        let origin = Origin {
            scheme: Scheme::Https,
            host: "h".to_owned(),
            port: 1,
        };
        Error {
            step,
            origin,
            cause,
        }
    }

    fn limits(bytes: Option<u64>, whole: u64) -> Vec<u64> {
        let mut patience = Patience::new(bytes, Duration::from_secs(whole));
        let mut found = vec![patience.limit().as_secs()];
        let silence = failure(Step::Request, Cause::Timeout(patience.limit()));
        while patience.asks_again(&silence) {
            found.push(patience.limit().as_secs());
        }
        found
    }

    #[test]
    fn limits_double_and_add_up_to_the_whole() {
        assert_eq!(limits(Some(0), 1800), [5, 10, 20, 40, 80, 160, 320, 1165]);
        assert_eq!(limits(None, 1200), [5, 10, 20, 40, 80, 160, 885]);
        assert_eq!(limits(Some(100_000_000_000), 1800), [1800]);
        assert_eq!(limits(Some(0), 3), [3]);
    }

    #[test]
    fn only_silence_is_asked_again() {
        let mut patience = Patience::new(Some(0), Duration::from_secs(100));
        assert!(!patience.asks_again(&failure(Step::Request, Cause::Closed)));
        let limit = Duration::from_secs(5);
        assert!(!patience.asks_again(&failure(Step::Connect, Cause::Timeout(limit))));
        assert!(patience.asks_again(&failure(Step::Request, Cause::Timeout(limit))));
    }
}
