//! One unit as jobs of the client, on a thread of its own. The thread stays for a moment when it
//! has ended, with the sessions of the unit: the next unit of the job needs no login then.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use godwit_client::{
    CancellationToken,
    auth::granted::Granted,
    error::Error,
    job,
    kept_sessions::KeptSessions,
    report::{
        events::{self, Event as ClientEvent, Observer},
        progress::Snapshot,
    },
    spec::{Connections, JobSpec, SettingLimit},
};
use godwit_service_api::{
    agent::{
        DividedUpload, Division, FileEnd, FileOutcome, FoundFile, Grant, Lease, MAX_UNIT_FILES,
        Share, StopReason, Undivided, Work,
    },
    job::{FileError, WhoActs},
};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    file_error::file_error,
    listing,
    plan::{self, Round, UnitSettings},
    trace::UnitTrace,
};
use crate::mock;

/// Time to remove what a canceled unit has left.
const CLEANING_LIMIT: Duration = Duration::from_secs(20);

/// Most channels of a unit.
const CHANNELS_MAX: u32 = 128;

/// Over which the rate of a unit is taken.
const RATE_TIME: Duration = Duration::from_secs(2);

/// How long the thread and the sessions of a unit that has ended wait for another unit of its job:
/// time to report and to be granted the next. They count at servers, and no other job gets them.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Most threads that wait so.
const IDLE_THREADS_MAX: usize = 16;

/// Of a unit's thread: as of a main thread, on which jobs of the client run elsewhere.
const STACK_BYTES: usize = 8 << 20;

/// What a unit's thread tells.
pub(super) enum Event {
    File(Lease, FileOutcome),
    Undivided(Lease, Undivided),
    Found(Lease, Vec<FoundFile>),
    /// Always the last.
    Ended(Lease, Ended),
}

/// How a unit ended as a whole.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) error: Option<FileError>,
}

/// A unit that runs.
pub(super) struct Running {
    limit: SettingLimit,
    pub(super) granted: Granted,
    stop: CancellationToken,
    /// What was begun goes too.
    removes: Arc<AtomicU8>,
}

impl Running {
    pub(super) fn set_share(&self, share: Share) {
        let (concurrency, parallelism) = bounded(share);
        self.limit.set(concurrency, parallelism);
    }

    pub(super) fn stop(&self, why: StopReason) {
        let removes = u8::from(why != StopReason::Paused);
        self.removes.fetch_max(removes, Ordering::Relaxed);
        self.stop.cancel();
    }
}

/// How a unit does, for polls.
#[derive(Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    /// Of rounds that ended.
    before: u64,
    bytes: u64,
    measured: Option<(Instant, u64)>,
    goodput: f64,
    setting: Share,
    limited_by: Option<String>,
}

pub(super) struct Report {
    pub(super) bytes: u64,
    pub(super) goodput: f64,
    pub(super) setting: Share,
    pub(super) limited_by: Option<String>,
}

impl Progress {
    pub(super) fn report(&self) -> Report {
        let state = self.0.lock();
        Report {
            bytes: state.before + state.bytes,
            goodput: state.goodput,
            setting: state.setting,
            limited_by: state.limited_by.clone(),
        }
    }

    fn round_ended(&self) {
        let mut state = self.0.lock();
        state.before += std::mem::take(&mut state.bytes);
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    fn observe(&self, snapshot: &Snapshot) {
        let mut state = self.0.lock();
        state.bytes = state.bytes.max(snapshot.bytes);
        if let Some(setting) = snapshot.setting {
            state.setting = Share {
                concurrency: setting.concurrency,
                parallelism: setting.parallelism,
            };
        }
        state.limited_by = snapshot.limited_by.map(|limit| limit.as_str().to_owned());
        let now = (Instant::now(), state.before + state.bytes);
        let Some((at, bytes)) = state.measured else {
            state.measured = Some(now);
            return;
        };
        let time = now.0 - at;
        if time >= RATE_TIME {
            state.goodput = now.1.saturating_sub(bytes) as f64 / time.as_secs_f64();
            state.measured = Some(now);
        }
    }
}

/// Threads of units that have ended. Clones share them.
#[derive(Clone, Default)]
pub(super) struct IdleThreads(Arc<Mutex<Vec<IdleThread>>>);

struct IdleThread {
    thread: ThreadId,
    /// Its sessions are of this job.
    job: Uuid,
    units: Sender<(Runner, Grant)>,
}

impl IdleThreads {
    /// Ends all of them.
    pub(super) fn end(&self) {
        self.0.lock().clear();
    }

    fn take(&self, job: Uuid) -> Option<IdleThread> {
        let mut idle = self.0.lock();
        let at = idle.iter().position(|thread| thread.job == job)?;
        Some(idle.swap_remove(at))
    }

