//! How moving a range of bytes ended.

use godwit_proto::{ByteRange, RangeSet};

use crate::error::{Error, Result};

/// The result of moving bytes of a file.
pub(crate) struct RangeOutcome {
    pub(crate) result: Result<()>,
    /// Bytes that are there for good.
    pub(crate) moved: u64,
    /// What is still to be moved, also after a success that was cut short; `None` in it: all of the
    /// file.
    pub(crate) left: Vec<Option<ByteRange>>,
}

impl RangeOutcome {
    /// All of it is there.
    pub(crate) fn whole(moved: u64) -> Self {
        Self {
            result: Ok(()),
            moved,
            left: Vec::new(),
        }
    }

    /// It failed, and bytes of `range` are `safe`, counted from its start.
    pub(crate) fn failed_but(error: Error, range: ByteRange, safe: &RangeSet) -> Self {
        let Self { moved, left, .. } = Self::cut_short(range, safe);
        // All of it is there, and a server called it a failure: that is no success, whatever it
        // was.
        if left.is_empty() {
            return Self::failed(error, 0, vec![Some(range)]);
        }
        Self::failed(error, moved, left)
    }

    /// It was called off, and bytes of `range` are `safe`, counted from its start.
    pub(crate) fn cut_short(range: ByteRange, safe: &RangeSet) -> Self {
        let left = safe.gaps(ByteRange {
            start: 0,
            end: range.len(),
        });
        let moved = range.len() - left.iter().map(|r| r.len()).sum::<u64>();
        let left = left
            .into_iter()
            .map(|r| ByteRange::new(range.start + r.start, range.start + r.end));
        Self {
            result: Ok(()),
            moved,
            left: left.collect(),
        }
    }

    pub(crate) fn failed(error: Error, moved: u64, left: Vec<Option<ByteRange>>) -> Self {
        Self {
            result: Err(error),
            moved,
            left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_range_leaves_the_missing_bytes() {
        let range = ByteRange::new(1000, 2000).unwrap();
        let mut safe = RangeSet::new();
        safe.insert(ByteRange::new(0, 300).unwrap());
        safe.insert(ByteRange::new(500, 900).unwrap());
        let RangeOutcome {
            result,
            moved,
            left,
        } = RangeOutcome::cut_short(range, &safe);
        assert!(result.is_ok());
        let gaps = [(1300, 1500), (1900, 2000)].map(|(start, end)| ByteRange::new(start, end));
        assert_eq!((moved, left), (700, gaps.to_vec()));
        assert!(RangeOutcome::cut_short(range, &RangeSet::new()).moved == 0);
    }
}
