//! What `godwitd` does beside serving.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `godwitd` does beside serving.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Add a user to a password file, or change a user's password, which the terminal asks for
    Passwd(PasswdArguments),
    /// Make keys and certificates by which front ends and data nodes know one another
    #[command(after_help = NODE_KEY_EXAMPLES)]
    NodeKey(NodeKeyArguments),
    /// Add a key for --s3 to a file of keys, and print it with its secret, or remove one
    S3Key(S3KeyArguments),
}

const NODE_KEY_EXAMPLES: &str = "\
Examples:
  On one machine, such as the front end, which keeps site-ca.key:
      cd /etc/godwit
      godwitd node-key ca
      godwitd node-key issue front data.example.org
      godwitd node-key issue dtn1 10.0.0.11
      godwitd node-key issue dtn2 dtn2.example.org 10.0.0.12
  Then bring site-ca.pem, dtn1.pem and dtn1.key to the first node, by a safe way, and name them
  there: node-ca, node-cert, node-key. A certificate is for the name or address by which the front
  end reaches the node.";

/// The command line of `godwitd node-key`.
#[derive(Clone, Debug, Args)]
pub struct NodeKeyArguments {
    /// What to make.
    #[command(subcommand)]
    pub verb: NodeKeyVerb,
}

/// What `godwitd node-key` makes.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeKeyVerb {
    /// Make the authority of the site: site-ca.pem and site-ca.key
    Ca {
        /// What its certificates have as O
        #[arg(long, value_name = "NAME", default_value = "Site")]
        organization: String,
        /// Where, for how long, and over what
        #[command(flatten)]
        to: NodeKeyFiles,
    },
    /// Make a key and a certificate of the authority: NAME.pem and NAME.key
    Issue {
        /// Name of the machine, and of the files
        #[arg(value_name = "NAME")]
        name: String,
        /// Host names and addresses by which it is reached
        #[arg(value_name = "HOST", required = true)]
        hosts: Vec<String>,
        /// Where, for how long, and over what
        #[command(flatten)]
        to: NodeKeyFiles,
    },
}

/// Where `godwitd node-key` writes.
#[derive(Clone, Debug, Args)]
pub struct NodeKeyFiles {
    /// Directory of the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Days for which the certificate is valid, at most those of the authority
    #[arg(long, value_name = "DAYS", default_value_t = 3650,
        value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
    /// Replace files of that name
    #[arg(long)]
    pub force: bool,
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

/// The command line of `godwitd s3-key`.
#[derive(Clone, Debug, Args)]
#[command(mut_args = super::switch)]
pub struct S3KeyArguments {
    /// The file of keys; created if missing
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Account whose sessions, limits and log lines are those of the key
    #[arg(value_name = "USER", required_unless_present = "remove")]
    pub user: Option<String>,
    /// What the key reaches, below --root of the server, as /bucket or /bucket/directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub home: String,
    /// The key may only read
    #[arg(long)]
    pub read_only: bool,
    /// Remove this access key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["user", "home", "read_only"])]
    pub remove: Option<String>,
}
