//! Bytes that were read past what was asked for: the next block's, or the next transfer's.

/// Read from a connection and not yet used.
///
/// ```text
///   0 ........ used ........ filled ........ end ........
///     taken         carried         sealed        room
/// ```
#[derive(Default)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    used: usize,
    filled: usize,
    /// What is sealed is the beginning of a record: it is carried once all of the record is here
    /// and opened.
    end: usize,
}

impl ReadBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.used == self.filled
    }

    /// Carries bytes that are in clear.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.forget_used();
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
        self.filled = self.end;
    }

    /// Space for the next `count` bytes. Its present content has no meaning.
    pub(crate) fn spare(&mut self, count: usize) -> &mut [u8] {
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

    /// `count` bytes were read into the space.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// All that is sealed: to be opened in place.
    pub(crate) fn sealed(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..self.end]
    }

    /// Of what is sealed, `taken` bytes were opened to `clear`, which are now at its beginning and
    /// are carried.
    pub(crate) fn opened(&mut self, clear: usize, taken: usize) {
        let rest = self.filled + taken;
        self.filled += clear;
        self.bytes.copy_within(rest..self.end, self.filled);
        self.end -= taken - clear;
    }

    /// The next bytes, `most` of them or as many as there are.
    pub(crate) fn take(&mut self, most: usize) -> &[u8] {
        let start = self.used;
        self.used += most.min(self.filled - start);
        &self.bytes[start..self.used]
    }

    /// Gives its memory back: where what comes next is large, nothing is carried.
    pub(crate) fn release(&mut self) {
        if self.used == self.end {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_bytes_come_out_once_and_in_order() {
        let mut read_buffer = ReadBuffer::default();
        assert!(read_buffer.is_empty() && read_buffer.take(3).is_empty());
        read_buffer.put(b"abcdef");
        assert_eq!(read_buffer.take(2), b"ab");
        read_buffer.put(b"gh");
        read_buffer.release();
        assert_eq!(read_buffer.take(4), b"cdef");
        assert_eq!(read_buffer.take(9), b"gh");
        assert!(read_buffer.is_empty());
        read_buffer.put(b"x");
        assert_eq!(read_buffer.take(1), b"x");
    }

    /// Records of this test: two bytes become one.
    #[test]
    fn opened_bytes_are_buffered_and_the_rest_waits() {
        let mut read_buffer = ReadBuffer::default();
        let came = |read_buffer: &mut ReadBuffer, bytes: &[u8]| {
            read_buffer.spare(bytes.len()).copy_from_slice(bytes);
            read_buffer.filled(bytes.len());
        };
        came(&mut read_buffer, b"a-b-c");
        assert!(read_buffer.is_empty());
        assert_eq!(read_buffer.sealed(), b"a-b-c");
        read_buffer.sealed()[..2].copy_from_slice(b"ab");
        read_buffer.opened(2, 4);
        assert_eq!(read_buffer.take(1), b"a");
        assert_eq!(read_buffer.sealed(), b"c");
        came(&mut read_buffer, b"-d");
        assert_eq!(read_buffer.sealed(), b"c-d");
        read_buffer.opened(1, 2);
        assert_eq!(read_buffer.take(9), b"bc");
        // Nothing is carried, and half a record is.
        assert!(read_buffer.is_empty());
        read_buffer.release();
        came(&mut read_buffer, b"-");
        assert_eq!(read_buffer.sealed(), b"d-");
        read_buffer.opened(1, 2);
        assert_eq!(read_buffer.take(9), b"d");
        read_buffer.release();
        assert!(read_buffer.bytes.is_empty());
    }
}
