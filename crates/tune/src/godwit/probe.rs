//! Which neighbour of a held number to try next.

/// Turns after which what is known about larger numbers is forgotten, and of many, what is known
/// about fewer: others come and go without a trace in our goodput.
const FORGET_AFTER: u32 = 8;
/// A number that lost this much, relative, went over a cliff.
const CLIFF: f64 = 0.05;
/// Most turns of smaller numbers left out.
const REST_MAX: u32 = 7;

/// What is known of the neighbours, along one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbours {
    /// The largest number that was too small.
    floor: f64,
    /// The smallest number that was far too large.
    ceiling: f64,
    turns: u32,
    up: bool,
    far: bool,
    /// Turns of smaller numbers to leave out, and how many after the next unproductive one: each
    /// costs goodput.
    rest: u32,
    next_rest: u32,
}

impl Neighbours {
    /// `floor` is known to be too small; 0 where nothing is known.
    pub(super) fn above(floor: u32) -> Self {
        Self {
            floor: f64::from(floor),
            ceiling: f64::INFINITY,
            turns: 0,
            up: true,
            far: true,
            rest: 0,
            next_rest: 1,
        }
    }

    /// The number to try instead of `x`, `None` when there is nothing to learn. Larger and smaller
    /// ones take turns.
    pub(super) fn next(&mut self, x: f64) -> Option<f64> {
        self.turns += 1;
        if self.turns.is_multiple_of(FORGET_AFTER) {
            self.ceiling = f64::INFINITY;
            self.floor = self.floor.min((0.9 * x).floor() - 1.0).max(1.0);
        }
        let mut smaller = self.smaller(x);
        if !self.up && smaller.is_some() && self.rest > 0 {
            self.rest -= 1;
            smaller = None;
        }
        let (first, second) = if self.up {
            (self.larger(x), smaller.filter(|_| self.rest == 0))
        } else {
            (smaller, self.larger(x))
        };
        self.up = !self.up;
        first.or(second)
    }

    /// Half more, since a small step hides a small gain in noise; or a fifth more, since half may
    /// jump over the best.
    fn larger(self, x: f64) -> Option<f64> {
        let wanted = (x * if self.far { 1.5 } else { 1.2 }).ceil();
        let next = if wanted < self.ceiling {
            wanted
        } else {
            ((x + self.ceiling) / 2.0).floor()
        };
        (next > x && next < self.ceiling).then_some(next)
    }

    /// Half-way down to what is too small, but not by much, and by less where something is known to
    /// be: goodput may suffer.
    fn smaller(self, x: f64) -> Option<f64> {
        let middle = ((self.floor + x) / 2.0).floor();
        let least = if self.floor > 0.0 { 0.93 * x } else { 0.8 * x };
        let next = middle.max(least.floor());
        (next >= 1.0 && next > self.floor && next < x).then_some(next)
    }

    /// The next turn is a smaller number's.
    pub(super) const fn down_again(self) -> Self {
        Self {
            up: false,
            rest: 0,
            next_rest: 1,
            ..self
        }
    }

    /// `tried` instead of `x` was worth `gain` more, which was not enough.
    pub(super) fn mark_unproductive(&mut self, tried: f64, x: f64, gain: f64) {
        if tried < x {
            self.floor = tried;
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest + 1).min(REST_MAX);
        } else {
            self.far = !self.far;
            if gain < -CLIFF {
                self.ceiling = tried;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_and_smaller_take_turns() {
        let mut n = Neighbours::above(0);
        assert_eq!(n.next(8.0), Some(12.0));
        n.mark_unproductive(12.0, 8.0, 0.0);
        assert_eq!(n.next(8.0), Some(6.0));
        n.mark_unproductive(6.0, 8.0, -0.5);
        assert_eq!(n.next(8.0), Some(10.0));
    }

    #[test]
    fn smaller_neighbours_stop_above_the_too_small_one() {
        let mut n = Neighbours::above(4);
        n.up = false;
        assert_eq!(n.next(8.0), Some(7.0));
        n.mark_unproductive(7.0, 8.0, -0.1);
        n.up = false;
        assert_eq!(n.next(8.0), Some(12.0), "nothing smaller is left");
    }

    #[test]
    fn a_cliff_is_approached_by_halves_and_forgotten_in_time() {
        let mut n = Neighbours::above(7);
        n.mark_unproductive(12.0, 8.0, -0.6);
        assert_eq!(n.next(8.0), Some(10.0));
        n.mark_unproductive(10.0, 8.0, -0.3);
        n.up = true;
        assert_eq!(n.next(8.0), Some(9.0));
        let tried: Vec<_> = (0..FORGET_AFTER).map(|_| n.next(8.0)).collect();
        assert!(
            tried.contains(&Some(12.0)) || tried.contains(&Some(10.0)),
            "{tried:?}"
        );
    }
}
