//! Transfers that follow each other on one set, seen as one: files that are each too short for a look add up to what the kernel
//! can tell something of.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use super::{ChannelSet, Progress, Sample, lock, set::SetShared, watch::Watch};
use crate::tcp_diag::Ends;

/// A view of a series; its totals begin at 0 with it. Keeps nothing running.
#[derive(Clone)]
pub struct Series {
    shared: Arc<SeriesShared>,
    set: Arc<SetShared>,
}

pub(super) struct SeriesShared {
    bytes: AtomicU64,
    watch: Watch,
}

/// What a set knows for its series.
#[derive(Default)]
pub(super) struct Followed {
    /// Both ends of the connections that have carried anything.
    up: Vec<Ends>,
    present: Weak<SeriesShared>,
}

impl ChannelSet {
    /// Transfers that are started or queued from now on are one series, until the next begins or the last clone of this one is
    /// gone. The connections count from now on: as senders where we connect, else as receivers (MODE E).
    pub fn series(&self) -> Series {
        let set = Arc::clone(&self.shared);
        let watch = Watch::new(set.connects());
        let mut followed = lock(&set.followed);
        for ends in &followed.up {
            watch.joined(*ends, false);
        }
        let shared = Arc::new(SeriesShared {
            bytes: AtomicU64::new(0),
            watch,
        });
        followed.present = Arc::downgrade(&shared);
        drop(followed);
        Series { shared, set }
    }
}

impl Series {
    /// Numbers of now.
    pub fn progress(&self) -> Progress {
        let channels = lock(&self.set.followed).up.len();
        Progress {
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            channels: u32::try_from(channels).unwrap_or(u32::MAX),
        }
    }

    /// Totals of now.
    pub fn sample(&self) -> Sample {
        self.shared.look(&self.set);
        let mut sample = Sample::default();
        self.shared.watch.tell(&mut sample);
        // Last, so that no more can be acknowledged than was moved.
        Progress {
            bytes: sample.bytes,
            channels: sample.channels,
        } = self.progress();
        sample
    }
}

impl SeriesShared {
    pub(super) fn moved(&self, octets: u64) {
        self.bytes.fetch_add(octets, Ordering::Relaxed);
    }

    pub(super) fn look(&self, set: &SetShared) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.watch.look(bytes, &set.movers);
    }
}

impl SetShared {
    /// The series that transfers belong to now.
    pub(super) fn series(&self) -> Option<Arc<SeriesShared>> {
        lock(&self.followed).present.upgrade()
    }

    /// A connection carries something for the first time.
    pub(super) fn came_up(&self, ends: Ends) {
        let mut followed = lock(&self.followed);
        followed.up.push(ends);
        if let Some(series) = followed.present.upgrade() {
            series.watch.joined(ends, true);
        }
    }

    /// Connections that came up after this one and do not end yet.
    pub(super) fn younger_than(&self, ends: Ends) -> usize {
        let followed = lock(&self.followed);
        let at = followed.up.iter().position(|up| *up == ends);
        at.map_or(0, |at| followed.up.len() - 1 - at)
    }

    /// One ends: it is no longer among the younger of any.
    pub(super) fn steps_back(&self, ends: Ends) {
        let mut followed = lock(&self.followed);
        if let Some(at) = followed.up.iter().position(|up| *up == ends) {
            followed.up[..=at].rotate_right(1);
        }
    }

    /// One that has carried something is closed.
    pub(super) fn went_down(&self, ends: Ends) {
        let mut followed = lock(&self.followed);
        if let Some(at) = followed.up.iter().position(|up| *up == ends) {
            followed.up.remove(at);
        }
        if let Some(series) = followed.present.upgrade() {
            series.watch.left(ends);
        }
    }
}
