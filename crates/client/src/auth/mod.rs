//! Who the user is to servers: certificates and proxies, passwords, tokens.

pub mod granted;
pub(crate) mod identity;
pub mod proxy;
pub mod secrets;
pub(crate) mod shared;
