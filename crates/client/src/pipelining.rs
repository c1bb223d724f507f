//! How many small files a session has in flight. No I/O.
//!
//! A file is in flight from the moment its transfer command is sent until the server's answers to it are there. On a path of rate
//! `C` octets/s and round trip `R` that needs `C R / S` files of `S` octets, so that the path never runs dry while an answer is on its way
//! (Bresnahan et al., "GridFTP Pipelining", 2007, §3).

use std::time::{Duration, Instant};

/// Most files in flight on one control channel. With four commands a file this stays below the thousand that GCT's server
/// queues before it hangs up.
pub(crate) const DEPTH_MAX: u32 = 240;

/// The same where the server reads no further than it can queue, as `godwitd` does: 1 Gbit/s of files of 10 KB at a round trip
/// of 60 ms on one session.
pub(crate) const DEPTH_MAX_PATIENT: u32 = 960;

/// Files in flight before anything is known, and at least. Costs a few hundred octets of commands; saves a wake-up a file where there is
/// no round trip to save. From there on each file that arrives lets two follow, until the path does not keep up: what TCP does when
/// it begins.
const DEPTH_FIRST: u32 = 16;

/// Commands a file that may wait for their answers, up to [`DEPTH_MAX`] files: fewer together than GCT's server hangs up at.
pub(crate) const COMMANDS_A_FILE: usize = 4;

/// Octets of commands a file that may wait for their answers: up to [`DEPTH_MAX`] files they are what sockets on both sides hold
/// without anybody reading.
pub(crate) const COMMAND_OCTETS_A_FILE: usize = 272;

/// Octets that a file costs beside its own: headers of its blocks, commands and replies.
const OVERHEAD_OCTETS: f64 = 512.0;

/// Twice what the path holds: the rate may grow, and answers come in bunches.
const SPARE: f64 = 2.0;

/// Shortest time over which a rate is measured.
const SPAN_MIN: Duration = Duration::from_millis(100);

/// Time and round trips that new connections get to find their rate.
const PATIENCE: Duration = Duration::from_secs(1);
const ROUND_TRIPS: u32 = 16;

/// Files larger than this go one by one, so that the channels can follow the tuner while they move. Those from here on may
/// also be shared between sessions.
pub(crate) const SMALL_OCTETS_MAX: u64 = 2 * crate::pieces::PIECE_BYTES_MIN - 1;

/// Files in flight that keep a path of `rate` octets/s busy for `round_trip` with files of `mean` octets each (without overhead),
/// `1..=most`. What is no number counts as nothing.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and NaN is 0"
)]
pub(crate) fn depth(round_trip: Duration, rate: f64, mean: f64, most: u32) -> u32 {
    let held = round_trip.as_secs_f64() * rate.max(0.0);
    let files = SPARE * held / (mean.max(0.0) + OVERHEAD_OCTETS);
    (files.ceil() as u32).clamp(1, most)
}

/// The depth of one session as it goes.
#[derive(Debug)]
pub(crate) struct Pace {
    depth: u32,
    most: u32,
    fixed: bool,
    /// The path has kept up so far.
    starting: bool,
    /// A depth that a session like this one needed is kept for so long: new connections have yet to find their rate.
    patience: Duration,
    begun: Option<Instant>,
    round_trip: Duration,
    since: Option<Instant>,
    files: u32,
    octets: u64,
}

impl Pace {
    /// `fixed`: the user's (`--pipelining`), kept to. `round_trip`: of the control channel. `before`: the depth of a session like
    /// this one, 0 where there was none. `most`: what the server bears, at least 16.
    pub(crate) fn new(fixed: Option<u32>, round_trip: Duration, before: u32, most: u32) -> Self {
        let first = before.max(DEPTH_FIRST);
        Self {
            depth: fixed.unwrap_or(first).clamp(1, most),
            most,
            fixed: fixed.is_some(),
            starting: true,
            patience: if before > 0 {
                patience(round_trip)
            } else {
                Duration::ZERO
            },
            begun: None,
            round_trip,
            since: None,
            files: 0,
            octets: 0,
        }
    }

    /// Files that may be in flight now.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// No file was let in for a while, and the channels may be others: the depth is kept until they have found their rate.
    pub(crate) fn interrupted(&mut self) {
        self.patience = patience(self.round_trip);
        (self.begun, self.since, self.files, self.octets) = (None, None, 0, 0);
    }

    /// A file of so many octets has arrived. True where the depth changes.
    pub(crate) fn arrived(&mut self, octets: u64, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(*self.begun.get_or_insert(now));
        self.files += 1;
        self.octets += octets;
        if self.fixed {
            return false;
        }
        let before = self.depth;
        if self.starting {
            self.depth = (self.depth + 1).min(self.most);
        }
        let span = now.saturating_duration_since(since);
        if span >= SPAN_MIN.max(self.round_trip) {
            let wanted = self.wanted(span);
            // While the depth doubles, the mean rate over two round trips is three eighths of the last, twice as much wanted.
            self.starting &= 5 * wanted >= 3 * self.depth;
            let least = if self.starting || age < self.patience {
                self.depth
            } else {
                self.depth / 2 + 1
            };
            let most = self.depth.saturating_mul(2).min(self.most);
            self.depth = wanted.clamp(least, most);
            (self.since, self.files, self.octets) = (Some(now), 0, 0);
        }
        before != self.depth
    }

