//! The client: copies files with GridFTP, and manages what lies on servers.
//!
//! # Map
//! - [`flags`]: the command line; [`spec`]: what it comes to
//! - [`job`]: a copy from plan to summary; [`plan`]: finding files; [`get`], [`put`], [`remote`],
//!   [`verify`]: one file
//! - [`session`]: one control channel with its data channels; [`carrier`]: sessions that are
//!   replaced when they fail
//! - [`controller`]: asks the tuner while data flows; [`epoch`]: what it is told
//! - [`coordinator`]: other transfers of the user; [`group`]: over the same path; [`host`]: on this
//!   host; [`presence`]: how they meet
//! - [`file_in_flight`]: a small file among others in flight; [`pipelining`]: how many of them
//! - [`journal`]: files that are there already; [`fingerprints`]: what came before, where millions
//!   must be told apart
//! - [`pieces`], [`stealable`]: how large files are shared between workers that come and go
//! - [`guc`]: the command line of `globus-url-copy`, translated
//! - [`manage`]: everything that is no copy; [`explain`]: what an event log tells
//! - [`identity`]: who we are to servers; [`proxy`]: short-lived credentials, made and shown;
//!   [`secrets`]: passwords and tokens
//! - [`events`], [`progress`], [`summary`], [`error`]: what is told to people and programs;
//!   [`watch`]: what fills a terminal; [`metrics_file`]: what monitoring takes up
//! - [`filter`]: which names a sync compares
//! - [`attributes`]: times and permissions of copies
//! - [`home`]: where paths begin that only the server knows; [`local`], [`written`]: this machine's
//!   files, and how safe they are; [`context`]: what all parts of a run share
//!
//! The library never prints and never exits: it tells an [`events::Observer`], and `main.rs` does
//! both. Everything asynchronous runs on the caller's thread; payload moves on the engine's mover
//! threads.

mod abreast;
mod addresses;
mod carrier;
mod ceiling;
mod company;
mod congestion;
mod context;
mod controller;
mod epoch;
pub mod error;
pub mod events;
pub mod explain;
pub mod filter;
mod fingerprints;
pub mod flags;
mod flight;
mod get;
mod group;
pub mod guc;
mod home;
mod host;
mod identity;
pub mod job;
mod journal;
mod local;
pub mod manage;
mod metrics_file;
mod panics;
mod path_memory;
mod pieces;
mod pipelining;
mod plan;
pub mod progress;
pub mod proxy;
mod put;
mod remote;
mod roster;
pub mod secrets;
mod session;
pub mod spec;
mod stamp;
pub mod summary;
mod tails;
mod taking_up;
mod verify;
pub mod watch;
mod written;

pub use context::Stop;
