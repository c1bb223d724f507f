//! One session that takes the next piece of work until there is none.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_proto::{ByteRange, FtpPath, pi::transfer::Direction};

use super::{
    Job,
    feed::SmallFiles,
    file::{After, FileJob},
    queue::{End, Task},
};
use crate::{
    carrier::{Carrier, Setback, Step},
    context::{Endpoint, Place},
    error::{Error, Result},
    events::Event,
    flight::is_small,
    panics::{caught, caught_now, test_point},
    pieces::Speed,
    plan::{Item, Planned, is_device, is_worth_taking_up},
    session::Session,
};

/// Time to remove what an interrupted put left at the server.
const CLEANING_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Worker {
    job: Arc<Job>,
    carrier: Carrier,
    /// Claimed ahead, so that the server can be asked for it before its turn.
    next: Option<Ahead>,
    /// Of the last piece of a get.
    speed: Speed,
    /// What let in no session for this worker.
    refused_by: Option<Arc<Endpoint>>,
}

/// Bytes that are moved next.
struct Ahead {
    file: Arc<FileJob>,
    /// `None`: all of it.
    piece: Option<ByteRange>,
}

/// Why a worker went home.
#[derive(Debug)]
pub(crate) enum Farewell {
    /// Nothing is left to do, or the user interrupted.
    Over,
    /// The target wants fewer, or all anew.
    Spare,
    /// The server lets no further session in.
    Crowded(Option<Arc<Endpoint>>),
}

impl Worker {
    pub(crate) fn new(job: Arc<Job>, place: Place) -> Self {
        let mut carrier = Carrier::new(Arc::clone(&job.pool));
        // Where the server lets no further session in, the work is left to the others.
        carrier.may_yield = true;
        carrier.place = place;
        Self {
            job,
            carrier,
            next: None,
            speed: Speed::default(),
            refused_by: None,
        }
    }

    pub(crate) async fn run(mut self) -> Farewell {
        let farewell = self.work().await;
        match self.next.take() {
            // What of it lies at the server already is kept or removed.
            Some(Ahead { file, .. })
                if file.rubbish().is_some() && self.job.context.stop.is_set() =>
            {
                self.piece_over(&file, Err(Error::Interrupted), Vec::new())
                    .await;
            }
            Some(Ahead {
                file,
                piece: Some(piece),
            }) => {
                file.piece_done(Ok(0), vec![piece]);
                self.job.queue.piece_done();
            }
            // Nobody else has heard of it, and its temporary file goes with it.
            Some(Ahead { file, piece: None }) => {
                let (item, rubbish) = (file.item.clone(), file.rubbish().cloned());
                drop(file);
                self.tidy(&item.endpoint, rubbish.into_iter().collect())
                    .await;
                self.job.queue.give_back(Planned::File(item));
            }
            None => {}
        }
        self.carrier.close().await;
        farewell
    }

    pub(super) async fn close(&mut self) {
        self.carrier.close().await;
    }

    async fn work(&mut self) -> Farewell {
        let job = Arc::clone(&self.job);
        let place = self.carrier.place;
        let mut target = job.context.target.subscribe();
        loop {
            if !job.context.stop.is_set()
                && let Some(Ahead { file, piece }) = self.next.take()
            {
                // What is left of a file that has failed would be moved for nothing.
                if file.has_failed() {
                    self.piece_over(&file, Ok(0), Vec::new()).await;
                } else if !self.piece(file, piece).await {
                    return Farewell::Crowded(self.refused_by.take());
                }
                continue;
            }
            let task = tokio::select! {
                biased;
                () = job.context.stop.wait() => return Farewell::Over,
                _ = target.wait_for(|target| !target.wants(place)) => return Farewell::Spare,
                task = job.queue.next(&job.cutter, self.speed, end_of(&job, place)) => task,
            };
            if task.is_some() {
                test_point("worker", &place.rank);
            }
            let goes_on = match task {
                None => return Farewell::Over,
                Some(Task::Begin(Planned::Failed { path, error })) => {
                    job.queue.decided(None);
                    job.file_failed(&path, 0.0, 0, &error);
                    true
                }
                Some(Task::Begin(Planned::File(item))) if !job.lets_begin(&item) => {
                    job.queue.decided(None);
                    true
                }
                Some(Task::Begin(Planned::File(item))) => self.file(item).await,
                Some(Task::Piece(file, piece)) => self.piece(file, Some(piece)).await,
                Some(Task::Finish(file, moved)) => {
                    self.finish(&file, moved).await;
                    true
                }
            };
            if !goes_on {
                return Farewell::Crowded(self.refused_by.take());
            }
        }
    }

