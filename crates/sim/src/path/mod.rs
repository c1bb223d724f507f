//! One direction of a path as a pure model: no I/O, no clock, all randomness from a seed.
//!
//! Tell a [`Path`] of each packet that arrives, in the order of time, and it says when the packet
//! comes out at the far end or why it never does. Times are nanoseconds since the start of the
//! path. The emulator of the laboratory feeds it real packets, a [`Simulation`](crate::Simulation)
//! those of its senders. What a path is made of is in [`PathConfig`].
//!
//! ```
//! use godwit_sim::path::{Path, PathConfig, Verdict};
//!
//! // 1500 bytes at 1 Gbit/s take 12 us, then 10 ms of delay.
//! let mut path = Path::new(PathConfig::new(1_000_000_000, 10_000_000))?;
//! let Verdict::Deliver(delivery) = path.arrive(0, 1500) else { unreachable!() };
//! assert_eq!(delivery.departure_ns, 12_000);
//! assert_eq!(delivery.release_ns, 10_012_000);
//! # Ok::<(), godwit_sim::path::InvalidPath>(())
//! ```

mod check;
mod config;
mod cross;
mod loss;
mod queue;
mod red;
mod rng;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use check::InvalidPath;
pub use config::{
    Alteration, Change, Corruption, CrossTraffic, Discipline, Duplication, Jitter, Loss,
    PathConfig, Pattern, Queue, QueueLimit, RedConfig, Reordering,
};

use cross::Source;
use loss::LossProcess;
use queue::Bottleneck;
pub use rng::Rng;

/// Streams of random numbers, one a purpose.
mod stream {
    pub(super) const RED: u64 = 1;
    pub(super) const LOSS: u64 = 2;
    pub(super) const JITTER: u64 = 3;
    pub(super) const REORDERING: u64 = 4;
    pub(super) const CORRUPTION: u64 = 5;
    pub(super) const DUPLICATION: u64 = 6;
    /// And upwards: one for each source of cross traffic.
    pub(super) const CROSS: u64 = 1000;
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It comes out.
    Deliver(Delivery),
    /// It never does.
    Drop(DropReason),
}

/// A packet that comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// When its last bit leaves the bottleneck, ns.
    pub departure_ns: u64,
    /// When it comes out at the far end, ns. Never before an earlier packet's unless reordering or
    /// reordering jitter is asked for.
    pub release_ns: u64,
    /// Its payload is to be corrupted; the number chooses the bit.
    pub corrupt: Option<u64>,
    /// It comes out twice.
    pub twice: bool,
}

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The queue was full.
    QueueFull,
    /// Random early detection.
    Red,
    /// Loss on the wire.
    Loss,
    /// The link was cut.
    Cut,
}

/// What a path has done so far. Cross traffic is counted apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that arrived.
    pub packets: u64,
    /// Their bytes, overhead of the link not included.
    pub bytes: u64,
    /// Packets that came out or will.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets dropped by a full queue.
    pub dropped_queue_full: u64,
    /// Packets dropped by RED.
    pub dropped_red: u64,
    /// Packets lost on the wire.
    pub dropped_loss: u64,
    /// Packets that met a cut link.
    pub dropped_cut: u64,
    /// Packets marked for corruption.
    pub corrupted: u64,
    /// Packets held back by [`Reordering`].
    pub held_back: u64,
    /// Packets that came out twice or will.
    pub duplicated: u64,
    /// Packets of cross traffic that arrived.
    pub cross_packets: u64,
    /// Packets of cross traffic that were dropped.
    pub cross_dropped: u64,
    /// Longest queue, packets, cross traffic included.
    pub queue_peak_packets: u64,
    /// Longest queue, bytes, cross traffic and overhead included.
    pub queue_peak_bytes: u64,
}

impl Counters {
    /// What happened after `earlier`; peaks stay those since the start.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            delivered: self.delivered - earlier.delivered,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            dropped_queue_full: self.dropped_queue_full - earlier.dropped_queue_full,
            dropped_red: self.dropped_red - earlier.dropped_red,
            dropped_loss: self.dropped_loss - earlier.dropped_loss,
            dropped_cut: self.dropped_cut - earlier.dropped_cut,
            corrupted: self.corrupted - earlier.corrupted,
            held_back: self.held_back - earlier.held_back,
            duplicated: self.duplicated - earlier.duplicated,
            cross_packets: self.cross_packets - earlier.cross_packets,
            cross_dropped: self.cross_dropped - earlier.cross_dropped,
            queue_peak_packets: self.queue_peak_packets,
            queue_peak_bytes: self.queue_peak_bytes,
        }
    }

    /// Packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue_full + self.dropped_red + self.dropped_loss + self.dropped_cut
    }
}

