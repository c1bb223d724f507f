//! Settings of who may connect and how often.

use super::{ConfigError, Options, at_least_one};
use crate::Bounds;

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
