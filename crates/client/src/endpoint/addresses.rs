//! The addresses of a host, as the sessions to it try them.
//!
//! A name with several addresses is one service of several machines, or of one machine with several
//! ways to it: sessions use all of them together, each begins with another one. They must see the
//! same files, as they must for whoever takes any of them.

use std::net::{IpAddr, SocketAddr};

use parking_lot::{Mutex, MutexGuard};

/// What sessions have learned of them.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<AddressState>);

#[derive(Debug, Default)]
struct AddressState {
    /// Sessions so far.
    sessions: usize,
    /// All that the name of the host has led to.
    hosts: Vec<IpAddr>,
    /// Nobody greeted there the last time, or another did who was asked later.
    silent: Vec<SocketAddr>,
}

impl Addresses {
    /// `found`, which is in the system's order of preference, in the order in which the next
    /// session is to try them. Those of the family that the system prefers take turns: the other
    /// family is often another way to the same machines, and a worse one. Where nobody greeted is
    /// tried last.
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

    /// All addresses that the name has had in this run.
    pub(crate) fn hosts(&self) -> Vec<IpAddr> {
        self.lock().hosts.clone()
    }

    /// Whether somebody greeted at `address`, in time.
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
    fn where_nobody_greets_is_tried_last_until_somebody_does() {
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
