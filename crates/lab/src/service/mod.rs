//! Who gets how much of a path from the transfer service: real agents, servers and users at both
//! ends of an emulated one; and how much of several paths it uses.
//!
//! # Map
//! - `site`: the service, its agents, users and servers; jobs, and the bytes that arrived
//! - [`fairness`]: users, weights, classes, and small jobs beside large ones
//! - [`links`]: one job over agents with a path each
//! - [`tuning`]: six jobs over one bottleneck, tuned together, each for itself, and not at all
//!
//! Bytes are counted at the destination, as what its files occupy.

pub mod fairness;
pub mod links;
mod site;
pub mod tuning;

use std::io;

use crate::file_error::FileError;
use crate::network;
use crate::peers;
use crate::peers::service::ServiceError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The hosts, the path, or a program in a host.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A program.
    #[error(transparent)]
    Peer(#[from] peers::Error),
    /// The service.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The service did not do what it was asked.
    #[error("{0}")]
    Refused(String),
    /// The way to the service.
    #[error("ask the service: {0}")]
    Asked(#[from] io::Error),
}
