//! Where godwit meets the world: sockets, files, threads, clocks.
//!
//! # Map
//! - [`storage`]: what bytes live on, behind one trait: POSIX, memory, zero/null, faulty
//! - [`digest`]: checksums of ranges of a file
//! - [`data`]: the data plane: movers, channel sets, transfers
//! - [`control`]: drives a client's protocol interpreter over a socket; control lines under a
//!   security context
//! - [`net`]: names to addresses, listeners in a port range, limits of the process
//! - [`tcp_diag`]: what the kernel knows of TCP connections
//! - [`cpu_affinity`]: which processors a program keeps to
//! - [`prometheus_text`]: numbers as monitoring reads them
//! - [`terminal`]: secrets that people type
//! - [`line_endings`]: line ends of TYPE A
//!
//! # Who calls whom
//! A session (of client or server) owns one [`data::ChannelSet`] at a time, made on one or more
//! [`data::Mover`]s, and starts [`data::Transfer`]s on it one after another. Movers are plain OS
//! threads, one event loop each: the kernel shares CPU time by thread, so a busy machine gives a
//! transfer with more movers more of it. The control plane is asynchronous and never touches
//! payload.

pub mod control;
pub mod cpu_affinity;
pub mod data;
pub mod digest;
pub mod line_endings;
pub mod net;
pub mod prometheus_text;
pub mod storage;
pub mod tcp_diag;
pub mod terminal;
