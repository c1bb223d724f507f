//! Memory of chunks of a body, used again once they are sent.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;

/// Buffers that are not in use. To have memory zeroed for each chunk costs as much as
/// to copy the chunk.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer whose first bytes become a chunk. It is used again when the chunk is dropped, or this.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    from: Buffers,
}

impl Buffers {
    /// One of at least so many bytes, with any content.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Buffer {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut spare = spare.unwrap_or_default();
        spare.resize(bytes.max(spare.len()), 0);
        Buffer {
            bytes: spare,
            filled: 0,
            from: self.clone(),
        }
    }
}

impl Buffer {
    /// So many bytes hold something.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Where the next bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// So many bytes of the room hold something now.
    pub fn add(&mut self, bytes: usize) {
        self.filled = self.bytes.len().min(self.filled + bytes);
    }

    /// The bytes that hold something.
    #[must_use]
    pub fn into_chunk(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut spare = self.from.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_chunk_is_gone() {
        let buffers = Buffers::default();
        let mut one = buffers.take(10);
        one.room()[..3].copy_from_slice(b"abc");
        one.add(3);
        one.room()[..1].copy_from_slice(b"d");
        one.add(1);
        let chunk = one.into_chunk();
        assert_eq!(&chunk[..], b"abcd");
        let part = chunk.slice(1..2);
        drop(chunk);
        let other = buffers.take(4);
        assert_eq!(part, "b", "{other:?} is another");
        drop((part, other));
        let mut again = buffers.take(5);
        assert!(again.filled() == 0 && again.room().len() >= 5);
        assert_eq!(buffers.0.lock().unwrap().len(), 1);
    }
}
