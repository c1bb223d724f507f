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
//! - A [`search`] leaps from a few channels, or some more where round trips are long, to where more
//!   no longer pay, in epochs of a fraction of a second, and trims to what the measured rate of a
//!   channel says is needed. First along parallelism, then along concurrency, which is kept only
//!   where it pays: processors, not windows, are what movers buy.
//! - [`hold`] watches goodput with a CUSUM, not with a threshold an epoch, and searches again when
//!   it changed.
//! - Now and then a few channels more, or fewer, are tried for an epoch: a path that grew shows
//!   nothing to windows that fit the old one. This is also what lets copies come to the same share.
//! - On a full path with small windows there is a [`contention`]: the window says how many channels
//!   are fair, and copies do not outbid each other.
//! - A setting is worth the logarithm of its goodput less a price for channels and for loss
//!   ([`Utility`]), so that of two equal settings the smaller wins and copies do not outbid each
//!   other for ever.
//!
//! Goodput alone is enough; evidence only spares epochs.

mod axis;
mod contention;
mod hold;
mod point;
mod probe;
mod search;
#[cfg(test)]
mod tests;
mod utility;

use std::time::Duration;

use axis::Axis;
use hold::{Hold, Verdict};
use point::Point;
use probe::Neighbours;
use search::{Next, PATIENT_S, STEP_S, Search};
use utility::Utility;

use crate::{Bottleneck, Bounds, Decision, Observation, Setting, Tuner, format::Rate};

/// Channels to begin with where nothing is remembered. On a path that one channel fills, channels
/// that are not there need not be given up again; on others two leaps more are a fraction of a
/// second.
const BEGIN: Setting = Setting::new(1, 2);
/// Round trip for each channel to begin with, s, since a search takes seconds where round trips are
/// long: so many windows of 64 KiB, the smallest that are common, carry 65 Mbit/s. Rounded down to
/// a power of two, as the leaps of a search are.
const BEGIN_ROUND_TRIP_S: f64 = 0.008;
/// Most channels to begin with.
const BEGIN_MAX: f64 = 16.0;
/// Length of the first epoch, s.
const BEGIN_S: f64 = 0.2;
/// Length of an epoch of holding, s.
const HOLD_S: f64 = 0.5;
/// Longest epoch of a probe, s.
const PROBE_MAX_S: f64 = 2.0;

pub(crate) struct Godwit {
    bounds: Bounds,
    /// The price along parallelism, or where channels may be what binds.
    utility: Utility,
    at: Setting,
    state: State,
    /// Relative deviation of goodput over [`HOLD_S`], as far as it is known.
    noise: f64,
    /// Goodput when a queue last stood before large windows: what the path carries, bit/s.
    full_bps: Option<f64>,
}

enum State {
    Search(Search),
    Hold(Hold),
    Probe(Probe),
}