/// One direction of a path; see the module.
#[derive(Debug, Clone)]
pub struct Path {
    config: PathConfig,
    bottleneck: Bottleneck,
    loss: LossProcess,
    jitter_rng: Rng,
    reordering_rng: Rng,
    corruption_rng: Rng,
    duplication_rng: Rng,
    sources: Vec<Source>,
    sources_started: u64,
    /// Sorted so that the next change is last.
    schedule: Vec<Change>,
    cut: bool,
    now_ns: u64,
    last_release_ns: u64,
    counters: Counters,
}

impl Path {
    /// A path that starts at time 0 with an empty queue.
    ///
    /// # Errors
    /// [`InvalidPath`] names the field whose value makes no sense.
    pub fn new(mut config: PathConfig) -> Result<Path, InvalidPath> {
        config.check()?;
        let rng = |stream| Rng::new(config.seed, stream);
        let mut schedule = std::mem::take(&mut config.schedule);
        // Stable, so changes at the same time happen in the order given.
        schedule.sort_by_key(|change| change.at_ns);
        schedule.reverse();
        let mut path = Path {
            bottleneck: Bottleneck::new(config.rate_bps, config.queue, rng(stream::RED)),
            loss: LossProcess::new(config.loss, rng(stream::LOSS)),
            jitter_rng: rng(stream::JITTER),
            reordering_rng: rng(stream::REORDERING),
            corruption_rng: rng(stream::CORRUPTION),
            duplication_rng: rng(stream::DUPLICATION),
            sources: Vec::new(),
            sources_started: 0,
            schedule,
            cut: false,
            now_ns: 0,
            last_release_ns: 0,
            counters: Counters::default(),
            config,
        };
        path.start_sources(0);
        Ok(path)
    }

    /// An IP packet of `bytes` arrives at `at_ns`. A time before that of an earlier call counts as
    /// that earlier time.
    pub fn arrive(&mut self, at_ns: u64, bytes: u32) -> Verdict {
        self.advance(at_ns);
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        match self.pass(bytes) {
            Ok(delivery) => {
                self.counters.delivered += 1;
                self.counters.delivered_bytes += u64::from(bytes);
                Verdict::Deliver(delivery)
            }
            Err(reason) => {
                *match reason {
                    DropReason::QueueFull => &mut self.counters.dropped_queue_full,
                    DropReason::Red => &mut self.counters.dropped_red,
                    DropReason::Loss => &mut self.counters.dropped_loss,
                    DropReason::Cut => &mut self.counters.dropped_cut,
                } += 1;
                Verdict::Drop(reason)
            }
        }
    }

