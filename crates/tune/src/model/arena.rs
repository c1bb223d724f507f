//! Tuners against a simulated clock.

use std::time::Duration;

use super::{Condition, Steady};
use crate::{Bottleneck, Decision, Observation, Setting, Tuner, random::Random};

/// Length of a simulated step, s.
pub const STEP_S: f64 = 0.02;
/// Time in which noise forgets half of itself, about, s.
const NOISE_MEMORY_S: f64 = 0.5;
/// Longest time to wait for a new setting to settle, s.
const SETTLE_MAX_S: f64 = 2.0;

/// One transfer of a run.
pub struct Entrant {
    /// The tuner.
    pub tuner: Box<dyn Tuner>,
    /// Epoch where the tuner wants none in particular, s.
    pub epoch_s: f64,
    /// When it begins, s.
    pub from_s: f64,
}

/// What a transfer did in each step of the clock, from the beginning of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// Goodput without noise, bit/s; 0 before it began.
    pub goodput_bps: Vec<f64>,
    /// Channels; 0 before it began.
    pub channels: Vec<u32>,
    /// When it decided what.
    pub decisions: Vec<(f64, Decision)>,
}

/// Runs one transfer.
pub fn run(entrant: Entrant, condition: &Condition, seed: u64) -> Track {
    run_together(vec![entrant], condition, seed)
        .pop()
        .expect("as many tracks as entrants")
}

/// Runs transfers over the same path.
pub fn run_together(entrants: Vec<Entrant>, condition: &Condition, seed: u64) -> Vec<Track> {
    let mut noise = Random::new(seed);
    let mut lanes: Vec<Lane> = entrants.into_iter().map(Lane::new).collect();
    let mut t = 0.0;
    while t < condition.seconds {
        let channels: Vec<u32> = lanes.iter().map(|lane| lane.channels(t)).collect();
        let all: u32 = channels.iter().sum();
        for (lane, own) in lanes.iter_mut().zip(channels) {
            lane.step(t, condition, all - own, &mut noise);
        }
        t += STEP_S;
    }
    lanes.into_iter().map(|lane| lane.track).collect()
}

/// A transfer under way.
struct Lane {
    entrant: Entrant,
    setting: Setting,
    /// What the setting promises, and under which load and how many others.
    steady: Option<(Setting, usize, u32, Steady)>,
    goodput_bps: f64,
    /// Deviation of the noise, in its standard deviations.
    wave: f64,
    epoch: Epoch,
    track: Track,
}

struct Epoch {
    begins_s: f64,
    ends_s: f64,
    bits: f64,
}

impl Lane {
    fn new(mut entrant: Entrant) -> Self {
        let first = entrant.tuner.first();
        let setting = first.setting;
        // Connections open and their slow start passes first, as after any other change.
        let epoch = Epoch {
            begins_s: entrant.from_s,
            ends_s: entrant.from_s,
            bits: -1.0,
        };
        let mut track = Track::default();
        track.decisions.push((entrant.from_s, first));
        Self {
            entrant,
            setting,
            steady: None,
            goodput_bps: 0.0,
            wave: 0.0,
            epoch,
            track,
        }
    }

    fn channels(&self, t: f64) -> u32 {
        if t < self.entrant.from_s {
            0
        } else {
            self.setting.channels()
        }
    }

    fn step(&mut self, t: f64, condition: &Condition, others: u32, noise: &mut Random) {
        self.track.channels.push(self.channels(t));
        if t < self.entrant.from_s {
            self.track.goodput_bps.push(0.0);
            return;
        }
        if self.epoch.bits < 0.0 {
            let first = self.track.decisions[0].1.clone();
            self.epoch = self.next_epoch(t, condition, &first, true);
        }
        let steady = self.steady(t, condition, others);
        // Slow starts and the yielding of others take a few round trips.
        let tau = (3.0 * condition.rtt_s).max(STEP_S);
        self.goodput_bps += (steady.goodput_bps - self.goodput_bps) * (1.0 - (-STEP_S / tau).exp());
        self.track.goodput_bps.push(self.goodput_bps);
        let keep = (-STEP_S / NOISE_MEMORY_S).exp();
        self.wave = keep * self.wave + (1.0 - keep * keep).sqrt() * noise.normal();
        let sigma = condition.noise;
        let seen = self.goodput_bps * (sigma * self.wave - sigma * sigma / 2.0).exp();
        if t >= self.epoch.begins_s {
            self.epoch.bits += seen * STEP_S;
        }
        if t + STEP_S >= self.epoch.ends_s {
            let seconds = t + STEP_S - self.epoch.begins_s;
            let mut observation =
                Observation::of_rate(self.setting, self.epoch.bits / seconds, seconds);
            if condition.evidence {
                add_evidence(&mut observation, condition, &steady);
            }
            let decision = self.entrant.tuner.decide(&observation);
            let changed = decision.setting != self.setting;
            self.setting = decision.setting;
            self.epoch = self.next_epoch(t + STEP_S, condition, &decision, changed);
            self.track.decisions.push((t + STEP_S, decision));
        }
    }

