//! One session that takes the next piece of work until there is none.

use std::{sync::Arc, time::Duration};

use godwit_proto::{ByteRange, RangeSet};

use super::{
    Job,
    file::{After, FileJob},
    queue::Task,
};
use crate::{
    carrier::{Carrier, Setback, Step},
    error::{Error, Result},
    plan::{Item, Planned},
    session::Session,
};

/// Time to remove what an interrupted put left at the server.
const CLEANING_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Worker {
    job: Arc<Job>,
    carrier: Carrier,
}

impl Worker {
    /// `may_yield`: where the server lets no further session in, leave the work to the others.
    pub(crate) fn new(job: Arc<Job>, may_yield: bool) -> Self {
        let mut carrier = Carrier::new(Arc::clone(&job.pool));
        carrier.may_yield = may_yield;
        Self { job, carrier }
    }

    pub(crate) async fn run(mut self) {
        let job = Arc::clone(&self.job);
        loop {
            let task = tokio::select! {
                task = job.queue.next(&job.controller) => task,
                () = job.context.stop.wait() => None,
            };
            let goes_on = match task {
                None => break,
                Some(Task::Begin(Planned::Failed { path, error })) => {
                    job.queue.decided(None);
                    job.file_failed(&path, 0.0, 0, &error);
                    true
                }
                Some(Task::Begin(Planned::File(item))) => self.file(item).await,
                Some(Task::Piece(file, piece)) => self.piece(file, Some(piece)).await,
            };
            if !goes_on {
                break;
            }
        }
        self.carrier.close().await;
    }

    /// Begins a file and moves its first piece. False: this worker is one too many.
    async fn file(&mut self, item: Item) -> bool {
        let job = Arc::clone(&self.job);
        let path = item.source();
        let began = std::time::Instant::now();
        let step = Step {
            endpoint: &item.endpoint,
            path: &path,
            range: None,
            attempts: None,
        };
        let controller = &job.controller;
        let begin = async |session: &mut Session| {
            let file = FileJob::begin(session, &item, &job.spec).await?;
            let (piece, shared) = file.first(session, controller);
            Ok((file, piece, shared))
        };
        match self.carrier.attempt(step, begin).await {
            Ok((file, piece, shared)) => {
                let file = Arc::new(file);
                job.queue.decided(shared.then_some(&file));
                self.piece(file, piece).await
            }
            Err(Setback::Crowded(error)) => {
                self.one_too_many(&error);
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

    /// Moves a piece (`None`: all of the file). False: this worker is one too many.
    async fn piece(&mut self, file: Arc<FileJob>, piece: Option<ByteRange>) -> bool {
        let outcome = match self.carry(&file, piece).await {
            Ok(bytes) => Ok(bytes),
            Err(Setback::Failed(error)) => Err(error),
            Err(Setback::Crowded(error)) => match piece {
                // Only whole files come without a range, and whoever has begun one has a session.
                None => Err(error),
                Some(piece) => {
                    self.one_too_many(&error);
                    self.job.queue.give_back_piece(&file, piece);
                    return false;
                }
            },
        };
        match file.piece_done(outcome) {
            After::Others => {}
            After::Finish { moved } => self.finish(&file, moved).await,
            After::Discard { error, moved } => self.discard(&file, moved, &error).await,
        }
        true
    }

    /// Moves octets until all of the piece is there, keeping what failed attempts brought.
    async fn carry(
        &mut self,
        file: &Arc<FileJob>,
        piece: Option<ByteRange>,
    ) -> std::result::Result<u64, Setback> {
        let counters = Arc::clone(&self.job.context.counters);
        let step = Step {
            endpoint: &file.endpoint,
            path: &file.path,
            range: piece,
            // What came from standard input is gone, and what went to standard output cannot be called back.
            attempts: file.is_stream().then_some(1),
        };
        let mut safe = RangeSet::new();
        let mut total = 0;
        let carry = async |session: &mut Session| {
            let mut rests = file.rests(file.can_split(session), piece, &safe);
            // All of it is here, and the server called it a failure: that is no success, whatever it was.
            if rests.is_empty() {
                (safe, total) = (RangeSet::new(), 0);
                rests.push(piece);
            }
            for rest in rests {
                let (outcome, fresh) = file.carry(session, rest).await;
                match outcome {
                    Ok(bytes) => {
                        total += bytes;
                        counters
                            .bytes_moved
                            .fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
                        safe.union_with(&fresh);
                    }
                    Err(error) => {
                        let before = safe.covered();
                        safe.union_with(&fresh);
                        if file.can_split(session) {
                            let kept = safe.covered() - before;
                            total += kept;
                            counters
                                .bytes_moved
                                .fetch_add(kept, std::sync::atomic::Ordering::Relaxed);
                        } else {
                            safe = RangeSet::new();
                        }
                        return Err(error);
                    }
                }
            }
            Ok(total)
        };
        self.carrier.attempt(step, carry).await
    }

    async fn finish(&mut self, file: &Arc<FileJob>, moved: u64) {
        let step = Step {
            endpoint: &file.endpoint,
            path: &file.path,
            range: None,
            attempts: None,
        };
        let finish = async |session: &mut Session| file.finish(session, moved).await;
        match self.without_yielding(step, finish).await {
            Ok(agreed) => {
                let seconds = file.began.elapsed().as_secs_f64();
                self.job.file_done(&file.path, seconds, moved, agreed);
            }
            Err(error) => self.discard(file, moved, &error).await,
        }
    }

    /// Reports a failed file, and removes what it left at the server.
    async fn discard(&mut self, file: &Arc<FileJob>, moved: u64, error: &Error) {
        if let Some(rubbish) = file.rubbish() {
            let what = file.endpoint.url(rubbish);
            let removed = if self.job.context.stop.is_set() {
                self.remove_after_interrupt(file).await
            } else {
                let step = Step {
                    endpoint: &file.endpoint,
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
    async fn remove_after_interrupt(&self, file: &FileJob) -> Result<()> {
        let Some(rubbish) = file.rubbish() else {
            return Ok(());
        };
        let pool = &self.job.pool;
        let remove = async {
            let params = pool.params.clone();
            let mut session =
                Session::open_undisturbed(&pool.context, &file.endpoint, params).await?;
            session.remove_file_undisturbed(rubbish).await
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

    fn one_too_many(&self, error: &Error) {
        let text = format!("no further session, going on with those there are: {error}");
        self.job.context.note(text);
    }
}
