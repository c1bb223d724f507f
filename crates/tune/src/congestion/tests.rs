use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Bounds, Decision, Method, Tuner};

/// What a path gives: goodput, loss and round trips over the shortest, for a control and a number
/// of channels.
type Surface = fn(control: &str, channels: u32) -> (f64, f64, f64);

/// 1 Gbit/s on which one packet in a hundred is lost by chance.
fn random_loss(control: &str, channels: u32) -> (f64, f64, f64) {
    let n = f64::from(channels);
    match control {
        "cubic" => ((3e6 * n).min(950e6), 0.01, 1.02),
        _ => (900e6 + 1e6 * n.min(10.0), 0.012, 1.1 + 0.01 * n),
    }
}

/// A path whose queue holds little: loss means that it is full, though round trips do not show it.
fn shallow(control: &str, _: u32) -> (f64, f64, f64) {
    match control {
        "cubic" => (60e6, 0.001, 1.05),
        _ => (95e6, 0.15, 1.05),
    }
}

/// One that another control makes no better.
fn no_better(_: &str, channels: u32) -> (f64, f64, f64) {
    (10e6 * f64::from(channels.min(4)), 0.001, 1.05)
}

/// Nothing is lost.
fn clean(_: &str, channels: u32) -> (f64, f64, f64) {
    (30e6 * f64::from(channels.min(6)), 0.0, 1.0)
}

fn observed(setting: Setting, (bps, loss, queue): (f64, f64, f64), seconds: f64) -> Observation {
    let rtt_min = Duration::from_millis(40);
    Observation {
        loss_ratio: Some(loss),
        rtt: Some(rtt_min.mul_f64(queue)),
        rtt_min: Some(rtt_min),
        ..Observation::of_rate(setting, bps, seconds)
    }
}

/// A transfer: what a controller does with steps.
struct Run {
    congestion: Congestion,
    control: String,
    tuner: Box<dyn Tuner>,
    decided: Decision,
    seconds: f64,
    /// When, and what.
    steps: Vec<(f64, Step)>,
}

impl Run {
    fn new(method: &str, bounds: Bounds) -> Self {
        let mut tuner = Method::parse(method).unwrap().build(None, bounds, 1);
        let decided = tuner.first();
        Self {
            congestion: Congestion::new("cubic", "bbr"),
            control: "cubic".to_owned(),
            tuner,
            decided,
            seconds: 0.0,
            steps: Vec::new(),
        }
    }

    /// The last epoch.
    fn go(&mut self, surface: Surface, seconds: f64) -> Observation {
        let end = self.seconds + seconds;
        loop {
            let setting = self.decided.setting;
            let length = self.decided.epoch_seconds.unwrap_or(1.0);
            let seen = observed(setting, surface(&self.control, setting.channels()), length);
            self.seconds += length;
            match self.congestion.decide(&seen, true) {
                None if self.congestion.is_trying() => {}
                None => self.decided = self.tuner.decide(&seen),
                Some(step) => {
                    self.control.clone_from(&step.control);
                    let restarted = self.tuner.restart_at(step.setting);
                    let words = step.rationale.clone();
                    self.decided = restarted.unwrap_or(Decision::new(step.setting, words));
                    self.steps.push((self.seconds, step));
                }
            }
            if self.seconds >= end {
                return seen;
            }
        }
    }
}

#[test]
fn random_loss_ends_with_the_other_control_and_fewer_channels() {
    let mut run = Run::new("godwit", Bounds::up_to(128));
    let last = run.go(random_loss, 120.0);
    assert_eq!(run.control, "bbr", "{:?}", run.steps);
    assert_eq!(run.steps.len(), 2, "{:?}", run.steps);
    assert!(
        last.goodput_bps() > 900e6 && last.setting.channels() < 16,
        "{last:?}"
    );
    let [(begun, first), (kept, second)] = &run.steps[..] else {
        panic!()
    };
    assert!(*kept - *begun < TRIAL_S);
    assert!(first.rationale.starts_with("cubic -> bbr: "), "{first:?}");
    assert!(second.rationale.starts_with("bbr stays: "), "{second:?}");
}

#[test]
fn a_setting_that_never_moves_gets_it_too() {
    let mut run = Run::new("static:parallelism=8", Bounds::up_to(16));
    let last = run.go(random_loss, 60.0);
    assert_eq!(run.control, "bbr", "{:?}", run.steps);
    assert_eq!(last.setting, Setting::new(1, 8));
}