    /// Begins a file and moves its first piece, or it and others like it in a pipeline. False: this
    /// worker is one too many.
    async fn file(&mut self, item: Item) -> bool {
        let job = Arc::clone(&self.job);
        let receives = &item.endpoint.learned;
        receives.has_files.store(true, Ordering::Relaxed);
        if let Some(sender) = item.sender() {
            sender.learned.sends_files.store(true, Ordering::Relaxed);
        }
        let Some(item) = self.pipeline(item).await else {
            return true;
        };
        let path = item.source();
        let began = Instant::now();
        let step = Step {
            endpoint: &item.endpoint,
            sender: item.sender(),
            path: &path,
            range: None,
            attempts: None,
        };
        let speed = self.speed;
        let begin = async |session: &mut Session| {
            test_point("begin", &path);
            let changed = Arc::clone(job.queue.changed());
            let file = FileJob::begin(session, item.clone(), &job.spec, changed).await?;
            let (piece, shared) = file.first(session, &job.cutter, speed);
            Ok((file, piece, shared))
        };
        let begun = caught(
            || format!("begin {path}"),
            self.carrier.attempt(step, begin),
        );
        let begun = begun.await.unwrap_or_else(|bug| {
            self.carrier.discard();
            Err(Setback::Failed(bug))
        });
        match begun {
            Ok((file, piece, shared)) => {
                let file = Arc::new(file);
                self.tell_taken_up(&file);
                job.queue.decided(shared.then_some(&file));
                self.piece(file, piece).await
            }
            Err(Setback::Crowded(endpoint, error)) => {
                self.one_too_many(endpoint, &error);
                job.queue.give_back(Planned::File(item));
                false
            }
            Err(Setback::Failed(error)) => {
                job.queue.decided(None);
                job.file_failed(&path, began.elapsed().as_secs_f64(), 0, &error);
                true
            }
        }
    }

    /// Moves small files one behind the other, beginning with `item`; gives it back where that
    /// cannot be.
    async fn pipeline(&mut self, item: Item) -> Option<Item> {
        let job = Arc::clone(&self.job);
        let place = self.carrier.place;
        let endpoint = Arc::clone(&item.endpoint);
        let session = match self.carrier.open_session(&endpoint, item.sender()) {
            Some(session)
                if is_small(&item, &job.spec)
                    && job.spec.pipelining != Some(1)
                    && session.can_pipeline(&item) =>
            {
                session
            }
            _ => return Some(item),
        };
        let follows = item.sender().is_none()
            && (item.direction() == Direction::Put || session.server.features.next_channels);
        let mut feed = SmallFiles::new(&job, place, &item, follows);
        let pipeline = session.pipeline(item, &job.spec, &mut feed);
        match caught(|| "copy small files".to_owned(), pipeline).await {
            Ok(leavings) => {
                feed.give_back(leavings.returned);
                self.tidy(&endpoint, leavings.rubbish).await;
            }
            Err(bug) => {
                self.carrier.discard();
                job.found_bug(bug);
            }
        }
        None
    }

    /// Removes temporary files that a pipeline left at the server.
    async fn tidy(&mut self, endpoint: &Arc<Endpoint>, rubbish: Vec<FtpPath>) {
        if rubbish.is_empty() {
            return;
        }
        let failed = if self.job.context.stop.is_set() {
            self.remove_after_interrupt(endpoint, &rubbish).await
        } else {
            let step = Step {
                endpoint,
                sender: None,
                path: &endpoint.name(),
                range: None,
                // Where a server has died, each idle session is found dead by one of them.
                attempts: Some(self.carrier.pool.attempts.max(2)),
            };
            let remove = async |session: &mut Session| session.remove_files(&rubbish).await;
            self.without_yielding(step, remove).await
        };
        let (left, why) = match failed {
            Ok(failed) => match failed.into_iter().next() {
                None => return,
                Some((path, why)) => (path, why),
            },
            Err(why) => (rubbish[0].clone(), why),
        };
        let what = endpoint.url(&left);
        let text = format!("{what}: left behind, cannot be removed: {why}");
        self.job.context.warn(text);
    }

