//! The parts of the service together, with servers of ours and real agents.

mod agents;
mod api;
mod failures;
mod harness;
