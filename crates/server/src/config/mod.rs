//! Settings: one definition for flag and file key, resolved into [`ServerSettings`] in one step.
//!
//! Precedence: command line, then `--config FILE`, then the environment (`GLOBUS_TCP_PORT_RANGE`
//! alone), then the default. Nothing behind [`Arguments::resolve`] looks at flags again.

mod bounds;
mod copies;
mod examples;
mod gsi;
mod logins;
mod nodes;
mod placement;
mod ports;
mod resolve;
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

use clap::{Arg, Args, Parser, ValueEnum};
use godwit_engine::host::{cpu_affinity::CpuAffinity, net::PortRange};
use godwit_proto::security::MinProtection;
use serde::{Deserialize, Serialize};

use self::examples::EXAMPLES;

pub(crate) use self::copies::is_public;
pub use self::{
    bounds::Bounds,
    copies::{AllowedHost, CopyAuthorities, CopySettings},
    gsi::{GsiSettings, Protect},
    logins::{IssuerSettings, PasswordSettings, TlsSettings, TokenSettings},
    nodes::{DataNodes, NodeAddress, NodeSettings, NodeTls},
    placement::PlacementText,
    ports::PortRangeText,
    separation::Separation,
    ssh::SshSettings,
    verbs::{NodeKeyArguments, NodeKeyFiles, NodeKeyVerb, PasswdArguments, S3KeyArguments, Verb},
};

/// Control port registered for GridFTP.
pub const DEFAULT_PORT: u16 = 2811;

