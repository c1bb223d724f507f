//! One file between two ends.
//!
//! # Map
//! - [`upload`], [`download`]: one file; [`remote_source`]: which commands fetch a part of a file
//! - [`resume`]: which bytes of a partial file are right; [`verify`]: checksums of both ends
//! - [`stealable_ranges`]: what a session without work can take from another
//! - [`pipeline`]: many small files in flight on one session

pub(crate) mod download;
pub(crate) mod pipeline;
mod remote_source;
pub(crate) mod resume;
mod stealable_ranges;
pub(crate) mod upload;
pub(crate) mod verify;
