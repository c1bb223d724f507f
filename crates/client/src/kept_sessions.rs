//! Sessions that outlive a run.

use std::{
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_engine::{
    control::ControlChannel,
    data::{ChannelSecurity, ChannelSet, Congestion, RateLimit},
};
use godwit_proto::{pi::transfer::ServerState, url::RemoteUrl};
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Time in which it shows that a server has closed its connection: what the kernel knows is read.
const CHECK_LIMIT: Duration = Duration::from_millis(1);

/// An older session is not used again: what it has proved itself with may end, and the user may
/// have renewed it since.
const AGE_MAX: Duration = Duration::from_secs(300);

/// Time to close all sessions in good order.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A session that may begin: one that has just logged in, or that an earlier run has left.
pub(crate) struct LoggedIn<C = ControlChannel> {
    pub(crate) control: C,
    /// Where data channels begin and end, ours first.
    pub(crate) addresses: [IpAddr; 2],
    pub(crate) server: ServerState,
    /// Data channels of the last transfer.
    pub(crate) set: Option<ChannelSet>,
    /// A receiver was asked to report its progress often.
    pub(crate) markers_requested: bool,
    /// Shortest time from a command to its answer.
    pub(crate) round_trip: Duration,
    /// For the data channels; `None`: they are in clear, and anybody may be at their other end.
    pub(crate) security: Option<ChannelSecurity>,
    /// When it logged in.
    pub(crate) since: Instant,
}

impl<C> LoggedIn<C> {
    /// The same with another control channel.
    pub(crate) fn map_control<D>(self, map: impl FnOnce(C) -> D) -> LoggedIn<D> {
        LoggedIn {
            control: map(self.control),
            addresses: self.addresses,
            server: self.server,
            set: self.set,
            markers_requested: self.markers_requested,
            round_trip: self.round_trip,
            security: self.security,
            since: self.since,
        }
    }
}

/// A session, and one with the server that sends to it: their data channels may be of each other.
pub(crate) struct KeptPair {
    pub(crate) receiver: KeptSession,
    pub(crate) sender: Option<KeptSession>,
}

/// A session without work.
pub(crate) struct KeptSession {
    /// Server and user.
    pub(crate) root: RemoteUrl,
    pub(crate) opened: LoggedIn,
}

/// Sessions without work, for further runs of the same user with the same credentials, address
/// scope and channel parameters: the holder has one of these for each of them. The runtime that the
/// sessions began on must live as long, and one run at a time uses them. Clones share them.
#[derive(Clone, Default)]
pub struct KeptSessions(Arc<Kept>);

#[derive(Default)]
struct Kept {
    pairs: Mutex<Vec<KeptPair>>,
    /// Of all data channels, those that are open among them.
    rate: Arc<RateLimit>,
    congestion: Arc<Congestion>,
}

impl KeptSessions {
    /// Closes all of them in good order.
    pub async fn close(&self) {
        let pairs = std::mem::take(&mut *self.0.pairs.lock());
        let sessions = pairs
            .into_iter()
            .flat_map(|pair| [pair.sender, Some(pair.receiver)]);
        let mut quits: JoinSet<_> = (sessions.flatten())
            .map(|session| session.opened.control.quit())
            .collect();
        let all = async { while quits.join_next().await.is_some() {} };
        // Those that take longer are cut.
        let _ = tokio::time::timeout(CLOSE_LIMIT, all).await;
    }

    pub(crate) fn rate(&self) -> Arc<RateLimit> {
        Arc::clone(&self.0.rate)
    }

    pub(crate) fn congestion(&self) -> Arc<Congestion> {
        Arc::clone(&self.0.congestion)
    }

    pub(crate) fn keep(&self, pair: KeptPair) {
        self.0.pairs.lock().push(pair);
    }

    /// There is one, alive or not.
    pub(crate) fn has(&self, fits: impl Fn(&KeptPair) -> bool) -> bool {
        self.0.pairs.lock().iter().any(fits)
    }

    /// Closes those that fit, whatever their servers say; `true`: there were some.
    pub(crate) fn drop_all(&self, fits: impl Fn(&KeptPair) -> bool) -> bool {
        let mut pairs = self.0.pairs.lock();
        let before = pairs.len();
        pairs.retain(|pair| !fits(pair));
        pairs.len() < before
    }

    /// One that is alive.
    pub(crate) async fn take(&self, fits: impl Fn(&KeptPair) -> bool) -> Option<KeptPair> {
        loop {
            let mut pair = self.take_any(&fits)?;
            let sender_lives = match &mut pair.sender {
                Some(sender) => sender.is_usable().await,
                None => true,
            };
            if sender_lives && pair.receiver.is_usable().await {
                return Some(pair);
            }
        }
    }

    fn take_any(&self, fits: impl Fn(&KeptPair) -> bool) -> Option<KeptPair> {
        let mut pairs = self.0.pairs.lock();
        let at = pairs.iter().position(fits)?;
        Some(pairs.swap_remove(at))
    }
}

impl fmt::Debug for KeptSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptSessions(..)")
    }
}

impl KeptSession {
    /// A server without a command says nothing, but that it closes the session.
    async fn is_usable(&mut self) -> bool {
        let word = self.opened.control.next_event();
        self.opened.since.elapsed() < AGE_MAX
            && tokio::time::timeout(CHECK_LIMIT, word).await.is_err()
    }
}
