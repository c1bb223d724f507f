//! A copy, from its plan to its summary.
//!
//! ```text
//!   Planner ─ bounded channel ─► Queue ─┬► Worker 1 ──► Verifier: checksums and final names,
//!                                  ▲    └► Worker 2        while workers move the next files
//!                                  └ pieces of large files, and what a worker leaves when it exits
//! ```

mod deletion;
mod directory_attributes;
mod file_task;
pub(crate) mod piece_size;
mod queue;
mod small_files;
mod verifier;
mod worker;
mod worker_pool;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use godwit_engine::{
    data::{ChannelParams, FilePart},
    storage::PosixStorage,
};
use godwit_proto::url::{Location, RemoteUrl};
use godwit_tune::Tuner;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    task::LocalSet,
    time,
};
use tokio_util::sync::CancellationToken;

use self::{
    piece_size::PieceSizer,
    queue::Queue,
    verifier::{MovedFile, Verifier},
};
use crate::{
    context::RunContext,
    error::{Error, Exit, Result},
    local::journal::Journal,
    panics::{joined_badly, on_thread},
    plan::{self, Planner},
    report::{
        events::{Event, EventLog, FileEnd, FileState, Observer},
        metrics_file::MetricsFile,
        progress::TICK,
        summary::{Summary, SyncSummary},
        tui::LiveStatus,
    },
    session::{home, http::LANE_BYTES_MIN, pool::SessionPool},
    spec::{CongestionChoice, Connections, JobSpec, JournalSpec, nesting::check_nesting},
    transfer::{pipeline::file::is_pipelinable, source_file::SourceFile},
    tuning::{congestion, controller::Controller, path_memory::path_key},
};

/// Time for a data connection to come up. Shorter than the stall limit: a server that cannot reach
/// us should cost seconds, not minutes, before we listen no more.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// What all workers of a job share.
pub(crate) struct Job {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) context: Arc<RunContext>,
    pub(crate) pool: Arc<SessionPool>,
    pub(crate) sizer: PieceSizer,
    pub(crate) queue: Queue,
    verifier: Verifier,
    /// The destination is full: the first error that showed it. No new file is begun then: it would
    /// be sent in vain.
    disk_full: OnceLock<Error>,
    /// What was copied here may not be on the disk.
    is_unsynced: AtomicBool,
    /// A warning said that the journal cannot be written.
    journal_failed: AtomicBool,
    /// How failed files would end the process, most telling first.
    exit_causes: Mutex<Vec<Exit>>,
}

