//! The client: copies files with GridFTP, and manages files at servers.
//!
//! # Map
//! From top to bottom; a module uses those below it.
//! - [`cli`]: the command line, and that of `globus-url-copy`; [`spec`]: what a command line asks
//!   for, resolved
//! - [`job`]: a copy from its plan to its summary: queue, workers, files that several workers share
//! - [`manage`]: `ls`, `stat`, `cksum`, `mkdir`, `rm`, `mv`, `chmod`
//! - [`service`]: commands to a transfer service
//! - [`plan`]: finds the files of a copy, and the differences of a `sync`
//! - [`tuning`]: asks the tuner while data flows, together with other transfers of the user
//! - [`transfer`]: one file: upload, download, resume, verification; pipelines of small files
//! - [`session`]: one control channel with its data channels, its commands and its transfers
//! - [`endpoint`]: a server as one user sees it; [`auth`]: who the user is to servers
//! - [`local`]: files of this machine, the journal, presence files
//! - [`report`]: events, progress, summary, terminal screen, metrics file
//! - [`context`]: what all parts of a run share; [`panics`], [`error`], [`units`]
//!
//! The library never prints and never exits: it notifies an [`report::events::Observer`], and
//! `main.rs` does both. Everything asynchronous runs on the caller's thread; payload moves on the
//! engine's mover threads.

pub mod auth;
pub mod cli;
mod context;
mod endpoint;
pub mod error;
pub mod job;
pub mod kept_sessions;
mod local;
pub mod manage;
mod panics;
mod passing;
mod plan;
pub mod report;
pub mod service;
mod session;
mod setting_target;
pub mod spec;
mod transfer;
mod tuning;
mod units;

/// The request to end a run. Clones share it.
pub use tokio_util::sync::CancellationToken;
