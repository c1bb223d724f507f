//! From what has been measured along one axis to the next number to try.

use super::{
    axis::Axis,
    contention,
    point::{Point, ROOMY},
    utility::Utility,
};
use crate::{Bottleneck, Bounds, Setting, format::Rate};

/// Growth while goodput rises in proportion to channels.
const LEAP: f64 = 4.0;
/// The same under loss where epochs take seconds.
const FAR_LEAP: f64 = 8.0;
/// Growth while it rises less.
const STEP: f64 = 2.0;
/// Elasticity of goodput (relative rise over relative growth) that counts as in proportion.
const IN_PROPORTION: f64 = 0.75;
/// Channels to spare over what the measured rate of a channel says is needed: the price of being
/// wrong is lower above than below.
const SPARE: f64 = 1.35;
/// A number is not worth trying that is not smaller than the best by this factor.
const WORTH_TRIMMING: f64 = 1.3;

/// Where a transfer begins with more channels than this and they fill the path, no more are tried.
const ENOUGH: u32 = 3;

/// How long growth is measured, s. A leap shows at once.
const LEAP_S: f64 = 0.2;
/// How long finer steps are measured, s.
pub(super) const STEP_S: f64 = 0.4;
/// How long any step is measured where congestion windows must find their size, s.
const DRIFT_S: f64 = 0.8;
/// How long a smaller number is measured that at first gave less, s: after contention the channels
/// that are left take seconds to open their windows again.
pub(super) const PATIENT_S: f64 = 1.0;
/// Share of the best goodput that makes this worth waiting for.
const RECOVERING: f64 = 0.6;

/// Full windows that give less than this elasticity say that the path is full.
const FULL_WINDOWS: f64 = 0.96;
/// Full windows on a path without a queue give this elasticity at least, where some were late.
const LATE: f64 = 0.3;
/// Elasticity of goodput among others that makes a step towards the fair number worth it.
pub(super) const PAYS_IN_CONTENTION: f64 = 0.4;
/// Goodput that fell by less than this with many more channels is flat: nothing between is better.
const FLAT: f64 = 0.9;
const FLAT_MORE: f64 = 1.03;
/// Goodput with twice the channels that makes a step under loss worth it.
const WORTH_A_STEP: f64 = 1.05;

/// What a search wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    Try { x: f64, why: String, seconds: f64 },
    Done { best: Point, why: String },
}

/// What has been measured along one axis.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pub(super) axis: Axis,
    base: Setting,
    /// Its channels are the first of the transfer.
    is_cold: bool,
    /// Growth and decrease where there is nothing to reckon with yet.
    factor: f64,
    /// Searches before this one.
    rounds: u32,
    /// What the search before this one found too small, along its axis.
    other_too_small: u32,
    /// Movers are tried, and channels were found to buy nothing.
    pub(super) movers_alone: bool,
    latest: Option<Point>,
    /// Channels were retired for the latest point, and it was measured once.
    may_recover: bool,
    /// What is known is of one age: probes compare what has lasted.
    pub(super) settled: bool,
    /// Smallest first, each number once.
    points: Vec<Point>,
}

impl Search {
    /// Nothing is known: the first step is a leap.
    pub(super) fn from_cold(axis: Axis, base: Setting) -> Self {
        Self {
            is_cold: true,
            ..Self::new(axis, base, LEAP)
        }
    }

    /// `base` served well until now: look around it.
    pub(super) const fn around(axis: Axis, base: Setting) -> Self {
        Self::new(axis, base, STEP)
    }

    /// Nothing is remembered, and nothing was measured yet.
    pub(super) fn has_not_begun(&self) -> bool {
        self.is_cold && self.points.is_empty()
    }

    const fn new(axis: Axis, base: Setting, factor: f64) -> Self {
        Self {
            axis,
            base,
            is_cold: false,
            factor,
            rounds: 0,
            other_too_small: 0,
            movers_alone: false,
            latest: None,
            may_recover: false,
            settled: false,
            points: Vec::new(),
        }
    }

    /// What is searched after this one: movers after channels; then channels again, of which more
    /// movers may need fewer, and movers again, as long as that moves anything.
    pub(super) fn axis_after(&self, bounds: Bounds, best: Point) -> Option<Axis> {
        let moved = best.setting != self.base;
        match (self.axis, self.rounds) {
            _ if bounds.concurrency.is_some() || bounds.parallelism.is_some() => None,
            (Axis::Parallelism, 0) => Some(Axis::Concurrency),
            (Axis::Parallelism, 2) if moved => Some(Axis::Concurrency),
            (Axis::Concurrency, 1) if moved && best.setting.parallelism > 1 => {
                Some(Axis::Parallelism)
            }
            _ => None,
        }
    }

