//! What users and programs read about a run.
//!
//! # Map
//! - [`events`]: what happens, and the event log; [`explain`]: a log summarised
//! - [`progress`]: counters and the progress line; [`tui`]: the terminal screen and `top`
//! - [`summary`]: the result of a job; [`metrics_file`]: for Prometheus' node_exporter

pub mod events;
pub mod explain;
pub(crate) mod metrics_file;
pub mod progress;
pub(crate) mod reporter;
pub(crate) mod session_rates;
pub mod summary;
mod totals;
pub mod tui;
