//! The server: godwitd.
//!
//! # Map
//! - [`config`]: flags and settings file, resolved into [`ServerSettings`]
//! - `listener`: [`Server`]: the accept loop, shutdown, reload; `limits`: who may connect and log in (pure); `gate`: how they are told
//! - `session`: one task a session: control connection, interpreter, what it waits for
//! - `requests`: requests that touch storage; `transfers`: one transfer, from `opening` its file, perhaps `ahead` of its turn,
//!   to the `checks` its success depends on; `shared_writer`: the end of a TYPE A receipt
//! - `durability`: what 226 promises; `foreseen`: transfers whose commands wait, begun already; `data_channels`: the session's data channel object and the addresses it announces
//! - `security`: a session's handshake and protected lines; `gsi`: whom the server believes, and who may come
//! - `audit`: the audit log; `privsep`: processes without privileges
//! - `login`: who may log in and what they may do; `outbox`: replies not yet read; [`log`]: the log
//!
//! # Contract
//! [`Server::bind`], print [`Server::local_addrs`], then [`Server::run`] until its shutdown future is ready.
//! Nothing here prints or exits.

mod ahead;
mod audit;
mod checks;
mod data_channels;
mod durability;
mod foreseen;
mod gate;
mod gsi;
mod limits;
mod listener;
mod login;
mod opening;
mod outbox;
mod privsep;
mod requests;
mod security;
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

use audit::Audit;
use durability::Committer;
use gsi::Gsi;
use privsep::{link::ChildEnd, parent::Accounts};

pub use audit::AuditError;
pub use durability::Durability;

pub use config::{Anonymous, Arguments, ConfigError, GsiSettings, ServerSettings};
pub use gsi::GsiError;
pub use limits::Bounds;
pub use listener::{Reloader, Server, ServerError};
pub use privsep::{Protection, Role, Separation, run_child};

/// What all sessions that began under the same settings share.
struct Service {
    settings: ServerSettings,
    /// Also the way to storage.
    committer: Arc<Committer>,
    /// Where users prove who they are.
    gsi: Option<Arc<Gsi>>,
    audit: Arc<Audit>,
    /// One permit for each core: CKSM keeps one busy.
    checksums: Arc<Semaphore>,
    /// Of a process that meets strangers: who decides on logins.
    parent: Option<Arc<ChildEnd>>,
    /// Of a privileged parent: whom its processes are.
    accounts: Option<Arc<Accounts>>,
}

impl Service {
    fn new(mut settings: ServerSettings, audit: Arc<Audit>) -> Result<Self, ServerError> {
        let storage = PosixStorage::rooted(&settings.root).map_err(|error| ServerError::Root {
            path: settings.root.clone(),
            error,
        })?;
        let gsi = settings.gsi.as_ref().map(Gsi::load).transpose()?;
        let separated = |error: &dyn std::fmt::Display| ServerError::Separation(error.to_string());
        let accounts = match &settings.separation {
            Some(separation) => {
                privsep::prepare(separation).map_err(|error| separated(&error))?;
                // Sessions begin elsewhere.
                let root = settings.root.canonicalize();
                settings.root = root.map_err(|error| separated(&error))?;
                let accounts = Accounts::find(separation).map_err(|error| separated(&error))?;
                Some(Arc::new(accounts))
            }
            None => None,
        };
        Ok(Self {
            accounts,
            ..Self::on(Arc::new(storage), settings, audit, gsi)
        })
    }

    fn on(
        storage: Arc<dyn Storage>,
        settings: ServerSettings,
        audit: Arc<Audit>,
        gsi: Option<Gsi>,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            committer: Committer::new(settings.durability, storage),
            gsi: gsi.map(Arc::new),
            settings,
            audit,
            checksums: Arc::new(Semaphore::new(cores)),
            parent: None,
            accounts: None,
        }
    }
}

fn failure(errno: Errno, doing: &str) -> StorageFailure {
    failure_of(&errno.into(), doing)
}

fn failure_of(error: &std::io::Error, doing: &str) -> StorageFailure {
    godwit_engine::storage::failure(doing, error)
}
