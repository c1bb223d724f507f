//! How many connections and logins are allowed, how often, and which connection is evicted for a
//! new one. Pure: it holds numbers, and time is passed in.
//!
//! ```text
//!   connect ── admit ──► waiting (not logged in) ── spoke ──► waiting, evicted later
//!       ── logged_in ──► session of an account
//!                │             └── evicted when other connections need the place    └── left
//!                └── refused: too many, too many of the address, too many failed logins
//! ```

use crate::config::Bounds;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use super::identity::Principal;

/// Addresses whose failed logins are remembered; above it the one that failed longest ago is
/// forgotten. About 1 MiB.
const FAILING_MAX: usize = 10_000;

/// Time after which one failed login is forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(30);

/// First pause once the free failures are used up; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);

/// Longest pause. Guessing then makes one attempt a minute.
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// Why a connection or a login is refused. The text is for the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("Too many sessions (limit {0})")]
    Connections(usize),
    #[error("Too many sessions of your address (limit {0})")]
    Address(usize),
    #[error("Too many sessions of {account} (limit {limit})")]
    Account { account: String, limit: usize },
    #[error("The server is out of descriptors")]
    Descriptors,
    #[error("Too many logins of your address wait (limit {0})")]
    Attempts(usize),
    #[error("Too many failed logins from your address, try again in {} s", .0.as_secs().max(1))]
    Failures(Duration),
}

/// The numbers.
#[derive(Debug)]
pub(crate) struct Limits {
    bounds: Bounds,
    connections: HashMap<u64, LimitedConnection>,
    /// Connections and, of those, the ones that wait.
    addresses: HashMap<IpAddr, (usize, usize)>,
    waiting: usize,
    accounts: HashMap<Principal, usize>,
    failing: HashMap<IpAddr, Failures>,
}

#[derive(Debug)]
struct LimitedConnection {
    address: IpAddr,
    spoke: bool,
    /// `None`: waits.
    account: Option<Principal>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When the last one was, or the last one was forgotten.
    since: Instant,
}