    /// A rate that the depth holds down asks for twice the depth; doubling at most, so that a burst does no more. It comes down by
    /// steps too: a pause of the server is no reason to begin anew.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    fn wanted(&self, span: Duration) -> u32 {
        let files = f64::from(self.files.max(1));
        let octets = self.octets as f64;
        let rate = (octets + files * OVERHEAD_OCTETS) / span.as_secs_f64();
        depth(self.round_trip, rate, octets / files, self.most).max(DEPTH_FIRST)
    }
}

fn patience(round_trip: Duration) -> Duration {
    PATIENCE.max(round_trip.saturating_mul(ROUND_TRIPS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn enough_files_for_what_the_path_holds() {
        // 1 Gbit/s x 20 ms = 2.5 MB; 10 KB a file and 512 octets beside it; twice.
        assert_eq!(depth(20 * MS, 125e6, 9728.0, DEPTH_MAX), DEPTH_MAX);
        assert_eq!(depth(20 * MS, 12.5e6, 9728.0, DEPTH_MAX), 49);
        assert_eq!(depth(20 * MS, 125e6, 1e6, DEPTH_MAX), 5);
        assert_eq!(depth(MS / 10, 125e6, 1e7, DEPTH_MAX), 1);
        assert_eq!(depth(Duration::ZERO, f64::NAN, 0.0, DEPTH_MAX), 1);
        assert_eq!(
            depth(20 * MS, f64::INFINITY, f64::NAN, DEPTH_MAX),
            DEPTH_MAX
        );
    }

    #[test]
    fn an_interruption_costs_no_depth() {
        let (mut pace, start) = (Pace::new(None, 60 * MS, 0, DEPTH_MAX), Instant::now());
        let mut now = start;
        while pace.depth() < DEPTH_MAX {
            now += MS / 4;
            pace.arrived(100_000, now);
        }
        pace.interrupted();
        for _ in 0..8 {
            now += 100 * MS;
            pace.arrived(100_000, now);
            assert_eq!(pace.depth(), DEPTH_MAX);
        }
        for _ in 0..100 {
            now += 100 * MS;
            pace.arrived(100_000, now);
        }
        assert_eq!(pace.depth(), DEPTH_FIRST, "in the end what arrives decides");
    }

    /// A server far away that has its answer ready a round trip after it was asked.
    fn settled(round_trip: Duration, files_per_second: f64, octets: u64) -> u32 {
        let mut pace = Pace::new(None, round_trip, 0, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..20_000 {
            let held_down = round_trip.as_secs_f64() / f64::from(pace.depth());
            now += Duration::from_secs_f64(held_down.max(1.0 / files_per_second));
            pace.arrived(octets, now);
        }
        pace.depth()
    }

    #[test]
    fn grows_until_the_path_is_the_limit_and_no_further() {
        // 100 Mbit/s in files of 10 KB: 1190 files a second, 71 in 60 ms.
        let depth = settled(60 * MS, 1190.0, 10_000);
        assert!((120..=160).contains(&depth), "{depth}");
        assert_eq!(settled(60 * MS, 1e5, 1000), DEPTH_MAX);
        assert_eq!(settled(MS / 10, 1e4, 10_000), DEPTH_FIRST);
    }

    #[test]
    fn doubles_with_each_round_trip_to_begin_with() {
        let mut pace = Pace::new(None, 60 * MS, 0, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..3 {
            // All that are in flight arrive a round trip later.
            now += 60 * MS;
            for _ in 0..pace.depth() {
                pace.arrived(10_000, now);
            }
        }
        assert!((100..=240).contains(&pace.depth()), "{}", pace.depth());
        assert_eq!(
            Pace::new(None, 60 * MS, 100, DEPTH_MAX).depth(),
            100,
            "as others"
        );
    }

    #[test]
    fn new_connections_have_time_to_find_their_rate() {
        let mut pace = Pace::new(None, 60 * MS, 100, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..8 {
            now += 120 * MS;
            pace.arrived(10_000, now);
        }
        assert!(pace.depth() >= 100, "{}", pace.depth());
        for _ in 0..20 {
            now += 120 * MS;
            pace.arrived(10_000, now);
        }
        assert_eq!(pace.depth(), DEPTH_FIRST);
    }

    #[test]
    fn a_slow_path_is_not_flooded() {
        // 10 Mbit/s in files of 100 KB.
        let mut pace = Pace::new(None, 60 * MS, 0, DEPTH_MAX);
        let mut now = Instant::now();
        let mut most = 0;
        for _ in 0..200 {
            now += 80 * MS;
            pace.arrived(100_000, now);
            most = most.max(pace.depth());
        }
        assert!(most <= 2 * DEPTH_FIRST + 2, "{most}");
        assert_eq!(pace.depth(), DEPTH_FIRST);
    }

    #[test]
    fn comes_down_when_the_path_slows() {
        let mut pace = Pace::new(None, 100 * MS, 0, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..4000 {
            now += MS / 2;
            pace.arrived(1000, now);
        }
        assert_eq!(pace.depth(), DEPTH_MAX);
        for _ in 0..400 {
            now += 20 * MS;
            pace.arrived(1000, now);
        }
        assert_eq!(pace.depth(), DEPTH_FIRST);
    }

    #[test]
    fn what_the_user_fixed_stays() {
        let mut pace = Pace::new(Some(3), 100 * MS, 200, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..1000 {
            now += MS;
            assert!(!pace.arrived(1000, now));
        }
        assert_eq!(pace.depth(), 3);
    }

    proptest! {
        #[test]
        fn always_within_bounds(rtt_us in 0_u64..100_000_000, rate: f64, mean: f64) {
            let depth = depth(Duration::from_micros(rtt_us), rate, mean, DEPTH_MAX);
            prop_assert!((1..=DEPTH_MAX).contains(&depth));
        }
    }
}