/// A neighbour under way.
struct Probe {
    hold: Hold,
    home: Setting,
    seconds: f64,
    /// What a first epoch gave that was not trusted: more may pay by chance, and fewer need time.
    first_bps: Option<f64>,
    /// The fair number among others is tried: what it gives decides otherwise.
    in_contention: bool,
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
            utility: Utility::new(bounds),
            at,
            state: State::Search(search),
            noise: Self::NOISE,
            full_bps: None,
        }
    }

    /// What an epoch says, and earlier ones of the path. Windows that have given way to a loss let
    /// the queue drain for a while: where as much gets through as when it stood, the path is full
    /// nevertheless.
    fn look(&mut self, seen: &Observation) -> Point {
        let point = Point::seen(self.at, seen);
        if point.is_saturated() {
            self.full_bps = Some(point.goodput_bps);
            return point;
        }
        let share = self.full_bps.map_or(0.0, |full| point.goodput_bps / full);
        if share > 1.0 + TOLERANCE {
            self.full_bps = None;
        }
        let full = Point {
            limit: Some(Bottleneck::PathCapacity),
            ..point
        };
        match full.is_saturated() && (share - 1.0).abs() <= TOLERANCE {
            true => full,
            false => point,
        }
    }

    /// Deviation of a mean over `seconds`, relative.
    fn deviation(&self, seconds: f64) -> f64 {
        self.noise * (HOLD_S / seconds).sqrt()
    }

    fn move_to(&mut self, to: Setting, why: &str, seconds: f64) -> Decision {
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
            match search.next(self.bounds, self.utility(&search), tolerance) {
                Next::Try { x, why, seconds } => {
                    let to = search.setting(self.bounds, x);
                    self.state = State::Search(search);
                    return self.move_to(to, &why, seconds);
                }
                Next::Done { mut best, why } => {
                    if let Some(axis) = search.axis_after(self.bounds, best)
                        && movers_may_pay(&best)
                    {
                        let flat = search.is_flat(best, tolerance);
                        search = search.continued(axis, best, flat);
                        continue;
                    }
                    if search.axis == Axis::Parallelism {
                        let x = f64::from(best.setting.parallelism) * best.headroom();
                        best.setting = search.setting(self.bounds, x.ceil());
                    }
                    let axis = self.probed_axis(best.setting);
                    let neighbours = Neighbours::above(search.too_small(axis, best));
                    self.state = State::Hold(
                        Hold::new(search.movers_alone, neighbours).expecting(best.goodput_bps),
                    );
                    return self.move_to(best.setting, &why, HOLD_S);
                }
            }
        }
    }

    fn utility(&self, search: &Search) -> Utility {
        if search.movers_alone || search.is_about_processors() {
            self.utility.of_movers()
        } else {
            self.utility
        }
    }

    /// What a probe moves: movers where they were found to pay.
    const fn probed_axis(&self, at: Setting) -> Axis {
        if at.concurrency > 1 && self.bounds.concurrency.is_none() {
            Axis::Concurrency
        } else {
            Axis::first(self.bounds)
        }
    }

    fn hold(&mut self, mut hold: Hold, here: Point) -> Decision {
        let verdict = hold.note(here, self.noise);
        self.noise = hold.noise(self.noise);
        match verdict {
            Verdict::Changed { from, to } => {
                let why = format!(
                    "goodput changed from {} to {}: search again",
                    Rate(from),
                    Rate(to)
                );
                let mut search = Search::around(Axis::first(self.bounds), self.at);
                // Fresh windows were large until they met loss: what is left is what lasts.
                if to < from && here.limit == Some(Bottleneck::NetworkLoss) {
                    search.note(Point {
                        goodput_bps: to,
                        ..here
                    });
                    return self.search(search);
                }
                self.state = State::Search(search);
                self.move_to(self.at, &why, STEP_S)
            }
            Verdict::Probe => {
                let axis = self.probed_axis(self.at);
                let x = f64::from(axis.of(self.at));
                let next = hold.neighbours.next(x);
                let mut to = next.map_or(self.at, |x| axis.setting(self.bounds, self.at, x));
                if f64::from(to.channels()) < here.needed() * f64::from(self.at.channels()) {
                    to = self.at;
                }
                // The window of the one that goes would be missing for many seconds.
                let last_pair = self.at.channels() == 2 && to.channels() < 2;
                let mut up = to.channels() > self.at.channels();
                // What more channels get on a full path is others' for the most part, or it is too
                // early to tell.
                let pushes = up
                    && here.is_saturated()
                    && !(hold.has_settled() && hold.contention.may_rise());
                if here.transient && (last_pair || pushes) {
                    (to, up) = (self.at, false);
                }
                // Longer where goodput is noisy: until its deviation is that of a tolerable
                // difference. Not with fewer channels, which may cost goodput as long as it lasts.
                let seconds = HOLD_S
                    * if up {
                        (self.noise / TOLERANCE).powi(2)
                    } else {
                        1.0
                    };
                let why = match (to == self.at, up) {
                    (true, _) => return self.stay(hold, here.limit),
                    (_, true) => "see whether more pay",
                    (_, false) => "see whether fewer do",
                };
                let probe = Probe {
                    hold,
                    home: self.at,
                    seconds: seconds.clamp(HOLD_S, PROBE_MAX_S),
                    first_bps: None,
                    in_contention: false,
                };
                let seconds = probe.seconds;
                self.state = State::Probe(probe);
                self.move_to(to, why, seconds)
            }
            Verdict::Contended { channels } => self.among_others(hold, channels, here.limit),
            Verdict::Steady => self.stay(hold, here.limit),
        }
    }

    /// The path is full, and so many channels are fair on it.
    fn among_others(
        &mut self,
        mut hold: Hold,
        channels: f64,
        limit: Option<Bottleneck>,
    ) -> Decision {
        let axis = Axis::first(self.bounds);
        let stays = f64::from(self.at.channels()) / f64::from(axis.of(self.at));
        let to = axis.setting(self.bounds, self.at, channels / stays);
        let why = format!(
            "windows of {:.0} segments on a full path: {} channels are fair",
            hold.contention.window(),
            to.channels()
        );
        if to.channels() == self.at.channels() {
            // A bound is in the way: until the next try neighbours are looked at as ever.
            hold.contention.mark_unproductive();
            return self.stay(hold, limit);
        }
        if to.channels() < self.at.channels() {
            self.state = State::Hold(hold.moved_in_contention(self.at, true));
            return self.move_to(to, &why, HOLD_S);
        }
        self.state = State::Probe(Probe {
            hold,
            home: self.at,
            seconds: PATIENT_S,
            first_bps: None,
            in_contention: true,
        });
        self.move_to(to, &why, PATIENT_S)
    }

    /// More channels were opened among others: they stay if they brought a good part of what they
    /// should.
    fn tried_among_others(&mut self, probe: Probe, here: Point) -> Decision {
        let Probe { mut hold, home, .. } = probe;
        let there = hold.point(home);
        let growth = f64::from(self.at.channels()) / f64::from(home.channels());
        let rise = here.goodput_bps.max(1.0) / there.goodput_bps.max(1.0);
        let words = beside(&here, &there);
        if rise.ln() >= search::PAYS_IN_CONTENTION * growth.ln() + self.deviation(PATIENT_S) {
            self.state = State::Hold(hold.moved_in_contention(home, false));
            return self.move_to(self.at, &format!("{words}: more pay"), HOLD_S);
        }
        hold.contention.mark_unproductive();
        self.state = State::Hold(hold);
        self.move_to(home, &format!("{words}: back"), HOLD_S)
    }

    fn stay(&mut self, hold: Hold, limit: Option<Bottleneck>) -> Decision {
        let why = match limit {
            Some(limit) => format!("holds {}, limited by {limit}", Rate(hold.goodput_bps())),
            None => format!("holds {}", Rate(hold.goodput_bps())),
        };
        self.state = State::Hold(hold);
        self.move_to(self.at, &why, HOLD_S)
    }

    /// The epoch of a probe is over: stay there, search from there, or go back.
    fn probed(&mut self, probe: Probe, mut here: Point) -> Decision {
        let Probe {
            mut hold,
            home,
            mut seconds,
            first_bps,
            in_contention: _,
        } = probe;
        let there = hold.point(home);
        if let Some(first) = first_bps.filter(|_| self.at.channels() > home.channels()) {
            here.goodput_bps = (here.goodput_bps * first).sqrt();
            seconds *= 2.0;
        }
        let axis = self.probed_axis(home);
        let mut search = Search::around(axis, home);
        search.movers_alone = axis == Axis::Concurrency && hold.movers_alone;
        search.settled = true;
        search.note(there);
        search.note(here);
        let utility = self.utility(&search);
        let gain = if self.at.channels() > home.channels() {
            utility.gain(&there, &here)
        } else {
            -utility.gain(&here, &there)
        };
        let words = beside(&here, &there);
        if self.at.channels() < home.channels() {
            // Others take what these leave, so less goodput than before is no loss to be added up.
            let taken = here.is_saturated() && gain >= 0.0;
            if taken || hold.may_give_up(utility.of(&there), utility.of(&here), gain) {
                self.state = State::Hold(hold.moved_down());
                return self.move_to(self.at, &format!("{words}: fewer do"), HOLD_S);
            }
            if first_bps.is_none() && home.channels() <= FEW {
                // The few that are left take a while to open their windows.
                return self.repeat_probe(hold, home, here, PATIENT_S);
            }
        } else if gain > TOLERANCE / 2.0 + 1.5 * self.deviation(seconds) {
            if first_bps.is_none() {
                return self.repeat_probe(hold, home, here, seconds);
            }
            if there.is_saturated() {
                // Fresh channels show too much for some seconds, and a search would leap on that.
                self.state = State::Hold(hold.moved_in_contention(home, false));
                return self.move_to(self.at, &format!("{words}: more pay"), HOLD_S);
            }
            return self.search(search);
        }
        if there.is_saturated() && self.at.channels() > home.channels() {
            hold.contention.mark_unproductive();
        }
        hold.mark_unproductive(f64::from(axis.of(self.at)), f64::from(axis.of(home)), gain);
        self.state = State::Hold(hold);
        self.move_to(home, &format!("{words}: back"), HOLD_S)
    }

    /// One epoch is too little to trust: measures the same neighbour again.
    fn repeat_probe(&mut self, hold: Hold, home: Setting, here: Point, seconds: f64) -> Decision {
        let words = beside(&here, &hold.point(home));
        self.state = State::Probe(Probe {
            hold,
            home,
            seconds,
            first_bps: Some(here.goodput_bps),
            in_contention: false,
        });
        self.move_to(self.at, &format!("{words}: once more"), seconds)
    }
}