/// The command line of `godwitd`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "godwitd",
    version,
    about = "GridFTP server",
    long_about = "GridFTP server: FTP with parallel data channels, restart, partial transfers and \
        checksums.\n\n\
        Nothing is allowed by default: let users authenticate (--gsi), or set with --anonymous \
        what users without an account may do. Both can be given; without --anonymous no login is \
        in clear. If root starts the server for users with accounts, each session runs as the \
        user's account (--privsep); else all sessions run as the server's account, and account \
        names only appear in the log.",
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// Settings file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Serve the one user that sshd has authenticated, over standard input and output. Data
    /// connections do not go through ssh; both ends authenticate them if the client can. Without
    /// --root the root is /. Only errors go to standard error
    #[arg(long)]
    pub ssh: bool,

    /// Be a data node: no control port and no logins, but data channels for the front ends that
    /// --front-ends names, at --node-listen
    #[arg(long, conflicts_with = "ssh")]
    pub data_node: bool,

    /// Read the configuration of a globus-gridftp-server, a file or a directory such as gridftp.d,
    /// and print equivalent settings for --config. Comments after them list what was converted,
    /// what has no meaning here, and what the administrator has to decide: then the exit status is
    /// 1
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub import_gct_config: Option<PathBuf>,

    /// Everything that flag and file have in common.
    #[command(flatten)]
    pub options: Options,

    /// What to do instead of serving.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// Every setting that may stand on the command line or in the file. Unset is `None` or empty.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[command(mut_args = switch)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Address for control connections; may be repeated; port 0 takes a free one [default:
    /// `[::]:2811`, or `0.0.0.0:2811` without IPv6; sockets from a service manager (LISTEN_FDS)
    /// take precedence]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,

    /// Address that serves the same files over HTTPS and WebDAV, with --cert and --key; may be
    /// repeated; port 0 takes a free one; not changed by SIGHUP. Implies --tls; not with --privsep
    /// [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub https: Vec<SocketAddr>,

    /// Address that serves the same files as buckets of S3, with --s3-keys, --cert and --key: the
    /// directories of the root are the buckets; may be repeated; port 0 takes a free one; not
    /// changed by SIGHUP. Implies --tls; not with --privsep [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub s3: Vec<SocketAddr>,

    /// Access keys of S3 with their secrets and users; `godwitd s3-key` writes it
    #[arg(long, value_name = "FILE")]
    pub s3_keys: Option<PathBuf>,

    /// Let users who have logged in copy files over HTTPS between this server and others (COPY of
    /// WebDAV, as FTS and gfal2 ask for it), without bytes through the client [default: true, with
    /// --https]
    #[arg(long, value_name = "BOOL")]
    pub third_party_copy: Option<bool>,

    /// Host, or network as 10.0.0.0/8, that such copies may connect to at any address and port; may
    /// be repeated. Others need a public address, and port 443 or one above 1023
    #[arg(long, value_name = "HOST|NETWORK")]
    pub allow_copy_host: Vec<AllowedHost>,

    /// Who vouches for other servers in such copies: `system`, a file (PEM), or a directory as
    /// --trusted-certs has it [default: with --gsi that of --trusted-certs, else system]
    #[arg(long, value_name = "system|FILE|DIR")]
    pub copy_authorities: Option<PathBuf>,

    /// Show the server's certificate to other servers in such copies: what they grant to it, they
    /// grant to each user here [default: false; a user sends a token with the request]
    #[arg(long, value_name = "BOOL")]
    pub copy_as_host: Option<bool>,

    /// Issue tokens over HTTPS to users with an account, for one path each, by which other servers
    /// fetch and store files in their place [default: false]
    #[arg(long, value_name = "BOOL")]
    pub issue_tokens: Option<bool>,

    /// Such copies at a time; the server answers 429 to more [default: 128]
    #[arg(long, value_name = "N")]
    pub max_copies: Option<u32>,

    /// The same for one user [default: 32]
    #[arg(long, value_name = "N")]
    pub max_copies_per_user: Option<u32>,

    /// Directory that clients see as / [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// What the users `anonymous` and `ftp` may do: nothing, read, read and write
    #[arg(long, value_name = "off|ro|rw")]
    pub anonymous: Option<Anonymous>,

    /// Offer FTP over TLS (AUTH TLS), with --cert and --key: users log in by password or by a
    /// certificate that --gsi trusts. Implied by --gsi
    #[arg(long, value_name = "BOOL")]
    pub tls: Option<bool>,

    /// Let users authenticate by grid certificates (GSI); without --tls implied by the five options
    /// below. Those default to the places of the grid's tools: X509_USER_CERT and X509_USER_KEY,
    /// X509_CERT_DIR, GRIDMAP, /etc/grid-security
    #[arg(long, value_name = "BOOL")]
    pub gsi: Option<bool>,

    /// The server's certificate, PEM, followed by its chain [default: X509_USER_CERT,
    /// /etc/grid-security/hostcert.pem]
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// Its key, readable only by its owner, without pass phrase [default: with --cert the same
    /// file; else X509_USER_KEY, /etc/grid-security/hostkey.pem]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Directory of the CAs that may issue users' certificates [default: X509_CERT_DIR,
    /// ~/.globus/certificates, /etc/grid-security/certificates]
    #[arg(long, alias = "ca-dir", value_name = "DIR")]
    pub trusted_certs: Option<PathBuf>,

    /// File that maps identities to accounts; read at each login [default: without
    /// --allow-subject GRIDMAP, /etc/grid-security/grid-mapfile, or ~/.gridmap if not root]
    #[arg(long, value_name = "FILE")]
    pub gridmap: Option<PathBuf>,

    /// Identity that may log in without an entry in a gridmap file, e.g. "/O=Grid/CN=Jo Doe", or
    /// "/O=Grid/OU=Physics/*" for all with this prefix; may be repeated
    #[arg(long, value_name = "NAME")]
    pub allow_subject: Vec<String>,

    /// Let users log in by password: FILE has their names, argon2id hashes and rights; `godwitd
    /// passwd` writes it. Implies --tls
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Accept passwords without TLS, too: anyone on the network path can read them
    #[arg(long, value_name = "BOOL")]
    pub allow_clear_passwords: Option<bool>,

    /// Let users log in with bearer tokens (JWT, WLCG profile) issued by URL, whose keys (JWKS) are
    /// in FILE; may be repeated. Implies --tls
    #[arg(long, value_name = "URL=FILE")]
    pub token_issuer: Vec<IssuerSettings>,

    /// Name of this server in tokens (aud), as `https://data.example.org`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub token_audience: Vec<String>,

    /// Minimum data channel protection; weaker channels are refused: clear (none), identity (both
    /// ends authenticate), integrity (changed bytes are detected, too), private (bytes are also
    /// encrypted); more than clear needs --gsi or --tls (which has only private), and no
    /// --anonymous [default: clear]
    #[arg(long, value_name = "clear|identity|integrity|private")]
    pub protect: Option<Protect>,

    /// Ports for passive data connections [default: GLOBUS_TCP_PORT_RANGE, else any]
    #[arg(long, value_name = "A-B")]
    pub port_range: Option<PortRangeText>,

    /// Address announced for passive data connections, if it differs from the control connection's;
    /// once for IPv4, once for IPv6
    #[arg(long, value_name = "ADDR")]
    pub data_address: Vec<IpAddr>,

    /// Let PORT, EPRT and SPOR name hosts other than the client's: needed for third-party
    /// transfers; any user can then make this server connect to any host above port 1023
    #[arg(long, value_name = "BOOL")]
    pub allow_foreign_data_hosts: Option<bool>,

    /// After SIGTERM, time for running transfers to end before they are aborted [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub drain: Option<u64>,

    /// Close sessions that send no command for this long while nothing runs [default: 900]
    #[arg(long, value_name = "SECONDS")]
    pub idle_timeout: Option<u64>,

    /// Time for a data connection to be established, and for a transfer without a byte on any of
    /// its connections [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub data_timeout: Option<u64>,

    /// What happens to a file before its 226: the kernel has it (none); it is synced (file); it is
    /// synced together with others that ended meanwhile (batch) [default: none]
    #[arg(long, value_name = "none|file|batch")]
    pub durability: Option<Durability>,

    /// Bypass the page cache (O_DIRECT) where the file system supports it, and leave it to other
    /// programs. Costs 1 MiB of memory per data channel
    #[arg(long, value_name = "BOOL")]
    pub direct_io: Option<bool>,

    /// Processors to run on, as 0-3,8, or near:INTERFACE for those of the network card's NUMA node
    /// [default: all]
    #[arg(long, value_name = "LIST|near:INTERFACE")]
    pub processors: Option<PlacementText>,

    /// Remove partial uploads under godwit's temporary names (.godwit-*.part) that have not changed
    /// for this long, nor since the oldest session started: the server scans the whole tree from
    /// time to time, on the file system of the root. A client that returns later starts its file
    /// again [default: nothing is removed]
    #[arg(long, value_name = "SECONDS")]
    pub reap_after: Option<u64>,

    /// Sessions at a time; the server refuses more with 421 [default: 10000]
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<u32>,

    /// Sessions of one address at a time (IPv6: of one /64) [default: 2000]
    #[arg(long, value_name = "N")]
    pub max_sessions_per_address: Option<u32>,

    /// Sessions of one account at a time [default: 2000]
    #[arg(long, value_name = "N")]
    pub max_sessions_per_user: Option<u32>,

    /// Connections that have not logged in; one more evicts the oldest of the address that has most
    /// [default: 1000]
    #[arg(long, value_name = "N")]
    pub max_logins: Option<u32>,

    /// The same for one address [default: 500]
    #[arg(long, value_name = "N")]
    pub max_logins_per_address: Option<u32>,

    /// Failed logins that an address may have without a pause; after each further one the server
    /// refuses it for 1 s, 2 s and so on up to 64 s. The count falls by one every 30 s, and with
    /// each login that succeeds [default: 10]
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

    /// Handle unauthenticated connections in unprivileged processes, and run each session as the
    /// user's own account; needs root [default: on if root runs the server and users have accounts:
    /// by a gridmap file, passwords or tokens]
    #[arg(long, value_name = "BOOL")]
    pub privsep: Option<bool>,

    /// With --privsep, the account of the processes that handle unauthenticated connections; it
    /// should own nothing [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub front_user: Option<String>,

    /// With --privsep, the account of anonymous sessions [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub anonymous_user: Option<String>,

    /// With --privsep, the account of sessions that log in with a bearer token
    #[arg(long, value_name = "NAME")]
    pub token_user: Option<String>,

    /// With --privsep, refuse to serve if the kernel lacks Landlock or seccomp [default: log what
    /// it lacks]
    #[arg(long, value_name = "BOOL")]
    pub require_sandbox: Option<bool>,

    /// File that records who did what, from which address, as which account, and how it ended:
    /// JSON, one object a line; only its owner can read it; opened again at SIGHUP [default: none]
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,

    /// File that records each transfer that succeeded, one line each, in the format of
    /// globus-gridftp-server (its -Z); only its owner can read it; opened again at SIGHUP
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub transfer_log: Option<PathBuf>,

    /// Address that serves metrics over HTTP, at /metrics in Prometheus format; port 0 takes a free
    /// one; not changed by SIGHUP [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Let --metrics name an address that other machines can reach: they see the server's activity
    /// without a login
    #[arg(long, value_name = "BOOL")]
    pub allow_remote_metrics: Option<bool>,

    /// Log as JSON, one object a line
    #[arg(long, value_name = "BOOL")]
    pub log_json: Option<bool>,

    /// Address of a data node (godwitd --data-node) that moves the data of sessions in this
    /// server's place; may be repeated, up to 64. All must see the files below --root. Then this
    /// server opens no data channel itself, but for HTTPS [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    pub data_nodes: Vec<NodeAddress>,

    /// With --data-node, the address for front ends; port 0 takes a free one. Data channels use the
    /// same address, or that of --data-address
    #[arg(long, value_name = "ADDR:PORT")]
    pub node_listen: Option<SocketAddr>,

    /// With --data-node, a front end whose orders it takes: the name or address in its certificate,
    /// or its subject, as /O=Site/CN=front; may be repeated
    #[arg(long, value_name = "NAME")]
    pub front_ends: Vec<String>,

    /// Certificate that front end and data nodes show one another, PEM, followed by its chain. A
    /// node's is for the host that --data-nodes names
    #[arg(long, value_name = "FILE")]
    pub node_cert: Option<PathBuf>,

    /// Its key [default: the same file]
    #[arg(long, value_name = "FILE")]
    pub node_key: Option<PathBuf>,

    /// The authorities that certificates of front ends and data nodes are from, PEM
    #[arg(long, value_name = "FILE")]
    pub node_ca: Option<PathBuf>,
}

