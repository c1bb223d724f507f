//! One control epoch: takes samples of running totals, returns an observation. No clock, no I/O.
//!
//! ```text
//!   first data      channels are there      settled            seconds of flowing data
//!   ────┼───────────────────┼──────────────────┼───────────────────────────┼──► Measured
//!        settling, at most SETTLE_MAX           measuring ── mostly idle ──► Dropped
//! ```
//! With twice the channels and more, goodput shows when their windows have grown: settling ends as
//! soon as goodput is even. A few channels more would not be seen in it.
//!
//! Time without data (listings, checksums, renames) does not count, unless each epoch restarts
//! everything: then it is part of the price.

use std::time::Duration;

use godwit_engine::data::{ReceivingTcp, Sample};
use godwit_tune::{Observation, Setting, bottleneck};

use crate::passing::{Side, WindowLooks};

/// Time between two samples. A fiftieth of the shortest useful epoch would do; more samples cost
/// system calls.
pub(crate) const OBSERVE_INTERVAL: Duration = Duration::from_millis(50);

/// Settling once the channels are open: time for their windows to grow, and at least this, in
/// seconds.
const SETTLE_MIN: f64 = 0.1;
/// Round trips in which a window grows from 10 segments to 2560, more than most paths hold, and
/// then a queue shows that it was enough.
const SETTLE_ROUND_TRIPS: f64 = 12.0;
/// Goodput of so many round trips, and no less than [`SETTLE_MIN`], is compared with that of as
/// many before: it is even if neither is more than the other by this factor. Windows that open grow
/// by four meanwhile.
const EVEN_ROUND_TRIPS: f64 = 2.0;
const EVEN: f64 = 1.1;
/// Shortest epoch: bursts average out.
const EPOCH_ROUND_TRIPS: f64 = 4.0;
/// If the second half of a new setting is faster by this factor, its rate is still growing: it is
/// measured again,
const STILL_RAMPING: f64 = 1.15;
/// so often at most. Fewer samples in each half say nothing.
const SAMPLES_OF_HALF: usize = 2;
const RESTARTS_MAX: u32 = 2;
/// Longest settling, in seconds, and in lengths of a short epoch: a peer may refuse channels, and
/// small files keep opening theirs.
const SETTLE_MAX: f64 = 2.0;
const SETTLE_EPOCHS_MAX: f64 = 10.0;
/// Length of the samples whose spread gives the error of the epoch's goodput, seconds.
const SAMPLE_SECONDS: f64 = 0.1;

/// Share of a receiver's window that is under way where the window is the limit: one that does not
/// bind is twice what is under way, since Linux lets it grow to that.
const FULL_WINDOW: f64 = 0.6;

/// Lengths of an epoch after which a slow chunk is cut off.
const CHUNK_LENGTHS_MAX: f64 = 3.0;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EpochPlan {
    pub(crate) setting: Setting,
    /// This run's channels; other runs may have some.
    pub(crate) channels: u32,
    /// Whose channels these are, where files pass through this machine.
    pub(crate) side: Side,
    /// Duration after settling.
    pub(crate) seconds: f64,
    /// The setting is new: its channels must open first.
    pub(crate) settles: bool,
    /// They are twice those before, or more.
    pub(crate) leaps: bool,
    /// Standstill counts (`--epoch-mode restart`).
    pub(crate) counts_idle: bool,
    /// Ends after this many bytes, if known; `seconds` is then an estimate.
    pub(crate) chunk_bytes: Option<u64>,
}

/// The totals of a job at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Time of the totals, in seconds since any origin.
    pub(crate) at: f64,
    pub(crate) totals: Sample,
    /// Round trip of control channels, s; 0 if unknown. A receiver has no other.
    pub(crate) round_trip: f64,
    /// Bytes of other jobs under the same setting.
    pub(crate) others_bytes: u64,
    /// A transfer is running.
    pub(crate) running: bool,
    /// How files that pass through this machine were found.
    pub(crate) windows: WindowLooks,
    /// The most channels that this run may have.
    pub(crate) rate_cap_bps: Option<u64>,
}

/// How an epoch ended.
#[derive(Debug, PartialEq)]
pub(crate) enum EpochOutcome {
    Measured(Box<Measured>),
    /// Data flowed in less than half of its time.
    Dropped,
}

/// What an epoch measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) observation: Observation,
    /// Channels at its end.
    pub(crate) channels: u32,
    /// Bytes of other jobs under the same setting; the observation has this job's.
    pub(crate) others_bytes: u64,
    /// Where files pass through this machine: the server that the other waited for.
    pub(crate) slower: Option<Side>,
}

