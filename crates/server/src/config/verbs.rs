//! What `godwitd` does beside serving.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `godwitd` does beside serving.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Add a user to a password file, or change a user's password, which the terminal asks for
    Passwd(PasswdArguments),
}

/// The command line of `godwitd passwd`.
#[derive(Clone, Debug, Args)]
#[command(mut_args = super::switch)]
pub struct PasswdArguments {
    /// The password file; created if missing
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name of the user
    #[arg(value_name = "USER")]
    pub user: String,
    /// The user's root, below --root of the server [default: unchanged; for a new user, all]
    #[arg(long, value_name = "DIR")]
    pub home: Option<String>,
    /// The user may only read; =false: write, too [default: unchanged; for a new user, false]
    #[arg(long, value_name = "BOOL")]
    pub read_only: Option<bool>,
    /// System account of the user's sessions if the server has --privsep [default: unchanged; for a
    /// new user, the account of the same name]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Remove the user
    #[arg(long, conflicts_with_all = ["home", "read_only", "account", "stdin"])]
    pub remove: bool,
    /// Read the password from the first line of standard input
    #[arg(long)]
    pub stdin: bool,
}
