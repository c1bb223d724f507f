//! `falcon`: gradient steps on a utility with a price for channels and for loss (Falcon §III).

use super::{Move, Walk};
use crate::{Observation, space::Space};

/// Base of the price of a channel.
const K: f64 = 1.02;
/// Weight of loss.
const B: f64 = 10.0;
/// Most channels to add or take at a time.
const STEP_MAX: f64 = 5.0;

/// U(n) = T / K^n - T B L, with T the goodput and L the loss ratio; where loss is not visible, U =
/// T / K^n, the form for several parameters.
fn utility(n: u32, seen: &Observation) -> f64 {
    let t = seen.goodput_bps();
    let l = seen
        .loss_ratio
        .filter(|l| l.is_finite())
        .map_or(0.0, |l| l.clamp(0.0, 1.0));
    t / K.powf(f64::from(n)) - t * B * l
}

pub(crate) struct Falcon {
    space: Space,
    /// n_k, under way.
    n: u32,
    /// n_{k-1}, U_{k-1}.
    before: Option<(u32, f64)>,
}

impl Falcon {
    pub(crate) fn new(space: Space, n0: u32) -> Self {
        Self {
            n: space.bound_one(f64::from(n0)),
            space,
            before: None,
        }
    }
}

impl Walk for Falcon {
    fn name(&self) -> &'static str {
        "falcon"
    }

    fn first(&mut self) -> Move {
        Move::to([self.n], "to begin with")
    }

    /// n += clamp(round(n (U_k - U_{k-1}) / ((n_k - n_{k-1}) U_{k-1})), -5, +5), at least 1 either
    /// way.
    fn step(&mut self, seen: &Observation) -> Move {
        let u = utility(self.n, seen);
        let n = f64::from(self.n);
        let (step, why) = match self.before {
            None => (1.0, "first step".to_owned()),
            Some((n_1, u_1)) => {
                let moved = n - f64::from(n_1);
                // Our reading: |U_{k-1}|, since heavy loss makes U negative and would turn the
                // gradient round.
                let gradient = n * (u - u_1) / (moved * u_1.abs());
                let step = match gradient {
                    // A bound stopped the last step: turn round.
                    _ if moved == 0.0 => {
                        if self.n > 1 {
                            -1.0
                        } else {
                            1.0
                        }
                    }
                    g if g.is_nan() => 1.0,
                    g if g.abs() < 0.5 => 1.0_f64.copysign(g),
                    g => g.round().clamp(-STEP_MAX, STEP_MAX),
                };
                (
                    step,
                    format!("relative gradient of the utility {gradient:.2}"),
                )
            }
        };
        self.before = Some((self.n, u));
        self.n = self.space.bound_one(n + step);
        Move::to([self.n], why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, trace};

    #[test]
    fn climbs_by_the_elasticity_and_circles_the_knee() {
        let visited = trace(Falcon::new(line(128), 1), 30, |n| f64::from(n.min(20)));
        assert_eq!(visited[..6], [1, 2, 4, 6, 7, 8]);
        assert!(
            visited[20..].iter().all(|n| (14..=26).contains(n)),
            "{visited:?}"
        );
    }

    #[test]
    fn more_channels_cost_utility_where_they_do_not_pay() {
        let visited = trace(Falcon::new(line(128), 30), 60, |_| 1e3);
        assert!(visited[55..].iter().all(|n| *n <= 4), "{visited:?}");
    }

    #[test]
    fn utility_by_hand() {
        let mut seen = Observation::new(crate::Setting::new(1, 2), 125_000_000, 1.0);
        assert!((utility(2, &seen) - 1e9 / 1.0404).abs() < 1.0);
        seen.loss_ratio = Some(0.01);
        assert!((utility(2, &seen) - (1e9 / 1.0404 - 1e8)).abs() < 1.0);
    }
}
