//! Runs steps on a session, and again on a fresh one where that may help.

use std::{sync::Arc, time::Duration};

use godwit_proto::ByteRange;

use super::{Session, SessionPair, pool::SessionPool};
use crate::{
    endpoint::{Endpoint, capabilities::Observed},
    error::{Error, Result},
    local::files,
    report::events::Event,
    setting_target::WorkerSlot,
};

/// First pause between attempts; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// No pause is longer, before jitter.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a step was not done.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// It failed for good.
    Failed(Error),
    /// The server lets no further session in, but others run: they shall do it.
    SessionLimit(Arc<Endpoint>, Error),
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<AttemptError> for Error {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Failed(error) | AttemptError::SessionLimit(_, error) => error,
        }
    }
}

/// A step, for messages and the event log.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    pub(crate) endpoint: &'a Arc<Endpoint>,
    /// The server that sends to the endpoint, where the step needs both.
    pub(crate) sender: Option<&'a Arc<Endpoint>>,
    /// URL or path of the file.
    pub(crate) path: &'a str,
    pub(crate) range: Option<ByteRange>,
    /// Attempts, where they differ from the run's.
    pub(crate) attempts: Option<u32>,
}

impl<'a> Operation<'a> {
    /// On the file or directory `path` of one server.
    pub(crate) const fn on(endpoint: &'a Arc<Endpoint>, path: &'a str) -> Self {
        Self {
            endpoint,
            sender: None,
            path,
            range: None,
            attempts: None,
        }
    }
}

/// Owner of at most one session at a time.
pub(crate) struct RetryingSession {
    pub(crate) pool: Arc<SessionPool>,
    session: Option<SessionPair>,
    /// Another session may do the work where this one cannot be opened.
    pub(crate) requeue_on_session_limit: bool,
    /// This session will be busy with lists while others move what is in them: they need one too,
    /// as soon as the first is let in.
    pub(crate) warms_pool: bool,
    /// Of the worker whose session it is.
    pub(crate) place: WorkerSlot,
}

impl RetryingSession {
    pub(crate) fn new(pool: Arc<SessionPool>) -> Self {
        Self {
            pool,
            session: None,
            requeue_on_session_limit: false,
            warms_pool: false,
            place: WorkerSlot::default(),
        }
    }

    /// [`Self::attempt_pair`] of what needs one server.
    pub(crate) async fn attempt<T>(
        &mut self,
        step: Operation<'_>,
        mut body: impl AsyncFnMut(&mut Session) -> Result<T>,
    ) -> std::result::Result<T, AttemptError> {
        let body = async |pair: &mut SessionPair| body(&mut pair.receiver).await;
        self.attempt_pair(step, body).await
    }

    /// Runs `body` until it succeeds, fails for good, or the attempts are used up. The session is a
    /// fresh one after failures that ended it.
    pub(crate) async fn attempt_pair<T>(
        &mut self,
        step: Operation<'_>,
        mut body: impl AsyncFnMut(&mut SessionPair) -> Result<T>,
    ) -> std::result::Result<T, AttemptError> {
        let attempts = step.attempts.unwrap_or(self.pool.attempts);
        let mut attempt = 1;
        loop {
            let (error, unopened) = match self.session(&step).await {
                Err((endpoint, error)) => (error, Some(endpoint)),
                Ok(session) => match body(session).await {
                    Ok(done) => return Ok(done),
                    Err(error) => (error, None),
                },
            };
            if error.ends_session() || self.session.as_ref().is_some_and(|s| !s.is_usable()) {
                self.drop_session();
                self.pool.drop_kept(step.endpoint, step.sender);
            }
            if self.pool.context.stop.is_cancelled() {
                return Err(AttemptError::Failed(Error::Interrupted));
            }
            if let Some(endpoint) = &unopened
                && self.requeue_on_session_limit
                && self.pool.has_sessions()
            {
                return Err(AttemptError::SessionLimit(Arc::clone(endpoint), error));
            }
            let never_reached = matches!(error, Error::Unreachable { .. })
                && unopened
                    .as_ref()
                    .is_some_and(|e| !e.capabilities.has(Observed::Greeted));
            if !error.may_pass() || never_reached || attempt >= attempts {
                if let Some(endpoint) = unopened {
                    self.pool.give_up(&endpoint, &error);
                } else if error.is_of_data_connection() {
                    self.pool.data_failed(step.endpoint, step.sender, &error);
                }
                return Err(AttemptError::Failed(error));
            }
            self.pool.context.reporter.emit(&Event::Retry {
                path: step.path.to_owned(),
                range: step.range.map(|r| [r.start, r.end]),
                attempt,
                error: error.to_string(),
            });
            self.pause(attempt).await;
            attempt += 1;
        }
    }

    /// The session that is open to these servers, if there is one.
    pub(crate) fn open_session(
        &mut self,
        endpoint: &Arc<Endpoint>,
        sender: Option<&Arc<Endpoint>>,
    ) -> Option<&mut SessionPair> {
        self.session
            .as_mut()
            .filter(|session| session.serves(endpoint, sender))
    }

    async fn session(
        &mut self,
        step: &Operation<'_>,
    ) -> std::result::Result<&mut SessionPair, (Arc<Endpoint>, Error)> {
        let mut session = match self.drop_session() {
            Some(session) if session.serves(step.endpoint, step.sender) => session,
            unfit => {
                if let Some(unfit) = unfit {
                    self.pool.return_idle(unfit);
                }
                let warms = &mut self.warms_pool;
                self.pool.obtain(step.endpoint, step.sender, warms).await?
            }
        };
        self.pool.on_open();
        session.data.place = self.place;
        Ok(self.session.insert(session))
    }

    fn drop_session(&mut self) -> Option<SessionPair> {
        self.session.take().inspect(|_| self.pool.on_drop())
    }

    /// The session is in an unknown state.
    pub(crate) fn discard(&mut self) {
        self.drop_session();
    }

    /// Leaves the session to the next worker that needs one.
    pub(crate) fn release(&mut self) {
        if let Some(session) = self.drop_session() {
            self.pool.return_idle(session);
        }
    }

    /// The run needs the session no more: closes it in good order, or leaves it to a later run.
    pub(crate) async fn end(&mut self) {
        match self.pool.context.connections.kept {
            Some(_) if !self.pool.context.stop.is_cancelled() => self.release(),
            _ => self.close().await,
        }
    }

    /// Closes the session in good order.
    pub(crate) async fn close(&mut self) {
        if let Some(session) = self.drop_session() {
            session.quit().await;
        }
    }

    /// Exponential, with jitter so that many sessions do not come back together; ends early when
    /// the user interrupts.
    async fn pause(&self, attempt: u32) {
        let factor = 2_u32.saturating_pow(attempt - 1);
        let pause = PAUSE_FIRST.saturating_mul(factor).min(PAUSE_MAX);
        let jitter = u32::try_from(files::random() % 1000).unwrap_or(0);
        let pause = pause / 2 + pause.saturating_mul(jitter) / 1000;
        let pause = self.pool.pause.unwrap_or(pause);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.pool.context.stop.cancelled() => {}
        }
    }
}

impl Drop for RetryingSession {
    fn drop(&mut self) {
        self.drop_session();
    }
}