    /// Moves a piece (`None`: all of the file). False: this worker is one too many.
    async fn piece(&mut self, file: Arc<FileJob>, piece: Option<ByteRange>) -> bool {
        let began = Instant::now();
        if let Some(session) = self
            .carrier
            .open_session(&file.endpoint, file.item.sender())
        {
            self.speed.round_trip = session.round_trip;
        }
        self.look_ahead(&file);
        let carried = async {
            test_point("piece", &file.path);
            self.carry(&file, vec![piece], true).await
        };
        let (outcome, moved, left) = match caught(|| format!("move {}", file.path), carried).await {
            Ok(carried) => carried,
            Err(bug) => {
                self.carrier.discard();
                (Err(Setback::Failed(bug)), 0, Vec::new())
            }
        };
        self.speed.rate_bps = rate(moved, began.elapsed());
        let mut goes_on = true;
        let outcome = match outcome {
            Ok(()) => Ok(moved),
            Err(Setback::Failed(error)) => {
                self.job.heed(&error);
                Err(error)
            }
            // Only whole files come without a range, and whoever has begun one has a session.
            Err(Setback::Crowded(_, error)) if piece.is_none() => Err(error),
            Err(Setback::Crowded(endpoint, error)) => {
                self.one_too_many(endpoint, &error);
                goes_on = false;
                Ok(moved)
            }
        };
        self.piece_over(&file, outcome, left).await;
        goes_on
    }

    /// A piece was moved, or as much of it as will be; `left` is for others.
    async fn piece_over(
        &mut self,
        file: &Arc<FileJob>,
        outcome: Result<u64>,
        left: Vec<ByteRange>,
    ) {
        match file.piece_done(outcome, left) {
            After::Others => {}
            After::Finish { moved } => self.leave(file, moved).await,
            After::Discard { error, .. } if file.refused_name(&self.job.context, &error) => {
                self.job.queue.begin_again(Planned::File(file.item.clone()));
            }
            After::Discard { error, moved } => self.discard(file, moved, &error).await,
        }
        self.job.queue.piece_done();
    }

    /// Claims what comes after a piece of `file`, while this worker is wanted: more of it, or
    /// another file.
    fn look_ahead(&mut self, file: &Arc<FileJob>) {
        let wanted = self.job.context.target.borrow().wants(self.carrier.place);
        let session = self
            .carrier
            .open_session(&file.endpoint, file.item.sender());
        if !wanted || !session.is_some_and(|session| file.is_pipelined(session)) {
            return;
        }
        let (job, speed) = (Arc::clone(&self.job), self.speed);
        self.next = match file.claim(&job.cutter, speed) {
            Some(piece) => Some(Ahead {
                file: Arc::clone(file),
                piece: Some(piece),
            }),
            None => self.look_at_others(file),
        };
        if let Some(Ahead { file, piece }) = &self.next {
            file.will_carry(*piece);
        }
    }

    fn look_at_others(&mut self, file: &FileJob) -> Option<Ahead> {
        let (job, place) = (Arc::clone(&self.job), self.carrier.place);
        let session = self.carrier.open_session(&file.endpoint, None)?;
        if file.finish_asks(session) && !job.finisher.has_room() {
            return None;
        }
        let fits = |item: &Item| {
            item.direction() == file.item.direction()
                && item.sender().is_none()
                && item.size.is_some()
                && Arc::ptr_eq(&item.endpoint, &file.endpoint)
                && session.trusts_name(&item.remote)
                && item.begun.is_none()
                && !is_device(&item.remote)
                && !item.endpoint.learned.may_be_closed(&item.remote)
                && !is_small(item, &job.spec)
        };
        let from = end_of(&job, place);
        let item = match job.queue.ahead(&job.cutter, self.speed, from, fits)? {
            Task::Piece(file, piece) => {
                let piece = Some(piece);
                return Some(Ahead { file, piece });
            }
            Task::Begin(Planned::File(item)) => item,
            Task::Begin(_) | Task::Finish(..) => return None,
        };
        let changed = Arc::clone(job.queue.changed());
        let begin = || {
            test_point("begin", &item.source());
            FileJob::begin_ahead(session, item.clone(), &job.spec, changed)
        };
        match caught_now(|| format!("begin {}", item.source()), begin).and_then(|begun| begun) {
            Ok(file) => {
                let (piece, shared) = file.first(session, &job.cutter, self.speed);
                let file = Arc::new(file);
                job.queue.decided(shared.then_some(&file));
                Some(Ahead { file, piece })
            }
            Err(error) => {
                job.queue.decided(None);
                job.file_failed(&item.source(), 0.0, 0, &error);
                None
            }
        }
    }