/// An epoch in progress.
pub(crate) struct Epoch {
    plan: EpochPlan,
    last: Option<Totals>,
    /// Seconds that count, since the phase began.
    counted: f64,
    /// Settling: `counted` when all channels were open.
    complete_at: Option<f64>,
    /// Since then: `counted` and bytes.
    settling: Vec<(f64, u64)>,
    measuring: Option<Measuring>,
    /// Number of restarts of the measurement.
    restarts: u32,
    /// Round trips when they were last known, and the least: a server reports of one transfer after
    /// the other, and not at once.
    round_trips: Option<(Duration, Duration)>,
}

struct Measuring {
    base: Totals,
    /// Start of the current sample: `counted`, bytes.
    sample: (f64, u64),
    rates_bps: Vec<f64>,
}

impl Epoch {
    pub(crate) fn new(plan: EpochPlan) -> Self {
        Self {
            plan,
            last: None,
            counted: 0.0,
            complete_at: None,
            settling: Vec::new(),
            measuring: None,
            restarts: 0,
            round_trips: None,
        }
    }

    /// Takes a later sample. Returns the end once.
    pub(crate) fn observe(&mut self, look: Totals) -> Option<EpochOutcome> {
        if let Some(tcp) = look.totals.tcp.filter(|tcp| !tcp.rtt.is_zero()) {
            self.round_trips = Some((tcp.rtt, tcp.rtt_min));
        }
        let Some(last) = self.last.replace(look) else {
            self.maybe_start(&look);
            return None;
        };
        // A transfer that started and ended between two samples left its bytes.
        let flows = last.running && look.running || look.totals.bytes > last.totals.bytes;
        if flows || self.plan.counts_idle {
            self.counted += (look.at - last.at).max(0.0);
        }
        let Some(measuring) = &mut self.measuring else {
            self.maybe_start(&look);
            return None;
        };
        measuring.sample(self.counted, look.totals.bytes);
        let moved = look
            .totals
            .bytes
            .saturating_sub(measuring.base.totals.bytes);
        let over = match self.plan.chunk_bytes {
            Some(chunk) => moved >= chunk || self.counted >= CHUNK_LENGTHS_MAX * self.plan.seconds,
            None => self.counted >= self.plan.seconds.max(EPOCH_ROUND_TRIPS * look.round_trip),
        };
        if over && self.plan.settles && self.restarts < RESTARTS_MAX && measuring.still_ramping() {
            self.restarts += 1;
            self.counted = 0.0;
            *measuring = Measuring::from(&look);
            return None;
        }
        if over {
            return self
                .partial()
                .map(|seen| EpochOutcome::Measured(Box::new(seen)));
        }
        let mostly_idle = look.at - measuring.base.at >= 2.0 * self.plan.seconds.max(self.counted);
        mostly_idle.then_some(EpochOutcome::Dropped)
    }

    fn maybe_start(&mut self, look: &Totals) {
        if !look.running && !self.plan.counts_idle {
            return;
        }
        if self.complete_at.is_none() && look.totals.channels == self.plan.channels {
            self.complete_at = Some(self.counted);
        }
        let rtt = self.round_trips.map_or(0.0, |(rtt, _)| rtt.as_secs_f64());
        let rtt = rtt.max(look.round_trip);
        if self.plan.leaps && self.complete_at.is_some() {
            self.settling.push((self.counted, look.totals.bytes));
        }
        let wait = SETTLE_MIN.max(SETTLE_ROUND_TRIPS * rtt);
        let settled = self.complete_at.is_some_and(|at| self.counted - at >= wait)
            || self.is_even(SETTLE_MIN.max(EVEN_ROUND_TRIPS * rtt));
        let patience = SETTLE_MAX.min(SETTLE_EPOCHS_MAX * self.plan.seconds);
        if !self.plan.settles || settled || self.counted >= patience {
            self.counted = 0.0;
            self.measuring = Some(Measuring::from(look));
        }
    }

    /// Goodput of the last `span` seconds is that of as many before.
    fn is_even(&self, span: f64) -> bool {
        let looks = || self.settling.iter().rev();
        let before = |at: f64| looks().find(|(counted, _)| at - counted >= span);
        let even = || {
            let last = self.settling.last()?;
            let middle = before(last.0)?;
            let first = before(middle.0)?;
            let (now, then) = (rate_bps(*middle, *last), rate_bps(*first, *middle));
            Some(now <= EVEN * then && then <= EVEN * now && now > 0.0)
        };
        even().unwrap_or(false)
    }

