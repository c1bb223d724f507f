//! What the sessions of one put are sending, so that a session without work can take the later half
//! of what another has not begun, while that one goes on.

use godwit_engine::data::Monitor;
use godwit_proto::ByteRange;
use parking_lot::{Mutex, MutexGuard};

/// The ranges that sessions send now.
#[derive(Default)]
pub(crate) struct StealableRanges(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next: u64,
    stealable: Vec<ActiveRange>,
}

struct ActiveRange {
    key: RangeKey,
    range: ByteRange,
    /// Once the server has begun. Earlier none may help: STOR empties the file when it begins.
    monitor: Option<Monitor>,
}

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeKey(u64);

impl StealableRanges {
    /// A session is about to send `range`, or will: then it says so again when its turn has come.
    pub(crate) fn begin(&self, range: ByteRange) -> RangeKey {
        let mut inner = self.lock();
        let announced = |tail: &&ActiveRange| tail.range == range && tail.monitor.is_none();
        if let Some(tail) = inner.stealable.iter().find(announced) {
            return tail.key;
        }
        let key = RangeKey(inner.next);
        inner.next += 1;
        inner.stealable.push(ActiveRange {
            key,
            range,
            monitor: None,
        });
        key
    }

    /// Its server has begun.
    pub(crate) fn flows(&self, key: RangeKey, monitor: &Monitor) {
        if let Some(tail) = self.lock().stealable.iter_mut().find(|t| t.key == key) {
            tail.monitor = Some(monitor.clone());
        }
    }

    /// It sends no more; what is its own of the range.
    pub(crate) fn end(&self, key: RangeKey) -> Option<ByteRange> {
        let mut inner = self.lock();
        let at = inner.stealable.iter().position(|t| t.key == key)?;
        Some(inner.stealable.swap_remove(at).range)
    }

    /// The later half of the longest tail, at least `least` bytes.
    pub(crate) fn take(&self, least: u64) -> Option<ByteRange> {
        let mut inner = self.lock();
        let longest = inner.stealable.iter_mut().max_by_key(|t| t.unbegun())?;
        let taken = longest.monitor.as_ref()?.split_off(least)?;
        let start = longest.range.start + taken.start;
        let taken = ByteRange::new(start, longest.range.end)?;
        longest.range.end = start;
        Some(taken)
    }

    /// Whether [`Self::take`] finds something, or may later.
    pub(crate) fn may_have(&self, least: u64) -> bool {
        let half = least.saturating_mul(2);
        self.lock().stealable.iter().any(|t| match &t.monitor {
            Some(_) => t.unbegun() > half,
            None => t.range.len() > half,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

impl ActiveRange {
    fn unbegun(&self) -> u64 {
        self.monitor.as_ref().map_or(0, Monitor::unstarted_bytes)
    }
}
