//! A transfer in chunks, as GridFTP-APT was published: the next chunk begins with the next setting
//! when the last byte of this one is acknowledged.

use godwit_tune::{Observation, Tuner};

use super::{
    Course, LOOK_NS,
    channels::{ChannelConfig, Channels},
};
use crate::{MS, Simulation, Supply, path::Rng};

/// A chunk that takes this many times its intended length is given up: its connections close.
const LENGTHS_MAX: f64 = 30.0;
/// Time between two looks for the end of a chunk, ns.
const STEP_NS: u64 = MS;
/// As in `live`.
const STAGGER_NS: u64 = MS;
const STAGGER: u64 = 1;

/// How the channels of a chunk share its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Blocks of at most so many packets from one queue, as MODE E allows.
    Queue(u32),
    /// Equal parts from the beginning, so that the slowest channel ends the chunk.
    Even,
}

/// A transfer without end, in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkConfig {
    /// Its channels.
    pub channels: ChannelConfig,
    /// How they share a chunk.
    pub sharing: Sharing,
    /// Whether connections, with their windows, serve the next chunk, too; otherwise each chunk
    /// opens new ones.
    pub reuses: bool,
    /// Intended length of a chunk, s: the paper's Delta.
    pub delta_s: f64,
    /// When it ends, s since the simulation began.
    pub until_s: f64,
    /// Of what is random about it.
    pub seed: u64,
}

/// Runs it from now on.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "casts of floats saturate; counts of a simulation"
)]
pub fn run(simulation: &mut Simulation, config: &ChunkConfig, tuner: &mut dyn Tuner) -> Course {
    let mut channels = Channels::new(simulation, config.channels.clone());
    let mut rng = Rng::new(config.seed, STAGGER);
    let until = (config.until_s * 1e9) as u64;
    let mut course = Course::default();
    let mut decided = tuner.first();
    let mut last = channels.sums(simulation);
    while last.at_ns < until {
        let began = last;
        course.decisions.push((began.at_s(), decided.clone()));
        let n = decided.setting.channels();
        let bytes = (decided.chunk_bytes(config.delta_s))
            .unwrap_or_else(|| channels.of_windows(n, config.delta_s));
        let packets = bytes.div_ceil(u64::from(channels.payload_bytes())).max(1);
        let supplies = share(simulation, config.sharing, packets, n);
        if !config.reuses {
            while !channels.wanted.is_empty() {
                channels.retire(simulation);
            }
        }
        let command = simulation.now() + channels.round_trip_ns;
        let connected = command + channels.round_trip_ns;
        for supply in supplies.iter().skip(channels.wanted.len()) {
            let at = connected + rng.up_to(STAGGER_NS);
            channels.open(simulation, *supply, at);
        }
        // Connections of earlier chunks wait for the command only.
        simulation.run_until(command);
        let own: Vec<_> = channels.wanted.iter().copied().zip(&supplies).collect();
        for (flow, supply) in own {
            simulation.supply(flow, *supply);
        }
        let give_up = simulation.now() + (LENGTHS_MAX * config.delta_s * 1e9) as u64;
        loop {
            last = channels.pass(simulation, STEP_NS, until);
            if last.at_ns.is_multiple_of(LOOK_NS) {
                course.looks.push(last.look());
            }
            let is_whole = supplies.iter().all(|supply| match supply {
                Supply::Pool(pool) => simulation.pool_left(*pool) == 0,
                Supply::Nothing | Supply::Endless => true,
            }) && (channels.wanted.iter()).all(|flow| {
                let stats = simulation.stats(*flow);
                stats.is_open && stats.is_idle
            });
            if is_whole || last.at_ns >= until {
                break;
            }
            if last.at_ns >= give_up {
                while let Some(flow) = channels.wanted.pop() {
                    simulation.close(flow);
                    channels.abandon(simulation, flow);
                }
                break;
            }
        }
        let moved = last.bytes.saturating_sub(began.bytes);
        let seconds = last.at_s() - began.at_s();
        decided = tuner.decide(&Observation::new(decided.setting, moved, seconds));
    }
    course.sent = last.sent;
    course.retransmitted = last.retransmitted;
    course
}

fn share(simulation: &mut Simulation, sharing: Sharing, packets: u64, n: u32) -> Vec<Supply> {
    match sharing {
        Sharing::Queue(block) => {
            let pool = simulation.add_pool(packets, block);
            vec![Supply::Pool(pool); n as usize]
        }
        Sharing::Even => (0..u64::from(n))
            .map(|index| {
                // The first ones have one more where it does not divide.
                let part = packets / u64::from(n) + u64::from(index < packets % u64::from(n));
                Supply::Pool(simulation.add_pool(part, u32::MAX))
            })
            .collect(),
    }
}
