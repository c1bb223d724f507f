//! Addresses that a run may connect to, where its URLs come from others.
//!
//! A name may lead anywhere, and elsewhere the next time, so each address is checked where it is
//! used: those of control connections, and those that servers announce for data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that names and servers may lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressScope {
    /// Those of the Internet.
    Public,
    /// Those of private networks, too. A URL may hold any address itself: who gave the scope has
    /// checked it.
    Site,
    /// All: the URLs are those of the user, who could connect without us.
    #[default]
    Any,
}

impl AddressScope {
    /// Whether a name, or a server's announcement, may lead there.
    pub fn allows(self, address: IpAddr) -> bool {
        scope_of(address) <= self
    }

    /// Whether a URL with `host` may lead there.
    pub(crate) fn allows_for(self, host: &str, address: IpAddr) -> bool {
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        self.allows(address) || self == Self::Site && is_address
    }
}

/// The narrowest scope that has `address`.
fn scope_of(address: IpAddr) -> AddressScope {
    match address {
        IpAddr::V4(address) => scope_of_v4(address),
        IpAddr::V6(address) => scope_of_v6(address),
    }
}

/// Where clouds tell a machine its secrets, beside 169.254.169.254.
const METADATA_V4: [Ipv4Addr; 2] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn scope_of_v4(address: Ipv4Addr) -> AddressScope {
    let [a, b, c, _] = address.octets();
    let is_of_host = address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 192 && b == 0 && c == 0)
        || METADATA_V4.contains(&address);
    let is_of_site = address.is_private()
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b));
    match (is_of_host, is_of_site) {
        (true, _) => AddressScope::Any,
        (false, true) => AddressScope::Site,
        (false, false) => AddressScope::Public,
    }
}

fn scope_of_v6(address: Ipv6Addr) -> AddressScope {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let embedded =
        |high: u16, low: u16| scope_of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match [a, b, c, d, e, f] {
        // Mapped, compatible (also ::1 and ::), translated (SIIT), and by the address translation
        // of RFC 6052.
        [0, 0, 0, 0, 0, 0xffff]
        | [0, 0, 0, 0, 0, 0]
        | [0, 0, 0, 0, 0xffff, 0]
        | [0x64, 0xff9b, 0, 0, 0, 0] => embedded(g, h),
        // The same for a site, which may lead to any address of it.
        [0x64, 0xff9b, 1, ..] => AddressScope::Any,
        // 6to4, and Teredo.
        [0x2002, ..] => embedded(b, c),
        [0x2001, 0, ..] => embedded(!g, !h),
        _ if METADATA_V6.contains(&address) => AddressScope::Any,
        _ if address.is_unique_local() => AddressScope::Site,
        _ if address.is_multicast() || address.is_unicast_link_local() || a & 0xffc0 == 0xfec0 => {
            AddressScope::Any
        }
        _ => AddressScope::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(address: &str) -> [bool; 3] {
        let address = address.parse().unwrap();
        [AddressScope::Public, AddressScope::Site, AddressScope::Any].map(|s| s.allows(address))
    }

    #[test]
    fn public_addresses_are_in_every_scope() {
        for address in [
            "198.51.100.7",
            "9.9.9.9",
            "2001:db8::1",
            "::ffff:9.9.9.9",
            "64:ff9b::909:909",
        ] {
            assert_eq!(scopes(address), [true, true, true], "{address}");
        }
    }

    #[test]
    fn addresses_of_private_networks_are_those_of_a_site() {
        for address in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "fc00::1",
            "fd12:3456::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
        ] {
            assert_eq!(scopes(address), [false, true, true], "{address}");
        }
    }

    #[test]
    fn addresses_of_this_host_of_its_link_and_of_metadata_are_for_users_of_their_own() {
        for address in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2001::80ff:fffe",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert_eq!(scopes(address), [false, false, true], "{address}");
        }
    }

    #[test]
    fn a_site_names_addresses_of_its_own_and_names_lead_to_none_of_the_host() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(AddressScope::Site.allows_for("127.0.0.1", here));
        assert!(AddressScope::Site.allows_for("[::1]", IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert!(!AddressScope::Site.allows_for("a.example.org", here));
        assert!(!AddressScope::Public.allows_for("127.0.0.1", here));
    }
}
