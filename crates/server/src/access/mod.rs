//! Who may connect and log in, what a login may do, and how accounts share the server.

pub(crate) mod accounts;
pub(crate) mod admission;
pub(crate) mod channel_quota;
pub(crate) mod copies;
pub(crate) mod gsi;
pub(crate) mod identity;
pub(crate) mod issued;
pub(crate) mod limits;
pub(crate) mod long_calls;
pub(crate) mod owner;
pub mod passwords;
pub(crate) mod rights;
pub mod s3_keys;
pub(crate) mod scoped;
pub(crate) mod security;
pub(crate) mod tokens;
pub(crate) mod turns;
