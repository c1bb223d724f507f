//! Settings of data ports, of the addresses announced for them, and of the metrics address.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use godwit_engine::host::net::{PortRange, parse_port_range};
use serde::Deserialize;

use super::ConfigError;

/// `A-B`, checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PortRangeText(pub PortRange);

impl FromStr for PortRangeText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_port_range(text).map(Self).ok_or_else(|| {
            format!("{text:?} is not a port range: write A-B with 1 <= A <= B <= 65535")
        })
    }
}

impl TryFrom<String> for PortRangeText {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Grid sites open this range in their firewalls and set it for every program on the host.
pub(super) fn port_range_of(
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<PortRange>, ConfigError> {
    const NAME: &str = "GLOBUS_TCP_PORT_RANGE";
    match environment(NAME) {
        None => Ok(None),
        Some(text) if text.trim().is_empty() => Ok(None),
        Some(text) => match text.parse() {
            Ok(PortRangeText(range)) => Ok(Some(range)),
            Err(reason) => Err(ConfigError::value(NAME, reason)),
        },
    }
}

/// Metrics are served to this machine only, unless --allow-remote-metrics is given.
pub(super) fn metrics_of(
    address: Option<SocketAddr>,
    allow_remote: Option<bool>,
) -> Result<Option<SocketAddr>, ConfigError> {
    let remote = address.filter(|address| !address.ip().to_canonical().is_loopback());
    match remote {
        Some(address) if !allow_remote.unwrap_or(false) => {
            let port = address.port();
            let reason = format!(
                "{address} can be reached from other machines, which need no login: name a \
                 loopback address, such as 127.0.0.1:{port}, or add --allow-remote-metrics"
            );
            Err(ConfigError::value("metrics", reason))
        }
        _ => Ok(address),
    }
}

pub(super) fn check_data_addresses(addresses: &[IpAddr]) -> Result<(), ConfigError> {
    let mut seen = BTreeMap::new();
    for address in addresses {
        if address.is_unspecified() {
            let reason =
                format!("no client can connect to {address}; name the address that clients reach");
            return Err(ConfigError::value("data-address", reason));
        }
        if let Some(first) = seen.insert(address.is_ipv4(), address) {
            let reason =
                format!("{first} and {address} are of one family; give at most one of each");
            return Err(ConfigError::value("data-address", reason));
        }
    }
    Ok(())
}
