//! What `godwitd` does beside serving.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `godwitd` does beside serving.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Put a user into a password file, or change the password of one: it is asked for on the
    /// terminal
    Passwd(PasswdArguments),
}

/// The command line of `godwitd passwd`.
#[derive(Clone, Debug, Args)]
pub struct PasswdArguments {
    /// The password file; made where there is none
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Who
    #[arg(value_name = "USER")]
    pub user: String,
    /// Where the user begins, below --root of the server, and what the user cannot leave [default:
    /// as it was; everything]
    #[arg(long, value_name = "DIR")]
    pub home: Option<String>,
    /// The user reads only; =false: writes, too [default: as it was; writes]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub read_only: Option<bool>,
    /// Account of the system that sessions of the user act as where the server has --privsep
    /// [default: as it was; the one of the user's name]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Take the user out
    #[arg(long, conflicts_with_all = ["home", "read_only", "account", "stdin"])]
    pub remove: bool,
    /// Read the password from the first line of standard input
    #[arg(long)]
    pub stdin: bool,
}
