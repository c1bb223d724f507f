//! How octets map to stripes (GFD.020 "OPTS RETR StripeLayout").

use crate::range_set::ByteRange;

/// Which octet goes to which receiving stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeLayout {
    /// Equal contiguous parts.
    Partitioned,
    /// Round robin of blocks of `block_bytes` (> 0).
    Blocked {
        /// Octets of a block.
        block_bytes: u64,
    },
}

impl StripeLayout {
    /// What of `range` goes to stripe `stripe` of `stripes`, in order. `total` is the end of the last octet of
    /// the whole transfer: Partitioned cuts `0..total` into `stripes` parts, all but the last of equal length.
    /// Nothing for `stripe >= stripes`.
    pub fn pieces(
        self,
        range: ByteRange,
        total: u64,
        stripe: usize,
        stripes: usize,
    ) -> Vec<ByteRange> {
        let (stripe, stripes) = (stripe as u64, stripes as u64);
        if stripe >= stripes || range.is_empty() {
            return Vec::new();
        }
        let clip = |start: u64, end: u64| {
            let (start, end) = (start.max(range.start), end.min(range.end));
            (start < end).then_some(ByteRange { start, end })
        };
        match self {
            Self::Partitioned => {
                let part = total.div_ceil(stripes);
                let start = part.saturating_mul(stripe);
                let end = if stripe + 1 == stripes {
                    u64::MAX
                } else {
                    start.saturating_add(part)
                };
                clip(start, end).into_iter().collect()
            }
            Self::Blocked { block_bytes } => {
                let block = block_bytes.max(1);
                let first = range.start / block;
                let last = (range.end - 1) / block;
                // The first block of this stripe at or after `first`.
                let mut at = first + (stripe + stripes - first % stripes) % stripes;
                let mut out = Vec::new();
                while at <= last {
                    let start = at.saturating_mul(block);
                    out.extend(clip(start, start.saturating_add(block)));
                    at = match at.checked_add(stripes) {
                        Some(next) => next,
                        None => break,
                    };
                }
                out
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_set::RangeSet;

    #[test]
    fn every_octet_has_one_stripe() {
        for layout in [
            StripeLayout::Partitioned,
            StripeLayout::Blocked { block_bytes: 7 },
        ] {
            for stripes in 1..5 {
                let range = ByteRange { start: 3, end: 100 };
                let all: Vec<_> = (0..stripes)
                    .flat_map(|i| layout.pieces(range, 100, i, stripes))
                    .collect();
                assert_eq!(all.iter().map(|r| r.len()).sum::<u64>(), range.len());
                let set: RangeSet = all.into_iter().collect();
                assert!(
                    set.contains(range) && set.count() == 1,
                    "{layout:?} {stripes}"
                );
            }
        }
    }

    #[test]
    fn blocks_go_round() {
        let layout = StripeLayout::Blocked { block_bytes: 10 };
        let got = layout.pieces(ByteRange { start: 5, end: 45 }, 45, 1, 2);
        assert_eq!(
            got,
            [
                ByteRange { start: 10, end: 20 },
                ByteRange { start: 30, end: 40 }
            ]
        );
    }
}
