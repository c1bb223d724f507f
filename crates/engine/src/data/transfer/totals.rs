//! What a transfer has moved, and on how many channels. Written by movers, read by any thread,
//! without a lock.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::data::sampling::sample::Progress;

#[derive(Default)]
pub(crate) struct Totals {
    /// When its turn came.
    started: OnceLock<Instant>,
    /// Payload bytes moved.
    bytes: AtomicU64,
    /// Bytes of holes that were announced, or cleared.
    holes: AtomicU64,
    /// Milliseconds after `started` at which a byte last moved.
    moved_at_ms: AtomicU64,
    /// Channels that carry data: attached and connected.
    channels: AtomicU32,
    channels_peak: AtomicU32,
}

impl Totals {
    /// Limits count from now.
    pub(crate) fn start(&self) {
        self.started.get_or_init(Instant::now);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.touch();
    }

    /// `bytes` more are a hole.
    pub(crate) fn hole_passed(&self, bytes: u64) {
        // The bounds of files refuse one hole that is too large, but not the sum of many.
        let add = |sum: u64| Some(sum.saturating_add(bytes));
        let _ = (self.holes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.touch();
    }

    /// Something happened on a connection: the stall clock starts again.
    pub(crate) fn touch(&self) {
        let ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_at_ms.store(ms, Ordering::Relaxed);
    }

    /// Time since a byte last moved.
    pub(crate) fn stalled_for(&self) -> Duration {
        let moved_at = Duration::from_millis(self.moved_at_ms.load(Ordering::Relaxed));
        self.elapsed().saturating_sub(moved_at)
    }

    pub(crate) fn channel_up(&self) {
        let now = self.channels.fetch_add(1, Ordering::Relaxed) + 1;
        self.channels_peak.fetch_max(now, Ordering::Relaxed);
        self.touch();
    }

    pub(crate) fn channel_down(&self) {
        self.channels.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn channels(&self) -> u32 {
        self.channels.load(Ordering::Relaxed)
    }

    pub(crate) fn channels_peak(&self) -> u32 {
        self.channels_peak.load(Ordering::Relaxed)
    }

    /// Payload bytes moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the source that are done: moved, or holes.
    pub(crate) fn done(&self) -> u64 {
        let holes = self.holes.load(Ordering::Relaxed);
        self.bytes().saturating_add(holes)
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            bytes: self.done(),
            channels: self.channels(),
        }
    }
}
