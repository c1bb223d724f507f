//! Work done before the turn of its command: what may start early, and the files that a session
//! moved last.

pub(crate) mod preopen;
pub(crate) mod recent_files;
pub(crate) mod reorder;
pub(crate) mod speculative;