    /// Lets time pass until `now_ns`: changes of the schedule and cross traffic happen. Needs to be
    /// called only by those who look in between, or who do not want the next arrival to catch up
    /// on all of it.
    pub fn advance(&mut self, now_ns: u64) {
        loop {
            let change_ns = self.schedule.last().map_or(u64::MAX, |c| c.at_ns);
            let next_source = self
                .sources
                .iter_mut()
                .min_by_key(|source| source.next_ns())
                .filter(|source| source.next_ns() <= now_ns && source.next_ns() < change_ns);
            if let Some(source) = next_source {
                let at_ns = source.next_ns().max(self.now_ns);
                let wire_bytes = source.take().saturating_add(self.config.overhead_bytes);
                self.now_ns = at_ns;
                self.counters.cross_packets += 1;
                let dropped = self.cut || self.bottleneck.arrive(at_ns, wire_bytes).is_err();
                self.counters.cross_dropped += u64::from(dropped);
            } else if change_ns <= now_ns
                && let Some(change) = self.schedule.pop()
            {
                self.now_ns = self.now_ns.max(change.at_ns);
                self.apply(change.to);
            } else {
                break;
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Adds a change to the schedule; one whose time has passed happens at once, at the latest
    /// time the path has seen.
    ///
    /// # Errors
    /// [`InvalidPath`] when the change makes no sense.
    pub fn schedule(&mut self, change: Change) -> Result<(), InvalidPath> {
        change.to.check("change")?;
        let index = self
            .schedule
            .partition_point(|other| other.at_ns > change.at_ns);
        self.schedule.insert(index, change);
        self.advance(self.now_ns);
        Ok(())
    }

    /// Packets and bytes in the queue at `now_ns`, the one being sent included.
    pub fn queued(&mut self, now_ns: u64) -> (u64, u64) {
        self.advance(now_ns);
        self.bottleneck.queued_at(self.now_ns)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        let (queue_peak_packets, queue_peak_bytes) = self.bottleneck.peaks();
        Counters {
            queue_peak_packets,
            queue_peak_bytes,
            ..self.counters
        }
    }

    /// Whether time matters to it while nothing arrives.
    pub fn has_own_events(&self) -> bool {
        !self.sources.is_empty() || !self.schedule.is_empty()
    }

    fn pass(&mut self, bytes: u32) -> Result<Delivery, DropReason> {
        if self.cut {
            return Err(DropReason::Cut);
        }
        let wire_bytes = bytes.saturating_add(self.config.overhead_bytes);
        let departure_ns = self.bottleneck.arrive(self.now_ns, wire_bytes)?;
        if self.loss.next_is_lost() {
            return Err(DropReason::Loss);
        }
        Ok(Delivery {
            departure_ns,
            release_ns: self.release(departure_ns),
            corrupt: self.corrupt(bytes),
            twice: self.twice(),
        })
    }

    fn release(&mut self, departure_ns: u64) -> u64 {
        let jitter = self.config.jitter;
        let mut release = departure_ns.saturating_add(self.config.delay_ns);
        if jitter.max_ns > 0 {
            release = release.saturating_add(self.jitter_rng.up_to(jitter.max_ns));
        }
        if let Some(reordering) = self.config.reordering
            && self.reordering_rng.chance(reordering.ratio)
        {
            self.counters.held_back += 1;
            // Not the new last release: those behind it are to overtake.
            return release.saturating_add(reordering.hold_ns);
        }
        if !jitter.reorders {
            release = release.max(self.last_release_ns);
            self.last_release_ns = release;
        }
        release
    }

    fn corrupt(&mut self, bytes: u32) -> Option<u64> {
        let corruption = self.config.corruption.as_mut()?;
        if corruption.packets_max == Some(0)
            || bytes < corruption.min_packet_bytes
            || !self.corruption_rng.chance(corruption.ratio)
        {
            return None;
        }
        corruption.packets_max = corruption.packets_max.map(|most| most - 1);
        self.counters.corrupted += 1;
        Some(self.corruption_rng.next_u64())
    }

    fn twice(&mut self) -> bool {
        let twice = (self.config.duplication)
            .is_some_and(|duplication| self.duplication_rng.chance(duplication.ratio));
        self.counters.duplicated += u64::from(twice);
        twice
    }

    fn apply(&mut self, to: Alteration) {
        match to {
            // Without a bottleneck there was no queue, so it starts empty.
            Alteration::RateBps(rate_bps) => self.bottleneck.set_rate(rate_bps),
            Alteration::DelayNs(delay_ns) => self.config.delay_ns = delay_ns,
            Alteration::Loss(loss) => self.loss.set(loss),
            Alteration::Queue(queue) => {
                let rng = Rng::new(self.config.seed ^ self.now_ns, stream::RED);
                self.bottleneck.set_queue(queue, rng);
            }
            Alteration::CrossTraffic(sources) => {
                self.config.cross_traffic = sources;
                self.start_sources(self.now_ns);
            }
            Alteration::Reordering(reordering) => self.config.reordering = reordering,
            Alteration::Duplication(duplication) => self.config.duplication = duplication,
            Alteration::Corruption(corruption) => self.config.corruption = corruption,
            Alteration::Cut => self.cut = true,
            Alteration::Heal => self.cut = false,
        }
    }

    fn start_sources(&mut self, now_ns: u64) {
        self.sources = self
            .config
            .cross_traffic
            .iter()
            .zip(self.sources_started..)
            .map(|(&source, index)| {
                let rng = Rng::new(self.config.seed, stream::CROSS.wrapping_add(index));
                Source::new(source, rng, now_ns)
            })
            .collect();
        self.sources_started += self.sources.len() as u64;
    }
}
