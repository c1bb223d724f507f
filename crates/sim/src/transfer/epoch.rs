//! One control epoch of a live transfer, by the rules of the client (`tuning/epoch.rs` there): a
//! changed setting settles for 12 round trips once its channels are open, or until goodput is even
//! if there are twice as many, an epoch lasts 4 round trips at least, and one whose second half is
//! much faster is measured again.

use std::time::Duration;

use godwit_tune::{Observation, Setting};

use super::channels::Sums;

const SETTLE_MIN_S: f64 = 0.1;
const SETTLE_MAX_S: f64 = 2.0;
const SETTLE_EPOCHS_MAX: f64 = 10.0;
const SETTLE_ROUND_TRIPS: f64 = 12.0;
const EPOCH_ROUND_TRIPS: f64 = 4.0;
const EVEN_ROUND_TRIPS: f64 = 2.0;
const EVEN: f64 = 1.1;
const STILL_RAMPING: f64 = 1.15;
const SAMPLES_OF_HALF: usize = 2;
const RESTARTS_MAX: u32 = 2;
const SAMPLE_S: f64 = 0.1;

pub(super) struct Epoch {
    setting: Setting,
    seconds: f64,
    settles: bool,
    leaps: bool,
    round_trip_s: f64,
    began_s: f64,
    complete_s: Option<f64>,
    settling: Vec<Sums>,
    measuring: Option<Measuring>,
    restarts: u32,
}

struct Measuring {
    base: Sums,
    sample: Sums,
    rates_bps: Vec<f64>,
}

impl Epoch {
    pub(super) fn new(
        setting: Setting,
        seconds: f64,
        settles: bool,
        leaps: bool,
        round_trip_s: f64,
        now: &Sums,
    ) -> Self {
        let mut epoch = Self {
            setting,
            seconds,
            settles,
            leaps,
            round_trip_s,
            began_s: now.at_s(),
            complete_s: None,
            settling: Vec::new(),
            measuring: None,
            restarts: 0,
        };
        epoch.maybe_start(now);
        epoch
    }

    /// A later look; the observation once, at the end.
    pub(super) fn observe(&mut self, look: &Sums) -> Option<Observation> {
        let Some(measuring) = &mut self.measuring else {
            self.maybe_start(look);
            return None;
        };
        measuring.take(look);
        let counted = look.at_s() - measuring.base.at_s();
        if counted < self.seconds.max(EPOCH_ROUND_TRIPS * self.round_trip_s) - 1e-9 {
            return None;
        }
        if self.settles && self.restarts < RESTARTS_MAX && measuring.still_ramping() {
            self.restarts += 1;
            self.measuring = Some(Measuring::from(look));
            return None;
        }
        Some(observation(self.setting, &measuring.base, look, measuring))
    }

    /// What the end of the transfer cuts short; `None` before anything was measured.
    pub(super) fn partial(&self, look: &Sums) -> Option<Observation> {
        let measuring = self.measuring.as_ref()?;
        (look.at_ns > measuring.base.at_ns)
            .then(|| observation(self.setting, &measuring.base, look, measuring))
    }

    fn maybe_start(&mut self, look: &Sums) {
        let counted = look.at_s() - self.began_s;
        if self.complete_s.is_none() && look.channels == self.setting.channels() {
            self.complete_s = Some(counted);
        }
        let rtt = look.srtt_ns.unwrap_or(0.0) / 1e9;
        let wait = SETTLE_MIN_S.max(SETTLE_ROUND_TRIPS * rtt.max(self.round_trip_s));
        if self.leaps && self.complete_s.is_some() {
            self.settling.push(*look);
        }
        let settled = self.complete_s.is_some_and(|at| counted - at >= wait)
            || self.is_even(EVEN_ROUND_TRIPS * rtt.max(self.round_trip_s));
        let longest = SETTLE_MAX_S.min(SETTLE_EPOCHS_MAX * self.seconds);
        if !self.settles || settled || counted >= longest {
            self.measuring = Some(Measuring::from(look));
        }
    }

    /// Goodput of the last `span` seconds is that of as many before.
    fn is_even(&self, span: f64) -> bool {
        let span = span.max(SETTLE_MIN_S);
        let before = |look: &Sums| {
            let mut earlier = self.settling.iter().rev();
            earlier.find(|one| look.at_s() - one.at_s() >= span - 1e-9)
        };
        let even = || {
            let last = self.settling.last()?;
            let middle = before(last)?;
            let first = before(middle)?;
            let (now, then) = (rate_bps(middle, last), rate_bps(first, middle));
            Some(now <= EVEN * then && then <= EVEN * now && now > 0.0)
        };
        even().unwrap_or(false)
    }
}

impl Measuring {
    fn from(look: &Sums) -> Self {
        Self {
            base: *look,
            sample: *look,
            rates_bps: Vec::new(),
        }
    }

    fn take(&mut self, look: &Sums) {
        if look.at_s() - self.sample.at_s() >= SAMPLE_S - 1e-9 {
            self.rates_bps.push(rate_bps(&self.sample, look));
            self.sample = *look;
        }
    }

    fn still_ramping(&self) -> bool {
        let half = self.rates_bps.len() / 2;
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        let (first, last) = (
            &self.rates_bps[..half],
            &self.rates_bps[self.rates_bps.len() - half..],
        );
        half >= SAMPLES_OF_HALF && sum(last) > STILL_RAMPING * sum(first)
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes of an epoch")]
fn rate_bps(from: &Sums, to: &Sums) -> f64 {
    to.bytes.saturating_sub(from.bytes) as f64 * 8.0 / (to.at_s() - from.at_s()).max(1e-9)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts of packets and nanoseconds"
)]
fn observation(setting: Setting, from: &Sums, to: &Sums, measuring: &Measuring) -> Observation {
    let share = |part: u64, of: u64| (of > 0).then(|| (part as f64 / of as f64).min(1.0));
    let ends = to.ends.since(&from.ends);
    let busier = ends.busier();
    Observation {
        loss_ratio: share(to.retransmitted - from.retransmitted, to.sent - from.sent),
        rtt: to.srtt_ns.map(|ns| Duration::from_secs_f64(ns / 1e9)),
        rtt_min: to.rtt_min_ns.map(Duration::from_nanos),
        goodput_error_bps: standard_error(&measuring.rates_bps),
        receive_window_limited: share(
            to.limited_ns - from.limited_ns,
            to.channel_ns - from.channel_ns,
        ),
        send_buffer_limited: Some(0.0),
        sender_idle: share(to.idle_ns - from.idle_ns, to.channel_ns - from.channel_ns),
        cpu_wait: Some(busier.share(busier.runnable_s)),
        cpu_busy: Some(busier.share(busier.running_s)),
        source_wait: Some(ends.source.share(ends.source.asleep_s)),
        destination_wait: Some(ends.destination.share(ends.destination.asleep_s)),
        rate_cap_bps: to.rate_cap_bps,
        ..Observation::new(
            setting,
            to.bytes.saturating_sub(from.bytes),
            to.at_s() - from.at_s(),
        )
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of samples")]
fn standard_error(samples: &[f64]) -> Option<f64> {
    let n = samples.len() as f64;
    if samples.len() < 3 {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
    Some((squares / (n - 1.0) / n).sqrt())
}
