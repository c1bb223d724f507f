//! Frames that wait for their delivery time.

use std::collections::VecDeque;
use std::ops::Range;

use super::arena::Slot;

/// Some packets of a frame, to be delivered together.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) slot: Slot,
    /// Which of the frame's packets.
    pub(super) packets: Range<usize>,
    /// When the first of them is due, ns.
    pub(super) first_release_ns: u64,
    /// When the last of them is due and all are delivered, ns.
    pub(super) release_ns: u64,
    /// Port it goes to.
    pub(super) port: usize,
}

/// Parcels by release time; equal times in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct DelayLine {
    parcels: VecDeque<Parcel>,
}

impl DelayLine {
    pub(super) fn push(&mut self, parcel: Parcel) {
        // Almost always the last; reordering makes exceptions, near the end.
        let in_order =
            (self.parcels.back()).is_none_or(|last| last.release_ns <= parcel.release_ns);
        if in_order {
            self.parcels.push_back(parcel);
        } else {
            let index = self
                .parcels
                .partition_point(|other| other.release_ns <= parcel.release_ns);
            self.parcels.insert(index, parcel);
        }
    }

    /// When the next parcel is due, ns.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.parcels.front().map(|parcel| parcel.release_ns)
    }

    /// The next parcel if it is due.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Parcel> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.parcels.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::arena::Arena;

    #[test]
    fn parcels_come_out_by_time_then_by_arrival() {
        let mut arena = Arena::new(4096).expect("memory");
        arena.room(1).expect("room");
        let slot = arena.take(1);
        let mut line = DelayLine::default();
        for (port, release_ns) in [5, 7, 6, 5, 9].into_iter().enumerate() {
            line.push(Parcel {
                slot,
                packets: 0..1,
                first_release_ns: release_ns,
                release_ns,
                port,
            });
        }
        assert!(line.pop_due(4).is_none());
        let order: Vec<usize> = std::iter::from_fn(|| line.pop_due(8))
            .map(|p| p.port)
            .collect();
        assert_eq!(order, [0, 3, 2, 1]);
        assert_eq!(line.next_ns(), Some(9));
    }
}
