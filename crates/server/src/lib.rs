//! The server: godwitd.
//!
//! # Map
//! ```text
//!   main ──► listener, ssh ──► privsep (monitor, pre-login, session)      processes
//!                 ├───────────────► session ◄─────────────┘               one task per session
//!                 └───► https                                             the same by HTTP
//!                requests ──► transfers ──► lookahead                     the work of a session
//!         login ──► service ──► observe ──► access ──► storage, config    shared by all sessions
//! ```
//! - [`config`]: flags and settings file, resolved into [`ServerSettings`]; `import_gct`: settings
//!   of a globus-gridftp-server
//! - `listener`: [`Server`]: the accept loop, shutdown, reload; `ssh`: a session that sshd starts;
//!   [`activation`]: a server that a service manager starts; `reaper`: when leftovers of uploads
//!   are removed; `service`: what sessions share; `login`: which logins succeed; `error`: why a
//!   server cannot start
//! - `access`: who may connect (`limits`, pure; `admission`, with its login `attempts`), how users
//!   authenticate (`identity`, [`access::passwords`], `tokens`, `gsi`, `owner`, `accounts`), what a
//!   login may do (`rights`, `scoped` storage), handshakes and protected lines (`security`), and
//!   what accounts share (`channel_quota`, `turns`: processors for checksums)
//! - `session`: control connection, interpreter and replies (`control_io`), running and
//!   `speculative` work (`work`), and its log (`session_log`)
//! - `nodes`: striping: sessions whose data moves on other machines, and what runs there
//! - `https`: the same files, users and limits over HTTPS and WebDAV, and as buckets of S3
//! - `requests`: requests that touch storage; `transfers`: one transfer, from opening its file
//!   (`open`, early: `preopen`) to the `checks` that its success depends on, `checksums`, and the
//!   session's `data_channels`
//! - `lookahead`: which transfers may start out of order (`reorder`), files that moved last
//!   (`recent_files`)
//! - `storage`: what 226 promises (`durability`), `leftovers` of uploads
//! - `observe`: [`observe::log`], audit log and transfer log (`audit`), `metrics`, and the `event`s
//!   that these record, with the `class` of each failure
//! - `privsep`: unprivileged processes
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
mod https;
mod import_gct;
mod listener;
mod login;
mod lookahead;
mod nodes;
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
        AllowedHost, Anonymous, Arguments, Bounds, ConfigError, CopyAuthorities, CopySettings,
        DataNodes, Durability, GsiSettings, IssuerSettings, NodeAddress, NodeKeyArguments,
        NodeKeyFiles, NodeKeyVerb, NodeSettings, NodeTls, PasswdArguments, PasswordSettings,
        S3KeyArguments, Separation, ServerSettings, SshSettings, TlsSettings, TokenSettings, Verb,
    },
    error::{ServerError, WhoActs},
    import_gct::{ImportError, ImportedConfig},
    listener::{Reloader, Server, Status},
    nodes::{
        keys::{NodeKey, NodeKeyError, NodeKeys},
        node::DataNode,
        tls::NodeTlsError,
    },
    observe::audit::AuditError,
    privsep::{Protection, Role, run_child},
    ssh::serve as serve_ssh,
};

/// For the fuzz target: bytes of a compromised process.
#[cfg(fuzzing)]
pub fn hear_foreign_message(bytes: &[u8]) {
    privsep::foreign::message(bytes);
}

/// For the fuzz target: bytes of the other end of a node link.
#[cfg(fuzzing)]
pub fn hear_node_message(bytes: &[u8]) {
    nodes::foreign::message(bytes);
}
