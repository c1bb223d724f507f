//! The bottleneck: a queue of packets in front of a link, as a formula rather than a container.
//!
//! departure = max(arrival, last departure) + size x 8 / rate. The queue at any moment is the
//! departures that still lie in the future, so it is exact however late anybody looks.

use std::collections::VecDeque;

use super::DropReason;
use super::config::{Discipline, Queue, QueueLimit};
use super::red::{Red, RedVerdict};
use super::rng::Rng;

const NS_PER_S: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct Bottleneck {
    /// 0: no bottleneck.
    rate_bps: u64,
    limit: QueueLimit,
    red: Option<Red>,
    /// Departure and size of what is queued, the packet being sent included.
    queued: VecDeque<(u64, u32)>,
    queued_bytes: u64,
    last_departure_ns: u64,
    /// What the last division left, in bits x ns per s below `rate_bps`: rates that do not divide
    /// evenly stay exact over any time.
    remainder: u64,
    peak_packets: u64,
    peak_bytes: u64,
}

impl Bottleneck {
    pub(super) fn new(rate_bps: Option<u64>, queue: Queue, red_rng: Rng) -> Bottleneck {
        let mut bottleneck = Bottleneck {
            rate_bps: rate_bps.unwrap_or(0),
            limit: queue.limit,
            red: None,
            queued: VecDeque::new(),
            queued_bytes: 0,
            last_departure_ns: 0,
            remainder: 0,
            peak_packets: 0,
            peak_bytes: 0,
        };
        bottleneck.set_queue(queue, red_rng);
        bottleneck
    }

    pub(super) fn set_rate(&mut self, rate_bps: u64) {
        self.rate_bps = rate_bps;
        self.remainder = 0;
    }

    pub(super) fn set_queue(&mut self, queue: Queue, red_rng: Rng) {
        self.limit = queue.limit;
        let length = self.length();
        self.red = match queue.discipline {
            Discipline::DropTail => None,
            Discipline::Red(config) => Some(Red::new(config, red_rng, length)),
        };
    }

    /// A packet of `bytes` arrives at `at_ns`, not before any earlier one: when its last bit
    /// leaves, or why it never does.
    pub(super) fn arrive(&mut self, at_ns: u64, bytes: u32) -> Result<u64, DropReason> {
        if self.rate_bps == 0 {
            return Ok(at_ns);
        }
        self.expire(at_ns);
        let (length, packets, idle) = (self.length(), self.queued.len(), self.idle_packets(at_ns));
        if let Some(red) = &mut self.red
            && red.arrive(length, packets, idle) == RedVerdict::Drop
        {
            return Err(DropReason::Red);
        }
        let fits = match self.limit {
            QueueLimit::Packets(limit) => (packets as u64) < limit,
            QueueLimit::Bytes(limit) => self.queued_bytes + u64::from(bytes) <= limit,
        };
        if !fits {
            if let Some(red) = &mut self.red {
                red.overflowed();
            }
            return Err(DropReason::QueueFull);
        }
        if at_ns >= self.last_departure_ns {
            self.last_departure_ns = at_ns;
            self.remainder = 0;
        }
        let (took, remainder) = transmission(bytes, self.rate_bps, self.remainder);
        self.last_departure_ns = self.last_departure_ns.saturating_add(took);
        self.remainder = remainder;
        self.queued.push_back((self.last_departure_ns, bytes));
        self.queued_bytes += u64::from(bytes);
        self.peak_packets = self.peak_packets.max(self.queued.len() as u64);
        self.peak_bytes = self.peak_bytes.max(self.queued_bytes);
        Ok(self.last_departure_ns)
    }

    /// Packets and bytes queued at `now_ns`.
    pub(super) fn queued_at(&mut self, now_ns: u64) -> (u64, u64) {
        self.expire(now_ns);
        (self.queued.len() as u64, self.queued_bytes)
    }

    pub(super) fn peaks(&self) -> (u64, u64) {
        (self.peak_packets, self.peak_bytes)
    }

    fn expire(&mut self, now_ns: u64) {
        while let Some(&(departure, bytes)) = self.queued.front()
            && departure <= now_ns
        {
            self.queued.pop_front();
            self.queued_bytes -= u64::from(bytes);
        }
    }

    /// The queue in the unit of its limit.
    #[allow(clippy::cast_precision_loss, reason = "queues are far below 2^53")]
    fn length(&self) -> f64 {
        match self.limit {
            QueueLimit::Packets(_) => self.queued.len() as f64,
            QueueLimit::Bytes(_) => self.queued_bytes as f64,
        }
    }

    /// How many mean packets could have been sent since the queue ran empty.
    fn idle_packets(&self, at_ns: u64) -> u64 {
        let Some(red) = &self.red else { return 0 };
        if !self.queued.is_empty() {
            return 0;
        }
        let idle = u128::from(at_ns.saturating_sub(self.last_departure_ns));
        let bits = u128::from(red.mean_packet_bytes()) * 8 * u128::from(NS_PER_S);
        u64::try_from(idle * u128::from(self.rate_bps) / bits).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds that `bytes` take, (8 x 10^9 bytes + remainder) / rate, and what that leaves.
fn transmission(bytes: u32, rate_bps: u64, remainder: u64) -> (u64, u64) {
    // Below 2^64 for any packet that exists, and half the cost of the wide division.
    let narrow = u64::from(bytes)
        .checked_mul(8 * NS_PER_S)
        .and_then(|work| work.checked_add(remainder));
    if let Some(work) = narrow {
        return (work / rate_bps, work % rate_bps);
    }
    let work = u128::from(bytes) * 8 * u128::from(NS_PER_S) + u128::from(remainder);
    let rate = u128::from(rate_bps);
    (
        u64::try_from(work / rate).unwrap_or(u64::MAX),
        u64::try_from(work % rate).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_64_bits_take_the_wide_division() {
        assert_eq!(transmission(1500, 1_000_000_000, 7), (12_000, 7));
        let whole = u64::from(u32::MAX) * 8;
        assert_eq!(transmission(u32::MAX, NS_PER_S, 0), (whole, 0));
        assert_eq!(transmission(u32::MAX, NS_PER_S, 999), (whole, 999));
    }
}
