//! Bytes that were read past what was asked for: the next block's, or the next transfer's.

/// Read from a connection and not yet used.
///
/// ```text
///   0 ........ used ........ filled ........ end ........
///     taken         carried         sealed        room
/// ```
#[derive(Default)]
pub(super) struct Carry {
    bytes: Vec<u8>,
    used: usize,
    filled: usize,
    /// What is sealed is the beginning of a record: it is carried once all of the record is here
    /// and opened.
    end: usize,
}

impl Carry {
    pub(super) fn is_empty(&self) -> bool {
        self.used == self.filled
    }

    /// Carries bytes that are in clear.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.forget_used();
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
        self.filled = self.end;
    }

    /// Where `count` bytes go that are read next. What is there already means nothing.
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        self.forget_used();
        let end = self.end + count;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.end..end]
    }

    /// Where all that is carried was taken, what is behind it moves to the front.
    fn forget_used(&mut self) {
        if self.is_empty() {
            self.bytes.copy_within(self.filled..self.end, 0);
            self.end -= self.filled;
            self.used = 0;
            self.filled = 0;
        }
    }

    /// So many bytes of the room were read.
    pub(super) fn came(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// All that is sealed: to be opened in place.
    pub(super) fn sealed(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..self.end]
    }

    /// Of what is sealed, `taken` bytes were opened to `clear`, which are now at its beginning and
    /// are carried.
    pub(super) fn opened(&mut self, clear: usize, taken: usize) {
        let rest = self.filled + taken;
        self.filled += clear;
        self.bytes.copy_within(rest..self.end, self.filled);
        self.end -= taken - clear;
    }

    /// The next bytes, `most` of them or as many as there are.
    pub(super) fn take(&mut self, most: usize) -> &[u8] {
        let start = self.used;
        self.used += most.min(self.filled - start);
        &self.bytes[start..self.used]
    }

    /// Gives its memory back: where what comes next is large, nothing is carried.
    pub(super) fn release(&mut self) {
        if self.used == self.end {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_out_once_and_in_order() {
        let mut carry = Carry::default();
        assert!(carry.is_empty() && carry.take(3).is_empty());
        carry.put(b"abcdef");
        assert_eq!(carry.take(2), b"ab");
        carry.put(b"gh");
        carry.release();
        assert_eq!(carry.take(4), b"cdef");
        assert_eq!(carry.take(9), b"gh");
        assert!(carry.is_empty());
        carry.put(b"x");
        assert_eq!(carry.take(1), b"x");
    }

    /// Records of this test: two bytes become one.
    #[test]
    fn what_is_opened_is_carried_and_the_rest_waits_for_more() {
        let mut carry = Carry::default();
        let came = |carry: &mut Carry, bytes: &[u8]| {
            carry.room(bytes.len()).copy_from_slice(bytes);
            carry.came(bytes.len());
        };
        came(&mut carry, b"a-b-c");
        assert!(carry.is_empty());
        assert_eq!(carry.sealed(), b"a-b-c");
        carry.sealed()[..2].copy_from_slice(b"ab");
        carry.opened(2, 4);
        assert_eq!(carry.take(1), b"a");
        assert_eq!(carry.sealed(), b"c");
        came(&mut carry, b"-d");
        assert_eq!(carry.sealed(), b"c-d");
        carry.opened(1, 2);
        assert_eq!(carry.take(9), b"bc");
        // Nothing is carried, and half a record is.
        assert!(carry.is_empty());
        carry.release();
        came(&mut carry, b"-");
        assert_eq!(carry.sealed(), b"d-");
        carry.opened(1, 2);
        assert_eq!(carry.take(9), b"d");
        carry.release();
        assert!(carry.bytes.is_empty());
    }
}
