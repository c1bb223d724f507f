//! `cd`: coordinate descent (Direct, Algorithm 1).

use super::{Move, Walk};
use crate::{
    Observation,
    format::{Change, change_percent},
    space::{Coordinates, Space},
};

/// Epochs without a change after which the next parameter has its turn. *Our reading*.
pub(super) const QUIET: u32 = 3;

pub(crate) struct Cd {
    space: Space,
    /// Percent.
    eps: f64,
    /// x_{c-1}, under way.
    x: Coordinates,
    /// x_{c-2} and f_{c-2}.
    before: Option<(Coordinates, f64)>,
    axes: Turns,
}

impl Cd {
    pub(crate) fn new(space: Space, x0: Coordinates, eps: f64) -> Self {
        Self {
            space,
            eps,
            x: x0,
            before: None,
            axes: Turns::new(space.len()),
        }
    }

    /// +1, -1 or 0 along the present axis, and why.
    fn direction(&mut self, f: f64) -> (f64, String) {
        let axis = self.axes.axis;
        let Some((x_2, f_2)) = &self.before else {
            return (1.0, "first step".to_owned());
        };
        let delta = change_percent(*f_2, f);
        let moved = f64::from(self.x[axis]) - f64::from(x_2[axis]);
        let direction = if moved == 0.0 {
            if delta.abs() > self.eps { 1.0 } else { 0.0 }
        } else {
            let per_step = delta / moved;
            match per_step {
                d if d > self.eps => 1.0,
                d if d < -self.eps => -1.0,
                _ => 0.0,
            }
        };
        (direction, format!("goodput {}", Change(delta)))
    }
}

impl Walk for Cd {
    fn name(&self) -> &'static str {
        "cd"
    }

    fn first(&mut self) -> Move {
        Move::to(self.x.clone(), "to begin with")
    }

    fn step(&mut self, seen: &Observation) -> Move {
        let f = seen.goodput_bps();
        let (mut direction, mut why) = self.direction(f);
        if self.axes.next_is_fresh(direction != 0.0) {
            (direction, why) = (1.0, "first step of the next parameter".to_owned());
        }
        let next = along(&self.space, &self.x, self.axes.axis, direction);
        self.before = Some((std::mem::replace(&mut self.x, next), f));
        Move::to(self.x.clone(), why)
    }
}

/// `x` moved by `step` along `axis`, inside the bounds.
pub(super) fn along(space: &Space, x: &Coordinates, axis: usize, step: f64) -> Coordinates {
    let mut moved: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    moved[axis] += step;
    space.bound(&moved)
}

/// Whose turn it is, of several parameters. Each is stepped once when its first turn comes; later
/// it waits for goodput to change, or a flat surface would be climbed for ever. *Our reading*.
pub(super) struct Turns {
    pub(super) axis: usize,
    count: usize,
    fresh: usize,
    quiet: u32,
}

impl Turns {
    pub(super) const fn new(count: usize) -> Self {
        Self {
            axis: 0,
            count,
            fresh: count - 1,
            quiet: 0,
        }
    }

    /// An epoch is over. Passes the turn on after [`QUIET`] quiet ones; `true` when the next
    /// parameter never had one before.
    pub(super) const fn next_is_fresh(&mut self, moving: bool) -> bool {
        self.quiet = if moving { 0 } else { self.quiet + 1 };
        if self.quiet < QUIET {
            return false;
        }
        self.quiet = 0;
        self.axis = (self.axis + 1) % self.count;
        let fresh = self.fresh > 0;
        self.fresh = self.fresh.saturating_sub(1);
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, plane, trace, trace_points};

    #[test]
    fn climbs_one_at_a_time_and_stays_at_the_top() {
        // Goodput in proportion up to 8, then flat: 7 -> 8 is +14 %, 8 -> 9 nothing, so it stays at
        // 9.
        let visited = trace(Cd::new(line(128), vec![5], 5.0), 8, |n| f64::from(n.min(8)));
        assert_eq!(visited, [5, 6, 7, 8, 9, 9, 9, 9]);
    }

    #[test]
    fn comes_down_where_more_hurts() {
        let visited = trace(Cd::new(line(128), vec![5], 5.0), 6, |n| 1.0 / f64::from(n));
        assert_eq!(visited, [5, 6, 5, 4, 3, 2]);
    }

    #[test]
    fn a_change_while_resting_is_answered_upwards() {
        let mut epoch = 0;
        let visited = trace(Cd::new(line(128), vec![5], 5.0), 6, |_| {
            epoch += 1;
            if epoch < 4 { 10.0 } else { 5.0 }
        });
        assert_eq!(visited, [5, 6, 6, 6, 7, 7]);
    }

    #[test]
    fn the_second_parameter_has_its_turn_after_three_quiet_epochs() {
        let visited = trace_points(Cd::new(plane(128), vec![2, 2], 5.0), 9, |_| 10.0);
        assert_eq!(
            visited,
            [
                [2, 2],
                [3, 2],
                [3, 2],
                [3, 2],
                [3, 3],
                [3, 3],
                [3, 3],
                [3, 3],
                [3, 3]
            ]
        );
    }
}
