//! GSI security.

pub mod cert;
mod der;
pub mod name;
