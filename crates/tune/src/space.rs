//! The whole numbers that a method walks over, and the settings they stand for.

use crate::{Bounds, Setting};

/// One whole number of at least 1 for each axis.
pub(crate) type Coordinates = Vec<u32>;

/// What the axes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    /// (N): channels in all, spread over this many movers, or the user's.
    Channels {
        /// Movers, where the user did not fix them.
        concurrency: u32,
    },
    /// (nc): movers, of this many channels each, or the user's.
    Concurrency {
        /// Channels of a mover, where the user did not fix them.
        parallelism: u32,
    },
    /// (nc, np).
    Both,
}

/// Axes within bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    axes: Axes,
    bounds: Bounds,
}

impl Space {
    pub(crate) fn new(axes: Axes, mut bounds: Bounds) -> Self {
        match axes {
            // The user's parallelism leaves movers as the only way to more channels.
            Axes::Channels { concurrency } if bounds.parallelism.is_none() => {
                bounds.concurrency.get_or_insert(concurrency);
            }
            Axes::Concurrency { parallelism } => {
                let most = bounds.channels_max.max(1);
                bounds.parallelism.get_or_insert(parallelism.min(most));
            }
            Axes::Channels { .. } | Axes::Both => {}
        }
        Self { axes, bounds }
    }

    /// How many axes.
    pub(crate) const fn len(&self) -> usize {
        match self.axes {
            Axes::Channels { .. } | Axes::Concurrency { .. } => 1,
            Axes::Both => 2,
        }
    }

    /// Rounds `x` (half away from zero) and projects it into the bounds: fBnd of Direct §III-B. `x`
    /// has a number for each axis.
    pub(crate) fn bound(&self, x: &[f64]) -> Coordinates {
        let whole: Coordinates = x.iter().map(|x| self.whole(*x)).collect();
        self.point(self.setting(&whole))
    }

    /// [`Space::bound`] where there is one axis.
    pub(crate) fn bound_one(&self, x: f64) -> u32 {
        self.bound(&[x])[0]
    }

    /// The setting that `point` stands for.
    pub(crate) fn setting(&self, point: &[u32]) -> Setting {
        self.bounds.project(match (self.axes, self.bounds) {
            (Axes::Both, _) => Setting::new(point[0], point[1]),
            (Axes::Concurrency { parallelism }, _) => Setting::new(point[0], parallelism),
            (
                Axes::Channels { .. },
                Bounds {
                    concurrency: Some(nc),
                    ..
                },
            ) => Setting::new(nc, self.whole(f64::from(point[0]) / f64::from(nc))),
            (
                Axes::Channels { .. },
                Bounds {
                    parallelism: Some(np),
                    ..
                },
            ) => Setting::new(self.whole(f64::from(point[0]) / f64::from(np)), np),
            (Axes::Channels { concurrency }, _) => Setting::new(concurrency, point[0]),
        })
    }

    /// Where `setting` lies.
    pub(crate) fn point(&self, setting: Setting) -> Coordinates {
        match self.axes {
            Axes::Channels { .. } => vec![setting.channels()],
            Axes::Concurrency { .. } => vec![setting.concurrency],
            Axes::Both => vec![setting.concurrency, setting.parallelism],
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 1..=channels_max first"
    )]
    fn whole(&self, x: f64) -> u32 {
        x.round()
            .max(1.0)
            .min(f64::from(self.bounds.channels_max.max(1))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_axis_spreads_channels_over_the_movers() {
        let space = Space::new(Axes::Channels { concurrency: 4 }, Bounds::up_to(64));
        assert_eq!(space.bound(&[11.0]), [12]);
        assert_eq!(space.setting(&[12]), Setting::new(4, 3));
        assert_eq!(space.bound(&[1e9]), [64]);
        assert_eq!(space.bound(&[f64::NAN]), [4]);
    }

    #[test]
    fn settings_fixed_by_the_user_stay() {
        let fixed = Bounds {
            parallelism: Some(8),
            ..Bounds::up_to(64)
        };
        let space = Space::new(Axes::Channels { concurrency: 1 }, fixed);
        assert_eq!(space.setting(&space.bound(&[33.0])), Setting::new(4, 8));
        let space = Space::new(Axes::Concurrency { parallelism: 2 }, fixed);
        assert_eq!(space.setting(&space.bound(&[99.0])), Setting::new(8, 8));
    }

    #[test]
    fn rounding_is_half_away_from_zero() {
        let space = Space::new(Axes::Both, Bounds::up_to(64));
        assert_eq!(space.bound(&[2.5, 3.49]), [3, 3]);
    }

    proptest! {
        #[test]
        fn bounding_is_inside_and_stays(
            x: f64, y: f64, max: u32, nc: Option<u32>, np: Option<u32>, k in 0_usize..3,
        ) {
            let axes = [
                Axes::Both,
                Axes::Channels { concurrency: 2 },
                Axes::Concurrency { parallelism: 8 },
            ][k];
            let bounds = Bounds { channels_max: max, concurrency: nc, parallelism: np };
            let space = Space::new(axes, bounds);
            let point = space.bound(&[x, y][..space.len()]);
            let setting = space.setting(&point);
            prop_assert!(setting.channels() <= max.max(1));
            prop_assert_eq!(space.point(setting), point);
        }
    }
}
