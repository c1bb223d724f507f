//! Octets that were read past what was asked for: the next block's, or the next transfer's.

/// Read from a connection and not yet used.
#[derive(Default)]
pub(super) struct Carry {
    /// Those from `used` to `filled` are carried; what lies behind is room.
    octets: Vec<u8>,
    used: usize,
    filled: usize,
}

impl Carry {
    pub(super) fn is_empty(&self) -> bool {
        self.used == self.filled
    }

    pub(super) fn put(&mut self, octets: &[u8]) {
        self.room(octets.len())[..octets.len()].copy_from_slice(octets);
        self.filled(octets.len());
    }

    /// Where further octets go, `least` of them or more. What is there already means nothing.
    pub(super) fn room(&mut self, least: usize) -> &mut [u8] {
        if self.is_empty() {
            self.used = 0;
            self.filled = 0;
        }
        let end = self.filled + least;
        if self.octets.len() < end {
            self.octets.resize(end, 0);
        }
        &mut self.octets[self.filled..]
    }

    /// So many octets of the room are carried now.
    pub(super) fn filled(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.octets.len());
    }

    /// The next octets, `most` of them or as many as there are.
    pub(super) fn take(&mut self, most: usize) -> &[u8] {
        let start = self.used;
        self.used += most.min(self.filled - start);
        &self.octets[start..self.used]
    }

    /// Gives its memory back: where what comes next is large, nothing is carried.
    pub(super) fn release(&mut self) {
        if self.is_empty() {
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
        assert!(carry.room(5).len() >= 5);
        carry.filled(0);
        assert!(carry.is_empty());
        carry.put(b"x");
        assert_eq!(carry.take(1), b"x");
    }
}
