//! The server: godwitd.
//!
//! # Map
//! ```text
//!   main ──► listener, ssh ──► privsep (monitor, pre-login, session)      processes
//!                 └───────────────► session ◄─────────────┘               one task a session
//!               requests, transfers ◄──┘ └──► lookahead                   what a session asks for
//!         service ──► access, storage, observe, config                    what all sessions share
//! ```
//! - [`config`]: flags and settings file, resolved into [`ServerSettings`]; `import_gct`: settings
//!   of another server
//! - `listener`: [`Server`]: the accept loop, shutdown, reload; `ssh`: a session that sshd has
//!   started; [`activation`]: a server that a service manager has started; `reaper`: when leftovers
//!   of uploads are looked for; `service`: what sessions share; `error`: why a server cannot begin
//! - `access`: who may connect (`limits`, pure; `admission`, with its login `attempts`) and log in
//!   (`identity`, `login`, [`access::passwords`], `tokens`, `gsi`, `owner`), what a login may do
//!   (`rights`), handshakes and protected lines (`security`), and what accounts share
//!   (`channel_quota`, `turns`: processors for checksums)
//! - `session`: control connection and interpreter, what a session waits for, its replies
//! - `requests`: requests that touch storage; `transfers`: one transfer, from `open`ing its file to
//!   the `checks` that its success depends on, and the session's `data_channels`
//! - `lookahead`: work before its command's turn: `speculative` transfers, files that are opened
//!   early (`preopen`), what may begin out of order (`reorder`), files that moved last
//!   (`recent_files`)
//! - `storage`: what 226 promises (`durability`), what a login may touch (`scoped`), `leftovers`
//! - `observe`: [`observe::log`], audit log and transfer log (`audit`), `metrics`, and the `event`s
//!   that these record
//! - `privsep`: processes without privileges
//!
//! No module imports another in a circle (`cargo xtask modules`).
//!
//! # Contract
//! [`Server::bind`] or [`Server::on_sockets`], print [`Server::local_addrs`], then [`Server::run`]
//! until its shutdown future is ready. Nothing here prints or exits.

pub mod access;
pub mod activation;
pub mod config;
mod error;
mod import_gct;
mod listener;
mod lookahead;
pub mod observe;
mod privsep;
mod reaper;
mod requests;
mod service;
mod session;
mod ssh;
mod storage;
mod transfers;

pub use self::{
    access::gsi::GsiError,
    config::{
        Anonymous, Arguments, Bounds, ConfigError, Durability, GsiSettings, IssuerSettings,
        PasswdArguments, PasswordSettings, Separation, ServerSettings, SshSettings, TlsSettings,
        TokenSettings, Verb,
    },
    error::ServerError,
    import_gct::{ImportError, ImportedConfig},
    listener::{Reloader, Server, Status},
    observe::audit::AuditError,
    privsep::{Protection, Role, run_child},
    ssh::serve as serve_ssh,
};

/// For the fuzz target: bytes of a compromised process.
#[cfg(fuzzing)]
pub fn hear_foreign_message(bytes: &[u8]) {
    privsep::foreign::message(bytes);
}
