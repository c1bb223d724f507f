//! Whether a certificate is a host's.

use std::fmt;
use std::net::IpAddr;

use super::Refusal;
use crate::cert::Certificate;

/// A host as a URL names it: a name or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// In lower case, without a dot at the end.
    Name(String),
    /// A literal address.
    Address(IpAddr),
}

impl HostName {
    /// From the text of a URL's host, without brackets.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Name(canonical(text)),
        }
    }

    /// Checks that the certificate is this host's. RFC 2818 §3.1 as the Grid Community Toolkit has
    /// it: alternative names alone count if there are any of that kind; else the last common name,
    /// plain or as `host/name`. A `*` stands for (the rest of) the first label. Nothing is looked
    /// up, so no name service can vouch for a host. A proxy is no host's: the holder of any
    /// certificate can make proxies below it with any common name.
    ///
    /// # Errors
    /// [`Refusal::Host`] with the names that the certificate is for.
    pub fn check(&self, certificate: &Certificate) -> Result<(), Refusal> {
        if certificate.proxy().is_some() {
            return Err(Refusal::Host {
                host: self.to_string(),
                found: format!("the independent proxy {}", certificate.subject()),
            });
        }
        let extensions = certificate.extensions();
        let common_name = certificate.subject().common_names().last();
        let common_name = common_name.map(|name| name.strip_prefix("host/").unwrap_or(name));
        let is_same = match self {
            Self::Address(address) if !extensions.addresses.is_empty() => {
                extensions.addresses.contains(address)
            }
            Self::Name(host) if !extensions.dns_names.is_empty() => {
                let mut names = extensions.dns_names.iter();
                names.any(|name| matches(&canonical(name), host))
            }
            Self::Name(host) => common_name.is_some_and(|name| matches(&canonical(name), host)),
            Self::Address(address) => {
                extensions.dns_names.is_empty()
                    && common_name.and_then(|name| name.parse().ok()) == Some(*address)
            }
        };
        if is_same {
            return Ok(());
        }
        let names = extensions.dns_names.iter().cloned();
        let addresses = extensions.addresses.iter().map(IpAddr::to_string);
        let alternatives: Vec<String> = names.chain(addresses).take(NAMES_TOLD_MAX).collect();
        Err(Refusal::Host {
            host: self.to_string(),
            found: if alternatives.is_empty() {
                certificate.subject().to_string()
            } else {
                alternatives.join(", ")
            },
        })
    }
}

/// A message is to be read.
const NAMES_TOLD_MAX: usize = 8;

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn canonical(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn matches(pattern: &str, host: &str) -> bool {
    let Some((first, parents)) = pattern.split_once('.') else {
        return pattern == host && !pattern.contains('*');
    };
    let Some(prefix) = first.strip_suffix('*') else {
        return pattern == host && !pattern.contains('*');
    };
    // `*.org` would be half the world.
    let is_narrow = parents.contains('.') && !parents.contains('*') && !prefix.contains('*');
    let Some((label, rest)) = host.split_once('.') else {
        return false;
    };
    is_narrow && rest == parents && label.len() > prefix.len() && label.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_label_at_most() {
        for (pattern, host, expected) in [
            ("a.example.org", "a.example.org", true),
            ("*.example.org", "a.example.org", true),
            ("gf*.example.org", "gf7.example.org", true),
            ("gf*.example.org", "gf.example.org", false),
            ("*.example.org", "a.b.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.org", "example.org", false),
            ("a.*.org", "a.example.org", false),
            ("*f.example.org", "gf.example.org", false),
            ("*.*.org", "a.b.org", false),
            ("*", "localhost", false),
            ("localhost", "localhost", true),
        ] {
            assert_eq!(matches(pattern, host), expected, "{pattern} {host}");
        }
    }
}
