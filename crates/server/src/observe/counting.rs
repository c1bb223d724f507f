//! Counters without locks.

use std::sync::atomic::{AtomicU64, Ordering};

/// What only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// One counter for each of a kind.
#[derive(Debug)]
pub(crate) struct Counters<K, const N: usize> {
    counters: [Counter; N],
    kind: std::marker::PhantomData<fn(K)>,
}

/// Something that there are a few of, known beforehand.
pub(crate) trait Kind: Copy + 'static {
    /// All of them, each at its index.
    const ALL: &'static [Self];

    fn index(self) -> usize;

    /// For a label.
    fn word(self) -> &'static str;
}

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<K: Kind, const N: usize> Default for Counters<K, N> {
    fn default() -> Self {
        const { assert!(K::ALL.len() == N, "a counter for each") };
        Self {
            counters: std::array::from_fn(|_| Counter::default()),
            kind: std::marker::PhantomData,
        }
    }
}

impl<K: Kind, const N: usize> Counters<K, N> {
    pub(crate) fn add(&self, one: K) {
        self.counters[one.index()].add(1);
    }

    pub(crate) fn of(&self, one: K) -> u64 {
        self.counters[one.index()].count()
    }
}

/// For tests: nothing is counted as something else.
#[cfg(test)]
pub(crate) fn assert_in_order<K: Kind>() {
    for (index, kind) in K::ALL.iter().enumerate() {
        assert_eq!(kind.index(), index, "{}", kind.word());
    }
}
