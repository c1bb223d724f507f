//! Durability, and leftovers of uploads.

pub(crate) mod durability;
pub(crate) mod leftovers;

use std::{
    io,
    time::{Duration, SystemTime},
};

use godwit_proto::{error::StorageFailure, timestamp::Timestamp};
use rustix::io::Errno;

pub(crate) fn failure(errno: Errno, doing: &str) -> StorageFailure {
    failure_of(&errno.into(), doing)
}

pub(crate) fn failure_of(error: &io::Error, doing: &str) -> StorageFailure {
    godwit_engine::storage::failure(doing, error)
}

/// Clamped to what the system's clock type holds; 14 digits never reach its ends.
pub(crate) fn system_time(Timestamp(seconds): Timestamp) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_before_the_epoch_are_dates() {
        assert_eq!(
            system_time(Timestamp(-1)),
            SystemTime::UNIX_EPOCH - Duration::from_secs(1)
        );
        system_time(Timestamp::MIN);
        system_time(Timestamp::MAX);
    }
}
