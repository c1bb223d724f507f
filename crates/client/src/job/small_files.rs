//! Small files for a pipeline: what it takes next, and whom it tells what became of them.

use std::{collections::VecDeque, sync::Arc};

use godwit_proto::{FtpPath, pi::transfer::Direction};
use tokio::sync::watch;

use super::{Job, queue::Priority};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    plan::PlanEntry,
    setting_target::{Target, WorkerSlot},
    transfer::{
        pipeline::{
            FileSource,
            file::{PipelinedFile, is_pipelinable},
        },
        source_file::SourceFile,
        verify::AgreedChecksum,
    },
};

/// The small files of a job that go one way over one endpoint, as long as their worker is wanted.
pub(super) struct SmallFiles<'a> {
    job: &'a Job,
    place: WorkerSlot,
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
    pub(super) fn new(job: &'a Job, place: WorkerSlot, first: &SourceFile, follows: bool) -> Self {
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
    pub(super) fn give_back(&mut self, source_files: Vec<SourceFile>) {
        for source_file in source_files.into_iter().rev() {
            self.forget(&source_file);
            self.job.queue.give_back(PlanEntry::File(source_file));
        }
    }

    fn forget(&mut self, source_file: &SourceFile) {
        // One of the first: they end nearly in the order in which they were taken.
        let at = self
            .taken
            .iter()
            .position(|path| *path == source_file.remote);
        at.map(|at| self.taken.remove(at));
    }
}

impl Drop for SmallFiles<'_> {
    /// A pipeline that panicked has reported none of these.
    fn drop(&mut self) {
        for path in &self.taken {
            self.job.queue.setup_done(None);
            let path = self.endpoint.url(path);
            let bug = Error::Internal {
                doing: format!("copy {path}"),
                why: "what moved it with other small files panicked".to_owned(),
            };
            self.job.file_failed(&path, 0.0, 0, &bug);
        }
    }
}

impl FileSource for SmallFiles<'_> {
    async fn next(&mut self) -> Option<SourceFile> {
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
            !t.includes(*place)
                || parallelism.is_some_and(|channels| t.setting.parallelism != channels)
        };
        let fits = |source_file: &SourceFile| {
            source_file.direction() == *direction
                && Arc::ptr_eq(&source_file.endpoint, endpoint)
                && source_file.sender().map(Arc::as_ptr) == sender.as_ref().map(Arc::as_ptr)
                && is_pipelinable(source_file, &job.spec)
        };
        loop {
            let from = Priority::of(&job.context.target.now(), *place);
            let planned = tokio::select! {
                biased;
                _ = target.wait_for(other) => return None,
                planned = job.queue.next_small(from, fits) => planned,
            };
            match planned? {
                PlanEntry::File(source_file) if job.admits(&source_file) => {
                    taken.push_back(source_file.remote.clone());
                    return Some(source_file);
                }
                PlanEntry::File(_) => job.queue.setup_done(None),
                PlanEntry::Failed { path, error } => {
                    job.queue.setup_done(None);
                    job.file_failed(&path, 0.0, 0, &error);
                }
            }
        }
    }

    fn settled(&mut self, file_in_flight: &PipelinedFile, outcome: Result<Option<AgreedChecksum>>) {
        self.forget(&file_in_flight.source_file);
        self.job.queue.setup_done(None);
        let (job, source_file) = (self.job, &file_in_flight.source_file);
        let seconds = file_in_flight.began.elapsed().as_secs_f64();
        match outcome {
            Ok(agreed) => job.file_done(
                source_file,
                seconds,
                (file_in_flight.size(), file_in_flight.size()),
                agreed,
            ),
            Err(error) => job.file_failed(&source_file.source(), seconds, 0, &error),
        }
    }

    fn unopened(&mut self, source_file: &SourceFile, error: &Error) {
        self.forget(source_file);
        self.job.queue.setup_done(None);
        self.job.file_failed(&source_file.source(), 0.0, 0, error);
    }
}