    /// The next unit of `job` for this thread, if one comes soon.
    fn next(&self, job: Uuid) -> Option<(Runner, Grant)> {
        let (units, next) = channel();
        let thread = thread::current().id();
        {
            let mut idle = self.0.lock();
            if idle.len() >= IDLE_THREADS_MAX {
                return None;
            }
            idle.push(IdleThread { thread, job, units });
        }
        if let Ok(unit) = next.recv_timeout(IDLE_TIME) {
            return Some(unit);
        }
        self.0.lock().retain(|idle| idle.thread != thread);
        // One may have taken it meanwhile; if not, nothing can come any more.
        next.recv().ok()
    }
}

/// Starts it, on a thread of the same job that waits or on a new one.
pub(super) fn start(
    grant: Grant,
    settings: &Arc<UnitSettings>,
    threads: &IdleThreads,
    progress: Arc<Progress>,
    events: mpsc::UnboundedSender<Event>,
) -> Running {
    let (concurrency, parallelism) = bounded(grant.share);
    let running = Running {
        limit: SettingLimit::new(concurrency, parallelism),
        granted: Granted::default(),
        stop: CancellationToken::default(),
        removes: Arc::default(),
    };
    let runner = Runner {
        limit: running.limit.clone(),
        granted: running.granted.clone(),
        stop: running.stop.clone(),
        removes: Arc::clone(&running.removes),
        settings: Arc::clone(settings),
        progress,
        trace: UnitTrace::begin(&settings.traces, &grant),
        last: LastWord {
            lease: grant.lease,
            events,
            ended: Some(Ended {
                error: Some(internal("the unit's thread panicked")),
            }),
        },
    };
    if let Some(idle) = threads.take(grant.job) {
        // It waits until it has got a unit.
        let _ = idle.units.send((runner, grant));
        return running;
    }
    let thread = thread::Builder::new()
        .name("godwit-unit".to_owned())
        .stack_size(STACK_BYTES);
    let threads = threads.clone();
    // Where there is no thread the runner is dropped, and that is its end.
    if let Err(error) = thread.spawn(move || run_units(runner, grant, &threads)) {
        tracing::error!(%error, "no thread for a unit");
    }
    running
}

/// Units of one job, one after the other.
fn run_units(mut runner: Runner, mut grant: Grant, threads: &IdleThreads) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return runner.end(Some(internal(error))),
    };
    let job = grant.job;
    let kept = KeptSessions::default();
    loop {
        let proof = (grant.addresses, grant.credentials.clone());
        let error = runtime.block_on(runner.work(grant, &kept));
        runner.end(error);
        let Some(next) = threads.next(job) else {
            break;
        };
        (runner, grant) = next;
        if (grant.addresses, &grant.credentials) != (proof.0, &proof.1) {
            runtime.block_on(kept.close());
        }
    }
    runtime.block_on(kept.close());
    // A resolver may hang.
    runtime.shutdown_background();
}

/// Sessions and channels of each, whatever the service says.
fn bounded(share: Share) -> (u32, u32) {
    let parallelism = share.parallelism.clamp(1, CHANNELS_MAX);
    let concurrency = share.concurrency.min(CHANNELS_MAX / parallelism);
    (concurrency, parallelism)
}

fn internal(message: impl ToString) -> FileError {
    FileError {
        code: "internal".to_owned(),
        message: message.to_string(),
        who: WhoActs::Operator,
        may_pass: true,
    }
}

/// Says that a unit has ended, however it did.
struct LastWord {
    lease: Lease,
    events: mpsc::UnboundedSender<Event>,
    ended: Option<Ended>,
}

impl Drop for LastWord {
    fn drop(&mut self) {
        let ended = self.ended.take().unwrap_or_default();
        // The agent may be gone.
        let _ = self.events.send(Event::Ended(self.lease, ended));
    }
}

struct Runner {
    limit: SettingLimit,
    granted: Granted,
    stop: CancellationToken,
    removes: Arc<AtomicU8>,
    settings: Arc<UnitSettings>,
    progress: Arc<Progress>,
    trace: Option<Arc<UnitTrace>>,
    last: LastWord,
}

impl Runner {
    fn end(mut self, error: Option<FileError>) {
        if let Some(trace) = &self.trace {
            let bytes = self.progress.report().bytes;
            trace.end(bytes, error.as_ref(), self.stop.is_cancelled());
        }
        self.last.ended = Some(Ended { error });
    }