#[test]
fn a_clean_path_keeps_the_usual_one() {
    let mut run = Run::new("godwit", Bounds::up_to(128));
    run.go(clean, 1000.0);
    assert_eq!(run.steps, []);
}

#[test]
fn harm_outweighs_goodput_and_is_soon_over() {
    let mut run = Run::new("static:parallelism=8", Bounds::up_to(16));
    run.go(shallow, REST_S);
    let [(begun, _), (over, back)] = &run.steps[..] else {
        panic!("{:?}", run.steps)
    };
    assert!(over - begun <= START_UP_S + HARM_S + 1.0, "{:?}", run.steps);
    assert_eq!(
        (back.control.as_str(), back.setting),
        ("cubic", Setting::new(1, 8))
    );
    assert!(
        back.rationale.contains("15.0 % of segments are lost"),
        "{back:?}"
    );
}

#[test]
fn an_unprofitable_control_is_dropped_for_long() {
    let mut run = Run::new("godwit", Bounds::up_to(128));
    run.go(no_better, 2.0 * REST_S);
    let times: Vec<f64> = (run.steps.iter())
        .filter(|(_, step)| step.control == "bbr")
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(times.len(), 2, "{:?}", run.steps);
    assert!(times[1] - times[0] >= REST_S);
}

#[test]
fn a_path_that_turns_shallow_ends_it() {
    let mut run = Run::new("godwit", Bounds::up_to(32));
    run.go(random_loss, 100.0);
    assert_eq!(run.control, "bbr");
    run.go(shallow, HARM_S + 5.0);
    assert_eq!(run.control, "cubic", "{:?}", run.steps);
}

#[test]
fn a_trial_ends_when_others_come() {
    let setting = Setting::new(1, 8);
    let mut congestion = Congestion::new("cubic", "bbr");
    let lossy = observed(setting, random_loss("cubic", 8), 1.0);
    assert!((0..20).all(|_| congestion.decide(&lossy, false).is_none()));
    let begun = (0..4)
        .find_map(|_| congestion.decide(&lossy, true))
        .unwrap();
    assert_eq!(
        (begun.control.as_str(), congestion.has_changed()),
        ("bbr", true)
    );
    let better = observed(setting, random_loss("bbr", 8), 1.0);
    let over = (0..3)
        .find_map(|_| congestion.decide(&better, false))
        .unwrap();
    assert_eq!(
        (over.control.as_str(), congestion.has_changed()),
        ("cubic", false)
    );
}

proptest! {
    #[test]
    fn nonsense_changes_nothing_for_the_worse(
        epochs in proptest::collection::vec(
            (
                1_u32..4,
                any::<f64>(),
                proptest::option::of(any::<f64>()),
                any::<u64>(),
                0_u64..1000,
                any::<bool>(),
            ),
            0..400,
        ),
    ) {
        let mut congestion = Congestion::new("cubic", "bbr");
        let mut in_force = "cubic".to_owned();
        for (channels, seconds, loss_ratio, bytes, ms, alone) in epochs {
            let seen = Observation {
                loss_ratio,
                rtt: Some(Duration::from_millis(ms)),
                rtt_min: Some(Duration::from_millis(ms / 2)),
                ..Observation::new(Setting::new(1, channels), bytes, seconds)
            };
            if let Some(step) = congestion.decide(&seen, alone) {
                prop_assert!(step.control == "cubic" || step.control == "bbr");
                in_force = step.control;
            }
            prop_assert_eq!(congestion.has_changed(), in_force == "bbr");
        }
    }

    #[test]
    fn without_loss_or_with_a_queue_nothing_is_tried(
        epochs in proptest::collection::vec((1e3_f64..1e10, 0.0_f64..1.0, 1.0_f64..4.0), 1..200),
    ) {
        let mut congestion = Congestion::new("cubic", "bbr");
        for (bps, loss, queue) in epochs {
            // Either nothing to speak of is lost, or a queue stands.
            let loss = if queue < 1.3 { loss * 1e-4 } else { loss };
            let seen = observed(Setting::new(1, 4), (bps, loss, queue), 0.5);
            prop_assert_eq!(congestion.decide(&seen, true), None);
        }
    }
}
