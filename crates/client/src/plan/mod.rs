//! What is to be copied, found while copying already goes on.
//!
//! A planner runs beside the workers and hands files through a bounded channel: a tree of millions
//! of files needs the memory of its widest directory, and the first file moves before the last is
//! found. Directories are made here, before the files in them are handed on.

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

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use godwit_proto::{FtpPath, pi::transfer::Direction, url::Location};
use tokio::sync::mpsc;

use self::copy_path::CopyPath;
use crate::{
    context::{Endpoint, RunContext},
    error::{Error, Result},
    local::{
        attributes::FileAttributes,
        compact_set::CompactSet,
        files,
        journal::{CompletedFile, Completion},
    },
    panics::test_point,
    report::events::{ByteSource, Computed, Event},
    session::retry::{RetryingSession, SessionPool},
    spec::{JobSpec, Part},
    transfer::{resume, upload::NameRefused},
};

/// Files that the planner may be ahead of the workers.
pub(crate) const AHEAD_MAX: usize = 1024;

/// Deepest tree that is walked. Loops are cut before that where the server tells which directory is
/// which; this is for servers that do not.
pub(crate) const DEPTH_MAX: usize = 200;

/// One file to be copied.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) remote: FtpPath,
    pub(crate) other: Peer,
    /// Bytes of the whole file; `None`: nobody knows, or it is a device.
    pub(crate) size: Option<u64>,
    /// When the source last changed: seconds at servers, nanoseconds here; `None` where nobody
    /// tells.
    pub(crate) changed: Option<i64>,
    /// What the copy is to have of its source beside the bytes.
    pub(crate) attributes: Option<FileAttributes>,
    /// Nothing is at its target: the directory there was made for this copy.
    pub(crate) is_new: bool,
    /// Where a copy of it lies that an earlier run has begun.
    pub(crate) begun: Option<Vec<u8>>,
    /// How often it was in flight among others when its session was given up.
    pub(crate) pipeline_failures: u8,
    /// A name under which a put was begun, and which the server refused.
    pub(crate) name_refused: Option<NameRefused>,
}

/// The other end of a copy, and which way it goes.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A get.
    To(LocalEnd),
    /// A put.
    From(Origin),
}

/// Where a put comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Here(LocalEnd),
    /// Another server: the bytes go from one to the other and do not pass here.
    Server(RemotePath),
}

/// Something at a server.
#[derive(Clone, Debug)]
pub(crate) struct RemotePath {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) path: FtpPath,
}

impl RemotePath {
    /// For messages.
    pub(crate) fn url(&self) -> String {
        self.endpoint.url(&self.path)
    }
}

/// Our end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    Path(PathBuf),
    /// Standard input or output.
    Standard,
}

impl SourceFile {
    /// Which way bytes go, seen from the endpoint.
    pub(crate) fn direction(&self) -> Direction {
        match self.other {
            Peer::To(_) => Direction::Get,
            Peer::From(_) => Direction::Put,
        }
    }

    /// The server that sends to the endpoint, where one does.
    pub(crate) fn sender(&self) -> Option<&Arc<Endpoint>> {
        match &self.other {
            Peer::From(Origin::Server(source)) => Some(&source.endpoint),
            Peer::To(_) | Peer::From(Origin::Here(_)) => None,
        }
    }

    /// What its checksums are computed from.
    pub(crate) fn computed(&self) -> Computed {
        let here = |end: &LocalEnd| match (end, self.direction()) {
            // What has no size is read once: a pipe.
            (LocalEnd::Path(_), Direction::Put) if self.size.is_none() => ByteSource::ClientStream,
            (LocalEnd::Path(_), _) => ByteSource::ClientFile,
            (LocalEnd::Standard, _) => ByteSource::ClientStream,
        };
        let (source, destination) = match &self.other {
            Peer::To(end) => (ByteSource::ServerFile, here(end)),
            Peer::From(Origin::Here(end)) => (here(end), ByteSource::ServerFile),
            Peer::From(Origin::Server(_)) => (ByteSource::ServerFile, ByteSource::ServerFile),
        };
        Computed {
            source,
            destination,
        }
    }

