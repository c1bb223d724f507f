//! Small files for a pipeline: what it takes next, and whom it tells what became of them.

use std::{collections::VecDeque, sync::Arc};

use godwit_proto::{FtpPath, pi::transfer::Direction};
use tokio::sync::watch;

use super::{Job, worker::end_of};
use crate::{
    context::{Endpoint, Place, Target},
    error::{Error, Result},
    flight::{Flight, is_small},
    plan::{Item, Planned},
    session::Feed,
    verify::Agreed,
};

/// The small files of a job that go one way over one endpoint, as long as their worker is wanted.
pub(super) struct SmallFiles<'a> {
    job: &'a Job,
    place: Place,
    endpoint: Arc<Endpoint>,
    direction: Direction,
    /// The server that sends to the endpoint, where one does.
    sender: Option<Arc<Endpoint>>,
    target: watch::Receiver<Target>,
    /// Data channels of a session that has other ones only after a new address.
    parallelism: Option<u32>,
    /// Files that the pipeline has, by their paths at the endpoint, oldest first.
    taken: VecDeque<FtpPath>,
}

impl<'a> SmallFiles<'a> {
    /// Files like `first`. `follows`: the session changes its channels while they flow.
    pub(super) fn new(job: &'a Job, place: Place, first: &Item, follows: bool) -> Self {
        let target = job.context.target.subscribe();
        let parallelism = (!follows).then(|| target.borrow().setting.parallelism);
        Self {
            job,
            place,
            endpoint: Arc::clone(&first.endpoint),
            direction: first.direction(),
            sender: first.sender().map(Arc::clone),
            target,
            parallelism,
            taken: VecDeque::from([first.remote.clone()]),
        }
    }

    /// The pipeline has ended, and gives back what it has not settled.
    pub(super) fn give_back(&mut self, items: Vec<Item>) {
        for item in items.into_iter().rev() {
            self.no_longer_has(&item);
            self.job.queue.give_back(Planned::File(item));
        }
    }

    fn no_longer_has(&mut self, item: &Item) {
        // One of the first: they end nearly in the order in which they were taken.
        let at = self.taken.iter().position(|path| *path == item.remote);
        at.map(|at| self.taken.remove(at));
    }
}

impl Drop for SmallFiles<'_> {
    /// A pipeline that panicked has told of none of these.
    fn drop(&mut self) {
        for path in &self.taken {
            self.job.queue.decided(None);
            let path = self.endpoint.url(path);
            let bug = Error::Internal {
                doing: format!("copy {path}"),
                why: "what moved it with other small files panicked".to_owned(),
            };
            self.job.file_failed(&path, 0.0, 0, &bug);
        }
    }
}

impl Feed for SmallFiles<'_> {
    async fn next(&mut self) -> Option<Item> {
        let Self {
            job,
            place,
            endpoint,
            direction,
            sender,
            target,
            parallelism,
            taken,
        } = self;
        let other = |t: &Target| {
            !t.wants(*place)
                || parallelism.is_some_and(|channels| t.setting.parallelism != channels)
        };
        let fits = |item: &Item| {
            item.direction() == *direction
                && Arc::ptr_eq(&item.endpoint, endpoint)
                && item.sender().map(Arc::as_ptr) == sender.as_ref().map(Arc::as_ptr)
                && is_small(item, &job.spec)
        };
        loop {
            let planned = tokio::select! {
                biased;
                _ = target.wait_for(other) => return None,
                planned = job.queue.next_small(end_of(job, *place), fits) => planned,
            };
            match planned? {
                Planned::File(item) if job.lets_begin(&item) => {
                    taken.push_back(item.remote.clone());
                    return Some(item);
                }
                Planned::File(_) => job.queue.decided(None),
                Planned::Failed { path, error } => {
                    job.queue.decided(None);
                    job.file_failed(&path, 0.0, 0, &error);
                }
            }
        }
    }

    fn settled(&mut self, flight: &Flight, outcome: Result<Option<Agreed>>) {
        self.no_longer_has(&flight.item);
        self.job.queue.decided(None);
        let (job, item) = (self.job, &flight.item);
        let seconds = flight.began.elapsed().as_secs_f64();
        match outcome {
            Ok(agreed) => job.file_done(item, seconds, (flight.size(), flight.size()), agreed),
            Err(error) => job.file_failed(&item.source(), seconds, 0, &error),
        }
    }

    fn unopened(&mut self, item: &Item, error: &Error) {
        self.no_longer_has(item);
        self.job.queue.decided(None);
        self.job.file_failed(&item.source(), 0.0, 0, error);
    }
}
