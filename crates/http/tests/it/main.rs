//! Replays the corpora of the fuzz targets of this crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod corpus;
mod parsers;

#[path = "../../../../fuzz/replay.rs"]
mod replay;
