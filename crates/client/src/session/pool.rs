//! Idle sessions, one that is opened ahead, and the endpoints that were given up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use godwit_engine::data::ChannelParams;
use parking_lot::Mutex;
use tokio::task::{self, JoinHandle};

use super::{Session, SessionPair};
use crate::{
    context::RunContext,
    endpoint::Endpoint,
    error::Error,
    kept_sessions::KeptPair,
    panics::{caught, test_point},
};

/// What all [`RetryingSession`]s of a run share.
///
/// [`RetryingSession`]: super::retry::RetryingSession
pub(crate) struct SessionPool {
    pub(crate) context: Arc<RunContext>,
    pub(crate) params: ChannelParams,
    pub(crate) attempts: u32,
    /// Time between them, where that was said.
    pub(super) pause: Option<Duration>,
    idle: Mutex<Vec<SessionPair>>,
    /// One that is being opened for the next worker that needs it.
    ahead: Mutex<Option<OpeningSession>>,
    /// A panic of the task that opens sessions ahead, which fails no file by itself.
    bug: Arc<Mutex<Option<Error>>>,
    /// Endpoints that were given up: every other operation on them fails at once, for the same
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

    /// Opens a session that a worker will need soon. Where that fails, the next one fails too; a
    /// bug is kept for [`SessionPool::take_panic`].
    pub(crate) fn open_in_background(&self, endpoint: &Arc<Endpoint>) {
        let kept = self.context.connections.kept.as_ref();
        if kept.is_some_and(|kept| kept.has(|pair| pair.serves(endpoint, None))) {
            return;
        }
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
        self.ahead.lock().get_or_insert(ahead);
    }

    /// The bug that a session opened ahead has met, once.
    pub(crate) fn take_panic(&self) -> Option<Error> {
        self.bug.lock().take()
    }

    async fn take_opening(&self, fits: impl Fn(&OpeningSession) -> bool) -> Option<Session> {
        let mut ahead = self.ahead.lock().take_if(|ahead| fits(ahead))?;
        (&mut ahead.session).await.ok().flatten()
    }

    /// Closes idle sessions, or leaves them to a later run. The task that opens a session ends
    /// here: a later bug of it would go unseen.
    pub(crate) async fn close(&self) {
        let ahead = self.take_opening(|ahead| ahead.session.is_finished()).await;
        drop(self.ahead.lock().take());
        let idle = std::mem::take(&mut *self.idle.lock());
        for session in idle.into_iter().chain(ahead.map(SessionPair::from)) {
            match &self.context.connections.kept {
                Some(kept) if session.can_be_kept() && !self.context.stop.is_cancelled() => {
                    session
                        .into_kept()
                        .into_iter()
                        .for_each(|pair| kept.keep(pair));
                }
                _ => session.quit().await,
            }
        }
    }

    /// Closes what an earlier run has left and this one did not need.
    pub(crate) async fn close_kept(&self) {
        if let Some(kept) = &self.context.connections.kept {
            kept.close().await;
        }
    }

    /// Sessions that an earlier run has left with these servers are no better than one that has
    /// failed.
    pub(super) fn drop_kept(&self, endpoint: &Endpoint, sender: Option<&Arc<Endpoint>>) -> bool {
        let kept = self.context.connections.kept.as_ref();
        let is_of = |pair: &KeptPair| {
            pair.is_with(endpoint) || sender.is_some_and(|sender| pair.is_with(sender))
        };
        kept.is_some_and(|kept| kept.drop_all(is_of))
    }