impl Limits {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            connections: HashMap::new(),
            addresses: HashMap::new(),
            waiting: 0,
            accounts: HashMap::new(),
            failing: HashMap::new(),
        }
    }

    /// For new connections and logins; present ones stay.
    pub(crate) fn change(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// A connection starts. `id` is larger than all before. Returns the one that is evicted for it,
    /// which does not count any more.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        address: IpAddr,
        id: u64,
    ) -> Result<Option<u64>, Refusal> {
        self.may_try(now, address)?;
        let address = network(address);
        let (of_address, waiting_there) = self.addresses.get(&address).copied().unwrap_or((0, 0));
        let bounds = self.bounds;
        let goes = if waiting_there >= bounds.waiting_per_address {
            self.first_to_go(address)
        } else if self.waiting >= bounds.waiting {
            let most = self
                .addresses
                .iter()
                .max_by_key(|(_, (_, waiting))| *waiting);
            most.map(|(address, _)| *address)
                .and_then(|address| self.first_to_go(address))
        } else {
            None
        };
        let makes_room = |of: &IpAddr| goes.is_some_and(|id| self.connections[&id].address == *of);
        if of_address >= bounds.per_address && !makes_room(&address) {
            return Err(Refusal::Address(bounds.per_address));
        }
        if self.connections.len() >= bounds.connections && goes.is_none() {
            return Err(Refusal::Connections(bounds.connections));
        }
        if let Some(id) = goes {
            self.left(id);
        }
        let counts = self.addresses.entry(address).or_default();
        counts.0 += 1;
        counts.1 += 1;
        self.waiting += 1;
        let connection = LimitedConnection {
            address,
            spoke: false,
            account: None,
        };
        self.connections.insert(id, connection);
        Ok(goes)
    }

    /// A connection that has sent a byte is evicted after those that have not.
    pub(crate) fn received_first_byte(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.spoke = true;
        }
    }

    /// Whether a login may be tried now.
    pub(crate) fn may_try(&self, now: Instant, address: IpAddr) -> Result<(), Refusal> {
        let Some(failures) = self.failing.get(&network(address)) else {
            return Ok(());
        };
        let Failures { count, since } = failures.at(now);
        let over = count.saturating_sub(self.bounds.free_failures);
        if over == 0 {
            return Ok(());
        }
        let pause = PAUSE_FIRST
            .saturating_mul(1 << (over - 1).min(16))
            .min(PAUSE_MAX);
        match pause.saturating_sub(now.saturating_duration_since(since)) {
            Duration::ZERO => Ok(()),
            left => Err(Refusal::Failures(left)),
        }
    }

    /// Whether a login may be tried beside `running` ones of its address, which may all fail.
    /// False: not before one of them has ended.
    pub(crate) fn may_try_beside(
        &self,
        now: Instant,
        address: IpAddr,
        running: u32,
    ) -> Result<bool, Refusal> {
        self.may_try(now, address)?;
        let failures = self.failing.get(&network(address));
        let count = failures.map_or(0, |failures| failures.at(now).count);
        let free = self.bounds.free_failures.saturating_sub(count);
        Ok(running < free.max(1))
    }

    /// A login has failed.
    pub(crate) fn failed(&mut self, now: Instant, address: IpAddr) {
        let address = network(address);
        if !self.failing.contains_key(&address) && self.failing.len() >= FAILING_MAX {
            let oldest = self
                .failing
                .iter()
                .min_by_key(|(_, failures)| failures.since);
            let oldest = oldest.map(|(address, _)| *address);
            oldest.and_then(|address| self.failing.remove(&address));
        }
        let before = self.failing.get(&address).map_or(0, |f| f.at(now).count);
        let failures = Failures {
            count: before.saturating_add(1),
            since: now,
        };
        self.failing.insert(address, failures);
    }

    /// A login succeeds, unless the account has too many. A connection may log in again as another
    /// account, which then has it.
    pub(crate) fn logged_in(&mut self, id: u64, account: &Principal) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        if connection.account.as_ref() == Some(account) {
            return Ok(());
        }
        let limit = self.bounds.per_account;
        let sessions = self.accounts.entry(account.clone()).or_default();
        if *sessions >= limit {
            let account = account.to_string();
            return Err(Refusal::Account { account, limit });
        }
        *sessions += 1;
        match connection.account.replace(account.clone()) {
            Some(before) => self.release(&before),
            None => {
                self.waiting -= 1;
                if let Some(counts) = self.addresses.get_mut(&connection.address) {
                    counts.1 -= 1;
                }
            }
        }
        Ok(())
    }

    /// A session of the account has ended.
    fn release(&mut self, account: &Principal) {
        if let Some(sessions) = self.accounts.get_mut(account) {
            *sessions -= 1;
            if *sessions == 0 {
                self.accounts.remove(account);
            }
        }
    }

    /// A user authenticated. It offsets one failed login, since hosts of many users have both. An
    /// anonymous login does not, or a client could guess passwords forever.
    pub(crate) fn proven(&mut self, address: IpAddr) {
        if let Some(failures) = self.failing.get_mut(&network(address)) {
            failures.count = failures.count.saturating_sub(1);
        }
    }

    /// A connection has ended.
    pub(crate) fn left(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        let waited = connection.account.is_none();
        if let Some(counts) = self.addresses.get_mut(&connection.address) {
            counts.0 -= 1;
            counts.1 -= usize::from(waited);
            if counts.0 == 0 {
                self.addresses.remove(&connection.address);
            }
        }
        self.waiting -= usize::from(waited);
        if let Some(account) = connection.account {
            self.release(&account);
        }
    }

    /// Of the waiting connections of `address`, the oldest silent one, else the oldest.
    fn first_to_go(&self, address: IpAddr) -> Option<u64> {
        let waiting = self
            .connections
            .iter()
            .filter(|(_, one)| one.account.is_none() && one.address == address);
        waiting
            .min_by_key(|(id, one)| (one.spoke, **id))
            .map(|(id, _)| *id)
    }
}

