//! Runs that know nothing of each other, on several processors.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// `work` of each index below `count`, in their order, whichever thread did it.
pub(super) fn map<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    let worker = move || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut all: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        (workers.into_iter())
            .flat_map(|worker| worker.join().expect("a run does not panic"))
            .collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_keep_their_order() {
        let squares: Vec<usize> = (0..100).map(|n| n * n).collect();
        assert_eq!(map(100, 3, |n| n * n), squares);
        assert_eq!(map(0, 2, |n| n), [0; 0]);
    }
}
