//! The addresses of a host, as the sessions to it try them.
//!
//! A name with several addresses is one service of several machines, or one machine with several
//! interfaces: sessions use all addresses, each starts with another one. All must serve the same
//! files, as any client would expect.

use std::net::{IpAddr, SocketAddr};

use parking_lot::{Mutex, MutexGuard};

/// What sessions have learned of the addresses.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<AddressState>);

#[derive(Debug, Default)]
struct AddressState {
    /// Sessions so far.
    sessions: usize,
    /// All addresses that the host name has had.
    hosts: Vec<IpAddr>,
    /// No server greeted there the last time, or another address that was tried later did.
    silent: Vec<SocketAddr>,
}

impl Addresses {
    /// Orders `found`, which is in the system's order of preference, for the next session.
    /// Addresses of the preferred family rotate: the other family often leads to the same machines
    /// by a worse path. Addresses without a greeting are tried last.
    pub(crate) fn trial_order(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let mut known = self.lock();
        for host in found.iter().map(SocketAddr::ip) {
            if !known.hosts.contains(&host) {
                known.hosts.push(host);
            }
        }
        let blame = known.sessions;
        known.sessions += 1;
        let (silent, mut tried): (Vec<_>, Vec<_>) =
            (found.into_iter()).partition(|address| known.silent.contains(address));
        let alike = tried
            .iter()
            .take_while(|a| a.is_ipv4() == tried[0].is_ipv4());
        let alike = alike.count();
        if alike > 0 {
            tried[..alike].rotate_left(blame % alike);
        }
        tried.extend(silent);
        tried
    }

    /// All addresses of the name in this run.
    pub(crate) fn hosts(&self) -> Vec<IpAddr> {
        self.lock().hosts.clone()
    }

    /// Records whether a server greeted at `address` in time.
    pub(crate) fn record(&self, address: SocketAddr, greeted: bool) {
        let mut known = self.lock();
        known.silent.retain(|silent| *silent != address);
        if !greeted {
            known.silent.push(address);
        }
    }

    fn lock(&self) -> MutexGuard<'_, AddressState> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(addresses: &[&str]) -> Vec<SocketAddr> {
        let parse = |address: &&str| SocketAddr::new(address.parse().unwrap(), 2811);
        addresses.iter().map(parse).collect()
    }

    #[test]
    fn sessions_begin_with_one_after_the_other() {
        let addresses = Addresses::default();
        let next = || addresses.trial_order(found(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
        assert_eq!(next(), found(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
        assert_eq!(next(), found(&["10.0.0.2", "10.0.0.3", "10.0.0.1"]));
        assert_eq!(next(), found(&["10.0.0.3", "10.0.0.1", "10.0.0.2"]));
        assert_eq!(next(), found(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    }

    #[test]
    fn the_other_family_is_there_for_need_only() {
        let addresses = Addresses::default();
        let both = ["fd00::1", "fd00::2", "10.0.0.1"];
        for first in ["fd00::1", "fd00::2", "fd00::1"] {
            let order = addresses.trial_order(found(&both));
            assert_eq!(order[0], found(&[first])[0]);
            assert_eq!(order[2], found(&["10.0.0.1"])[0]);
        }
    }

    #[test]
    fn a_silent_address_is_tried_last_until_it_greets() {
        let addresses = Addresses::default();
        let next = || addresses.trial_order(found(&["10.0.0.1", "10.0.0.2"]));
        let first = next()[0];
        addresses.record(first, false);
        addresses.record(first, false);
        for _ in 0..3 {
            assert_eq!(next(), found(&["10.0.0.2", "10.0.0.1"]));
        }
        addresses.record(found(&["10.0.0.2"])[0], false);
        assert_eq!(next().len(), 2);
        addresses.record(first, true);
        assert_eq!(next(), found(&["10.0.0.1", "10.0.0.2"]));
        assert!(addresses.trial_order(Vec::new()).is_empty());
    }
}
