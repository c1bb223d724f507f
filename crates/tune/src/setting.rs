//! What is tuned.

use std::fmt;

/// How a transfer runs. Every number is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Setting {
    /// Movers, each with its own control channel and its own thread. Buys processor time and
    /// several files at a time.
    pub concurrency: u32,
    /// TCP data channels per mover. Buys window and a larger share of a lossy path.
    pub parallelism: u32,
    /// Transfer commands in flight per control channel. Buys round trips between small files.
    pub pipelining_depth: u32,
}

impl Setting {
    /// A setting without pipelining; zeros become 1.
    pub const fn new(concurrency: u32, parallelism: u32) -> Self {
        Self {
            concurrency: at_least_one(concurrency),
            parallelism: at_least_one(parallelism),
            pipelining_depth: 1,
        }
    }

    /// All data channels: concurrency x parallelism.
    pub const fn channels(self) -> u32 {
        self.concurrency.saturating_mul(self.parallelism)
    }
}

impl fmt::Display for Setting {
    /// `2 x 8` (concurrency x parallelism), with the pipelining depth where it is not 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.concurrency, self.parallelism)?;
        if self.pipelining_depth > 1 {
            write!(f, ", {} in flight", self.pipelining_depth)?;
        }
        Ok(())
    }
}

/// What a setting must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most channels in all, at least 1 (`--max-channels`).
    pub channels_max: u32,
    /// The one concurrency that is allowed, where the user fixed it (`-c`), at least 1.
    pub concurrency: Option<u32>,
    /// The one parallelism that is allowed, where the user fixed it (`-p`), at least 1.
    pub parallelism: Option<u32>,
}

impl Bounds {
    /// Both numbers are free, up to `channels_max` channels.
    pub const fn up_to(channels_max: u32) -> Self {
        Self {
            channels_max,
            concurrency: None,
            parallelism: None,
        }
    }

    /// The nearest setting inside: what is fixed stays if it can; else parallelism is given up
    /// before concurrency, since a mover without a channel is no mover.
    pub fn project(self, setting: Setting) -> Setting {
        let max = at_least_one(self.channels_max);
        let wanted = at_least_one(self.parallelism.unwrap_or(setting.parallelism)).min(max);
        let room = match self.parallelism {
            Some(_) => max / wanted,
            None => max,
        };
        let concurrency = at_least_one(self.concurrency.unwrap_or(setting.concurrency)).min(
            if self.concurrency.is_some() {
                max
            } else {
                room
            },
        );
        Setting {
            concurrency,
            parallelism: wanted.min(at_least_one(max / concurrency)),
            pipelining_depth: at_least_one(setting.pipelining_depth),
        }
    }
}

const fn at_least_one(n: u32) -> u32 {
    if n == 0 { 1 } else { n }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn project_keeps_what_fits_and_cuts_parallelism_first() {
        let bounds = Bounds::up_to(16);
        for (from, to) in [
            ((2, 8), (2, 8)),
            ((4, 8), (4, 4)),
            ((32, 8), (16, 1)),
            ((3, 9), (3, 5)),
        ] {
            assert_eq!(
                bounds.project(Setting::new(from.0, from.1)),
                Setting::new(to.0, to.1),
                "{from:?}"
            );
        }
    }

    #[test]
    fn shown_as_concurrency_times_parallelism() {
        assert_eq!(Setting::new(2, 8).to_string(), "2 x 8");
        let deep = Setting {
            pipelining_depth: 4,
            ..Setting::new(1, 1)
        };
        assert_eq!(deep.to_string(), "1 x 1, 4 in flight");
    }

    #[test]
    fn project_keeps_what_the_user_fixed() {
        let bounds = Bounds {
            parallelism: Some(8),
            ..Bounds::up_to(16)
        };
        assert_eq!(bounds.project(Setting::new(9, 1)), Setting::new(2, 8));
        let bounds = Bounds {
            concurrency: Some(4),
            ..Bounds::up_to(16)
        };
        assert_eq!(bounds.project(Setting::new(1, 9)), Setting::new(4, 4));
    }

    proptest! {
        #[test]
        fn projection_is_inside_and_stays(
            c: u32, p: u32, d: u32, max: u32, fixed_c: Option<u32>, fixed_p: Option<u32>,
        ) {
            let bounds = Bounds { channels_max: max, concurrency: fixed_c, parallelism: fixed_p };
            let setting = Setting { concurrency: c, parallelism: p, pipelining_depth: d };
            let got = bounds.project(setting);
            prop_assert!(got.channels() <= max.max(1));
            prop_assert!(got.concurrency >= 1 && got.parallelism >= 1 && got.pipelining_depth >= 1);
            prop_assert_eq!(bounds.project(got), got);
        }
    }
}
