//! A cap that all channels of some transfers share.
//!
//! ```text
//!   turn of a channel ── grant ──► n bytes now │ not before then
//!           └───────── spend ────► what it moved puts the next grant off
//! ```
//! Senders are held back before they write, receivers before they read: then TCP's window closes,
//! and the peer slows down. What a sender writes in a turn is spread by the kernel
//! ([`crate::data::shaping::pacing`]).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Bytes that a channel may move in a turn, as time at the full rate. Short, so that many channels
/// get their turn.
const TURN: Duration = Duration::from_millis(1);
/// Bounds of the same, bytes: a turn costs a system call or two, and no channel may keep a slow
/// link to itself.
const TURN_BYTES_MIN: u64 = 4 << 10;
const TURN_BYTES_MAX: u64 = 1 << 20;
/// A mover that waits does so for at least this long: at most 200 times a second.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Unused time that may be made up for later. A mover that wakes late loses nothing,
/// and after a standstill no more than this is sent at once.
const CREDIT: Duration = Duration::from_millis(50);

/// How fast the channels that share it may go in all. MODE E headers count, what TCP repeats does
/// not. A channel that would exceed it waits, so nothing is queued here.
#[derive(Debug)]
pub struct RateLimit {
    /// Bits per second; 0: no limit. Outside the mutex, so that channels without a limit take no
    /// lock.
    bps: AtomicU64,
    bucket: Mutex<Bucket>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            bps: AtomicU64::new(0),
            bucket: Mutex::new(Bucket {
                next: Instant::now(),
            }),
        }
    }
}

impl RateLimit {
    /// Bits per second from now on; `None` or 0: as fast as can be. Takes effect with the next turn
    /// of each channel.
    pub fn set(&self, bps: Option<u64>) {
        self.bps.store(bps.unwrap_or(0), Ordering::Relaxed);
    }

    /// Bits per second; `None`: as fast as can be.
    pub fn get(&self) -> Option<u64> {
        Some(self.bps.load(Ordering::Relaxed)).filter(|bps| *bps > 0)
    }

    /// Bytes, at least 1, that a channel may move now; or when to ask again.
    ///
    /// # Errors
    /// That time.
    pub fn grant(&self) -> Result<u64, Instant> {
        match self.get() {
            None => Ok(u64::MAX),
            Some(bps) => self.bucket.lock().grant(bps, Instant::now()),
        }
    }

    /// `bytes` were moved after a grant.
    pub fn spend(&self, bytes: u64) {
        if let Some(bps) = self.get() {
            self.bucket.lock().spend(bps, bytes);
        }
    }
}

/// A token bucket, kept as the time at which it has no debt.
#[derive(Debug)]
struct Bucket {
    next: Instant,
}

impl Bucket {
    fn grant(&mut self, bps: u64, now: Instant) -> Result<u64, Instant> {
        if self.next > now {
            // A debt made at a lower rate is not paid for long: a turn's bytes is all that any
            // mover owes.
            return Err(self.next.max(now + PAUSE_MIN));
        }
        if let Some(oldest) = now.checked_sub(CREDIT) {
            self.next = self.next.max(oldest);
        }
        let bytes = u128::from(bps) * TURN.as_micros() / 8_000_000;
        let bytes = u64::try_from(bytes).unwrap_or(TURN_BYTES_MAX);
        Ok(bytes.clamp(TURN_BYTES_MIN, TURN_BYTES_MAX))
    }

    fn spend(&mut self, bps: u64, bytes: u64) {
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1));
        self.next += Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that channels move which always use their whole grant, in `seconds` of a clock turned
    /// by hand. Each look at the clock comes `late` after it was due.
    fn moved(bps: u64, seconds: u64, late: Duration) -> u64 {
        let begun = Instant::now();
        let mut bucket = Bucket { next: begun };
        let (mut now, mut bytes) = (begun, 0);
        while now < begun + Duration::from_secs(seconds) {
            match bucket.grant(bps, now) {
                Ok(granted) => {
                    bucket.spend(bps, granted);
                    bytes += granted;
                }
                Err(then) => now = then + late,
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn the_rate_is_kept_and_used(bps in 64_000_u64..100_000_000_000, late_us in 0_u64..40_000) {
            let seconds = 20;
            let moved = moved(bps, seconds, Duration::from_micros(late_us));
            let wanted = bps * seconds / 8;
            // One turn may be begun at the very end, and at the lowest rates it lasts half a
            // second.
            let spare = wanted / 100 + TURN_BYTES_MIN;
            prop_assert!(moved <= wanted + spare, "{moved} of {wanted}");
            prop_assert!(moved + spare >= wanted, "{moved} of {wanted}");
        }
    }

    #[test]
    fn after_a_standstill_no_more_than_the_credit_is_made_up_for() {
        let begun = Instant::now();
        let mut bucket = Bucket { next: begun };
        let bps = 800_000_000;
        let later = begun + Duration::from_secs(60);
        let mut bytes = 0;
        while let Ok(granted) = bucket.grant(bps, later) {
            bucket.spend(bps, granted);
            bytes += granted;
        }
        // 50 ms and the turn that ends it.
        assert_eq!(bytes, 5_000_000 + 100_000);
    }

    #[test]
    fn without_a_limit_no_channel_waits() {
        let limit = RateLimit::default();
        limit.spend(u64::MAX);
        assert_eq!(limit.grant(), Ok(u64::MAX));
        limit.set(Some(1_000_000));
        assert_eq!(limit.grant(), Ok(TURN_BYTES_MIN));
        limit.spend(1_000_000);
        assert!(limit.grant().is_err());
        limit.set(None);
        assert_eq!(limit.grant(), Ok(u64::MAX));
    }
}
