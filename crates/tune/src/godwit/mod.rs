//! `godwit`: our tuner, the default.
//!
//! ```text
//!            ┌────────── goodput changed ──────────┐
//!            ▼                                     │
//!   search: grow by leaps, ──► hold: watch ──► probe: a few channels
//!   then trim to what it needs    ▲                │  more, or fewer
//!            ▲                    └── no better ───┤
//!            └──────────── more pays ──────────────┘
//! ```
//!
//! - A [`search`] leaps from a few channels to where more no longer pay, in epochs of a fraction of a second, and trims to what
//!   the measured rate of a channel says is needed. First along parallelism, then along concurrency, which is kept only
//!   where it pays: processors, not windows, are what movers buy.
//! - [`hold`] watches goodput with a CUSUM, not with a threshold an epoch, and searches again when it changed.
//! - Now and then a few channels more, or fewer, are tried for an epoch: a path that grew shows nothing to
//!   windows that fit the old one. This is also what lets copies come to the same share.
//! - A setting is worth the logarithm of its goodput less a price for channels and for loss ([`Worth`]), so that
//!   of two equal settings the smaller wins and copies do not outbid each other for ever.
//!
//! Goodput alone is enough; evidence only spares epochs.

mod hold;
mod search;
#[cfg(test)]
mod tests;

use hold::{Hold, Verdict};
use search::{Axis, Next, Search};

use crate::{Bounds, Decision, Limit, Observation, Setting, Tuner, limit, words::Rate};

/// Channels to begin with where nothing is remembered: the default of the other clients of the field.
const BEGIN: Setting = Setting::new(1, 4);
/// How long growth is measured, s. A leap shows at once.
const LEAP_S: f64 = 0.2;
/// How long finer steps of a search are measured, s.
const STEP_S: f64 = 0.4;
/// Length of an epoch of holding, s.
const HOLD_S: f64 = 0.5;
/// Longest epoch of a probe, s.
const PROBE_MAX_S: f64 = 2.0;

/// The price of channels and of loss.
#[derive(Clone, Copy, Debug)]
struct Worth {
    /// Channels whose price is a factor e of goodput. More than any bound, so that a gain in proportion to
    /// channels always pays: at the bound the last channel costs 0.8 of what it then brings.
    channels: f64,
}

impl Worth {
    /// What a segment sent again costs, in segments: Falcon's B.
    const LOSS: f64 = 10.0;

    fn new(bounds: Bounds) -> Self {
        Self {
            channels: 1.25 * f64::from(bounds.channels_max.max(128)),
        }
    }

    /// Logarithm of goodput (bit/s, at least 1), less the prices.
    fn of(self, goodput_bps: f64, channels: u32, loss: Option<f64>) -> f64 {
        let loss = loss.filter(|l| l.is_finite()).unwrap_or(0.0);
        let kept = (1.0 - Self::LOSS * loss).clamp(0.1, 1.0);
        goodput_bps.max(1.0).ln() + kept.ln() - f64::from(channels) / self.channels
    }
}

pub(crate) struct Godwit {
    bounds: Bounds,
    worth: Worth,
    at: Setting,
    state: State,
    /// Relative deviation of goodput over [`HOLD_S`], as far as it is known.
    noise: f64,
}

enum State {
    Search(Search),
    Hold(Hold),
    Probe {
        hold: Hold,
        at: Setting,
        seconds: f64,
    },
}

impl Godwit {
    /// Deviation to reckon with before any is measured.
    const NOISE: f64 = 0.02;

    pub(crate) fn new(start: Option<Setting>, bounds: Bounds) -> Self {
        let at = bounds.project(start.unwrap_or(BEGIN));
        let first = Axis::first(bounds);
        let search = if start.is_some() {
            Search::around(first, at)
        } else {
            Search::from_cold(first, at)
        };
        Self {
            bounds,
            worth: Worth::new(bounds),
            at,
            state: State::Search(search),
            noise: Self::NOISE,
        }
    }

    /// Deviation of a mean over `seconds`, relative.
    fn deviation(&self, seconds: f64) -> f64 {
        self.noise * (HOLD_S / seconds).sqrt()
    }

    fn go(&mut self, to: Setting, why: &str, seconds: f64) -> Decision {
        let rationale = if to == self.at {
            format!("{to}: {why}")
        } else {
            format!("{} -> {to}: {why}", self.at)
        };
        self.at = to;
        Decision {
            epoch_seconds: Some(seconds),
            ..Decision::new(to, rationale)
        }
    }

