//! How large the pieces of shared files are.

use godwit_proto::ByteRange;
use tokio::sync::watch;

use crate::context::Target;

/// Smallest piece that a file is cut into, octets. Below that a round trip and a slow start cost more than a second
/// session gains. Chosen arbitrarily within a factor of four.
pub(crate) const PIECE_BYTES_MIN: u64 = 8 << 20;

/// Pieces end at multiples of this: whole blocks of files and of MODE E.
const PIECE_BYTES_ALIGN: u64 = 1 << 20;

/// A piece of a get cannot be cut short, so it should not last longer than this, seconds: then a session that is wanted no
/// more leaves soon. Ten round trips of 200 ms, so that asking for the next costs little.
const PIECE_SECONDS: f64 = 2.5;

/// So many may come where their number changes: the first must not hold what they could share.
const WORKERS_TO_COME: u32 = 8;

/// Cuts pieces for workers.
pub(crate) struct Cutter {
    target: watch::Receiver<Target>,
    /// The number of workers may change while files are moved.
    may_change: bool,
}

impl Cutter {
    pub(crate) fn new(target: watch::Receiver<Target>, may_change: bool) -> Self {
        Self { target, may_change }
    }

    /// Whether a file of so many octets is shared between workers, now or later.
    pub(crate) fn shares(&self, length: u64) -> bool {
        (self.may_change || self.workers() > 1) && length >= 2 * PIECE_BYTES_MIN
    }

    /// The next piece of `left`, which nobody has begun, from its start, for a session that moves `rate_bps` (`None`: nobody
    /// knows). Guided self-scheduling (Polychronopoulos, Kuck 1987): half of an equal share each time, so that pieces
    /// shrink towards the end and no session holds the tail.
    pub(crate) fn piece(&self, left: ByteRange, rate_bps: Option<f64>) -> ByteRange {
        let workers = match self.may_change {
            true => self.workers().max(WORKERS_TO_COME),
            false => self.workers(),
        };
        let share = left.len() / (2 * u64::from(workers));
        let length = share
            .min(self.patience(rate_bps))
            .max(PIECE_BYTES_MIN)
            .next_multiple_of(PIECE_BYTES_ALIGN);
        // What would remain as a crumb goes along.
        let end = match left.start.checked_add(length) {
            Some(end) if end < left.end && left.end - end >= PIECE_BYTES_MIN / 2 => end,
            _ => left.end,
        };
        ByteRange {
            start: left.start,
            end,
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate, and NaN is 0"
    )]
    fn patience(&self, rate_bps: Option<f64>) -> u64 {
        if !self.may_change {
            return u64::MAX >> 1;
        }
        rate_bps.map_or(0, |bps| (bps / 8.0 * PIECE_SECONDS) as u64)
    }

    fn workers(&self) -> u32 {
        self.target.borrow().setting.concurrency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_tune::Setting;

    fn cutter(concurrency: u32, may_change: bool) -> Cutter {
        let target = Target {
            setting: Setting::new(concurrency, 4),
            generation: 0,
        };
        Cutter::new(watch::channel(target).1, may_change)
    }

    #[test]
    fn pieces_cover_the_file_once_and_shrink() {
        for size in [0_u64, 1, 8 << 20, 100 << 20, (1 << 30) + 17] {
            let cutter = cutter(4, false);
            let (mut at, mut last) = (0, u64::MAX);
            while at < size {
                let left = ByteRange {
                    start: at,
                    end: size,
                };
                let piece = cutter.piece(left, None);
                assert_eq!(piece.start, at);
                assert!(piece.end > at && piece.end <= size);
                assert!(piece.len() <= last.max(2 * PIECE_BYTES_MIN));
                (at, last) = (piece.end, piece.len());
            }
            assert_eq!(at, size);
        }
    }

    #[test]
    fn the_last_piece_is_small_beside_the_file() {
        let cutter = cutter(4, false);
        let mut left = ByteRange {
            start: 0,
            end: 10_u64 << 30,
        };
        let mut last = 0;
        while !left.is_empty() {
            let piece = cutter.piece(left, None);
            last = piece.len();
            left.start = piece.end;
        }
        assert!(last < 3 * PIECE_BYTES_MIN, "{last}");
    }

    #[test]
    fn pieces_last_seconds_where_workers_come_and_go() {
        let left = ByteRange {
            start: 0,
            end: 16_u64 << 30,
        };
        let free = cutter(1, true);
        assert_eq!(free.piece(left, None).len(), PIECE_BYTES_MIN);
        assert_eq!(free.piece(left, Some(f64::NAN)).len(), PIECE_BYTES_MIN);
        let second = free.piece(left, Some(8e8)).len();
        assert!((250_000_000..252_000_000).contains(&second), "{second}");
        assert_eq!(free.piece(left, Some(f64::INFINITY)).len(), 1 << 30);
        assert!(free.shares(2 * PIECE_BYTES_MIN) && !free.shares(PIECE_BYTES_MIN));
        assert!(!cutter(1, false).shares(u64::MAX));
    }
}