/// A switch (value name BOOL) alone means true; it takes a value behind `=`.
fn switch(arg: Arg) -> Arg {
    let is_switch = arg.get_value_names().is_some_and(|names| names == ["BOOL"]);
    match is_switch {
        true => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        false => arg,
    }
}
impl Arguments {
    /// Reads the file, if one is named, and merges; `environment` looks variables up.
    pub fn resolve(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ServerSettings, ConfigError> {
        let options = self.merged()?;
        match self.data_node {
            true => options.resolve_node(environment),
            false => options.resolve(environment),
        }
    }

    /// Flags and file together.
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
    /// The same, or `other` if it is unset.
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
    /// Takes what is unset here from `other`.
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
            listen https s3 s3_keys root anonymous gsi tls password_file allow_clear_passwords
            token_issuer token_audience cert key trusted_certs gridmap allow_subject protect
            port_range data_address allow_foreign_data_hosts drain idle_timeout data_timeout
            durability direct_io processors reap_after max_sessions max_sessions_per_address
            max_sessions_per_user max_logins max_logins_per_address login_failures login_timeout
            max_channels max_channels_per_user max_channels_per_address third_party_copy
            allow_copy_host copy_authorities copy_as_host issue_tokens max_copies
            max_copies_per_user banner privsep front_user anonymous_user token_user require_sandbox
            audit_log transfer_log metrics allow_remote_metrics log_json data_nodes node_listen
            front_ends node_cert node_key node_ca
        }
    }

    /// A setting is given that belongs to TLS and not to a grid.
    fn wants_tls(&self) -> bool {
        self.tls == Some(true)
            || self.password_file.is_some()
            || !self.token_issuer.is_empty()
            || !self.https.is_empty()
            || !self.s3.is_empty()
    }
}

