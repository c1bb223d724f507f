//! The root directory as sessions see it: rights, durability, leftovers of uploads.

pub(crate) mod durability;
pub(crate) mod reaper;
pub(crate) mod scoped;
