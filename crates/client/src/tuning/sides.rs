//! Files that pass through this machine: each server has channels of its own.
//!
//! The goodput is the same on both sides, so a tuner can learn about the slower one alone. It
//! decides about that, and the other keeps what it has until it is the slower one.

use godwit_tune::Setting;

use crate::{passing::Side, setting_target::Target};

/// Epochs in a row that speak for the other side: one may be a burst.
const EPOCHS: u32 = 2;

/// Whose channels the tuner decides about.
#[derive(Debug)]
pub(super) struct Sides {
    tuned: Side,
    /// Channels of a session of the other side.
    kept: u32,
    /// Epochs in a row in which that was the slower one.
    against: u32,
}

impl Sides {
    /// The tuner has decided about both, and each has so many channels a session.
    pub(super) fn beginning_at(channels: u32) -> Self {
        Self {
            tuned: Side::Destination,
            kept: channels,
            against: 0,
        }
    }

    pub(super) fn tuned(&self) -> Side {
        self.tuned
    }

    /// An epoch is over, whose slower side was this. The setting from which the tuner is to go on
    /// with the other side, if it is to; `tuned`: where it was with this one.
    pub(super) fn turn(&mut self, slower: Option<Side>, tuned: Setting) -> Option<Setting> {
        self.against = match slower == Some(self.tuned.other()) {
            true => self.against + 1,
            false => 0,
        };
        if self.against < EPOCHS {
            return None;
        }
        self.against = 0;
        self.tuned = self.tuned.other();
        let parallelism = std::mem::replace(&mut self.kept, tuned.parallelism);
        Some(Setting {
            parallelism,
            ..tuned
        })
    }

    /// Both sides, where the tuned one has this setting. They have the same number of sessions, as
    /// each file has one with both.
    pub(super) fn target(&self, tuned: Setting, generation: u64) -> Target {
        let (destination, source) = match self.tuned {
            Side::Destination => (tuned.parallelism, self.kept),
            Side::Source => (self.kept, tuned.parallelism),
        };
        Target {
            setting: Setting {
                parallelism: destination,
                ..tuned
            },
            source_channels: Some(source),
            generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_side_gets_channels_and_the_other_keeps_its_own() {
        let mut sides = Sides::beginning_at(4);
        let (source, destination) = (Some(Side::Source), Some(Side::Destination));
        for slower in [destination, None, source, destination, source] {
            assert_eq!(sides.turn(slower, Setting::new(2, 8)), None, "{slower:?}");
        }
        // Twice in a row.
        let turned = sides.turn(source, Setting::new(2, 8));
        assert_eq!(turned, Some(Setting::new(2, 4)));
        let target = sides.target(Setting::new(3, 16), 0);
        assert_eq!(target.of(Side::Source), Setting::new(3, 16));
        assert_eq!(target.of(Side::Destination), Setting::new(3, 8));
        assert_eq!(sides.turn(destination, Setting::new(3, 16)), None);
        let turned = sides.turn(destination, Setting::new(3, 16));
        assert_eq!(turned, Some(Setting::new(3, 8)));
        assert_eq!(
            sides.target(Setting::new(3, 9), 0).source_channels,
            Some(16)
        );
    }
}
