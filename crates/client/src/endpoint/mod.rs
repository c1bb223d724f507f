//! What is known of a server.

pub(crate) mod addresses;
pub(crate) mod naming;
pub(crate) mod observed_limit;
