//! `aimd`: additive increase, multiplicative decrease (named by Ito, Ohsaki, Imase, SAINT 2006,
//! without its rule). *Our reading*: N grows by 1 while goodput rises by more than eps and is
//! halved when it falls by more than eps. What follows a halving is compared with nothing, or its
//! own lower goodput would halve N again.

use super::{Move, Walk};
use crate::{
    Observation,
    format::{Change, change_percent},
    space::Space,
};

pub(crate) struct Aimd {
    space: Space,
    /// Percent.
    eps: f64,
    n: u32,
    before: Option<f64>,
}

impl Aimd {
    pub(crate) fn new(space: Space, n0: u32, eps: f64) -> Self {
        Self {
            n: space.bound_one(f64::from(n0)),
            space,
            eps,
            before: None,
        }
    }
}

impl Walk for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn first(&mut self) -> Move {
        Move::to([self.n], "to begin with")
    }

    fn step(&mut self, seen: &Observation) -> Move {
        let g = seen.goodput_bps();
        let n = f64::from(self.n);
        let Some(before) = self.before.replace(g) else {
            self.n = self.space.bound_one(n + 1.0);
            return Move::to([self.n], "one more");
        };
        let delta = change_percent(before, g);
        if delta > self.eps {
            self.n = self.space.bound_one(n + 1.0);
        } else if delta < -self.eps {
            self.n = self.space.bound_one(n / 2.0);
            self.before = None;
        }
        Move::to([self.n], format!("goodput {}", Change(delta)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, trace};

    #[test]
    fn adds_one_and_halves_on_a_fall() {
        let mut epoch = 0;
        let visited = trace(Aimd::new(line(128), 4, 5.0), 9, |n| {
            epoch += 1;
            // After the fifth epoch half of the path is gone.
            f64::from(n.min(7)) * if epoch > 5 { 0.5 } else { 1.0 }
        });
        assert_eq!(visited, [4, 5, 6, 7, 8, 8, 4, 5, 6]);
    }
}
