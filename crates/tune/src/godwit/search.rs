//! From what has been measured along one axis to the next number to try.

use super::Worth;
use crate::{Bounds, Limit, Setting, words::Rate};

/// Growth while goodput rises in proportion to channels.
const LEAP: f64 = 4.0;
/// Growth while it rises less.
const STEP: f64 = 2.0;
/// Elasticity of goodput (relative rise over relative growth) that counts as in proportion.
const IN_PROPORTION: f64 = 0.75;
/// Channels to spare over what the measured rate of a channel says is needed: the price of being wrong is lower above
/// than below.
const SPARE: f64 = 1.2;
/// A number is not worth trying that is not smaller than the best by this factor.
const WORTH_TRIMMING: f64 = 1.3;

/// Which of the two numbers moves; the other stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Parallelism,
    Concurrency,
}

impl Axis {
    /// Where a search begins: parallelism, unless the user fixed it.
    pub(super) const fn first(bounds: Bounds) -> Self {
        if bounds.parallelism.is_some() {
            Self::Concurrency
        } else {
            Self::Parallelism
        }
    }

    /// What is searched after this one.
    pub(super) const fn after(self, bounds: Bounds) -> Option<Self> {
        match self {
            Self::Parallelism if bounds.concurrency.is_none() => Some(Self::Concurrency),
            Self::Parallelism | Self::Concurrency => None,
        }
    }

    /// The number of `setting` that moves.
    pub(super) const fn of(self, setting: Setting) -> u32 {
        match self {
            Self::Parallelism => setting.parallelism,
            Self::Concurrency => setting.concurrency,
        }
    }

    /// `base` with `x` (rounded, inside the bounds) in the place of the number that moves.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate, and the bounds cut"
    )]
    pub(super) fn setting(self, bounds: Bounds, base: Setting, x: f64) -> Setting {
        let stays = match self {
            Self::Parallelism => base.concurrency,
            Self::Concurrency => base.parallelism,
        };
        let x = (x.round() as u32).clamp(1, (bounds.channels_max / stays.max(1)).max(1));
        bounds.project(match self {
            Self::Parallelism => Setting {
                parallelism: x,
                ..base
            },
            Self::Concurrency => Setting {
                concurrency: x,
                ..base
            },
        })
    }
}

/// One setting, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) setting: Setting,
    pub(super) goodput_bps: f64,
    pub(super) loss: Option<f64>,
    pub(super) limit: Option<Limit>,
}

/// What a search wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    Try { x: f64, why: String, leap: bool },
    Done { best: Point, why: String },
}

/// What has been measured along one axis.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pub(super) axis: Axis,
    base: Setting,
    /// Growth and decrease where there is nothing to reckon with yet.
    factor: f64,
    /// Smallest first, each number once.
    points: Vec<Point>,
}

impl Search {
    /// Nothing is known: the first step is a leap.
    pub(super) const fn from_cold(axis: Axis, base: Setting) -> Self {
        Self {
            axis,
            base,
            factor: LEAP,
            points: Vec::new(),
        }
    }

    /// `base` served well until now: look around it.
    pub(super) const fn around(axis: Axis, base: Setting) -> Self {
        Self {
            axis,
            base,
            factor: STEP,
            points: Vec::new(),
        }
    }

    /// The other axis, from the best point of the first.
    pub(super) fn continued(axis: Axis, best: Point) -> Self {
        Self {
            axis,
            base: best.setting,
            factor: STEP,
            points: vec![best],
        }
    }

    pub(super) fn setting(&self, bounds: Bounds, x: f64) -> Setting {
        self.axis.setting(bounds, self.base, x)
    }

    /// `setting` was measured; what was known about it before is forgotten.
    pub(super) fn note(
        &mut self,
        setting: Setting,
        goodput_bps: f64,
        loss: Option<f64>,
        limit: Option<Limit>,
    ) {
        let x = self.axis.of(setting);
        let axis = self.axis;
        self.points.retain(|p| axis.of(p.setting) != x);
        let at = self.points.partition_point(|p| axis.of(p.setting) < x);
        self.points.insert(
            at,
            Point {
                setting,
                goodput_bps,
                loss,
                limit,
            },
        );
    }

    /// The next number to try. Points within `tolerance` (relative) of the best are as good, and the smallest of them wins.
    pub(super) fn next(&self, bounds: Bounds, worth: Worth, tolerance: f64) -> Next {
        let value = |p: &Point| worth.of(p.goodput_bps, p.setting.channels(), p.loss);
        let most = self
            .points
            .iter()
            .map(value)
            .fold(f64::NEG_INFINITY, f64::max);
        let at = self
            .points
            .iter()
            .position(|p| value(p) >= most - tolerance)
            .expect("something was measured before");
        let best = self.points[at];
        let below = at.checked_sub(1).map(|at| self.points[at]);
        let (next, why) = if at + 1 == self.points.len() && may_grow(self.axis, best.limit) {
            self.grow(bounds, best, below)
        } else {
            (None, String::new())
        };
        let (next, why, leap) = match next {
            Some(x) => (Some(x), why, true),
            None => {
                let (next, why) = self.trim(best, below);
                (next, why, false)
            }
        };
        match next {
            Some(x) => Next::Try { x, why, leap },
            None => Next::Done {
                best,
                why: format!("{} is what there is to get", Rate(best.goodput_bps)),
            },
        }
    }

    /// The largest number is the best: a larger one, unless the bound is reached.
    fn grow(&self, bounds: Bounds, best: Point, below: Option<Point>) -> (Option<f64>, String) {
        let x = self.x(best);
        let (factor, why) = match below {
            None if best.limit == Some(Limit::ReceiveWindow) => (
                LEAP,
                format!("{}, limited by receive-window", Rate(best.goodput_bps)),
            ),
            None => (
                self.factor,
                format!("{} to begin with", Rate(best.goodput_bps)),
            ),
            Some(below) => {
                let growth = x / self.x(below);
                let rise = best.goodput_bps / below.goodput_bps.max(1.0);
                let why = format!(
                    "{:.1} times the goodput with {growth:.1} times the channels",
                    rise
                );
                if rise.ln() >= IN_PROPORTION * growth.ln() {
                    (LEAP, why)
                } else if let (Some(knee), why) = self.trim(best, Some(below)) {
                    // Whether the knee lies between is cheaper to see than whether there is more above.
                    return (Some(knee), why);
                } else {
                    (STEP, why)
                }
            }
        };
        let next = f64::from(self.axis.of(self.setting(bounds, factor * x)));
        ((next > x).then_some(next), why)
    }

    /// A smaller number that should do: what the rate of a channel measured below says, and some to spare; where
    /// nothing was measured below, a smaller one.
    fn trim(&self, best: Point, below: Option<Point>) -> (Option<f64>, String) {
        let x = self.x(best);
        let (next, why) = match below {
            Some(below) => {
                let each = below.goodput_bps.max(1.0) / self.x(below);
                let needed = best.goodput_bps / each;
                let next = (SPARE * needed).ceil().max(self.x(below) + 1.0);
                (
                    next,
                    format!("{} at {} each", Rate(best.goodput_bps), Rate(each)),
                )
            }
            None => (
                (x / self.factor).floor(),
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
const fn may_grow(axis: Axis, limit: Option<Limit>) -> bool {
    match limit {
        Some(Limit::SourceStorage | Limit::DestinationStorage | Limit::Policy) => false,
        Some(Limit::Cpu) => matches!(axis, Axis::Concurrency),
        _ => true,
    }
}
