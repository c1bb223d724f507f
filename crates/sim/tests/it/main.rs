//! Whole simulations against what is known of them.

mod closed_forms;
mod fluid;
mod properties;
mod support;
mod topologies;
mod transfers;
