//! Settings: one definition for flag and file key, resolved into [`ServerSettings`] in one step.
//!
//! Precedence: command line, then `--config FILE`, then the environment (`GLOBUS_TCP_PORT_RANGE`
//! alone), then the default. Nothing behind [`Arguments::resolve`] looks at flags again.

mod bounds;
mod gsi;
mod logins;
mod placement;
mod ports;
mod separation;
mod ssh;
#[cfg(test)]
mod tests;
mod verbs;

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, ValueEnum};
use godwit_engine::host::{cpu_affinity::CpuAffinity, net::PortRange};
use godwit_proto::security::MinProtection;
use serde::{Deserialize, Serialize};

pub use self::{
    bounds::Bounds,
    gsi::{GsiSettings, Protect},
    logins::{IssuerSettings, PasswordSettings, TlsSettings, TokenSettings},
    placement::PlacementText,
    ports::PortRangeText,
    separation::Separation,
    ssh::SshSettings,
    verbs::{PasswdArguments, Verb},
};
use self::{
    bounds::bounds_of,
    gsi::{floor_of, gsi_of},
    logins::{passwords_of, tls_of, tokens_of},
    ports::{check_data_addresses, metrics_of, port_range_of},
    separation::separation_of,
};

/// Control port registered for GridFTP.
pub const DEFAULT_PORT: u16 = 2811;

