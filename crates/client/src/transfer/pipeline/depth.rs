//! How many small files a session has in flight. No I/O.
//!
//! A file is in flight from the moment its transfer command is sent until the server's answers to
//! it are there. On a path of rate `C` bytes/s and round trip `R` that needs `C R / S` files of `S`
//! bytes, so that the path never runs dry while an answer is on its way (Bresnahan et al., "GridFTP
//! Pipelining", 2007, §3).

use std::time::{Duration, Instant};

/// Most files in flight on one control channel. With four commands a file this stays below the
/// thousand that GCT's server queues before it hangs up.
pub(crate) const DEPTH_MAX: u32 = 240;

/// The same where the server reads no further than it can queue, as `godwitd` does: 1 Gbit/s of
/// files of 10 KB at a round trip of 60 ms on one session.
pub(crate) const DEPTH_MAX_PATIENT: u32 = 960;

/// Files in flight before anything is known, and at least. Costs a few hundred bytes of commands;
/// saves a wake-up a file where there is no round trip to save. From there on each file that
/// arrives lets two follow, until the path does not keep up: what TCP does when it begins.
const DEPTH_FIRST: u32 = 16;

/// Commands a file that may wait for their answers, up to [`DEPTH_MAX`] files: fewer together than
/// GCT's server hangs up at.
pub(crate) const COMMANDS_A_FILE: usize = 4;

/// Bytes of commands a file that may wait for their answers: up to [`DEPTH_MAX`] files they are
/// what sockets on both sides hold without anybody reading.
pub(crate) const COMMAND_BYTES_A_FILE: usize = 272;

/// From here on it tells for seconds whether windows can grow with each round trip; nearer they
/// have grown before anybody looks.
const FAR: Duration = Duration::from_millis(5);

/// Bytes of files in flight at least while a session with a server far away begins: TCP doubles
/// what it sends with each round trip, and each time that it has nothing to send for want of
/// answers costs it one.
const BYTES_FIRST: u64 = 2 << 20;

/// Bytes a channel of little files that may be in flight to or from a server that is near, where
/// the path holds no more. What waits there for its name is sent again when one of the two is
/// killed: a block a channel may be.
const NEAR_BYTES_A_CHANNEL: u64 = 1 << 20;

/// Bytes that may be in flight to or from a server far away, where the path holds no more: the
/// channels can become others only when nothing is in flight, which on a path that has become slow
/// is to come soon.
const FAR_BYTES: u64 = 32 << 20;

/// Files that may be in flight in any case: one that flows, and those whose answers are on their
/// way before and behind it.
const FILES_MIN: usize = 4;

/// What a rate that still grows gains from one look to the next, and looks without it after which
/// it does so no more.
const GROWTH: f64 = 1.25;
const LOOKS_WITHOUT_MAX: u8 = 2;

/// Bytes that a file costs beside its own: headers of its blocks, commands and replies.
const OVERHEAD_BYTES: f64 = 512.0;

/// Times what the path holds: the rate may grow, and answers come in bunches.
const SPARE: f64 = 2.0;

/// The same far away, where a queue may hold as much as the path, and a channel that repeats what
/// was lost keeps the answers of all files back in which it has a part: a round trip or two, in
/// which the others have to find work.
const SPARE_FAR: f64 = 4.0;

/// Shortest time over which a rate is measured.
const SPAN_MIN: Duration = Duration::from_millis(100);

/// Time and round trips that new connections get to find their rate.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
const ROUND_TRIPS: u32 = 16;

/// Files in flight that keep a path of `rate` bytes/s busy for `round_trip` with files of `mean`
/// bytes each (without overhead), `1..=most`. What is no number counts as nothing.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and NaN is 0"
)]
pub(crate) fn depth(round_trip: Duration, rate: f64, mean: f64, most: u32) -> u32 {
    let held = round_trip.as_secs_f64() * rate.max(0.0);
    let files = spare(round_trip) * held / (mean.max(0.0) + OVERHEAD_BYTES);
    (files.ceil() as u32).clamp(1, most)
}

fn spare(round_trip: Duration) -> f64 {
    match round_trip >= FAR {
        true => SPARE_FAR,
        false => SPARE,
    }
}