    /// The measurement so far; `None` before any.
    #[allow(clippy::cast_precision_loss)] // rates need no more than 53 bits
    pub(crate) fn partial(&self) -> Option<Measured> {
        let (measuring, last) = (self.measuring.as_ref()?, self.last?);
        if self.counted <= 0.0 {
            return None;
        }
        let (from, to) = (&measuring.base.totals, &last.totals);
        let seen = to.since(from);
        let least = Duration::from_secs_f64(last.round_trip);
        // Between two files none of them moves.
        let channels = from.channels.max(to.channels).max(self.plan.channels);
        #[allow(clippy::cast_precision_loss)] // a rate needs no more than 53 bits
        let each = seen.bytes as f64 / self.counted / f64::from(channels.max(1));
        let window_is_full =
            (to.receiving).is_some_and(|receiving| is_window_full(receiving, least, each));
        let (rtt, rtt_min) = match self.round_trips {
            Some((rtt, rtt_min)) => (Some(rtt), Some(rtt_min)),
            // Without a queue or full windows they may be those of a sender that pauses.
            None => {
                let tells = |rtt: &Duration| window_is_full || bottleneck::is_queue(*rtt, least);
                let rtt = (to.receiving.map(|receiving| receiving.rtt)).filter(tells);
                (rtt, rtt.map(|_| least))
            }
        };
        let observation = Observation {
            loss_ratio: seen.loss_ratio,
            rtt,
            rtt_min: rtt_min.filter(|rtt| !rtt.is_zero()),
            goodput_error_bps: standard_error(&measuring.rates_bps),
            receive_window_limited: (seen.receive_window_limited)
                .or_else(|| window_is_full.then_some(1.0)),
            send_buffer_limited: seen.send_buffer_limited,
            sender_idle: seen.sender_idle,
            cpu_wait: seen.cpu_wait,
            cpu_busy: seen.cpu_busy,
            source_wait: seen.source_wait,
            destination_wait: seen.destination_wait,
            rate_cap_bps: last.rate_cap_bps.map(|bps| bps as f64),
            ..Observation::new(self.plan.setting, seen.bytes, self.counted)
        };
        let slower = last.windows.slower_since(&measuring.base.windows);
        Some(Measured {
            // What is known of TCP is known of the path to the destination.
            observation: match self.plan.side {
                Side::Source => Observation {
                    sender_idle: observation.sender_idle,
                    cpu_wait: observation.cpu_wait,
                    cpu_busy: observation.cpu_busy,
                    goodput_error_bps: observation.goodput_error_bps,
                    rate_cap_bps: observation.rate_cap_bps,
                    ..Observation::new(self.plan.setting, seen.bytes, self.counted)
                },
                Side::Destination => observation,
            },
            slower,
            channels: to.channels,
            others_bytes: last
                .others_bytes
                .saturating_sub(measuring.base.others_bytes),
        })
    }
}

impl Measuring {
    fn from(look: &Totals) -> Self {
        Self {
            base: *look,
            sample: (0.0, look.totals.bytes),
            rates_bps: Vec::new(),
        }
    }

    /// True while windows still grow.
    fn still_ramping(&self) -> bool {
        let half = self.rates_bps.len() / 2;
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        let (first, last) = (
            &self.rates_bps[..half],
            &self.rates_bps[self.rates_bps.len() - half..],
        );
        half >= SAMPLES_OF_HALF && sum(last) > STILL_RAMPING * sum(first)
    }

    fn sample(&mut self, counted: f64, bytes: u64) {
        if counted - self.sample.0 >= SAMPLE_SECONDS {
            self.rates_bps.push(rate_bps(self.sample, (counted, bytes)));
            self.sample = (counted, bytes);
        }
    }
}

/// Whether connections that receive so many bytes a second each have as much under way as this
/// kernel offers. A sender that pauses looks farther away than it is: where round trips are much
/// longer than the `least`, those count.
#[allow(clippy::cast_precision_loss)] // a window needs no more than 53 bits
fn is_window_full(receiving: ReceivingTcp, least: Duration, bytes_per_second: f64) -> bool {
    let rtt = match bottleneck::is_queue(receiving.rtt, least) {
        true => least,
        false => receiving.rtt,
    };
    let under_way = bytes_per_second * rtt.as_secs_f64();
    !least.is_zero()
        && receiving.window_bytes > 0
        && under_way >= FULL_WINDOW * receiving.window_bytes as f64
}

/// Between two looks, of `counted` and bytes.
#[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a rate
fn rate_bps(from: (f64, u64), to: (f64, u64)) -> f64 {
    to.1.saturating_sub(from.1) as f64 * 8.0 / (to.0 - from.0).max(1e-9)
}

