//! What helps a request that a bucket's service has refused: the service's clock, newer keys, no
//! condition, or a pause.

use std::{sync::atomic::Ordering, time::Duration};

use godwit_http::conditions::parse_date;
use godwit_http_client::{Method, StatusCode, header};

use super::signing::Bucket;
use crate::{local::files, session::http::exchange::Exchange};

/// A request that a bucket's service could not carry out is sent again so often before that counts
/// as a failed attempt: after this pause, and after twice as long each further time. Services of
/// many machines fail so now and then.
const PAUSES_MAX: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// A question that a busy service refuses (429, 503) is asked again so often: a listing has many
/// pages, and would begin again with the first one. The pauses grow up to the longest one.
const BUSY_PAUSES_MAX: u32 = 8;
const BUSY_PAUSE_FIRST: Duration = Duration::from_millis(100);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The longest pause that a service may ask for by `Retry-After`.
const TOLD_PAUSE_MAX: Duration = Duration::from_secs(10);

/// What was tried for a request that a bucket has refused.
#[derive(Default)]
pub(in crate::session::http) struct Remedies {
    clock: bool,
    keys: bool,
    /// It is sent without its condition.
    pub(in crate::session::http) is_unconditional: bool,
    pauses: u32,
    busy_pauses: u32,
}

/// What may help a request that a bucket has refused.
pub(in crate::session::http) enum Remedy {
    /// To send it again.
    Again,
    /// Other keys than those of this generation.
    Keys(u32),
    Pause(Duration),
}

impl Remedies {
    /// What was not tried before.
    pub(in crate::session::http) fn next(
        &mut self,
        exchange: &Exchange,
        bucket: &Bucket,
    ) -> Option<Remedy> {
        let status = exchange.answer.status;
        let is_overloaded = &bucket.endpoint.is_overloaded;
        let is_busy = matches!(status.as_u16(), 429 | 503);
        if is_question(exchange) && !is_busy {
            is_overloaded.store(false, Ordering::Relaxed);
        }
        if status.is_success() || !exchange.signed.is_repeatable {
            return None;
        }
        let code = exchange.refusal.as_ref().map(|refusal| &*refusal.code);
        // An answer to HEAD does not say why.
        let is_head = exchange.method == Method::HEAD;
        let may_be_late = is_head && status == StatusCode::FORBIDDEN;
        if (may_be_late || code == Some("RequestTimeTooSkewed")) && !self.clock {
            self.clock = true;
            let theirs = exchange.header(header::DATE).and_then(parse_date);
            let clock = &bucket.endpoint.service_clock;
            let is_learned = theirs.is_some_and(|theirs| clock.learn(theirs));
            // Another request may have learned it meanwhile.
            if is_learned || clock.ahead_seconds() != exchange.signed.ahead_seconds {
                return Some(Remedy::Again);
            }
        }
        let may_have_expired =
            is_head && bucket.has_token() && matches!(status.as_u16(), 400 | 401 | 403);
        let has_expired = matches!(code, Some("ExpiredToken" | "TokenRefreshRequired"));
        if (may_have_expired || has_expired) && !self.keys {
            self.keys = true;
            return Some(Remedy::Keys(exchange.signed.generation));
        }
        let is_unknown = status == StatusCode::NOT_IMPLEMENTED || code == Some("NotImplemented");
        if is_unknown && exchange.signed.is_conditional {
            self.is_unconditional = true;
            return Some(Remedy::Again);
        }
        // Data gives up its connection instead.
        if is_busy && is_question(exchange) && !is_overloaded.load(Ordering::Relaxed) {
            if self.busy_pauses < BUSY_PAUSES_MAX {
                let told = exchange.header(header::RETRY_AFTER);
                let pause = busy_pause(self.busy_pauses, told, random_share());
                self.busy_pauses += 1;
                return Some(Remedy::Pause(pause));
            }
            is_overloaded.store(true, Ordering::Relaxed);
        }
        // What POST has begun may be there all the same.
        let has_failed =
            matches!(status.as_u16(), 500 | 502 | 504) && exchange.method != Method::POST;
        if !has_failed || self.pauses >= PAUSES_MAX {
            return None;
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << self.pauses);
        self.pauses += 1;
        Some(Remedy::Pause(pause / 2 + pause.mul_f64(random_share())))
    }
}

/// True for a request that brings no data and can be repeated: HEAD, DELETE, and lists of objects,
/// parts or uploads, which have a query.
fn is_question(exchange: &Exchange) -> bool {
    match exchange.method {
        Method::HEAD | Method::DELETE => true,
        Method::GET => exchange.url.target().contains('?'),
        _ => false,
    }
}

/// From 0 to 1: many lanes do not come back together.
fn random_share() -> f64 {
    f64::from(u32::try_from(files::random() % 1000).unwrap_or(0)) / 1000.0
}

/// How long a question waits that a busy service has refused, after so many pauses. `told`: the
/// text of `Retry-After`, which counts where it is in seconds.
fn busy_pause(pauses: u32, told: Option<&str>, share: f64) -> Duration {
    let told = told.and_then(|told| told.trim().parse::<u64>().ok());
    match told.map(Duration::from_secs) {
        // Not earlier.
        Some(told) => {
            let told = told.clamp(PAUSE_FIRST, TOLD_PAUSE_MAX);
            told + told.mul_f64(share / 2.0)
        }
        None => {
            let pause = BUSY_PAUSE_FIRST.saturating_mul(1 << pauses.min(16));
            let pause = pause.min(BUSY_PAUSE_MAX);
            pause / 2 + pause.mul_f64(share)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_those_that_a_service_asks_for_within_bounds() {
        let seconds = |pauses, told, share| busy_pause(pauses, told, share).as_secs_f64();
        let close = |one: f64, other: f64| (one - other).abs() < 1e-6;
        assert!(close(seconds(0, None, 0.0), 0.05));
        assert!(close(seconds(0, None, 1.0), 0.15));
        assert!(close(seconds(3, None, 0.5), 0.8));
        assert!(
            close(seconds(40, None, 0.5), 5.0),
            "no longer than the longest"
        );
        assert!(close(seconds(0, Some("7"), 0.0), 7.0));
        assert!(close(seconds(0, Some("0"), 0.0), 0.05), "never at once");
        assert!(close(seconds(0, Some("3600"), 1.0), 15.0));
        let date = Some("Wed, 21 Oct 2015 07:28:00 GMT");
        assert!(close(seconds(1, date, 0.5), 0.2), "a date is not read");
    }
}
