//! What the server counts, and its present connections: for monitoring, and for the log at SIGUSR1.
//!
//! ```text
//!   Admission ── enter ──► ConnectionMetrics, one for each connection
//!                            ▲ observe: events of the audit log
//!                            ▲ progress: once a second while a transfer runs
//!   Metrics ── prometheus_text ──► http: GET /metrics
//!      └────── status ──────► the log, at SIGUSR1
//! ```
//! A session reads the numbers of a transfer once a second and at its end; movers do not know of
//! them. With privilege separation the monitor counts what sessions report; a report is bounded,
//! and may be wrong. No label has names of users, hosts or files, so the number of values does not
//! grow with theirs;
//! data nodes, of which there are few, are labels.

pub(crate) mod http;
mod prometheus_text;
mod status;

use crate::{
    access::channel_quota::Channels,
    observe::event::{Flow, Progress, Running},
};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use super::{
    class::Class,
    counting::{Counter, Counters, Kind},
    event::{Entry, Verdict, What, Who},
};
use crate::access::{identity::Method, limits::Refusal};

/// Largest amount that a session may add at once: a larger one is false, and must not make counters
/// overflow.
const AT_ONCE_MAX: u64 = 1 << 50;

/// A year: no transfer takes longer.
const SECONDS_MAX: f64 = 366.0 * 24.0 * 3600.0;

impl Kind for Method {
    const ALL: &'static [Self] = &[
        Self::Anonymous,
        Self::Gsi,
        Self::Tls,
        Self::Password,
        Self::Token,
        Self::Key,
        Self::Ssh,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn word(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Gsi => "gsi",
            Self::Tls => "tls",
            Self::Password => "password",
            Self::Token => "token",
            Self::Ssh => "ssh",
            Self::Key => "key",
        }
    }
}

/// All counters, since the server started.
pub(crate) struct Metrics {
    began: SystemTime,
    connections: Counter,
    refused: Counters<ConnectionRefusal, { ConnectionRefusal::COUNT }>,
    logins: Counters<Method, { Method::COUNT }>,
    logins_refused: Counters<Class, { Class::COUNT }>,
    moves: [Moves; Direction::COUNT],
    changes: [Counter; 2],
    errors: Counters<Class, { Class::COUNT }>,
    channels_opened: Counter,
    retransmitted: Counter,
    present: Mutex<BTreeMap<u64, Arc<Mutex<ConnectionState>>>>,
    nodes: Mutex<Option<Arc<dyn NodeSource>>>,
}

/// A data node, for monitoring. The settings name all of them.
pub(crate) struct NodeSample {
    pub(crate) name: String,
    pub(crate) is_well: bool,
    /// Of sessions.
    pub(crate) links: u32,
    pub(crate) channels: u32,
    /// Of payload, since the settings were read.
    pub(crate) bytes: u64,
}

/// Who knows the data nodes.
pub(crate) trait NodeSource: Send + Sync {
    fn samples(&self) -> Vec<NodeSample>;
}

/// Transfers of one direction.
#[derive(Default)]
struct Moves {
    done: Counter,
    failed: Counter,
    bytes: Counter,
    microseconds: Counter,
}

/// Direction of bytes, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
    /// Out, and of no file.
    List,
}

/// Why a connection was refused before the greeting.
#[derive(Clone, Copy, Debug)]
enum ConnectionRefusal {
    Connections,
    Address,
    Failures,
}

/// One connection, while it lasts.
pub(crate) struct ConnectionMetrics {
    metrics: Arc<Metrics>,
    number: u64,
    seen: Arc<Mutex<ConnectionState>>,
}

/// Its state.
struct ConnectionState {
    address: IpAddr,
    since: SystemTime,
    login: Option<Login>,
    doing: Option<ActiveTransfer>,
    channels: Channels,
    bytes: [u64; Direction::COUNT],
    transfers: u64,
}

struct Login {
    method: Method,
    account: Option<String>,
    identity: Option<String>,
}

/// A transfer that runs, as last reported.
struct ActiveTransfer {
    running: Running,
    since: SystemTime,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            began: SystemTime::now(),
            connections: Counter::default(),
            refused: Counters::default(),
            logins: Counters::default(),
            logins_refused: Counters::default(),
            moves: Default::default(),
            changes: Default::default(),
            errors: Counters::default(),
            channels_opened: Counter::default(),
            retransmitted: Counter::default(),
            present: Mutex::default(),
            nodes: Mutex::default(),
        }
    }
}

impl Metrics {
    /// The data nodes from now on.
    pub(crate) fn set_nodes(&self, nodes: Option<Arc<dyn NodeSource>>) {
        *lock(&self.nodes) = nodes;
    }