impl Failures {
    /// Less the failures that have expired.
    fn at(self, now: Instant) -> Self {
        let periods =
            now.saturating_duration_since(self.since).as_secs() / FORGIVEN_AFTER.as_secs();
        let forgotten = u32::try_from(periods).unwrap_or(u32::MAX);
        Self {
            count: self.count.saturating_sub(forgotten),
            since: self.since,
        }
    }
}

/// The network from which one client can choose its addresses counts as one.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// The account with which a login shares processors. Anonymous users have one account, so their
/// networks distinguish them.
pub(crate) fn sharing_as(account: &Principal, address: IpAddr) -> String {
    match account {
        Principal::Anonymous(_) => network(address).to_string(),
        _ => account.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        connections: 8,
        per_address: 6,
        waiting: 5,
        waiting_per_address: 4,
        per_account: 2,
        channels_per_account: 1,
        channels_per_address: 1,
        free_failures: 3,
    };

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn named(account: &str) -> Principal {
        Principal::Account(account.to_owned())
    }

    struct Admission {
        limits: Limits,
        now: Instant,
        next: u64,
    }

    impl Admission {
        fn new(bounds: Bounds) -> Self {
            Self {
                limits: Limits::new(bounds),
                now: Instant::now(),
                next: 0,
            }
        }

        fn admit(&mut self, address: IpAddr) -> Result<Option<u64>, Refusal> {
            self.next += 1;
            self.limits.admit(self.now, address, self.next)
        }
    }

    #[test]
    fn the_oldest_silent_connection_is_evicted_first() {
        let mut admission = Admission::new(BOUNDS);
        for _ in 0..4 {
            assert_eq!(admission.admit(ip(1)), Ok(None));
        }
        admission.limits.received_first_byte(1);
        assert_eq!(admission.admit(ip(1)), Ok(Some(2)));
        // The address with most makes room for another.
        assert_eq!(admission.admit(ip(2)), Ok(None));
        assert_eq!(admission.admit(ip(3)), Ok(Some(3)));
        for id in [4, 5] {
            admission.limits.received_first_byte(id);
        }
        assert_eq!(admission.admit(ip(4)), Ok(Some(1)));
        assert_eq!(admission.limits.waiting, 5);
    }

    #[test]
    fn unauthenticated_connections_evict_no_session() {
        let mut admission = Admission::new(BOUNDS);
        for account in ["a", "a", "b"] {
            admission.admit(ip(1)).unwrap();
            admission
                .limits
                .logged_in(admission.next, &named(account))
                .unwrap();
        }
        for last in 2..200 {
            admission.admit(ip(last)).unwrap();
        }
        let sessions = |limits: &Limits| limits.connections.keys().filter(|id| **id <= 3).count();
        assert_eq!(sessions(&admission.limits), 3);
        assert_eq!(admission.limits.connections.len(), 8);
        for last in 2..200_u8 {
            admission.limits.left(u64::from(last) + 2);
        }
        assert_eq!(admission.limits.addresses.len(), 1);
    }

    #[test]
    fn sessions_are_counted_by_address_account_and_in_all() {
        let mut admission = Admission::new(Bounds {
            connections: 7,
            ..BOUNDS
        });
        for number in 0..6 {
            admission.admit(ip(1)).unwrap();
            let account = format!("user{number}");
            admission
                .limits
                .logged_in(admission.next, &named(&account))
                .unwrap();
        }
        assert_eq!(admission.admit(ip(1)), Err(Refusal::Address(6)));
        assert_eq!(admission.admit(ip(2)), Ok(None));
        assert_eq!(admission.admit(ip(3)), Err(Refusal::Connections(7)));
        admission.limits.left(1);
        admission.admit(ip(1)).unwrap();
        let account = "user1".to_owned();
        admission
            .limits
            .logged_in(admission.next, &named(&account))
            .unwrap();
        admission.limits.left(2);
        admission.limits.left(3);
        for result in [Ok(()), Err(Refusal::Account { account, limit: 2 })] {
            admission.admit(ip(1)).unwrap();
            assert_eq!(
                admission.limits.logged_in(admission.next, &named("user1")),
                result
            );
        }
    }

    #[test]
    fn ended_connections_leave_no_state() {
        let mut admission = Admission::new(BOUNDS);
        for round in 0..50 {
            admission.admit(ip(round)).unwrap();
            if round % 2 == 0 {
                admission
                    .limits
                    .logged_in(admission.next, &named("a"))
                    .unwrap();
            }
            admission.limits.left(admission.next);
            admission.limits.left(admission.next);
        }
        let limits = &admission.limits;
        assert!(limits.connections.is_empty() && limits.addresses.is_empty());
        assert!(limits.accounts.is_empty() && limits.waiting == 0);
    }

    #[test]
    fn failures_make_pauses_that_grow_and_are_forgotten() {
        let mut admission = Admission::new(BOUNDS);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            admission.limits.failed(admission.now, ip(1));
            pauses.push(match admission.limits.may_try(admission.now, ip(1)) {
                Ok(()) => 0,
                Err(Refusal::Failures(pause)) => pause.as_secs(),
                Err(other) => panic!("{other}"),
            });
        }
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(admission.admit(ip(1)).is_err());
        assert!(admission.admit(ip(2)).is_ok());
        admission.now += PAUSE_MAX;
        assert!(admission.admit(ip(1)).is_ok());
        // Two of twelve are forgotten by now: the next failure is the eleventh.
        admission.limits.failed(admission.now, ip(1));
        assert_eq!(admission.limits.failing[&ip(1)].count, 11);
        admission.now += FORGIVEN_AFTER * 11;
        admission.limits.failed(admission.now, ip(1));
        assert_eq!(admission.limits.failing[&ip(1)].count, 1);
    }

    #[test]
    fn successful_logins_reduce_failures() {
        let mut admission = Admission::new(BOUNDS);
        for _ in 0..5 {
            admission.limits.failed(admission.now, ip(1));
        }
        assert!(admission.limits.may_try(admission.now, ip(1)).is_err());
        admission.now += PAUSE_MAX;
        admission.admit(ip(1)).unwrap();
        admission
            .limits
            .logged_in(admission.next, &named("a"))
            .unwrap();
        assert_eq!(admission.limits.failing[&ip(1)].count, 5);
        admission.limits.proven(ip(1));
        assert_eq!(admission.limits.failing[&ip(1)].count, 4);
    }

    #[test]
    fn memory_of_failures_is_bounded_and_hosts_count_as_one() {
        let mut admission = Admission::new(BOUNDS);
        for number in 0..FAILING_MAX + 100 {
            let number = u32::try_from(number).unwrap();
            admission.now += Duration::from_millis(1);
            admission
                .limits
                .failed(admission.now, IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(admission.limits.failing.len(), FAILING_MAX);
        let six: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2:3"].map(|text| text.parse().unwrap());
        assert_eq!(network(six[0]), network(six[1]));
        let four: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(network(four), ip(1));
    }

    #[test]
    fn a_token_for_root_takes_no_session_of_the_account_root() {
        let mut admission = Admission::new(BOUNDS);
        let of = |issuer: &str| Principal::Bearer {
            issuer: issuer.to_owned(),
            subject: "root".to_owned(),
        };
        let mut enter = |holder: &Principal| {
            admission.next += 1;
            admission
                .limits
                .admit(admission.now, ip(1), admission.next)
                .unwrap();
            admission.limits.logged_in(admission.next, holder)
        };
        for _ in 0..2 {
            enter(&of("https://a/")).unwrap();
        }
        enter(&of("https://a/")).unwrap_err();
        // Nor of another issuer's.
        enter(&of("https://b/")).unwrap();
        enter(&named("root")).unwrap();
        enter(&Principal::Anonymous("root".to_owned())).unwrap();
    }
}
