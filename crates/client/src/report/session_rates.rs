//! How fast sessions with small files in flight go, for those beside them.

use parking_lot::{Mutex, MutexGuard};

/// How fast each session goes, bytes/s, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct SessionRates(Mutex<KnownRates>);

#[derive(Debug, Default)]
pub(crate) struct KnownRates {
    pub(crate) next: u64,
    pub(crate) known: Vec<(u64, f64)>,
}

impl SessionRates {
    /// Of all, and how many of them there are.
    pub(crate) fn sum(&self) -> (f64, usize) {
        let rates = self.lock();
        (
            rates.known.iter().map(|(_, rate)| rate).sum(),
            rates.known.len(),
        )
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, KnownRates> {
        self.0.lock()
    }
}
