//! Bytes on their way to the socket: clear in the places where they are to be sealed, then as
//! records.
//!
//! ```text
//!   │new keys│header│ 16 KiB │type│tag│header│ 16 KiB │type│tag│ ...
//!   │   27   │  5   │ clear  │  1 │16 │
//! ```
//! What is read from a file goes straight to its places, past the bytes that protection adds:
//! nothing is copied between the file and the socket but by the cipher.

use std::{io::IoSliceMut, ops::Range};

use crate::record::{HEADER_BYTES, NEW_KEYS_BYTES, RECORD_CLEAR_BYTES_MAX, TAIL_BYTES};

/// From one record to the next.
const STRIDE: usize = HEADER_BYTES + RECORD_CLEAR_BYTES_MAX + TAIL_BYTES;

/// What is to be sealed at once, and then what was.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    /// Clear bytes in their places.
    clear: usize,
    /// Records that the socket has not taken.
    unsent: Range<usize>,
    /// Memory for what is not sealed in its place.
    spare: Vec<u8>,
}

impl Outgoing {
    /// Clear bytes at a time: whole records.
    pub const CLEAR_BYTES_MAX: usize = 4 * RECORD_CLEAR_BYTES_MAX;

    /// How many clear bytes still fit. None before what was sealed has been sent.
    #[must_use]
    pub fn room(&self) -> usize {
        match self.is_sent() {
            true => Self::CLEAR_BYTES_MAX - self.clear,
            false => 0,
        }
    }

    /// Takes what fits of `part` behind what is there; how many bytes that are.
    pub fn put(&mut self, part: &[u8]) -> usize {
        let mut rest = part;
        for mut place in self.places(part.len()) {
            let (now, later) = rest.split_at(place.len());
            place.copy_from_slice(now);
            rest = later;
        }
        let taken = part.len() - rest.len();
        self.came(taken);
        taken
    }

    /// Where the next clear bytes go, `most` of them or as many as fit, in order. What is in them
    /// means nothing.
    pub fn places(&mut self, most: usize) -> Vec<IoSliceMut<'_>> {
        let mut left = most.min(self.room());
        self.grow(end_of(self.clear + left));
        let mut at = self.clear % RECORD_CLEAR_BYTES_MAX;
        let mut rest = match left {
            0 => &mut [],
            _ => &mut self.bytes[start_of(self.clear / RECORD_CLEAR_BYTES_MAX)..],
        };
        let mut places = Vec::with_capacity(left.div_ceil(RECORD_CLEAR_BYTES_MAX) + 1);
        while left > 0 {
            let now = left.min(RECORD_CLEAR_BYTES_MAX - at);
            let (record, later) = rest.split_at_mut(rest.len().min(STRIDE));
            let place = HEADER_BYTES + at..HEADER_BYTES + at + now;
            places.push(IoSliceMut::new(&mut record[place]));
            rest = later;
            left -= now;
            at = 0;
        }
        places
    }

    /// Nothing waits to be sealed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clear == 0
    }

    /// So many bytes of [`Self::places`] hold something now.
    pub fn came(&mut self, bytes: usize) {
        self.clear += bytes.min(self.room());
    }

    /// Records for the socket.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.unsent.clone()]
    }

    /// The socket has taken so many bytes more.
    pub fn sent(&mut self, bytes: usize) {
        self.unsent.start += bytes.min(self.unsent.len());
    }

    /// The socket has taken all that was sealed.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Gives back its memory, where nothing is in it.
    pub fn release(&mut self) {
        if self.is_sent() && self.is_empty() {
            *self = Self::default();
        }
    }

    /// How many records the clear bytes take.
    pub(crate) fn records(&self) -> u64 {
        self.clear.div_ceil(RECORD_CLEAR_BYTES_MAX) as u64
    }

    /// Clear bytes become records: `seal` is given each, from its header to its tag. With
    /// `new_keys`, which is one, before them.
    pub(crate) fn seal_in_place<E>(
        &mut self,
        new_keys: Option<[u8; NEW_KEYS_BYTES]>,
        mut seal: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let clear = std::mem::take(&mut self.clear);
        let end = end_of(clear);
        self.grow(end);
        for record in self.bytes[NEW_KEYS_BYTES..end].chunks_mut(STRIDE) {
            seal(record)?;
        }
        self.unsent = NEW_KEYS_BYTES..end;
        if let Some(record) = new_keys {
            self.bytes[..NEW_KEYS_BYTES].copy_from_slice(&record);
            self.unsent.start = 0;
        }
        Ok(())
    }

    /// The same, where others make the records: `seal` appends those of each part.
    pub(crate) fn seal_elsewhere<E>(
        &mut self,
        mut seal: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let clear = std::mem::take(&mut self.clear);
        let mut sealed = std::mem::take(&mut self.spare);
        sealed.clear();
        let records = self.bytes.get(NEW_KEYS_BYTES..end_of(clear));
        for record in records.unwrap_or_default().chunks(STRIDE) {
            seal(
                &record[HEADER_BYTES..record.len() - TAIL_BYTES],
                &mut sealed,
            )?;
        }
        self.set_sealed(sealed);
        Ok(())
    }

    /// Records that others have made, in place of all that was there.
    pub(crate) fn set_sealed(&mut self, sealed: Vec<u8>) {
        self.unsent = 0..sealed.len();
        self.spare = std::mem::replace(&mut self.bytes, sealed);
    }

    fn grow(&mut self, bytes: usize) {
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
    }
}

