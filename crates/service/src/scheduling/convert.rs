//! Values of the store and the API as the scheduler has them, and back.

use std::time::Duration;

use godwit_scheduler as scheduler;
use godwit_service_api::{agent::Share, job::Class, site::Limits, why::WhyCode};
use jiff::Timestamp;

/// The scheduler spells codes as the API does.
pub(super) fn code(text: &str) -> WhyCode {
    serde_json::from_value(text.into()).unwrap_or(WhyCode::Scheduling)
}

pub(super) fn since_1970(at: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

pub(super) fn limits(limits: &Limits) -> scheduler::Limits {
    scheduler::Limits {
        sessions: limits.sessions,
        channels: limits.channels,
        bytes_per_second: limits.bytes_per_second,
        files_per_second: limits.files_per_second,
    }
}

pub(super) fn class(class: Class) -> scheduler::Class {
    match class {
        Class::Urgent => scheduler::Class::Urgent,
        Class::Normal => scheduler::Class::Normal,
        Class::Scavenger => scheduler::Class::Scavenger,
    }
}

pub(super) fn of_api(share: Share) -> scheduler::Share {
    scheduler::Share {
        concurrency: share.concurrency.max(1),
        parallelism: share.parallelism.max(1),
    }
}

pub(super) fn to_api(share: scheduler::Share) -> Share {
    Share {
        concurrency: share.concurrency,
        parallelism: share.parallelism,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_the_scheduler_have_the_codes_of_the_api() {
        assert_eq!(code("no_agent"), WhyCode::NoAgent);
        assert_eq!(code(scheduler::Reason::Paused.code()), WhyCode::Paused);
        assert_eq!(code(scheduler::Reason::AfterJob.code()), WhyCode::AfterJob);
    }
}
