//! The connections of a set that carry data, and transfers that follow each other on them, measured
//! as one: each small file is too short for a sample of the kernel's counters, many together are
//! not.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    data::{
        sampling::{
            cpu_time::MoverClock,
            kernel_sampler::KernelSampler,
            sample::{Progress, Sample},
        },
        shaping::unsent_limit::Window,
    },
    host::tcp_diag::AddressPair,
};

/// Transfers that are measured together.
pub(crate) struct BatchShared {
    bytes: AtomicU64,
    sampler: KernelSampler,
}

impl BatchShared {
    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Asks the kernel for its counters, unless that was done lately.
    pub(crate) fn look(&self, clocks: &[Arc<MoverClock>]) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.sampler.look(bytes, clocks);
    }
}

/// The connections of a set that have carried anything.
#[derive(Default)]
pub(crate) struct CarryingConnections(Mutex<Carrying>);

#[derive(Default)]
struct Carrying {
    /// In the order in which they came.
    connections: Vec<CarryingConnection>,
    batch: Weak<BatchShared>,
}

struct CarryingConnection {
    addresses: AddressPair,
    window: Window,
    /// It ends with the transfer that it carries, or before.
    leaves: bool,
}

impl CarryingConnections {
    /// A connection carries something for the first time.
    pub(crate) fn connection_up(&self, addresses: AddressPair, window: Window) {
        let mut carrying = self.0.lock();
        carrying.connections.push(CarryingConnection {
            addresses,
            window,
            leaves: false,
        });
        if let Some(batch) = carrying.batch.upgrade() {
            batch.sampler.joined(addresses, true);
        }
    }

    /// One that has carried something is closed.
    pub(crate) fn connection_down(&self, addresses: AddressPair) {
        let mut carrying = self.0.lock();
        carrying.connections.retain(|c| c.addresses != addresses);
        if let Some(batch) = carrying.batch.upgrade() {
            batch.sampler.left(addresses);
        }
    }

    /// Connections that stay for now and have smaller windows than this one or, of the same window,
    /// came later. These can be spared, also where they came first: a connection that joins on a
    /// full path can ruin the windows of the older ones.
    pub(crate) fn count_weaker(&self, addresses: AddressPair) -> usize {
        let carrying = self.0.lock();
        let rank = |at: usize, c: &CarryingConnection| (c.window.bytes(), Reverse(at));
        let mut all = carrying.connections.iter().enumerate();
        let Some((at, this)) = all.find(|(_, c)| c.addresses == addresses) else {
            return 0;
        };
        let own = rank(at, this);
        let staying = (carrying.connections.iter().enumerate()).filter(|(_, c)| !c.leaves);
        staying.filter(|(at, c)| rank(*at, c) < own).count()
    }

    /// One ends.
    pub(crate) fn mark_leaving(&self, addresses: AddressPair) {
        let connections = &mut self.0.lock().connections;
        if let Some(this) = connections.iter_mut().find(|c| c.addresses == addresses) {
            this.leaves = true;
        }
    }

    /// The batch that transfers belong to now.
    pub(crate) fn batch(&self) -> Option<Arc<BatchShared>> {
        self.0.lock().batch.upgrade()
    }

    /// Begins a batch: the connections count from now on. `sends`: they are asked about as senders.
    pub(crate) fn begin_batch(&self, sends: bool) -> Arc<BatchShared> {
        let mut carrying = self.0.lock();
        let sampler = KernelSampler::new(sends);
        for connection in &carrying.connections {
            sampler.joined(connection.addresses, false);
        }
        let batch = Arc::new(BatchShared {
            bytes: AtomicU64::new(0),
            sampler,
        });
        carrying.batch = Arc::downgrade(&batch);
        batch
    }

    /// Numbers of now.
    pub(crate) fn progress_of(&self, batch: &BatchShared) -> Progress {
        let channels = self.0.lock().connections.len();
        Progress {
            bytes: batch.bytes.load(Ordering::Relaxed),
            channels: u32::try_from(channels).unwrap_or(u32::MAX),
        }
    }

    /// Totals of now.
    pub(crate) fn sample_of(&self, batch: &BatchShared, clocks: &[Arc<MoverClock>]) -> Sample {
        batch.look(clocks);
        let mut sample = Sample::default();
        batch.sampler.fill(&mut sample);
        // Last, so that no more can be acknowledged than was moved.
        Progress {
            bytes: sample.bytes,
            channels: sample.channels,
        } = self.progress_of(batch);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_window_retires_first_and_then_the_youngest() {
        let addresses = |port: u16| {
            let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
            AddressPair {
                local: at(port),
                remote: at(1),
            }
        };
        let carrying = CarryingConnections::default();
        for (port, bytes) in [(10, 50), (11, 0), (12, 400), (13, 50)] {
            let window = Window::default();
            window.set(bytes);
            carrying.connection_up(addresses(port), window);
        }
        let order = |carrying: &CarryingConnections| {
            [10, 11, 12, 13].map(|port| carrying.count_weaker(addresses(port)))
        };
        assert_eq!(order(&carrying), [2, 0, 3, 1]);
        carrying.mark_leaving(addresses(13));
        assert_eq!(order(&carrying), [1, 0, 2, 1]);
        carrying.0.lock().connections[2].window.set(7);
        assert_eq!(order(&carrying), [2, 0, 1, 2]);
        assert_eq!(carrying.count_weaker(addresses(99)), 0);
    }
}