    /// A connection was admitted.
    pub(crate) fn enter(self: &Arc<Self>, number: u64, address: IpAddr) -> ConnectionMetrics {
        self.connections.add(1);
        let seen = Arc::new(Mutex::new(ConnectionState {
            address,
            since: SystemTime::now(),
            login: None,
            doing: None,
            channels: Channels::default(),
            bytes: Default::default(),
            transfers: 0,
        }));
        lock(&self.present).insert(number, Arc::clone(&seen));
        ConnectionMetrics {
            metrics: Arc::clone(self),
            number,
            seen,
        }
    }

    /// A connection was refused.
    pub(crate) fn refused(&self, why: &Refusal) {
        self.refused.add(match why {
            Refusal::Address(_) => ConnectionRefusal::Address,
            Refusal::Failures(_) => ConnectionRefusal::Failures,
            Refusal::Connections(_)
            | Refusal::Account { .. }
            | Refusal::Attempts(_)
            | Refusal::Descriptors => ConnectionRefusal::Connections,
        });
    }

    /// The present connections, in the order of their numbers. Their state may change meanwhile.
    fn connections(&self) -> Vec<(u64, Arc<Mutex<ConnectionState>>)> {
        let connections = lock(&self.present);
        connections
            .iter()
            .map(|(number, seen)| (*number, Arc::clone(seen)))
            .collect()
    }

    fn moved(&self, direction: Direction, seen: &mut ConnectionState, flow: Flow) {
        let counted = seen.doing.as_ref().map(|doing| doing.running.flow);
        let counted = counted.unwrap_or_default();
        let bytes = growth(flow.bytes, counted.bytes);
        self.moves[direction as usize].bytes.add(bytes);
        seen.bytes[direction as usize] = seen.bytes[direction as usize].saturating_add(bytes);
        self.retransmitted
            .add(growth(flow.retransmitted, counted.retransmitted));
    }

    fn channels(&self, seen: &mut ConnectionState, channels: Channels) {
        self.channels_opened
            .add(growth(channels.opened, seen.channels.opened));
        seen.channels = channels;
    }

    fn transfer_ended(&self, direction: Direction, seen: &mut ConnectionState, entry: &Entry) {
        let moves = &self.moves[direction as usize];
        let ended = match entry.result {
            Verdict::Done => &moves.done,
            Verdict::Failed => &moves.failed,
        };
        ended.add(1);
        seen.transfers = seen.transfers.saturating_add(1);
        // A transfer without bytes was started ahead and never moved data.
        if let Some(bytes) = entry.bytes {
            let flow = Flow {
                bytes,
                retransmitted: entry.retransmitted.unwrap_or(0),
            };
            self.moved(direction, seen, flow);
            seen.doing = None;
        }
        if let Some(channels) = entry.channels {
            self.channels(seen, channels);
        }
        let seconds = entry.seconds.unwrap_or(0.0).clamp(0.0, SECONDS_MAX);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded above
        moves.microseconds.add((seconds * 1e6) as u64);
    }
}

impl ConnectionMetrics {
    /// Counts an event of the audit log.
    pub(crate) fn observe(&self, who: &Who, entry: &Entry) {
        let metrics = &self.metrics;
        let mut seen = lock(&self.seen);
        match (entry.event, entry.method) {
            (What::Login, Some(method)) => {
                metrics.logins.add(method);
                seen.login = Some(Login {
                    method,
                    account: who.account.clone(),
                    identity: who.identity.clone(),
                });
            }
            (What::Login | What::Prove, None) => {
                if let Some(class) = entry.class {
                    metrics.logins_refused.add(class);
                }
                return;
            }
            (What::Prove | What::Logout, _) => return,
            (event, _) => match Direction::of(event) {
                Some(direction) => metrics.transfer_ended(direction, &mut seen, entry),
                None => metrics.changes[entry.result as usize].add(1),
            },
        }
        if let Some(class) = entry.class {
            metrics.errors.add(class);
        }
    }

    /// Counts what moved since the last report.
    pub(crate) fn progress(&self, progress: &Progress) {
        let mut seen = lock(&self.seen);
        self.metrics.channels(&mut seen, progress.channels);
        let Some(running) = &progress.transfer else {
            return;
        };
        if let Some(direction) = Direction::of(running.what) {
            self.metrics.moved(direction, &mut seen, running.flow);
            let since = seen.doing.take().map(|doing| doing.since);
            seen.doing = Some(ActiveTransfer {
                running: running.clone(),
                since: since.unwrap_or_else(SystemTime::now),
            });
        }
    }
}