    /// The other axis, from the best point of this one.
    pub(super) fn continued(&self, axis: Axis, best: Point, flat: bool) -> Self {
        Self {
            rounds: self.rounds + 1,
            other_too_small: self.too_small(self.axis, best),
            movers_alone: axis == Axis::Concurrency && flat,
            points: vec![best],
            ..Self::around(axis, best.setting)
        }
    }

    /// The largest number of `axis` that was measured below the best; 0 where none was.
    pub(super) fn too_small(&self, axis: Axis, best: Point) -> u32 {
        if axis != self.axis {
            return self.other_too_small;
        }
        let x = self.axis.of(best.setting);
        let below = self
            .points
            .iter()
            .map(|p| self.axis.of(p.setting))
            .filter(|n| *n < x);
        below.max().unwrap_or(0)
    }

    pub(super) fn setting(&self, bounds: Bounds, x: f64) -> Setting {
        self.axis.setting(bounds, self.base, x)
    }

    /// A setting was measured; what was known about it before is forgotten.
    pub(super) fn note(&mut self, point: Point) {
        let axis = self.axis;
        let x = axis.of(point.setting);
        self.may_recover = self
            .latest
            .is_some_and(|latest| latest.setting.channels() > point.setting.channels());
        self.latest = Some(point);
        self.points.retain(|p| axis.of(p.setting) != x);
        let at = self.points.partition_point(|p| axis.of(p.setting) < x);
        self.points.insert(at, point);
    }

    /// The next number to try. Points within `tolerance` (relative) of the best are as good, and
    /// the smallest of them wins.
    pub(super) fn next(&self, bounds: Bounds, utility: Utility, tolerance: f64) -> Next {
        if let Some(next) = self.next_under_loss(bounds) {
            return next;
        }
        let mut values = vec![0.0];
        for pair in self.points.windows(2) {
            values.push(values[values.len() - 1] + utility.gain(&pair[0], &pair[1]));
        }
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let at = values
            .iter()
            .position(|value| *value >= most - tolerance)
            .expect("the most is among them");
        let best = self.points[at];
        if let Some(latest) = self.latest.filter(|_| self.may_recover)
            && latest.setting.channels() < best.setting.channels()
            && latest.goodput_bps >= RECOVERING * best.goodput_bps
        {
            return Next::Try {
                x: self.x(latest),
                why: format!("{}, which may be recovering", Rate(latest.goodput_bps)),
                seconds: PATIENT_S,
            };
        }
        let below = at.checked_sub(1).map(|at| self.points[at]);
        let (next, why) = match self.points.get(at + 1) {
            None if may_grow(self.axis, best.limit) => self.grow(bounds, best, below),
            Some(above) if values[at + 1] < most - tolerance => self.between(best, below, *above),
            _ => (None, String::new()),
        };
        let (next, why) = match next {
            Some(_) => (next, why),
            None => self.trim(best, below),
        };
        match next {
            Some(x) => Next::Try {
                x,
                why,
                seconds: match (self.points.iter().any(|p| p.transient), x > self.x(best)) {
                    (true, _) => DRIFT_S,
                    (false, true) => LEAP_S,
                    (false, false) => STEP_S,
                },
            },
            None => Next::Done {
                best,
                why: format!("{} is what there is to get", Rate(best.goodput_bps)),
            },
        }
    }

