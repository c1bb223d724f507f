//! Who may connect to a data node, and how often, before it is known who it is: a machine that is
//! no front end takes no place from one that is.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Links at a time: a session of a front end has one for each stripe.
pub(super) const LINKS_MAX: usize = 20_000;

/// Links of one machine: another front end has places, too.
pub(super) const LINKS_OF_SOURCE_MAX: usize = 16_000;

/// Connections at a time of machines from which no front end has come yet.
pub(super) const STRANGERS_MAX: usize = 256;

/// The same of one such machine.
pub(super) const STRANGERS_OF_SOURCE_MAX: usize = 32;

/// Connections at a time that have not shown yet that they are from a front end, of machines from
/// which one has come.
pub(super) const KNOWN_MAX: usize = 1024;

/// Connections of a stranger in a row, without one that was from a front end.
pub(super) const FAILURES_MAX: u32 = 64;

/// After so long a stranger has one of them back.
pub(super) const FORGIVEN_EVERY: Duration = Duration::from_secs(1);

/// Machines that are remembered. Of more, none that has failed gets in until others are forgotten;
/// front ends do.
const SOURCES_MAX: usize = 4096;

/// Why a connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooMany {
    #[error("{STRANGERS_MAX} connections have not shown that they are from a front end")]
    Strangers,
    #[error("its host has {0} connections that have not shown that they are from a front end")]
    OfSource(usize),
    #[error("its host has failed {FAILURES_MAX} times to show that it is a front end")]
    Failures,
    #[error("connections come from more than {SOURCES_MAX} hosts")]
    Sources,
}

/// All connections of a node.
#[derive(Default)]
pub(super) struct LinkAdmission {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sources: HashMap<IpAddr, Source>,
    strangers: usize,
    known: usize,
    links: usize,
}

/// A machine.
#[derive(Default)]
struct Source {
    /// A front end has come from there.
    is_known: bool,
    /// Connections that have not shown who they are.
    unproven: usize,
    links: usize,
    failures: u32,
    /// When they were counted last.
    since: Option<Instant>,
}

/// A connection that has not shown who it is. Dropped, it has failed.
pub(super) struct Unproven {
    admission: Arc<LinkAdmission>,
    source: IpAddr,
    was_known: bool,
}

/// A link of a front end.
pub(super) struct LinkPlace {
    admission: Arc<LinkAdmission>,
    source: IpAddr,
}

impl LinkAdmission {
    /// A connection from `address`, at `now`.
    pub(super) fn connect(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<Unproven, TooMany> {
        let source = source_of(address);
        let mut state = self.lock();
        let state = &mut *state;
        if !state.sources.contains_key(&source) {
            state.make_room(now)?;
        }
        let strangers = state.strangers;
        let of = state.sources.entry(source).or_default();
        of.forgive(now);
        match of.is_known {
            true if state.known >= KNOWN_MAX => return Err(TooMany::OfSource(of.unproven)),
            true => state.known += 1,
            false if of.failures >= FAILURES_MAX => return Err(TooMany::Failures),
            false if of.unproven >= STRANGERS_OF_SOURCE_MAX => {
                return Err(TooMany::OfSource(of.unproven));
            }
            false if strangers >= STRANGERS_MAX => return Err(TooMany::Strangers),
            false => state.strangers += 1,
        }
        of.unproven += 1;
        Ok(Unproven {
            admission: Arc::clone(self),
            source,
            was_known: of.is_known,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets machines that nothing is to be known of, when there are too many.
    fn make_room(&mut self, now: Instant) -> Result<(), TooMany> {
        if self.sources.len() < SOURCES_MAX {
            return Ok(());
        }
        self.sources.retain(|_, source| {
            source.forgive(now);
            source.is_known || source.unproven > 0 || source.failures > 0
        });
        match self.sources.len() {
            0..SOURCES_MAX => Ok(()),
            _ => Err(TooMany::Sources),
        }
    }
}

impl Source {
    fn forgive(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since).as_millis() / FORGIVEN_EVERY.as_millis();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed > 0 {
            self.failures = self.failures.saturating_sub(passed);
            self.since = Some(now);
        }
    }
}

impl Unproven {
    /// It is from a front end: a place for its link; the error says why there is none.
    pub(super) fn prove(&self) -> Result<LinkPlace, String> {
        let mut state = self.admission.lock();
        let state = &mut *state;
        if state.links >= LINKS_MAX {
            return Err(format!("the node has {LINKS_MAX} links already"));
        }
        let of = state.sources.entry(self.source).or_default();
        of.is_known = true;
        of.failures = 0;
        if of.links >= LINKS_OF_SOURCE_MAX {
            let links = LINKS_OF_SOURCE_MAX;
            return Err(format!("the node has {links} links of this host already"));
        }
        of.links += 1;
        state.links += 1;
        Ok(LinkPlace {
            admission: Arc::clone(&self.admission),
            source: self.source,
        })
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        match self.was_known {
            true => state.known = state.known.saturating_sub(1),
            false => state.strangers = state.strangers.saturating_sub(1),
        }
        if let Some(of) = state.sources.get_mut(&self.source) {
            of.unproven = of.unproven.saturating_sub(1);
            if !of.is_known {
                of.failures += 1;
            }
        }
    }
}

impl Drop for LinkPlace {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.links = state.links.saturating_sub(1);
        if let Some(of) = state.sources.get_mut(&self.source) {
            of.links = of.links.saturating_sub(1);
        }
    }
}

/// A machine has all addresses of an IPv6 network of 64 bits.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    fn many(
        admission: &Arc<LinkAdmission>,
        count: usize,
        from: impl Fn(usize) -> IpAddr,
    ) -> Vec<Unproven> {
        let now = Instant::now();
        (0..count)
            .map_while(|index| admission.connect(from(index), now).ok())
            .collect()
    }

