//! Packets without packets: links, TCP and transfers as a pure simulation.
//!
//! # Map
//! - [`path`]: one direction of a link: rate, queue, loss, delay; the emulator of the laboratory
//!   uses it, too
//! - [`network`]: nodes, links and static routes between them
//! - [`tcp`]: senders and receivers, one published algorithm a file
//! - [`Simulation`]: flows over a network, event by event
//! - [`fluid`]: flows as rates, where packets would be too many
//! - [`transfer`]: a transfer over many channels, and the tuner that chooses their number
//! - `events`: what happens next
//!
//! # Contract
//! A simulation has no clock, does no I/O, starts no thread and takes its randomness from a seed:
//! equal arguments give equal results, to the last bit of [`Simulation::trace`]. Times are
//! nanoseconds since its beginning; TCP counts in packets, as ns-2 does.

mod events;
pub mod fluid;
pub mod network;
pub mod path;
mod simulation;
pub mod tcp;
pub mod transfer;

pub use simulation::{FlowConfig, FlowId, FlowStats, PoolId, Simulation, Supply, Totals};

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
