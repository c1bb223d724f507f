//! One file between two ends: uploads, downloads, checksums, pipelines.

pub(crate) mod download;
pub(crate) mod pipeline;
mod remote_source;
pub(crate) mod resume;
mod stealable_ranges;
pub(crate) mod upload;
pub(crate) mod verify;
