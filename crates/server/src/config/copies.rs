//! Settings of copies between this server and others, over HTTPS.

use std::{
    net::{IpAddr, Ipv6Addr},
    path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{ConfigError, GsiSettings, Options, at_least_one};

/// Copies that users may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySettings {
    /// Hosts that may be connected to although their addresses are not public.
    pub hosts: Vec<AllowedHost>,
    /// Who vouches for other servers.
    pub authorities: CopyAuthorities,
    /// Other servers see this server's certificate.
    pub as_host: bool,
    /// Copies at a time.
    pub total: u32,
    /// Those of one user.
    pub per_user: u32,
}

impl Default for CopySettings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            authorities: CopyAuthorities::System,
            as_host: false,
            total: 128,
            per_user: 32,
        }
    }
}

/// Who vouches for other servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyAuthorities {
    /// The authorities of the system.
    System,
    /// Those in a file.
    File(PathBuf),
    /// Those of a grid, with revocation lists and signing policies.
    Grid(PathBuf),
}

/// A host, or all of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AllowedHost {
    /// As URLs name it, in lower case.
    Name(String),
    /// An address, and how many of its bits count.
    Network(IpAddr, u8),
}

impl AllowedHost {
    /// Whether a server is one of these.
    pub(crate) fn has(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Name(name) => name.eq_ignore_ascii_case(host),
            Self::Network(network, bits) => match (network, address.to_canonical()) {
                (IpAddr::V4(network), IpAddr::V4(address)) => {
                    let shift = 32 - u32::from(*bits);
                    let differ = network.to_bits() ^ address.to_bits();
                    differ.checked_shr(shift).unwrap_or(0) == 0
                }
                (IpAddr::V6(network), IpAddr::V6(address)) => {
                    let differ = network.to_bits() ^ address.to_bits();
                    let shift = 128 - u32::from(*bits);
                    differ.checked_shr(shift).unwrap_or(0) == 0
                }
                _ => false,
            },
        }
    }
}

impl FromStr for AllowedHost {
    type Err = String;
    /// `HOST`, `ADDRESS` or `ADDRESS/BITS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?}: wanted a host, an address or a network as 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<IpAddr>() {
            let most = if address.is_ipv4() { 32 } else { 128 };
            return match bits.unwrap_or(most) {
                bits if bits <= most => Ok(Self::Network(address, bits)),
                _ => Err(bad()),
            };
        }
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        match bits.is_none() && !text.is_empty() && text.bytes().all(is_fit) {
            true => Ok(Self::Name(text.to_ascii_lowercase())),
            false => Err(bad()),
        }
    }
}

impl From<AllowedHost> for String {
    fn from(host: AllowedHost) -> Self {
        match host {
            AllowedHost::Name(name) => name,
            AllowedHost::Network(address, bits) => format!("{address}/{bits}"),
        }
    }
}

impl TryFrom<String> for AllowedHost {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// `None`: there are no copies.
pub(super) fn copies_of(
    options: &Options,
    gsi: Option<&GsiSettings>,
) -> Result<Option<CopySettings>, ConfigError> {
    let mut copies = CopySettings::default();
    if options.third_party_copy == Some(false) {
        return Ok(None);
    }
    copies.hosts.clone_from(&options.allow_copy_host);
    copies.authorities = match (&options.copy_authorities, gsi) {
        (None, Some(gsi)) => CopyAuthorities::Grid(gsi.authorities.clone()),
        (None, None) => CopyAuthorities::System,
        (Some(word), _) if word.as_os_str() == "system" => CopyAuthorities::System,
        (Some(path), _) if path.is_dir() => CopyAuthorities::Grid(path.clone()),
        (Some(path), _) => CopyAuthorities::File(path.clone()),
    };
    copies.as_host = options.copy_as_host.unwrap_or(false);
    if let Some(count) = options.max_copies {
        copies.total = at_least_one("max-copies", count)?;
    }
    if let Some(count) = options.max_copies_per_user {
        copies.per_user = at_least_one("max-copies-per-user", count)?;
    }
    Ok(Some(copies))
}

/// Whether the address is one that anybody can reach: no other place on this host, in its network
/// or of its provider is.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let within = |network: [u8; 4], bits: u32| {
                let network = u32::from_be_bytes(network);
                (network ^ address.to_bits()) >> (32 - bits) == 0
            };
            let others = [
                ([0, 0, 0, 0], 8),
                ([10, 0, 0, 0], 8),
                // Shared by customers of a provider (RFC 6598).
                ([100, 64, 0, 0], 10),
                ([127, 0, 0, 0], 8),
                // Link-local, with the metadata of clouds.
                ([169, 254, 0, 0], 16),
                ([172, 16, 0, 0], 12),
                ([192, 0, 0, 0], 24),
                ([192, 0, 2, 0], 24),
                ([192, 88, 99, 0], 24),
                ([192, 168, 0, 0], 16),
                ([198, 18, 0, 0], 15),
                ([198, 51, 100, 0], 24),
                ([203, 0, 113, 0], 24),
                // Multicast, reserved, broadcast.
                ([224, 0, 0, 0], 3),
            ];
            !others.iter().any(|(network, bits)| within(*network, *bits))
        }
        IpAddr::V6(address) => {
            // Only 2000::/3 is given out. In it, Teredo, 6to4 and documentation lead elsewhere.
            let [first, second, ..] = address.segments();
            match (first, second) {
                (0x0064, 0xff9b) => translated(address).is_some_and(is_public),
                (0x2001, 0x0000..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, 0..=0x0fff) => false,
                _ => match address.to_ipv4_mapped() {
                    Some(mapped) => is_public(mapped.into()),
                    None => first & 0xe000 == 0x2000,
                },
            }
        }
    }
}

/// The address of IPv4 behind 64:ff9b::/96 (RFC 6052).
fn translated(address: Ipv6Addr) -> Option<IpAddr> {
    let [_, _, 0, 0, 0, 0, high, low] = address.segments() else {
        return None;
    };
    Some(IpAddr::V4((u32::from(high) << 16 | u32::from(low)).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.32.0.1",
            "192.169.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:1458::1",
            "2a00:1450::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn hosts_and_networks_are_allowed() {
        let allows = |rule: &str, host: &str, address: &str| {
            let rule: AllowedHost = rule.parse().unwrap();
            assert_eq!(String::from(rule.clone()).parse(), Ok(rule.clone()));
            rule.has(host, address.parse().unwrap())
        };
        assert!(allows("Store.example", "store.EXAMPLE", "10.0.0.1"));
        assert!(!allows("store.example", "a.store.example", "10.0.0.1"));
        assert!(allows("10.0.0.0/8", "x", "10.255.0.1"));
        assert!(allows("10.0.0.0/8", "x", "::ffff:10.0.0.1"));
        assert!(!allows("10.0.0.0/8", "10.0.0.1", "11.0.0.1"));
        assert!(allows("127.0.0.1", "x", "127.0.0.1"));
        assert!(!allows("127.0.0.1", "x", "127.0.0.2"));
        assert!(allows("0.0.0.0/0", "x", "1.2.3.4"));
        assert!(!allows("0.0.0.0/0", "x", "::1"));
        assert!(allows("fd00::/8", "x", "fd12::1"));
        assert!(allows("::1", "x", "::1"));
        for bad in ["", "10.0.0.0/33", "::/129", "a/8", "a b", "https://a"] {
            assert!(bad.parse::<AllowedHost>().is_err(), "{bad}");
        }
    }
}
