//! Parts of answers that clients ask for again and again.

use std::{fmt, sync::Arc};

use quick_cache::{Weighter, sync::Cache};
use uuid::Uuid;

/// Most bytes that are kept: some 150 jobs of 1,000 files as FTS3 shows them.
const BYTES_MAX: u64 = 96 << 20;

/// Bytes of a usual part, from which the cache takes how many to expect.
const PART_BYTES: u64 = 256 << 10;

/// What a part is of. A segment never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) job: Uuid,
    pub(crate) segment: i64,
    /// Which members of its files, as bits.
    pub(crate) members: u64,
}

/// What was submitted of the files of a segment, as members of JSON objects.
#[derive(Debug, Default)]
pub(crate) struct SubmittedText {
    pub(crate) text: Vec<u8>,
    /// Where the text of each file ends, and its bytes where the user said so.
    pub(crate) files: Vec<(usize, Option<u64>)>,
}

impl SubmittedText {
    /// Text and bytes of the file at a place.
    pub(crate) fn file(&self, place: u32) -> Option<(&[u8], Option<u64>)> {
        let place = place as usize;
        let (end, bytes) = *self.files.get(place)?;
        let before = place.checked_sub(1).and_then(|place| self.files.get(place));
        let text = self.text.get(before.map_or(0, |(end, _)| *end)..end)?;
        Some((text, bytes))
    }
}

/// The parts that were used lately.
pub(crate) struct Rendered(Cache<Key, Arc<SubmittedText>, Size>);

#[derive(Clone)]
struct Size;

impl Weighter<Key, Arc<SubmittedText>> for Size {
    fn weight(&self, _: &Key, part: &Arc<SubmittedText>) -> u64 {
        (size_of::<Key>() + part.text.len() + size_of_val(part.files.as_slice())) as u64
    }
}

impl Rendered {
    pub(crate) fn new() -> Self {
        let expected = usize::try_from(BYTES_MAX / PART_BYTES).unwrap_or(usize::MAX);
        Rendered(Cache::with_weighter(expected, BYTES_MAX, Size))
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<SubmittedText>> {
        self.0.get(key)
    }

    pub(crate) fn keep(&self, key: Key, part: Arc<SubmittedText>) {
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
        let part = Arc::new(SubmittedText {
            text: vec![b'x'; 1 << 20],
            files: vec![(1 << 20, None)],
        });
        for segment in 0..1000 {
            let key = Key {
                job: Uuid::nil(),
                segment,
                members: 1,
            };
            rendered.keep(key, Arc::clone(&part));
        }
        assert!(rendered.0.weight() <= BYTES_MAX);
        assert!(rendered.0.len() > 40);
    }

    #[test]
    fn each_file_has_its_own_text() {
        let part = SubmittedText {
            text: b"abc".to_vec(),
            files: vec![(1, None), (3, Some(7))],
        };
        assert_eq!(part.file(0), Some((&b"a"[..], None)));
        assert_eq!(part.file(1), Some((&b"bc"[..], Some(7))));
        assert_eq!(part.file(2), None);
    }
}
