//! A set of 64-bit fingerprints: about nine bytes an element, so that ten million names take 90 MB.

use std::hash::{BuildHasher, Hash, RandomState};

/// Average fingerprints per bucket before the number of buckets doubles. With more an insertion
/// moves more bytes, with fewer the headers of vectors weigh more.
const BUCKET_MAX: usize = 128;
/// Growth of a full bucket. The vector's own doubling would waste a quarter of all memory.
const GROWTH: usize = 8;

/// Hash keys are random. Among ten million elements two collide in one of 370,000 sets, so a hit
/// must not be trusted without further evidence.
#[derive(Debug)]
pub(crate) struct CompactSet {
    keys: RandomState,
    /// A power of two buckets, each sorted. The highest bits of a fingerprint select its bucket.
    buckets: Vec<Vec<u64>>,
    count: usize,
}

impl Default for CompactSet {
    fn default() -> Self {
        Self {
            keys: RandomState::new(),
            buckets: vec![Vec::new()],
            count: 0,
        }
    }
}

impl CompactSet {
    /// True if it was not in the set before.
    pub(crate) fn insert<T: Hash + ?Sized>(&mut self, thing: &T) -> bool {
        let hash = self.keys.hash_one(thing);
        let at = self.bucket_of(hash);
        let bucket = &mut self.buckets[at];
        let Err(place) = bucket.binary_search(&hash) else {
            return false;
        };
        if bucket.len() == bucket.capacity() {
            bucket.reserve_exact(GROWTH);
        }
        bucket.insert(place, hash);
        self.count += 1;
        if self.count > self.buckets.len() * BUCKET_MAX {
            self.split();
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn contains<T: Hash + ?Sized>(&self, thing: &T) -> bool {
        let hash = self.keys.hash_one(thing);
        self.buckets[self.bucket_of(hash)]
            .binary_search(&hash)
            .is_ok()
    }

    fn bucket_of(&self, hash: u64) -> usize {
        // With one bucket this is a shift by 64, which yields nothing.
        let highest = hash.checked_shr(u64::BITS - self.bits()).unwrap_or(0);
        usize::try_from(highest).unwrap_or(0)
    }

    /// Bits that select a bucket.
    fn bits(&self) -> u32 {
        self.buckets.len().trailing_zeros()
    }

    /// Doubles the number of buckets.
    fn split(&mut self) {
        let half = 1_u64 << (u64::BITS - 1 - self.bits());
        let buckets = std::mem::take(&mut self.buckets);
        self.buckets.reserve_exact(2 * buckets.len());
        for mut lower in buckets {
            let upper = lower.split_off(lower.partition_point(|hash| hash & half == 0));
            lower.shrink_to_fit();
            self.buckets.extend([lower, upper]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_exactly_what_was_inserted() {
        let mut set = CompactSet::default();
        for i in 0..100_000_u32 {
            assert!(!set.contains(&i));
            assert!(set.insert(&i), "{i}");
        }
        for i in 0..100_000_u32 {
            assert!(set.contains(&i) && !set.insert(&i), "{i}");
        }
        assert!((100_000..200_000_u32).all(|i| !set.contains(&i)));
        assert_eq!(set.count, 100_000);
        assert!(set.buckets.len() >= 100_000 / BUCKET_MAX);
    }

    #[test]
    fn a_thing_costs_some_nine_bytes() {
        let mut set = CompactSet::default();
        for i in 0..200_000_u32 {
            set.insert(&i);
        }
        let headers = set.buckets.capacity() * (size_of::<Vec<u64>>() + size_of::<usize>());
        let held: usize = set.buckets.iter().map(|b| b.capacity() * 8).sum();
        assert!(headers + held < 200_000 * 10, "{headers} and {held}");
    }
}