/// Two settings, in words.
fn beside(here: &Point, there: &Point) -> String {
    format!(
        "{} with {} channels, {} with {}",
        Rate(here.goodput_bps),
        here.setting.channels(),
        Rate(there.goodput_bps),
        there.setting.channels()
    )
}

/// Up to this many channels each carries so much of the path that it takes seconds to take over
/// what another leaves.
const FEW: u32 = 8;

/// Differences of goodput below this are not worth a channel, relative.
const TOLERANCE: f64 = 0.01;

/// Movers buy processors and files at a time. Where the path binds they buy what channels buy.
const fn movers_may_pay(best: &Point) -> bool {
    match best.limit {
        Some(Bottleneck::Cpu | Bottleneck::Remote) => true,
        None => !best.served,
        Some(_) => false,
    }
}

impl Tuner for Godwit {
    fn name(&self) -> &'static str {
        "godwit"
    }

    fn first(&mut self) -> Decision {
        self.move_to(self.at, "to begin with", BEGIN_S)
    }

    fn decide(&mut self, seen: &Observation) -> Decision {
        let here = self.look(seen);
        // Every arm puts a state in place of this one.
        let none = State::Search(Search::around(Axis::first(self.bounds), self.at));
        match std::mem::replace(&mut self.state, none) {
            State::Search(mut search) => {
                search.note(here);
                self.search(search)
            }
            State::Hold(hold) => self.hold(hold, here),
            State::Probe(probe) if probe.in_contention => self.tried_among_others(probe, here),
            State::Probe(probe) => self.probed(probe, here),
        }
    }

    fn begin_over(&mut self, round_trip: Duration) -> Option<Decision> {
        let State::Search(search) = &self.state else {
            return None;
        };
        let channels = (round_trip.as_secs_f64() / BEGIN_ROUND_TRIP_S).clamp(1.0, BEGIN_MAX);
        let channels = channels.log2().floor().exp2();
        let to = Axis::Parallelism.setting(
            self.bounds,
            self.at,
            channels / f64::from(self.at.concurrency),
        );
        if !search.has_not_begun() || to.channels() <= self.at.channels() {
            return None;
        }
        self.state = State::Search(Search::from_cold(Axis::Parallelism, to));
        let why = format!(
            "to begin with over {:.0} ms",
            round_trip.as_secs_f64() * 1e3
        );
        Some(self.move_to(to, &why, BEGIN_S))
    }

    fn restart_at(&mut self, setting: Setting) -> Option<Decision> {
        // It was measured already: no search, but a watch, and a probe of the neighbours now and
        // then.
        *self = Self::new(Some(setting), self.bounds);
        self.state = State::Hold(Hold::new(false, Neighbours::above(0)));
        Some(self.move_to(self.at, "goes on from here", HOLD_S))
    }
}