impl Drop for ConnectionMetrics {
    fn drop(&mut self) {
        lock(&self.metrics.present).remove(&self.number);
    }
}

impl Direction {
    const COUNT: usize = 3;

    fn of(event: What) -> Option<Self> {
        match event {
            What::Put => Some(Self::In),
            What::Get => Some(Self::Out),
            What::List => Some(Self::List),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::List => "list",
        }
    }
}

impl ConnectionRefusal {
    const COUNT: usize = 3;
}

impl Kind for ConnectionRefusal {
    const ALL: &'static [Self] = &[Self::Connections, Self::Address, Self::Failures];

    fn index(self) -> usize {
        self as usize
    }

    fn word(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Address => "address",
            Self::Failures => "failures",
        }
    }
}

/// By how much a running total has grown, within plausible bounds.
fn growth(now: u64, counted: u64) -> u64 {
    now.saturating_sub(counted).min(AT_ONCE_MAX)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves numbers that are off by one at worst.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use super::*;
    use crate::observe::counting::assert_in_order;

    #[test]
    fn each_kind_has_its_own_counter() {
        assert_in_order::<Class>();
        assert_in_order::<Method>();
        assert_in_order::<ConnectionRefusal>();
    }

    fn connection() -> (Arc<Metrics>, ConnectionMetrics) {
        let metrics = Arc::new(Metrics::default());
        let connection = metrics.enter(7, Ipv4Addr::LOCALHOST.into());
        (metrics, connection)
    }

    fn who() -> Who {
        Who {
            session: 7,
            peer: "192.0.2.1:4711".parse().unwrap(),
            identity: None,
            account: Some("jo".to_owned()),
        }
    }

    fn far(bytes: u64, retransmitted: u64, opened: u64) -> Progress {
        let flow = Flow {
            bytes,
            retransmitted,
        };
        Progress {
            transfer: Some(Running {
                what: What::Put,
                path: "/f".to_owned(),
                flow,
            }),
            channels: Channels { now: 2, opened },
        }
    }

    fn ended(bytes: u64, retransmitted: u64, opened: u64) -> Entry {
        Entry::new(What::Put)
            .moved(bytes, Duration::from_millis(1500))
            .cost(Some(retransmitted), Channels { now: 0, opened })
    }

    fn counts(metrics: &Metrics) -> [u64; 4] {
        let moves = &metrics.moves[Direction::In as usize];
        [
            moves.bytes.count(),
            metrics.retransmitted.count(),
            metrics.channels_opened.count(),
            moves.microseconds.count(),
        ]
    }

    #[test]
    fn reported_progress_is_counted_once() {
        let (metrics, connection) = connection();
        connection.progress(&far(10, 1, 2));
        connection.progress(&far(30, 1, 3));
        assert_eq!(counts(&metrics), [30, 1, 3, 0]);
        // Begun ahead and given up: it is no end of what moves.
        connection.observe(&who(), &Entry::new(What::Put).ended(Some("cut short")));
        connection.progress(&far(40, 1, 3));
        connection.observe(&who(), &ended(50, 2, 4));
        assert_eq!(counts(&metrics), [50, 2, 4, 1_500_000]);
        connection.observe(&who(), &ended(5, 0, 4));
        assert_eq!(counts(&metrics), [55, 2, 4, 3_000_000]);
    }

    #[test]
    fn lies_of_a_session_are_bounded_and_take_nothing_back() {
        let (metrics, connection) = connection();
        for _ in 0..3 {
            connection.progress(&far(u64::MAX, u64::MAX, u64::MAX));
            connection.progress(&far(0, 0, 0));
        }
        let most = 3 * AT_ONCE_MAX;
        assert_eq!(counts(&metrics), [most, most, most, 0]);
        let mut entry = ended(1, 0, 0);
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            entry.seconds = Some(seconds);
            connection.observe(&who(), &entry);
        }
        // Reports of a session's process say nothing of logins.
        for what in [What::Login, What::Prove] {
            let entry = Entry::new(what).by(Method::Gsi).class(Some(Class::Pause));
            connection.observe(&who(), &entry.bounded());
        }
        assert_eq!(metrics.logins.of(Method::Gsi), 0);
        assert_eq!(metrics.logins_refused.of(Class::Pause), 0);
    }

    #[test]
    fn closed_connections_are_not_listed() {
        let (metrics, connection) = connection();
        connection.observe(&who(), &Entry::new(What::Login).by(Method::Token));
        assert_eq!(metrics.connections().len(), 1);
        drop(connection);
        assert!(metrics.connections().is_empty());
        assert_eq!(metrics.logins.of(Method::Token), 1);
    }
}
