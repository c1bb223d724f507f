//! As many workers as the target wants: they come when it rises and there is something to do, and
//! leave when it falls.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Job,
    worker::{Farewell, Worker},
};
use crate::{
    context::{Place, Target},
    panics::joined_badly,
};

/// Time until another worker is tried where the server let one too few in. The planner may have the
/// only session.
const SESSION_PAUSE: Duration = Duration::from_secs(1);

/// Runs workers until nothing is left to do.
pub(super) async fn run(job: &Arc<Job>) {
    let mut crew = Crew {
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
        let has_work = !job.context.stop.is_set() && job.queue.has_work();
        if has_work {
            crew.fill(now);
        }
        let held = crew.held_until.filter(|_| has_work);
        // A worker that panicked has gone, and its rank has not.
        if crew.workers.is_empty() && held.is_none() {
            return;
        }
        let due = held.unwrap_or_else(Instant::now);
        tokio::select! {
            ended = crew.workers.join_next(), if !crew.workers.is_empty() => crew.ended(ended),
            _ = target.changed() => {}
            () = changed => {}
            () = sleep_until(due), if held.is_some() => crew.held_until = None,
            () = job.context.stop.wait(), if held.is_some() => {}
        }
    }
}

struct Crew<'a> {
    job: &'a Arc<Job>,
    workers: JoinSet<(u32, Farewell)>,
    ranks: BTreeSet<u32>,
    generation: u64,
    /// The server let no more in, and others have sessions: until then no worker is added.
    held_until: Option<Instant>,
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
        if self.held_until.is_some() && self.job.pool.has_sessions() {
            return;
        }
        let setting = self.job.context.fit(target.setting);
        for rank in 0..setting.concurrency {
            if self.ranks.len() >= setting.concurrency as usize || !self.ranks.insert(rank) {
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
                if let Farewell::Crowded(by) = farewell {
                    self.held_until = Some(Instant::now() + SESSION_PAUSE);
                    let most = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
                    by.inspect(|by| self.job.context.sessions_refused(by, most));
                }
            }
            // Panics that concern a file are caught by the worker. After another one nobody knows
            // what was taken and not done: the run ends.
            Some(Err(bug)) => {
                self.job.found_bug(joined_badly("move files", bug));
                self.job.queue.close();
            }
            None => self.ranks.clear(),
        }
    }
}
