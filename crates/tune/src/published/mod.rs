//! The methods of the papers, one a file, each written like its algorithm box.
//!
//! A method walks over whole numbers and is told an epoch at a time: a [`Walk`]. [`Walker`] turns
//! it into a [`Tuner`]. Symbols are the papers'; where a listing is silent or damaged, the reading
//! that is followed is marked *our reading*.
//!
//! Short names of the papers:
//!
//! - *APT*: Ito, Ohsaki, Imase, "GridFTP-APT: Automatic Parallelism Tuning Mechanism for Data
//!   Transfer Protocol GridFTP", CCGrid 2006; and Inoue, Ito, Ohsaki, Imase, "Implementation and
//!   Evaluation of GridFTP Automatic Parallelism Tuning Mechanism for Long-Fat Networks".
//! - *Direct*: Balaprakash, Morozov, Kettimuthu, Kumaran, Foster, "Improving Data Transfer
//!   Throughput with Direct Search Optimization", ICPP 2016.
//! - *Falcon*: Arifuzzaman, Arslan, SC'21; with Bockelman, Basney, TPDS 34(8), 2023.

pub mod aimd;
pub mod apt;
pub mod balman;
pub mod cd;
pub mod cs;
pub mod falcon;
pub mod mi;
pub mod nm;
#[cfg(test)]
mod tests;
mod watch;
pub mod yildirim;

use crate::{
    Decision, Observation, Setting, Tuner,
    format::{Change, change_percent},
    space::{Coordinates, Space},
};

/// A method over the points of a [`Space`].
pub(crate) trait Walk: Send {
    /// As `--tuner` spells it.
    fn name(&self) -> &'static str;
    /// Where it begins.
    fn first(&mut self) -> Move;
    /// An epoch at the point of the last move is over.
    fn step(&mut self, seen: &Observation) -> Move;
}

/// Where to go next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    to: Coordinates,
    why: String,
    expected_bps: Option<f64>,
}

impl Move {
    pub(crate) fn to(point: impl Into<Coordinates>, why: impl Into<String>) -> Self {
        Self {
            to: point.into(),
            why: why.into(),
            expected_bps: None,
        }
    }

    /// What the method expects to see there, bit/s.
    pub(crate) fn expecting(self, bps: f64) -> Self {
        Self {
            expected_bps: Some(bps),
            ..self
        }
    }
}

/// How goodput changes from epoch to epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta {
    before: Option<f64>,
}

impl Delta {
    /// Percent since the epoch before, `None` in the first one; and the words for it.
    fn observe(&mut self, f: f64) -> (Option<f64>, String) {
        let delta = (self.before.replace(f)).map(|before| change_percent(before, f));
        let words = delta.map_or("first step".to_owned(), |d| {
            format!("goodput {}", Change(d))
        });
        (delta, words)
    }
}

/// Runs a [`Walk`] as a [`Tuner`].
pub(crate) struct Walker<W> {
    space: Space,
    walk: W,
    at: Option<Setting>,
}

impl<W: Walk> Walker<W> {
    pub(crate) const fn new(space: Space, walk: W) -> Self {
        Self {
            space,
            walk,
            at: None,
        }
    }

    fn decision(&mut self, next: Move) -> Decision {
        let setting = self.space.setting(&next.to);
        let rationale = match self.at.replace(setting) {
            Some(from) if from != setting => format!("{from} -> {setting}: {}", next.why),
            _ => format!("{setting}: {}", next.why),
        };
        Decision {
            expected_bps: next.expected_bps,
            ..Decision::new(setting, rationale)
        }
    }
}

impl<W: Walk> Tuner for Walker<W> {
    fn name(&self) -> &'static str {
        self.walk.name()
    }

    fn first(&mut self) -> Decision {
        let first = self.walk.first();
        self.decision(first)
    }

    fn decide(&mut self, seen: &Observation) -> Decision {
        let next = self.walk.step(seen);
        self.decision(next)
    }
}
