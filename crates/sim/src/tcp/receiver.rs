//! The other end of a connection: what has arrived, and acknowledgements of it.

use super::{Packet, SACK_BLOCKS};

/// When a receiver acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// `None`: every packet at once, as ns-2's `Agent/TCPSink`.
    pub delayed_ack: Option<DelayedAck>,
}

/// Every second packet in order is acknowledged, a single one after some time; what is out of order
/// or fills a gap at once (RFC 1122 §4.2.3.2, RFC 5681 §4.2; ns-2's `Agent/TCPSink/DelAck`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayedAck {
    /// How long a single packet waits, ns. ns-2 has 100 ms, Linux at least 40 ms.
    pub wait_ns: u64,
}

/// What becomes of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It is acknowledged.
    Now,
    /// It is acknowledged at this time, if nothing else comes first.
    At(u64),
}

#[derive(Debug)]
pub(crate) struct Receiver {
    config: ReceiverConfig,
    /// The first packet that has not arrived.
    pub(crate) next: u32,
    /// Half-open ranges beyond it that have, in order.
    beyond: Vec<(u32, u32)>,
    /// Packets that arrived twice.
    pub(crate) duplicates: u64,
    /// When a single packet is acknowledged.
    pub(crate) deadline: Option<u64>,
    last: (u32, u64),
}

impl Receiver {
    pub(crate) fn new(config: ReceiverConfig) -> Self {
        Self {
            config,
            next: 0,
            beyond: Vec::new(),
            duplicates: 0,
            deadline: None,
            last: (0, 0),
        }
    }

    pub(crate) fn arrive(&mut self, now: u64, seq: u32, sent_at: u64) -> Reply {
        let in_order = seq == self.next && self.beyond.is_empty();
        if !self.insert(seq) {
            self.duplicates += 1;
        }
        // The timestamp of the first of two packets is returned, so that the wait is measured, too
        // (RFC 7323 §4.3).
        if self.deadline.is_none() || !in_order {
            self.last = (seq, sent_at);
        }
        let Some(delayed) = self.config.delayed_ack else {
            return Reply::Now;
        };
        if in_order && self.deadline.is_none() {
            let at = now.saturating_add(delayed.wait_ns);
            self.deadline = Some(at);
            return Reply::At(at);
        }
        Reply::Now
    }

    /// Whether it is new.
    fn insert(&mut self, seq: u32) -> bool {
        if seq < self.next {
            return false;
        }
        if seq == self.next {
            self.next += 1;
            if let Some(&(from, to)) = self.beyond.first()
                && from == self.next
            {
                self.next = to;
                self.beyond.remove(0);
            }
            return true;
        }
        // The first range that ends behind it, or touches it.
        let at = self.beyond.partition_point(|(_, to)| *to < seq);
        match self.beyond.get_mut(at) {
            Some(range) if (range.0..range.1).contains(&seq) => return false,
            Some(range) if range.1 == seq => range.1 += 1,
            Some(range) if range.0 == seq + 1 => range.0 = seq,
            _ => self.beyond.insert(at, (seq, seq + 1)),
        }
        if at + 1 < self.beyond.len() && self.beyond[at].1 == self.beyond[at + 1].0 {
            self.beyond[at].1 = self.beyond[at + 1].1;
            self.beyond.remove(at + 1);
        }
        true
    }

    /// The acknowledgement of what has arrived so far.
    pub(crate) fn acknowledge(&mut self, flow: u32, bytes: u32) -> Packet {
        self.deadline = None;
        let (cause, sent_at) = self.last;
        Packet {
            flow,
            hop: 0,
            is_ack: true,
            bytes,
            seq: self.next,
            cause,
            sent_at,
            sacks: self.blocks(cause),
        }
    }

    /// The range of the packet that caused it first (RFC 2018 §4), then the highest ones.
    fn blocks(&self, cause: u32) -> [(u32, u32); SACK_BLOCKS] {
        let mut blocks = [(0, 0); SACK_BLOCKS];
        if self.beyond.is_empty() {
            return blocks;
        }
        let of_cause = self.beyond.partition_point(|(_, to)| *to <= cause);
        let first = (self.beyond.get(of_cause)).filter(|(from, _)| *from <= cause);
        let others = (self.beyond.iter().rev()).filter(|range| Some(*range) != first);
        for (block, range) in blocks.iter_mut().zip(first.into_iter().chain(others)) {
            *block = *range;
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn receiver(wait_ns: Option<u64>) -> Receiver {
        Receiver::new(ReceiverConfig {
            delayed_ack: wait_ns.map(|wait_ns| DelayedAck { wait_ns }),
        })
    }

    #[test]
    fn every_second_packet_in_order_is_acknowledged_and_a_gap_at_once() {
        let mut receiver = receiver(Some(50));
        assert_eq!(receiver.arrive(0, 0, 0), Reply::At(50));
        assert_eq!(receiver.arrive(10, 1, 5), Reply::Now);
        assert_eq!(receiver.acknowledge(0, 40).sent_at, 0, "the first of two");
        assert_eq!(receiver.arrive(20, 3, 9), Reply::Now, "out of order");
        let ack = receiver.acknowledge(0, 40);
        assert_eq!((ack.seq, ack.sacks[0]), (2, (3, 4)));
        assert_eq!(receiver.arrive(30, 2, 9), Reply::Now, "fills the gap");
        assert_eq!(receiver.acknowledge(0, 40).seq, 4);
    }

    proptest! {
        #[test]
        fn ranges_equal_a_set_of_packets(arrivals in prop::collection::vec(0..60_u32, 1..200)) {
            let mut receiver = receiver(None);
            let mut model = BTreeSet::new();
            for seq in arrivals {
                receiver.arrive(0, seq, 0);
                model.insert(seq);
                let next = (0..).find(|seq| !model.contains(seq)).expect("some are missing");
                let ack = receiver.acknowledge(0, 40);
                prop_assert_eq!(ack.seq, next);
                let beyond: BTreeSet<u32> =
                    receiver.beyond.iter().flat_map(|(from, to)| *from..*to).collect();
                prop_assert_eq!(beyond, model.range(next..).copied().collect());
                if seq > next {
                    prop_assert!((ack.sacks[0].0..ack.sacks[0].1).contains(&seq));
                }
            }
        }
    }
}
