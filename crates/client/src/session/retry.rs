//! Runs steps on a session, and again on a fresh one where that may help.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use godwit_engine::data::ChannelParams;
use godwit_proto::ByteRange;
use parking_lot::Mutex;
use tokio::task::{self, JoinHandle};

use super::Session;
use crate::{
    context::RunContext,
    endpoint::{Endpoint, capabilities::Observed},
    error::{Error, Result},
    local::files,
    panics::{caught, test_point},
    report::events::Event,
    setting_target::WorkerSlot,
};

/// First pause between attempts; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// No pause is longer, before jitter.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Sessions and verdicts that all carriers of a run share.
pub(crate) struct SessionPool {
    pub(crate) context: Arc<RunContext>,
    pub(crate) params: ChannelParams,
    pub(crate) attempts: u32,
    /// Time between them, where that was said.
    pause: Option<Duration>,
    idle: Mutex<Vec<Session>>,
    /// One that is being opened for whoever needs it next.
    ahead: Mutex<Option<OpeningSession>>,
    /// A panic of what opens sessions ahead, which fails no file by itself.
    bug: Arc<Mutex<Option<Error>>>,
    /// Endpoints that were given up: whatever else is wanted from them fails at once, for the same
    /// reason.
    given_up: Mutex<Vec<(Arc<Endpoint>, Error)>>,
    /// Sessions open now.
    alive: AtomicUsize,
}

impl SessionPool {
    pub(crate) fn new(
        context: Arc<RunContext>,
        params: ChannelParams,
        attempts: u32,
        pause: Option<Duration>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            params,
            attempts,
            pause,
            idle: Mutex::default(),
            ahead: Mutex::default(),
            bug: Arc::default(),
            given_up: Mutex::default(),
            alive: AtomicUsize::new(0),
        })
    }

    /// Opens a session that somebody will need soon. Where that fails, whoever opens the next one
    /// sees it fail too; a bug is kept for [`SessionPool::take_panic`].
    pub(crate) fn open_in_background(&self, endpoint: &Arc<Endpoint>) {
        let (context, params) = (Arc::clone(&self.context), self.params.clone());
        let (to, found) = (Arc::clone(endpoint), Arc::clone(&self.bug));
        let opening = async move {
            let open = async {
                test_point("ahead", &to.name());
                Session::open(&context, &to, params).await
            };
            let opened = caught(|| format!("log in to {}", to.name()), open).await;
            let error = match opened.and_then(|opened| opened) {
                Ok(session) => return Some(session),
                Err(error) => error,
            };
            if matches!(error, Error::Internal { .. }) {
                *found.lock() = Some(error);
            }
            None
        };
        let ahead = OpeningSession {
            endpoint: Arc::clone(endpoint),
            session: task::spawn_local(opening),
        };
        let mut slot = self.ahead.lock();
        slot.get_or_insert(ahead);
    }

    /// The bug that a session opened ahead has met, once.
    pub(crate) fn take_panic(&self) -> Option<Error> {
        let mut bug = self.bug.lock();
        bug.take()
    }

    async fn take_opening(&self, fits: impl Fn(&OpeningSession) -> bool) -> Option<Session> {
        let mut ahead = {
            let mut slot = self.ahead.lock();
            slot.take_if(|ahead| fits(ahead))?
        };
        (&mut ahead.session).await.ok().flatten()
    }

    /// Closes what nobody uses. What opens a session still ends here: a bug that it met later would
    /// go unseen.
    pub(crate) async fn close(&self) {
        let ahead = self.take_opening(|ahead| ahead.session.is_finished()).await;
        if let Some(session) = ahead {
            session.quit().await;
        }
        drop(self.ahead.lock().take());
        let idle = std::mem::take(&mut *self.idle.lock());
        for session in idle {
            session.quit().await;
        }
    }

    /// A session to `endpoint` alone: an idle one, or a new one. Where none is to be had, which
    /// endpoint is to blame.
    async fn obtain(
        &self,
        endpoint: &Arc<Endpoint>,
    ) -> std::result::Result<Session, (Arc<Endpoint>, Error)> {
        let blame = |error| (Arc::clone(endpoint), error);
        if let Some(error) = self.given_up_error(endpoint) {
            return Err(blame(error));
        }
        match self.take_idle(|s| s.source.is_none() && Arc::ptr_eq(&s.endpoint, endpoint)) {
            Some(session) => Ok(session),
            None => {
                let fits = |ahead: &OpeningSession| Arc::ptr_eq(&ahead.endpoint, endpoint);
                match self.take_opening(fits).await {
                    Some(session) => Ok(session),
                    None => Session::open(&self.context, endpoint, self.params.clone())
                        .await
                        .map_err(blame),
                }
            }
        }
    }

    /// Somebody has a session.
    pub(crate) fn has_sessions(&self) -> bool {
        self.alive.load(Ordering::Relaxed) > 0
    }

    fn take_idle(&self, fits: impl Fn(&Session) -> bool) -> Option<Session> {
        let mut idle = self.idle.lock();
        let at = idle.iter().position(fits)?;
        Some(idle.swap_remove(at))
    }

    fn return_idle(&self, session: Session) {
        if session.is_usable() {
            let mut idle = self.idle.lock();
            idle.push(session);
        }
    }

    fn given_up_error(&self, endpoint: &Arc<Endpoint>) -> Option<Error> {
        let given_up = self.given_up.lock();
        let found = given_up.iter().find(|(e, _)| Arc::ptr_eq(e, endpoint));
        found.map(|(_, error)| error.clone())
    }

    /// A step has used up its attempts, since data connections do not come about.
    fn data_failed(&self, step: &Operation<'_>, error: &Error) {
        let sessions = u32::try_from(self.alive.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let endpoint = step.endpoint;
        let mut data = endpoint.capabilities.data(step.sender.is_some());
        data.failed(endpoint.name(), error, sessions);
    }

    fn give_up(&self, endpoint: &Arc<Endpoint>, error: &Error) {
        let mut given_up = self.given_up.lock();
        given_up.push((Arc::clone(endpoint), error.clone()));
    }
}

