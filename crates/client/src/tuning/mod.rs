//! Which setting a job runs under: control epochs, the tuner, transfers that share a path.

pub(crate) mod congestion;
pub(crate) mod controller;
mod coordination;
pub(crate) mod epoch;
pub(crate) mod path_memory;
