//! How mover threads spend their time.
//!
//! A thread runs, waits for a processor, or sleeps; the scheduler counts the first two
//! (`/proc/self/task/TID/schedstat`). A mover sleeps on purpose in one place only, waiting for
//! events, and there it holds a watch. What is left is sleep inside other calls. Sockets never make
//! a mover sleep, so that is storage: a disk that is read (also inside `sendfile`, where one call
//! copies, sends and waits), dirty pages that must be written first, a pipe. Time it spends copying
//! to and from the page cache is time it runs and counts as that: more movers would help there, and
//! do not where storage is slow. Timing the calls could not tell the two apart, nor either from
//! being put aside for another process in the middle of a call.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::data::sampling::sample::MoverTotals;

/// The clock of one mover thread. The thread writes it, any thread reads it.
#[derive(Debug)]
pub struct MoverClock {
    started: Instant,
    /// The kernel's number for the thread, once it runs.
    thread: OnceLock<i32>,
    /// Twice the microseconds spent waiting for events, and 1 while a wait lasts. Its beginning is
    /// then already subtracted, so that one word is enough for a reader: twice the present time is
    /// added to it.
    waited: AtomicU64,
}

impl Default for MoverClock {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            thread: OnceLock::new(),
            waited: AtomicU64::new(0),
        }
    }
}

impl MoverClock {
    /// To be called on the thread.
    pub fn runs_here(&self) {
        self.thread
            .get_or_init(|| rustix::thread::gettid().as_raw_nonzero().get());
    }

    /// Runs `wait`, which sleeps, and counts its time.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let begin = self.micros() << 1;
        self.waited
            .fetch_sub(begin.wrapping_sub(1), Ordering::Relaxed);
        let outcome = wait();
        let end = self.micros() << 1;
        self.waited
            .fetch_add(end.wrapping_sub(1), Ordering::Relaxed);
        outcome
    }

    /// `None` before the thread runs, after its end, and where the scheduler keeps no account.
    pub(crate) fn read(&self) -> Option<CpuTime> {
        let thread = self.thread.get()?;
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let (running, runnable) = schedstat(&text)?;
        let waited = self.waited.load(Ordering::Relaxed);
        // After the load: no wait in it has begun later.
        let elapsed_us = self.micros();
        let waited_us = if waited & 1 == 0 {
            waited >> 1
        } else {
            waited.wrapping_add(elapsed_us << 1) >> 1
        };
        Some(CpuTime {
            elapsed_us,
            running_us: running / 1000,
            runnable_us: runnable / 1000,
            waited_us,
        })
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds on a processor, and waiting for one: the first two of three numbers.
fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What one thread did since it began, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    elapsed_us: u64,
    running_us: u64,
    runnable_us: u64,
    waited_us: u64,
}

/// What the threads of a transfer did since they were first looked at.
#[derive(Default)]
pub(crate) struct MoverTally {
    /// First and latest look at each.
    threads: Vec<Option<(CpuTime, CpuTime)>>,
    asleep_us: u64,
}

impl MoverTally {
    /// A look at all threads, always in the same order. One that has ended keeps what was last seen
    /// of it.
    pub(crate) fn update(&mut self, now: impl IntoIterator<Item = Option<CpuTime>>) {
        for (i, now) in now.into_iter().enumerate() {
            if self.threads.len() == i {
                self.threads.push(None);
            }
            if let Some(now) = now {
                self.threads[i].get_or_insert((now, now)).1 = now;
            }
        }
        let t = self.totals();
        // The scheduler's account lags behind by up to a time slice, and waking up is counted both
        // as waiting and as runnable: neither may turn the clock back.
        let accounted = t.running_us + t.runnable_us + self.sum(|o| o.waited_us);
        self.asleep_us = (self.asleep_us).max(t.elapsed_us.saturating_sub(accounted));
    }

    pub(crate) fn totals(&self) -> MoverTotals {
        MoverTotals {
            threads: u32::try_from(self.threads.len()).unwrap_or(u32::MAX),
            running_us: self.sum(|o| o.running_us),
            runnable_us: self.sum(|o| o.runnable_us),
            elapsed_us: self.sum(|o| o.elapsed_us),
        }
    }

    /// Sleep that was not waiting for events, microseconds.
    pub(crate) fn asleep_us(&self) -> u64 {
        self.asleep_us
    }

    fn sum(&self, of: impl Fn(&CpuTime) -> u64) -> u64 {
        let between = |(first, last): &(CpuTime, CpuTime)| of(last).saturating_sub(of(first));
        self.threads.iter().flatten().map(between).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn the_rest_of_the_time_is_sleep() {
        let at = |elapsed_us, running_us, runnable_us, waited_us| {
            Some(CpuTime {
                elapsed_us,
                running_us,
                runnable_us,
                waited_us,
            })
        };
        let mut account = MoverTally::default();
        account.update([at(1000, 900, 50, 50), None]);
        assert_eq!((account.totals().threads, account.asleep_us()), (2, 0));
        account.update([at(2000, 1000, 150, 350), at(500, 0, 0, 0)]);
        assert_eq!(account.asleep_us(), 500);
        account.update([None, at(600, 100, 0, 0)]);
        let MoverTotals {
            running_us,
            runnable_us,
            elapsed_us,
            ..
        } = account.totals();
        assert_eq!((running_us, runnable_us, elapsed_us), (200, 100, 1100));
        // The account of the scheduler comes late.
        account.update([at(2000, 1400, 150, 350), at(600, 100, 0, 0)]);
        assert_eq!(account.asleep_us(), 500, "never less");
    }

    #[test]
    fn words_of_the_kernel() {
        assert_eq!(schedstat("1200 34 5\n"), Some((1200, 34)));
        assert_eq!(schedstat("1200"), None);
        assert_eq!(schedstat("x 1"), None);
    }

    #[test]
    fn a_wait_is_counted_while_it_lasts_and_after() {
        let clock = Arc::new(MoverClock::default());
        let (begun, beginning) = mpsc::channel();
        let (end, ending) = mpsc::channel::<()>();
        let thread = std::thread::spawn({
            let clock = Arc::clone(&clock);
            move || {
                clock.runs_here();
                clock.waiting(|| {
                    begun.send(()).unwrap();
                    ending.recv().unwrap();
                });
                clock.read()
            }
        });
        beginning.recv().unwrap();
        let Some(first) = clock.read() else {
            println!("skipped: the scheduler keeps no account here");
            end.send(()).unwrap();
            return;
        };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {
            std::thread::yield_now();
        }
        let during = clock.read().unwrap();
        assert!(
            during.waited_us >= first.waited_us + 4000 - 1000,
            "{first:?} {during:?}"
        );
        end.send(()).unwrap();
        let after = thread.join().unwrap().unwrap();
        assert!(after.waited_us >= during.waited_us && after.waited_us <= after.elapsed_us);
        assert_eq!(clock.read(), None, "the thread is gone");
    }
}