    async fn work(&self, grant: Grant, kept: &KeptSessions) -> Option<FileError> {
        match &grant.work {
            Work::Copy(_) => self.copy(grant, kept).await,
            Work::List {
                source,
                destination,
            } => {
                let listed = listing::list(
                    (source, destination),
                    (&grant, &self.granted, kept),
                    &self.settings,
                    self.stop.clone(),
                );
                match listed.await {
                    Ok(found) => {
                        for found in found.chunks(MAX_UNIT_FILES) {
                            self.tell(Event::Found(grant.lease, found.to_vec()));
                        }
                        None
                    }
                    Err(error) => Some(error),
                }
            }
        }
    }

    async fn copy(&self, grant: Grant, kept: &KeptSessions) -> Option<FileError> {
        let lease = grant.lease;
        let grant = self.copy_mocks(grant).await;
        let plan = match plan::rounds(&grant, &self.settings, &self.limit, &self.granted) {
            Ok(plan) => plan,
            Err(error) => return Some(error),
        };
        for (index, error) in plan.refused {
            let end = FileEnd::Failed(error);
            self.tell_file(lease, (index, 0), end);
        }
        for mut round in plan.rounds {
            if self.stop.is_cancelled() {
                break;
            }
            round.connections.kept = Some(kept.clone());
            self.round(lease, round).await;
        }
        None
    }

    /// Ends the mocks of a grant, each at its time. The grant without them.
    async fn copy_mocks(&self, mut grant: Grant) -> Grant {
        let Work::Copy(files) = &mut grant.work else {
            return grant;
        };
        let mocks = files.extract_if(.., |file| mock::is_mock(&file.file));
        let mocks = mocks.map(|file| (mock::copy(&file), file.index));
        let mut mocks: Vec<_> = mocks.collect();
        mocks.sort_by_key(|((time, _), _)| *time);
        let began = tokio::time::Instant::now();
        for ((time, end), index) in mocks {
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(began + time) => {}
            }
            let bytes = match &end {
                FileEnd::Finished { size, .. } => *size,
                _ => 0,
            };
            self.tell_file(grant.lease, (index, bytes), end);
        }
        grant
    }

    async fn round(&self, lease: Lease, round: Round) {
        let watch = Arc::new(Watch {
            lease,
            files: Mutex::new(round.files),
            destination: round.spec.destination.to_string(),
            of_all: Mutex::default(),
            has_begun: AtomicBool::new(false),
            held_back: round.syncs_at_end.then(Mutex::default),
            events: self.last.events.clone(),
            progress: Arc::clone(&self.progress),
            trace: self.trace.clone(),
        });
        let observer = Arc::clone(&watch) as Arc<dyn Observer>;
        let spec = round.spec.clone();
        let journal = round.journal.clone();
        let ran = job::run(spec, round.connections.clone(), observer, self.stop.clone()).await;
        self.progress.round_ended();
        match &ran {
            // What is not known to be on the disk is copied again, or found to be there. What a
            // stopped run has not reported has not failed.
            _ if self.stop.is_cancelled() => {}
            Ok(summary) if summary.is_unsynced => {}
            Ok(_) => {
                watch.release();
                let error = watch.of_all.lock().take();
                error.inspect(|error| watch.fail_rest(error));
            }
            Err(error) => watch.fail_rest(&file_error(error)),
        }
        // A stopped unit may come back, one that has ended does not: what failed is another then.
        let stays = self.stop.is_cancelled() && self.removes.load(Ordering::Relaxed) == 0;
        if !stays && journal.exists() {
            free(&journal).await;
            self.remove_begun(round.spec, round.connections).await;
            // All of it is gone, or cannot be reached.
            let _ = std::fs::remove_file(journal);
        }
    }

    /// A job without files removes what its journal says was begun.
    async fn remove_begun(&self, spec: JobSpec, connections: Connections) {
        let spec = plan::without_files(spec);
        let silent = Arc::new(listing::Silent);
        let cleaning = job::run(spec, connections, silent, CancellationToken::default());
        if tokio::time::timeout(CLEANING_LIMIT, cleaning)
            .await
            .is_err()
        {
            tracing::warn!(
                unit = self.last.lease.unit,
                "temporary files stay at the destination"
            );
        }
    }

    /// A file that the client has not seen ended.
    fn tell_file(&self, lease: Lease, (index, bytes): (u64, u64), end: FileEnd) {
        let outcome = FileOutcome { index, bytes, end };
        if let Some(trace) = &self.trace {
            trace.file_ended(None, &outcome);
        }
        self.tell(Event::File(lease, outcome));
    }

    fn tell(&self, event: Event) {
        // The agent may be gone.
        let _ = self.last.events.send(event);
    }
}