const EXAMPLES: &str = "\
Examples:
  Share a directory for reading, on every address, port 2811:
      godwitd --root /srv/data --anonymous ro
  A scratch server for tests on a free port; the port is printed:
      godwitd --listen 127.0.0.1:0 --root /tmp/scratch --anonymous rw
  Behind a firewall that forwards 192.0.2.7:50000-51000:
      godwitd --root /srv/data --anonymous ro --port-range 50000-51000 --data-address 192.0.2.7
  Take part in third-party transfers (data hosts other than the client's):
      godwitd --root /srv/data --anonymous rw --allow-foreign-data-hosts
  For users with passwords, over TLS with a certificate of your own:
      godwitd passwd /etc/godwit/passwords jo
      godwitd --root /srv/data --password-file /etc/godwit/passwords --cert host.pem --key hostkey.pem
  For users with bearer tokens of one issuer, over TLS:
      godwitd --root /srv/data --cert host.pem --key hostkey.pem --token-issuer https://issuer.example.org/=jwks.json \\
          --token-audience https://data.example.org
  For users of a grid, by certificate and gridmap file as in /etc/grid-security; nobody comes in without:
      godwitd --root /srv/data --gsi
  The same with everything named:
      godwitd --root /srv/data --cert host.pem --key hostkey.pem --trusted-certs cas --gridmap grid-mapfile
  For clients of sshftp://, with nothing else set up: sshd lets users in and starts one for each. Where commands are looked for it is
  found as it is; for a directory of its own, a script with this in /etc/grid-security/sshftp or ~/.globus/sshftp, or in
  sshd_config for users who are to have nothing else, behind ForceCommand:
      godwitd --ssh --root /srv/data
  Settings from a file, flags override it; SIGHUP reads it again:
      godwitd --config /etc/godwitd.toml

The file is TOML; its keys are the long flags:
      root = \"/srv/data\"
      anonymous = \"ro\"
      listen = [\"0.0.0.0:2811\", \"[::]:2811\"]
      port-range = \"50000-51000\"

Settings that do what those of a globus-gridftp-server do, with what has to be decided:
      godwitd --import-gct-config /etc/gridftp.conf > /etc/godwitd.toml

Signals: SIGTERM and SIGINT let running transfers end (see --drain), a second one cuts them; SIGHUP reads --config
again, for new sessions; SIGUSR1 tells the log who is there and what they do.
Log: standard error, one line an event; GODWITD_LOG=debug shows more.
Exit status: 0 ended by a signal; 2 wrong usage or settings; 4 failed (address in use, root missing).";

/// The command line of `godwitd`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "godwitd",
    version,
    about = "GridFTP server",
    long_about = "GridFTP server: FTP with parallel data channels, restart, partial transfers and checksums.\n\n\
        Nothing is allowed by default: let users in who prove who they are (--gsi), or say with --anonymous what people \
        without an account may do. Both may be: without --anonymous there is no login in clear. Started by root for \
        users with accounts, each session runs as the user's (--privsep); else all act as the account that the server runs \
        under, and names of accounts are for the log.",
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// Settings file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Serve the one user that sshd has let in, over standard input and output. Data connections go
    /// beside ssh, and prove on both sides that they belong to it where the client can. The root is
    /// / where --root is not given. Standard error tells errors only
    #[arg(long)]
    pub ssh: bool,

    /// Read the configuration of a globus-gridftp-server, a file or a directory as gridftp.d, and
    /// print settings for --config that do the same. Behind them, as comments, what was taken, what
    /// has no meaning here, and what somebody has to decide: then the status is 1
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub import_gct_config: Option<PathBuf>,

    /// Everything that flag and file have in common.
    #[command(flatten)]
    pub options: Options,

    /// Something else than to serve.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// Every setting that may stand on the command line or in the file. Unset is `None` or empty.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Address for control connections; may be repeated; port 0 takes a free one [default:
    /// `[::]:2811`, or `0.0.0.0:2811` where there is no IPv6; where a service manager hands over
    /// sockets (LISTEN_FDS), those]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,

    /// Directory that clients see as / [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// What the users `anonymous` and `ftp` may do: nothing, read, read and write
    #[arg(long, value_name = "off|ro|rw")]
    pub anonymous: Option<Anonymous>,

    /// Offer TLS as FTP has it (AUTH TLS): --cert and --key are for it then, and users come in by
    /// password or by a certificate that --gsi believes. Implied by --gsi
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub tls: Option<bool>,

    /// Let users in who prove who they are by grid certificates (GSI); without --tls implied by the
    /// five options below. What is not said there is where the grid's tools have it: X509_USER_CERT
    /// and X509_USER_KEY, X509_CERT_DIR, GRIDMAP, /etc/grid-security
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub gsi: Option<bool>,

    /// Certificate that the server shows, PEM, its chain behind it [default: X509_USER_CERT,
    /// /etc/grid-security/hostcert.pem]
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// Its key, readable for nobody else, without pass phrase [default: with --cert the same file;
    /// else X509_USER_KEY, /etc/grid-security/hostkey.pem]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Directory of the CAs that users' certificates may be from [default: X509_CERT_DIR,
    /// ~/.globus/certificates, /etc/grid-security/certificates]
    #[arg(long, alias = "ca-dir", value_name = "DIR")]
    pub trusted_certs: Option<PathBuf>,

    /// File that says which identity has which account; read at each login [default: without
    /// --allow-subject GRIDMAP, /etc/grid-security/grid-mapfile, for others than root ~/.gridmap]
    #[arg(long, value_name = "FILE")]
    pub gridmap: Option<PathBuf>,

    /// Identity that may log in without an entry in a gridmap file, e.g. "/O=Grid/CN=Jo Doe", or
    /// "/O=Grid/OU=Physics/*" for all that begin so; may be repeated
    #[arg(long, value_name = "NAME")]
    pub allow_subject: Vec<String>,

    /// Let users in whose name and argon2id hash are in FILE, with what they may reach: `godwitd
    /// passwd` writes it. Implies --tls
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Take their passwords without TLS, too, for everybody on the path to read
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub allow_clear_passwords: Option<bool>,

    /// Let users in with bearer tokens (JWT, WLCG profile) that URL has issued, whose keys (JWKS)
    /// are in FILE; may be repeated. Implies --tls
    #[arg(long, value_name = "URL=FILE")]
    pub token_issuer: Vec<IssuerSettings>,

    /// Name of this server in tokens (aud), as `https://data.example.org`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub token_audience: Vec<String>,

    /// What data channels must have at least, or are refused: clear (nothing), identity (both ends
    /// prove who they are), integrity (and nobody can change bytes unseen), private (nor read
    /// them); more than clear needs --gsi or --tls, which has private alone, and no --anonymous
    /// [default: clear]
    #[arg(long, value_name = "clear|identity|integrity|private")]
    pub protect: Option<Protect>,

    /// Ports for passive data connections [default: GLOBUS_TCP_PORT_RANGE, else any]
    #[arg(long, value_name = "A-B")]
    pub port_range: Option<PortRangeText>,

    /// Address announced for passive data connections, where it differs from the one clients reach;
    /// once for IPv4, once for IPv6
    #[arg(long, value_name = "ADDR")]
    pub data_address: Vec<IpAddr>,

    /// Let PORT, EPRT and SPOR name hosts other than the client's: needed for third-party
    /// transfers, and lets anybody who may log in make this server connect anywhere above port 1023
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub allow_foreign_data_hosts: Option<bool>,

    /// After SIGTERM, time for running transfers to end before they are cut [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub drain: Option<u64>,

    /// Close sessions that send no command for this long while nothing runs [default: 900]
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Time for a data connection to come up, and without a byte on any of a transfer's [default:
    /// 60]
    #[arg(long, value_name = "SECONDS")]
    pub data_timeout: Option<u64>,

    /// What must have happened to a file before its 226: the kernel has it; it was synced; it was
    /// synced together with others that ended meanwhile [default: none]
    #[arg(long, value_name = "none|file|batch")]
    pub durability: Option<Durability>,

    /// Read and write files past the page cache, where their file system can, and leave it to
    /// others. 1 MiB of memory a data channel
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub direct_io: Option<bool>,

    /// Processors to keep to, as 0-3,8, or near:INTERFACE for those on whose memory the network
    /// card lies (NUMA) [default: all]
    #[arg(long, value_name = "LIST|near:INTERFACE")]
    pub processors: Option<PlacementText>,

    /// Remove what uploads have left under godwit's temporary names (.godwit-*.part) and nobody has
    /// changed for this long, nor since the oldest session began: the whole tree is walked now and
    /// then, on the file system of the root. A client that comes back later begins its file again
    /// [default: nothing is removed]
    #[arg(long, value_name = "SECONDS")]
    pub reap_after: Option<u64>,

    /// Sessions at a time; more are greeted with 421 [default: 10000]
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<u32>,

    /// Sessions of one address at a time (IPv6: of one /64) [default: 2000]
    #[arg(long, value_name = "N")]
    pub max_sessions_per_address: Option<u32>,

    /// Sessions of one account at a time [default: 2000]
    #[arg(long, value_name = "N")]
    pub max_sessions_per_user: Option<u32>,

    /// Connections that have not logged in; one more sends the oldest of the address with most away
    /// [default: 1000]
    #[arg(long, value_name = "N")]
    pub max_logins: Option<u32>,

    /// The same for one address [default: 500]
    #[arg(long, value_name = "N")]
    pub max_logins_per_address: Option<u32>,

    /// Failed logins that an address is allowed without a pause; after further ones it must stay
    /// away for 1 s, 2 s and so on to 64 s. One is forgotten every 30 s, and one for each login
    /// that succeeds [default: 10]
    #[arg(long, value_name = "N")]
    pub login_failures: Option<u32>,

    /// Time for the dialogue before login [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub login_timeout: Option<u64>,

    /// Data channels of one transfer [default: 1024]
    #[arg(long, value_name = "N")]
    pub max_channels: Option<u32>,

    /// Data channels of one account at a time, in all its sessions [default: 4096]
    #[arg(long, value_name = "N")]
    pub max_channels_per_user: Option<u32>,

    /// Data channels of the sessions of one address at a time (IPv6: of one /64) [default: 8192]
    #[arg(long, value_name = "N")]
    pub max_channels_per_address: Option<u32>,

    /// Greeting; may have several lines [default: name and version]
    #[arg(long, value_name = "TEXT")]
    pub banner: Option<String>,

    /// Meet strangers in processes without privileges, and run each session as the user's own
    /// account; needs root [default: where root lets users in who have accounts: by a gridmap file,
    /// passwords or tokens]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub privsep: Option<bool>,

    /// With --privsep, the account of processes that meet strangers; it should own nothing
    /// [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub front_user: Option<String>,

    /// With --privsep, the account that anonymous users act as [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub anonymous_user: Option<String>,

    /// With --privsep, the account that bearers of tokens act as
    #[arg(long, value_name = "NAME")]
    pub token_user: Option<String>,

    /// With --privsep, serve nobody where the kernel lacks Landlock or seccomp [default: log what
    /// it lacks]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub require_sandbox: Option<bool>,

    /// File that says who did what, from where, as whom, and how it ended: JSON, one object a line;
    /// created for its owner alone, opened again at SIGHUP [default: none]
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,

    /// File that tells of each transfer that has succeeded, in the form that globus-gridftp-server
    /// gives it (its -Z), one line each; created for its owner alone, opened again at SIGHUP
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub transfer_log: Option<PathBuf>,

    /// Address at which numbers for monitoring are told, over HTTP at /metrics in the form of
    /// Prometheus; port 0 takes a free one; not changed by SIGHUP [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Let --metrics name an address that other machines can reach: whoever can reaches it sees how
    /// much is going on here, without a login
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub allow_remote_metrics: Option<bool>,

    /// Log as JSON, one object a line
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub log_json: Option<bool>,
}

/// What must have happened to a file before its 226.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The kernel has it. A crash of the machine within some seconds may lose it; one of godwitd
    /// does not.
    #[default]
    None,
    /// It was synced by itself, and so was its name.
    File,
    /// As `file`, but those that end while others are synced are synced together.
    Batch,
}

