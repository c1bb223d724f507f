//! This machine: files, their attributes and durability, the journal, presence files.
//!
//! # Map
//! - [`files`]: temporary names and the switch to the final one; [`attributes`]: times and modes;
//!   [`durability`]: what is synced when
//! - [`journal`]: which files are complete, for the next run of the same command
//! - [`directories`]: where a user's state is; [`presence`]: processes of one user that find each
//!   other; [`compact_set`]: a set of hashes

pub(crate) mod attributes;
pub(crate) mod compact_set;
pub(crate) mod directories;
pub(crate) mod durability;
pub(crate) mod files;
pub(crate) mod journal;
pub(crate) mod presence;

use std::sync::{Arc, Once, OnceLock};

use godwit_engine::storage::PosixStorage;

use self::{durability::LocalDurability, journal::Journal};

/// What a run knows of files of this machine.
pub(crate) struct LocalState {
    pub(crate) storage: PosixStorage,
    /// Where the job keeps one.
    pub(crate) journal: OnceLock<Arc<Journal>>,
    pub(crate) durability: LocalDurability,
    /// The user was told that direct I/O was asked for and a file system has none.
    pub(crate) direct_io_warned: Once,
}

impl LocalState {
    pub(crate) fn new(storage: PosixStorage) -> Self {
        Self {
            storage,
            journal: OnceLock::new(),
            durability: LocalDurability::default(),
            direct_io_warned: Once::new(),
        }
    }
}
