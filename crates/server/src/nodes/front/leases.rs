//! Which node sends which bytes, where the client leaves that to the server: all nodes take from
//! one queue, so that a slow one holds at most what it moves in a moment.

use std::{collections::VecDeque, time::Duration};

use godwit_proto::ByteRange;

/// Least bytes of a lease, unless less is left. A slow node may hold up the end for as long as it
/// takes for these.
const LEASE_MIN: u64 = 256 << 10;

/// Bytes of the first lease, when nothing is known of the node: at least and at most.
const FIRST_MIN: u64 = 1 << 20;
const FIRST_MAX: u64 = 8 << 20;

/// The first leases of all nodes are together this part of the transfer at most.
const FIRST_SHARE: u64 = 8;

/// Most bytes that a node has and has not sent.
const HELD_MAX: u64 = 1 << 30;

/// A node has work for about so long: some of its reports.
const AHEAD: Duration = Duration::from_secs(1);

/// The queue of one transfer. Pure.
pub(super) struct Leases {
    left: VecDeque<ByteRange>,
    /// Bytes given to each node.
    given: Vec<u64>,
    /// Bytes that each node has sent, as far as it was asked about.
    sent: Vec<u64>,
    /// Of each first lease.
    first: u64,
}

impl Leases {
    pub(super) fn new(ranges: Vec<ByteRange>, nodes: usize) -> Self {
        let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
        let share = bytes / FIRST_SHARE / nodes.max(1) as u64;
        Self {
            left: ranges.into(),
            given: vec![0; nodes],
            sent: vec![0; nodes],
            first: share.clamp(FIRST_MIN, FIRST_MAX),
        }
    }

    /// What `node`, which has sent `sent` bytes in `elapsed`, shall send next; empty where it has
    /// enough.
    pub(super) fn next(&mut self, node: usize, sent: u64, elapsed: Duration) -> Vec<ByteRange> {
        self.sent[node] = sent;
        let held = self.given[node].saturating_sub(sent);
        let moved = match sent {
            0 => self.first,
            _ => moved_in(AHEAD, sent, elapsed),
        };
        let wanted = (moved.min(HELD_MAX)).min(self.part_of(node)).max(LEASE_MIN);
        if held > wanted / 2 {
            return Vec::new();
        }
        let mut missing = wanted - held;
        let mut ranges = Vec::new();
        while missing > 0
            && let Some(front) = self.left.front_mut()
        {
            let end = front.end.min(front.start.saturating_add(missing));
            let some = ByteRange {
                start: front.start,
                end,
            };
            front.start = end;
            missing -= some.len();
            if front.is_empty() {
                self.left.pop_front();
            }
            if !some.is_empty() {
                self.given[node] += some.len();
                ranges.push(some);
            }
        }
        ranges
    }

    /// Nothing is left to give.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left.is_empty()
    }

    /// Bytes of those not sent yet that `node` should have so that all nodes end together: in
    /// proportion to what it has sent, or an equal part before it has sent anything.
    fn part_of(&self, node: usize) -> u64 {
        let given: u64 = self.given.iter().sum();
        let sent: u64 = self.sent.iter().sum();
        let left: u64 = self.left.iter().map(|range| range.len()).sum();
        let unsent = u128::from(left) + u128::from(given.saturating_sub(sent));
        let part = match self.sent[node] {
            0 => unsent / self.given.len().max(1) as u128,
            own => unsent * u128::from(own) / u128::from(sent.max(1)),
        };
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

fn moved_in(span: Duration, sent: u64, elapsed: Duration) -> u64 {
    let milliseconds = elapsed.as_millis().max(100);
    let bytes = u128::from(sent) * span.as_millis() / milliseconds;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn whole(bytes: u64) -> Vec<ByteRange> {
        vec![ByteRange {
            start: 0,
            end: bytes,
        }]
    }

    #[test]
    fn a_node_at_a_quarter_of_the_rate_gets_a_fifth() {
        let mut leases = Leases::new(whole(10_000 * MB), 2);
        let rates = [400 * MB, 100 * MB];
        let (mut sent, mut given) = ([0; 2], [0; 2]);
        let mut covered = 0;
        for step in 1..1000_u64 {
            let now = Duration::from_millis(step * 200);
            for node in 0..2 {
                sent[node] = given[node].min(sent[node] + rates[node] / 5);
                let ranges = leases.next(node, sent[node], now);
                let bytes: u64 = ranges.iter().map(|r| r.len()).sum();
                given[node] += bytes;
                covered += bytes;
            }
            if sent.iter().sum::<u64>() == 10_000 * MB {
                // At the sum of the rates it would be 20 s.
                assert!(now < Duration::from_secs(23), "{now:?}");
                assert!((7_500 * MB..8_500 * MB).contains(&given[0]), "{given:?}");
                assert_eq!(covered, 10_000 * MB);
                return;
            }
        }
        panic!("it never ends: {sent:?}");
    }

    #[test]
    fn a_slow_node_holds_up_the_end_of_a_short_transfer_by_little() {
        // Of four nodes the first has a quarter of the rate of the others.
        let rates = [625_000, 2_500_000, 2_500_000, 2_500_000];
        let bytes = 160 * MB;
        let mut leases = Leases::new(whole(bytes), rates.len());
        let (mut sent, mut given) = ([0; 4], [0; 4]);
        let tenths = (1..1000_u64).find(|tenth| {
            let now = Duration::from_millis(tenth * 100);
            for (node, rate) in rates.iter().enumerate() {
                sent[node] = given[node].min(sent[node] + rate / 10);
                let ranges = leases.next(node, sent[node], now);
                given[node] += ranges.iter().map(|r| r.len()).sum::<u64>();
            }
            sent.iter().sum::<u64>() == bytes
        });
        let least = 10 * bytes / rates.iter().sum::<u64>();
        assert!(
            tenths.is_some_and(|tenths| 100 * tenths <= 103 * least),
            "{tenths:?} of {least}"
        );
    }

    #[test]
    fn each_byte_is_given_once() {
        let ranges = vec![
            ByteRange { start: 5, end: 6 },
            ByteRange {
                start: 10,
                end: 100 * MB,
            },
        ];
        let mut leases = Leases::new(ranges, 3);
        let mut all = Vec::new();
        let mut sent = [0; 3];
        while !leases.is_exhausted() {
            for (node, sent) in sent.iter_mut().enumerate() {
                let some = leases.next(node, *sent, Duration::from_secs(1));
                *sent += some.iter().map(|r| r.len()).sum::<u64>();
                all.extend(some);
            }
        }
        assert!(sent.iter().all(|bytes| *bytes >= LEASE_MIN), "{sent:?}");
        assert_eq!((all[0].start, all[0].end), (5, 6));
        assert!(all[1..].windows(2).all(|two| two[0].end == two[1].start));
        assert_eq!(all.last().map(|last| last.end), Some(100 * MB));
    }
}
