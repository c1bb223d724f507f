//! Sums of TCP's counters over the connections of a transfer. No I/O.

use std::time::{Duration, Instant};

use crate::{
    data::sampling::sample::{ReceivingTcp, TcpTotals},
    host::tcp_diag::{AddressPair, TcpConnection},
};

/// The connections of one transfer, and what those that are gone have left.
#[derive(Default)]
pub(crate) struct TcpTally {
    connections: Vec<TrackedConnection>,
    /// All that was seen so far but what depends on the present.
    sums: TcpTotals,
    known: bool,
}

struct TrackedConnection {
    addresses: AddressPair,
    /// Made for this transfer: what it did before the first look is the transfer's. Others count
    /// from that look on.
    fresh: bool,
    /// Since when its time counts.
    joined: Instant,
    /// No part of the transfer any more, but its last bytes may be under way.
    left: Option<Instant>,
    last: Option<TcpConnection>,
}

impl TcpTally {
    pub(crate) fn joined(&mut self, addresses: AddressPair, fresh: bool, at: Instant) {
        self.connections.push(TrackedConnection {
            addresses,
            fresh,
            joined: at,
            left: None,
            last: None,
        });
    }

    pub(crate) fn left(&mut self, addresses: AddressPair, at: Instant) {
        let mut same = self
            .connections
            .iter_mut()
            .filter(|w| w.addresses == addresses);
        if let Some(watched) = same.find(|w| w.left.is_none()) {
            watched.left = Some(at);
        }
    }

    /// What to look up.
    pub(crate) fn addresses(&self) -> Vec<AddressPair> {
        self.connections.iter().map(|w| w.addresses).collect()
    }

    /// The kernel's answers of now, in the order of `ends`.
    pub(crate) fn update(&mut self, answers: &[Option<TcpConnection>], at: Instant) {
        let mut answers = answers.iter();
        let Self {
            connections,
            sums,
            known,
        } = self;
        connections.retain_mut(|watched| {
            let answer = answers.next().copied().flatten();
            // The same ends may come again with another connection.
            let answer = answer.filter(|a| watched.last.is_none_or(|l| l.cookie == a.cookie));
            if let Some(now) = answer {
                *known = true;
                if watched.last.is_none() && !watched.fresh {
                    watched.joined = at;
                }
                watched.add(&now, sums);
            }
            let Some(left) = watched.left else {
                return true;
            };
            let under_way = answer.is_some_and(|a| a.bytes_queued > 0);
            if !under_way {
                sums.channel_us += micros(left, watched.joined);
            }
            under_way
        });
    }

    /// Bytes, headers included, that the kernel holds and the peer has not acknowledged. `None`
    /// where a connection of the transfer could not be asked.
    pub(crate) fn queued(&self) -> Option<u64> {
        self.connections
            .iter()
            .map(|w| w.last.map(|l| u64::from(l.bytes_queued)))
            .sum()
    }

    /// The kernel has answered for at least one connection.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// What the receiving end sees; `None` before anything came.
    pub(crate) fn receiving(&self) -> Option<ReceivingTcp> {
        let open = self.connections.iter().filter_map(|w| w.last);
        let (mut count, mut rtt, mut window) = (0_u32, Duration::ZERO, 0_u64);
        for connection in open.filter(|c| c.receive_rtt_us > 0) {
            count += 1;
            rtt += micros_of(connection.receive_rtt_us);
            window += u64::from(connection.receive_window_max);
        }
        Some(ReceivingTcp {
            rtt: rtt.checked_div(count)?,
            window_bytes: window.checked_div(count.into())?,
        })
    }

    /// `None` where the kernel does not answer.
    pub(crate) fn totals(&self, now: Instant) -> Option<TcpTotals> {
        self.known.then(|| {
            let mut totals = self.sums;
            for watched in &self.connections {
                totals.channel_us += micros(watched.left.unwrap_or(now), watched.joined);
            }
            let open: Vec<_> = self.connections.iter().filter_map(|w| w.last).collect();
            let count = u32::try_from(open.len()).unwrap_or(u32::MAX);
            let rtt = open.iter().map(|c| micros_of(c.rtt_us)).sum::<Duration>();
            totals.rtt = rtt.checked_div(count).unwrap_or_default();
            let rate: u64 = open.iter().map(|c| c.delivery_bytes_per_second).sum();
            #[allow(clippy::cast_precision_loss)] // an estimate
            let bits = rate as f64 * 8.0;
            totals.delivery_rate_bps = (rate > 0).then_some(bits);
            totals
        })
    }
}

