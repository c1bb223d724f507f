//! A transfer whose data never stops: a changed setting opens or retires channels.

use std::time::Duration;

use godwit_tune::Tuner;

use super::{
    Course, LOOK_NS,
    channels::{ChannelConfig, Channels},
    epoch::Epoch,
    hosts::{Hosts, Movers},
};
use crate::{MS, Simulation, Supply, path::Rng};

/// Longest time by which the first packets of channels that open together differ, ns: hosts are not
/// in step.
const STAGGER_NS: u64 = MS;
/// Stream of random numbers for it.
const STAGGER: u64 = 1;

/// A transfer without end.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveConfig {
    /// Its channels.
    pub channels: ChannelConfig,
    /// Epoch where the tuner wants none in particular, s.
    pub epoch_s: f64,
    /// When it ends, s since the simulation began.
    pub until_s: f64,
    /// Of what is random about it.
    pub seed: u64,
}

/// Runs it from now on, between hosts that are as fast as they need to be.
pub fn run(simulation: &mut Simulation, config: &LiveConfig, tuner: &mut dyn Tuner) -> Course {
    run_between(simulation, config, None, tuner)
}

/// Runs it from now on, between such hosts.
pub fn run_between(
    simulation: &mut Simulation,
    config: &LiveConfig,
    hosts: Option<&Hosts>,
    tuner: &mut dyn Tuner,
) -> Course {
    let mut channels = Channels::new(simulation, config.channels.clone());
    let mut rng = Rng::new(config.seed, STAGGER);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    let until = (config.until_s * 1e9) as u64;
    #[allow(clippy::cast_precision_loss, reason = "a round trip")]
    let round_trip_s = channels.round_trip_ns as f64 / 1e9;
    let mut course = Course::default();
    let first = tuner.first();
    let mut decided =
        (tuner.begin_over(Duration::from_nanos(channels.round_trip_ns))).unwrap_or(first);
    let mut settles = true;
    let mut leaps = true;
    let mut movers = hosts.map(|hosts| Movers::new(hosts, &channels));
    let supply = match hosts {
        Some(_) => Supply::Nothing,
        None => Supply::Endless,
    };
    let mut last = channels.sums(simulation);
    while last.at_ns < until {
        let wanted = decided.setting.channels() as usize;
        // A command and its reply, then the handshake.
        let ready = simulation.now() + 2 * channels.round_trip_ns;
        while channels.wanted.len() < wanted {
            let at = ready + rng.up_to(STAGGER_NS);
            channels.open(simulation, supply, at);
        }
        while channels.wanted.len() > wanted {
            channels.retire(simulation);
        }
        let seconds = decided.epoch_seconds.unwrap_or(config.epoch_s);
        let mut epoch = Epoch::new(
            decided.setting,
            seconds,
            settles,
            leaps,
            round_trip_s,
            &last,
        );
        course.decisions.push((last.at_s(), decided.clone()));
        while last.at_ns < until {
            last = match &mut movers {
                Some(movers) => movers.pass(simulation, &mut channels, LOOK_NS, until),
                None => channels.pass(simulation, LOOK_NS, until),
            };
            course.looks.push(last.look());
            let seen = match last.at_ns < until {
                true => epoch.observe(&last),
                // The client reports the last epoch, too.
                false => epoch.observe(&last).or_else(|| epoch.partial(&last)),
            };
            if let Some(seen) = seen {
                course.epochs.push(seen);
                let before = decided.setting;
                decided = tuner.decide(&seen);
                settles = decided.setting != before;
                leaps = decided.setting.channels() >= 2 * before.channels();
                break;
            }
        }
    }
    course.sent = last.sent;
    course.retransmitted = last.retransmitted;
    course
}
