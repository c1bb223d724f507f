//! The parts of the service together, with servers of ours and real agents.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod agents;
mod api;
mod failures;
mod harness;
