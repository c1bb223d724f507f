//! Finds the files of a copy while earlier ones are already being copied.
//!
//! A planner runs beside the workers and sends files through a bounded channel: a tree of millions
//! of files needs the memory of its widest directory, and the first file moves before the last is
//! found. The planner creates directories before it sends their files.

mod already_done;
mod checksums;
mod copy_path;
mod directory_attributes;
mod file_list;
mod local_walk;
mod parallel_listing;
mod pattern;
mod remote_walk;
mod sync;
#[cfg(test)]
mod tests;
mod trail;

pub(crate) use self::{
    directory_attributes::{DirectoryAttributes, PathAttributes},
    parallel_listing::{ListingItem, gather},
    pattern::Pattern,
    remote_walk::hostile,
    sync::{Deletion, SealedDeleteList},
};

use std::sync::{Arc, atomic::Ordering};

use godwit_proto::{pi::transfer::Direction, url::Location};
use tokio::sync::mpsc;

use self::copy_path::CopyPath;
use crate::{
    context::RunContext,
    error::{Error, Result},
    local::{attributes::FileAttributes, compact_set::CompactSet, files, journal::Completion},
    panics::test_point,
    report::events::Event,
    session::{pool::SessionPool, retry::RetryingSession},
    spec::JobSpec,
    transfer::source_file::{RemotePath, SourceFile, is_worth_resuming},
};

/// Files that the planner may be ahead of the workers.
pub(crate) const AHEAD_MAX: usize = 1024;

/// Deepest tree that is walked. Loops are detected earlier where the server sends `Unique` facts;
/// this limit is for other servers.
pub(crate) const DEPTH_MAX: usize = 200;

/// What the planner sends.
#[derive(Debug)]
pub(crate) enum PlanEntry {
    File(SourceFile),
    /// A source that cannot be copied.
    Failed {
        path: String,
        error: Error,
    },
}

/// Work that remains after all copies.
#[derive(Debug)]
pub(crate) struct FinalActions {
    /// What a sync deletes, if the listing of the source was complete.
    pub(crate) delete_list: Option<SealedDeleteList>,
    pub(crate) directories: DirectoryAttributes,
}

/// Finds the files that a job copies.
pub(crate) struct Planner {
    spec: Arc<JobSpec>,
    context: Arc<RunContext>,
    retrying: RetryingSession,
    /// Files that an earlier run completed, to be checked.
    needs_check: Vec<SourceFile>,
    /// Names of uploads, where several sources may have the same name.
    targets: Option<CompactSet>,
    /// What a sync deletes.
    delete_list: Option<SealedDeleteList>,
    directories: DirectoryAttributes,
    /// A note said that a source does not report the attributes to preserve.
    lack_warned: bool,
    out: mpsc::Sender<PlanEntry>,
}

impl Planner {
    pub(crate) fn new(
        spec: Arc<JobSpec>,
        pool: Arc<SessionPool>,
        out: mpsc::Sender<PlanEntry>,
    ) -> Self {
        let mut retrying = RetryingSession::new(pool);
        let dry_run = spec.sync.as_ref().is_some_and(|sync| sync.dry_run);
        retrying.warms_pool = spec.has_several() && !dry_run;
        Self {
            needs_check: Vec::new(),
            delete_list: None,
            directories: DirectoryAttributes::default(),
            lack_warned: false,
            targets: (spec.sources.len() > 1).then(CompactSet::default),
            spec,
            context: Arc::clone(&retrying.pool.context),
            retrying,
            out,
        }
    }

    /// Finds everything. A failure is sent as a failed source. Returns the work that remains after
    /// all copies.
    pub(crate) async fn run(mut self) -> FinalActions {
        let spec = Arc::clone(&self.spec);
        let outcome = match (&spec.destination, &spec.files_from) {
            _ if spec.sync.is_some() => self.plan_sync().await,
            (_, Some(list)) => self.plan_listed(list).await,
            (Location::Remote(url), None) if !spec.is_between_servers() => {
                self.plan_puts(url).await
            }
            (destination, None) => self.plan_gets(destination).await,
        };
        if let Err(error) = outcome {
            self.fail(spec.destination.to_string(), error).await;
        }
        self.check_pending().await;
        self.sweep().await;
        self.retrying.release();
        let before = self.context.counters.files_before.load(Ordering::Relaxed);
        if let Some(journal) = self.context.local.journal.get().filter(|_| before > 0) {
            self.context.reporter.note(format!(
                "{before} files were copied by an earlier run of this command, as {} tells",
                journal.path().display()
            ));
        }
        let counters = &self.context.counters;
        counters.scanned.store(true, Ordering::Relaxed);
        self.context.reporter.emit(&Event::Plan {
            files: counters.files_found.load(Ordering::Relaxed),
            bytes: counters.bytes_found.load(Ordering::Relaxed),
        });
        FinalActions {
            delete_list: self.delete_list,
            directories: self.directories,
        }
    }

