//! Privilege separation: what meets strangers' bytes has no privileges, and who has logged in acts
//! as their own account.
//!
//! ```text
//!            listens, knows gridmap and accounts, opens CA files, writes the audit log
//!            ┌───────── parent (root) ─────────┐
//!     link: may I be …?              link: audit events, CA files
//!            │  one for each connection        │  one for each login
//!       front (nobody, no files) ──relay── session (the account's uid and groups)
//!       AUTH, TLS, protection      clear        commands, files, data channels
//!            │                     lines                  │
//!       control connection                          data connections
//! ```
//! Both are this program again, under a hidden argument, with the link as standard input and
//! output. The monitor greets a connection and starts a pre-login process when the peer has said
//! something, so that silence costs a descriptor only. A session's success is told to the pre-login
//! process, and so to the peer, when the account is taken on and the root is open.
//!
//! - [`messages`]: what passes over a link (`foreign`: fuzzed); [`link`]: how; [`accounts`]: uids
//!   and groups; [`sandbox`] and [`syscalls`]: what is given up; [`monitor`]: one connection, as
//!   root sees it, with its [`process`]es; [`child`]: how both begin; [`pre_login`] and [`session`]
//!   go on, [`relay`] joins them; [`turns`]: processors for checksums; [`log_lines`]: what it
//!   writes to the log; [`reaper`]: a process now and then that removes leftovers

pub(crate) mod accounts;
mod child;
#[cfg(any(test, fuzzing))]
pub(crate) mod foreign;
pub(crate) mod link;
mod log_lines;
pub(crate) mod messages;
pub(crate) mod monitor;
mod pre_login;
mod process;
mod reaper;
mod relay;
mod sandbox;
mod session;
mod syscalls;
mod turns;

pub(crate) use self::reaper::reap;
pub use self::{
    child::{Role, run as run_child},
    sandbox::Protection,
};

/// Makes sure that privileges can be separated here, as `separation` demands it.
pub(crate) fn prepare(separation: &Separation) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("that needs root".to_owned());
    }
    sandbox::prepare_empty_root().map_err(|error| error.to_string())?;
    let protection = Protection::of_this_kernel();
    match separation.require_sandbox && !protection.is_complete() {
        true => Err(format!("--require-sandbox: {protection}")),
        false => Ok(()),
    }
}

/// Gives up all files but those beneath `root`, and system calls that no session needs. For a
/// process that is its user already.
pub(crate) fn confine_to(root: &std::path::Path) -> std::io::Result<Protection> {
    sandbox::confine_to(root).map_err(std::io::Error::other)
}

/// How privileges are separated.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Separation {
    /// Account of the processes that meet strangers.
    pub front_user: String,
    /// Account of the users `anonymous` and `ftp`.
    pub anonymous_user: String,
    /// Account of who logs in by a token; `None`: nobody does.
    pub token_user: Option<String>,
    /// No process runs with less than all of the kernel's protection.
    pub require_sandbox: bool,
}
