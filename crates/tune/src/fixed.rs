//! Tuners that never move: `static`, and `globus`, the default that published tuners are measured
//! against.

use crate::{Bounds, Decision, Observation, Setting, Tuner};

/// One setting for the whole transfer.
#[derive(Clone, Debug)]
pub struct Fixed {
    name: &'static str,
    setting: Setting,
    rationale: String,
}

impl Fixed {
    /// `static`: what the user asked for, inside `bounds`.
    pub fn new(setting: Setting, bounds: Bounds) -> Self {
        Self::named("static", setting, bounds)
    }

    /// `globus`: nc 2, np 8 (Balaprakash 2016 §IV, "default").
    pub fn globus(bounds: Bounds) -> Self {
        Self::named("globus", Setting::new(2, 8), bounds)
    }

    fn named(name: &'static str, wanted: Setting, bounds: Bounds) -> Self {
        let setting = bounds.project(wanted);
        let rationale = if setting == wanted {
            format!("{setting}: fixed by {name}")
        } else {
            format!(
                "{wanted} -> {setting}: at most {} channels",
                bounds.channels_max
            )
        };
        Self {
            name,
            setting,
            rationale,
        }
    }
}

impl Tuner for Fixed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn first(&mut self) -> Decision {
        Decision::new(self.setting, self.rationale.clone())
    }

    fn decide(&mut self, _observation: &Observation) -> Decision {
        self.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: Bounds = Bounds::up_to(128);

    #[test]
    fn static_is_what_was_asked_for() {
        let mut t = Fixed::new(Setting::new(3, 4), WIDE);
        assert_eq!(t.name(), "static");
        assert_eq!(t.first().setting, Setting::new(3, 4));
        assert_eq!(t.first().rationale, "3 x 4: fixed by static");
    }

    #[test]
    fn globus_is_two_by_eight() {
        assert_eq!(Fixed::globus(WIDE).first().setting, Setting::new(2, 8));
    }

    #[test]
    fn bounds_are_kept_and_named() {
        let mut t = Fixed::globus(Bounds::up_to(4));
        assert_eq!(t.first().setting, Setting::new(2, 2));
        assert_eq!(t.first().rationale, "2 x 8 -> 2 x 2: at most 4 channels");
    }

    proptest! {
        #[test]
        fn a_fixed_setting_ignores_observations(bytes: u64, seconds: f64, loss: f64) {
            let mut t = Fixed::new(Setting::new(2, 3), WIDE);
            let first = t.first();
            let mut seen = Observation::new(first.setting, bytes, seconds);
            seen.loss_ratio = Some(loss);
            prop_assert_eq!(t.decide(&seen), first);
            prop_assert!(seen.goodput_bps().is_finite() && seen.goodput_bps() >= 0.0);
        }
    }

    #[test]
    fn goodput_of_a_broken_clock_is_zero() {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                Observation::new(Setting::new(1, 1), 5, seconds).goodput_bps(),
                0.0
            );
        }
        assert_eq!(
            Observation::new(Setting::new(1, 1), 1_000_000, 2.0).goodput_bps(),
            4_000_000.0
        );
    }
}
