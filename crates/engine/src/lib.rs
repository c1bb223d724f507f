//! Where godwit meets the world: sockets, files, threads, clocks.
//!
//! # Map
//! - [`storage`]: where files live, behind one trait: POSIX, memory, zeros and null, faulty; their
//!   checksums, listings and line ends of TYPE A
//! - [`data`]: the data plane: movers, channel sets, transfers
//! - [`control`]: drives a client's protocol interpreter over a socket; control lines under a
//!   security context
//! - [`host`]: names and ports, processors, the terminal, the kernel's TCP connections, numbers for
//!   monitoring
//!
//! # Who calls whom
//! A session (of client or server) owns one [`data::ChannelSet`] at a time, made on one or more
//! [`data::Mover`]s, and starts [`data::Transfer`]s on it one after another. Movers are plain OS
//! threads, one event loop each: the kernel shares CPU time by thread, so a busy machine gives a
//! transfer with more movers more of it. The control plane is asynchronous and never touches
//! payload.

pub mod control;
pub mod data;
pub mod host;
pub mod storage;