/// What people without an account may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// Nothing: every login fails.
    Off,
    /// Read.
    Ro,
    /// Read and write.
    Rw,
}

/// What the server is and allows: checked, complete, and all that the rest of the crate reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// Addresses for control connections. Empty: `[::]:2811`, or `0.0.0.0:2811` where there is no
    /// IPv6.
    pub listen: Vec<SocketAddr>,
    /// Directory that clients see as `/`.
    pub root: PathBuf,
    /// What `anonymous` and `ftp` may do.
    pub anonymous: Anonymous,
    /// How users prove who they are; `None`: they cannot.
    pub gsi: Option<GsiSettings>,
    /// AUTH TLS; `None`: there is none.
    pub tls: Option<TlsSettings>,
    /// The users with passwords; `None`: there are none.
    pub passwords: Option<PasswordSettings>,
    /// The issuers of accepted bearer tokens; `None`: no token is accepted.
    pub tokens: Option<TokenSettings>,
    /// What data channels must have at least.
    #[serde(with = "gsi::Protect")]
    pub protect: MinProtection,
    /// Ports for passive data connections; `None`: any.
    pub port_range: Option<PortRange>,
    /// Announced instead of the control connection's local address; at most one of each family.
    pub data_address: Vec<IpAddr>,
    /// PORT, EPRT and SPOR may name hosts other than the client's.
    pub foreign_data_hosts: bool,
    /// Time for running transfers after a shutdown began.
    pub drain: Duration,
    /// Time without a command before 421.
    pub idle_limit: Duration,
    /// Time for the dialogue before login.
    pub login_limit: Duration,
    /// Time for data connections to come up, and without a byte on any of them.
    pub data_limit: Duration,
    /// Time that a client may leave our replies unread, once the kernel's buffers are full, before
    /// its session is closed.
    pub unread_limit: Duration,
    /// What 226, 111 and the replies to RNTO and MKD promise.
    pub durability: Durability,
    /// Files are read and written past the page cache.
    pub direct_io: bool,
    /// Those that all threads keep to from the start on, and all processes, which inherit it;
    /// `None`: wherever the kernel puts them.
    #[serde(skip)]
    pub processors: Option<CpuAffinity>,
    /// Age at which leftovers of uploads are removed; `None`: never.
    pub reap_after: Option<Duration>,
    /// Processes without privileges; `None`: all is done in one, as who started it.
    pub separation: Option<Separation>,
    /// Connections, sessions and failed logins.
    pub bounds: Bounds,
    /// Data channels of a transfer; what an account may have in all is in `bounds`.
    pub channels_max: u32,
    /// Greeting without code, lines separated by `\n`.
    pub banner: String,
    /// Who did what; `None`: nowhere.
    pub audit_log: Option<PathBuf>,
    /// Which transfers have succeeded; `None`: nowhere.
    pub transfer_log: Option<PathBuf>,
    /// Where numbers are told; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// JSON log.
    pub log_json: bool,
}

