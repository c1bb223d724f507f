//! As many workers as the target wants: they come when it rises and there is something to do, and
//! leave when it falls.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Job,
    worker::{Worker, WorkerExit},
};
use crate::{
    panics::joined_badly,
    passing::Side,
    setting_target::{Target, WorkerSlot},
};

/// Time until another worker is tried where the server let one too few in. The planner may have the
/// only session.
const SESSION_PAUSE: Duration = Duration::from_secs(1);

/// Runs workers until nothing is left to do.
pub(super) async fn run(job: &Arc<Job>) {
    let mut worker_pool = WorkerPool {
        job,
        workers: JoinSet::new(),
        ranks: BTreeSet::new(),
        generation: 0,
        held_until: None,
    };
    let mut target = job.context.target.subscribe();
    loop {
        // Registered before looking, so that no change falls between.
        let changed = job.queue.changed().notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let now = *target.borrow_and_update();
        let has_work = !job.context.stop.is_cancelled() && job.queue.has_work();
        if has_work {
            worker_pool.fill(now);
        }
        let held = worker_pool.held_until.filter(|_| has_work);
        // A worker that panicked has gone, and its rank has not.
        if worker_pool.workers.is_empty() && held.is_none() {
            return;
        }
        let due = held.unwrap_or_else(Instant::now);
        tokio::select! {
            exit = worker_pool.workers.join_next(), if !worker_pool.workers.is_empty() => {
                worker_pool.on_exit(exit);
            }
            _ = target.changed() => {}
            () = changed => {}
            () = sleep_until(due), if held.is_some() => worker_pool.held_until = None,
            () = job.context.stop.cancelled(), if held.is_some() => {}
        }
    }
}

struct WorkerPool<'a> {
    job: &'a Arc<Job>,
    workers: JoinSet<(u32, WorkerExit)>,
    ranks: BTreeSet<u32>,
    generation: u64,
    /// The server let no more in, and others have sessions: until then no worker is added.
    held_until: Option<Instant>,
}

impl WorkerPool<'_> {
    fn fill(&mut self, target: Target) {
        if self.generation != target.generation {
            // All begin again together: first the old ones go.
            if !self.ranks.is_empty() {
                return;
            }
            self.generation = target.generation;
        }
        if self.held_until.is_some() && self.job.pool.has_sessions() {
            return;
        }
        let limits = &self.job.context.target;
        let setting = limits.clamp_to_limits(target.setting, Side::Destination);
        // A small file takes one channel, and where files cannot be in a pipeline the others would
        // stand idle.
        let count = match self.job.has_files_for_one_channel() {
            true => setting.channels(),
            false => setting.concurrency,
        };
        for rank in 0..count {
            if self.ranks.len() >= count as usize || !self.ranks.insert(rank) {
                continue;
            }
            let place = WorkerSlot {
                rank,
                is_extra: rank >= setting.concurrency,
                generation: target.generation,
            };
            let worker = Worker::new(Arc::clone(self.job), place);
            self.workers
                .spawn_local(async move { (rank, worker.run().await) });
        }
    }

    fn on_exit(&mut self, on_exit: Option<Result<(u32, WorkerExit), tokio::task::JoinError>>) {
        match on_exit {
            Some(Ok((rank, exit))) => {
                self.ranks.remove(&rank);
                if let WorkerExit::SessionLimit(by) = exit {
                    self.held_until = Some(Instant::now() + SESSION_PAUSE);
                    let most = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
                    by.inspect(|by| self.job.context.target.sessions_refused(by, most));
                }
            }
            // The worker catches panics that concern a file. After any other panic the files that
            // it had taken are unknown: the run ends.
            Some(Err(bug)) => {
                self.job.on_panic(joined_badly("move files", bug));
                self.job.queue.close();
            }
            None => self.ranks.clear(),
        }
    }
}
