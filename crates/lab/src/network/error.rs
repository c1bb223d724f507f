//! Why a network cannot be set up or changed.

use std::io;

use crate::emulator;
use crate::netns::Unavailable;
use crate::peers;

/// Why there is no network, or why it cannot do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine does not let us: it must be prepared, or another user must run this.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The configuration makes no sense.
    #[error("{field}: {reason}")]
    Config {
        /// Which field: `joins[0].paths.forward.rate_bps`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No host of that name.
    #[error("no host {0}")]
    NoSuchHost(String),
    /// The kernel refused a setting of a host.
    #[error("host {host}: set {key} to {value}: {source}")]
    Setting {
        /// The host.
        host: String,
        /// The setting.
        key: String,
        /// The value it did not like.
        value: String,
        /// What it said.
        source: io::Error,
    },
    /// The kernel refused us something else.
    #[error("host {host}: {action}: {source}")]
    Os {
        /// The host; `-` for the network as a whole.
        host: String,
        /// What was attempted.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The emulator.
    #[error(transparent)]
    Emulator(#[from] emulator::Error),
    /// A program in a host.
    #[error(transparent)]
    Program(#[from] peers::Error),
}

impl Error {
    pub(crate) fn os(host: &str, action: &str) -> impl FnOnce(io::Error) -> Error + use<> {
        let (host, action) = (host.to_owned(), action.to_owned());
        move |source| Error::Os {
            host,
            action,
            source,
        }
    }
}
