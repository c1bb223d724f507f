//! What people and programs are told: events, progress, summaries.

pub mod events;
pub mod explain;
pub(crate) mod metrics_file;
pub mod progress;
pub mod summary;
pub mod tui;