/// So many bytes, and what the files that have them cost beside.
#[allow(clippy::cast_precision_loss, reason = "bytes as a rate")]
pub(crate) fn with_overhead(files: u64, bytes: u64) -> f64 {
    bytes as f64 + files as f64 * OVERHEAD_BYTES
}

/// Bytes that keep a path of `rate` bytes/s busy for `round_trip`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and NaN is 0"
)]
fn held(round_trip: Duration, rate: f64) -> u64 {
    (spare(round_trip) * round_trip.as_secs_f64() * rate) as u64
}

/// How the rate has grown since the beginning.
#[derive(Debug, Default)]
struct RampUp {
    far: bool,
    rate: f64,
    looks_without: u8,
}

/// The depth of one session as it goes.
#[derive(Debug)]
pub(crate) struct DepthController {
    depth: u32,
    most: u32,
    fixed: bool,
    /// Until the path does not keep up.
    start: Option<RampUp>,
    /// What was asked for.
    asked: (u32, u64),
    /// A depth that a session like this one needed is kept for so long: new connections have yet to
    /// find their rate.
    grace_period: Duration,
    begun: Option<Instant>,
    round_trip: Duration,
    since: Option<Instant>,
    files: u32,
    bytes: u64,
    /// Bytes/s when it was measured last, 0 before.
    rate: f64,
}

impl DepthController {
    /// `fixed`: the user's (`--pipelining`), kept to. `round_trip`: of the control channel.
    /// `before`: the depth of a session like this one, 0 where there was none. `most`: what the
    /// server bears, at least 16.
    pub(crate) fn new(fixed: Option<u32>, round_trip: Duration, before: u32, most: u32) -> Self {
        let first = before.max(DEPTH_FIRST);
        Self {
            depth: fixed.unwrap_or(first).clamp(1, most),
            most,
            fixed: fixed.is_some(),
            start: fixed.is_none().then(|| RampUp {
                far: round_trip >= FAR,
                ..RampUp::default()
            }),
            asked: (0, 0),
            grace_period: if before > 0 {
                grace_period(round_trip)
            } else {
                Duration::ZERO
            },
            begun: None,
            round_trip,
            since: None,
            files: 0,
            bytes: 0,
            rate: 0.0,
        }
    }

    /// Files that may be in flight now.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether another file may join so many in flight on so many channels. `unresumable_bytes`:
    /// bytes of those that are little.
    #[allow(clippy::cast_precision_loss, reason = "a bound")]
    pub(crate) fn admits(&self, files: usize, unresumable_bytes: u64, channels: u32) -> bool {
        let near = NEAR_BYTES_A_CHANNEL.saturating_mul(channels.into());
        let held = held(self.round_trip, self.rate);
        self.fixed
            || files < FILES_MIN
            || match self.round_trip >= FAR {
                true => self.bytes_of(files) < held.max(FAR_BYTES) as f64,
                false => unresumable_bytes < held.max(near),
            }
    }

    /// A file of so many bytes is asked for.
    pub(crate) fn on_request(&mut self, bytes: u64) {
        let (files, all) = (
            self.asked.0.saturating_add(1),
            self.asked.1.saturating_add(bytes),
        );
        self.asked = (files, all);
        if self.start.as_ref().is_some_and(|start| start.far) {
            let first = BYTES_FIRST.saturating_mul(u64::from(files)) / all.max(1);
            let first = u32::try_from(first).unwrap_or(u32::MAX);
            self.depth = self.depth.max(first.min(self.most));
        }
    }

    /// No file was let in for a while, and the channels may be others: the depth is kept until they
    /// have found their rate.
    pub(crate) fn on_pause(&mut self) {
        self.grace_period = grace_period(self.round_trip);
        (self.begun, self.since, self.files, self.bytes) = (None, None, 0, 0);
    }

