//! The server: godwitd.
//!
//! # Map
//! - [`config`]: flags and settings file, resolved into [`ServerSettings`]
//! - `listener`: [`Server`]: the accept loop, shutdown, reload; `limits`: who may connect and log
//!   in (pure); `gate`: how they are told; `shares`: how many data channels sessions have in all
//! - `session`: one task a session: control connection, interpreter, what it waits for
//! - `requests`: requests that touch storage; `transfers`: one transfer, from `opening` its file,
//!   perhaps `ahead` of its turn, to the `checks` its success depends on; `shared_writer`: the end
//!   of a TYPE A receipt
//! - `turns`: processors for checksums, which accounts share, in one process or in many
//! - `durability`: what 226 promises; `speculative`: transfers whose commands wait, begun already;
//!   `data_channels`: the session's data channel object and the addresses it announces;
//!   `following`: what may begin there before those before it are over; `passed`: files that moved
//!   last, for whoever asks for their checksums
//! - `security`: a session's handshake and protected lines; `gsi`: whom the server believes, and
//!   who may come
//! - `audit`: the audit log and the transfer log; `imported`: settings of another server;
//!   `privsep`: processes without privileges; `reaper`: leftovers of uploads
//! - `metrics`: what is counted, and who is there, for monitoring
//! - `login`: who may log in and what they may do; [`access::passwords`]: the file of those who
//!   have one; `tokens`: bearer tokens; `rights`: what may be done where, which `scoped` storage
//!   keeps to
//! - `ssh`: a session that sshd has started; [`activation`]: a server that a service manager has
//!   started
//! - `reply_buffer`: replies not yet read; [`observe::log`]: the log
//!
//! # Contract
//! [`Server::bind`] or [`Server::on_sockets`], print [`Server::local_addrs`], then [`Server::run`]
//! until its shutdown future is ready. Nothing here prints or exits.

pub mod access;
pub mod activation;
pub mod config;
mod import_gct;
mod listener;
mod lookahead;
pub mod observe;
mod privsep;
mod requests;
mod session;
mod ssh;
mod storage;
mod transfers;

use std::sync::Arc;

use godwit_engine::storage::{PosixStorage, Storage};
use godwit_proto::error::StorageFailure;
use rustix::io::Errno;
use tokio::sync::Semaphore;

use self::{
    access::{gsi::Gsi, turns::Turns},
    observe::audit::Audit,
    privsep::{link::ChildEnd, monitor::Accounts},
    storage::durability::Committer,
};
use godwit_gsi::{
    cert::{CredentialError, files},
    ftps,
    verify::Anchors,
};

pub use self::{
    access::{gsi::GsiError, limits::Bounds},
    config::{
        Anonymous, Arguments, ConfigError, GsiSettings, IssuerSettings, PasswdArguments,
        PasswordSettings, ServerSettings, SshSettings, TlsSettings, TokenSettings, Verb,
    },
    import_gct::{ImportError, ImportedConfig},
    listener::{Reloader, Server, ServerError, Status},
    observe::audit::AuditError,
    privsep::{Protection, Role, Separation, run_child},
    ssh::serve as serve_ssh,
    storage::durability::Durability,
};

/// For the fuzz target: bytes of a process that somebody has taken over.
#[cfg(fuzzing)]
pub fn hear_foreign_message(bytes: &[u8]) {
    privsep::foreign::message(bytes);
}

/// Threads that work on logins at a time: each reads files, or asks a monitor, and is soon done.
const LOGIN_THREADS_MAX: usize = 64;

/// What all sessions that began under the same settings share.
struct Service {
    settings: ServerSettings,
    /// Also the way to storage.
    committer: Arc<Committer>,
    /// By logins that may create files and not change them.
    made: storage::scoped::CreatedFiles,
    /// Where users prove who they are.
    gsi: Option<Arc<Gsi>>,
    audit: Arc<Audit>,
    /// AUTH TLS.
    tls: Option<ftps::Server>,
    passwords: access::passwords::Cache,
    /// One for each core: a checksum keeps one busy.
    turns: Turns,
    /// One permit for each thread that works on a login.
    logins: Arc<Semaphore>,
    /// Of a process that meets strangers: who decides on logins.
    monitor: Option<Arc<ChildEnd>>,
    /// Of a privileged monitor: whom its processes are.
    accounts: Option<Arc<Accounts>>,
    /// The one user there is, whom sshd has let in.
    owner: Option<ssh::Owner>,
}

impl Service {
    fn new(mut settings: ServerSettings, audit: Arc<Audit>) -> Result<Self, ServerError> {
        let storage = PosixStorage::rooted(&settings.root).map_err(|error| ServerError::Root {
            path: settings.root.clone(),
            error,
        })?;
        let storage = storage.with_direct_io(settings.direct_io);
        let gsi = settings.gsi.as_ref().map(Gsi::load).transpose()?;
        let separated = |error: &dyn std::fmt::Display| ServerError::Separation(error.to_string());
        let accounts = match &settings.separation {
            Some(separation) => {
                privsep::prepare(separation).map_err(|error| separated(&error))?;
                // Sessions begin elsewhere.
                let root = settings.root.canonicalize();
                settings.root = root.map_err(|error| separated(&error))?;
                let anonymous = settings.anonymous != Anonymous::Off;
                let accounts =
                    Accounts::find(separation, anonymous).map_err(|error| separated(&error))?;
                Some(Arc::new(accounts))
            }
            None => None,
        };
        if let Some(passwords) = &settings.passwords {
            access::passwords::check(&passwords.file).map_err(|error| ServerError::Passwords {
                path: passwords.file.clone(),
                error,
            })?;
        }
        for issuer in settings.tokens.iter().flat_map(|tokens| &tokens.issuers) {
            access::tokens::keys_of(issuer).map_err(|error| ServerError::Keys {
                path: issuer.keys.clone(),
                error,
            })?;
        }
        let clients = gsi.as_ref().map(Gsi::anchors);
        let tls = settings.tls.as_ref().map(|tls| tls_of(tls, clients));
        let tls = tls.transpose().map_err(GsiError::Credential)?;
        Ok(Self {
            accounts,
            tls,
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
            made: storage::scoped::CreatedFiles::default(),
            gsi: gsi.map(Arc::new),
            tls: None,
            settings,
            audit,
            passwords: access::passwords::Cache::default(),
            turns: Turns::new(cores),
            logins: Arc::new(Semaphore::new(LOGIN_THREADS_MAX)),
            monitor: None,
            accounts: None,
            owner: None,
        }
    }
}

/// `clients`: CAs by whose certificates users may say who they are.
fn tls_of(
    settings: &TlsSettings,
    clients: Option<Arc<dyn Anchors>>,
) -> Result<ftps::Server, CredentialError> {
    let credential = files::load_first_pair(&settings.host, None, std::time::SystemTime::now())?;
    ftps::Server::new(&credential, clients)
}

fn failure(errno: Errno, doing: &str) -> StorageFailure {
    failure_of(&errno.into(), doing)
}

fn failure_of(error: &std::io::Error, doing: &str) -> StorageFailure {
    godwit_engine::storage::failure(doing, error)
}
