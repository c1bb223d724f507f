//! Transfers that follow each other on one set, seen as one: files that are each too short for a
//! look add up to what the kernel can tell something of.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    data::{
        ChannelSet, Progress, Sample, channel::unsent_limit::Window, lock,
        sampling::kernel_sampler::KernelSampler, set::SetShared,
    },
    host::tcp_diag::AddressPair,
};

/// A view of a series; its totals begin at 0 with it. Keeps nothing running.
#[derive(Clone)]
pub struct TransferBatch {
    shared: Arc<BatchShared>,
    set: Arc<SetShared>,
}

pub(crate) struct BatchShared {
    bytes: AtomicU64,
    sampler: KernelSampler,
}

/// What a set knows for its series.
#[derive(Default)]
pub(crate) struct CarryingConnections {
    /// The connections that have carried anything, in the order in which they came.
    up: Vec<CarryingConnection>,
    present: Weak<BatchShared>,
}

impl CarryingConnections {
    /// Connections that stay for now and have smaller windows than this one or, of the same window,
    /// came later. Those are the ones that can be spared, whoever came first: who comes to a full
    /// path can ruin the windows that were there.
    fn count_weaker(&self, addresses: AddressPair) -> usize {
        let rank = |at: usize, up: &CarryingConnection| (up.window.bytes(), Reverse(at));
        let mut all = self.up.iter().enumerate();
        let Some((at, up)) = all.find(|(_, up)| up.addresses == addresses) else {
            return 0;
        };
        let own = rank(at, up);
        let staying = self.up.iter().enumerate().filter(|(_, up)| !up.leaves);
        staying.filter(|(at, up)| rank(*at, up) < own).count()
    }

    fn mark_leaving(&mut self, addresses: AddressPair) {
        if let Some(up) = self.up.iter_mut().find(|up| up.addresses == addresses) {
            up.leaves = true;
        }
    }
}

struct CarryingConnection {
    addresses: AddressPair,
    window: Window,
    /// It ends with the transfer that it is at, or before.
    leaves: bool,
}

impl ChannelSet {
    /// Transfers that are started or queued from now on are one series, until the next begins or
    /// the last clone of this one is gone. The connections count from now on: as senders where we
    /// connect, else as receivers (MODE E).
    pub fn batch(&self) -> TransferBatch {
        let set = Arc::clone(&self.shared);
        let sampler = KernelSampler::new(set.connects());
        let mut followed = lock(&set.followed);
        for up in &followed.up {
            sampler.joined(up.addresses, false);
        }
        let shared = Arc::new(BatchShared {
            bytes: AtomicU64::new(0),
            sampler,
        });
        followed.present = Arc::downgrade(&shared);
        drop(followed);
        TransferBatch { shared, set }
    }
}

impl TransferBatch {
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
        self.shared.sampler.tell(&mut sample);
        // Last, so that no more can be acknowledged than was moved.
        Progress {
            bytes: sample.bytes,
            channels: sample.channels,
        } = self.progress();
        sample
    }
}

impl BatchShared {
    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn look(&self, set: &SetShared) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.sampler.look(bytes, &set.movers);
    }
}

impl SetShared {
    /// The series that transfers belong to now.
    pub(crate) fn batch(&self) -> Option<Arc<BatchShared>> {
        lock(&self.followed).present.upgrade()
    }

    /// A connection carries something for the first time.
    pub(crate) fn connection_up(&self, addresses: AddressPair, window: Window) {
        let mut followed = lock(&self.followed);
        followed.up.push(CarryingConnection {
            addresses,
            window,
            leaves: false,
        });
        if let Some(batch) = followed.present.upgrade() {
            batch.sampler.joined(addresses, true);
        }
    }

    /// Connections that stay for now and are to end before this one, see
    /// [`CarryingConnections::count_weaker`].
    pub(crate) fn count_weaker(&self, addresses: AddressPair) -> usize {
        lock(&self.followed).count_weaker(addresses)
    }

    /// One ends.
    pub(crate) fn mark_leaving(&self, addresses: AddressPair) {
        lock(&self.followed).mark_leaving(addresses);
    }

    /// One that has carried something is closed.
    pub(crate) fn connection_down(&self, addresses: AddressPair) {
        let mut followed = lock(&self.followed);
        followed.up.retain(|up| up.addresses != addresses);
        if let Some(batch) = followed.present.upgrade() {
            batch.sampler.left(addresses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_windows_can_be_spared_first_and_of_equal_ones_the_youngest() {
        let addresses = |port: u16| {
            let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
            AddressPair {
                local: at(port),
                remote: at(1),
            }
        };
        let mut followed = CarryingConnections::default();
        for (port, bytes) in [(10, 50), (11, 0), (12, 400), (13, 50)] {
            let window = Window::default();
            window.set(bytes);
            followed.up.push(CarryingConnection {
                addresses: addresses(port),
                window,
                leaves: false,
            });
        }
        let order = |followed: &CarryingConnections| {
            [10, 11, 12, 13].map(|port| followed.count_weaker(addresses(port)))
        };
        assert_eq!(order(&followed), [2, 0, 3, 1]);
        followed.mark_leaving(addresses(13));
        assert_eq!(order(&followed), [1, 0, 2, 1]);
        followed.up[2].window.set(7);
        assert_eq!(order(&followed), [2, 0, 1, 2]);
        assert_eq!(followed.count_weaker(addresses(99)), 0);
    }
}
