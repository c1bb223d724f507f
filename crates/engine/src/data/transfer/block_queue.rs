//! The one queue of byte ranges that all channels of a transfer pull from.

use std::{collections::VecDeque, io::Read};

use godwit_proto::{ByteRange, error::StorageFailure};
use parking_lot::Mutex;

use crate::{
    data::transfer::holes::{Block, Holes},
    storage::Pages,
};

/// Smallest block that is made of a longer range: its header and its system calls cost less than a
/// percent of the time that 10 Gbit/s need for it.
const BLOCK_FLOOR: u64 = 64 << 10;

/// Smallest block of a file that is too small for a [`BLOCK_FLOOR`] on each channel. A new
/// connection takes so much at once; were there more in a block, the file, and all that wait behind
/// it, would wait for that one connection's window to grow.
const SMALL_BLOCK_FLOOR: u64 = 16 << 10;

/// Blocks that each channel shall still find in what is left: 1 would let a slow channel hold up
/// the end by as long as all the rest took, more buys little (guided self-scheduling,
/// Polychronopoulos, Kuck 1987, takes 1 or 2).
const BLOCKS_A_CHANNEL: u64 = 4;

/// Bytes.
const PAGE: u64 = 4 << 10;

/// Ranges still to be sent, in order. Made as they are asked for: a peer may wish for stripes of
/// one byte.
pub(crate) struct BlockQueue {
    pending: Mutex<Pending>,
    block_bytes: u64,
    /// About how many there were at first.
    bytes: u64,
}

struct Pending {
    front: ByteRange,
    rest: Box<dyn Iterator<Item = ByteRange> + Send>,
    /// Behind `rest`.
    leases: VecDeque<ByteRange>,
    /// Bytes in `front` and `rest`, as far as known; decides the length of blocks and nothing else.
    left: u64,
    /// Nothing more is given out.
    cut: bool,
    /// Where the file has nothing, for a receiver that knows what to make of it.
    holes: Option<Holes>,
}

impl BlockQueue {
    /// `bytes`: about how many there are in `ranges`.
    pub(crate) fn new(
        ranges: impl IntoIterator<Item = ByteRange, IntoIter: Send + 'static>,
        bytes: u64,
        block_bytes: u64,
    ) -> Self {
        let pending = Pending {
            front: ByteRange { start: 0, end: 0 },
            rest: Box::new(ranges.into_iter().fuse()),
            leases: VecDeque::new(),
            left: bytes,
            cut: false,
            holes: None,
        };
        Self {
            pending: Mutex::new(pending),
            block_bytes: block_bytes.max(1),
            bytes,
        }
    }

    /// The same for one that gets further ranges while it is sent: blocks are long from the first
    /// on.
    pub(crate) fn leased(ranges: Vec<ByteRange>, bytes: u64, block_bytes: u64) -> Self {
        Self {
            bytes: u64::MAX,
            ..Self::new(ranges, bytes, block_bytes)
        }
    }

    /// Adds ranges behind those that are there.
    pub(crate) fn extend(&self, ranges: Vec<ByteRange>) {
        let mut pending = self.pending.lock();
        for range in ranges {
            pending.left = pending.left.saturating_add(range.len());
            pending.leases.push_back(range);
        }
    }

    /// Distinguishes the holes of the file.
    pub(crate) fn with_holes(mut self, holes: Holes) -> Self {
        self.pending.get_mut().holes = Some(holes);
        self
    }

    /// The next block, contiguous; `None` when all has been given out, or after a cut. Of data at
    /// most `block_bytes`, less near the end and of a small file, so that each of `channels` finds
    /// work and none drags the tail alone; and no more than `most`, which is asked only where there
    /// is data, and is at least 1: up to the end of a page.
    pub(crate) fn next_block(&self, channels: u32, most: impl FnOnce() -> u64) -> Option<Block> {
        let mut pending = self.pending.lock();
        let pending = &mut *pending;
        if pending.cut {
            return None;
        }
        while pending.front.is_empty() {
            pending.front = pending.next_range()?;
        }
        let front = pending.front;
        let run = match &mut pending.holes {
            Some(holes) => holes.run_of(front),
            None => Block::Data(front),
        };
        let block = match run {
            Block::Data(ByteRange { start, end }) => {
                // Whole pages, as any other.
                let most = most();
                let most = most.checked_next_multiple_of(PAGE).unwrap_or(most);
                let bytes = self.block_bytes(pending.left, channels).min(most);
                let end = end.min(start.saturating_add(bytes));
                Block::Data(ByteRange { start, end })
            }
            hole @ Block::Hole(_) => hole,
        };
        let (Block::Data(range) | Block::Hole(range)) = block;
        pending.front.start = range.end;
        pending.left = pending.left.saturating_sub(range.len());
        Some(block)
    }

