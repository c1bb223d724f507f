//! What work before the turn of its command relies on: which transfers may start out of order, and
//! the files that a session moved last.

pub(crate) mod recent_files;
pub(crate) mod reorder;
