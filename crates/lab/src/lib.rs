//! The lab: peers, emulated networks, scenarios, fault campaigns and the benchmark behind
//! `godwit-lab`.

pub mod calibrate;
pub mod campaign;
pub mod chaos;
pub mod chromium;
pub mod commands;
pub mod connection_totals;
pub mod emulator;
pub mod faults;
pub mod file_error;
pub mod host;
pub mod judge;
pub mod load;
pub mod netns;
pub mod network;
mod pages;
pub mod peers;
pub mod pictures;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod service;
pub mod service_load;
pub mod simulate;
pub mod soak;
pub mod state;
pub mod stats;

pub use godwit_sim::path;
