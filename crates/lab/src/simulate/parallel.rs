//! Runs that know nothing of each other, on several processors.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Threads, and a function that receives their progress: runs that are done, and of how many.
#[derive(Clone, Copy)]
pub struct Workers<'a> {
    /// At least one runs.
    pub threads: usize,
    /// Is called by each of them.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl Workers<'_> {
    /// So many threads, without progress.
    pub fn silent(threads: usize) -> Self {
        Self {
            threads,
            progress: &|_, _| {},
        }
    }

    /// `work` of each index below `count`, in their order, whichever thread did it.
    pub(super) fn map<T: Send>(&self, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let (next, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (next, over, work) = (&next, &over, &work);
        let worker = move || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return done;
                }
                done.push((index, work(index)));
                (self.progress)(over.fetch_add(1, Ordering::Relaxed) + 1, count);
            }
        };
        let mut all: Vec<(usize, T)> = thread::scope(|scope| {
            let threads = 0..self.threads.max(1);
            let workers: Vec<_> = threads.map(|_| scope.spawn(worker)).collect();
            (workers.into_iter())
                .flat_map(|worker| worker.join().expect("a run does not panic"))
                .collect()
        });
        all.sort_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_progress_ends_with_all() {
        let most = AtomicUsize::new(0);
        let workers = Workers {
            threads: 3,
            progress: &|done, of| {
                assert_eq!(of, 100);
                most.fetch_max(done, Ordering::Relaxed);
            },
        };
        let squares: Vec<usize> = (0..100).map(|n| n * n).collect();
        assert_eq!(workers.map(100, |n| n * n), squares);
        assert_eq!(most.into_inner(), 100);
        assert_eq!(Workers::silent(2).map(0, |n| n), [0; 0]);
    }
}
