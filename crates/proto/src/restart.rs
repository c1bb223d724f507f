//! The argument of REST.

use crate::range_set::RangeSet;

/// Where a transfer resumes: what the receiver already has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartPoint {
    /// Stream form: octets `0..n` are there (RFC 3659 §5).
    Offset(u64),
    /// List form, exclusive ends (GFD.020 §"Restart").
    Ranges(RangeSet),
}

impl RestartPoint {
    /// Ranges of a list before the parser gives up: bounds memory that one REST line can claim.
    pub const RANGES_MAX: usize = 4096;

    /// What is already there, as a set.
    pub fn to_ranges(&self) -> RangeSet {
        todo!()
    }

    /// Parses `12345` or `0-29,60-89`. Reversed ranges, overflow, more than [`Self::RANGES_MAX`] ranges: `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let _ = text;
        todo!()
    }
}

impl std::fmt::Display for RestartPoint {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