impl ServerSettings {
    /// Defaults for `root`; everything else as if no flag had been given, and no listening address.
    pub fn new(root: impl Into<PathBuf>, anonymous: Anonymous) -> Self {
        Self {
            listen: Vec::new(),
            root: root.into(),
            anonymous,
            gsi: None,
            tls: None,
            passwords: None,
            tokens: None,
            protect: MinProtection::Clear,
            port_range: None,
            data_address: Vec::new(),
            foreign_data_hosts: false,
            drain: Duration::from_secs(60),
            idle_limit: Duration::from_secs(900),
            login_limit: Duration::from_secs(60),
            data_limit: Duration::from_secs(60),
            unread_limit: Duration::from_secs(120),
            durability: Durability::None,
            direct_io: false,
            processors: None,
            reap_after: None,
            separation: None,
            bounds: Bounds::default(),
            channels_max: 1024,
            banner: format!("godwitd {} ready.", env!("CARGO_PKG_VERSION")),
            audit_log: None,
            transfer_log: None,
            metrics: None,
            log_json: false,
        }
    }
}

/// Settings that cannot be used. All of them are the administrator's to mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no identity source: no login could succeed.
    #[error(
        "nobody could log in: there is no identity source: let users of a grid in by --gsi, users with passwords by \
         --password-file, with tokens by --token-issuer, or say what people without an account may do: add --anonymous ro (read) or --anonymous rw (read and write), or set anonymous = \"ro\" in the \
         settings file"
    )]
    NoIdentity,
    /// The file cannot be read.
    #[error("cannot read settings file {path}: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no settings file.
    #[error("settings file {path}: {error}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Line and reason.
        error: Box<toml::de::Error>,
    },
    /// A value makes no sense.
    #[error("{name}: {reason}")]
    Value {
        /// Flag, file key or environment variable.
        name: &'static str,
        /// What is wrong and what is allowed.
        reason: String,
    },
}

