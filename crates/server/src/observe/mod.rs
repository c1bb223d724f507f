//! What the server reports of itself: logs, audit log, metrics.

pub(crate) mod audit;
pub(crate) mod class;
pub(crate) mod counting;
pub(crate) mod event;
pub mod log;
pub(crate) mod metrics;
