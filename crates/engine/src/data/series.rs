//! Transfers that follow each other on one set, seen as one: files that are each too short for a
//! look add up to what the kernel can tell something of.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{ChannelSet, Progress, Sample, backlog::Window, lock, set::SetShared, watch::Watch};
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
    /// The connections that have carried anything, in the order in which they came.
    up: Vec<Up>,
    present: Weak<SeriesShared>,
}

impl Followed {
    /// Connections that stay for now and have smaller windows than this one or, of the same window,
    /// came later. Those are the ones that can be spared, whoever came first: who comes to a full
    /// path can ruin the windows that were there.
    fn lesser_than(&self, ends: Ends) -> usize {
        let rank = |at: usize, up: &Up| (up.window.bytes(), Reverse(at));
        let mut all = self.up.iter().enumerate();
        let Some((at, up)) = all.find(|(_, up)| up.ends == ends) else {
            return 0;
        };
        let own = rank(at, up);
        let staying = self.up.iter().enumerate().filter(|(_, up)| !up.leaves);
        staying.filter(|(at, up)| rank(*at, up) < own).count()
    }

    fn steps_back(&mut self, ends: Ends) {
        if let Some(up) = self.up.iter_mut().find(|up| up.ends == ends) {
            up.leaves = true;
        }
    }
}

struct Up {
    ends: Ends,
    window: Window,
    /// It ends with the transfer that it is at, or before.
    leaves: bool,
}

impl ChannelSet {
    /// Transfers that are started or queued from now on are one series, until the next begins or
    /// the last clone of this one is gone. The connections count from now on: as senders where we
    /// connect, else as receivers (MODE E).
    pub fn series(&self) -> Series {
        let set = Arc::clone(&self.shared);
        let watch = Watch::new(set.connects());
        let mut followed = lock(&set.followed);
        for up in &followed.up {
            watch.joined(up.ends, false);
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
    pub(super) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
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
    pub(super) fn came_up(&self, ends: Ends, window: Window) {
        let mut followed = lock(&self.followed);
        followed.up.push(Up {
            ends,
            window,
            leaves: false,
        });
        if let Some(series) = followed.present.upgrade() {
            series.watch.joined(ends, true);
        }
    }

    /// Connections that stay for now and are to end before this one, see [`Followed::lesser_than`].
    pub(super) fn lesser_than(&self, ends: Ends) -> usize {
        lock(&self.followed).lesser_than(ends)
    }

    /// One ends.
    pub(super) fn steps_back(&self, ends: Ends) {
        lock(&self.followed).steps_back(ends);
    }

    /// One that has carried something is closed.
    pub(super) fn went_down(&self, ends: Ends) {
        let mut followed = lock(&self.followed);
        followed.up.retain(|up| up.ends != ends);
        if let Some(series) = followed.present.upgrade() {
            series.watch.left(ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_windows_can_be_spared_first_and_of_equal_ones_the_youngest() {
        let ends = |port: u16| {
            let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
            Ends {
                local: at(port),
                remote: at(1),
            }
        };
        let mut followed = Followed::default();
        for (port, bytes) in [(10, 50), (11, 0), (12, 400), (13, 50)] {
            let window = Window::default();
            window.set(bytes);
            followed.up.push(Up {
                ends: ends(port),
                window,
                leaves: false,
            });
        }
        let order =
            |followed: &Followed| [10, 11, 12, 13].map(|port| followed.lesser_than(ends(port)));
        assert_eq!(order(&followed), [2, 0, 3, 1]);
        followed.steps_back(ends(13));
        assert_eq!(order(&followed), [1, 0, 2, 1]);
        followed.up[2].window.set(7);
        assert_eq!(order(&followed), [2, 0, 1, 2]);
        assert_eq!(followed.lesser_than(ends(99)), 0);
    }
}