    /// A session to `endpoint`, with one to `sender` if there is one; the error names the endpoint
    /// to blame. `warms` is reset once another session is opened ahead.
    pub(super) async fn obtain(
        &self,
        endpoint: &Arc<Endpoint>,
        sender: Option<&Arc<Endpoint>>,
        warms: &mut bool,
    ) -> std::result::Result<SessionPair, (Arc<Endpoint>, Error)> {
        if let Some(session) = self.take_idle(|session| session.serves(endpoint, sender)) {
            return Ok(session);
        }
        let Some(sender) = sender else {
            let session = self.obtain_one(endpoint).await?;
            if std::mem::take(warms) {
                self.open_in_background(endpoint);
            }
            return Ok(session.into());
        };
        if let Some(pair) = self.take_kept(endpoint, Some(sender)).await {
            return Ok(pair);
        }
        match tokio::join!(self.obtain_one(endpoint), self.obtain_one(sender)) {
            (Ok(mut receiver), Ok(mut sender)) => {
                // What they may have of channels leads to us.
                if endpoint.is_like(&sender.endpoint) {
                    receiver.forget_channels();
                    sender.forget_channels();
                } else {
                    // What is sent on is limited.
                    sender.data.params.rate = Arc::default();
                }
                Ok(SessionPair {
                    receiver,
                    sender: Some(sender),
                })
            }
            (Ok(one), Err(blame)) | (Err(blame), Ok(one)) => {
                self.return_idle(one.into());
                Err(blame)
            }
            (Err(blame), Err(_)) => Err(blame),
        }
    }

    /// A session to `endpoint` alone: an idle one, or a new one.
    async fn obtain_one(
        &self,
        endpoint: &Arc<Endpoint>,
    ) -> std::result::Result<Session, (Arc<Endpoint>, Error)> {
        let blame = |error| (Arc::clone(endpoint), error);
        if let Some(error) = self.given_up_error(endpoint) {
            return Err(blame(error));
        }
        let alone = |s: &SessionPair| s.sender.is_none() && Arc::ptr_eq(&s.endpoint, endpoint);
        if let Some(session) = self.take_idle(alone) {
            return Ok(session.receiver);
        }
        if let Some(session) = self.take_kept(endpoint, None).await {
            return Ok(session.receiver);
        }
        let fits = |ahead: &OpeningSession| Arc::ptr_eq(&ahead.endpoint, endpoint);
        if let Some(session) = self.take_opening(fits).await {
            return Ok(session);
        }
        let open = || Session::open(&self.context, endpoint, self.params.clone());
        let opened = match open().await {
            // The server may have no room beside sessions of ours that are of no use here.
            Err(error) if error.may_pass() && self.drop_kept(endpoint, None) => open().await,
            opened => opened,
        };
        opened.map_err(blame)
    }

    /// A session that an earlier run has left.
    async fn take_kept(
        &self,
        endpoint: &Arc<Endpoint>,
        sender: Option<&Arc<Endpoint>>,
    ) -> Option<SessionPair> {
        let kept = self.context.connections.kept.as_ref()?;
        let pair = kept.take(|pair| pair.serves(endpoint, sender)).await?;
        let (context, params) = (&self.context, &self.params);
        Some(SessionPair::of_kept(
            context, endpoint, sender, params, pair,
        ))
    }

    /// Some worker has a session.
    pub(crate) fn has_sessions(&self) -> bool {
        self.alive.load(Ordering::Relaxed) > 0
    }

    pub(super) fn on_open(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_drop(&self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }

    fn take_idle(&self, fits: impl Fn(&SessionPair) -> bool) -> Option<SessionPair> {
        let mut idle = self.idle.lock();
        let at = idle.iter().position(fits)?;
        Some(idle.swap_remove(at))
    }

    pub(super) fn return_idle(&self, session: SessionPair) {
        if session.is_usable() {
            self.idle.lock().push(session);
        }
    }

    fn given_up_error(&self, endpoint: &Arc<Endpoint>) -> Option<Error> {
        let given_up = self.given_up.lock();
        let found = given_up.iter().find(|(e, _)| Arc::ptr_eq(e, endpoint));
        found.map(|(_, error)| error.clone())
    }

    /// An operation has used up its attempts, since data connections fail.
    pub(super) fn data_failed(
        &self,
        endpoint: &Endpoint,
        sender: Option<&Arc<Endpoint>>,
        error: &Error,
    ) {
        let sessions = u32::try_from(self.alive.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let mut data = endpoint.capabilities.data(sender.is_some());
        data.failed(endpoint.name(), error, sessions);
    }

    pub(super) fn give_up(&self, endpoint: &Arc<Endpoint>, error: &Error) {
        let given_up = (Arc::clone(endpoint), error.clone());
        self.given_up.lock().push(given_up);
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