    /// Moves bytes until all pieces are there or one was cut short, keeping what failed attempts
    /// brought. Tells how many were moved and what is left. With `ahead` the server hears of what
    /// comes next while the last is moved.
    async fn carry(
        &mut self,
        file: &Arc<FileJob>,
        pieces: Vec<Option<ByteRange>>,
        ahead: bool,
    ) -> (std::result::Result<(), Setback>, u64, Vec<ByteRange>) {
        let counters = Arc::clone(&self.job.context.counters);
        let step = Step {
            endpoint: &file.endpoint,
            sender: file.item.sender(),
            path: &file.path,
            range: match pieces[..] {
                [piece] => piece,
                _ => None,
            },
            // What came from standard input is gone, and what went to standard output cannot be
            // called back.
            attempts: file.is_stream().then_some(1),
        };
        let mut todo = pieces;
        todo.reverse();
        let mut total = 0;
        let next = self.next.as_ref().filter(|_| ahead);
        let mut again = false;
        let carry = async |session: &mut Session| {
            let in_vain = file.went_ahead_in_vain(session);
            if std::mem::replace(&mut again, true) || in_vain {
                let there = file.take_up(session, &mut todo).await?;
                total += there;
                counters.bytes_moved.fetch_add(there, Ordering::Relaxed);
            }
            while let Some(rest) = todo.pop() {
                let next = next.filter(|_| todo.is_empty());
                let next = next.and_then(|next| next.file.ahead(session, next.piece));
                let carried = file.carry(session, rest, next).await;
                total += carried.moved;
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
        let outcome = self.carrier.attempt(step, carry).await;
        (outcome, total, todo.into_iter().flatten().collect())
    }

    /// All bytes of a file are there: finishes it, or leaves that to the finisher where there is
    /// more to move.
    async fn leave(&mut self, file: &Arc<FileJob>, moved: u64) {
        let job = Arc::clone(&self.job);
        let waits = || file.item.direction() == Direction::Put && job.queue.has_files();
        let goes_on = self.next.is_some() || job.finisher.has_room() && waits();
        let asks = match self
            .carrier
            .open_session(&file.endpoint, file.item.sender())
        {
            Some(session) => file.finish_asks(session),
            None => false,
        };
        if !(goes_on && asks && job.finisher.take(Arc::clone(file), moved)) {
            self.finish(file, moved).await;
        }
    }

    async fn finish(&mut self, file: &Arc<FileJob>, moved: u64) {
        let may_yield = std::mem::replace(&mut self.carrier.may_yield, false);
        self.try_finish(file, moved).await;
        self.carrier.may_yield = may_yield;
    }

    /// Checks a file and gives it its name. False where that was left alone, since the server lets
    /// no further session in.
    pub(super) async fn try_finish(&mut self, file: &Arc<FileJob>, moved: u64) -> bool {
        let step = Step {
            endpoint: &file.endpoint,
            sender: file.item.sender(),
            path: &file.path,
            range: None,
            attempts: None,
        };
        let (mut moved, mut repairs) = (moved, 0);
        loop {
            let finish = async |session: &mut Session| {
                test_point("finish", &file.path);
                file.finish(session, moved).await
            };
            let finished = caught(
                || format!("finish {}", file.path),
                self.carrier.attempt(step, finish),
            );
            let finished = finished.await.unwrap_or_else(|bug| {
                self.carrier.discard();
                Err(Setback::Failed(bug))
            });
            let error = match finished {
                Ok(agreed) => {
                    let seconds = file.began.elapsed().as_secs_f64();
                    let bytes = (moved, file.length().unwrap_or(moved));
                    self.job.file_done(&file.item, seconds, bytes, agreed);
                    return true;
                }
                Err(Setback::Crowded(..)) if repairs == 0 => return false,
                Err(Setback::Crowded(_, error) | Setback::Failed(error)) => file.explain(error),
            };
            let Some(bad) = file.to_repair(&error, repairs) else {
                self.discard(file, moved, &error).await;
                return true;
            };
            repairs += 1;
            self.tell_repair(file, &bad, repairs, &error);
            let carried = caught(
                || format!("repair {}", file.path),
                self.carry_all(file, bad),
            );
            let (outcome, again) = carried.await.unwrap_or_else(|bug| {
                self.carrier.discard();
                (Err(Setback::Failed(bug)), 0)
            });
            moved += again;
            if let Err(setback) = outcome {
                self.discard(file, moved, &setback.into()).await;
                return true;
            }
        }
    }

    /// Moves pieces, also when this worker is wanted no more: nobody else knows of them.
    async fn carry_all(
        &mut self,
        file: &Arc<FileJob>,
        mut pieces: Vec<Option<ByteRange>>,
    ) -> (std::result::Result<(), Setback>, u64) {
        let mut total = 0;
        loop {
            let (outcome, moved, left) = self.carry(file, pieces, false).await;
            total += moved;
            if outcome.is_err() || left.is_empty() {
                return (outcome, total);
            }
            pieces = left.into_iter().map(Some).collect();
        }
    }

    /// Of what an earlier run has begun, how much is right.
    fn tell_taken_up(&self, file: &FileJob) {
        if file.item.begun.is_none() {
            return;
        }
        let context = &self.job.context;
        let (there, path) = (file.there(), &file.path);
        context.counters.moved(there);
        context.note(match there {
            0 => {
                format!("{path}: nothing of what an earlier run has left can be used: begins anew")
            }
            _ => format!("{path}: {there} bytes are there from an earlier run"),
        });
    }

    /// Bytes of a file differ and are moved again.
    fn tell_repair(&self, file: &FileJob, bad: &[Option<ByteRange>], attempt: u32, error: &Error) {
        let context = &self.job.context;
        for range in bad {
            let bytes = range.map(ByteRange::len).or(file.length());
            let found = &context.counters.bytes_found;
            found.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
            context.emit(&Event::Retry {
                path: file.path.clone(),
                range: range.map(|r| [r.start, r.end]),
                attempt,
                error: error.to_string(),
            });
        }
    }

    /// Reports a failed file, and removes what it left at the server.
    async fn discard(&mut self, file: &Arc<FileJob>, moved: u64, error: &Error) {
        let job = &self.job;
        if job.context.journal.get().is_some()
            && is_worth_taking_up(&file.item, job.spec.part)
            && file.can_be_taken_up(error)
        {
            file.keep();
            let text = format!(
                "{}: the same command goes on where this one ends",
                file.path
            );
            job.context.note(text);
        }
        if matches!(error, Error::Kept { .. }) {
            file.keep();
        }
        if let Some(rubbish) = file.rubbish() {
            let what = file.endpoint.url(rubbish);
            let removed = if self.job.context.stop.is_set() {
                let one = std::slice::from_ref(rubbish);
                let failed = self.remove_after_interrupt(&file.endpoint, one).await;
                failed.and_then(|failed| failed.into_iter().next().map_or(Ok(()), |(_, e)| Err(e)))
            } else {
                let step = Step {
                    endpoint: &file.endpoint,
                    sender: None,
                    path: &file.path,
                    range: None,
                    attempts: Some(2),
                };
                let remove = async |session: &mut Session| session.remove_file(rubbish).await;
                self.without_yielding(step, remove).await
            };
            if let Err(why) = removed
                && !why.is_absent()
            {
                let text = format!("{what}: left behind, cannot be removed: {why}");
                self.job.context.warn(text);
            }
        }
        let seconds = file.began.elapsed().as_secs_f64();
        self.job.file_failed(&file.path, seconds, moved, error);
    }

    /// With a session of its own: the one that was interrupted owes a reply.
    async fn remove_after_interrupt(
        &self,
        endpoint: &Arc<Endpoint>,
        rubbish: &[FtpPath],
    ) -> Result<Vec<(FtpPath, Error)>> {
        let pool = &self.job.pool;
        let remove = async {
            let params = pool.params.clone();
            let mut session = Session::open_undisturbed(&pool.context, endpoint, params).await?;
            session.remove_files(rubbish).await
        };
        tokio::time::timeout(CLEANING_LIMIT, remove)
            .await
            .unwrap_or(Err(Error::Interrupted))
    }

    /// For what nobody else can do in our place.
    async fn without_yielding<T>(
        &mut self,
        step: Step<'_>,
        body: impl AsyncFnMut(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let may_yield = std::mem::replace(&mut self.carrier.may_yield, false);
        let outcome = self.carrier.attempt(step, body).await;
        self.carrier.may_yield = may_yield;
        Ok(outcome?)
    }

    fn one_too_many(&mut self, endpoint: Arc<Endpoint>, error: &Error) {
        self.refused_by = Some(endpoint);
        let text = format!("no further session, going on with those there are: {error}");
        self.job.context.note(text);
    }
}

/// One of several workers begins at the large end.
pub(super) fn end_of(job: &Job, place: Place) -> End {
    let several = job.context.target.borrow().setting.concurrency > 1;
    if several && place.rank == 0 {
        End::Large
    } else {
        End::Any
    }
}

#[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a rate
fn rate(bytes: u64, time: Duration) -> Option<f64> {
    (bytes > 0 && !time.is_zero()).then(|| bytes as f64 * 8.0 / time.as_secs_f64())
}