/// Where a record begins.
fn start_of(record: usize) -> usize {
    NEW_KEYS_BYTES + record * STRIDE
}

/// Where the records of so many clear bytes end.
fn end_of(clear: usize) -> usize {
    let rest = clear % RECORD_CLEAR_BYTES_MAX;
    let last = match rest {
        0 => 0,
        _ => HEADER_BYTES + rest + TAIL_BYTES,
    };
    start_of(clear / RECORD_CLEAR_BYTES_MAX) + last
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The records, each with `<` and `>` where the cipher puts what it adds.
    fn seal(outgoing: &mut Outgoing, new_keys: Option<[u8; NEW_KEYS_BYTES]>) -> Vec<u8> {
        let sealed = outgoing.seal_in_place(new_keys, |record| {
            let tail = record.len() - TAIL_BYTES;
            record[..HEADER_BYTES].fill(b'<');
            record[tail..].fill(b'>');
            Ok::<_, ()>(())
        });
        sealed.unwrap();
        let bytes = outgoing.unsent().to_vec();
        outgoing.sent(bytes.len());
        bytes
    }

    fn expected(clear: &[u8]) -> Vec<u8> {
        let records = clear.chunks(RECORD_CLEAR_BYTES_MAX);
        let records =
            records.map(|clear| [&[b'<'; HEADER_BYTES], clear, &[b'>'; TAIL_BYTES]].concat());
        records.collect::<Vec<_>>().concat()
    }

    proptest! {
        #[test]
        fn bytes_lie_in_order_however_they_came(
            rows in vec(vec((0usize..40_000, 0usize..40_000, any::<bool>()), 0..5), 1..4),
        ) {
            let mut outgoing = Outgoing::default();
            for row in rows {
                let mut clear = Vec::new();
                for (bytes, fewer, reads) in row {
                    let part: Vec<u8> = (0..bytes).map(|at| (at * 7).to_le_bytes()[0]).collect();
                    let room = outgoing.room();
                    let taken = match reads {
                        false => outgoing.put(&part),
                        // A file may give less than there is room for.
                        true => {
                            let places = outgoing.places(bytes);
                            let mut rest = &part[..];
                            for mut place in places {
                                let (now, later) = rest.split_at(place.len());
                                place.copy_from_slice(now);
                                rest = later;
                            }
                            let came = (bytes - rest.len()).saturating_sub(fewer);
                            outgoing.came(came);
                            came
                        }
                    };
                    prop_assert!(reads || taken == bytes.min(room));
                    clear.extend_from_slice(&part[..taken]);
                    prop_assert_eq!(outgoing.room(), Outgoing::CLEAR_BYTES_MAX - clear.len());
                }
                let records = clear.len().div_ceil(RECORD_CLEAR_BYTES_MAX) as u64;
                prop_assert_eq!(outgoing.records(), records);
                prop_assert!(seal(&mut outgoing, None) == expected(&clear));
            }
        }
    }

    #[test]
    fn no_bytes_are_put_before_sealed_ones_are_sent() {
        let mut outgoing = Outgoing::default();
        assert!(outgoing.is_sent() && outgoing.unsent().is_empty());
        outgoing.put(b"abc");
        let sealed = outgoing.seal_in_place(Some([b'k'; NEW_KEYS_BYTES]), |_| Ok::<_, ()>(()));
        sealed.unwrap();
        assert!(outgoing.unsent().starts_with(&[b'k'; NEW_KEYS_BYTES]));
        outgoing.sent(NEW_KEYS_BYTES);
        outgoing.release();
        assert_eq!(&outgoing.unsent()[HEADER_BYTES..][..3], b"abc");
        assert_eq!((outgoing.room(), outgoing.put(b"d")), (0, 0));
        outgoing.sent(HEADER_BYTES + 3 + TAIL_BYTES);
        assert_eq!(outgoing.room(), Outgoing::CLEAR_BYTES_MAX);
        assert!(seal(&mut outgoing, None).is_empty());
        outgoing.release();
        assert_eq!(seal(&mut outgoing, Some([1; NEW_KEYS_BYTES])), [1; 27]);
    }

    #[test]
    fn bytes_are_sealed_in_parts_of_a_record() {
        let mut outgoing = Outgoing::default();
        for bytes in [0, 1, 40_000, 5] {
            let clear = vec![3; bytes];
            outgoing.put(&clear);
            let mut parts = Vec::new();
            let sealed = outgoing.seal_elsewhere(|part, sealed| {
                parts.push(part.len());
                sealed.extend_from_slice(part);
                Ok::<_, ()>(())
            });
            sealed.unwrap();
            assert_eq!(outgoing.unsent(), clear);
            assert_eq!(parts.len(), bytes.div_ceil(RECORD_CLEAR_BYTES_MAX));
            outgoing.sent(bytes);
        }
    }
}
