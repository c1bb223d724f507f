//! Until when credentials are good, and what that means for the jobs of their owners.

use std::{collections::HashMap, time::Duration};

use godwit_scheduler::matches;
use godwit_service_api::why::{Why, WhyCode};
use jiff::Timestamp;

use crate::{
    credentials::delegation::ENDPOINTS as DELEGATED_TO,
    store::model::{CredentialEnd, QueueRecord},
};

/// Nothing starts that a credential may not outlast: so long before its end, or a tenth of its
/// life.
const HOLD: Duration = Duration::from_secs(5 * 60);

/// The user is told so long before the end, or a quarter of the credential's life.
const WARN: Duration = Duration::from_secs(3600);

/// Credentials by their owners.
#[derive(Default)]
pub(super) struct Lifetimes(HashMap<String, Vec<CredentialEnd>>);

/// A credential of a job ends.
pub(super) struct Ending {
    /// Nothing of it starts.
    pub(super) holds: bool,
    pub(super) why: Why,
}

impl Lifetimes {
    pub(super) fn new(all: Vec<CredentialEnd>) -> Self {
        let mut owners: HashMap<String, Vec<CredentialEnd>> = HashMap::new();
        for one in all {
            owners.entry(one.owner.clone()).or_default().push(one);
        }
        Self(owners)
    }

    /// The credential of a queue's owner that ends soon. `now`: since 1970.
    pub(super) fn of(&self, queue: &QueueRecord, now: Duration) -> Option<Ending> {
        let ends = [queue.source.as_str(), queue.destination.as_str()];
        let now = i64::try_from(now.as_secs()).ok()?;
        self.ending(&queue.owner, ends, Timestamp::from_second(now).ok()?)
    }

    /// Of these endpoints the one whose credential ends first, if that is soon. An endpoint that
    /// the owner has stored none for needs none.
    fn ending(&self, owner: &str, ends: [&str; 2], now: Timestamp) -> Option<Ending> {
        let owned = self.0.get(owner)?;
        let of = |endpoint: &str| {
            // Servers of HTTP may be for everybody: a delegated proxy is shown there where there is
            // one, and none is waited for.
            let is_waited_for = |one: &&CredentialEnd| {
                one.endpoint != DELEGATED_TO || endpoint.starts_with("gsiftp://")
            };
            let fitting = owned.iter().filter(is_waited_for);
            let fitting = fitting.filter(|one| matches(&one.endpoint, endpoint));
            // One that does not end is the best.
            let best = fitting.max_by_key(|one| one.expires.unwrap_or(Timestamp::MAX))?;
            Some((best.expires?, best.created, endpoint.to_owned()))
        };
        let (end, created, endpoint) = ends.into_iter().filter_map(of).min()?;
        let span = |from: Timestamp, to: Timestamp| {
            let seconds = to.as_second().saturating_sub(from.as_second());
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        };
        let (left, life) = (span(now, end), span(created, end));
        if left > WARN.min(life / 4) {
            return None;
        }
        let holds = left <= HOLD.min(life / 10);
        let end = Timestamp::from_second(end.as_second()).unwrap_or(end);
        let text = match holds {
            true => format!(
                "the credential for {endpoint} ends at {end}: nothing starts until it is renewed"
            ),
            false => format!("the credential for {endpoint} ends at {end}: renew it by then"),
        };
        let code = WhyCode::CredentialExpired;
        Some(Ending {
            holds,
            why: Why { code, text },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "gsiftp://a.example.org";
    const B: &str = "ftp://b.example.org";

    fn lifetimes(ends: &[(&str, Option<i64>)]) -> Lifetimes {
        let at = |second| Timestamp::from_second(second).unwrap();
        let credential = |(endpoint, expires): &(&str, Option<i64>)| CredentialEnd {
            owner: "jo".to_owned(),
            endpoint: (*endpoint).to_owned(),
            created: at(0),
            expires: expires.map(at),
        };
        Lifetimes::new(ends.iter().map(credential).collect())
    }

    /// Whether jobs are held, and whether the user is told.
    fn at(lifetimes: &Lifetimes, second: i64) -> (bool, bool) {
        let now = Timestamp::from_second(second).unwrap();
        let ending = lifetimes.ending("jo", [A, B], now);
        (
            ending.as_ref().is_some_and(|ending| ending.holds),
            ending.is_some(),
        )
    }

    #[test]
    fn a_delegated_proxy_that_has_ended_holds_no_copy_over_https() {
        let ended = lifetimes(&[(DELEGATED_TO, Some(10))]);
        let now = Timestamp::from_second(20).unwrap();
        let web = ["https://a.example.org", "davs://b.example.org"];
        assert!(ended.ending("jo", web, now).is_none());
        assert!(
            ended
                .ending("jo", [A, B], now)
                .is_some_and(|ending| ending.holds)
        );
    }

    #[test]
    fn the_user_is_told_before_jobs_are_held() {
        let half_a_day = lifetimes(&[("gsiftp://*", Some(12 * 3600))]);
        assert_eq!(at(&half_a_day, 10 * 3600), (false, false));
        assert_eq!(at(&half_a_day, 11 * 3600), (false, true));
        assert_eq!(at(&half_a_day, 12 * 3600 - 301), (false, true));
        assert_eq!(at(&half_a_day, 12 * 3600 - 299), (true, true));
        assert_eq!(at(&half_a_day, 20 * 3600), (true, true));
        let ten_minutes = lifetimes(&[("gsiftp://*", Some(600))]);
        assert_eq!(at(&ten_minutes, 300), (false, false));
        assert_eq!(at(&ten_minutes, 500), (false, true));
        assert_eq!(at(&ten_minutes, 541), (true, true));
    }

    #[test]
    fn the_best_credential_of_each_end_counts() {
        let renewed = lifetimes(&[("gsiftp://*", Some(600)), (A, Some(9000))]);
        assert_eq!(at(&renewed, 700), (false, false));
        assert_eq!(
            at(&lifetimes(&[(A, Some(600)), (A, None)]), 700),
            (false, false)
        );
        assert_eq!(
            at(&lifetimes(&[(A, None), (B, Some(600))]), 700),
            (true, true)
        );
        assert_eq!(
            at(&lifetimes(&[("ftp://c*", Some(600))]), 700),
            (false, false)
        );
        assert!(renewed.ending("al", [A, B], Timestamp::MAX).is_none());
    }
}