/// Waits until a job that has ended lets go of its journal: threads of it may still end a read or a
/// write. To a later job it is in use, and what it says was begun is not for that job to remove.
async fn free(journal: &Path) {
    let is_held = || match File::open(journal) {
        Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => false,
    };
    let began = Instant::now();
    while is_held() && began.elapsed() < CLEANING_LIMIT {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An error that kept a run from its files. One that may be of a single file must not end the
/// others.
fn error_of_all(error: &Error, has_begun: bool) -> FileError {
    let is_of_access = match error {
        // A server that has let the user in before may be busy.
        Error::Login { .. } => !has_begun,
        _ => matches!(error, Error::Identity { .. } | Error::AddressRefused { .. }),
    };
    let error = file_error(error);
    FileError {
        may_pass: error.may_pass || !is_of_access,
        ..error
    }
}

/// Follows the files of one round.
struct Watch {
    lease: Lease,
    /// By their sources as events name them.
    files: Mutex<HashMap<String, plan::PlannedFile>>,
    /// The client names it where it could not begin with files.
    destination: String,
    /// Why it could not.
    of_all: Mutex<Option<FileError>>,
    /// Some file has ended.
    has_begun: AtomicBool,
    /// Outcomes that hold only once everything is synced.
    held_back: Option<Mutex<Vec<FileOutcome>>>,
    events: mpsc::UnboundedSender<Event>,
    progress: Arc<Progress>,
    trace: Option<Arc<UnitTrace>>,
}

impl Watch {
    /// `path` as of [`UnitTrace::file_ended`].
    fn ended(&self, path: Option<&str>, outcome: FileOutcome) {
        if let Some(trace) = &self.trace {
            trace.file_ended(path, &outcome);
        }
        let is_safe = !matches!(outcome.end, FileEnd::Finished { .. });
        match &self.held_back {
            Some(held_back) if !is_safe => held_back.lock().push(outcome),
            // The agent may be gone.
            _ => drop(self.events.send(Event::File(self.lease, outcome))),
        }
    }

    fn release(&self) {
        if let Some(held_back) = &self.held_back {
            for outcome in std::mem::take(&mut *held_back.lock()) {
                let _ = self.events.send(Event::File(self.lease, outcome));
            }
        }
    }

    /// Files of which the run has said nothing fail as the run did.
    fn fail_rest(&self, error: &FileError) {
        for (_, file) in std::mem::take(&mut *self.files.lock()) {
            let outcome = FileOutcome {
                index: file.index,
                bytes: 0,
                end: FileEnd::Failed(error.clone()),
            };
            self.ended(None, outcome);
        }
    }
}

impl Observer for Watch {
    fn on_event(&self, event: &ClientEvent) {
        if let Some(trace) = &self.trace {
            trace.on_event(event);
        }
        match event {
            ClientEvent::Warning { text } => tracing::warn!(unit = self.lease.unit, "{text}"),
            ClientEvent::Note { text } => tracing::info!(unit = self.lease.unit, "{text}"),
            _ => {}
        }
    }

    fn on_file(&self, path: &str, end: &events::FileEnd<'_>) {
        let Some(file) = self.files.lock().remove(path) else {
            if let events::FileEnd::Failed(error) = end
                && path == self.destination
            {
                self.of_all.lock().get_or_insert_with(|| {
                    error_of_all(error, self.has_begun.load(Ordering::Relaxed))
                });
            }
            return;
        };
        self.has_begun.store(true, Ordering::Relaxed);
        let (bytes, end) = match end {
            events::FileEnd::Done {
                bytes,
                size,
                checksum,
            } => (*bytes, file.finished(*size, *checksum)),
            // The run that has completed it has compared what the job compares.
            events::FileEnd::DoneBefore { size, checksum } => {
                let size = size.or(file.bytes).unwrap_or(0);
                let checksum = checksum.map(str::to_ascii_lowercase);
                (0, FileEnd::Finished { size, checksum })
            }
            events::FileEnd::Kept => (0, FileEnd::Skipped),
            events::FileEnd::Divisible(division) => (
                0,
                FileEnd::Divided(Division {
                    temporary: String::from_utf8_lossy(division.temporary).into_owned(),
                    size: division.size,
                    changed: division.changed,
                    upload: division.upload.map(|upload| DividedUpload {
                        known_as: upload.known_as.to_owned(),
                        part_bytes: upload.part_bytes,
                    }),
                }),
            ),
            events::FileEnd::Failed(error) => (0, FileEnd::Failed(file_error(error))),
        };
        let index = file.index;
        self.ended(Some(path), FileOutcome { index, bytes, end });
    }

    fn on_undivided(&self, path: &str, reason: &str) {
        if let Some(file) = self.files.lock().get(path) {
            let (index, reason) = (file.index, reason.to_owned());
            let undivided = Undivided { index, reason };
            // The agent may be gone.
            let _ = self.events.send(Event::Undivided(self.lease, undivided));
        }
    }

    fn on_progress(&self, progress: Option<&Snapshot>) {
        if let Some(progress) = progress {
            self.progress.observe(progress);
        }
    }
}