impl Arguments {
    /// Reads the file, where one is named, and merges; `environment` looks variables up.
    pub fn resolve(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ServerSettings, ConfigError> {
        self.merged()?.resolve(environment)
    }

    /// What flags and file say together.
    fn merged(&self) -> Result<Options, ConfigError> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => Options::default(),
        };
        Ok(self.options.clone().or(file))
    }
}

fn read_file(path: &Path) -> Result<Options, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read {
        path: path.to_owned(),
        error,
    })?;
    toml::from_str(&text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        error: Box::new(error),
    })
}

/// A setting that may be unset.
trait Setting {
    /// The same, or `other` where it is unset.
    fn or_from(self, other: Self) -> Self;
}

impl<T> Setting for Option<T> {
    fn or_from(self, other: Self) -> Self {
        self.or(other)
    }
}

impl<T> Setting for Vec<T> {
    fn or_from(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }
}

impl Options {
    /// What is unset here is taken from `other`.
    fn or(self, mut other: Self) -> Self {
        if self.cert.is_some() {
            // A key belongs to its certificate.
            other.key = None;
        }
        // The compiler refuses a list in which a setting is missing.
        macro_rules! each {
            ($($setting:ident)*) => {
                Self { $($setting: self.$setting.or_from(other.$setting)),* }
            };
        }
        each! {
            listen root anonymous gsi tls password_file allow_clear_passwords token_issuer
            token_audience cert key trusted_certs gridmap allow_subject protect port_range
            data_address allow_foreign_data_hosts drain idle_timeout data_timeout durability
            direct_io processors reap_after max_sessions max_sessions_per_address
            max_sessions_per_user max_logins max_logins_per_address login_failures login_timeout
            max_channels max_channels_per_user max_channels_per_address banner privsep front_user
            anonymous_user token_user require_sandbox audit_log transfer_log metrics
            allow_remote_metrics log_json
        }
    }

    /// Something is asked for that belongs to TLS and not to a grid.
    fn wants_tls(&self) -> bool {
        self.tls == Some(true) || self.password_file.is_some() || !self.token_issuer.is_empty()
    }

