//! Limits of connections, sessions, data channels and failed logins.

use serde::{Deserialize, Serialize};

use super::{ConfigError, Options, at_least_one};

/// How many there may be at a time. Each costs descriptors and a few KiB; with privilege separation
/// each connection that has sent a byte is a process, and each session another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Connections of any kind.
    pub connections: usize,
    /// Connections of one address (IPv6: one /64).
    pub per_address: usize,
    /// Connections that have not logged in. One more evicts the oldest of the
    /// address that has most.
    pub waiting: usize,
    /// The same for one address; one more evicts its oldest.
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

/// The given limits, and defaults for the rest.
pub(super) fn bounds_of(options: &Options) -> Result<Bounds, ConfigError> {
    let mut bounds = Bounds::default();
    for (name, given, bound) in [
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
        if let Some(count) = given {
            *bound = at_least_one(name, count)? as usize;
        }
    }
    let (per_user, per_address) = (
        options.max_channels_per_user,
        options.max_channels_per_address,
    );
    for (name, given, bound) in [
        (
            "max-channels-per-user",
            per_user,
            &mut bounds.channels_per_account,
        ),
        (
            "max-channels-per-address",
            per_address,
            &mut bounds.channels_per_address,
        ),
        (
            "login-failures",
            options.login_failures,
            &mut bounds.free_failures,
        ),
    ] {
        if let Some(count) = given {
            *bound = at_least_one(name, count)?;
        }
    }
    Ok(bounds)
}
