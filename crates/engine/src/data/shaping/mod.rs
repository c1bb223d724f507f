//! How fast data channels may send: congestion control, a rate limit, pacing.

pub(crate) mod congestion;
pub(crate) mod pacing;
pub(crate) mod rate_limit;
pub(crate) mod unsent_limit;