    fn block_bytes(&self, left: u64, channels: u32) -> u64 {
        let channels = u64::from(channels.max(1));
        // Whole multiples keep blocks on the boundaries of pages.
        if self.bytes < BLOCK_FLOOR * channels {
            let share = self.bytes.div_ceil(channels);
            let even = share.next_multiple_of(PAGE).max(SMALL_BLOCK_FLOOR);
            return even.min(self.block_bytes);
        }
        let share = left / (BLOCKS_A_CHANNEL * channels);
        let guided = share.next_multiple_of(BLOCK_FLOOR).max(BLOCK_FLOOR);
        guided.min(self.block_bytes)
    }

    /// Everything has been given out.
    pub(crate) fn is_exhausted(&self) -> bool {
        let mut pending = self.pending.lock();
        while pending.front.is_empty() {
            match pending.next_range() {
                Some(range) => pending.front = range,
                None => return true,
            }
        }
        pending.cut
    }

    /// Bytes that have not been begun and follow one another.
    pub(crate) fn unstarted_bytes(&self) -> u64 {
        let pending = self.pending.lock();
        if pending.cut { 0 } else { pending.front.len() }
    }

    /// Gives up the second half of [`Self::unstarted_bytes`], whole blocks of it and no less than
    /// `least` bytes, with as many left here.
    pub(crate) fn split_off(&self, least: u64) -> Option<ByteRange> {
        let mut pending = self.pending.lock();
        let ByteRange { start, end } = pending.front;
        let kept = ((end - start) / 2)
            .max(1)
            .checked_next_multiple_of(self.block_bytes)?;
        let middle = start.checked_add(kept).filter(|m| *m < end)?;
        if pending.cut || end - middle < least {
            return None;
        }
        pending.front.end = middle;
        pending.left = pending.left.saturating_sub(end - middle);
        Some(ByteRange { start: middle, end })
    }

    /// Gives out no further block.
    pub(crate) fn cut(&self) {
        self.pending.lock().cut = true;
    }

    /// Takes out what a cut left, piece by piece; nothing without a cut.
    pub(crate) fn drain_cut(&self, mut piece: impl FnMut(ByteRange)) {
        let mut pending = self.pending.lock();
        if pending.cut {
            piece(std::mem::replace(
                &mut pending.front,
                ByteRange { start: 0, end: 0 },
            ));
            while let Some(range) = pending.next_range() {
                piece(range);
            }
        }
    }
}

impl Pending {
    fn next_range(&mut self) -> Option<ByteRange> {
        self.rest.next().or_else(|| self.leases.pop_front())
    }
}

/// A source without offsets: a listing, standard input. Read by one channel at a time.
pub(crate) struct StreamSource(Mutex<StreamState>);

struct StreamState {
    reader: Box<dyn Read + Send>,
    offset: u64,
    ended: bool,
}

