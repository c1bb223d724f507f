//! One session that takes the next piece of work until there is none.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_proto::{ByteRange, FtpPath, pi::transfer::Direction};

use super::{
    Job,
    file_task::{FileTask, NextStep},
    piece_size::SessionRate,
    queue::{Priority, WorkItem},
    small_files::SmallFiles,
};
use crate::{
    endpoint::{Endpoint, capabilities::Observed, uploads::PartedUpload},
    error::{Error, Result},
    panics::{caught, caught_now, test_point},
    plan::PlanEntry,
    report::events::{DividedUpload, Event, FileEnd},
    session::{
        Session, SessionPair,
        retry::{AttemptError, Operation, RetryingSession},
    },
    setting_target::WorkerSlot,
    transfer::{
        pipeline::file::is_pipelinable,
        source_file::{SourceFile, is_device, is_worth_resuming},
    },
};

/// Time to remove what an interrupted put left at the server.
const CLEANING_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Worker {
    job: Arc<Job>,
    retrying: RetryingSession,
    /// Claimed ahead, so that the server can be asked for it before its turn: bytes of a file,
    /// `None` for all of it.
    next: Option<(Arc<FileTask>, Option<ByteRange>)>,
    /// Of the last piece of a get.
    session_rate: SessionRate,
    /// What let in no session for this worker.
    refused_by: Option<Arc<Endpoint>>,
}

/// Why a worker exited.
#[derive(Debug)]
pub(crate) enum WorkerExit {
    /// Nothing is left to do, or the user interrupted.
    Done,
    /// The target wants fewer, or all again.
    Surplus,
    /// The server lets no further session in.
    SessionLimit(Option<Arc<Endpoint>>),
}

impl Worker {
    pub(crate) fn new(job: Arc<Job>, place: WorkerSlot) -> Self {
        let mut retrying = RetryingSession::new(Arc::clone(&job.pool));
        // Where the server lets no further session in, the work is left to the others.
        retrying.requeue_on_session_limit = true;
        retrying.place = place;
        Self {
            job,
            retrying,
            next: None,
            session_rate: SessionRate::default(),
            refused_by: None,
        }
    }

    pub(crate) async fn run(mut self) -> WorkerExit {
        let exit = self.work().await;
        match self.next.take() {
            // What of it lies at the server already is kept or removed.
            Some((file, _))
                if file.leftover().is_some() && self.job.context.stop.is_cancelled() =>
            {
                self.on_piece_end(&file, Err(Error::Interrupted), Vec::new())
                    .await;
            }
            Some((file, Some(piece))) => {
                file.piece_done(Ok(0), vec![piece]);
                self.job.queue.piece_done();
            }
            // No other worker knows of it, and its temporary file is removed with it.
            Some((file, None)) => {
                let (source_file, leftover) = (file.source_file.clone(), file.leftover().cloned());
                drop(file);
                self.remove_leftovers(&source_file.endpoint, leftover.into_iter().collect())
                    .await;
                self.job.queue.give_back(PlanEntry::File(source_file));
            }
            None => {}
        }
        match exit {
            WorkerExit::Done => self.end().await,
            // What a later run finds may be one too many.
            WorkerExit::Surplus | WorkerExit::SessionLimit(_) => self.retrying.close().await,
        }
        exit
    }

    pub(super) async fn end(&mut self) {
        self.retrying.end().await;
    }

