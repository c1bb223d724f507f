//! `YYYYMMDDHHMMSS` in UTC (RFC 3659 §2.3).

use std::fmt;

/// Seconds since 1970-01-01 00:00:00 UTC, written as 14 digits. Years 0000-9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads exactly 14 digits, with an optional `.fraction` that is dropped. `None` where that is no date.
    pub fn parse(text: &str) -> Option<Self> {
        let _ = text;
        todo!()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