    /// Reports if the server of the destination does not preserve times.
    async fn check_preserve(&mut self, at: &RemotePath) -> Result<()> {
        if self.spec.preserve.times && !self.keeps_times(&CopyPath::There(at.clone())).await? {
            self.context.reporter.warn(format!(
                "{}: has no MFMT to set times with, so that copies do not get those of their \
                 sources",
                at.endpoint.name()
            ));
        }
        Ok(())
    }

    /// A directory of the destination gets its attributes after all copies.
    async fn preserve_directory(&mut self, destination: &CopyPath, attributes: FileAttributes) {
        if let Some(attributes) = attributes.preserved(self.spec.preserve) {
            self.set_later(destination, attributes).await;
        }
    }

    async fn set_later(&mut self, destination: &CopyPath, attributes: FileAttributes) {
        if let Err(e) = self.directories.push(destination.as_bytes(), attributes) {
            let error = Error::local(files::spool_context(), &e);
            self.fail(destination.to_string(), error).await;
        }
    }

    /// The attributes of its source that a copy gets.
    fn preserved(&mut self, file: &SourceFile) -> Option<FileAttributes> {
        let preserve = self.spec.preserve;
        let attributes = file.attributes.unwrap_or_default();
        let lacks = (preserve.times && attributes.modified.is_none())
            || (preserve.modes && attributes.mode.is_none());
        if lacks && file.size.is_some() && !std::mem::replace(&mut self.lack_warned, true) {
            self.context.reporter.warn(format!(
                "{}: nothing tells its time or its permissions, which are not preserved; this may \
                 be \
                 true of other files too",
                file.source()
            ));
        }
        attributes.preserved(preserve)
    }

    async fn submit(&mut self, mut file: SourceFile) {
        file.attributes = self.preserved(&file);
        if file.direction() == Direction::Put
            && let Some(targets) = &mut self.targets
            && !targets.insert(&file.remote)
        {
            let path = file.target();
            return self.fail(file.source(), Error::Collides { path }).await;
        }
        let journal = self.context.local.journal.get().filter(|j| j.has_any());
        let mark = journal.and_then(|_| file.completed());
        let finished = journal.zip(mark).map(|(journal, mark)| journal.has(&mark));
        match (file.direction(), finished.unwrap_or(Completion::No)) {
            (_, Completion::No) => self.copy(file).await,
            (Direction::Put, _) => self.check_later(file).await,
            (Direction::Get, finished) => match already_done::here(&file) {
                None => self.copy(file).await,
                Some(_) if finished == Completion::BeforeBoot => self.check_later(file).await,
                Some(found) => self.skip_copied_local(&file, &found),
            },
        }
    }

    /// Sends a file that is to be copied.
    async fn copy(&mut self, mut file: SourceFile) {
        test_point("plan", &file.remote);
        let journal = self.context.local.journal.get();
        if let Some(journal) = journal.filter(|_| is_worth_resuming(&file, self.spec.part))
            && !already_done::is_newer(&file, journal.last_record_time())
        {
            file.begun = journal.take_partial(&file.target());
        }
        let counters = &self.context.counters;
        counters.files_found.fetch_add(1, Ordering::Relaxed);
        let bytes = match (self.spec.part, file.size) {
            (None, size) => size.unwrap_or(0),
            (Some(part), size) => {
                let left = size.map(|s| s.saturating_sub(part.offset));
                left.into_iter().chain(part.length).min().unwrap_or(0)
            }
        };
        counters.bytes_found.fetch_add(bytes, Ordering::Relaxed);
        self.send(PlanEntry::File(file)).await;
    }

    async fn fail(&mut self, path: String, error: Error) {
        self.context
            .counters
            .files_found
            .fetch_add(1, Ordering::Relaxed);
        self.send(PlanEntry::Failed { path, error }).await;
    }

    async fn send(&mut self, planned: PlanEntry) {
        tokio::select! {
            // The receiver is dropped: the run is ending and reports why.
            _ = self.out.send(planned) => {}
            () = self.context.stop.cancelled() => {}
        }
    }

    /// True if the destination is a directory to copy into.
    fn copies_into(&self, is_directory: bool) -> bool {
        let journal = self.context.local.journal.get();
        match journal.filter(|_| self.spec.recursive) {
            Some(journal) => journal.copies_into(is_directory),
            None => is_directory,
        }
    }

    /// Several sources need a directory as destination.
    fn check_many(&self, many: bool, is_directory: bool) -> Result<()> {
        if many && !is_directory {
            return Err(Error::Usage(format!(
                "{}: is no directory, and several sources need one",
                self.spec.destination
            )));
        }
        Ok(())
    }
}

/// The error for a directory without -r.
fn needs_recursive(what: &str) -> Error {
    Error::Usage(format!("{what}: is a directory: add -r to copy it"))
}

pub(crate) fn too_deep(what: &str) -> Error {
    let why = format!("more than {DEPTH_MAX} directories deep, not followed further");
    Error::unfit(what, why)
}
