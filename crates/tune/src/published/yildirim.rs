//! `yildirim`: doubling (Yildirim, Arslan, Kim, Kosar 2016; `heur2` of Direct §IV-F). Never comes
//! down.

use super::{Delta, Move, Walk};
use crate::{
    Observation,
    space::{Coordinates, Space},
};

pub(crate) struct Yildirim {
    space: Space,
    x: Coordinates,
    delta: Delta,
    /// Which parameter doubles; past the last one the search is over.
    axis: usize,
}

impl Yildirim {
    pub(crate) const fn new(space: Space, x0: Coordinates) -> Self {
        Self {
            space,
            x: x0,
            delta: Delta { before: None },
            axis: 0,
        }
    }

    fn doubled(&self) -> Coordinates {
        let mut x: Vec<f64> = self.x.iter().map(|x| f64::from(*x)).collect();
        x[self.axis] *= 2.0;
        self.space.bound(&x)
    }
}

impl Walk for Yildirim {
    fn name(&self) -> &'static str {
        "yildirim"
    }

    fn first(&mut self) -> Move {
        Move::to(self.x.clone(), "to begin with")
    }

    /// Doubles nc, then np, while goodput rises.
    fn step(&mut self, seen: &Observation) -> Move {
        let (delta, why) = self.delta.observe(seen.goodput_bps());
        if self.axis == self.space.len() {
            return Move::to(self.x.clone(), "found");
        }
        if delta.is_some_and(|delta| delta <= 0.0) {
            self.axis += 1;
        }
        while self.axis < self.space.len() {
            let next = self.doubled();
            // The bounds cut parallelism to make room for concurrency; that would be a decrease.
            if next != self.x && next.iter().zip(&self.x).all(|(next, x)| next >= x) {
                self.x = next;
                break;
            }
            self.axis += 1;
        }
        Move::to(self.x.clone(), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, plane, trace, trace_points};

    #[test]
    fn doubles_past_the_knee_and_stays_there() {
        let visited = trace(Yildirim::new(line(128), vec![1]), 8, |n| {
            f64::from(n.min(6))
        });
        assert_eq!(visited, [1, 2, 4, 8, 16, 16, 16, 16]);
    }

    #[test]
    fn first_concurrency_then_parallelism() {
        let visited = trace_points(Yildirim::new(plane(64), vec![1, 1]), 7, |x| {
            f64::from(x[0].min(2) * x[1].min(4))
        });
        assert_eq!(
            visited,
            [[1, 1], [2, 1], [4, 1], [4, 2], [4, 4], [4, 8], [4, 8]]
        );
    }

    #[test]
    fn bounds_never_make_it_smaller() {
        let visited = trace_points(Yildirim::new(plane(16), vec![2, 4]), 6, |x| {
            f64::from(x[0] * x[1])
        });
        assert_eq!(visited[5], [4, 4]);
    }
}