    /// A file of so many bytes has arrived. True where the depth changes.
    pub(crate) fn on_complete(&mut self, bytes: u64, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(*self.begun.get_or_insert(now));
        self.files += 1;
        self.bytes += bytes;
        let before = self.depth;
        if self.start.is_some() {
            self.depth = (self.depth + 1).min(self.most);
        }
        let span = now.saturating_duration_since(since);
        if span >= SPAN_MIN.max(self.round_trip) {
            let rate = self.measured(span);
            self.rate = rate;
            let wanted = self.wanted(rate);
            // While the depth doubles, the mean rate over two round trips is three eighths of the
            // last, twice as much wanted.
            let keeps_up = 5 * wanted >= 3 * self.depth;
            let still_growing =
                (self.start.as_mut()).is_some_and(|start| start.still_growing(rate));
            self.start = self.start.take().filter(|_| still_growing || keeps_up);
            let least = if self.start.is_some() || age < self.grace_period {
                self.depth
            } else {
                self.depth / 2 + 1
            };
            let most = self.depth.saturating_mul(2).min(self.most);
            if !self.fixed {
                self.depth = wanted.clamp(least, most);
            }
            (self.since, self.files, self.bytes) = (Some(now), 0, 0);
        }
        before != self.depth
    }

    /// Bytes/s with what files cost beside theirs, when that was measured last; 0 before.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// What so many files of those that were asked for come to, bytes with what they cost beside
    /// theirs.
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    pub(crate) fn bytes_of(&self, files: usize) -> f64 {
        let (asked, bytes) = self.asked;
        files as f64 * with_overhead(u64::from(asked), bytes) / f64::from(asked.max(1))
    }

    /// Bytes/s with what files cost beside theirs.
    fn measured(&self, span: Duration) -> f64 {
        with_overhead(u64::from(self.files), self.bytes) / span.as_secs_f64()
    }

    /// A rate that the depth holds down asks for twice the depth; doubling at most, so that a burst
    /// does no more. It comes down by steps too: a pause of the server is no reason to begin again.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    fn wanted(&self, rate: f64) -> u32 {
        let mean = self.bytes as f64 / f64::from(self.files.max(1));
        depth(self.round_trip, rate, mean, self.most).max(DEPTH_FIRST)
    }
}

impl RampUp {
    /// Whether it does, after a look at the rate.
    fn still_growing(&mut self, rate: f64) -> bool {
        if rate >= GROWTH * self.rate {
            (self.rate, self.looks_without) = (rate, 0);
        } else {
            self.looks_without += 1;
        }
        self.far && self.looks_without < LOOKS_WITHOUT_MAX
    }
}