/// A session that is being opened.
struct OpeningSession {
    endpoint: Arc<Endpoint>,
    session: JoinHandle<Option<Session>>,
}

impl Drop for OpeningSession {
    fn drop(&mut self) {
        self.session.abort();
    }
}

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
    fn from(setback: AttemptError) -> Self {
        match setback {
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
    session: Option<Session>,
    /// Another session may do the work where this one cannot be opened.
    pub(crate) requeue_on_session_limit: bool,
    /// This session will be busy with lists while others move what is in them: they need one too,
    /// as soon as the first is let in.
    pub(crate) warms_pool: bool,
    /// Of the worker whose carrier it is.
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

    /// Runs `body` until it succeeds, fails for good, or the attempts are used up. The session is a
    /// fresh one after failures that ended it.
    pub(crate) async fn attempt<T>(
        &mut self,
        step: Operation<'_>,
        mut body: impl AsyncFnMut(&mut Session) -> Result<T>,
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
            }
            if self.pool.context.stop.is_set() {
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
            if !error.is_passing() || never_reached || attempt >= attempts {
                if let Some(endpoint) = unopened {
                    self.pool.give_up(&endpoint, &error);
                } else if error.is_of_data_connection() {
                    self.pool.data_failed(&step, &error);
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
    ) -> Option<&mut Session> {
        self.session
            .as_mut()
            .filter(|session| serves(session, endpoint, sender))
    }

    async fn session(
        &mut self,
        step: &Operation<'_>,
    ) -> std::result::Result<&mut Session, (Arc<Endpoint>, Error)> {
        let (endpoint, sender) = (step.endpoint, step.sender);
        let fits = |session: &Session| serves(session, endpoint, sender);
        let there = self.drop_session();
        let mut session = match there.filter(|session| session.is_usable()) {
            Some(session) if fits(&session) => session,
            unfit => {
                if let Some(unfit) = unfit {
                    self.pool.return_idle(unfit);
                }
                match (self.pool.take_idle(fits), sender) {
                    (Some(session), _) => session,
                    (None, None) => {
                        let session = self.pool.obtain(endpoint).await?;
                        if std::mem::take(&mut self.warms_pool) {
                            self.pool.open_in_background(endpoint);
                        }
                        session
                    }
                    (None, Some(sender)) => {
                        let both =
                            tokio::join!(self.pool.obtain(endpoint), self.pool.obtain(sender));
                        let (mut session, source) = match both {
                            (Ok(session), Ok(source)) => (session, source),
                            (Ok(one), Err(blame)) | (Err(blame), Ok(one)) => {
                                self.pool.return_idle(one);
                                return Err(blame);
                            }
                            (Err(blame), Err(_)) => return Err(blame),
                        };
                        session.source = Some(Box::new(source));
                        session
                    }
                }
            }
        };
        self.pool.alive.fetch_add(1, Ordering::Relaxed);
        session.place = self.place;
        Ok(self.session.insert(session))
    }

    fn drop_session(&mut self) -> Option<Session> {
        let session = self.session.take();
        if session.is_some() {
            self.pool.alive.fetch_sub(1, Ordering::Relaxed);
        }
        session
    }

    /// The session is in a state that nobody knows.
    pub(crate) fn discard(&mut self) {
        self.drop_session();
    }

    /// Leaves the session to whoever needs one next.
    pub(crate) fn release(&mut self) {
        if let Some(session) = self.drop_session() {
            self.pool.return_idle(session);
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
            () = self.pool.context.stop.wait() => {}
        }
    }
}

/// It is with `endpoint`, and with `sender` if there is one.
fn serves(session: &Session, endpoint: &Arc<Endpoint>, sender: Option<&Arc<Endpoint>>) -> bool {
    let source = session.source.as_ref().map(|source| &source.endpoint);
    session.is_usable()
        && Arc::ptr_eq(&session.endpoint, endpoint)
        && sender.is_none_or(|sender| source.is_some_and(|s| Arc::ptr_eq(s, sender)))
}

impl Drop for RetryingSession {
    fn drop(&mut self) {
        self.drop_session();
    }
}
