//! Bytes that a channel has received for a file with direct I/O: kept until there are many, since
//! each write waits for the device.

use crate::storage::{Pages, past_page};

/// Bytes written at a time, those before the first page counted in.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Bytes that follow each other. They lie in memory as they will in the file.
#[derive(Default)]
pub(crate) struct WriteBuffer {
    pages: Pages,
    start: usize,
    end: usize,
}

impl WriteBuffer {
    /// Space for the next bytes, which belong to `position` in the file and follow those that are
    /// here. Not for a full buffer.
    pub(crate) fn spare(&mut self, position: u64) -> &mut [u8] {
        if self.is_empty() {
            self.pages.resize(WRITE_BUFFER_BYTES);
            self.start = past_page(position);
            self.end = self.start;
        }
        &mut self.pages[self.end..]
    }

    /// `bytes` of the space are filled now.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.pages.len());
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pages[self.start..self.end]
    }

    pub(crate) fn clear(&mut self) {
        self.end = self.start;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.is_empty() && self.end == self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::PAGE;

    #[test]
    fn bytes_lie_as_in_the_file_and_the_next_begin_at_a_page() {
        let mut write_buffer = WriteBuffer::default();
        assert!(
            write_buffer.is_empty() && !write_buffer.is_full() && write_buffer.bytes().is_empty()
        );
        let mut position = 3 * PAGE as u64 + 5;
        write_buffer.spare(position)[..2].copy_from_slice(b"ab");
        write_buffer.filled(2);
        position += 2;
        let space = write_buffer.spare(position);
        let rest = space.len();
        assert_eq!(space.as_ptr().addr() % PAGE, 7);
        space.fill(b'c');
        write_buffer.filled(rest);
        assert!(write_buffer.is_full());
        assert_eq!(write_buffer.bytes().len(), WRITE_BUFFER_BYTES - 5);
        assert_eq!(write_buffer.bytes()[..3], *b"abc");
        write_buffer.clear();
        assert!(write_buffer.is_empty());
        position += rest as u64;
        assert_eq!(position % PAGE as u64, 0);
        assert_eq!(write_buffer.spare(position).len(), WRITE_BUFFER_BYTES);
    }
}
