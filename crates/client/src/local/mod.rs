//! This machine: files, their attributes and durability, the journal, presence files.
//!
//! # Map
//! - [`files`]: temporary names and the switch to the final one; [`attributes`]: times and modes;
//!   [`durability`]: when files are synced
//! - [`journal`]: which files are complete, for the next run of the same command
//! - [`directories`]: the directories of the user's state; [`presence`]: processes of one user that
//!   find each other; [`compact_set`]: a set of hashes

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

/// What a run knows of local files.
pub(crate) struct LocalState {
    pub(crate) storage: PosixStorage,
    /// Set if the job has a journal.
    pub(crate) journal: OnceLock<Arc<Journal>>,
    pub(crate) durability: LocalDurability,
    /// The user was warned that a file system lacks the requested direct I/O.
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