    async fn work(&mut self) -> WorkerExit {
        let job = Arc::clone(&self.job);
        let place = self.retrying.place;
        let mut target = job.context.target.subscribe();
        loop {
            if !job.context.stop.is_cancelled()
                && let Some((file, piece)) = self.next.take()
            {
                // What is left of a file that has failed would be moved for nothing.
                if file.has_failed() {
                    self.on_piece_end(&file, Ok(0), Vec::new()).await;
                } else if !self.piece(file, piece).await {
                    return WorkerExit::SessionLimit(self.refused_by.take());
                }
                continue;
            }
            let from = Priority::of(&job.context.target.now(), place);
            let task = tokio::select! {
                biased;
                () = job.context.stop.cancelled() => return WorkerExit::Done,
                _ = target.wait_for(|now| !now.includes(place)) => return WorkerExit::Surplus,
                task = job.queue.next_small(from, |file| job.fits_one_channel(file)),
                    if place.is_extra => match task {
                        Some(file) => Some(WorkItem::Begin(file)),
                        None => return WorkerExit::Surplus,
                    },
                task = job.queue.next(&job.sizer, self.session_rate, from), if !place.is_extra => {
                    task
                }
            };
            if task.is_some() {
                test_point("worker", &place.rank);
            }
            let goes_on = match task {
                None => return WorkerExit::Done,
                Some(WorkItem::Begin(PlanEntry::Failed { path, error })) => {
                    job.queue.setup_done(None);
                    job.file_failed(&path, 0.0, 0, &error);
                    true
                }
                Some(WorkItem::Begin(PlanEntry::File(source_file)))
                    if !job.admits(&source_file) =>
                {
                    job.queue.setup_done(None);
                    true
                }
                Some(WorkItem::Begin(PlanEntry::File(source_file))) => self.file(source_file).await,
                Some(WorkItem::Piece(file, piece)) => self.piece(file, piece).await,
                Some(WorkItem::Finish(file, moved)) => {
                    self.finish(&file, moved).await;
                    true
                }
            };
            if !goes_on {
                return WorkerExit::SessionLimit(self.refused_by.take());
            }
        }
    }

    /// Begins a file and moves its first piece, or it and others like it in a pipeline. False: this
    /// worker is one too many.
    async fn file(&mut self, source_file: SourceFile) -> bool {
        let job = Arc::clone(&self.job);
        let receives = &source_file.endpoint.capabilities;
        receives.record(Observed::MovesFiles);
        if let Some(sender) = source_file.sender() {
            sender.capabilities.record(Observed::SendsToServer);
        }
        let Some(source_file) = self.pipeline(source_file).await else {
            return true;
        };
        let path = source_file.source();
        let began = Instant::now();
        let step = Operation {
            sender: source_file.sender(),
            ..Operation::on(&source_file.endpoint, &path)
        };
        let session_rate = self.session_rate;
        let begin = async |session: &mut SessionPair| {
            test_point("begin", &path);
            let changed = Arc::clone(job.queue.changed());
            let file = FileTask::begin(session, source_file.clone(), &job.spec, changed).await?;
            let observer = job.context.reporter.observer();
            let upload = file.begin_divided(session, &job.spec).await?;
            let known_as = upload.as_ref().and_then(PartedUpload::known_as);
            let divided = upload.as_ref().zip(known_as.as_deref());
            let divided = divided.map(|(upload, known_as)| DividedUpload {
                known_as,
                part_bytes: upload.part_bytes,
            });
            match file.division(session, &job.spec, divided) {
                Some(Ok(division)) => {
                    observer.on_file(&path, &FileEnd::Divisible(division));
                    return Ok(None);
                }
                Some(Err(reason)) => observer.on_undivided(&path, &reason),
                None => {}
            }
            let (piece, shared) = file.first(session, &job.sizer, session_rate);
            Ok(Some((file, piece, shared)))
        };
        let begun = caught(
            || format!("begin {path}"),
            self.retrying.attempt_pair(step, begin),
        );
        let begun = begun.await.unwrap_or_else(|bug| {
            self.retrying.discard();
            Err(AttemptError::Failed(bug))
        });
        match begun {
            Ok(None) => {
                job.queue.setup_done(None);
                true
            }
            Ok(Some((file, piece, shared))) => {
                let file = Arc::new(file);
                self.report_resumed(&file);
                job.queue.setup_done(shared.then_some(&file));
                self.piece(file, piece).await
            }
            Err(AttemptError::SessionLimit(endpoint, error)) => {
                self.on_session_limit(endpoint, &error);
                job.queue.give_back(PlanEntry::File(source_file));
                false
            }
            Err(AttemptError::Failed(error)) => {
                job.queue.setup_done(None);
                job.file_failed(&path, began.elapsed().as_secs_f64(), 0, &error);
                true
            }
        }
    }

