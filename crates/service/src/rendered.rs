//! Parts of answers that clients ask for again and again.

use std::fmt;

use axum::body::Bytes;
use quick_cache::{Weighter, sync::Cache};

/// Most bytes that are kept: the files of some 150 jobs of 1,000 as FTS3 shows them.
const BYTES_MAX: u64 = 96 << 20;

/// Bytes of a usual part, from which the cache takes how many to expect.
const PART_BYTES: u64 = 256 << 10;

/// Digest of all that a part is made of.
pub(crate) type Key = [u8; 32];

/// The parts that were used lately.
pub(crate) struct Rendered(Cache<Key, Bytes, Size>);

#[derive(Clone)]
struct Size;

impl Weighter<Key, Bytes> for Size {
    fn weight(&self, key: &Key, part: &Bytes) -> u64 {
        (key.len() + part.len()) as u64
    }
}

impl Rendered {
    pub(crate) fn new() -> Self {
        let expected = usize::try_from(BYTES_MAX / PART_BYTES).unwrap_or(usize::MAX);
        Rendered(Cache::with_weighter(expected, BYTES_MAX, Size))
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Bytes> {
        self.0.get(key)
    }

    pub(crate) fn keep(&self, key: Key, part: Bytes) {
        self.0.insert(key, part);
    }
}

impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rendered({} bytes)", self.0.weight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_together() {
        let rendered = Rendered::new();
        let part = Bytes::from(vec![b'x'; 1 << 20]);
        for number in 0..1000_u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            rendered.keep(key, part.clone());
        }
        assert!(rendered.0.weight() <= BYTES_MAX);
        assert!(rendered.0.len() > 40);
    }
}
