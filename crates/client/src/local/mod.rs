//! This machine: files, their attributes and durability, the journal, presence files.

pub(crate) mod attributes;
pub(crate) mod compact_set;
pub(crate) mod durability;
pub(crate) mod files;
pub(crate) mod journal;
pub(crate) mod presence;
