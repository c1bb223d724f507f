//! `mi`: multiplicative increase (named by Ito, Ohsaki, Imase, SAINT 2006, without its rule). *Our
//! reading*: N grows by alpha until goodput falls, goes one step back and stays.

use super::{Move, Walk};
use crate::{
    Observation,
    format::{Change, change_percent},
    space::Space,
};

pub(crate) struct Mi {
    space: Space,
    alpha: f64,
    n: u32,
    /// N_-1 and G(N_-1).
    before: Option<(u32, f64)>,
    found: bool,
}

impl Mi {
    pub(crate) fn new(space: Space, n0: u32, alpha: f64) -> Self {
        Self {
            n: space.bound_one(f64::from(n0)),
            space,
            alpha,
            before: None,
            found: false,
        }
    }
}

impl Walk for Mi {
    fn name(&self) -> &'static str {
        "mi"
    }

    fn first(&mut self) -> Move {
        Move::to([self.n], "to begin with")
    }

    fn step(&mut self, seen: &Observation) -> Move {
        if self.found {
            return Move::to([self.n], "found");
        }
        let g = seen.goodput_bps();
        let why = match self.before {
            Some((n, before)) => {
                if g < before {
                    (self.n, self.found) = (n, true);
                }
                format!("goodput {}", Change(change_percent(before, g)))
            }
            None => "first step".to_owned(),
        };
        if !self.found {
            let next = self.space.bound_one(self.alpha * f64::from(self.n));
            self.found = next == self.n;
            self.before = Some((self.n, g));
            self.n = next;
        }
        Move::to([self.n], why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, trace};

    #[test]
    fn goes_one_step_back_and_stays() {
        let visited = trace(Mi::new(line(128), 1, 2.0), 7, |n| {
            100.0 - (f64::from(n) - 5.0).abs()
        });
        assert_eq!(visited, [1, 2, 4, 8, 4, 4, 4]);
    }

    #[test]
    fn stays_at_the_bound() {
        let visited = trace(Mi::new(line(12), 4, 2.0), 5, f64::from);
        assert_eq!(visited, [4, 8, 12, 12, 12]);
    }
}