    fn resolve(
        self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ServerSettings, ConfigError> {
        let gsi = gsi_of(&self, &environment)?;
        let separation = separation_of(&self, gsi.as_ref(), is_root())?;
        let tls = tls_of(&self, &gsi, &environment)?;
        let anonymous = self.anonymous.unwrap_or(Anonymous::Off);
        let passwords = passwords_of(&self, tls.is_some())?;
        let tokens = tokens_of(&self, tls.is_some())?;
        if anonymous == Anonymous::Off && gsi.is_none() && passwords.is_none() && tokens.is_none() {
            return Err(ConfigError::NoIdentity);
        }
        let root = self.root.clone();
        let mut settings =
            ServerSettings::new(root.unwrap_or_else(|| PathBuf::from(".")), anonymous);
        let has_channels = gsi.is_some() || tls.is_some();
        settings.protect = floor_of(self.protect, has_channels, anonymous)?;
        settings.gsi = gsi;
        settings.separation = separation;
        settings.tls = tls;
        settings.passwords = passwords;
        settings.tokens = tokens;
        settings.listen = self.listen.clone();
        self.fill(&mut settings, &environment)?;
        Ok(settings)
    }

    /// What does not depend on who may come.
    fn fill(
        self,
        settings: &mut ServerSettings,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        settings.bounds = bounds_of(&self)?;
        settings.port_range = match self.port_range {
            Some(PortRangeText(range)) => Some(range),
            None => port_range_of(environment)?,
        };
        check_data_addresses(&self.data_address)?;
        settings.data_address = self.data_address;
        settings.foreign_data_hosts = self.allow_foreign_data_hosts.unwrap_or(false);
        settings.durability = self.durability.unwrap_or_default();
        settings.direct_io = self.direct_io.unwrap_or(false);
        settings.processors = self.processors.map(|PlacementText(placement)| placement);
        settings.audit_log = self.audit_log;
        settings.transfer_log = self.transfer_log;
        settings.metrics = metrics_of(self.metrics, self.allow_remote_metrics)?;
        settings.log_json = self.log_json.unwrap_or(false);
        if let Some(seconds) = self.drain {
            // 0 is a decision here, not a mistake: cut at once.
            settings.drain = bounded_seconds("drain", seconds, 0)?;
        }
        if let Some(seconds) = self.idle_timeout {
            settings.idle_limit = bounded_seconds("idle-timeout", seconds, 1)?;
        }
        if let Some(seconds) = self.data_timeout {
            settings.data_limit = bounded_seconds("data-timeout", seconds, 1)?;
        }
        if let Some(seconds) = self.login_timeout {
            settings.login_limit = bounded_seconds("login-timeout", seconds, 1)?;
        }
        if let Some(seconds) = self.reap_after {
            settings.reap_after = Some(bounded_seconds("reap-after", seconds, 1)?);
        }
        if let Some(count) = self.max_channels {
            settings.channels_max = at_least_one("max-channels", count)?;
        }
        if let Some(banner) = self.banner {
            settings.banner = checked_banner(banner)?;
        }
        Ok(())
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A year: longer limits are mistakes, and far longer ones overflow clocks.
const SECONDS_MAX: u64 = 366 * 24 * 3600;

fn bounded_seconds(name: &'static str, seconds: u64, min: u64) -> Result<Duration, ConfigError> {
    if (min..=SECONDS_MAX).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(ConfigError::Value {
            name,
            reason: format!("{seconds} s is not within {min}..={SECONDS_MAX}"),
        })
    }
}

fn at_least_one(name: &'static str, count: u32) -> Result<u32, ConfigError> {
    if count == 0 {
        Err(ConfigError::Value {
            name,
            reason: "0 would refuse everything; the least is 1".to_owned(),
        })
    } else {
        Ok(count)
    }
}

fn checked_banner(banner: String) -> Result<String, ConfigError> {
    let banner = banner.trim_end().to_owned();
    if banner.is_empty() || banner.contains('\0') || banner.len() > 16 * 1024 {
        return Err(ConfigError::Value {
            name: "banner",
            reason: "must have text, no NUL and at most 16384 bytes".to_owned(),
        });
    }
    Ok(banner)
}
