//! Thousands of faults, each at a moment that a seed chooses, and what must hold after each:
//!
//! - given again until it says that all is done, the command leaves every file identical,
//! - at no moment is anything but the whole file seen under a final name,
//! - nothing temporary stays behind,
//! - and little is sent again: 1 % of the bytes and a block for each channel.
//!
//! [`plan`] says what happens (pure), [`Campaign`] lets it happen to real programs. Each fault is
//! one command: `godwit cp -r` of a [`Shape`] between a client and a server, or two servers. The
//! moment is one in the state of the target (so many bytes are there), not one in time. What is
//! sent is counted by the kernels of the hosts, and compared with the same command undisturbed.
//!
//! Faults of what client and server say to each other, `dialogue`, have trees and commands of their
//! own, and other promises. So have those of the transfer service, `service`. [`kills`] has one
//! large file instead of many.
//!
//! Programs that are killed share a host and talk over its loopback; what concerns the path happens
//! on an emulated one of 1 Gbit/s and 2 ms.

mod account;
mod campaign;
mod dialogue;
mod durable;
mod forgetful_disk;
pub mod kills;
mod memory_disk;
mod outcome;
pub mod plan;
mod relay;
pub mod service;
mod stage;
mod store;
mod summary;
mod watch;

pub use campaign::Campaign;
pub use campaign::kinds_here;
pub use dialogue::Dialogues;
pub use forgetful_disk::ForgetfulDisk;
pub use outcome::Outcome;
pub use plan::{Fault, Kind, Shape, Way};
pub use summary::{Row, summarise};
pub use watch::{TargetWatch, difference, temporary_files};

use crate::file_error::FileError;
use crate::network;
use crate::peers;

/// Why a campaign cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The hosts, the path, or a program in a host.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A program.
    #[error(transparent)]
    Peer(#[from] peers::Error),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
}