    /// Where congestion windows bind, goodputs of different age cannot be compared: fresh channels
    /// are fast until they meet their first loss. But under random loss each channel adds its rate
    /// (Mathis et al. 1997), so more are opened until the path is full, goodput no longer rises, or
    /// loss does: then it is ours. `None` where something else binds.
    fn next_under_loss(&self, bounds: Bounds) -> Option<Next> {
        let top = *self.points.last()?;
        let below = self.points.len().checked_sub(2).map(|at| self.points[at]);
        let all_drift = self.points.iter().all(|p| p.transient);
        if self.axis != Axis::Parallelism || self.settled || !all_drift {
            return None;
        }
        let done = |best: Point| Next::Done {
            best,
            why: format!("{} is what there is to get", Rate(best.goodput_bps)),
        };
        let mut wanted = STEP * self.x(top);
        match top.limit {
            Some(Bottleneck::PathCapacity) if let Some(lasting) = self.lasting_x() => {
                if lasting < WORTH_TRIMMING * self.x(top) {
                    return Some(done(top));
                }
                wanted = lasting.min(LEAP * self.x(top));
            }
            Some(Bottleneck::PathCapacity) if top.is_saturated() => return Some(done(top)),
            // The windows of so many are small because all have just met their first losses, and
            // not because of others.
            Some(Bottleneck::PathCapacity)
                if self.is_cold && below.is_none() && top.setting.channels() > ENOUGH =>
            {
                return Some(done(top));
            }
            // Among others on a full path each channel still adds its share, up to what is fair.
            Some(Bottleneck::PathCapacity) => {
                let fair = contention::fair(top.window.unwrap_or(ROOMY));
                // Where fewer met a full path already, fresh ones overshoot.
                let pays = match below.and_then(|below| below.limit) {
                    Some(Bottleneck::PathCapacity) => Utility::TAKEN,
                    _ => PAYS_IN_CONTENTION,
                };
                if let Some(below) = below
                    && !self.rises(below, top, pays)
                {
                    return Some(done(if self.x(below) < fair { below } else { top }));
                }
                wanted = fair.min(LEAP * self.x(top));
                if wanted < WORTH_TRIMMING * self.x(top) {
                    return Some(done(top));
                }
            }
            Some(Bottleneck::NetworkLoss) => {
                let in_proportion = below.is_none_or(|below| self.in_proportion(below, top));
                if let Some(below) = below {
                    let ours = top.loses_more_than(&below) && !in_proportion;
                    let unproductive =
                        Utility::harmless_bps(&top) < WORTH_A_STEP * Utility::harmless_bps(&below);
                    // The first was measured at its beginning, before it had lost anything.
                    if self.points.len() > 2 && (ours || unproductive) {
                        return Some(done(below));
                    }
                }
                if in_proportion {
                    let leap = if top.is_far { FAR_LEAP } else { LEAP };
                    wanted = leap * self.x(top);
                }
            }
            _ => return None,
        }
        let x = f64::from(self.axis.of(self.setting(bounds, wanted)));
        if x <= self.x(top) {
            return Some(done(top));
        }
        Some(Next::Try {
            x,
            why: match top.limit {
                Some(limit) => format!("{}, limited by {limit}", Rate(top.goodput_bps)),
                None => Rate(top.goodput_bps).to_string(),
            },
            seconds: DRIFT_S,
        })
    }

    /// Fresh channels fill a path that they cannot keep full once they have met its random loss:
    /// how many can, where it was seen.
    fn lasting_x(&self) -> Option<f64> {
        let each = self.points.iter().filter_map(|p| p.lasting_bps);
        let each = each.fold(f64::NEG_INFINITY, f64::max);
        let most = self.points.iter().map(|p| p.goodput_bps);
        let most = most.fold(0.0, f64::max);
        (each > 0.0).then(|| (most / each).ceil())
    }

    /// The largest number is the best: a larger one, unless the bound is reached.
    fn grow(&self, bounds: Bounds, best: Point, below: Option<Point>) -> (Option<f64>, String) {
        let x = self.x(best);
        let (factor, why) = match below {
            None if best.is_saturated() => return (None, String::new()),
            None if best.limit == Some(Bottleneck::ReceiveWindow) => (
                LEAP,
                format!("{}, limited by receive-window", Rate(best.goodput_bps)),
            ),
            None => (
                if best.transient { STEP } else { self.factor },
                format!("{} to begin with", Rate(best.goodput_bps)),
            ),
            // Windows were full, and now the path is.
            Some(below)
                if !below.transient
                    && match best.limit {
                        Some(Bottleneck::PathCapacity) => true,
                        Some(Bottleneck::ReceiveWindow) => {
                            let least = match best.rtt_inflation.zip(below.rtt_inflation) {
                                Some(_) => LATE,
                                None => FULL_WINDOWS,
                            };
                            !self.rises(below, best, least)
                                || best.queues_more_than(&below) && !self.in_proportion(below, best)
                        }
                        _ => false,
                    } =>
            {
                return self.trim(best, Some(below));
            }
            Some(below) => {
                let growth = x / self.x(below);
                let rise = best.goodput_bps / below.goodput_bps.max(1.0);
                let why = format!(
                    "{:.1} times the goodput with {growth:.1} times the channels",
                    rise
                );
                if self.in_proportion(below, best) {
                    let leaps = !best.transient && !best.queues_more_than(&below);
                    (if leaps { LEAP } else { STEP }, why)
                } else if best.limit == Some(Bottleneck::ReceiveWindow) && !below.transient {
                    // No queue says that the path is full, and channels of which some were late
                    // look like fewer.
                    (STEP, why)
                } else if let (Some(knee), why) = self.trim(best, Some(below)) {
                    // Whether the knee lies between is cheaper to see than whether there is more
                    // above.
                    return (Some(knee), why);
                } else {
                    (STEP, why)
                }
            }
        };
        let next = f64::from(self.axis.of(self.setting(bounds, factor * x)));
        ((next > x).then_some(next), why)
    }

