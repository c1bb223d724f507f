//! What the sessions of one put are sending, so that a session without work can take the later half
//! of what another has not begun, while that one goes on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_engine::data::Monitor;
use godwit_proto::ByteRange;

/// The ranges that sessions send now.
#[derive(Default)]
pub(crate) struct Tails(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next: u64,
    tails: Vec<Tail>,
}

struct Tail {
    key: TailKey,
    range: ByteRange,
    /// Once the server has begun. Earlier nobody may help: STOR empties the file when it begins.
    monitor: Option<Monitor>,
}

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TailKey(u64);

impl Tails {
    /// A session is about to send `range`, or will: then it says so again when its turn has come.
    pub(crate) fn begin(&self, range: ByteRange) -> TailKey {
        let mut inner = self.lock();
        let announced = |tail: &&Tail| tail.range == range && tail.monitor.is_none();
        if let Some(tail) = inner.tails.iter().find(announced) {
            return tail.key;
        }
        let key = TailKey(inner.next);
        inner.next += 1;
        inner.tails.push(Tail {
            key,
            range,
            monitor: None,
        });
        key
    }

    /// Its server has begun.
    pub(crate) fn flows(&self, key: TailKey, monitor: &Monitor) {
        if let Some(tail) = self.lock().tails.iter_mut().find(|t| t.key == key) {
            tail.monitor = Some(monitor.clone());
        }
    }

    /// It sends no more; what is its own of the range.
    pub(crate) fn end(&self, key: TailKey) -> Option<ByteRange> {
        let mut inner = self.lock();
        let at = inner.tails.iter().position(|t| t.key == key)?;
        Some(inner.tails.swap_remove(at).range)
    }

    /// The later half of the longest tail, at least `least` bytes.
    pub(crate) fn take(&self, least: u64) -> Option<ByteRange> {
        let mut inner = self.lock();
        let longest = inner.tails.iter_mut().max_by_key(|t| t.unbegun())?;
        let taken = longest.monitor.as_ref()?.split_off(least)?;
        let start = longest.range.start + taken.start;
        let taken = ByteRange::new(start, longest.range.end)?;
        longest.range.end = start;
        Some(taken)
    }

    /// Whether [`Self::take`] finds something, or may later.
    pub(crate) fn may_have(&self, least: u64) -> bool {
        let half = least.saturating_mul(2);
        self.lock().tails.iter().any(|t| match &t.monitor {
            Some(_) => t.unbegun() > half,
            None => t.range.len() > half,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    fn unbegun(&self) -> u64 {
        self.monitor.as_ref().map_or(0, Monitor::unstarted_bytes)
    }
}
