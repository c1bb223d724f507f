//! Canned surfaces, and what must hold for every published method.

use proptest::prelude::*;

use super::{Walk, Walker};
use crate::{
    Bounds, Method, Observation, Setting, Tuner,
    space::{Axes, Coordinates, Space},
};

/// N channels of one mover.
pub(super) fn line(channels_max: u32) -> Space {
    Space::new(
        Axes::Channels { concurrency: 1 },
        Bounds::up_to(channels_max),
    )
}

/// nc and np.
pub(super) fn plane(channels_max: u32) -> Space {
    Space::new(Axes::Both, Bounds::up_to(channels_max))
}

/// The numbers of channels that a method visits over the surface `g`, in epochs of one second.
pub(super) fn trace(walk: impl Walk, epochs: usize, mut g: impl FnMut(u32) -> f64) -> Vec<u32> {
    trace_points(walk, epochs, |x| g(x[0]))
        .into_iter()
        .map(|x| x[0])
        .collect()
}

/// The same over points.
pub(super) fn trace_points(
    mut walk: impl Walk,
    epochs: usize,
    mut g: impl FnMut(&Coordinates) -> f64,
) -> Vec<Coordinates> {
    let mut at = walk.first().to;
    let mut visited = Vec::new();
    for _ in 0..epochs {
        let setting = match at[..] {
            [n] => Setting::new(1, n),
            _ => Setting::new(at[0], at[1]),
        };
        // Bytes are whole: surfaces in Mbit/s keep their digits.
        let seen = Observation::of_rate(setting, g(&at) * 1e6, 1.0);
        visited.push(at);
        at = walk.step(&seen).to;
    }
    visited
}

#[test]
fn reasons_name_both_settings() {
    let mut tuner = Walker::new(line(128), super::mi::Mi::new(line(128), 4, 2.0));
    assert_eq!(tuner.first().rationale, "1 x 4: to begin with");
    let next = tuner.decide(&Observation::new(Setting::new(1, 4), 1_000, 1.0));
    assert_eq!(next.rationale, "1 x 4 -> 1 x 8: first step");
    let next = tuner.decide(&Observation::new(Setting::new(1, 8), 1_600, 1.0));
    assert_eq!(next.rationale, "1 x 8 -> 1 x 16: goodput rose by 60 %");
}

fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::num::f64::ANY,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        1e-3..10.0_f64,
    ]
}

fn epochs() -> impl Strategy<Value = Vec<Observation>> {
    let seen = (any::<u64>(), anything(), prop::option::of(anything())).prop_map(
        |(bytes, seconds, loss)| Observation {
            loss_ratio: loss,
            cpu_wait: loss,
            receive_window_limited: loss,
            rate_cap_bps: loss,
            goodput_error_bps: loss,
            ..Observation::new(Setting::new(1, 1), bytes, seconds)
        },
    );
    prop::collection::vec(seen, 0..60)
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    (
        0_u32..300,
        prop::option::of(0_u32..40),
        prop::option::of(0_u32..40),
    )
        .prop_map(|(channels_max, concurrency, parallelism)| Bounds {
            channels_max,
            concurrency,
            parallelism,
        })
}

proptest! {
    #[test]
    fn every_method_stays_in_bounds_and_repeats_itself(
        bounds in any_bounds(),
        seen in epochs(),
        seed: u64,
        start in prop::option::of((any::<u32>(), any::<u32>())),
    ) {
        let start = start.map(|(nc, np)| Setting::new(nc, np));
        for name in Method::NAMES {
            let method = Method::parse(name).expect("a listed name");
            let mut one = method.build(start, bounds, seed);
            let mut two = method.build(start, bounds, seed);
            let mut decision = one.first();
            prop_assert_eq!(&decision, &two.first());
            for seen in &seen {
                prop_assert_eq!(bounds.project(decision.setting), decision.setting, "{}", name);
                let seen = Observation { setting: decision.setting, ..*seen };
                decision = one.decide(&seen);
                prop_assert_eq!(&decision, &two.decide(&seen));
            }
        }
    }

    #[test]
    fn every_method_comes_to_rest_where_nothing_matters(
        goodput in 1.0..1e11_f64,
        max in 1_u32..200,
    ) {
        for name in Method::NAMES.iter().filter(|name| !NEVER_RESTS.contains(name)) {
            let mut tuner = Method::parse(name).expect("a listed \
                                                        name").build(None, Bounds::up_to(max), 1);
            let mut at = tuner.first().setting;
            let mut last_move = 0;
            for epoch in 0..150 {
                let next = tuner.decide(&Observation::of_rate(at, goodput, 1.0)).setting;
                if next != at {
                    last_move = epoch;
                }
                at = next;
            }
            prop_assert!(last_move < 100, "{name} moved in epoch {last_move}");
        }
    }
}

/// Falcon takes a step of at least one in every epoch, by design, and ours looks around now and
/// then.
const NEVER_RESTS: [&str; 2] = ["falcon", "godwit"];