impl TrackedConnection {
    /// Adds what happened since the last look.
    fn add(&mut self, now: &TcpConnection, sums: &mut TcpTotals) {
        let before = match self.last {
            Some(last) => last,
            None if self.fresh => TcpConnection::default(),
            None => *now,
        };
        // 32 bits in the kernel: a look each quarter of a second misses no turn.
        let segments = |now: u32, before: u32| u64::from(now.wrapping_sub(before));
        let bytes = |now: u64, before: u64| now.saturating_sub(before);
        sums.segments_sent += segments(now.segments_sent, before.segments_sent);
        sums.segments_retransmitted +=
            segments(now.segments_retransmitted, before.segments_retransmitted);
        sums.bytes_retransmitted += bytes(now.bytes_retransmitted, before.bytes_retransmitted);
        sums.busy_us += bytes(now.busy_us, before.busy_us);
        sums.receive_window_limited_us += bytes(
            now.receive_window_limited_us,
            before.receive_window_limited_us,
        );
        sums.send_buffer_limited_us +=
            bytes(now.send_buffer_limited_us, before.send_buffer_limited_us);
        // The kernel says 2^32 - 1 before its first measurement.
        if now.rtt_min_us != 0 && now.rtt_min_us != u32::MAX {
            let seen = micros_of(now.rtt_min_us);
            let unknown = sums.rtt_min.is_zero();
            sums.rtt_min = if unknown {
                seen
            } else {
                seen.min(sums.rtt_min)
            };
        }
        self.last = Some(*now);
    }
}

fn micros(end: Instant, begin: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(begin).as_micros()).unwrap_or(u64::MAX)
}

fn micros_of(us: u32) -> Duration {
    Duration::from_micros(us.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(port: u16) -> AddressPair {
        AddressPair {
            local: ([127, 0, 0, 1], port).into(),
            remote: ([127, 0, 0, 1], 1).into(),
        }
    }

    fn seen(cookie: u64, segments: u32, queued: u32) -> Option<TcpConnection> {
        Some(TcpConnection {
            cookie,
            segments_sent: segments,
            segments_retransmitted: segments / 10,
            busy_us: u64::from(segments) * 10,
            bytes_queued: queued,
            rtt_us: 2000,
            receive_rtt_us: segments % 1000 * 10,
            receive_window_max: segments % 1000 * 400,
            rtt_min_us: 1100 + segments % 1000,
            ..TcpConnection::default()
        })
    }

    #[test]
    fn closed_connections_stay_counted() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut account = TcpTally::default();
        assert_eq!(account.totals(start), None);
        account.joined(addresses(1), true, at(0));
        account.joined(addresses(2), false, at(0));
        assert_eq!(account.queued(), None, "the kernel has not answered");
        account.update(&[seen(1, 100, 500), seen(2, 1000, 700)], at(4));
        let totals = account.totals(at(10)).unwrap();
        assert_eq!(
            (totals.segments_sent, totals.segments_retransmitted),
            (100, 10)
        );
        assert_eq!((totals.channel_us, totals.busy_us), (16_000, 1000));
        assert_eq!(totals.rtt, Duration::from_millis(2));
        assert_eq!(totals.rtt_min, Duration::from_micros(1100));
        assert_eq!(account.queued(), Some(1200));
        let receiving = ReceivingTcp {
            rtt: Duration::from_millis(1),
            window_bytes: 40_000,
        };
        assert_eq!(
            account.receiving(),
            Some(receiving),
            "the other has nothing"
        );

        // One leaves with bytes under way, and is gone at the look after the next.
        account.left(addresses(1), at(20));
        account.update(&[seen(1, 150, 20), seen(2, 1100, 0)], at(20));
        assert_eq!(account.addresses().len(), 2);
        account.update(&[None, seen(2, 1100, 0)], at(25));
        assert_eq!(account.addresses(), [addresses(2)]);
        let totals = account.totals(at(30)).unwrap();
        assert_eq!((totals.segments_sent, totals.channel_us), (250, 46_000));
        assert_eq!(account.queued(), Some(0));
    }

    #[test]
    fn ends_that_come_again_are_another_connection() {
        let now = Instant::now();
        let mut account = TcpTally::default();
        account.joined(addresses(1), true, now);
        account.update(&[seen(1, 100, 5)], now);
        account.left(addresses(1), now);
        account.joined(addresses(1), true, now);
        account.update(&[seen(2, 7, 0), seen(2, 7, 0)], now);
        assert_eq!(account.addresses().len(), 1);
        assert_eq!(account.totals(now).unwrap().segments_sent, 107);
        account.left(addresses(1), now);
        account.update(&[seen(2, 9, 0)], now);
        assert_eq!(account.totals(now).unwrap().segments_sent, 109);
        assert_eq!(account.addresses(), []);
    }

    #[test]
    fn counters_of_32_bits_may_turn_over() {
        let now = Instant::now();
        let mut account = TcpTally::default();
        account.joined(addresses(1), false, now);
        account.update(&[seen(1, u32::MAX - 9, 0)], now);
        account.update(&[seen(1, 5, 0)], now);
        assert_eq!(account.totals(now).unwrap().segments_sent, 15);
    }
}
