//! How bytes map to stripes (GFD.020 "OPTS RETR StripeLayout").

use crate::range_set::ByteRange;

/// Which byte goes to which receiving stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeLayout {
    /// Equal contiguous parts.
    Partitioned,
    /// Round robin of blocks of `block_bytes` (> 0).
    Blocked {
        /// Bytes of a block.
        block_bytes: u64,
    },
}

impl StripeLayout {
    /// What of `range` goes to stripe `stripe` of `stripes`, in order. `total` is the end of the
    /// last byte of the whole transfer: Partitioned cuts `0..total` into `stripes` parts of
    /// `ceil(total / stripes)` bytes, fewer in the last ones; what lies beyond `total` goes to the
    /// last stripe. Nothing for `stripe >= stripes`. A block size of 0 is taken as 1.
    ///
    /// Lazy, since a peer chooses the block size: one byte over a huge range costs nothing until it
    /// is walked.
    pub fn pieces(self, range: ByteRange, total: u64, stripe: usize, stripes: usize) -> Pieces {
        if stripe >= stripes {
            return Pieces::none();
        }
        // A count of stripes beyond 2^64 cannot be in memory.
        let (stripe, stripes) = (stripe as u64, stripes as u64);
        match self {
            Self::Partitioned => {
                let part = total.div_ceil(stripes).max(1);
                let start = part.saturating_mul(stripe);
                let end = if stripe + 1 == stripes {
                    u64::MAX
                } else {
                    part.saturating_mul(stripe + 1)
                };
                Pieces {
                    range,
                    block_bytes: end - start,
                    next_block: Some(start),
                    stride: None,
                }
            }
            Self::Blocked { block_bytes } => {
                let block_bytes = block_bytes.max(1);
                // Blocks before the round in which `range` begins are skipped at once.
                let stride = block_bytes.checked_mul(stripes);
                let round = stride.map_or(0, |stride| range.start / stride * stride);
                Pieces {
                    range,
                    block_bytes,
                    next_block: block_bytes
                        .checked_mul(stripe)
                        .and_then(|first| first.checked_add(round)),
                    stride,
                }
            }
        }
    }
}

/// Iterator of [`StripeLayout::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    range: ByteRange,
    block_bytes: u64,
    /// Where the next block of this stripe begins; `None` once it is beyond 2^64.
    next_block: Option<u64>,
    /// From one block of this stripe to its next; `None` where there is no next one.
    stride: Option<u64>,
}

impl Pieces {
    fn none() -> Self {
        Self {
            range: ByteRange { start: 0, end: 0 },
            block_bytes: 1,
            next_block: None,
            stride: None,
        }
    }
}

impl Iterator for Pieces {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        while let Some(block) = self.next_block.filter(|b| *b < self.range.end) {
            self.next_block = self.stride.and_then(|stride| block.checked_add(stride));
            let start = block.max(self.range.start);
            let end = block.saturating_add(self.block_bytes).min(self.range.end);
            if start < end {
                return Some(ByteRange { start, end });
            }
        }
        self.next_block = None;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(
        layout: StripeLayout,
        total: u64,
        stripe: usize,
        stripes: usize,
        range: (u64, u64),
    ) -> String {
        let range = ByteRange::new(range.0, range.1).unwrap();
        let all: Vec<String> = layout
            .pieces(range, total, stripe, stripes)
            .map(|r| r.to_string())
            .collect();
        all.join(",")
    }

    #[test]
    fn partitioned() {
        let p = |stripe, range| pieces(StripeLayout::Partitioned, 10, stripe, 3, range);
        assert_eq!(
            [p(0, (0, 10)), p(1, (0, 10)), p(2, (0, 10))],
            ["0-4", "4-8", "8-10"]
        );
        assert_eq!(
            [p(0, (3, 9)), p(1, (3, 9)), p(2, (3, 9))],
            ["3-4", "4-8", "8-9"]
        );
        assert_eq!(p(2, (0, 20)), "8-20");
        assert_eq!(p(3, (0, 10)), "");
        assert_eq!(pieces(StripeLayout::Partitioned, 0, 0, 2, (0, 0)), "");
    }

    #[test]
    fn blocked() {
        let b = |stripe, range| {
            pieces(
                StripeLayout::Blocked { block_bytes: 4 },
                0,
                stripe,
                2,
                range,
            )
        };
        assert_eq!(b(0, (0, 20)), "0-4,8-12,16-20");
        assert_eq!(b(1, (0, 20)), "4-8,12-16");
        assert_eq!(b(1, (6, 13)), "6-8,12-13");
        assert_eq!(b(0, (5, 8)), "");
    }

    #[test]
    fn extremes_neither_overflow_nor_loop() {
        let huge = StripeLayout::Blocked {
            block_bytes: u64::MAX,
        };
        assert_eq!(
            pieces(huge, 0, 0, 2, (0, u64::MAX)),
            "0-18446744073709551615"
        );
        assert_eq!(pieces(huge, 0, 1, 2, (0, u64::MAX)), "");
        let tiny = StripeLayout::Blocked { block_bytes: 0 };
        assert_eq!(
            pieces(tiny, 0, 1, 2, (u64::MAX - 2, u64::MAX)),
            "18446744073709551613-18446744073709551614"
        );
        let parts = StripeLayout::Partitioned;
        assert_eq!(
            pieces(parts, u64::MAX, 1, 2, (0, u64::MAX)),
            "9223372036854775808-18446744073709551615"
        );
        assert_eq!(pieces(parts, 3, 9, 10, (0, 3)), "");
    }
}
