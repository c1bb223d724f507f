//! Where data connections may lead that a server has asked for (PASV, EPSV), and from where the
//! client accepts them (PORT, EPRT).
//!
//! A server that announces the address of another host would have the client send its file there,
//! or connect to services that only the client can reach. So connections lead to the host of the
//! control connection, whatever is announced, unless each of them proves who is at its end (DCAU):
//! then the server may have other hosts that move its data, or the user has named that host. They
//! never lead to ports of well-known services.
//!
//! The same holds for the client's own data ports: a host that connects first could supply the
//! content of a file that the client gets.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use crate::spec::addresses::AddressScope;

/// Ports below belong to well-known services, and servers of FTP listen for data above.
const PORT_MIN: u16 = 1024;

/// What each data connection shows before data flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataProof {
    /// That the user's own identity, or one that was named, is at the other end (DCAU A and S).
    Identities,
    /// Nothing that other hosts of the server could have.
    None,
}

/// Where to connect to for what the server at `peer` has announced. `None`: nowhere, the port is
/// low. Addresses out of `scope` are not followed; the run has connected to `peer`, and the user
/// has `named` others.
pub(crate) fn data_address(
    announced: SocketAddr,
    peer: IpAddr,
    proof: DataProof,
    scope: AddressScope,
    named: &[IpAddr],
) -> Option<SocketAddr> {
    if announced.port() < PORT_MIN {
        return None;
    }
    let (host, peer) = (announced.ip().to_canonical(), peer.to_canonical());
    let is_meant = proof == DataProof::Identities && !is_implausible(host, peer);
    let is_named = named.iter().any(|known| known.to_canonical() == host);
    let follows = host == peer || is_named || is_meant && scope.allows(host);
    let host = if follows { announced.ip() } else { peer };
    Some(SocketAddr::new(host, announced.port()))
}

/// The only hosts from which the client accepts data connections of the server at `peer`, whose
/// name has these addresses. `None`: any.
pub(crate) fn accepted_from(
    peer: IpAddr,
    mut hosts: Vec<IpAddr>,
    proof: DataProof,
) -> Option<Arc<[IpAddr]>> {
    hosts.push(peer);
    (proof == DataProof::None).then(|| hosts.into())
}

/// A server at `peer` may mean another machine by `announced`.
pub(crate) fn is_of_another_host(announced: SocketAddr, peer: IpAddr) -> bool {
    let host = announced.ip().to_canonical();
    host != peer.to_canonical() && !is_implausible(host, peer.to_canonical())
}

/// `address` cannot be meant by a server at `peer`: to us it is another place, perhaps one that the
/// server itself could not reach. Servers behind address translation announce such addresses.
fn is_implausible(address: IpAddr, peer: IpAddr) -> bool {
    address.is_unspecified()
        || address.is_loopback() && !peer.is_loopback()
        || is_private(address) && !is_private(peer)
}

/// An address that means something else, or nothing, outside its own network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(announced: &str, peer: &str, proof: DataProof) -> String {
        let [announced, peer] = [announced, peer].map(|text| text.parse::<IpAddr>().unwrap());
        let announced = SocketAddr::new(announced, 50_000);
        let address = data_address(announced, peer, proof, AddressScope::Any, &[]).unwrap();
        assert_eq!(address.port(), 50_000);
        address.ip().to_canonical().to_string()
    }

    const CASES: [(&str, &str, bool); 13] = [
        ("192.0.2.1", "192.0.2.1", true),
        ("::ffff:192.0.2.1", "192.0.2.1", true),
        // Movers may have addresses of their own.
        ("192.0.2.7", "192.0.2.1", true),
        ("10.0.0.7", "10.0.0.1", true),
        ("127.0.0.1", "192.0.2.1", false),
        ("127.8.0.1", "10.0.0.1", false),
        ("::ffff:127.0.0.1", "2001:db8::1", false),
        ("::1", "fd00::1", false),
        ("10.0.0.7", "192.0.2.1", false),
        ("::ffff:10.0.0.7", "2001:db8::1", false),
        ("169.254.0.1", "192.0.2.1", false),
        ("0.0.0.0", "127.0.0.1", false),
        ("::", "::1", false),
    ];

    #[test]
    fn proven_connections_follow_addresses_that_can_be_meant() {
        for (announced, peer, follows) in CASES {
            let wanted = if follows { announced } else { peer };
            let wanted: IpAddr = wanted.parse().unwrap();
            let host = host(announced, peer, DataProof::Identities);
            assert_eq!(
                host,
                wanted.to_canonical().to_string(),
                "{announced} {peer}"
            );
        }
    }

    #[test]
    fn announced_addresses_out_of_scope_are_not_followed() {
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        for (announced, scope, follows) in [
            ("10.0.0.7", AddressScope::Site, true),
            ("10.0.0.7", AddressScope::Public, false),
            ("10.0.0.1", AddressScope::Public, true),
            ("169.254.169.254", AddressScope::Site, false),
            ("169.254.169.254", AddressScope::Any, true),
        ] {
            let announced = SocketAddr::new(announced.parse().unwrap(), 50_000);
            let proof = DataProof::Identities;
            let address = data_address(announced, peer, proof, scope, &[]).unwrap();
            assert_eq!(address == announced, follows, "{announced} {scope:?}");
        }
    }

    #[test]
    fn data_connections_lead_to_the_host_of_the_control_connection() {
        for (announced, peer, _) in CASES {
            assert_eq!(host(announced, peer, DataProof::None), peer, "{announced}");
        }
    }

    #[test]
    fn hosts_that_the_user_has_named_are_followed() {
        let [peer, node, other] =
            ["10.0.0.1", "10.0.0.7", "10.0.0.8"].map(|a| a.parse::<IpAddr>().unwrap());
        for (host, follows) in [(node, true), (other, false)] {
            let announced = SocketAddr::new(host, 50_000);
            let scope = AddressScope::Any;
            let to = data_address(announced, peer, DataProof::None, scope, &[node]).unwrap();
            assert_eq!(to == announced, follows, "{host}");
        }
    }

    #[test]
    fn unauthenticated_connections_are_accepted_from_the_server_only() {
        let [peer, other] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse::<IpAddr>().unwrap());
        let accepted = accepted_from(peer, vec![other], DataProof::None);
        assert_eq!(accepted.as_deref(), Some(&[other, peer][..]));
        assert_eq!(
            accepted_from(peer, vec![other], DataProof::Identities),
            None
        );
    }

    #[test]
    fn no_connection_leads_to_a_low_port() {
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        for proof in [DataProof::Identities, DataProof::None] {
            for (port, allowed) in [(0, false), (22, false), (1023, false), (1024, true)] {
                let announced = SocketAddr::new(peer, port);
                let named = [announced.ip()];
                let address = data_address(announced, peer, proof, AddressScope::Any, &named);
                assert_eq!(address.is_some(), allowed, "{port}");
            }
        }
    }
}
