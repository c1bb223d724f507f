//! The two numbers of a setting, one of which moves while the other stays.

use crate::{Bounds, Setting};

/// Which of the two numbers moves; the other stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Parallelism,
    Concurrency,
}

impl Axis {
    /// Where a search begins: parallelism, unless the user fixed it.
    pub(super) const fn first(bounds: Bounds) -> Self {
        if bounds.parallelism.is_some() {
            Self::Concurrency
        } else {
            Self::Parallelism
        }
    }

    /// The number of `setting` that moves.
    pub(super) const fn of(self, setting: Setting) -> u32 {
        match self {
            Self::Parallelism => setting.parallelism,
            Self::Concurrency => setting.concurrency,
        }
    }

    /// `base` with `x` (rounded, inside the bounds) in the place of the number that moves.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate, and the bounds cut"
    )]
    pub(super) fn setting(self, bounds: Bounds, base: Setting, x: f64) -> Setting {
        let stays = match self {
            Self::Parallelism => base.concurrency,
            Self::Concurrency => base.parallelism,
        };
        let x = (x.round() as u32).clamp(1, (bounds.channels_max / stays.max(1)).max(1));
        bounds.project(match self {
            Self::Parallelism => Setting {
                parallelism: x,
                ..base
            },
            Self::Concurrency => Setting {
                concurrency: x,
                ..base
            },
        })
    }
}