impl StreamSource {
    pub(crate) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self(Mutex::new(StreamState {
            reader,
            offset: 0,
            ended: false,
        }))
    }

    /// Fills `buffer` from the stream as far as it goes; the wire offset of the first byte, or
    /// `None` at the end.
    pub(crate) fn next_block(
        &self,
        buffer: &mut Pages,
        block_bytes: usize,
    ) -> Result<Option<u64>, StorageFailure> {
        let mut state = self.0.lock();
        buffer.resize(0);
        if state.ended {
            return Ok(None);
        }
        buffer.resize(block_bytes);
        let mut filled = 0;
        while filled < block_bytes {
            match state.reader.read(&mut buffer[filled..]) {
                Ok(0) => {
                    state.ended = true;
                    break;
                }
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    state.ended = true;
                    return Err(crate::storage::failure("read the source stream", &e));
                }
            }
        }
        buffer.truncate(filled);
        let offset = state.offset;
        state.offset += filled as u64;
        Ok((filled > 0).then_some(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(queue: &BlockQueue, channels: u32) -> Option<ByteRange> {
        match queue.next_block(channels, || u64::MAX)? {
            Block::Data(range) => Some(range),
            Block::Hole(range) => panic!("a hole at {range}"),
        }
    }

    #[test]
    fn blocks_cover_each_byte_once_in_order() {
        let q = BlockQueue::new(
            [
                ByteRange { start: 0, end: 25 },
                ByteRange { start: 30, end: 30 },
                ByteRange { start: 40, end: 45 },
            ],
            30,
            10,
        );
        let got: Vec<_> = std::iter::from_fn(|| data(&q, 3))
            .map(|r| (r.start, r.end))
            .collect();
        assert_eq!(got, [(0, 10), (10, 20), (20, 25), (40, 45)]);
    }

    #[test]
    fn leases_follow_what_is_there() {
        let q = BlockQueue::leased(vec![ByteRange { start: 5, end: 9 }], 4, 10);
        assert_eq!(data(&q, 1), Some(ByteRange { start: 5, end: 9 }));
        assert!(q.is_exhausted() && data(&q, 1).is_none());
        q.extend(vec![
            ByteRange { start: 0, end: 3 },
            ByteRange { start: 20, end: 31 },
        ]);
        assert!(!q.is_exhausted());
        let got: Vec<_> = std::iter::from_fn(|| data(&q, 1))
            .map(|r| (r.start, r.end))
            .collect();
        assert_eq!(got, [(0, 3), (20, 30), (30, 31)]);
    }

    #[test]
    fn half_of_the_unstarted_bytes_are_split_off() {
        let q = BlockQueue::new([ByteRange { start: 0, end: 95 }], 95, 10);
        assert_eq!(q.split_off(1), None, "nothing is begun yet");
        assert_eq!(data(&q, 1), Some(ByteRange { start: 0, end: 10 }));
        assert_eq!(q.split_off(40), None, "of 85 bytes 50 stay");
        let other = q.split_off(20);
        assert_eq!(other, Some(ByteRange { start: 60, end: 95 }));
        assert_eq!(q.unstarted_bytes(), 50);
        let left: u64 = std::iter::from_fn(|| data(&q, 1)).map(|r| r.len()).sum();
        assert_eq!(left, 50);
        assert_eq!(q.split_off(0), None);
    }

    #[test]
    fn a_slow_channel_takes_small_blocks() {
        let q = BlockQueue::new(
            [ByteRange {
                start: 0,
                end: 1 << 20,
            }],
            1 << 20,
            1 << 20,
        );
        let lens = [5000, 1, u64::MAX].map(|most| match q.next_block(1, || most) {
            Some(Block::Data(range)) => range.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(lens, [8192, 4096, 256 << 10]);
    }

    #[test]
    fn blocks_shrink_where_channels_would_starve() {
        let blocks = |bytes, channels| -> Vec<u64> {
            let all = ByteRange {
                start: 0,
                end: bytes,
            };
            let q = BlockQueue::new([all], bytes, 1 << 20);
            let blocks: Vec<_> = std::iter::from_fn(|| data(&q, channels))
                .map(ByteRange::len)
                .collect();
            assert_eq!(blocks.iter().sum::<u64>(), bytes);
            blocks
        };
        let of_small = blocks(10_000_000, 16);
        assert!(of_small.len() > 3 * 16, "{of_small:?}");
        assert!(of_small[0] < 256 << 10);
        // 64 channels are too many for whole floors, but most get two.
        assert_eq!(blocks(10_000_000, 64).len(), 153);
        let of_big = blocks(1 << 30, 16);
        assert!(of_big[..900].iter().all(|b| *b == 1 << 20));
        assert!(of_big.is_sorted_by(|a, b| a >= b));
        assert!(of_big.len() < 1024 + 16 * 16, "{}", of_big.len());
        assert_eq!(of_big[of_big.len() - 16..], [BLOCK_FLOOR; 16]);
        assert_eq!(blocks(5, 64), [5]);
        // Small ones go over as many channels as there are blocks for, evenly.
        assert_eq!(blocks(100_000, 1), [65_536, 34_464]);
        assert_eq!(blocks(100_000, 2), [53_248, 46_752]);
        let spread = blocks(100_000, 17);
        assert_eq!((spread.len(), spread[0]), (7, SMALL_BLOCK_FLOOR));
    }

    #[test]
    fn a_cut_leaves_what_was_not_given_out() {
        let ranges = [
            ByteRange { start: 0, end: 25 },
            ByteRange { start: 30, end: 35 },
        ];
        let q = BlockQueue::new(ranges, 30, 10);
        let drained = || {
            let mut left = Vec::new();
            q.drain_cut(|r| left.push((r.start, r.end)));
            left
        };
        q.next_block(1, || u64::MAX).unwrap();
        assert_eq!(drained(), []);
        q.cut();
        assert_eq!(q.next_block(1, || u64::MAX), None);
        assert_eq!(drained(), [(10, 25), (30, 35)]);
    }

    #[test]
    fn a_stream_ends_once_and_stays_ended() {
        let s = StreamSource::new(Box::new(&b"abcdefg"[..]));
        let mut b = Pages::default();
        assert_eq!(s.next_block(&mut b, 4).unwrap(), Some(0));
        assert_eq!(*b, *b"abcd");
        assert_eq!(s.next_block(&mut b, 4).unwrap(), Some(4));
        assert_eq!(*b, *b"efg");
        assert_eq!(s.next_block(&mut b, 4).unwrap(), None);
        assert_eq!(s.next_block(&mut b, 4).unwrap(), None);
    }
}