/// Runs a copy. Errors are those that keep it from beginning; everything later is in the summary
/// and was reported to the observer.
pub async fn run(
    spec: JobSpec,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary> {
    let controller = Controller::new(&spec.tuner, &path_of(&spec));
    run_under(controller, spec, connections, observer, stop).await
}

/// Like [`run`], with a tuner of the caller's; the method of `spec` is not used.
pub async fn run_with(
    tuner: Box<dyn Tuner>,
    spec: JobSpec,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary> {
    let controller = Controller::with(tuner, &spec.tuner);
    run_under(controller, spec, connections, observer, stop).await
}

async fn run_under(
    controller: Controller,
    spec: JobSpec,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary> {
    let Some(path) = spec.metrics_file.clone() else {
        return Box::pin(run_observed(controller, spec, connections, observer, stop)).await;
    };
    let metrics = MetricsFile::begin(&path, &spec, observer)?;
    let observer = Arc::clone(&metrics) as Arc<dyn Observer>;
    let run = run_observed(controller, spec, connections, observer, stop);
    let outcome = Box::pin(run).await;
    if let Err(error) = &outcome {
        metrics.failed(error.exit());
    }
    outcome
}

async fn run_observed(
    mut controller: Controller,
    mut spec: JobSpec,
    mut connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary> {
    let started = time::Instant::now();
    let log = match &spec.events {
        Some(path) => Some(EventLog::create(path, started.into_std())?),
        None => None,
    };
    let observer = LiveStatus::through(observer);
    let storage = PosixStorage::unconfined().with_direct_io(spec.direct_io);
    connections.buckets.keeps_existing = spec.keeps_existing();
    let context = RunContext::new(connections, observer, log, stop, storage);
    if let CongestionChoice::Fixed(name) = &spec.congestion {
        context.congestion.set(name);
    }
    context.reporter.emit(&Event::Start {
        command: spec.command.clone(),
        endpoints: spec
            .sources
            .iter()
            .chain([&spec.destination])
            .map(Location::to_string)
            .collect(),
        version: env!("CARGO_PKG_VERSION"),
    });
    controller.chooses_congestion(congestion::chooser(&spec, &context));
    context.target.limit_to(spec.limit.clone());
    if spec.striping {
        context.target.allow_stripes(spec.tuner.bounds.channels_max);
    }
    if spec.tuner.bounds.parallelism.is_none() {
        context.target.allow_spares(spec.tuner.bounds.channels_max);
    }
    controller.data_ends_here(!spec.is_between_servers());
    controller.begin(&context);
    context.local.durability.set_level(spec.durability);
    let params = channel_params(&spec, &context);
    let pool = SessionPool::new(
        Arc::clone(&context),
        params,
        spec.attempts,
        spec.retry_pause,
    );
    home::expand_home(&pool, spec.remote_places()).await?;
    if spec.recursive {
        check_nesting(&spec.sources, &spec.destination).map_err(Error::Usage)?;
    }
    if let Some(journal) = journal_of(&spec)? {
        // Not set before.
        let _ = context.local.journal.set(Arc::new(journal));
    }
    let (sender, receiver) = mpsc::channel(plan::AHEAD_MAX);
    let (verifier, moved) = Verifier::new();
    let job = Arc::new(Job {
        sizer: PieceSizer::new(
            context.target.subscribe(),
            Arc::clone(&context.counters),
            spec.tuner.moves_workers(),
        ),
        spec: Arc::new(spec),
        context,
        pool,
        queue: Queue::new(receiver),
        verifier,
        disk_full: OnceLock::new(),
        is_unsynced: AtomicBool::new(false),
        journal_failed: AtomicBool::new(false),
        exit_causes: Mutex::default(),
    });
    let planner = Planner::new(Arc::clone(&job.spec), Arc::clone(&job.pool), sender);
    LocalSet::new()
        .run_until(move_all(&job, planner, controller, moved))
        .await;
    job.fsync_all().await;
    let summary = job.summarise(started.elapsed().as_secs_f64());
    if summary.exit == Exit::Interrupted.code() && job.context.local.journal.get().is_some() {
        let text = "interrupted: the same command, given again, goes on from here";
        job.context.reporter.warn(text);
    }
    if let Some(journal) = job
        .context
        .local
        .journal
        .get()
        .filter(|_| summary.exit == Exit::Done.code())
    {
        journal.remove();
    }
    job.context.reporter.emit(&Event::Summary(summary.clone()));
    if let Err(error) = job.context.reporter.finish_log() {
        job.context
            .reporter
            .warn(format!("write event log: {error}"));
    }
    Ok(summary)
}

/// Where the job notes what is finished, if there is enough of it.
fn journal_of(spec: &JobSpec) -> Result<Option<Journal>> {
    if spec.sync.as_ref().is_some_and(|sync| sync.dry_run) {
        return Ok(None);
    }
    let file = match &spec.journal {
        JournalSpec::File(file) => Some(file.as_path()),
        JournalSpec::OfUser if spec.destination != Location::Standard => None,
        JournalSpec::OfUser | JournalSpec::Never => return Ok(None),
    };
    let places = spec.sources.iter().chain([&spec.destination]);
    let key: Vec<_> = places.map(Location::to_string).collect();
    let one = !spec.has_several() && file.is_none();
    Journal::open(file, &key.join("\n"), one)
}

/// What a job goes over: the server, and the way bytes go.
fn path_of(spec: &JobSpec) -> String {
    let at = |server: &RemoteUrl| format!("{}:{}", server.host, server.port);
    match (&spec.destination, spec.sources.first()) {
        (Location::Remote(to), Some(Location::Remote(from))) => {
            path_key(&format!("{}>{}", at(from), at(to)), "relay")
        }
        (Location::Remote(to), _) => path_key(&at(to), "put"),
        (_, Some(Location::Remote(from))) => path_key(&at(from), "get"),
        // Both ends local: the flags refuse it.
        _ => String::new(),
    }
}

/// What holds for all channels. Their number is the target's.
fn channel_params(spec: &JobSpec, context: &RunContext) -> ChannelParams {
    let connections = &context.connections;
    ChannelParams {
        parallelism: 1,
        // A server that opens more channels than it was asked for is not let in with all of them.
        // Twice: those that were retired may still be on their way out when their successors come.
        channels_max: spec.tuner.bounds.channels_max.saturating_mul(2),
        block_bytes: spec.block_bytes,
        holes: spec.sparse,
        socket_buffer_bytes: spec.socket_buffer_bytes,
        congestion: Arc::clone(&context.congestion),
        rate: Arc::clone(&context.rate),
        security: None,
        channel_limiter: None,
        connect_limit: connections.stall_limit.min(CONNECT_LIMIT),
        stall_limit: connections.stall_limit,
        // Each session says it of its own data ports.
        only_from: None,
        source: None,
        // The server may say no word before its connections end.
        closes_late: false,
        reports_safe: true,
        part: FilePart::Whole,
    }
}

async fn move_all(
    job: &Arc<Job>,
    planner: Planner,
    controller: Controller,
    moved: mpsc::UnboundedReceiver<MovedFile>,
) {
    let shown = Arc::clone(job);
    let display = tokio::task::spawn_local(async move {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            shown.flush_journal();
            let snapshot = shown.context.snapshot();
            shown
                .context
                .reporter
                .observer()
                .on_progress(Some(&snapshot));
        }
    });
    let planning = tokio::task::spawn_local(planner.run());
    let over = Arc::new(Notify::new());
    let tuning = controller.run(Arc::clone(&job.context), Arc::clone(&over));
    let tuning = tokio::task::spawn_local(tuning);
    let finishing = tokio::task::spawn_local(verifier::run(Arc::clone(job), moved));
    worker_pool::run(job).await;
    job.verifier.close();
    if let Err(bug) = finishing.await {
        job.on_panic(joined_badly("finish files", bug));
    }
    // What the finisher found no session for.
    worker_pool::run(job).await;
    // No worker is left for files that the planner still finds.
    job.queue.end().await;
    over.notify_one();
    if let Err(bug) = tuning.await {
        job.on_panic(joined_badly("choose the setting", bug));
    }
    let planned = planning.await;
    if let Some(bug) = job.pool.take_panic() {
        job.on_panic(bug);
    }
    match planned {
        Ok(at_end) => {
            deletion::run(job, at_end.delete_list).await;
            // After all that changes a directory.
            directory_attributes::run(job, at_end.directories).await;
        }
        Err(bug) => job.on_panic(joined_badly("find what is to be copied", bug)),
    }
    job.pool.close_kept().await;
    job.pool.close().await;
    // One that has met it since.
    if let Some(bug) = job.pool.take_panic() {
        job.on_panic(bug);
    }
    display.abort();
    if let Err(bug) = display.await
        && !bug.is_cancelled()
    {
        job.on_panic(joined_badly("show progress", bug));
    }
    job.flush_journal();
    job.context.reporter.observer().on_progress(None);
}

impl Job {
    /// Whether a file takes one channel, and a session none beside it.
    fn fits_one_channel(&self, file: &SourceFile) -> bool {
        file.endpoint.is_http()
            && file.sender().is_none()
            && file.size.is_some_and(|size| size <= LANE_BYTES_MIN)
            && is_pipelinable(file, &self.spec)
    }

    /// Such files wait.
    fn has_files_for_one_channel(&self) -> bool {
        self.queue.has_file(|file| self.fits_one_channel(file))
    }

    /// Syncs what the run left unsynced. A user who does not want to wait for the disks can say so.
    async fn fsync_all(&self) {
        let context = Arc::clone(&self.context);
        let doing = || format!("make {} safe", self.spec.destination);
        let syncing = on_thread(doing, move || context.local.durability.fsync_all());
        let synced = tokio::select! {
            synced = syncing => synced.and_then(|synced| synced),
            () = self.context.stop.cancelled() => Ok(()),
        };
        if let Err(error) = synced {
            self.is_unsynced.store(true, Ordering::Relaxed);
            self.record(error.exit());
            self.context.reporter.warn(error.explained());
            // The next run must not rely on it.
            if let Some(journal) = self.context.local.journal.get() {
                journal.remove();
            }
        }
    }

    /// A file is not begun where there is no room: counts it as failed.
    pub(crate) fn admits(&self, source_file: &SourceFile) -> bool {
        let Some(error) = self.disk_full.get() else {
            return true;
        };
        let path = source_file.source();
        let error = Box::new(error.clone());
        self.file_failed(&path.clone(), 0.0, 0, &Error::DiskFull { path, error });
        false
    }

    /// Something was not moved: where there is no room, nothing else is begun.
    pub(crate) fn note_disk_full(&self, error: &Error) {
        if error.is_disk_full() {
            let _ = self.disk_full.set(error.clone());
        }
    }

    /// Counts a file that is not there.
    pub(crate) fn file_failed(&self, path: &str, seconds: f64, bytes: u64, error: &Error) {
        if matches!(error, Error::Interrupted) {
            return;
        }
        self.record(error.exit());
        self.note_disk_full(error);
        self.context.reporter.ended(path, &FileEnd::Failed(error));
        let counters = &self.context.counters;
        counters.files_failed.fetch_add(1, Ordering::Relaxed);
        self.context.reporter.emit(&Event::File {
            path: path.to_owned(),
            bytes,
            size: None,
            seconds,
            checksum: None,
            computed: None,
            state: FileState::Failed,
            error: Some(error.clone()),
        });
    }

    /// Something of ours panicked outside of any file. Nothing is removed after it, and the status
    /// is not 0.
    fn on_panic(&self, bug: Error) {
        self.file_failed(&self.spec.destination.to_string(), 0.0, 0, &bug);
    }

    fn flush_journal(&self) {
        if let Some(journal) = self.context.local.journal.get()
            && let Err(error) = journal.flush()
        {
            self.warn_journal(journal, &error);
        }
    }

    /// Says, once, that files are not noted.
    fn warn_journal(&self, journal: &Journal, error: &io::Error) {
        if !self.journal_failed.swap(true, Ordering::Relaxed) {
            let file = journal.path().display();
            self.context.reporter.warn(format!(
                "write journal {file}: {error}: a repeated command copies these files again"
            ));
        }
    }

    /// Counts a file that is there, after so many bytes were moved, and has so many.
    pub(crate) fn file_done(
        &self,
        source_file: &SourceFile,
        seconds: f64,
        (bytes, size): (u64, u64),
        checksum: Option<String>,
    ) {
        if let Some(journal) = self.context.local.journal.get()
            && let Some(mark) = source_file.completed()
            && let Err(error) = journal.record_done(&mark)
        {
            self.warn_journal(journal, &error);
        }
        let counters = &self.context.counters;
        counters.files_done.fetch_add(1, Ordering::Relaxed);
        counters.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        let path = source_file.source();
        let end = FileEnd::Done {
            bytes,
            size,
            checksum: checksum.as_deref(),
        };
        self.context.reporter.ended(&path, &end);
        self.context.reporter.emit(&Event::File {
            path,
            bytes,
            size: Some(size),
            seconds,
            computed: checksum.as_ref().map(|_| source_file.computed()),
            state: if checksum.is_some() {
                FileState::Verified
            } else {
                FileState::Done
            },
            checksum,
            error: None,
        });
    }

    fn record(&self, exit: Exit) {
        let mut exit_causes = self.exit_causes.lock();
        if !exit_causes.contains(&exit) {
            exit_causes.push(exit);
        }
    }

    /// Something is not there that should be.
    fn has_failed(&self) -> bool {
        let exit_causes = self.exit_causes.lock();
        !exit_causes.is_empty()
    }

    fn summarise(&self, seconds: f64) -> Summary {
        let counters = &self.context.counters;
        let done = counters.files_done.load(Ordering::Relaxed);
        let failed = counters.files_failed.load(Ordering::Relaxed);
        let exit_causes = self.exit_causes.lock();
        let same = counters.files_same.load(Ordering::Relaxed);
        let resumed_bytes = done + same + counters.files_before.load(Ordering::Relaxed);
        let exit = exit_of(
            self.context.stop.is_cancelled(),
            resumed_bytes,
            &exit_causes,
        );
        let bytes = counters.bytes_done.load(Ordering::Relaxed);
        let (totals, _) = counters.totals();
        let synced = self.spec.sync.as_ref().map(|sync| SyncSummary {
            dry_run: sync.dry_run,
            files_differing: counters.files_found.load(Ordering::Relaxed),
            bytes_differing: counters.bytes_found.load(Ordering::Relaxed),
            files_same: same,
            names_removed: counters.names_removed.load(Ordering::Relaxed),
        });
        Summary {
            is_unsynced: self.is_unsynced.load(Ordering::Relaxed),
            synced,
            retransmitted_bytes: totals.tcp.map(|tcp| tcp.bytes_retransmitted),
            limited_by: counters.limited_by().map(|limit| limit.to_string()),
            ..Summary::new(bytes, seconds, done, failed, exit)
        }
    }
}

/// The status of a whole job from those of its failures.
fn exit_of(stopped: bool, resumed_bytes: u64, exit_causes: &[Exit]) -> Exit {
    if stopped {
        Exit::Interrupted
    } else if exit_causes.is_empty() {
        Exit::Done
    } else if resumed_bytes > 0 {
        Exit::Partly
    } else {
        // Trouble of the world outweighs a refusal, and that a slip of the user.
        [Exit::Failed, Exit::Refused]
            .into_iter()
            .find(|e| exit_causes.contains(e))
            .unwrap_or(Exit::Usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_failed_is_1_and_all_failed_says_why() {
        assert_eq!(exit_of(false, 3, &[]), Exit::Done);
        assert_eq!(exit_of(false, 0, &[]), Exit::Done);
        assert_eq!(exit_of(false, 1, &[Exit::Refused]), Exit::Partly);
        assert_eq!(exit_of(false, 0, &[Exit::Refused]), Exit::Refused);
        assert_eq!(
            exit_of(false, 0, &[Exit::Refused, Exit::Failed]),
            Exit::Failed
        );
        assert_eq!(exit_of(false, 0, &[Exit::Usage]), Exit::Usage);
        assert_eq!(exit_of(true, 1, &[Exit::Failed]), Exit::Interrupted);
    }
}
