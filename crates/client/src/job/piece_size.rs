//! How large the pieces of shared files are.

use std::{sync::Arc, time::Duration};

use godwit_proto::ByteRange;
use tokio::sync::watch;

use crate::{report::progress::Counters, setting_target::Target, transfer::PIECE_BYTES_MIN};

/// Pieces end at multiples of this: whole blocks of files and of MODE E.
const PIECE_BYTES_ALIGN: u64 = 1 << 20;

/// A piece of a get cannot be cut short, so it should not last longer than this, seconds: then a
/// session that is wanted no more leaves soon. Twelve round trips of 200 ms, so that asking for the
/// next costs little.
const PIECE_SECONDS: f64 = 2.5;

/// Nor should it be shorter than so many round trips, up to [`PIECE_SECONDS`], nor than so many
/// seconds: the next is asked for one ahead, else the path would run dry; while it waits no channel
/// joins or leaves; and the server reports of one piece at a time, a few times a second.
const PIECE_ROUND_TRIPS: f64 = 32.0;
const PIECE_SECONDS_MIN: f64 = 0.5;
/// Round trips of a piece however long they are.
const PIECE_ROUND_TRIPS_MIN: f64 = 4.0;

/// So many may come where their number changes: the first must not hold what they could share.
const WORKERS_TO_COME: u32 = 8;

/// What the session moves that a piece is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionRate {
    /// `None`: not known yet.
    pub(crate) rate_bps: Option<f64>,
    /// Of its control channel.
    pub(crate) round_trip: Duration,
}

impl SessionRate {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate, and NaN is 0"
    )]
    fn bytes_in(self, seconds: f64) -> u64 {
        let known = self.rate_bps.filter(|bps| bps.is_finite());
        known.map_or(0, |bps| (bps / 8.0 * seconds) as u64)
    }

    /// Shortest useful piece, s.
    fn least_seconds(self) -> f64 {
        let round_trip = self.round_trip.as_secs_f64();
        (PIECE_ROUND_TRIPS * round_trip)
            .clamp(PIECE_SECONDS_MIN, PIECE_SECONDS)
            .max(PIECE_ROUND_TRIPS_MIN * round_trip)
    }
}

/// Cuts pieces for workers.
pub(crate) struct PieceSizer {
    target: watch::Receiver<Target>,
    /// Of the job: what is left of it is shared too.
    counters: Arc<Counters>,
    /// The number of workers may change while files are moved.
    may_change: bool,
}

impl PieceSizer {
    pub(crate) fn new(
        target: watch::Receiver<Target>,
        counters: Arc<Counters>,
        may_change: bool,
    ) -> Self {
        Self {
            target,
            counters,
            may_change,
        }
    }

    /// Whether a file of so many bytes is shared between workers, now or later.
    pub(crate) fn shares(&self, length: u64) -> bool {
        (self.may_change || self.workers() > 1) && length >= 2 * PIECE_BYTES_MIN
    }

    /// The next piece of `left`, from its start, for a session of `rate`.
    /// Guided self-scheduling (Polychronopoulos, Kuck 1987): half of an equal share of the job each
    /// time, so that pieces shrink towards its end and no session holds the tail.
    pub(crate) fn piece(&self, left: ByteRange, rate: SessionRate) -> ByteRange {
        let patience = match self.may_change {
            true => rate.bytes_in(PIECE_SECONDS),
            false => u64::MAX >> 1,
        };
        self.cut(left, rate, patience)
    }

    /// The same where the session can end it early, however long it lasts.
    pub(crate) fn long_piece(&self, left: ByteRange, rate: SessionRate) -> ByteRange {
        self.cut(left, rate, u64::MAX >> 1)
    }

    fn cut(&self, left: ByteRange, rate: SessionRate, patience: u64) -> ByteRange {
        let now = self.counters.snapshot();
        let of_job = now.bytes_total.saturating_sub(now.bytes).max(left.len());
        let share = |workers: u32| of_job / (2 * u64::from(workers));
        let share = match self.may_change {
            true => share(self.workers().max(WORKERS_TO_COME)),
            false => share(self.workers()),
        };
        let least = rate.bytes_in(rate.least_seconds()).min(u64::MAX >> 1);
        // One that works alone holds nothing that others would move earlier.
        let tail = match self.workers() {
            1 => of_job,
            workers => of_job / (2 * u64::from(workers)),
        };
        let length = share
            .min(patience)
            .max(least.min(tail))
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

    fn workers(&self) -> u32 {
        self.target.borrow().setting.concurrency.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_tune::Setting;

    fn sizer(concurrency: u32, may_change: bool) -> PieceSizer {
        let target = Target {
            setting: Setting::new(concurrency, 4),
            ..Target::default()
        };
        PieceSizer::new(watch::channel(target).1, Arc::default(), may_change)
    }

    fn at(bps: f64, ms: u64) -> SessionRate {
        SessionRate {
            rate_bps: Some(bps),
            round_trip: Duration::from_millis(ms),
        }
    }

    #[test]
    fn a_piece_lasts_round_trips_and_is_a_share_of_the_rest() {
        let sizer = sizer(1, true);
        let small = ByteRange {
            start: 0,
            end: 100 << 20,
        };
        // 200 Mbit/s for half a second, or for 32 x 30 ms; 4 x 2 s is more than there is.
        let near = sizer.piece(small, at(2e8, 0)).len();
        assert!((12_500_000..14_000_000).contains(&near), "{near}");
        let far = sizer.piece(small, at(2e8, 30)).len();
        assert!((24_000_000..26_000_000).contains(&far), "{far}");
        assert_eq!(sizer.piece(small, at(2e8, 2000)), small, "alone");
        let more = &sizer.counters.bytes_found;
        more.store(10 << 30, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(sizer.piece(small, at(1e9, 0)), small, "there are others");
    }

    #[test]
    fn pieces_cover_the_file_once_and_shrink() {
        for size in [0_u64, 1, 8 << 20, 100 << 20, (1 << 30) + 17] {
            let sizer = sizer(4, false);
            let (mut at, mut last) = (0, u64::MAX);
            while at < size {
                let left = ByteRange {
                    start: at,
                    end: size,
                };
                let piece = sizer.piece(left, SessionRate::default());
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
        let sizer = sizer(4, false);
        let mut left = ByteRange {
            start: 0,
            end: 10_u64 << 30,
        };
        let mut last = 0;
        while !left.is_empty() {
            let piece = sizer.piece(left, SessionRate::default());
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
        let free = sizer(1, true);
        assert_eq!(
            free.piece(left, SessionRate::default()).len(),
            PIECE_BYTES_MIN
        );
        for unknown in [f64::NAN, f64::INFINITY] {
            let piece = free.piece(left, at(unknown, 0));
            assert_eq!(piece.len(), PIECE_BYTES_MIN, "{unknown}");
        }
        let second = free.piece(left, at(8e8, 0)).len();
        assert!((250_000_000..252_000_000).contains(&second), "{second}");
        // A share of what is left, where that lasts less.
        assert_eq!(free.piece(left, at(8e9, 0)).len(), 1 << 30);
        // What can be ended early lasts as long as others may still come for their share.
        assert_eq!(free.long_piece(left, at(8e8, 0)).len(), 1 << 30);
        assert_eq!(free.long_piece(left, SessionRate::default()).len(), 1 << 30);
        assert!(free.shares(2 * PIECE_BYTES_MIN) && !free.shares(PIECE_BYTES_MIN));
        assert!(!sizer(1, false).shares(u64::MAX));
    }
}
