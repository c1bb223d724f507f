//! Memory that begins where a page does, as what passes the page cache by must.

use std::ops::{Deref, DerefMut};

/// Bytes of a page: what positions in a file, in memory and lengths are to be multiples of. Sectors
/// are no longer.
pub(crate) const PAGE: usize = 4 << 10;

/// Bytes from the first of its page to a position.
pub(crate) fn past_page(position: u64) -> usize {
    // Less than a page fits.
    usize::try_from(position % PAGE as u64).unwrap_or(0)
}

/// A buffer whose first byte is the first of a page.
#[derive(Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    /// Where the page begins, and how many bytes count.
    start: usize,
    len: usize,
}

impl Pages {
    /// Makes it `bytes` long. The content of added bytes has no meaning.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if self.bytes.len() < self.start + bytes {
            self.bytes = vec![0; bytes + PAGE - 1];
            let past = self.bytes.as_ptr().addr() % PAGE;
            self.start = (PAGE - past) % PAGE;
        }
        self.len = bytes;
    }

    /// The first `bytes` of them.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(bytes);
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_page_however_long_it_was() {
        let mut pages = Pages::default();
        assert!(pages.is_empty());
        for bytes in [1, 10, 3 * PAGE + 1, 5, 3 * PAGE, 1 << 20] {
            pages.resize(bytes);
            assert_eq!(pages.len(), bytes);
            assert_eq!(pages.as_ptr().addr() % PAGE, 0);
            pages.fill(7);
        }
        pages.truncate(2);
        assert_eq!(*pages, [7, 7]);
    }
}