    /// Moves small files one behind the other, beginning with `source_file`; gives it back where
    /// that cannot be.
    async fn pipeline(&mut self, source_file: SourceFile) -> Option<SourceFile> {
        let job = Arc::clone(&self.job);
        let place = self.retrying.place;
        let endpoint = Arc::clone(&source_file.endpoint);
        let session = match self.retrying.open_session(&endpoint, source_file.sender()) {
            Some(session)
                if is_pipelinable(&source_file, &job.spec)
                    && job.spec.pipelining != Some(1)
                    && session.can_pipeline(&source_file) =>
            {
                session
            }
            _ => return Some(source_file),
        };
        let follows = source_file.sender().is_none()
            && (source_file.direction() == Direction::Put || session.server.features.next_channels);
        let mut feed = SmallFiles::new(&job, place, &source_file, follows);
        let pipeline = session.pipeline(source_file, &job.spec, &mut feed);
        match caught(|| "copy small files".to_owned(), pipeline).await {
            Ok(leavings) => {
                feed.give_back(leavings.returned);
                self.remove_leftovers(&endpoint, leavings.leftover).await;
            }
            Err(bug) => {
                self.retrying.discard();
                job.on_panic(bug);
            }
        }
        None
    }

    /// Removes temporary files that a pipeline left at the server.
    async fn remove_leftovers(&mut self, endpoint: &Arc<Endpoint>, leftover: Vec<FtpPath>) {
        if leftover.is_empty() {
            return;
        }
        let failed = if self.job.context.stop.is_cancelled() {
            self.remove_after_interrupt(endpoint, &leftover).await
        } else {
            let name = endpoint.name();
            let step = Operation {
                // Where a server has died, each idle session is found dead by one of them.
                attempts: Some(self.retrying.pool.attempts.max(2)),
                ..Operation::on(endpoint, &name)
            };
            let remove = async |session: &mut Session| session.remove_late_files(&leftover).await;
            self.attempt_here(step, remove).await
        };
        let (left, why) = match failed {
            Ok(failed) => match failed.into_iter().next() {
                None => return,
                Some((path, why)) => (path, why),
            },
            Err(why) => (leftover[0].clone(), why),
        };
        let what = endpoint.url(&left);
        let text = format!("{what}: left behind, cannot be removed: {why}");
        self.job.context.reporter.warn(text);
    }

    /// Moves a piece (`None`: all of the file). False: this worker is one too many.
    async fn piece(&mut self, file: Arc<FileTask>, piece: Option<ByteRange>) -> bool {
        let began = Instant::now();
        if let Some(session) = self
            .retrying
            .open_session(&file.endpoint, file.source_file.sender())
        {
            self.session_rate.round_trip = session.round_trip;
        }
        self.prefetch_next(&file);
        let carried = async {
            test_point("piece", &file.path);
            self.move_ranges(&file, vec![piece], true).await
        };
        let (outcome, moved, left) = match caught(|| format!("move {}", file.path), carried).await {
            Ok(carried) => carried,
            Err(bug) => {
                self.retrying.discard();
                (Err(AttemptError::Failed(bug)), 0, Vec::new())
            }
        };
        self.session_rate.rate_bps = rate(moved, began.elapsed());
        let mut goes_on = true;
        let outcome = match outcome {
            Ok(()) => Ok(moved),
            Err(AttemptError::Failed(error)) => {
                self.job.note_disk_full(&error);
                Err(error)
            }
            // Only whole files come without a range, and a worker that began one has a session.
            Err(AttemptError::SessionLimit(_, error)) if piece.is_none() => Err(error),
            Err(AttemptError::SessionLimit(endpoint, error)) => {
                self.on_session_limit(endpoint, &error);
                goes_on = false;
                Ok(moved)
            }
        };
        self.on_piece_end(&file, outcome, left).await;
        goes_on
    }

    /// A piece was moved, or as much of it as will be; `left` is for others.
    async fn on_piece_end(
        &mut self,
        file: &Arc<FileTask>,
        outcome: Result<u64>,
        left: Vec<ByteRange>,
    ) {
        match file.piece_done(outcome, left) {
            NextStep::Others => {}
            NextStep::Finish { moved } => self.hand_over(file, moved).await,
            NextStep::Discard { error, moved } => match file.refused_name(&error) {
                Some(source_file) => self.begin_again(file, source_file).await,
                None => self.discard(file, moved, &file.explain(error)).await,
            },
        }
        self.job.queue.piece_done();
    }

    /// Claims what comes after a piece of `file`, while this worker is wanted: more of it, or
    /// another file.
    fn prefetch_next(&mut self, file: &Arc<FileTask>) {
        let wanted = self.job.context.target.now().includes(self.retrying.place);
        let session = self
            .retrying
            .open_session(&file.endpoint, file.source_file.sender());
        if !wanted || !session.is_some_and(|session| file.is_pipelined(session)) {
            return;
        }
        let (job, session_rate) = (Arc::clone(&self.job), self.session_rate);
        self.next = match file.claim(&job.sizer, session_rate) {
            Some(piece) => Some((Arc::clone(file), Some(piece))),
            None => self.prefetch_other(file),
        };
        if let Some((file, piece)) = &self.next {
            file.will_move(*piece);
        }
    }

