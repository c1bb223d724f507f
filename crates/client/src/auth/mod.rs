//! Who the user is to servers: certificates and proxies, passwords, tokens.

pub mod aws;
pub mod granted;
pub(crate) mod identity;
mod private_file;
pub mod proxy;
pub mod secrets;
pub(crate) mod shared;