    fn steady(&mut self, t: f64, condition: &Condition, others: u32) -> Steady {
        let phase = condition
            .loads
            .iter()
            .filter(|load| load.from_s <= t)
            .count();
        match self.steady {
            Some((setting, p, o, steady)) if (setting, p, o) == (self.setting, phase, others) => {
                steady
            }
            _ => {
                let steady = condition.steady(self.setting, &condition.load(t), others);
                self.steady = Some((self.setting, phase, others, steady));
                steady
            }
        }
    }

    /// A changed setting settles first, which is not measured: eight round trips, at least 0.1 s.
    fn next_epoch(
        &self,
        t: f64,
        condition: &Condition,
        decision: &Decision,
        changed: bool,
    ) -> Epoch {
        let settle = if changed {
            (8.0 * condition.rtt_s).clamp(0.1, SETTLE_MAX_S)
        } else {
            0.0
        };
        let length = decision
            .epoch_seconds
            .unwrap_or(self.entrant.epoch_s)
            .max(STEP_S);
        Epoch {
            begins_s: t + settle,
            ends_s: t + settle + length,
            bits: 0.0,
        }
    }
}

/// What `TCP_INFO` and the scheduler would show.
fn add_evidence(seen: &mut Observation, condition: &Condition, steady: &Steady) {
    let mostly = |limit| Some(if steady.limit == limit { 0.9 } else { 0.05 });
    let queue = if steady.limit == Bottleneck::PathCapacity {
        1.5
    } else {
        1.05
    };
    seen.loss_ratio = Some(steady.loss_ratio);
    seen.rtt = Some(Duration::from_secs_f64(condition.rtt_s * queue));
    seen.rtt_min = Some(Duration::from_secs_f64(condition.rtt_s));
    seen.receive_window_limited = mostly(Bottleneck::ReceiveWindow);
    seen.send_buffer_limited = mostly(Bottleneck::SendBuffer);
    seen.cpu_wait = mostly(Bottleneck::Cpu);
    seen.source_wait = mostly(Bottleneck::SourceStorage);
    seen.destination_wait = mostly(Bottleneck::DestinationStorage);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, Fixed};

    fn fixed(n: u32, from_s: f64) -> Entrant {
        Entrant {
            tuner: Box::new(Fixed::new(Setting::new(1, n), Bounds::up_to(128))),
            epoch_s: 1.0,
            from_s,
        }
    }

    #[test]
    fn a_static_setting_reaches_what_the_condition_promises() {
        let path = Condition::path(1e9, 0.02, 86_000.0);
        let track = run(fixed(8, 0.0), &path, 1);
        let end = track.goodput_bps[track.goodput_bps.len() - 1];
        assert!((end - 8.0 * 34.4e6).abs() < 1e4, "{end}");
        assert!(track.goodput_bps[0] < 0.5 * end);
    }

    #[test]
    fn a_later_copy_takes_its_share() {
        let path = Condition::path(1e9, 0.02, 1e7);
        let tracks = run_together(vec![fixed(4, 0.0), fixed(4, 30.0)], &path, 1);
        let at = |track: &Track, s: usize| track.goodput_bps[s * 50] / 1e9;
        assert!((at(&tracks[0], 29) - 1.0).abs() < 0.01);
        assert!((at(&tracks[0], 59) - 0.5).abs() < 0.01);
        assert_eq!(at(&tracks[1], 29), 0.0);
    }

    #[test]
    fn one_seed_decides_everything() {
        let path = Condition {
            noise: 0.1,
            ..Condition::path(1e9, 0.02, 1e7)
        };
        assert_eq!(run(fixed(4, 0.0), &path, 3), run(fixed(4, 0.0), &path, 3));
    }
}