    fn prefetch_other(&mut self, file: &FileTask) -> Option<(Arc<FileTask>, Option<ByteRange>)> {
        let (job, place) = (Arc::clone(&self.job), self.retrying.place);
        let session = self.retrying.open_session(&file.endpoint, None)?;
        if file.finish_asks(session) && !job.verifier.has_room() {
            return None;
        }
        let fits = |source_file: &SourceFile| {
            source_file.direction() == file.source_file.direction()
                && source_file.sender().is_none()
                && source_file.size.is_some()
                && Arc::ptr_eq(&source_file.endpoint, &file.endpoint)
                && session.trusts_name(&source_file.remote)
                && source_file.begun.is_none()
                && !is_device(&source_file.remote)
                && !source_file
                    .endpoint
                    .capabilities
                    .may_be_closed(&source_file.remote)
                && !is_pipelinable(source_file, &job.spec)
                && !job.spec.divides(source_file.size)
        };
        let from = Priority::of(&job.context.target.now(), place);
        let source_file = match job.queue.ahead(&job.sizer, self.session_rate, from, fits)? {
            WorkItem::Piece(file, piece) => return Some((file, piece)),
            WorkItem::Begin(PlanEntry::File(source_file)) => source_file,
            WorkItem::Begin(_) | WorkItem::Finish(..) => return None,
        };
        let changed = Arc::clone(job.queue.changed());
        let begin = || {
            test_point("begin", &source_file.source());
            FileTask::begin_ahead(session, source_file.clone(), &job.spec, changed)
        };
        match caught_now(|| format!("begin {}", source_file.source()), begin)
            .and_then(|begun| begun)
        {
            Ok(file) => {
                let (piece, shared) = file.first(session, &job.sizer, self.session_rate);
                let file = Arc::new(file);
                job.queue.setup_done(shared.then_some(&file));
                Some((file, piece))
            }
            Err(error) => {
                job.queue.setup_done(None);
                job.file_failed(&source_file.source(), 0.0, 0, &error);
                None
            }
        }
    }

    /// Moves bytes until all pieces are there or one was cut short, keeping what failed attempts
    /// brought. Tells how many were moved and what is left. With `ahead` the server hears of what
    /// comes next while the last is moved.
    async fn move_ranges(
        &mut self,
        file: &Arc<FileTask>,
        pieces: Vec<Option<ByteRange>>,
        ahead: bool,
    ) -> (std::result::Result<(), AttemptError>, u64, Vec<ByteRange>) {
        let counters = Arc::clone(&self.job.context.counters);
        let step = Operation {
            range: match pieces[..] {
                [piece] => piece,
                _ => None,
            },
            // What came from standard input is gone, and what went to standard output cannot be
            // called back.
            attempts: file.is_stream().then_some(1),
            ..file.operation()
        };
        let mut todo = pieces;
        todo.reverse();
        let total = Cell::new(0);
        let next = self.next.as_ref().filter(|_| ahead);
        let mut again = false;
        let mut move_ranges = async |session: &mut SessionPair| {
            let in_vain = file.prefetch_wasted(session);
            if std::mem::replace(&mut again, true) || in_vain {
                let resumed_bytes = file.find_resumable(session, &mut todo).await?;
                total.set(total.get() + resumed_bytes);
                counters
                    .bytes_moved
                    .fetch_add(resumed_bytes, Ordering::Relaxed);
            }
            while let Some(rest) = todo.pop() {
                let next = next.filter(|_| todo.is_empty());
                let next = next.and_then(|(file, piece)| file.prefetch(session, *piece));
                let carried = file.move_range(session, rest, next).await;
                total.set(total.get() + carried.moved);
                counters
                    .bytes_moved
                    .fetch_add(carried.moved, Ordering::Relaxed);
                let cut_short = !carried.left.is_empty();
                todo.extend(carried.left.into_iter().rev());
                carried.result?;
                if cut_short {
                    break;
                }
            }
            Ok(())
        };
        let outcome = loop {
            let before = total.get();
            let outcome = self.retrying.attempt_pair(step, &mut move_ranges).await;
            // Attempts are for a range, and what is left is another one. A bucket alone takes and
            // gives all in ranges.
            let goes_on = file.endpoint.is_bucket() && total.get() > before;
            match &outcome {
                Err(AttemptError::Failed(error)) if goes_on && error.may_pass() => {}
                _ => break outcome,
            }
        };
        (outcome, total.get(), todo.into_iter().flatten().collect())
    }

