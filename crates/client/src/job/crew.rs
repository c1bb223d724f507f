//! As many workers as the target wants: they come when it rises and there is something to do, and leave when it falls.

use std::{collections::BTreeSet, sync::Arc};

use tokio::task::JoinSet;

use super::{
    Job,
    worker::{Farewell, Worker},
};
use crate::{
    context::{Place, Target},
    panics::joined_badly,
};

/// Runs workers until nothing is left to do.
pub(super) async fn run(job: &Arc<Job>) {
    let mut crew = Crew {
        job,
        workers: JoinSet::new(),
        ranks: BTreeSet::new(),
        generation: 0,
        most: u32::MAX,
    };
    let mut target = job.context.target.subscribe();
    loop {
        // Registered before looking, so that no change falls between.
        let changed = job.queue.changed().notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let now = *target.borrow_and_update();
        if !job.context.stop.is_set() && job.queue.has_work() {
            crew.fill(now);
        }
        if crew.ranks.is_empty() {
            return;
        }
        tokio::select! {
            ended = crew.workers.join_next() => crew.ended(ended),
            _ = target.changed() => {}
            () = changed => {}
        }
    }
}

struct Crew<'a> {
    job: &'a Arc<Job>,
    workers: JoinSet<(u32, Farewell)>,
    ranks: BTreeSet<u32>,
    generation: u64,
    /// The server let no more in.
    most: u32,
}

impl Crew<'_> {
    fn fill(&mut self, target: Target) {
        if self.generation != target.generation {
            // All begin anew together: first the old ones go.
            if !self.ranks.is_empty() {
                return;
            }
            self.generation = target.generation;
        }
        for rank in 0..target.setting.concurrency.min(self.most) {
            if self.ranks.len() >= self.most as usize || !self.ranks.insert(rank) {
                continue;
            }
            let place = Place {
                rank,
                generation: target.generation,
            };
            let worker = Worker::new(Arc::clone(self.job), place);
            self.workers
                .spawn_local(async move { (rank, worker.run().await) });
        }
    }

    fn ended(&mut self, ended: Option<Result<(u32, Farewell), tokio::task::JoinError>>) {
        match ended {
            Some(Ok((rank, farewell))) => {
                self.ranks.remove(&rank);
                if farewell == Farewell::Crowded {
                    self.most = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX).max(1);
                    self.job.context.limit_sessions(self.most);
                }
            }
            // Panics that concern a file are caught by the worker. After another one nobody knows what was taken
            // and not done: the run ends.
            Some(Err(bug)) => {
                self.job.found_bug(joined_badly("move files", bug));
                self.job.queue.close();
                self.most = 0;
            }
            None => self.ranks.clear(),
        }
    }
}
