//! A link under way: its path, and the packets that are on it.

use std::collections::VecDeque;

use crate::{
    path::{Counters, InvalidPath, Path, PathConfig, Verdict},
    tcp::Packet,
};

/// What the queue and the wire of a link hold, in the order in which it comes out.
#[derive(Debug)]
pub(crate) struct Link {
    path: Path,
    on_the_way: VecDeque<(u64, Packet)>,
    /// Packets accepted and released, copies included.
    accepted: u64,
    released: u64,
}

impl Link {
    pub(crate) fn new(config: PathConfig) -> Result<Self, InvalidPath> {
        Ok(Self {
            path: Path::new(config)?,
            on_the_way: VecDeque::new(),
            accepted: 0,
            released: 0,
        })
    }

    /// A packet arrives. When the link must next be asked, if that is earlier than what was known.
    pub(crate) fn arrive(&mut self, now: u64, packet: Packet) -> Option<u64> {
        let before = self.next_ns();
        let Verdict::Deliver(delivery) = self.path.arrive(now, packet.bytes) else {
            return None;
        };
        self.insert(delivery.release_ns, packet);
        if delivery.twice {
            self.insert(delivery.release_ns, packet);
        }
        self.next_ns()
            .filter(|next| before.is_none_or(|b| *next < b))
    }

    fn insert(&mut self, release: u64, packet: Packet) {
        self.accepted += 1;
        // Only links that reorder ever look further than the last packet.
        let behind = (self.on_the_way.iter().rev())
            .take_while(|(at, _)| *at > release)
            .count();
        if behind == 0 {
            self.on_the_way.push_back((release, packet));
        } else {
            let at = self.on_the_way.len() - behind;
            self.on_the_way.insert(at, (release, packet));
        }
    }

    /// When the next packet comes out.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.on_the_way.front().map(|(at, _)| *at)
    }

    /// The packet that comes out at `now`.
    pub(crate) fn release(&mut self, now: u64) -> Option<Packet> {
        if self.next_ns()? > now {
            return None;
        }
        self.released += 1;
        self.on_the_way.pop_front().map(|(_, packet)| packet)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.path.counters()
    }

    /// Packets in its queue and on its wire.
    pub(crate) fn held(&self) -> u64 {
        self.accepted - self.released
    }

    pub(crate) fn queued(&mut self, now: u64) -> (u64, u64) {
        self.path.queued(now)
    }
}