    /// Whether goodput rose about as channels did.
    fn in_proportion(&self, fewer: Point, more: Point) -> bool {
        self.rises(fewer, more, IN_PROPORTION)
    }

    /// Whether goodput rose with at least this elasticity.
    fn rises(&self, fewer: Point, more: Point, elasticity: f64) -> bool {
        let rise = more.goodput_bps.max(1.0) / fewer.goodput_bps.max(1.0);
        rise.ln() >= elasticity * (self.x(more) / self.x(fewer)).ln()
    }

    /// A leap went too far, and goodput was in proportion before it: something between may be
    /// better still.
    fn between(&self, best: Point, below: Option<Point>, above: Point) -> (Option<f64>, String) {
        let rises = below.is_none_or(|below| self.in_proportion(below, best));
        let x = self.x(best);
        let rise = above.goodput_bps / best.goodput_bps.max(1.0);
        // Where each adds the same until something is full, what the larger number gives says where
        // that is.
        let next = if !best.transient && rise >= FLAT {
            (SPARE * rise.max(1.0) * x).ceil()
        } else {
            (x * self.x(above)).sqrt().floor()
        };
        let apart = WORTH_TRIMMING.sqrt();
        let flat = !best.transient && (FLAT..FLAT_MORE).contains(&rise);
        let pays = rises && !flat && next >= x * apart && next * apart <= self.x(above) && next > x;
        let why = format!("{} went too far", above.setting.channels());
        (pays.then_some(next), why)
    }

    /// Movers are tried, and processors bind with few as with many: what a mover takes, no flow on
    /// the path gives.
    pub(super) fn is_about_processors(&self) -> bool {
        self.axis == Axis::Concurrency
            && self.points.iter().all(|p| p.limit == Some(Bottleneck::Cpu))
    }

    /// Whether more along this axis gave no more goodput than the best: what it buys does not bind.
    pub(super) fn is_flat(&self, best: Point, tolerance: f64) -> bool {
        let top = self.points[self.points.len() - 1];
        self.x(top) > self.x(best) && top.goodput_bps <= best.goodput_bps * (1.0 + tolerance)
    }

    /// A smaller number that should do: what the rate of a channel measured below says, and some to
    /// spare; where nothing was measured below, a smaller one.
    fn trim(&self, best: Point, below: Option<Point>) -> (Option<f64>, String) {
        let x = self.x(best);
        let (next, why) = match below {
            // Then fewer are looked for later, step by step, with time for each.
            Some(Point {
                transient: true, ..
            }) => return (None, String::new()),
            None if best.transient => return (None, String::new()),
            Some(below) => {
                let each = below.goodput_bps.max(1.0) / self.x(below);
                let needed = best.goodput_bps / each;
                let next = (SPARE * needed).ceil().max(self.x(below) + 1.0);
                (
                    next,
                    format!("{} at {} each", Rate(best.goodput_bps), Rate(each)),
                )
            }
            // Full windows without a queue are all needed.
            None => (
                (x / self.factor).floor().max((best.needed() * x).ceil()),
                format!("fewer than {x:.0} may do"),
            ),
        };
        let pays = next >= 1.0 && next * WORTH_TRIMMING <= x.max(next + 1.0) && next < x;
        (pays.then_some(next), why)
    }

    fn x(&self, point: Point) -> f64 {
        f64::from(self.axis.of(point.setting))
    }
}

/// Where storage or a cap binds, nothing more helps; where processors do, channels do not.
const fn may_grow(axis: Axis, limit: Option<Bottleneck>) -> bool {
    match limit {
        Some(Bottleneck::SourceStorage | Bottleneck::DestinationStorage | Bottleneck::Policy) => {
            false
        }
        Some(Bottleneck::Cpu) => matches!(axis, Axis::Concurrency),
        _ => true,
    }
}