    /// All bytes of a file are there: finishes it, or leaves that to the finisher where there is
    /// more to move.
    async fn hand_over(&mut self, file: &Arc<FileTask>, moved: u64) {
        let job = Arc::clone(&self.job);
        let waits = || file.source_file.direction() == Direction::Put && job.queue.has_files();
        let goes_on = self.next.is_some() || job.verifier.has_room() && waits();
        let asks = match self
            .retrying
            .open_session(&file.endpoint, file.source_file.sender())
        {
            Some(session) => file.finish_asks(session),
            None => false,
        };
        if !(goes_on && asks && job.verifier.take(Arc::clone(file), moved)) {
            self.finish(file, moved).await;
        }
    }

    async fn finish(&mut self, file: &Arc<FileTask>, moved: u64) {
        let requeue_on_session_limit =
            std::mem::replace(&mut self.retrying.requeue_on_session_limit, false);
        self.try_finish(file, moved).await;
        self.retrying.requeue_on_session_limit = requeue_on_session_limit;
    }

    /// Checks a file and gives it its name. False where that was left alone, since the server lets
    /// no further session in.
    pub(super) async fn try_finish(&mut self, file: &Arc<FileTask>, moved: u64) -> bool {
        let (mut moved, mut repairs) = (moved, 0);
        loop {
            let finish = async |session: &mut SessionPair| {
                test_point("finish", &file.path);
                match file.finish(session, moved).await {
                    // Another look shows the same.
                    Err(error @ Error::Size { .. }) => Ok(Err(error)),
                    finished => finished.map(Ok),
                }
            };
            let finished = caught(
                || format!("finish {}", file.path),
                self.retrying.attempt_pair(file.operation(), finish),
            );
            let finished = finished.await.unwrap_or_else(|bug| {
                self.retrying.discard();
                Err(AttemptError::Failed(bug))
            });
            let error = match finished {
                Ok(Err(error)) => file.explain(error),
                Ok(Ok(agreed)) => {
                    let seconds = file.began.elapsed().as_secs_f64();
                    let bytes = (moved, file.length().unwrap_or(moved));
                    self.job
                        .file_done(&file.source_file, seconds, bytes, agreed);
                    return true;
                }
                Err(AttemptError::SessionLimit(..)) if repairs == 0 => return false,
                Err(AttemptError::SessionLimit(_, error) | AttemptError::Failed(error)) => {
                    file.explain(error)
                }
            };
            if let Some(source_file) = file.refused_rename(&error) {
                self.begin_again(file, source_file).await;
                return true;
            }
            let Some(bad) = file.to_repair(&error, repairs) else {
                self.discard(file, moved, &error).await;
                return true;
            };
            repairs += 1;
            self.report_repair(file, &bad, repairs, &error);
            let carried = caught(
                || format!("repair {}", file.path),
                self.move_all_ranges(file, bad),
            );
            let (outcome, again) = carried.await.unwrap_or_else(|bug| {
                self.retrying.discard();
                (Err(AttemptError::Failed(bug)), 0)
            });
            moved += again;
            if let Err(error) = outcome {
                self.discard(file, moved, &error.into()).await;
                return true;
            }
        }
    }

    /// Moves pieces, also when this worker is wanted no more: no other worker knows of them.
    async fn move_all_ranges(
        &mut self,
        file: &Arc<FileTask>,
        mut pieces: Vec<Option<ByteRange>>,
    ) -> (std::result::Result<(), AttemptError>, u64) {
        let mut total = 0;
        loop {
            let (outcome, moved, left) = self.move_ranges(file, pieces, false).await;
            total += moved;
            if outcome.is_err() || left.is_empty() {
                return (outcome, total);
            }
            pieces = left.into_iter().map(Some).collect();
        }
    }

