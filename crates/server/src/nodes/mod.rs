//! Striping: one control channel, several data nodes (docs/striping.md).
//!
//! ```text
//!   front end: a session ── front::stripes ──┐ node link: TLS, one for each session and stripe
//!                                            ▼
//!   data node: node::DataNode ──► node::session ──► transfers (channels, movers, storage)
//! ```
//! - [`messages`]: what passes between them, pure; `foreign`: the same for the fuzz target
//! - [`link`]: one end of a link: messages, a beat, an end in time; [`pulse`]: how long ago the
//!   other end was heard; [`tls`]: who it is
//! - [`front`]: which nodes are well (`pool`), the links of a session (`stripes`), one transfer
//!   over them (`striped`)
//! - [`keys`]: keys and certificates of all ends
//! - [`node`]: godwitd --data-node; where root started it, [`crate::privsep`] has a process for
//!   each session

#[cfg(any(fuzzing, test))]
pub(crate) mod foreign;
pub(crate) mod front;
pub(crate) mod keys;
pub(crate) mod link;
pub(crate) mod messages;
pub(crate) mod node;
pub(crate) mod pulse;
mod random;
pub(crate) mod tls;
