//! GSI security, as pure values: who a peer is, and how it proves it.
//!
//! # Map
//! - [`cert`]: certificates, keys, credentials in files, new proxies, delegation
//! - [`verify`]: path validation for chains that end in proxies; names of hosts
//! - [`name`]: distinguished names on one line
//!
//! Only [`cert::files`] and [`verify::Directory`] touch files. Time is an argument and never read.

pub mod cert;
mod der;
pub mod name;
pub mod verify;