/// What happens to a file before its 226.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The kernel has it. A crash of the machine within some seconds may lose it; a crash of
    /// godwitd does not.
    #[default]
    None,
    /// The server syncs each file and its directory entry.
    File,
    /// As `file`, but the server syncs files together that end while another sync runs.
    Batch,
}

/// What users without an account may do.
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

/// What the server is and allows: checked and complete. The rest of the crate reads nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// Addresses for control connections. Empty: `[::]:2811`, or `0.0.0.0:2811` where there is no
    /// IPv6.
    pub listen: Vec<SocketAddr>,
    /// Addresses for HTTPS; empty: there is none.
    pub https: Vec<SocketAddr>,
    /// Addresses for S3; empty: there is none.
    pub s3: Vec<SocketAddr>,
    /// Access keys of S3.
    pub s3_keys: Option<PathBuf>,
    /// Tokens are issued over HTTPS.
    pub issue_tokens: bool,
    /// Copies between this server and others over HTTPS; `None`: they are refused.
    pub copies: Option<CopySettings>,
    /// Directory that clients see as `/`.
    pub root: PathBuf,
    /// What `anonymous` and `ftp` may do.
    pub anonymous: Anonymous,
    /// How users authenticate by certificate; `None`: they cannot.
    pub gsi: Option<GsiSettings>,
    /// AUTH TLS; `None`: there is none.
    pub tls: Option<TlsSettings>,
    /// The users with passwords; `None`: there are none.
    pub passwords: Option<PasswordSettings>,
    /// The issuers of accepted bearer tokens; `None`: no token is accepted.
    pub tokens: Option<TokenSettings>,
    /// Minimum protection of data channels.
    #[serde(with = "gsi::Protect")]
    pub protect: MinProtection,
    /// Ports for passive data connections; `None`: any.
    pub port_range: Option<PortRange>,
    /// Announced instead of the control connection's local address; at most one of each family.
    pub data_address: Vec<IpAddr>,
    /// PORT, EPRT and SPOR may name hosts other than the client's.
    pub foreign_data_hosts: bool,
    /// Time for running transfers to end after a shutdown began.
    pub drain: Duration,
    /// Time without a command before 421.
    pub idle_limit: Duration,
    /// Time for the dialogue before login.
    pub login_limit: Duration,
    /// Time for data connections to be established, and without a byte on any of them.
    pub data_limit: Duration,
    /// Time that a client may leave replies unread, once the kernel's buffers are full, before the
    /// server closes its session.
    pub unread_limit: Duration,
    /// What 226, 111 and the replies to RNTO and MKD promise.
    pub durability: Durability,
    /// File I/O bypasses the page cache.
    pub direct_io: bool,
    /// Processors of all threads, and of child processes, which inherit them; `None`: the kernel
    /// decides.
    #[serde(skip)]
    pub processors: Option<CpuAffinity>,
    /// Age at which partial uploads are removed; `None`: never.
    pub reap_after: Option<Duration>,
    /// Unprivileged processes; `None`: one process, with the account that started it.
    pub separation: Option<Separation>,
    /// Connections, sessions and failed logins.
    pub bounds: Bounds,
    /// Data channels of a transfer; `bounds` limits those of an account.
    pub channels_max: u32,
    /// Greeting without code, lines separated by `\n`.
    pub banner: String,
    /// Audit log; `None`: there is none.
    pub audit_log: Option<PathBuf>,
    /// Log of the transfers that succeeded; `None`: there is none.
    pub transfer_log: Option<PathBuf>,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// JSON log.
    pub log_json: bool,
    /// Data nodes that move the data of sessions; `None`: this process does.
    pub data_nodes: Option<DataNodes>,
    /// It is a data node.
    pub node: Option<NodeSettings>,
}