    /// Of what an earlier run has begun, how much is right.
    fn report_resumed(&self, file: &FileTask) {
        if file.source_file.begun.is_none() || file.source_file.is_assembled {
            return;
        }
        let context = &self.job.context;
        let (resumed_bytes, path) = (file.resumed_bytes(), &file.path);
        context.counters.moved(resumed_bytes);
        context.reporter.note(match resumed_bytes {
            0 => {
                format!("{path}: nothing of what an earlier run has left can be used: starts again")
            }
            _ => format!("{path}: {resumed_bytes} bytes are there from an earlier run"),
        });
    }

    /// Bytes of a file differ and are moved again.
    fn report_repair(
        &self,
        file: &FileTask,
        bad: &[Option<ByteRange>],
        attempt: u32,
        error: &Error,
    ) {
        let context = &self.job.context;
        for range in bad {
            let bytes = range.map(ByteRange::len).or(file.length());
            let found = &context.counters.bytes_found;
            found.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
            context.reporter.emit(&Event::Retry {
                path: file.path.clone(),
                range: range.map(|r| [r.start, r.end]),
                attempt,
                error: error.to_string(),
            });
        }
    }

    /// Reports a failed file, and removes what it left at the server.
    async fn discard(&mut self, file: &Arc<FileTask>, moved: u64, error: &Error) {
        let job = &self.job;
        if job.context.local.journal.get().is_some()
            && is_worth_resuming(&file.source_file, job.spec.part)
            && file.is_resumable(error)
        {
            file.keep();
            let text = format!(
                "{}: the same command goes on where this one ends",
                file.path
            );
            job.context.reporter.note(text);
        }
        if matches!(error, Error::Kept { .. }) {
            file.keep();
        }
        self.remove_leftover(file).await;
        let seconds = file.began.elapsed().as_secs_f64();
        self.job.file_failed(&file.path, seconds, moved, error);
    }

    /// The server refused the name of a file, which is begun under another one.
    async fn begin_again(&mut self, file: &FileTask, source_file: SourceFile) {
        self.remove_leftover(file).await;
        self.job.queue.begin_again(PlanEntry::File(source_file));
    }

    /// Removes what a file that failed has left at the server.
    async fn remove_leftover(&mut self, file: &FileTask) {
        if let Some(leftover) = file.leftover() {
            let what = file.endpoint.url(leftover);
            let removed = if self.job.context.stop.is_cancelled() {
                let one = std::slice::from_ref(leftover);
                let failed = self.remove_after_interrupt(&file.endpoint, one).await;
                failed.and_then(|failed| failed.into_iter().next().map_or(Ok(()), |(_, e)| Err(e)))
            } else {
                let step = Operation {
                    attempts: Some(2),
                    ..Operation::on(&file.endpoint, &file.path)
                };
                let remove = async |session: &mut Session| session.remove_file(leftover).await;
                self.attempt_here(step, remove).await
            };
            if let Err(why) = removed
                && !why.is_absent()
            {
                let text = format!("{what}: left behind, cannot be removed: {why}");
                self.job.context.reporter.warn(text);
            }
        }
    }

    /// With a session of its own: the one that was interrupted owes a reply.
    async fn remove_after_interrupt(
        &self,
        endpoint: &Arc<Endpoint>,
        leftover: &[FtpPath],
    ) -> Result<Vec<(FtpPath, Error)>> {
        let pool = &self.job.pool;
        let remove = async {
            let params = pool.params.clone();
            let mut session = Session::open_undisturbed(&pool.context, endpoint, params).await?;
            session.remove_late_files(leftover).await
        };
        tokio::time::timeout(CLEANING_LIMIT, remove)
            .await
            .unwrap_or(Err(Error::Interrupted))
    }

    /// For what no other worker can do.
    async fn attempt_here<T>(
        &mut self,
        step: Operation<'_>,
        body: impl AsyncFnMut(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let requeue_on_session_limit =
            std::mem::replace(&mut self.retrying.requeue_on_session_limit, false);
        let outcome = self.retrying.attempt(step, body).await;
        self.retrying.requeue_on_session_limit = requeue_on_session_limit;
        Ok(outcome?)
    }

    fn on_session_limit(&mut self, endpoint: Arc<Endpoint>, error: &Error) {
        self.refused_by = Some(endpoint);
        let text = format!("no further session, continuing with the open ones: {error}");
        self.job.context.reporter.note(text);
    }
}

/// One of several workers begins at the large end.
#[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a rate
fn rate(bytes: u64, time: Duration) -> Option<f64> {
    (bytes > 0 && !time.is_zero()).then(|| bytes as f64 * 8.0 / time.as_secs_f64())
}
