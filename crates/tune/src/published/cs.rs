//! `cs`: compass search (Direct, Algorithm 2).

use super::{Move, Walk, cd::along, watch::Watch};
use crate::{
    Observation,
    format::{Change, Rate},
    random::Random,
    space::{Coordinates, Space},
};

/// Where a new search begins after goodput changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// At the point that was found. *Our reading*.
    Incumbent,
    /// At x0, as the listing is printed.
    Start,
}

/// Parameters, with the paper's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// First length of a step, more than 0.5. The paper uses 8.
    pub lambda: f64,
    /// Change that opens a new search, percent. The paper uses 5.
    pub eps: f64,
    /// Where a new search begins.
    pub restart: Restart,
}

/// A step along an axis, `+1` or `-1`.
type Direction = (usize, f64);

#[derive(Debug)]
enum Phase {
    /// x0 is under way.
    Start,
    /// A candidate is under way; the directions of this sweep that are left.
    Sweep {
        candidate: Coordinates,
        left: Vec<Direction>,
    },
    /// Found: hold and watch.
    Hold(Watch),
}

pub(crate) struct Cs {
    space: Space,
    params: Params,
    random: Random,
    x0: Coordinates,
    /// The incumbent x' and f(x').
    best: (Coordinates, f64),
    lambda: f64,
    phase: Phase,
}

impl Cs {
    pub(crate) fn new(space: Space, x0: Coordinates, params: Params, seed: u64) -> Self {
        Self {
            space,
            params,
            random: Random::new(seed),
            best: (x0.clone(), 0.0),
            x0,
            lambda: params.lambda,
            phase: Phase::Start,
        }
    }

    /// All directions in random order.
    fn sweep(&mut self) -> Vec<Direction> {
        let mut all: Vec<Direction> = (0..self.space.len())
            .flat_map(|axis| [(axis, 1.0), (axis, -1.0)])
            .collect();
        self.random.shuffle(&mut all);
        all
    }

    /// The next candidate; halves lambda when a sweep is over, holds when lambda is spent.
    fn go_on(&mut self, mut left: Vec<Direction>, why: &str) -> Move {
        loop {
            while let Some((axis, sign)) = left.pop() {
                let candidate = along(&self.space, &self.best.0, axis, sign * self.lambda);
                // A bound may leave nothing of the step.
                if candidate != self.best.0 {
                    let why = format!("{why}, step {:.0}", self.lambda);
                    let to = candidate.clone();
                    self.phase = Phase::Sweep { candidate, left };
                    return Move::to(to, why);
                }
            }
            self.lambda /= 2.0;
            if self.lambda <= 0.5 {
                self.phase = Phase::Hold(Watch::new(self.params.eps));
                let why = format!("best of the search, {}", Rate(self.best.1));
                return Move::to(self.best.0.clone(), why);
            }
            left = self.sweep();
        }
    }

    fn search_from_best(&mut self, why: &str) -> Move {
        self.lambda = self.params.lambda;
        let all = self.sweep();
        self.go_on(all, why)
    }
}

impl Walk for Cs {
    fn name(&self) -> &'static str {
        "cs"
    }

    fn first(&mut self) -> Move {
        Move::to(self.x0.clone(), "to begin with")
    }

    fn step(&mut self, seen: &Observation) -> Move {
        let f = seen.goodput_bps();
        match std::mem::replace(&mut self.phase, Phase::Start) {
            Phase::Start => {
                self.best.1 = f;
                self.search_from_best("search")
            }
            Phase::Sweep { candidate, .. } if f > self.best.1 => {
                let why = format!("{} better than {}", Rate(f), Rate(self.best.1));
                self.best = (candidate, f);
                let all = self.sweep();
                self.go_on(all, &why)
            }
            Phase::Sweep { left, .. } => {
                let why = format!("{} not better than {}", Rate(f), Rate(self.best.1));
                self.go_on(left, &why)
            }
            Phase::Hold(mut watch) => match (watch.changed(f), self.params.restart) {
                (None, _) => {
                    self.phase = Phase::Hold(watch);
                    Move::to(self.best.0.clone(), "found")
                }
                (Some(delta), Restart::Incumbent) => {
                    self.best.1 = f;
                    self.search_from_best(&format!("goodput {}, search again", Change(delta)))
                }
                (Some(delta), Restart::Start) => {
                    self.best = (self.x0.clone(), 0.0);
                    let why = format!("goodput {}, search again", Change(delta));
                    Move::to(self.x0.clone(), why)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, plane, trace, trace_points};

    const PAPER: Params = Params {
        lambda: 8.0,
        eps: 5.0,
        restart: Restart::Incumbent,
    };

    fn hill(n: u32) -> f64 {
        100.0 - (f64::from(n) - 21.0).abs()
    }

    #[test]
    fn finds_the_top_of_a_hill_and_holds_it() {
        let visited = trace(Cs::new(line(128), vec![2], PAPER, 1), 40, hill);
        assert_eq!(visited[..3], [2, 1, 10]);
        assert!(visited[25..].iter().all(|n| *n == 21), "{visited:?}");
    }

    #[test]
    fn two_parameters() {
        let visited = trace_points(Cs::new(plane(256), vec![2, 8], PAPER, 5), 60, |x| {
            100.0 - (f64::from(x[0]) - 7.0).abs() - (f64::from(x[1]) - 12.0).abs()
        });
        assert_eq!(visited[59], [7, 12]);
    }

    #[test]
    fn searches_again_from_the_incumbent_or_from_the_start() {
        for (restart, expected) in [(Restart::Incumbent, 21), (Restart::Start, 2)] {
            let cs = Cs::new(line(128), vec![2], Params { restart, ..PAPER }, 1);
            let mut epoch = 0;
            let visited = trace(cs, 44, |n| {
                epoch += 1;
                if epoch < 40 { hill(n) } else { hill(n) / 2.0 }
            });
            assert_eq!(visited[39], 21);
            assert_eq!(visited[40..].contains(&2), expected == 2, "{visited:?}");
            assert!(visited[40..].iter().any(|n| *n != 21));
        }
    }
}