impl ServerSettings {
    /// The defaults, as if no other flag had been given, and no listening address.
    pub fn new(root: impl Into<PathBuf>, anonymous: Anonymous) -> Self {
        Self {
            listen: Vec::new(),
            https: Vec::new(),
            s3: Vec::new(),
            s3_keys: None,
            issue_tokens: false,
            copies: Some(CopySettings::default()),
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
            data_nodes: None,
            node: None,
        }
    }
}

/// Settings that cannot be used. The administrator must correct them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no identity source: no login could succeed.
    #[error(
        "no login could succeed, there is no identity source: add --gsi for grid users, \
         --password-file for users with passwords, --token-issuer for users with tokens, or \
         --anonymous ro (read) or --anonymous rw (read and write) for users without an account; in \
         the settings file, anonymous = \"ro\""
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

impl ConfigError {
    fn value(name: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Value { name, reason }
    }
}

/// A year: longer limits are mistakes, and far longer ones overflow clocks.
const SECONDS_MAX: u64 = 366 * 24 * 3600;

fn bounded_seconds(name: &'static str, seconds: u64, min: u64) -> Result<Duration, ConfigError> {
    if (min..=SECONDS_MAX).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        let reason = format!("{seconds} s is not within {min}..={SECONDS_MAX}");
        Err(ConfigError::value(name, reason))
    }
}

fn at_least_one(name: &'static str, count: u32) -> Result<u32, ConfigError> {
    match count {
        0 => Err(ConfigError::value(
            name,
            "0 would refuse everything; the least is 1",
        )),
        _ => Ok(count),
    }
}
