//! What a unit costs: its bytes and files, or where it holds what is limited, the time for which it
//! does.

use crate::{budget::Budget, model::FILE_COST};

/// What a session of a limited endpoint costs in a second, in bytes, so that times and bytes are of
/// about one size: the tree gives credit in bytes. It is what the fastest of common units move.
const SESSION_SECOND: f64 = 400e6;

/// What a unit used, or is expected to use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) files: u32,
    /// Sessions and data channels, each for so many seconds.
    pub(crate) session_seconds: f64,
    pub(crate) channel_seconds: f64,
}

impl Usage {
    /// In bytes: files count, too.
    pub(crate) fn cost(&self) -> f64 {
        cost(self.bytes, self.files)
    }

    /// At an endpoint of this budget.
    ///
    /// Where sessions or channels are limited, units of a slow path hold them for longer than
    /// those of a fast one. Equal bytes would leave nearly all of them to the slow path. So a unit
    /// pays for the part of the limit of which it used most (as in dominant resource fairness,
    /// Ghodsi 2011), in seconds of the whole endpoint.
    pub(crate) fn cost_at(&self, budget: &Budget) -> f64 {
        let limits = &budget.limits;
        let sessions = Some(budget.session_limit()).filter(|limit| *limit < u32::MAX);
        let Some(places) = sessions.or(limits.channels) else {
            return self.cost();
        };
        let rate = limits.bytes_per_second.map(as_float);
        let parts = [
            (self.session_seconds, sessions.map(f64::from)),
            (self.channel_seconds, limits.channels.map(f64::from)),
            (self.cost(), rate),
            (
                f64::from(self.files),
                limits.files_per_second.map(f64::from),
            ),
        ];
        let seconds = parts
            .into_iter()
            .filter_map(|(used, limit)| Some(used / limit?.max(1.0)))
            .fold(0.0, f64::max);
        seconds * rate.unwrap_or(SESSION_SECOND * f64::from(places)).max(1.0)
    }
}

/// Bytes and files, in bytes.
pub(crate) fn cost(bytes: u64, files: impl Into<u64>) -> f64 {
    as_float(bytes.saturating_add(files.into().saturating_mul(FILE_COST)))
}

#[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a cost
pub(crate) fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Limits;

    fn cost_at(usage: Usage, limits: Limits) -> f64 {
        let mut budget = Budget::default();
        budget.limits = limits;
        usage.cost_at(&budget)
    }

    const UNIT: Usage = Usage {
        bytes: 4_000_000_000,
        files: 100,
        session_seconds: 10.0,
        channel_seconds: 40.0,
    };

    #[test]
    fn without_limits_of_what_is_held_bytes_and_files_count() {
        let rates = Limits {
            bytes_per_second: Some(1_000_000),
            files_per_second: Some(1),
            ..Limits::default()
        };
        for limits in [Limits::default(), rates] {
            assert_eq!(cost_at(UNIT, limits).to_bits(), UNIT.cost().to_bits());
        }
    }

    #[test]
    fn the_limit_of_which_most_is_used_counts() {
        let at = |sessions, channels, files_per_second| {
            let limits = Limits {
                sessions: Some(sessions),
                channels: Some(channels),
                files_per_second: Some(files_per_second),
                ..Limits::default()
            };
            // Seconds of the whole endpoint.
            cost_at(UNIT, limits) / (SESSION_SECOND * f64::from(sessions))
        };
        assert!((at(10, 1000, 1000) - 1.0).abs() < 1e-9);
        assert!((at(10, 20, 1000) - 2.0).abs() < 1e-9);
        assert!((at(10, 20, 20) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_limit_of_bytes_that_is_scarce_counts_bytes() {
        let limits = Limits {
            sessions: Some(64),
            bytes_per_second: Some(100_000_000),
            ..Limits::default()
        };
        let difference = cost_at(UNIT, limits) - UNIT.cost();
        assert!(difference.abs() < 1.0, "{difference}");
        let none = Limits {
            sessions: Some(0),
            bytes_per_second: Some(0),
            ..Limits::default()
        };
        assert!(cost_at(UNIT, none).is_finite());
    }
}
