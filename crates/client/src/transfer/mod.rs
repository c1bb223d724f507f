//! One file between two ends.
//!
//! # Map
//! - [`upload`], [`download`]: one file; [`remote_source`]: which commands fetch a part of a file
//! - [`resume`]: which bytes of a partial file are right; [`verify`]: checksums of both ends
//! - [`stealable_ranges`]: what a session without work can take from another
//! - [`pipeline`]: many small files in flight on one session

pub(crate) mod download;
pub(crate) mod pipeline;
pub(crate) mod range_outcome;
mod remote_source;
pub(crate) mod resume;
pub(crate) mod source_file;
mod stealable_ranges;
pub(crate) mod upload;
pub(crate) mod verify;

/// Smallest piece that a file is cut into, bytes. Below that a round trip and a slow start cost
/// more than a second session gains. Chosen arbitrarily within a factor of four.
pub(crate) const PIECE_BYTES_MIN: u64 = 8 << 20;

/// Files larger than this go one by one, so that the channels can follow the tuner while they move.
/// Those from here on may also be shared between sessions.
pub(crate) const SMALL_BYTES_MAX: u64 = 2 * PIECE_BYTES_MIN - 1;