/// Standard error of the mean; `None` for fewer than three samples.
#[allow(clippy::cast_precision_loss)] // counts of samples
fn standard_error(samples: &[f64]) -> Option<f64> {
    let n = samples.len() as f64;
    if samples.len() < 3 {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
    Some((squares / (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use godwit_engine::data::TcpTotals;
    use godwit_tune::Bottleneck;

    use super::*;

    fn plan(concurrency: u32, parallelism: u32, seconds: f64) -> EpochPlan {
        EpochPlan {
            setting: Setting::new(concurrency, parallelism),
            channels: concurrency * parallelism,
            side: Side::Destination,
            seconds,
            settles: true,
            leaps: false,
            counts_idle: false,
            chunk_bytes: None,
        }
    }

    /// Samples every 50 ms from `from` to `to`, at 1000 bytes a second while `flows`.
    fn looks(
        epoch: &mut Epoch,
        steps: std::ops::Range<u32>,
        channels: u32,
        flows: impl Fn(u32) -> bool,
    ) -> Option<(u32, EpochOutcome)> {
        let mut bytes = 0;
        for step in steps {
            let running = flows(step);
            bytes += if running { 50 } else { 0 };
            let look = Totals {
                at: f64::from(step) * 0.05,
                totals: Sample {
                    bytes,
                    channels: if running { channels } else { 0 },
                    ..Sample::default()
                },
                running,
                ..Totals::default()
            };
            if let Some(verdict) = epoch.observe(look) {
                return Some((step, verdict));
            }
        }
        None
    }

    #[test]
    fn measures_once_the_channels_are_there_and_have_settled() {
        let mut epoch = Epoch::new(plan(2, 4, 1.0));
        let (step, verdict) = looks(&mut epoch, 0..100, 8, |_| true).unwrap();
        // 2 samples of settling, 20 of measuring.
        assert!((22..=24).contains(&step), "{step}");
        let EpochOutcome::Measured(seen) = verdict else {
            panic!("{verdict:?}")
        };
        assert!((seen.observation.goodput_bps() - 8000.0).abs() < 1.0);
        assert!(seen.observation.goodput_error_bps.unwrap() < 1.0);
        assert_eq!(seen.channels, 8);
        assert_eq!(seen.observation.setting, Setting::new(2, 4));
    }

    #[test]
    fn far_away_windows_have_their_round_trips_to_grow() {
        for (leaps, grows, from, to) in [
            (false, false, 1.6, 1.8),
            (false, true, 2.4, 2.6),
            (true, false, 0.8, 1.0),
            (true, true, 2.4, 2.6),
        ] {
            let at = measured_after(leaps, grows);
            assert!((from..to).contains(&at), "{leaps} {grows}: {at}");
        }
    }

    /// Seconds until an epoch over a round trip of 100 ms is measured.
    fn measured_after(leaps: bool, grows: bool) -> f64 {
        let mut epoch = Epoch::new(EpochPlan {
            leaps,
            ..plan(1, 1, 0.2)
        });
        let mut verdict = None;
        let (mut at, mut step, mut bytes) = (0.0, 0, 0);
        while verdict.is_none() {
            at += 0.05;
            step += 1;
            bytes += if grows { step * step } else { 1000 };
            let totals = Sample {
                bytes,
                channels: 1,
                ..Sample::default()
            };
            verdict = epoch.observe(Totals {
                at,
                totals,
                round_trip: 0.1,
                running: true,
                ..Totals::default()
            });
        }
        at
    }

    #[test]
    fn round_trips_are_the_last_that_a_server_told() {
        let mut epoch = Epoch::new(plan(1, 1, 1.0));
        let told = |ms| TcpTotals {
            rtt: Duration::from_millis(ms),
            rtt_min: Duration::from_millis(60),
            ..TcpTotals::default()
        };
        let mut outcome = None;
        // The next transfer, of which nothing is known yet, begins in the middle of the epoch.
        for step in 0..80_u32 {
            let totals = Sample {
                bytes: 50 * u64::from(step),
                channels: 1,
                tcp: (step < 30).then(|| told(60 + u64::from(step))),
                ..Sample::default()
            };
            let look = Totals {
                at: 0.05 * f64::from(step),
                totals,
                running: true,
                ..Totals::default()
            };
            outcome = outcome.or(epoch.observe(look));
        }
        let Some(EpochOutcome::Measured(seen)) = outcome else {
            panic!("{outcome:?}")
        };
        let seen = (seen.observation.rtt, seen.observation.rtt_min);
        let ms = Duration::from_millis;
        assert_eq!(seen, (Some(ms(89)), Some(ms(60))));
    }

    #[test]
    fn a_receiver_sees_that_its_windows_are_full() {
        // 10 MB a second over four channels and 60 ms: 150 kB of each are under way.
        for (rtt, window_bytes, open_at_its_ends, limit) in [
            (61, 160_000, 4, Some(Bottleneck::ReceiveWindow)),
            // Somewhat slower than their windows allow.
            (61, 235_000, 4, Some(Bottleneck::ReceiveWindow)),
            (61, 300_000, 4, None),
            (61, 300_000, 0, None),
            (61, 300_000, 1, None),
            (61, 0, 4, None),
            // A queue, or a sender that pauses.
            (90, 300_000, 4, Some(Bottleneck::PathCapacity)),
        ] {
            let mut epoch = Epoch::new(plan(1, 4, 1.0));
            let rtt = Duration::from_millis(rtt);
            let receiving = Some(ReceivingTcp { rtt, window_bytes });
            let outcome = (0..60_u32).find_map(|step| {
                let totals = Sample {
                    bytes: 500_000 * u64::from(step),
                    channels: if step == 0 { 4 } else { open_at_its_ends },
                    receiving,
                    ..Sample::default()
                };
                epoch.observe(Totals {
                    at: 0.05 * f64::from(step),
                    totals,
                    round_trip: 0.06,
                    running: true,
                    ..Totals::default()
                })
            });
            let Some(EpochOutcome::Measured(seen)) = outcome else {
                panic!("{outcome:?}")
            };
            let seen = seen.observation;
            assert_eq!(bottleneck::classify(&seen), limit);
            assert_eq!(seen.rtt, limit.map(|_| rtt));
        }
    }

    #[test]
    fn missing_channels_delay_an_epoch_by_at_most_two_seconds() {
        let mut epoch = Epoch::new(plan(2, 4, 1.0));
        let (step, _) = looks(&mut epoch, 0..200, 7, |_| true).unwrap();
        assert!((60..=62).contains(&step), "{step}");
    }

    #[test]
    fn begins_with_the_first_data_and_leaves_standstill_out() {
        let mut epoch = Epoch::new(plan(1, 1, 1.0));
        let flows = |step| step >= 40 && !(50..55).contains(&step);
        let (step, verdict) = looks(&mut epoch, 0..200, 1, flows).unwrap();
        assert!((66..=72).contains(&step), "{step}");
        let EpochOutcome::Measured(seen) = verdict else {
            panic!("{verdict:?}")
        };
        assert!((0.95..1.1).contains(&seen.observation.seconds), "{seen:?}");
    }

    #[test]
    fn an_epoch_that_is_mostly_idle_is_dropped() {
        let mut epoch = Epoch::new(plan(1, 1, 1.0));
        let (_, verdict) = looks(&mut epoch, 0..400, 1, |step| step < 10).unwrap();
        assert_eq!(verdict, EpochOutcome::Dropped);
    }

    #[test]
    fn standstill_counts_after_a_restart() {
        let mut epoch = Epoch::new(EpochPlan {
            settles: false,
            counts_idle: true,
            ..plan(1, 1, 1.0)
        });
        let (_, verdict) = looks(&mut epoch, 0..100, 1, |step| step % 2 == 0).unwrap();
        let EpochOutcome::Measured(seen) = verdict else {
            panic!("{verdict:?}")
        };
        assert!((3000.0..5000.0).contains(&seen.observation.goodput_bps()));
    }

    #[test]
    fn a_chunk_ends_with_its_last_byte_or_when_it_is_too_slow() {
        let chunk = |bytes| EpochPlan {
            settles: false,
            counts_idle: true,
            chunk_bytes: Some(bytes),
            ..plan(1, 1, 1.0)
        };
        for (bytes, seconds) in [(500, 0.5), (1_500, 1.5), (u64::MAX, CHUNK_LENGTHS_MAX)] {
            let (_, verdict) =
                looks(&mut Epoch::new(chunk(bytes)), 0..100, 1, |_| true).expect("ends");
            let EpochOutcome::Measured(seen) = verdict else {
                panic!("{verdict:?}")
            };
            assert!(
                (seen.observation.seconds - seconds).abs() < 0.11,
                "{seen:?}"
            );
        }
    }

    #[test]
    fn the_standard_error_needs_samples() {
        assert_eq!(standard_error(&[1.0, 2.0]), None);
        assert_eq!(standard_error(&[5.0; 4]), Some(0.0));
        let error = standard_error(&[1.0, 2.0, 3.0]).unwrap();
        assert!((error - (1.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
