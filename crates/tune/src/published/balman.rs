//! `balman`: additive increase (Balman, Kosar 2009; `heur1` of Direct §IV-F). Never comes down.

use super::{
    Delta, Move, Walk,
    cd::{Turns, along},
};
use crate::{
    Observation,
    space::{Coordinates, Space},
};

pub(crate) struct Balman {
    space: Space,
    /// Percent.
    eps: f64,
    x: Coordinates,
    delta: Delta,
    axes: Turns,
}

impl Balman {
    pub(crate) fn new(space: Space, x0: Coordinates, eps: f64) -> Self {
        Self {
            space,
            eps,
            x: x0,
            delta: Delta::default(),
            axes: Turns::new(space.len()),
        }
    }
}

impl Walk for Balman {
    fn name(&self) -> &'static str {
        "balman"
    }

    fn first(&mut self) -> Move {
        Move::to(self.x.clone(), "to begin with")
    }

    /// +1 while goodput rises by more than eps. Several parameters take turns as in `cd`.
    fn step(&mut self, seen: &Observation) -> Move {
        let (delta, why) = self.delta.observe(seen.goodput_bps());
        let rises = delta.is_none_or(|delta| delta > self.eps);
        let fresh = self.axes.next_is_fresh(rises);
        if rises || fresh {
            self.x = along(&self.space, &self.x, self.axes.axis, 1.0);
        }
        Move::to(self.x.clone(), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, plane, trace, trace_points};

    #[test]
    fn climbs_while_it_pays_and_stays() {
        let visited = trace(Balman::new(line(128), vec![2], 5.0), 7, |n| {
            f64::from(n.min(5))
        });
        assert_eq!(visited, [2, 3, 4, 5, 6, 6, 6]);
    }

    #[test]
    fn never_comes_down() {
        let visited = trace(Balman::new(line(128), vec![4], 5.0), 4, |n| {
            1.0 / f64::from(n)
        });
        assert_eq!(visited, [4, 5, 5, 5]);
    }

    #[test]
    fn the_second_parameter_follows() {
        let visited = trace_points(Balman::new(plane(128), vec![1, 1], 5.0), 7, |x| {
            f64::from(x[1])
        });
        assert_eq!(
            visited,
            [[1, 1], [2, 1], [2, 1], [2, 1], [2, 2], [2, 3], [2, 4]]
        );
    }
}
