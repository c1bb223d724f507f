//! [`Limits`] as the accept loop and the sessions use them: an admitted connection holds a
//! [`ConnectionPermit`], which also notifies it when it is evicted.

pub(crate) mod attempts;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Instant, SystemTime},
};

use tokio::sync::{Notify, oneshot};
use tracing::{error, warn};

use self::attempts::{Attempt, Attempts, GrantedAttempts, deliver};
use super::{
    channel_quota::{ChannelQuota, SharedCounter},
    identity::Principal,
    limits::{Limits, Refusal, network},
};
use crate::config::Bounds;
use crate::observe::metrics::{ConnectionMetrics, Metrics};

/// Admission control for new connections and logins.
pub(crate) struct Admission {
    inner: Mutex<Inner>,
    metrics: Arc<Metrics>,
}

struct Inner {
    limits: Limits,
    attempts: Attempts,
    next_id: u64,
    /// Shared by sessions of one account, and of one address; dropped with the last of them.
    accounts: HashMap<Principal, Weak<SharedCounter>>,
    addresses: HashMap<IpAddr, Weak<SharedCounter>>,
    /// Wakes connections that are evicted.
    waiting: HashMap<u64, Arc<Notify>>,
    /// Start times of the present connections, in order.
    begun: BTreeMap<u64, SystemTime>,
}

/// The permit of one connection. Dropping it makes room.
pub(crate) struct ConnectionPermit {
    admission: Arc<Admission>,
    /// Its key in the limits.
    place: u64,
    /// For the log.
    number: u64,
    address: IpAddr,
    must_go: Arc<Notify>,
    connection_metrics: ConnectionMetrics,
}

impl Admission {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        let inner = Mutex::new(Inner {
            limits: Limits::new(bounds),
            attempts: Attempts::default(),
            next_id: 1,
            accounts: HashMap::new(),
            addresses: HashMap::new(),
            waiting: HashMap::new(),
            begun: BTreeMap::new(),
        });
        Arc::new(Self {
            inner,
            metrics: Arc::default(),
        })
    }

    /// Counters of connections.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub(crate) fn change(&self, bounds: Bounds) {
        self.lock().limits.change(bounds);
    }

    /// Admits a connection of `address`, perhaps in the place of another.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, Refusal> {
        let mut inner = self.lock();
        let id = inner.next_id;
        let admitted = inner.limits.admit(Instant::now(), address, id);
        let goes = admitted.inspect_err(|why| self.metrics.refused(why))?;
        if let Some(notify) = goes.and_then(|id| inner.waiting.remove(&id)) {
            notify.notify_one();
        }
        inner.next_id += 1;
        let must_go = Arc::new(Notify::new());
        inner.waiting.insert(id, Arc::clone(&must_go));
        inner.begun.insert(id, SystemTime::now());
        Ok(ConnectionPermit {
            admission: Arc::clone(self),
            place: id,
            number: id,
            address,
            must_go,
            connection_metrics: self.metrics.enter(id, address),
        })
    }

    /// When the oldest present connection started.
    pub(crate) fn oldest(&self) -> Option<SystemTime> {
        self.lock().begun.values().next().copied()
    }

    pub(crate) fn with_attempts(
        &self,
        work: impl FnOnce(&mut Attempts, &mut Limits) -> GrantedAttempts,
    ) -> GrantedAttempts {
        let mut inner = self.lock();
        let Inner {
            attempts, limits, ..
        } = &mut *inner;
        work(attempts, limits)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Numbers that a panic left half changed are off by one at worst.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Sets the number that the connection has in another process.
    pub(crate) fn set_number(&mut self, id: u64) {
        self.number = id;
    }

    /// The connection's number, for the log.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The metrics of the connection.
    pub(crate) fn connection_metrics(&self) -> &ConnectionMetrics {
        &self.connection_metrics
    }

    /// Ready when another connection needs the place. Cancel-safe.
    pub(crate) async fn evicted(&self) {
        self.must_go.notified().await;
    }

    pub(crate) fn received_first_byte(&self) {
        self.admission.lock().limits.received_first_byte(self.place);
    }

    pub(crate) fn may_try(&self) -> Result<(), Refusal> {
        self.admission
            .lock()
            .limits
            .may_try(Instant::now(), self.address)
    }

    /// An authentication failed.
    pub(crate) fn failed(&self) {
        self.admission
            .lock()
            .limits
            .failed(Instant::now(), self.address);
    }

    /// Ready when a login may be tried, or is refused. `costly`: it verifies a password, which
    /// takes memory and a processor.
    pub(crate) fn attempt(
        &self,
        costly: bool,
    ) -> impl Future<Output = Result<Attempt, Refusal>> + Send + use<> {
        let (turn, decision) = oneshot::channel();
        let (admission, address, now) = (Arc::clone(&self.admission), self.address, Instant::now());
        let mut begun = Ok(());
        let handed_on = admission.with_attempts(|attempts, limits| {
            begun = attempts.begin(limits, now, address, costly, turn);
            attempts.grant_next(&admission, limits, now)
        });
        deliver(handed_on);
        async move {
            begun?;
            // The other side answers, or is dropped with the admission control.
            decision.await.unwrap_or(Err(Refusal::Descriptors))
        }
    }

    /// From now on it cannot be evicted.
    pub(crate) fn logged_in(&self, account: &Principal) -> Result<(), Refusal> {
        let mut inner = self.admission.lock();
        inner.limits.logged_in(self.place, account)?;
        inner.waiting.remove(&self.place);
        Ok(())
    }

    /// The part of a session of `account` in the data channels of that and of its address.
    pub(crate) fn quota(&self, account: &Principal) -> Result<ChannelQuota, Refusal> {
        let mut inner = self.admission.lock();
        let bounds = inner.limits.bounds();
        let account = account.clone();
        let account = pool(&mut inner.accounts, account, bounds.channels_per_account);
        let address = network(self.address);
        let address = pool(&mut inner.addresses, address, bounds.channels_per_address);
        let quota = account.and_then(|account| ChannelQuota::new(account, address?, bounds));
        quota.map_err(|error| {
            error!(%error, "cannot create the quota of data channels of a session");
            Refusal::Descriptors
        })
    }
}

fn pool<K: Hash + Eq>(
    pools: &mut HashMap<K, Weak<SharedCounter>>,
    key: K,
    channels: u32,
) -> io::Result<Arc<SharedCounter>> {
    if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
        match pool.is_sound() {
            true => return Ok(pool),
            false => warn!("a session has raised a limit of data channels: it is reset"),
        }
    }
    // Unused pools are removed here; the others are at most as many as sessions.
    pools.retain(|_, pool| pool.strong_count() > 0);
    let pool = Arc::new(SharedCounter::new(channels)?);
    pools.insert(key, Arc::downgrade(&pool));
    Ok(pool)
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut inner = self.admission.lock();
        inner.limits.left(self.place);
        inner.waiting.remove(&self.place);
        inner.begun.remove(&self.place);
    }
}
