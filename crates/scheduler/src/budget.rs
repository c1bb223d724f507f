//! What an endpoint or a link takes, and how much of it is in use.

use std::time::Duration;

use crate::model::Limits;

/// Seconds of a rate that may start at once after a pause.
const BURST_S: f64 = 2.0;

/// A learned limit rises by one after so long without a refusal.
const RELAX: Duration = Duration::from_secs(300);

/// Of a budget: which part is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shortage {
    Sessions { used: u32, limit: u32 },
    Channels { used: u32, limit: u32 },
    Bytes { wait: Duration, per_second: u64 },
    Files { wait: Duration, per_second: u32 },
}

/// A rate as a mean: what starts is taken from the level, which may fall below zero.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Below a full one.
    taken: f64,
    at: Duration,
}

impl Bucket {
    fn level(&self, per_second: f64, now: Duration) -> f64 {
        let refilled = now.saturating_sub(self.at).as_secs_f64() * per_second;
        BURST_S * per_second - (self.taken - refilled).max(0.0)
    }

    fn take(&mut self, amount: f64, per_second: f64, now: Duration) {
        let refilled = now.saturating_sub(self.at).as_secs_f64() * per_second;
        self.taken = (self.taken - refilled).max(0.0) + amount;
        self.at = now.max(self.at);
    }

    fn wait(&self, per_second: f64, now: Duration) -> Option<Duration> {
        let level = self.level(per_second, now);
        (level <= 0.0).then(|| {
            let seconds = (1.0 - level) / per_second.max(1e-9);
            Duration::from_secs_f64(seconds.min(1e9))
        })
    }
}

/// Limits of an endpoint or a link, set and learned, and what is in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) limits: Limits,
    /// Sessions at which the endpoint refused, and when.
    learned: Option<(u32, Duration)>,
    pub(crate) units: u32,
    pub(crate) sessions: u32,
    pub(crate) channels: u32,
    bytes: Bucket,
    files: Bucket,
}

#[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a rate
impl Budget {
    /// What may start now, in sessions and channels.
    pub(crate) fn room(&self, now: Duration) -> Result<(u32, u32), Shortage> {
        let (used, limit) = (self.sessions, self.session_limit());
        let sessions = limit.saturating_sub(used);
        if sessions == 0 {
            return Err(Shortage::Sessions { used, limit });
        }
        let (used, limit) = (self.channels, self.limits.channels.unwrap_or(u32::MAX));
        let channels = limit.saturating_sub(used);
        if channels == 0 {
            return Err(Shortage::Channels { used, limit });
        }
        if let Some(per_second) = self.limits.bytes_per_second
            && let Some(wait) = self.bytes.wait(per_second as f64, now)
        {
            return Err(Shortage::Bytes { wait, per_second });
        }
        if let Some(per_second) = self.limits.files_per_second
            && let Some(wait) = self.files.wait(f64::from(per_second), now)
        {
            return Err(Shortage::Files { wait, per_second });
        }
        Ok((sessions, channels))
    }

    /// Whether so many sessions and channels more may be used.
    pub(crate) fn has_room_for(&self, more: (u32, u32)) -> bool {
        let sessions = self.sessions.saturating_add(more.0);
        let channels = self.channels.saturating_add(more.1);
        let limit = self.limits.channels.unwrap_or(u32::MAX);
        (more.0 == 0 || sessions <= self.session_limit()) && (more.1 == 0 || channels <= limit)
    }

    pub(crate) fn session_limit(&self) -> u32 {
        let set = self.limits.sessions.unwrap_or(u32::MAX);
        self.learned.map_or(set, |(learned, _)| set.min(learned))
    }

    /// So many bytes and files start, or fewer than were counted did.
    pub(crate) fn take(&mut self, bytes: f64, files: f64, now: Duration) {
        if let Some(rate) = self.limits.bytes_per_second {
            self.bytes.take(bytes, rate as f64, now);
        }
        if let Some(rate) = self.limits.files_per_second {
            self.files.take(files, f64::from(rate), now);
        }
    }

    /// The endpoint refused one more session beside so many.
    pub(crate) fn refused(&mut self, beside: u32, now: Duration) {
        self.learned = Some((beside.max(1), now));
    }

    /// A learned limit is tried again after a while; says whether there is more room.
    pub(crate) fn relax(&mut self, now: Duration) -> bool {
        let Some((limit, since)) = &mut self.learned else {
            return false;
        };
        let is_over = now.saturating_sub(*since) >= RELAX;
        if is_over {
            (*limit, *since) = (limit.saturating_add(1), now);
        }
        is_over
    }
}