    #[test]
    fn a_stranger_takes_its_own_places_alone() {
        let admission = Arc::new(LinkAdmission::default());
        let held = many(&admission, 1000, |_| host(1));
        assert_eq!(held.len(), STRANGERS_OF_SOURCE_MAX);
        let now = Instant::now();
        let refused = admission.connect(host(1), now).map(drop).unwrap_err();
        assert_eq!(refused, TooMany::OfSource(STRANGERS_OF_SOURCE_MAX));
        assert!(admission.connect(host(2), now).is_ok());
    }

    #[test]
    fn strangers_from_everywhere_keep_no_front_end_out_that_was_there() {
        let admission = Arc::new(LinkAdmission::default());
        let now = Instant::now();
        let _link = admission.connect(host(1), now).unwrap().prove().unwrap();
        let held = many(&admission, 10_000, |index| {
            host(2 + u32::try_from(index).unwrap())
        });
        assert_eq!(held.len(), STRANGERS_MAX);
        let refused = admission.connect(host(60_000), now).map(drop);
        assert_eq!(refused.unwrap_err(), TooMany::Strangers);
        let of_front_end = many(&admission, 10_000, |_| host(1));
        assert_eq!(of_front_end.len(), KNOWN_MAX);
    }

    #[test]
    fn who_fails_again_and_again_has_to_wait() {
        let admission = Arc::new(LinkAdmission::default());
        let start = Instant::now();
        for _ in 0..FAILURES_MAX {
            drop(admission.connect(host(1), start).unwrap());
        }
        let at = |later| admission.connect(host(1), start + later).map(drop);
        assert_eq!(at(Duration::ZERO).unwrap_err(), TooMany::Failures);
        assert!(at(2 * FORGIVEN_EVERY).is_ok());
        assert!(at(2 * FORGIVEN_EVERY).is_ok());
        assert_eq!(at(2 * FORGIVEN_EVERY).unwrap_err(), TooMany::Failures);
        // One that is from a front end makes all good.
        let later = start + 3 * FORGIVEN_EVERY;
        drop(admission.connect(host(1), later).unwrap().prove().unwrap());
        for _ in 0..10 * FAILURES_MAX {
            drop(admission.connect(host(1), later).unwrap());
        }
    }

    #[test]
    fn memory_for_strangers_has_a_limit() {
        let admission = Arc::new(LinkAdmission::default());
        let start = Instant::now();
        let front_end = admission.connect(host(1), start).unwrap().prove();
        for number in 2..20_000 {
            drop(admission.connect(host(number), start));
        }
        assert_eq!(admission.lock().sources.len(), SOURCES_MAX);
        let fresh = |later| admission.connect(host(20_001), start + later).map(drop);
        assert_eq!(fresh(Duration::ZERO).unwrap_err(), TooMany::Sources);
        assert!(admission.connect(host(1), start).is_ok(), "a front end");
        assert!(
            fresh(2 * FORGIVEN_EVERY).is_ok(),
            "the others are forgotten"
        );
        drop(front_end);
    }

    #[test]
    fn links_of_one_machine_leave_places_for_others() {
        let admission = Arc::new(LinkAdmission::default());
        let now = Instant::now();
        let open = |number| admission.connect(host(number), now).unwrap().prove();
        let mut links: Vec<_> = (0..LINKS_OF_SOURCE_MAX).map(|_| open(1).unwrap()).collect();
        let refused = open(1).map(drop).unwrap_err();
        assert!(refused.contains("links of this host"), "{refused}");
        links.push(open(2).unwrap());
        links.extend((LINKS_OF_SOURCE_MAX + 1..LINKS_MAX).map(|_| open(2).unwrap()));
        let refused = open(3).map(drop).unwrap_err();
        assert!(refused.contains("links already"), "{refused}");
        drop(links);
        assert!(open(1).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_machine() {
        let of = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), host(1));
    }
}
