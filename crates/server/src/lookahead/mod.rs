//! Work done before the turn of its command: what may be done early, and what is known of files
//! that moved last.

pub(crate) mod preopen;
pub(crate) mod recent_files;
pub(crate) mod reorder;
pub(crate) mod speculative;
