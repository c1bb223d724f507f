//! Limits of a server, as its refusals show, and whether its data connections work at all. No I/O,
//! and no clock.
//!
//! One refusal may have any cause: a busy moment, a lost connection. Only a second one soon after
//! it counts, and it expires in a long run.

use std::time::{Duration, Instant};

use crate::error::Error;

/// Refusals that put a ceiling in force.
const REFUSALS_MIN: u32 = 2;
/// A refusal that is older than this says nothing about a new one.
const REFUSALS_WITHIN: Duration = Duration::from_mins(1);
/// After a first refusal the next attempts stay within what the server accepted, for this long.
const FIRST_HOLDS: Duration = Duration::from_secs(5);
/// A ceiling expires this long after the last refusal: the server may accept more by then.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(5);

/// A limit of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ceiling {
    /// What the server still accepted.
    most: u32,
    refusals: u32,
    last: Option<Instant>,
}

impl Ceiling {
    /// The server refused more than `most`. True if the ceiling is in force.
    pub(crate) fn refused(&mut self, most: u32, now: Instant) -> bool {
        let before = self.in_force(now);
        if before.is_none() && self.age(now).is_none_or(|age| age > REFUSALS_WITHIN) {
            self.refusals = 0;
        }
        self.refusals = self.refusals.saturating_add(1);
        self.most = before.map_or(most, |before| before.min(most)).max(1);
        self.last = Some(now);
        self.in_force(now).is_some()
    }

    /// The limit, if two refusals have shown it.
    pub(crate) fn in_force(&self, now: Instant) -> Option<u32> {
        let is_fresh = self.age(now).is_some_and(|age| age < FORGOTTEN_AFTER);
        (self.refusals >= REFUSALS_MIN && is_fresh).then_some(self.most)
    }

    /// The limit for attempts at this moment.
    pub(crate) fn at(&self, now: Instant) -> Option<u32> {
        let holds = self.age(now).is_some_and(|age| age < FIRST_HOLDS);
        self.in_force(now).or(holds.then_some(self.most))
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.last?))
    }
}

/// Transfers per session that fail in a row until no further one is tried.
const FAILED_MAX: u32 = 3;

/// Records whether data connections of an endpoint work.
#[derive(Debug, Default)]
pub(crate) struct DataConnections {
    /// Transfers in a row that used up their attempts without a data connection.
    failed: u32,
    given_up: Option<Error>,
}

impl DataConnections {
    /// A data connection has carried bytes.
    pub(crate) fn worked(&mut self) {
        self.failed = 0;
    }

    /// A transfer with `endpoint` has used up its attempts, with this number of sessions.
    pub(crate) fn failed(&mut self, endpoint: String, error: &Error, sessions: u32) {
        self.failed = self.failed.saturating_add(1);
        if self.failed >= FAILED_MAX.saturating_mul(sessions.max(1)) && self.given_up.is_none() {
            self.given_up = Some(Error::DataRefused {
                endpoint,
                transfers: self.failed,
                error: Box::new(error.clone()),
            });
        }
    }

    /// Why no further transfer is tried.
    pub(crate) fn given_up(&self) -> Option<Error> {
        self.given_up.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_whose_sessions_all_fail_repeatedly_is_given_up() {
        let error = Error::Usage("refused".to_owned());
        let mut connections = DataConnections::default();
        let mut fail = |times: u32, worked: bool| {
            if worked {
                connections.worked();
            }
            for _ in 0..times {
                connections.failed("ftp://h".to_owned(), &error, 2);
            }
            connections.given_up().map(|error| error.to_string())
        };
        assert_eq!(fail(5, false), None);
        assert_eq!(fail(5, true), None, "one worked in between");
        let said = fail(1, false).unwrap();
        assert!(
            said.contains("6 transfers in a row") && said.ends_with(": refused"),
            "{said}"
        );
    }

    #[test]
    fn one_refusal_holds_briefly_and_a_second_sets_the_ceiling() {
        let start = Instant::now();
        let mut ceiling = Ceiling::default();
        assert_eq!((ceiling.at(start), ceiling.in_force(start)), (None, None));
        assert!(!ceiling.refused(4, start));
        assert_eq!(
            (ceiling.at(start), ceiling.in_force(start)),
            (Some(4), None)
        );
        let later = start + FIRST_HOLDS;
        assert_eq!(ceiling.at(later), None, "the target counts again");
        assert!(ceiling.refused(6, later));
        assert_eq!(ceiling.in_force(later + FIRST_HOLDS), Some(6));
        assert!(ceiling.refused(3, later));
        assert!(ceiling.refused(0, later));
        assert_eq!(ceiling.at(later), Some(1), "never none at all");
    }

    #[test]
    fn refusals_that_are_far_apart_are_single_ones() {
        let start = Instant::now();
        let mut ceiling = Ceiling::default();
        for nth in 0..5 {
            let now = start + nth * (REFUSALS_WITHIN + Duration::from_secs(1));
            assert!(!ceiling.refused(4, now), "{nth}");
        }
    }

    #[test]
    fn a_ceiling_is_forgotten_after_a_while() {
        let start = Instant::now();
        let mut ceiling = Ceiling::default();
        ceiling.refused(4, start);
        assert!(ceiling.refused(4, start));
        let later = start + FORGOTTEN_AFTER;
        assert_eq!((ceiling.at(later), ceiling.in_force(later)), (None, None));
        assert!(!ceiling.refused(8, later), "two are needed again");
        assert_eq!(ceiling.at(later), Some(8));
    }
}
