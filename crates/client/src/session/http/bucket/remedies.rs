//! What helps a request that a bucket's service has refused: the service's clock, newer keys, no
//! condition, or a pause.

use std::time::Duration;

use godwit_http::conditions::parse_date;
use godwit_http_client::{Method, StatusCode, header};

use super::signing::Bucket;
use crate::{local::files, session::http::exchange::Exchange};

/// A request that a bucket's service could not carry out is sent again so often before that counts
/// as a failed attempt: after this pause, and after twice as long each further time. Services of
/// many machines fail so now and then.
const PAUSES_MAX: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// What was tried for a request that a bucket has refused.
#[derive(Default)]
pub(in crate::session::http) struct Remedies {
    clock: bool,
    keys: bool,
    /// It is sent without its condition.
    pub(in crate::session::http) is_unconditional: bool,
    pauses: u32,
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
        // What POST has begun may be there all the same.
        let is_busy = matches!(status.as_u16(), 500 | 502 | 504) && exchange.method != Method::POST;
        if !is_busy || self.pauses >= PAUSES_MAX {
            return None;
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << self.pauses);
        self.pauses += 1;
        // Many lanes do not come back together.
        let jitter = u32::try_from(files::random() % 1000).unwrap_or(0);
        let pause = pause / 2 + pause.saturating_mul(jitter) / 1000;
        Some(Remedy::Pause(pause))
    }
}