fn grace_period(round_trip: Duration) -> Duration {
    GRACE_PERIOD.max(round_trip.saturating_mul(ROUND_TRIPS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn enough_files_for_what_the_path_holds() {
        // 1 Gbit/s x 20 ms = 2.5 MB; 10 KB a file and 512 bytes beside it; four times.
        assert_eq!(depth(20 * MS, 125e6, 9728.0, DEPTH_MAX), DEPTH_MAX);
        assert_eq!(depth(20 * MS, 12.5e6, 9728.0, DEPTH_MAX), 98);
        assert_eq!(depth(20 * MS, 125e6, 1e6, DEPTH_MAX), 10);
        // 10 Gbit/s x 1 ms; twice.
        assert_eq!(depth(MS, 1.25e9, 1e6, DEPTH_MAX), 3);
        assert_eq!(depth(MS / 10, 125e6, 1e7, DEPTH_MAX), 1);
        assert_eq!(depth(Duration::ZERO, f64::NAN, 0.0, DEPTH_MAX), 1);
        assert_eq!(
            depth(20 * MS, f64::INFINITY, f64::NAN, DEPTH_MAX),
            DEPTH_MAX
        );
    }

    #[test]
    fn an_interruption_costs_no_depth() {
        let (mut depth_controller, start) = (
            DepthController::new(None, 60 * MS, 0, DEPTH_MAX),
            Instant::now(),
        );
        let mut now = start;
        while depth_controller.depth() < DEPTH_MAX {
            now += MS / 4;
            depth_controller.on_complete(100_000, now);
        }
        depth_controller.on_pause();
        for _ in 0..8 {
            now += 100 * MS;
            depth_controller.on_complete(100_000, now);
            assert_eq!(depth_controller.depth(), DEPTH_MAX);
        }
        for _ in 0..100 {
            now += 100 * MS;
            depth_controller.on_complete(100_000, now);
        }
        assert_eq!(
            depth_controller.depth(),
            DEPTH_FIRST,
            "in the end what arrives decides"
        );
    }

    /// A server far away that has its answer ready a round trip after it was asked.
    fn settled(round_trip: Duration, files_per_second: f64, bytes: u64) -> u32 {
        let mut depth_controller = DepthController::new(None, round_trip, 0, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..20_000 {
            let held_down = round_trip.as_secs_f64() / f64::from(depth_controller.depth());
            now += Duration::from_secs_f64(held_down.max(1.0 / files_per_second));
            depth_controller.on_complete(bytes, now);
        }
        depth_controller.depth()
    }

    #[test]
    fn grows_until_the_path_is_the_limit_and_no_further() {
        // 50 Mbit/s in files of 10 KB: 595 files a second, 36 in 60 ms.
        let depth = settled(60 * MS, 595.0, 10_000);
        assert!((120..=160).contains(&depth), "{depth}");
        assert_eq!(settled(60 * MS, 1e5, 1000), DEPTH_MAX);
        assert_eq!(settled(MS / 10, 1e4, 10_000), DEPTH_FIRST);
    }

    #[test]
    fn doubles_with_each_round_trip_to_begin_with() {
        let mut depth_controller = DepthController::new(None, 60 * MS, 0, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..3 {
            // All that are in flight arrive a round trip later.
            now += 60 * MS;
            for _ in 0..depth_controller.depth() {
                depth_controller.on_complete(10_000, now);
            }
        }
        assert!(
            (100..=240).contains(&depth_controller.depth()),
            "{}",
            depth_controller.depth()
        );
        assert_eq!(
            DepthController::new(None, 60 * MS, 100, DEPTH_MAX).depth(),
            100,
            "as others"
        );
    }

    #[test]
    fn windows_that_begin_small_find_files_to_carry() {
        let mut depth_controller = DepthController::new(None, 60 * MS, 0, DEPTH_MAX_PATIENT);
        assert_eq!(
            depth_controller.depth(),
            DEPTH_FIRST,
            "before the size is known"
        );
        (0..300).for_each(|_| depth_controller.on_request(10_000));
        assert!(
            (200..220).contains(&depth_controller.depth()),
            "2 MiB: {}",
            depth_controller.depth()
        );
        // TCP lets one file through in the first round trip, and then always twice as many.
        let mut now = Instant::now();
        for file_in_flight in (0..9).map(|round_trip| 1 << round_trip) {
            assert!(
                2 * depth_controller.depth() >= 3 * file_in_flight,
                "{} for {file_in_flight}",
                depth_controller.depth()
            );
            for _ in 0..file_in_flight {
                now += 60 * MS / file_in_flight;
                depth_controller.on_request(10_000);
                depth_controller.on_complete(10_000, now);
            }
        }
        // From then on it is the path that lets no more through than 500 files a second.
        for _ in 0..4000 {
            now += 2 * MS;
            depth_controller.on_request(10_000);
            depth_controller.on_complete(10_000, now);
        }
        assert!(
            (100..=200).contains(&depth_controller.depth()),
            "{}",
            depth_controller.depth()
        );
    }

    /// Bytes of files in flight at which no other may join.
    fn bytes_max(depth_controller: &DepthController, channels: u32) -> u64 {
        let bytes = (0..).step_by(1 << 18);
        let mut full =
            bytes.skip_while(|bytes| depth_controller.admits(FILES_MIN, *bytes, channels));
        full.next().unwrap()
    }

    #[test]
    fn near_by_no_more_is_in_flight_than_the_path_holds() {
        let mut depth_controller = DepthController::new(None, MS, 0, DEPTH_MAX_PATIENT);
        assert_eq!(bytes_max(&depth_controller, 4), 4 << 20);
        // 40 Gbit/s.
        let mut now = Instant::now();
        for _ in 0..2000 {
            now += MS / 10;
            depth_controller.on_complete(500_000, now);
        }
        let held = bytes_max(&depth_controller, 4);
        assert!((10_000_000..10_500_000).contains(&held), "{held}");
        // What waits longer than a round trip waits for the server.
        for _ in 0..2000 {
            now += MS;
            depth_controller.on_complete(100_000, now);
        }
        assert_eq!(bytes_max(&depth_controller, 4), 4 << 20);
        assert_eq!(bytes_max(&depth_controller, 1), 1 << 20);
        assert!(depth_controller.admits(3, u64::MAX, 1), "a few in any case");
        let fixed = DepthController::new(Some(100), MS, 0, DEPTH_MAX);
        assert!(fixed.admits(99, u64::MAX, 1));
    }

    #[test]
    fn far_away_larger_files_wait_until_the_path_holds_them() {
        let most = |depth_controller: &DepthController| {
            let mut files = (0..).skip_while(|files| depth_controller.admits(*files, u64::MAX, 1));
            files.next().unwrap()
        };
        for (bytes, files) in [(10_000_000, FILES_MIN), (1_000_000, 34), (10_000, 3193)] {
            let mut depth_controller = DepthController::new(None, 60 * MS, 0, DEPTH_MAX_PATIENT);
            depth_controller.on_request(bytes);
            assert_eq!(most(&depth_controller), files, "{bytes}");
        }
        let mut depth_controller = DepthController::new(None, 60 * MS, 0, DEPTH_MAX_PATIENT);
        let mut now = Instant::now();
        for _ in 0..1000 {
            now += MS;
            depth_controller.on_request(10_000_000);
            depth_controller.on_complete(10_000_000, now);
        }
        // 80 Gbit/s hold 600 MB.
        assert!(
            (235..=245).contains(&most(&depth_controller)),
            "{}",
            most(&depth_controller)
        );
    }

    #[test]
    fn large_files_are_not_asked_for_by_bytes() {
        let mut depth_controller = DepthController::new(None, 60 * MS, 0, DEPTH_MAX_PATIENT);
        depth_controller.on_request(10_000_000);
        assert_eq!(depth_controller.depth(), DEPTH_FIRST);
        let mut fixed = DepthController::new(Some(3), 60 * MS, 0, DEPTH_MAX_PATIENT);
        fixed.on_request(100);
        assert_eq!(fixed.depth(), 3);
        fixed.on_request(0);
        assert_eq!(fixed.depth(), 3);
    }

    #[test]
    fn new_connections_have_time_to_find_their_rate() {
        let mut depth_controller = DepthController::new(None, 60 * MS, 100, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..8 {
            now += 120 * MS;
            depth_controller.on_complete(10_000, now);
        }
        assert!(
            depth_controller.depth() >= 100,
            "{}",
            depth_controller.depth()
        );
        for _ in 0..20 {
            now += 120 * MS;
            depth_controller.on_complete(10_000, now);
        }
        assert_eq!(depth_controller.depth(), DEPTH_FIRST);
    }

    #[test]
    fn a_slow_path_is_not_flooded() {
        // 10 Mbit/s in files of 100 KB.
        let mut depth_controller = DepthController::new(None, 60 * MS, 0, DEPTH_MAX);
        let mut now = Instant::now();
        let mut most = 0;
        for _ in 0..200 {
            now += 80 * MS;
            depth_controller.on_complete(100_000, now);
            most = most.max(depth_controller.depth());
        }
        assert!(most <= 2 * DEPTH_FIRST + 2, "{most}");
        assert_eq!(depth_controller.depth(), DEPTH_FIRST);
    }

    #[test]
    fn comes_down_when_the_path_slows() {
        let mut depth_controller = DepthController::new(None, 100 * MS, 0, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..4000 {
            now += MS / 2;
            depth_controller.on_complete(1000, now);
        }
        assert_eq!(depth_controller.depth(), DEPTH_MAX);
        for _ in 0..400 {
            now += 40 * MS;
            depth_controller.on_complete(1000, now);
        }
        assert_eq!(depth_controller.depth(), DEPTH_FIRST);
    }

    #[test]
    fn a_depth_of_the_user_stays() {
        let mut depth_controller = DepthController::new(Some(3), 100 * MS, 200, DEPTH_MAX);
        let mut now = Instant::now();
        for _ in 0..1000 {
            now += MS;
            assert!(!depth_controller.on_complete(1000, now));
        }
        assert_eq!(depth_controller.depth(), 3);
    }

    proptest! {
        #[test]
        fn always_within_bounds(rtt_us in 0_u64..100_000_000, rate: f64, mean: f64) {
            let depth = depth(Duration::from_micros(rtt_us), rate, mean, DEPTH_MAX);
            prop_assert!((1..=DEPTH_MAX).contains(&depth));
        }
    }
}
