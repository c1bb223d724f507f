//! The argument of REST.

use crate::{
    range_set::{ByteRange, RangeSet},
    text::decimal,
};

/// Where a transfer resumes: what the receiver already has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartPoint {
    /// Stream form: bytes `0..n` exist (RFC 3659 §5).
    Offset(u64),
    /// List form, exclusive ends (GFD.020 §"Restart").
    Ranges(RangeSet),
}

impl RestartPoint {
    /// Ranges of a list before the parser gives up: bounds memory that one REST line can claim.
    pub const RANGES_MAX: usize = 4096;

    /// What is already there, as a set.
    pub fn to_ranges(&self) -> RangeSet {
        match self {
            Self::Offset(end) => RangeSet::from_iter(ByteRange::new(0, *end)),
            Self::Ranges(set) => set.clone(),
        }
    }

    /// Parses `12345` or `0-29,60-89`. Reversed ranges, overflow, more than [`Self::RANGES_MAX`]
    /// ranges: `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches(' ');
        if let Some(offset) = decimal(text) {
            return Some(Self::Offset(offset));
        }
        parse_ranges(text).map(Self::Ranges)
    }
}

/// The list form, as REST and 111 share it.
pub(crate) fn parse_ranges(text: &str) -> Option<RangeSet> {
    let mut set = RangeSet::new();
    for (i, part) in text.split(',').enumerate() {
        if i == RestartPoint::RANGES_MAX {
            return None;
        }
        let (start, end) = part.trim_matches(' ').split_once('-')?;
        set.insert(ByteRange::new(decimal(start)?, decimal(end)?)?);
    }
    Some(set)
}

impl std::fmt::Display for RestartPoint {
    /// The argument of REST. A set with nothing in it is `0-0`, since an empty argument cannot be
    /// sent.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Offset(offset) => write!(f, "{offset}"),
            Self::Ranges(set) if set.is_empty() => f.write_str("0-0"),
            Self::Ranges(set) => write!(f, "{set}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        assert_eq!(
            RestartPoint::parse("12345"),
            Some(RestartPoint::Offset(12345))
        );
        let list = RestartPoint::parse("0-29,60-89").unwrap();
        assert_eq!(list.to_string(), "0-29,60-89");
        assert_eq!(list.to_ranges().covered(), 58);
        assert_eq!(RestartPoint::Offset(7).to_ranges().to_string(), "0-7");
        assert!(RestartPoint::Offset(0).to_ranges().is_empty());
        assert_eq!(
            RestartPoint::parse("0-0"),
            Some(RestartPoint::Ranges(RangeSet::new()))
        );
        assert_eq!(RestartPoint::Ranges(RangeSet::new()).to_string(), "0-0");
    }

    #[test]
    fn a_gap_of_one_byte_stays_a_gap() {
        let set = RestartPoint::parse("0-100,101-200").unwrap().to_ranges();
        assert_eq!(set.to_string(), "0-100,101-200");
    }

    #[test]
    fn invalid_restart_points_are_refused() {
        for bad in [
            "",
            "x",
            "-1",
            "1-",
            "-",
            "30-29",
            "0-29,",
            "0-18446744073709551616",
            "0x10",
            "0-1;2-3",
        ] {
            assert_eq!(RestartPoint::parse(bad), None, "{bad:?}");
        }
        let many = |n: usize| vec!["1-2"; n].join(",");
        assert!(RestartPoint::parse(&many(RestartPoint::RANGES_MAX)).is_some());
        assert!(RestartPoint::parse(&many(RestartPoint::RANGES_MAX + 1)).is_none());
    }
}
