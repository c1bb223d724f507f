//! The client: copies files with GridFTP, and manages what lies on servers.
//!
//! # Map
//! - [`cli`]: the command line; [`spec`]: what it comes to
//! - [`job`]: a copy from plan to summary; [`plan`]: finding files; [`transfer::download`],
//!   [`transfer::upload`], [`transfer::remote_source`],
//!   [`transfer::verify`]: one file
//! - [`session`]: one control channel with its data channels; [`session::retry`]: sessions that are
//!   replaced when they fail
//! - [`tuning::controller`]: asks the tuner while data flows; [`tuning::epoch`]: what it is told
//! - [`coordinator`]: other transfers of the user; [`tuning::coordination::path_group`]: over the
//!   same path; [`tuning::coordination::host_budget`]: on this host; [`presence`]: how they meet
//! - [`file_in_flight`]: a small file among others in flight; [`transfer::pipeline::depth`]: how
//!   many of them
//! - [`local::journal`]: files that are there already; [`local::compact_set`]: what came before,
//!   where millions must be told apart
//! - [`job::piece_size`], [`stealable`]: how large files are shared between workers that come and
//!   go
//! - [`cli::globus_url_copy`]: the command line of `globus-url-copy`, translated
//! - [`manage`]: everything that is no copy; [`report::explain`]: what an event log tells
//! - [`auth::identity`]: who we are to servers; [`auth::proxy`]: short-lived credentials, made and
//!   shown;
//!   [`auth::secrets`]: passwords and tokens
//! - [`report::events`], [`report::progress`], [`report::summary`], [`error`]: what is told to
//!   people and programs;
//!   [`report::tui`]: what fills a terminal; [`report::metrics_file`]: what monitoring takes up
//! - [`spec::filter`]: which names a sync compares
//! - [`attributes`]: times and permissions of copies
//! - [`session::home`]: where paths begin that only the server knows; [`local::files`],
//!   [`local::durability`]: this machine's files, and how safe they are; [`context`]: what all
//!   parts of a run share
//!
//! The library never prints and never exits: it tells an [`report::events::Observer`], and
//! `main.rs` does both. Everything asynchronous runs on the caller's thread; payload moves on the
//! engine's mover threads.

pub mod auth;
pub mod cli;
mod context;
mod endpoint;
pub mod error;
pub mod job;
mod local;
pub mod manage;
mod panics;
mod plan;
pub mod report;
mod session;
pub mod spec;
mod transfer;
mod tuning;
mod units;

pub use self::context::Stop;