    /// The source, for messages and logs.
    pub(crate) fn source(&self) -> String {
        match &self.other {
            Peer::To(_) => self.endpoint.url(&self.remote),
            Peer::From(Origin::Here(source)) => source.to_string(),
            Peer::From(Origin::Server(source)) => source.url(),
        }
    }

    /// That a file of ours is still what it was when it was compared with its copy. A copy that
    /// gets the time of its source must not get it for other bytes.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let gets_time = self
            .attributes
            .is_some_and(|attributes| attributes.modified.is_some());
        match !gets_time || self.is_unchanged()? {
            true => Ok(()),
            false => Err(Error::Changed {
                what: self.source(),
            }),
        }
    }

    /// A file of ours is still what it was when it was planned.
    pub(crate) fn is_unchanged(&self) -> Result<bool> {
        let Peer::From(Origin::Here(LocalEnd::Path(path))) = &self.other else {
            return Ok(true);
        };
        let now = files::stat(path)?;
        Ok(now.is_some_and(|now| Some(now.len()) == self.size && changed(&now) == self.changed))
    }

    /// The destination, likewise.
    pub(crate) fn target(&self) -> String {
        match &self.other {
            Peer::To(target) => target.to_string(),
            Peer::From(_) => self.endpoint.url(&self.remote),
        }
    }
}

impl std::fmt::Display for LocalEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.write_str(&path.to_string_lossy()),
            Self::Standard => f.write_str("standard input"),
        }
    }
}

/// What the planner hands on.
#[derive(Debug)]
pub(crate) enum PlanEntry {
    File(SourceFile),
    /// Something that should be copied and cannot be.
    Failed {
        path: String,
        error: Error,
    },
}

/// What is to be done when all is copied.
#[derive(Debug)]
pub(crate) struct FinalActions {
    /// What a sync found that has to go, if all of the source is known.
    pub(crate) delete_list: Option<SealedDeleteList>,
    pub(crate) directories: DirectoryAttributes,
}

/// Finds what a job has to copy.
pub(crate) struct Planner {
    spec: Arc<JobSpec>,
    context: Arc<RunContext>,
    carrier: RetryingSession,
    /// What an earlier run has finished, if it is still there.
    needs_check: Vec<SourceFile>,
    /// Names of puts, where several sources may mean the same.
    targets: Option<CompactSet>,
    /// What a sync found that has to go.
    delete_list: Option<SealedDeleteList>,
    directories: DirectoryAttributes,
    /// It was said that a source does not tell what is to be preserved.
    lack_warned: bool,
    out: mpsc::Sender<PlanEntry>,
}

impl Planner {
    pub(crate) fn new(
        spec: Arc<JobSpec>,
        pool: Arc<SessionPool>,
        out: mpsc::Sender<PlanEntry>,
    ) -> Self {
        let mut carrier = RetryingSession::new(pool);
        let dry_run = spec.sync.as_ref().is_some_and(|sync| sync.dry_run);
        carrier.warms_pool = spec.has_several() && !dry_run;
        Self {
            needs_check: Vec::new(),
            delete_list: None,
            directories: DirectoryAttributes::default(),
            lack_warned: false,
            targets: (spec.sources.len() > 1).then(CompactSet::default),
            spec,
            context: Arc::clone(&carrier.pool.context),
            carrier,
            out,
        }
    }

