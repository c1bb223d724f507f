//! Byte ranges and sets of them.
//!
//! By hand: a map of starts and one rule to merge, which a property test compares with a bitmap.

use std::{collections::BTreeMap, fmt};

/// Bytes `start..end` of a file, half-open. `start <= end`.
///
/// On the wire (111, REST) we write exclusive ends and read foreign ends as exclusive: reading
/// a foreign end too low costs one repeated byte, too high loses one (ADR 0003).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// `start..end`; `None` where `end < start`.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if end < start {
            None
        } else {
            Some(Self { start, end })
        }
    }
    /// From 0 to the end of any file.
    pub const ALL: Self = Self {
        start: 0,
        end: u64::MAX,
    };
    /// Bytes inside.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }
    /// True where nothing is inside.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

/// A set of byte positions, kept as disjoint ranges that do not touch.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start -> end
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `range`; overlaps and repeats change nothing. Touching ranges become one.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let ByteRange { mut start, mut end } = range;
        if let Some((&s, &e)) = self.ranges.range(..=start).next_back()
            && e >= start
        {
            if e >= end {
                return;
            }
            start = s;
        }
        while let Some((&s, &e)) = self.ranges.range(start..=end).next() {
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
    }

    /// Adds `range`, unless the set would then have more than `most` ranges. Returns whether the
    /// set holds it: a peer chooses where its blocks lie, and each that touches no other costs
    /// memory.
    pub fn insert_within(&mut self, range: ByteRange, most: usize) -> bool {
        let before = self.ranges.len();
        self.insert(range);
        let fits = self.ranges.len() <= most.max(before);
        if !fits {
            // One more than before: it has joined none, and has its own start.
            self.ranges.remove(&range.start);
        }
        fits
    }

    /// Adds the ranges of `other` as [`Self::insert_within`] does, and leaves out the rest.
    pub fn union_within(&mut self, other: &Self, most: usize) {
        for range in other.iter() {
            self.insert_within(range, most);
        }
    }

    /// Adds every range of `other`.
    pub fn union_with(&mut self, other: &Self) {
        for r in other.iter() {
            self.insert(r);
        }
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let touched: Vec<(u64, u64)> = self
            .ranges
            .range(..range.end)
            .rev()
            .take_while(|(_, e)| **e > range.start)
            .map(|(s, e)| (*s, *e))
            .collect();
        for (s, e) in touched {
            self.ranges.remove(&s);
            if s < range.start {
                self.ranges.insert(s, range.start);
            }
            if e > range.end {
                self.ranges.insert(range.end, e);
            }
        }
    }

    /// What of `within` is not in the set, as ranges in order.
    pub fn gaps(&self, within: ByteRange) -> Vec<ByteRange> {
        let mut out = Vec::new();
        let mut at = within.start;
        if let Some((_, &e)) = self.ranges.range(..=within.start).next_back() {
            at = at.max(e);
        }
        for (&s, &e) in self.ranges.range(within.start..within.end) {
            if s > at {
                out.push(ByteRange { start: at, end: s });
            }
            at = at.max(e);
        }
        if at < within.end {
            out.push(ByteRange {
                start: at,
                end: within.end,
            });
        }
        out
    }

    /// True where every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty()
            || self
                .ranges
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, e)| *e >= range.end)
    }

    /// Ranges in order, disjoint, not touching.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges
            .iter()
            .map(|(s, e)| ByteRange { start: *s, end: *e })
    }

    /// Bytes in the set.
    pub fn covered(&self) -> u64 {
        self.iter().fold(0, |n, r| n.saturating_add(r.len()))
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// True where no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(iter: I) -> Self {
        let mut set = Self::new();
        for r in iter {
            set.insert(r);
        }
        set
    }
}

impl fmt::Display for RangeSet {
    /// `0-100,200-300`, the list form of 111 and REST with exclusive ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{r}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
