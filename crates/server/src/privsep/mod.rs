//! Privilege separation: an unprivileged process reads the bytes of unauthenticated clients, and
//! each session runs as its user's account.
//!
//! ```text
//!            listens, knows gridmap and accounts, opens CA files, writes the audit log
//!            ┌───────── monitor (root) ────────┐
//!     link: may I be …?              link: audit events, CA files, turns
//!            │  one for each connection        │  one for each login
//!     pre-login (nobody, no files) ──relay── session (the account's uid and groups)
//!       AUTH, TLS, protection      clear        commands, files, data channels
//!            │                     lines                  │
//!       control connection                          data connections
//! ```
//! Both are this program again, under a hidden argument, with the link as standard input and
//! output. The monitor greets a connection and starts a pre-login process when the first byte of
//! the peer arrives, so a silent peer costs one descriptor. The pre-login process, and through it
//! the peer, learns that a login has succeeded when the session has its account's ids and has
//! opened the root.
//!
//! - [`messages`]: the messages of a link (`foreign`: fuzzed); [`link`]: its two ends
//! - [`monitor`]: one connection as root sees it; [`process`]: a child process of the monitor
//! - [`node_monitor`], `node_session`: the same at a data node, whose front end vouches for users
//! - [`child`]: how child processes begin; [`pre_login`], [`session`]: their work; [`relay`]: the
//!   bytes between the two; [`turns`]: processors for checksums; [`log_lines`]: what child
//!   processes write to the log; [`reaper`]: a process that removes leftovers of uploads
//! - [`sandbox`] and [`syscalls`]: what processes give up

mod child;
#[cfg(any(test, fuzzing))]
pub(crate) mod foreign;
pub(crate) mod link;
mod log_lines;
pub(crate) mod messages;
pub(crate) mod monitor;
pub(crate) mod node_monitor;
mod node_session;
mod pre_login;
mod process;
mod reaper;
mod relay;
pub(crate) mod sandbox;
mod session;
mod syscalls;
mod turns;

pub(crate) use self::reaper::reap;
pub use self::sandbox::Protection;

use std::{process::ExitCode, sync::Arc};

use rustix::process::setsid;
use tracing::error;

use self::link::ChildEnd;

/// Kinds of child processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads what a client sends before login.
    PreLogin,
    /// Serves a user after login, as the user's account.
    Session,
    /// Moves the data of a user at a data node, as the user's account.
    NodeSession,
    /// Removes leftovers of uploads of all accounts.
    Reaper,
}

impl Role {
    /// The role of a hidden first argument.
    pub fn of_argument(argument: &str) -> Option<Self> {
        let all = [
            Self::PreLogin,
            Self::Session,
            Self::NodeSession,
            Self::Reaper,
        ];
        all.into_iter().find(|role| role.argument() == argument)
    }

    fn argument(self) -> &'static str {
        match self {
            Self::PreLogin => "privsep-front",
            Self::Session => "privsep-session",
            Self::NodeSession => "privsep-node",
            Self::Reaper => "privsep-reaper",
        }
    }
}

/// Runs to the end of one connection, or one sweep. Standard input and output must be the link to
/// the monitor, and there must be no thread yet.
pub fn run_child(role: Role) -> ExitCode {
    // The log may go to the monitor's terminal. Its input and its signals are not for this process.
    if setsid().is_err() {
        return ExitCode::FAILURE;
    }
    let link = match ChildEnd::of_standard_streams() {
        Ok(link) => Arc::new(link),
        Err(_) => return ExitCode::FAILURE,
    };
    let ended = match role {
        Role::PreLogin => pre_login::run(link),
        Role::Session => session::run(link),
        Role::NodeSession => node_session::run(link),
        Role::Reaper => reaper::run(&link),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!(?role, %why, "a child process failed");
            ExitCode::FAILURE
        }
    }
}
