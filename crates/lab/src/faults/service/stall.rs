//! Time in which this process stood still, and all others with it: a machine that was suspended, or
//! whose processors were taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the thread sleeps at a time.
const SLEEP: Duration = Duration::from_millis(100);

/// A sleep that takes so long was a stall.
const STALL: Duration = Duration::from_secs(2);

/// Counts stalls until it is dropped.
#[derive(Debug)]
pub(super) struct StallClock {
    stalled_ms: Arc<AtomicU64>,
}

impl StallClock {
    pub(super) fn start() -> StallClock {
        let stalled_ms = Arc::<AtomicU64>::default();
        let counter = Arc::downgrade(&stalled_ms);
        thread::spawn(move || {
            loop {
                let began = Instant::now();
                thread::sleep(SLEEP);
                let Some(counter) = counter.upgrade() else {
                    return;
                };
                let slept = began.elapsed();
                if slept > STALL {
                    let slept = u64::try_from(slept.as_millis()).unwrap_or(u64::MAX);
                    counter.fetch_add(slept, Ordering::AcqRel);
                }
            }
        });
        StallClock { stalled_ms }
    }

    /// The stalls since the last call.
    pub(super) fn take(&self) -> Duration {
        Duration::from_millis(self.stalled_ms.swap(0, Ordering::AcqRel))
    }
}
