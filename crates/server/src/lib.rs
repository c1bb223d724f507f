//! The server: godwitd.
//!
//! # Map
//! - [`config`]: flags and settings file, resolved into [`ServerSettings`]
//! - `listener`: [`Server`]: the accept loop, limits, shutdown, reload
//! - `session`: one task a session: control connection, interpreter, what it waits for
//! - `requests`: requests that touch storage; `transfers`: opening, moving, checking a file;
//!   `shared_writer`: the end of a TYPE A receipt
//! - `data_channels`: the session's data channel object and the addresses it announces
//! - `login`: who may log in and what they may do; `outbox`: replies not yet read; [`log`]: the log
//!
//! # Contract
//! [`Server::bind`], print [`Server::local_addrs`], then [`Server::run`] until its shutdown future is ready.
//! Nothing here prints or exits.

mod data_channels;
mod listener;
mod login;
mod outbox;
mod requests;
mod session;
mod shared_writer;
mod transfers;

pub mod config;
pub mod log;

use std::sync::Arc;

use godwit_engine::storage::{PosixStorage, Storage};
use godwit_proto::error::StorageFailure;
use rustix::io::Errno;
use tokio::sync::Semaphore;

pub use config::{Anonymous, Arguments, ConfigError, ServerSettings};
pub use listener::{Reloader, Server, ServerError};

/// What all sessions that began under the same settings share.
struct Service {
    settings: ServerSettings,
    storage: Arc<dyn Storage>,
    /// One permit for each core: CKSM keeps one busy.
    checksums: Arc<Semaphore>,
}

impl Service {
    fn new(settings: ServerSettings) -> Result<Self, ServerError> {
        let storage = PosixStorage::rooted(&settings.root).map_err(|error| ServerError::Root {
            path: settings.root.clone(),
            error,
        })?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            settings,
            storage: Arc::new(storage),
            checksums: Arc::new(Semaphore::new(cores)),
        })
    }
}

fn failure(errno: Errno, doing: &str) -> StorageFailure {
    failure_of(&errno.into(), doing)
}

fn failure_of(error: &std::io::Error, doing: &str) -> StorageFailure {
    godwit_engine::storage::failure(doing, error)
}
