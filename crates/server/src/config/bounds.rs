//! Settings of who may connect and how often.

use serde::{Deserialize, Serialize};

use super::{ConfigError, Options, at_least_one};

/// How much of everything there may be at a time. Raising one costs descriptors and a few KiB each;
/// with privilege separation each connection that has spoken is a process, each session another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Connections of any kind.
    pub connections: usize,
    /// Connections of one address (IPv6: one /64).
    pub per_address: usize,
    /// Connections that have not logged in. One more sends the oldest of the address with most
    /// away.
    pub waiting: usize,
    /// The same for one address, of whose own the oldest is sent away.
    pub waiting_per_address: usize,
    /// Sessions of one account.
    pub per_account: usize,
    /// Data channels of one account. Buffers of each take up to 448 KiB, with direct I/O 1.2 MiB.
    pub channels_per_account: u32,
    /// Data channels of one address.
    pub channels_per_address: u32,
    /// Failed logins that an address may have before it must pause.
    pub free_failures: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            per_address: 2000,
            waiting: 1000,
            waiting_per_address: 500,
            per_account: 2000,
            channels_per_account: 4096,
            channels_per_address: 8192,
            free_failures: 10,
        }
    }
}

/// What was said, and defaults for the rest.
pub(super) fn bounds_of(options: &Options) -> Result<Bounds, ConfigError> {
    let mut bounds = Bounds::default();
    for (name, said, bound) in [
        (
            "max-sessions",
            options.max_sessions,
            &mut bounds.connections,
        ),
        (
            "max-sessions-per-address",
            options.max_sessions_per_address,
            &mut bounds.per_address,
        ),
        (
            "max-sessions-per-user",
            options.max_sessions_per_user,
            &mut bounds.per_account,
        ),
        ("max-logins", options.max_logins, &mut bounds.waiting),
        (
            "max-logins-per-address",
            options.max_logins_per_address,
            &mut bounds.waiting_per_address,
        ),
    ] {
        if let Some(count) = said {
            *bound = at_least_one(name, count)? as usize;
        }
    }
    for (name, said, bound) in [
        (
            "max-channels-per-user",
            options.max_channels_per_user,
            &mut bounds.channels_per_account,
        ),
        (
            "max-channels-per-address",
            options.max_channels_per_address,
            &mut bounds.channels_per_address,
        ),
    ] {
        if let Some(count) = said {
            *bound = at_least_one(name, count)?;
        }
    }
    if let Some(count) = options.login_failures {
        bounds.free_failures = at_least_one("login-failures", count)?;
    }
    Ok(bounds)
}
