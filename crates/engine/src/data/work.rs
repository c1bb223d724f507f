//! The one queue of byte ranges that all channels of a transfer pull from.

use std::{io::Read, sync::Mutex};

use godwit_proto::{ByteRange, error::StorageFailure};

use super::lock;

/// Ranges still to be sent, in order. Made as they are asked for: a peer may wish for stripes of one octet.
pub(super) struct WorkQueue {
    pending: Mutex<Pending>,
    block_bytes: u64,
}

struct Pending {
    front: ByteRange,
    rest: Box<dyn Iterator<Item = ByteRange> + Send>,
    /// Nothing more is given out.
    cut: bool,
}

impl WorkQueue {
    pub(super) fn new(
        ranges: impl IntoIterator<Item = ByteRange, IntoIter: Send + 'static>,
        block_bytes: u64,
    ) -> Self {
        let pending = Pending {
            front: ByteRange { start: 0, end: 0 },
            rest: Box::new(ranges.into_iter()),
            cut: false,
        };
        Self {
            pending: Mutex::new(pending),
            block_bytes: block_bytes.max(1),
        }
    }

    /// The next block: at most `block_bytes`, contiguous. `None` when all has been given out, or after a cut.
    pub(super) fn next_block(&self) -> Option<ByteRange> {
        let mut pending = lock(&self.pending);
        if pending.cut {
            return None;
        }
        while pending.front.is_empty() {
            pending.front = pending.rest.next()?;
        }
        let ByteRange { start, end } = pending.front;
        let block = ByteRange {
            start,
            end: end.min(start.saturating_add(self.block_bytes)),
        };
        pending.front.start = block.end;
        Some(block)
    }

    /// Everything has been given out.
    pub(super) fn is_exhausted(&self) -> bool {
        let mut pending = lock(&self.pending);
        while pending.front.is_empty() {
            match pending.rest.next() {
                Some(range) => pending.front = range,
                None => return true,
            }
        }
        pending.cut
    }

    /// Octets that have not been begun and follow one another.
    pub(super) fn unbegun(&self) -> u64 {
        let pending = lock(&self.pending);
        if pending.cut { 0 } else { pending.front.len() }
    }

    /// Gives up the second half of [`Self::unbegun`], whole blocks of it and no less than `least` octets, with as many left
    /// here.
    pub(super) fn split_off(&self, least: u64) -> Option<ByteRange> {
        let mut pending = lock(&self.pending);
        let ByteRange { start, end } = pending.front;
        let kept = ((end - start) / 2)
            .max(1)
            .checked_next_multiple_of(self.block_bytes)?;
        let middle = start.checked_add(kept).filter(|m| *m < end)?;
        if pending.cut || end - middle < least {
            return None;
        }
        pending.front.end = middle;
        Some(ByteRange { start: middle, end })
    }

    /// Gives out no further block.
    pub(super) fn cut(&self) {
        lock(&self.pending).cut = true;
    }

    /// Takes out what a cut left, piece by piece; nothing without a cut.
    pub(super) fn drain_cut(&self, mut piece: impl FnMut(ByteRange)) {
        let mut pending = lock(&self.pending);
        if pending.cut {
            piece(std::mem::replace(
                &mut pending.front,
                ByteRange { start: 0, end: 0 },
            ));
            pending.rest.by_ref().for_each(piece);
        }
    }
}

/// A source without offsets: a listing, standard input. Read by one channel at a time.
pub(super) struct StreamSource(Mutex<StreamState>);

struct StreamState {
    reader: Box<dyn Read + Send>,
    offset: u64,
    ended: bool,
}

impl StreamSource {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self(Mutex::new(StreamState {
            reader,
            offset: 0,
            ended: false,
        }))
    }

    /// Fills `buffer` from the stream as far as it goes; the wire offset of the first octet, or `None` at the end.
    pub(super) fn next_block(
        &self,
        buffer: &mut Vec<u8>,
        block_bytes: usize,
    ) -> Result<Option<u64>, StorageFailure> {
        let mut state = lock(&self.0);
        buffer.clear();
        if state.ended {
            return Ok(None);
        }
        buffer.resize(block_bytes, 0);
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

    #[test]
    fn blocks_cover_each_octet_once_in_order() {
        let q = WorkQueue::new(
            [
                ByteRange { start: 0, end: 25 },
                ByteRange { start: 30, end: 30 },
                ByteRange { start: 40, end: 45 },
            ],
            10,
        );
        let got: Vec<_> = std::iter::from_fn(|| q.next_block())
            .map(|r| (r.start, r.end))
            .collect();
        assert_eq!(got, [(0, 10), (10, 20), (20, 25), (40, 45)]);
    }

    #[test]
    fn half_of_what_is_not_begun_goes_elsewhere() {
        let q = WorkQueue::new([ByteRange { start: 0, end: 95 }], 10);
        assert_eq!(q.split_off(1), None, "nothing is begun yet");
        assert_eq!(q.next_block(), Some(ByteRange { start: 0, end: 10 }));
        assert_eq!(q.split_off(40), None, "of 85 octets 50 stay");
        let other = q.split_off(20);
        assert_eq!(other, Some(ByteRange { start: 60, end: 95 }));
        assert_eq!(q.unbegun(), 50);
        let left: u64 = std::iter::from_fn(|| q.next_block()).map(|r| r.len()).sum();
        assert_eq!(left, 50);
        assert_eq!(q.split_off(0), None);
    }

    #[test]
    fn a_cut_leaves_what_was_not_given_out() {
        let ranges = [
            ByteRange { start: 0, end: 25 },
            ByteRange { start: 30, end: 35 },
        ];
        let q = WorkQueue::new(ranges, 10);
        let drained = || {
            let mut left = Vec::new();
            q.drain_cut(|r| left.push((r.start, r.end)));
            left
        };
        q.next_block().unwrap();
        assert_eq!(drained(), []);
        q.cut();
        assert_eq!(q.next_block(), None);
        assert_eq!(drained(), [(10, 25), (30, 35)]);
    }

    #[test]
    fn a_stream_ends_once_and_stays_ended() {
        let s = StreamSource::new(Box::new(&b"abcdefg"[..]));
        let mut b = Vec::new();
        assert_eq!(s.next_block(&mut b, 4).unwrap(), Some(0));
        assert_eq!(b, b"abcd");
        assert_eq!(s.next_block(&mut b, 4).unwrap(), Some(4));
        assert_eq!(b, b"efg");
        assert_eq!(s.next_block(&mut b, 4).unwrap(), None);
        assert_eq!(s.next_block(&mut b, 4).unwrap(), None);
    }
}
