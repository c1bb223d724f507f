//! Whole simulations against what is known of them.

mod closed_forms;
mod properties;
mod support;
mod topologies;
mod transfers;