    fn search(&mut self, mut search: Search) -> Decision {
        let tolerance = TOLERANCE + self.deviation(STEP_S);
        loop {
            match search.next(self.bounds, self.worth, tolerance) {
                Next::Try { x, why, leap } => {
                    let to = search.setting(self.bounds, x);
                    self.state = State::Search(search);
                    return self.go(to, &why, if leap { LEAP_S } else { STEP_S });
                }
                Next::Done { best, why } => {
                    if let Some(axis) = search.axis.after(self.bounds)
                        && concurrency_may_pay(best.limit)
                    {
                        search = Search::continued(axis, best);
                        continue;
                    }
                    self.state = State::Hold(Hold::new());
                    return self.go(best.setting, &why, HOLD_S);
                }
            }
        }
    }

    fn hold(&mut self, mut hold: Hold, seen: &Observation) -> Decision {
        let verdict = hold.note(seen, self.noise);
        self.noise = hold.noise(self.noise);
        match verdict {
            Verdict::Changed { from, to } => {
                let why = format!(
                    "goodput changed from {} to {}: search again",
                    Rate(from),
                    Rate(to)
                );
                self.state = State::Search(Search::around(Axis::first(self.bounds), self.at));
                self.go(self.at, &why, STEP_S)
            }
            Verdict::Probe { up } => {
                let axis = Axis::first(self.bounds);
                let x = f64::from(axis.of(self.at));
                let to = axis.setting(self.bounds, self.at, if up { more(x) } else { fewer(x) });
                if to == self.at {
                    return self.keep(hold, seen);
                }
                // Longer where goodput is noisy: until its deviation is that of a tolerable difference.
                let seconds = HOLD_S * (self.noise / TOLERANCE).powi(2);
                let seconds = seconds.clamp(HOLD_S, PROBE_MAX_S);
                self.state = State::Probe {
                    hold,
                    at: self.at,
                    seconds,
                };
                let why = if up {
                    "see whether more pay"
                } else {
                    "see whether fewer do"
                };
                self.go(to, why, seconds)
            }
            Verdict::Steady => self.keep(hold, seen),
        }
    }

    fn keep(&mut self, hold: Hold, seen: &Observation) -> Decision {
        let why = match limit::judge(seen) {
            Some(limit) => format!("holds {}, limited by {limit}", Rate(hold.goodput_bps())),
            None => format!("holds {}", Rate(hold.goodput_bps())),
        };
        self.state = State::Hold(hold);
        self.go(self.at, &why, HOLD_S)
    }

    /// The epoch of a probe is over: stay there, search from there, or go back.
    fn probed(
        &mut self,
        mut hold: Hold,
        home: Setting,
        seconds: f64,
        seen: &Observation,
    ) -> Decision {
        let goodput = seen.goodput_bps();
        let here = self.worth.of(goodput, self.at.channels(), seen.loss_ratio);
        let there = self
            .worth
            .of(hold.goodput_bps(), home.channels(), hold.loss());
        let gain = here - there;
        let up = self.at.channels() > home.channels();
        let words = format!(
            "{} with {} channels, {} with {}",
            Rate(goodput),
            self.at.channels(),
            Rate(hold.goodput_bps()),
            home.channels()
        );
        if up && gain > TOLERANCE + 1.5 * self.deviation(seconds) {
            let axis = Axis::first(self.bounds);
            let mut search = Search::around(axis, home);
            search.note(home, hold.goodput_bps(), hold.loss(), None);
            search.note(self.at, goodput, seen.loss_ratio, limit::judge(seen));
            return self.search(search);
        }
        if !up && hold.may_give_up(goodput, gain) {
            self.state = State::Hold(hold.moved());
            return self.go(self.at, &format!("{words}: fewer do"), HOLD_S);
        }
        hold.probe_was_vain();
        self.state = State::Hold(hold);
        self.go(home, &format!("{words}: back"), HOLD_S)
    }
}

/// Differences of goodput below this are not worth a channel, relative.
const TOLERANCE: f64 = 0.01;

/// A quarter more, at least one.
fn more(x: f64) -> f64 {
    (1.25 * x).ceil().max(x + 1.0)
}

/// A fifth fewer, at least one.
fn fewer(x: f64) -> f64 {
    (x / 1.25).floor()
}

/// Movers buy processors and files at a time. Where the path binds they buy what channels buy.
const fn concurrency_may_pay(limit: Option<Limit>) -> bool {
    matches!(limit, None | Some(Limit::Cpu | Limit::Remote))
}

impl Tuner for Godwit {
    fn name(&self) -> &'static str {
        "godwit"
    }

    fn first(&mut self) -> Decision {
        self.go(self.at, "to begin with", LEAP_S)
    }

    fn decide(&mut self, seen: &Observation) -> Decision {
        match std::mem::replace(&mut self.state, State::Hold(Hold::new())) {
            State::Search(mut search) => {
                let limit = limit::judge(seen);
                search.note(self.at, seen.goodput_bps(), seen.loss_ratio, limit);
                self.search(search)
            }
            State::Hold(hold) => self.hold(hold, seen),
            State::Probe { hold, at, seconds } => self.probed(hold, at, seconds, seen),
        }
    }
}
