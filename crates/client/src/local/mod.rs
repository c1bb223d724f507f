//! This machine: files, their attributes and durability, the journal, presence files.
//!
//! # Map
//! - [`files`]: temporary names and the switch to the final one; [`attributes`]: times and modes;
//!   [`durability`]: what is synced when
//! - [`journal`]: which files are complete, for the next run of the same command
//! - [`presence`]: processes of one user that find each other; [`compact_set`]: a set of hashes

pub(crate) mod attributes;
pub(crate) mod compact_set;
pub(crate) mod durability;
pub(crate) mod files;
pub(crate) mod journal;
pub(crate) mod presence;
