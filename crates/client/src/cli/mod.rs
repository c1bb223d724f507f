//! The command line: one definition per flag, then one step from raw flags to a resolved request.
//!
//! # Map
//! - this file: what users may type, with its help
//! - [`transfer_args`]: how files are moved; [`sync_args`]: what is beside that when trees are made
//!   alike; [`s3_args`]: what is asked of buckets; [`service_args`]: what a transfer service does
//! - [`resolve`]: what it means, with [`endpoints`]: every contradiction is found there and nowhere
//!   else
//! - [`globus_url_copy`]: the command line of `globus-url-copy`

mod endpoints;
pub mod globus_url_copy;
mod resolve;
mod s3_args;
mod service_args;
mod sync_args;
mod transfer_args;

use std::{ffi::OsString, net::IpAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use godwit_gsi::{
    cert::key::{KeyKind, RSA_BITS_MAX, RSA_BITS_MIN},
    name::DistinguishedName,
};
use godwit_proto::{ChecksumAlgorithm, security::MinProtection};

use self::{
    s3_args::S3Args,
    service_args::{
        ChangeArgs, CloneArgs, JobArgs, JobsArgs, LoginArgs, LogoutArgs, ScheduleVerb, SubmitArgs,
        WaitArgs,
    },
    sync_args::SyncArgs,
    transfer_args::TransferArgs,
};
use crate::spec::Preserve;

pub(crate) use self::resolve::without_passwords;
pub use self::resolve::{EarlyExit, Environment, parse};

/// The definition of the command line, for manuals and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The value of an argument, or why it is wrong.
type Resolved<T> = Result<T, String>;

/// Copies files with GridFTP, and manages files at servers.
#[derive(Debug, Parser)]
#[command(
    name = "godwit",
    version,
    about = "Copies files with GridFTP, and manages what lies on servers",
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "Examples:\n  \
                  godwit cp big.tar gsiftp://host/incoming/      one file up, verified\n  \
                  godwit cp -r gsiftp://host/run7/ ./run7/       a directory down\n  \
                  godwit cp -p 16 'ftp://host/run7/*.root' .     sixteen channels, a wildcard\n  \
                  godwit sync -n ./run7/ gsiftp://host/run7      what would have to be copied\n  \
                  godwit ls -l gsiftp://host/incoming/\n  \
                  godwit explain events.json                     what limited a copy made with \
                  --events\n  \
                  godwit top                                     what runs now\n  \
                  godwit submit -r gsiftp://a/run7 gsiftp://b/run7   give it to a service, go \
                  home\n\n\
                  URLs: gsiftp://[user@]host[:2811]/path, sshftp://[user@]host[:22]/path, \
                  ftpes://[user@]host[:21]/path, \
                  https:// or davs://[user@]host[:443]/path, \
                  s3://[profile@]bucket/key, \
                  ftp://host/path, file:///path, a bare local path, or - for standard input or \
                  output.\n\
                  gsiftp:// logs in with a grid identity: make a proxy first (godwit proxy init). \
                  sshftp:// logs in as ssh does, and \
                  starts a server there. ftpes:// is FTP over TLS, https:// and davs:// are \
                  HTTP and WebDAV over TLS, and all \
                  log in with a bearer token, or with a password, as ftp:// does in clear: of \
                  GODWIT_PASSWORD, ~/.netrc or the \
                  terminal where the URL names a user, else as anonymous. s3:// \
                  has the keys and the service of \
                  AWS_ACCESS_KEY_ID, \
                  AWS_ENDPOINT_URL or ~/.aws.\n\n\
                  Exit status: 0 done, 1 some files failed, 2 wrong usage, 3 refused (identity, \
                  permission), \
                  4 failed (network, storage, protocol), 124 time over (wait), 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UploadsVerb {
    /// List them: when each was begun, its object, and the service's name for it
    Ls {
        /// s3://bucket/ and what their keys begin with
        #[arg(value_name = "URL")]
        url: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Abort all of them, also those that other programs still send
    Rm {
        /// s3://bucket/ and what their keys begin with
        #[arg(value_name = "URL")]
        url: OsString,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Copy files and directories
    #[command(after_help = CP_AFTER_HELP, override_usage = "godwit cp [OPTIONS] <SRC>... <DST>")]
    Cp(Box<CpArgs>),
    /// List a directory, or one file
    Ls {
        /// With type, permissions, owner, size and time
        #[arg(short = 'l', long)]
        long: bool,
        /// With a slash behind the names of directories
        #[arg(short = 'F', long, conflicts_with = "long")]
        classify: bool,
        /// As JSON, an object a line
        #[arg(long, conflicts_with_all = ["long", "classify"])]
        json: bool,
        /// What to list
        #[arg(value_name = "URL")]
        url: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// Show what a server reports about files
    Stat {
        /// As JSON, an object a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        urls: Urls,
    },
    /// Show checksums, computed at the server
    Cksum {
        /// crc32c, adler32, crc64nvme, crc32, md5, sha1, sha256 or sha512; the default is the
        /// cheapest that the server has
        #[arg(short, long, value_name = "ALG", value_parser = algorithm)]
        algorithm: Option<ChecksumAlgorithm>,
        #[command(flatten)]
        urls: Urls,
    },
    /// Make directories
    Mkdir {
        /// Make parents too; no error where the directory exists
        #[arg(short = 'p', long)]
        parents: bool,
        #[command(flatten)]
        urls: Urls,
    },
    /// Remove files, and directories with -r
    Rm {
        /// Directories with all below them
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        urls: Urls,
    },
    /// Rename within one server
    Mv {
        /// What
        #[arg(value_name = "URL")]
        from: OsString,
        /// Its new name; where that is a directory, the old name inside it
        #[arg(value_name = "NEW_URL")]
        to: OsString,
        #[command(flatten)]
        common: Common,
    },
    /// List uploads to a bucket that are not complete, or abort them
    #[command(subcommand)]
    Uploads(UploadsVerb),
    /// Change permission bits
    Chmod {
        /// Octal, as 640
        #[arg(value_name = "MODE", value_parser = mode)]
        mode: u32,
        #[command(flatten)]
        urls: Urls,
    },
    /// Make a directory the same as another one: copy what differs
    #[command(after_help = sync_args::AFTER_HELP)]
    Sync(Box<SyncArgs>),
    /// Take a command line of globus-url-copy (guc -help lists its options); the same if the
    /// program is called by that name
    #[command(disable_help_flag = true)]
    Guc {
        /// The options and URLs of globus-url-copy
        #[arg(
            value_name = "WORDS",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        words: Vec<OsString>,
    },
    /// Make or show a proxy, the short-lived credential that gsiftp:// logs in with
    #[command(subcommand)]
    Proxy(ProxyVerb),
    /// Show the transfers of yours that run on this host
    #[command(after_help = TOP_AFTER_HELP)]
    Top {
        /// One JSON object a transfer, a line each
        #[arg(long)]
        json: bool,
        /// Show them once, a line each, and end; the default without a terminal
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Log in to a transfer service in a browser, once for all commands
    #[command(after_help = service_args::LOGIN_AFTER_HELP)]
    Login(LoginArgs),
    /// Forget a login at a transfer service
    Logout(LogoutArgs),
    /// Give a copy to a transfer service, which does it while you are away
    #[command(after_help = service_args::SUBMIT_AFTER_HELP)]
    Submit(Box<SubmitArgs>),
    /// Submit the files and options of a job again, as a new job
    #[command(after_help = service_args::CLONE_AFTER_HELP)]
    Clone(CloneArgs),
    /// Let a transfer service submit a job again and again
    #[command(subcommand)]
    Schedule(ScheduleVerb),
    /// List jobs of a transfer service: id, state, files, bytes, name
    #[command(after_help = service_args::TARGET_AFTER_HELP)]
    Jobs(JobsArgs),
    /// Show a job of a transfer service: how far it is, and why it waits
    #[command(after_help = service_args::TARGET_AFTER_HELP)]
    Job(JobArgs),
    /// Wait until jobs of a transfer service have ended; for batch systems and scripts
    #[command(after_help = service_args::WAIT_AFTER_HELP)]
    Wait(WaitArgs),
    /// End jobs of a transfer service for good; files that are done stay
    #[command(after_help = service_args::TARGET_AFTER_HELP)]
    Cancel(ChangeArgs),
    /// Try the failed files of jobs again
    #[command(after_help = service_args::TARGET_AFTER_HELP)]
    Retry(ChangeArgs),
    /// Stop jobs of a transfer service; partial files stay for resume
    #[command(after_help = service_args::TARGET_AFTER_HELP)]
    Pause(ChangeArgs),
    /// Let paused jobs continue
    #[command(after_help = service_args::TARGET_AFTER_HELP)]
    Resume(ChangeArgs),
    /// Read an event log (cp --events) and tell what was moved, how fast, and what limited it
    Explain {
        /// As one JSON object
        #[arg(long)]
        json: bool,
        /// The event log
        #[arg(value_name = "FILE")]
        log: PathBuf,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Urls {
    /// Files to act on
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Only errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Report features that the server lacks; twice: also the dialogue with the server, secrets
    /// masked
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Time without a reply or a byte after which a connection fails; ten times that for a checksum
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::units::seconds)]
    pub(crate) stall_timeout: Duration,
    /// Address of a host that moves data of a server, beside the host of the server itself: a data
    /// node. Needed where both ends do not prove who they are (DCAU); may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) data_host: Vec<IpAddr>,
    /// Minimum protection of data channels: clear (none), identity (both ends prove the same user),
    /// integrity (and data cannot be changed), private (nor read). A server that offers less is an
    /// error. The default is identity with gsiftp://, and with sshftp:// where the server can;
    /// private with ftpes://, which has only that and clear; clear with ftp://, which has nothing
    /// else
    #[arg(long, value_name = "LEVEL", value_parser = protect)]
    pub(crate) protect: Option<MinProtection>,
    /// Trusted CAs for servers of ftpes:// and https://: a PEM file (the server's own certificate
    /// will do), or a directory of CAs. The default is the system's CAs
    #[arg(long, value_name = "PATH")]
    pub(crate) ca: Option<PathBuf>,
    /// Proxy that gsiftp:// logs in with, in place of X509_USER_PROXY; after HOST= for that host
    /// only. May be repeated: between servers with different proxies, one gets a proxy of the
    /// other's for data channels (DCSC)
    #[arg(long, value_name = "[HOST=]FILE", value_parser = named_proxy)]
    pub(crate) proxy: Vec<NamedProxy>,
    /// Subject that servers of gsiftp:// must have, in place of their host name, as
    /// /O=Grid/CN=host/a.example.org; after HOST= for that host only. May be repeated
    #[arg(long, value_name = "[HOST=]NAME", value_parser = named_subject)]
    pub(crate) subject: Vec<NamedSubject>,
    /// The first line of FILE is the password of the user that the URL names. Without this option:
    /// GODWIT_PASSWORD, ~/.netrc, or a prompt
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Log in to ftpes:// and https:// with the bearer token in FILE. Without this option:
    /// BEARER_TOKEN, BEARER_TOKEN_FILE, XDG_RUNTIME_DIR/bt_u and /tmp/bt_u followed by the number
    /// of the user, where the URL names no user and the server takes tokens
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
    /// Send the bearer token to HOST, whatever its audience (aud) is. Without this option it is
    /// sent to hosts that aud names, to all if that is WLCG's "any", and to those of
    /// GODWIT_TOKEN_HOSTS. May be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) token_host: Vec<String>,
    /// Program that sshftp:// connects with, and its options: OpenSSH's client, or one with the
    /// same options. Without this option: GODWIT_SSH, or ssh
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,
    /// Command that sshftp:// runs at the server. Without this option: GLOBUS_REMOTE_SSHFTP, or at
    /// the server ~/.globus/sshftp, /etc/grid-security/sshftp or godwitd --ssh, whichever is found
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh_server: Option<String>,
    #[command(flatten)]
    pub(crate) s3: S3Args,
}

impl Common {
    /// For commands without a server, or with options of their own.
    pub(crate) fn of_no_server() -> Self {
        Self {
            quiet: false,
            verbose: 0,
            stall_timeout: Duration::ZERO,
            data_host: Vec::new(),
            protect: None,
            ca: None,
            proxy: Vec::new(),
            subject: Vec::new(),
            password_file: None,
            token: None,
            token_host: Vec::new(),
            ssh: None,
            ssh_server: None,
            s3: S3Args::default(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProxyVerb {
    /// Create a proxy from the user's certificate and key
    #[command(after_help = PROXY_INIT_AFTER_HELP)]
    Init(ProxyInitArgs),
    /// Show a proxy: its subject, its kind, how long it is valid
    #[command(
        after_help = "Exit status: 0 where the proxy is valid (for the time asked with \
                      --valid-for), else 3."
    )]
    Info {
        /// The proxy; the default is where init puts it
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Fail if less than this is left
        #[arg(long, value_name = "HOURS", value_parser = crate::units::hours)]
        valid_for: Option<Duration>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
}

const TOP_AFTER_HELP: &str = "\
The last second of each is shown: how much is done, goodput, time left, files, sessions x data \
channels, and what limits it. Fields of \
lines are separated by tabs: process, what, done, goodput, left, files, channels, limit.";

const PROXY_INIT_AFTER_HELP: &str = "\
Certificate and key are those of --cert and --key, else of X509_USER_CERT and X509_USER_KEY, else \
~/.globus/usercert.pem \
and ~/.globus/userkey.pem. The pass phrase of an encrypted key is asked for on the terminal. \
The proxy goes to --out, else to X509_USER_PROXY, else to /tmp/x509up_u followed by the number of \
the user. \
An existing one is replaced.";

#[derive(Debug, Args)]
pub(crate) struct ProxyInitArgs {
    /// Certificate of the user, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Where the proxy goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// How long it is valid, unless the certificate ends earlier
    #[arg(long, value_name = "HOURS", default_value = "12", value_parser = crate::units::hours)]
    pub(crate) hours: Duration,
    /// rsa (2048 bits), rsa:3072, rsa:4096 or ec (P-256): servers of the Grid Community Toolkit 13
    /// refuse delegation from ec
    #[arg(long, value_name = "TYPE", default_value = "rsa", value_parser = key_type)]
    pub(crate) key_type: KeyKind,
    /// A proxy for data only: services that start jobs refuse it
    #[arg(long)]
    pub(crate) limited: bool,
    /// The kind before RFC 3820, for old servers
    #[arg(long, conflicts_with = "path_length")]
    pub(crate) legacy: bool,
    /// Proxies that may be made below it, one after the other; the default is any number
    #[arg(long, value_name = "N")]
    pub(crate) path_length: Option<u32>,
    /// Read the pass phrase from the first line of standard input
    #[arg(long)]
    pub(crate) passphrase_stdin: bool,
}

const CP_AFTER_HELP: &str = "\
Examples:
  godwit cp big.tar gsiftp://host/incoming/          one file up; the directory is made
  godwit cp -r gsiftp://host/run7/ ./run7/           a directory down
  godwit cp gsiftp://a/run7.tar gsiftp://b/run7.tar  from server to server
  godwit cp --protect private f gsiftp://host/f      nobody reads it on the way
  godwit cp --offset 1M --length 64K ftp://host/f f  a part of a file
  godwit cp -r --max-rate 200M run7 sshftp://host/~/ as your ssh lets you in, at 200 Mbit/s
  godwit cp -r --preserve run7 gsiftp://host/        with times and permissions, also of directories
  godwit cp - gsiftp://host/log < log                from standard input
  godwit cp -r run7 s3://bucket/runs/                to a bucket, with the keys of ~/.aws

A destination that is a directory, or ends in /, takes the sources by their names; several sources \
need one. \
With -r, DIR copies the directory and DIR/ its contents, and a destination that does not exist \
becomes the copy. \
The last component of a source may hold * ? and [ ].

Where all of them are URLs the files go from server to server and do not pass here.

With --preserve copies get the time of change and the permission bits of their sources, \
directories last, when all \
in them is there; where a server cannot set them (MFMT, SITE CHMOD) or does not tell them, that is \
said, and is no failure.

Files arrive under temporary names (.godwit-*.part) beside their destination and get their names \
when they \
are whole and verified. Destinations that are special files, as /dev/null, are written in place.

A partial get (--offset, --length) makes the part the whole content of the destination; a partial \
put, and one \
from another server, writes the part at the same offset of the remote file, in place, and keeps \
the rest of it.";

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// Sources, then the destination
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    pub(crate) places: Vec<OsString>,

    /// Copy directories with all below them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Copy the paths in FILE (- for standard input), one a line, from below the one SRC to the
    /// same paths below DST
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Names of --files-from end in NUL
    #[arg(short = '0', long, requires = "files_from")]
    pub(crate) from0: bool,
    /// Give files and directories the modification time (in whole seconds) and the permission bits
    /// of their sources; without a value both. Never set-user-ID and set-group-ID bits
    #[arg(long, value_name = "times,mode", num_args = 0..=1, require_equals = true,
          default_missing_value = "times,mode", value_parser = preserve)]
    pub(crate) preserve: Option<Preserve>,
    /// First byte of a partial transfer
    #[arg(long, value_name = "N", value_parser = crate::units::bytes)]
    pub(crate) offset: Option<u64>,
    /// Bytes of a partial transfer
    #[arg(long, value_name = "N", value_parser = crate::units::bytes)]
    pub(crate) length: Option<u64>,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

fn algorithm(text: &str) -> Result<ChecksumAlgorithm, String> {
    text.parse().map_err(|e| {
        format!("{e}: use crc32c, adler32, crc64nvme, crc32, md5, sha1, sha256 or sha512")
    })
}

fn preserve(text: &str) -> Result<Preserve, String> {
    let mut preserve = Preserve::default();
    for word in text.split(',') {
        match word {
            "times" => preserve.times = true,
            "mode" => preserve.modes = true,
            _ => return Err("wanted times, mode or times,mode".to_owned()),
        }
    }
    Ok(preserve)
}

fn protect(text: &str) -> Result<MinProtection, String> {
    match text {
        "clear" => Ok(MinProtection::Clear),
        "identity" => Ok(MinProtection::Identity),
        "integrity" => Ok(MinProtection::Integrity),
        "private" => Ok(MinProtection::Private),
        _ => Err("wanted clear, identity, integrity or private".to_owned()),
    }
}

/// `--proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedProxy {
    /// `None`: for all hosts.
    pub(crate) host: Option<String>,
    pub(crate) file: PathBuf,
}

fn named_proxy(text: &str) -> Result<NamedProxy, String> {
    let (host, file) = for_host(text);
    if file.is_empty() || host.as_deref().is_some_and(str::is_empty) {
        return Err("wanted FILE or HOST=FILE".to_owned());
    }
    let file = file.into();
    Ok(NamedProxy { host, file })
}

/// `--subject`: for a host, or for all.
type NamedSubject = (Option<String>, DistinguishedName);

fn named_subject(text: &str) -> Result<NamedSubject, String> {
    let (host, name) = for_host(text);
    match DistinguishedName::parse(name) {
        Some(name) if !host.as_deref().is_some_and(str::is_empty) => Ok((host, name)),
        _ => Err("wanted a name as /O=Grid/CN=host/a.example.org, or HOST= before it".to_owned()),
    }
}

/// Splits an optional `HOST=` off; hosts as in URLs.
fn for_host(text: &str) -> (Option<String>, &str) {
    match text.split_once('=') {
        // Host names have no slash.
        Some((host, value)) if !host.contains('/') => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            (Some(host.to_owned()), value)
        }
        _ => (None, text),
    }
}

fn key_type(text: &str) -> Result<KeyKind, String> {
    let bits = match text {
        "ec" => return Ok(KeyKind::EcP256),
        "rsa" => Some(RSA_BITS_MIN),
        other => other
            .strip_prefix("rsa:")
            .and_then(|bits| bits.parse().ok()),
    };
    bits.filter(|bits| (RSA_BITS_MIN..=RSA_BITS_MAX).contains(bits))
        .map(KeyKind::Rsa)
        .ok_or_else(|| format!("wanted rsa, rsa:BITS from {RSA_BITS_MIN} to {RSA_BITS_MAX}, or ec"))
}

fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|m| *m <= 0o7777)
        .ok_or_else(|| "wanted octal permission bits, as 640".to_owned())
}
