//! The protocol interpreters (RFC 959 §2.2) as state machines without I/O.

pub mod client;
pub mod login;
pub mod server;
pub mod transfer;