    /// Finds everything. What fails is handed on as failed, named by the source it belongs to.
    /// Gives what is to be done when all of it is there.
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
        self.carrier.release();
        let before = self.context.counters.files_before.load(Ordering::Relaxed);
        if let Some(journal) = self.context.journal.get().filter(|_| before > 0) {
            self.context.note(format!(
                "{before} files were copied by an earlier run of this command, as {} tells",
                journal.path().display()
            ));
        }
        let counters = &self.context.counters;
        counters.scanned.store(true, Ordering::Relaxed);
        self.context.emit(&Event::Plan {
            files: counters.files_found.load(Ordering::Relaxed),
            bytes: counters.bytes_found.load(Ordering::Relaxed),
        });
        FinalActions {
            delete_list: self.delete_list,
            directories: self.directories,
        }
    }

    /// Says so where the server of the destination has no times to preserve.
    async fn check_preserve(&mut self, at: &RemotePath) -> Result<()> {
        if self.spec.preserve.times && !self.keeps_times(&CopyPath::There(at.clone())).await? {
            self.context.warn(format!(
                "{}: has no MFMT to set times with, so that copies do not get those of their sources",
                at.endpoint.name()
            ));
        }
        Ok(())
    }

    /// A directory of the destination gets its stamp when all is copied.
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

    /// What of the stamp of its source a copy is to have.
    fn preserved(&mut self, file: &SourceFile) -> Option<FileAttributes> {
        let preserve = self.spec.preserve;
        let attributes = file.attributes.unwrap_or_default();
        let lacks = (preserve.times && attributes.modified.is_none())
            || (preserve.modes && attributes.mode.is_none());
        if lacks && file.size.is_some() && !std::mem::replace(&mut self.lack_warned, true) {
            self.context.warn(format!(
                "{}: nothing tells its time or its permissions, which are not preserved; this may be \
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
        let journal = self.context.journal.get().filter(|j| j.has_any());
        let mark = journal.and_then(|_| CompletedFile::of(&file));
        let finished = journal.zip(mark).map(|(journal, mark)| journal.has(&mark));
        match (file.direction(), finished.unwrap_or(Completion::No)) {
            (_, Completion::No) => self.copy(file).await,
            (Direction::Put, _) => self.check_later(file).await,
            (Direction::Get, finished) => match already_done::here(&file) {
                None => self.copy(file).await,
                Some(_) if finished == Completion::BeforeBoot => self.check_later(file).await,
                Some(found) => self.skip_copied_local(&found),
            },
        }
    }

    /// It is to be copied.
    async fn copy(&mut self, mut file: SourceFile) {
        test_point("plan", &file.remote);
        let journal = self.context.journal.get();
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
            // Nobody takes it any more: the run is ending, and will say why itself.
            _ = self.out.send(planned) => {}
            () = self.context.stop.wait() => {}
        }
    }

    /// Whether what is at the destination is a directory to copy into.
    fn copies_into(&self, is_directory: bool) -> bool {
        let journal = self.context.journal.get();
        match journal.filter(|_| self.spec.recursive) {
            Some(journal) => journal.copies_into(is_directory),
            None => is_directory,
        }
    }

    /// Several sources need a directory to be put into.
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

/// When a file of this machine last changed, nanoseconds; `None` where 64 bits do not hold it.
fn changed(metadata: &fs::Metadata) -> Option<i64> {
    let whole = metadata.mtime().checked_mul(1_000_000_000)?;
    whole.checked_add(metadata.mtime_nsec())
}

/// A copy of it that an earlier run has begun is not thrown away.
pub(crate) fn is_worth_resuming(file: &SourceFile, part: Option<Part>) -> bool {
    part.is_none() && file.size.is_some_and(|size| size > resume::BYTES_MIN)
}

/// The error for a directory where -r was not given.
fn needs_recursive(what: &str) -> Error {
    Error::Usage(format!("{what}: is a directory: add -r to copy it"))
}

pub(crate) fn too_deep(what: &str) -> Error {
    let why = format!("more than {DEPTH_MAX} directories deep, not followed further");
    Error::unfit(what, why)
}

/// True for a device at a server: its size means nothing. Servers list devices as files, so the
/// place tells: right in `/dev`, not in folders below it, where memory file systems are mounted.
pub(crate) fn is_device(path: &FtpPath) -> bool {
    match path.as_bytes().strip_prefix(b"/dev/") {
        Some(name) => !name.is_empty() && !name.contains(&b'/') && name != b"shm",
        None => false,
    }
}
