//! Peers, emulated networks, scenarios and the demo: godwit-lab.

pub mod commands;
pub mod path;
pub mod peers;
