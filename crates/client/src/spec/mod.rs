//! Resolved requests, independent of the command line's form.

pub mod addresses;
pub mod buckets;
pub mod filter;
pub(crate) mod nesting;

use std::{
    ffi::OsString,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use clap::ValueEnum;
use godwit_engine::host::{cpu_affinity::CpuAffinity, net::PortRange};
use godwit_gsi::{
    cert::{files::Locations, key::KeyKind},
    ftps::Authorities,
    name::DistinguishedName,
};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    security::MinProtection,
    url::{Location, RemoteUrl, Scheme},
};
use godwit_tune::{Bounds, Method, Setting};

use self::{addresses::AddressScope, buckets::BucketOptions, filter::Filter};
pub use crate::units::bits_per_second;
use crate::{
    auth::{granted::Granted, secrets::Secrets},
    error::{Error, Result},
    kept_sessions::KeptSessions,
    service::ServiceRequest,
};

/// One run of the program.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What to do.
    pub request: Request,
    /// 0 quiet, 1 normal, 2 `-v`, 3 `-vv`.
    pub verbosity: u8,
    /// Options of every connection.
    pub connections: Connections,
}

/// The request.
#[derive(Clone, Debug)]
pub enum Request {
    /// `cp`.
    Copy(Box<JobSpec>),
    /// `explain`.
    Explain {
        /// The event log.
        log: PathBuf,
        /// As JSON instead of text.
        json: bool,
    },
    /// `top`.
    Top {
        /// As JSON objects, a line each.
        json: bool,
        /// Without a screen.
        once: bool,
    },
    /// `proxy`.
    Proxy(Proxy),
    /// `guc`: the command line of `globus-url-copy`, behind its name.
    UrlCopy(Vec<OsString>),
    /// `submit`, `jobs`, `job`, `cancel`, `retry`, `pause`, `resume`.
    Service(Box<ServiceRequest>),
    /// Everything else.
    Manage(Manage),
}

/// Options of every connection.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Time without an answer or a byte.
    pub stall_limit: Duration,
    /// Sources of passwords and tokens.
    pub secrets: Secrets,
    /// Trusted CAs for servers of `ftpes://`.
    pub authorities: Authorities,
    /// Where names and servers may lead to.
    pub addresses: AddressScope,
    /// Hosts that move data of servers, trusted without a proof (`--data-host`).
    pub data_hosts: Vec<IpAddr>,
    /// Bytes of the blocks that a server deals out to the stripes of another in turn, more than 0;
    /// `None`: it chooses which stripe gets what.
    pub stripe_block: Option<u64>,
    /// Ports for listeners (`GLOBUS_TCP_PORT_RANGE`).
    pub port_range: Option<PortRange>,
    /// Minimum protection of data channels (`--protect`); `None`: [`MinProtection::Identity`] with
    /// `gsiftp://`, and with `sshftp://` where the server can, [`MinProtection::Private`] with
    /// `ftpes://`, else [`MinProtection::Clear`].
    pub protect: Option<MinProtection>,
    /// Paths of credentials and trusted CAs.
    pub locations: Locations,
    /// Proxies for `gsiftp://` in place of that of `locations`: for a host, or for all others.
    pub proxies: Vec<(Option<String>, PathBuf)>,
    /// Subjects that servers of `gsiftp://` must have in place of their host name, likewise.
    pub subjects: Vec<(Option<String>, DistinguishedName)>,
    /// Credentials that were handed over for a host and port, and come before all others.
    pub granted: Granted,
    /// How `sshftp://` connects.
    pub ssh: Ssh,
    /// What `s3://` asks for.
    pub buckets: BucketOptions,
    /// Sessions that an earlier run on this thread's runtime has left, and where this one leaves
    /// its own; `None`: it closes them.
    pub kept: Option<KeptSessions>,
}

impl Connections {
    /// The proxy for `host`, or else for all hosts.
    pub(crate) fn proxy_of(&self, host: &str) -> Option<&Path> {
        named_for(&self.proxies, host).map(PathBuf::as_path)
    }

    /// The required subject of `host`, if given.
    pub(crate) fn subject_of(&self, host: &str) -> Option<&DistinguishedName> {
        named_for(&self.subjects, host)
    }
}

fn named_for<'a, T>(all: &'a [(Option<String>, T)], host: &str) -> Option<&'a T> {
    let of = |wanted: Option<&str>| all.iter().find(|(host, _)| host.as_deref() == wanted);
    of(Some(host)).or_else(|| of(None)).map(|(_, value)| value)
}

/// Programs of `sshftp://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// OpenSSH's client, or one with the same options, and its options; split as a shell does.
    pub command: String,
    /// The command at the server, as its login shell reads it; `None`: the server's default.
    pub server: Option<String>,
}

impl Ssh {
    /// `GODWIT_SSH` and `GLOBUS_REMOTE_SSHFTP`.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let said = |name| variable(name).filter(|text| !text.trim().is_empty());
        Self {
            command: said("GODWIT_SSH").unwrap_or(Self::default().command),
            server: said("GLOBUS_REMOTE_SSHFTP"),
        }
    }
}

impl Default for Ssh {
    fn default() -> Self {
        Self {
            command: "ssh".to_owned(),
            server: None,
        }
    }
}

/// The commands of `proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Creates one.
    Init(ProxyInit),
    /// Shows one.
    Info(ProxyInfo),
}

/// A proxy to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInit {
    /// Certificate and key of the user; `None`: the standard paths.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// Path of the proxy; `None`: the standard path.
    pub out: Option<PathBuf>,
    /// Its key.
    pub key: KeyKind,
    /// How long it is valid, unless its issuer ends earlier.
    pub lifetime: Duration,
    /// For data only: services that start jobs refuse it.
    pub limited: bool,
    /// The kind before RFC 3820.
    pub legacy: bool,
    /// Proxies below it at most.
    pub path_length: Option<u32>,
    /// The pass phrase of the key is the first line of standard input.
    pub passphrase_on_stdin: bool,
}

/// A proxy to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// The file; `None`: the standard path.
    pub file: Option<PathBuf>,
    /// Less time than this is a failure.
    pub valid_for: Option<Duration>,
    /// One JSON object.
    pub json: bool,
}

/// A copy. All sources are local or all are at servers; the destination of local sources is at a
/// server. The command line was checked for it.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// At least one, all at the same end.
    pub sources: Vec<Location>,
    /// Where to.
    pub destination: Location,
    /// Directories too.
    pub recursive: bool,
    /// With `recursive`: only the files of a directory, not its subdirectories; of the matches of a
    /// pattern only the files.
    pub shallow: bool,
    /// Patterns match names with a leading dot too.
    pub dotted: bool,
    /// Paths below the source, which must be one directory; instead of all of it.
    pub files_from: Option<FilesFrom>,
    /// What becomes of files that exist.
    pub existing: ExistingFiles,
    /// Set for `sync`; then there is one source, and no part.
    pub sync: Option<SyncSpec>,
    /// Attributes that a copy keeps of its source; `sync` has its own.
    pub preserve: Preserve,
    /// The journal of complete files.
    pub journal: JournalSpec,
    /// Durability of local files.
    pub durability: Durability,
    /// Only a part; then there is one source, and it is a file.
    pub part: Option<Part>,
    /// A file of more bytes whose ends allow it is not copied: the observer hears how several jobs
    /// may copy it.
    pub divide_above: Option<u64>,
    /// How settings are chosen.
    pub tuner: TunerSpec,
    /// What no setting may pass.
    pub limit: SettingLimit,
    /// Small files in flight on a control channel, at least 1; `None`: as many as the path needs.
    pub pipelining: Option<u32>,
    /// SO_SNDBUF, SO_RCVBUF and SBUF.
    pub socket_buffer_bytes: Option<u64>,
    /// MODE E block.
    pub block_bytes: u64,
    /// Holes of files are not sent if both ends support them.
    pub sparse: bool,
    /// Large files go to all data nodes of a striped server.
    pub striping: bool,
    /// Local files are read and written without the page cache.
    pub direct_io: bool,
    /// Processors of all threads; `None`: the kernel's choice.
    pub processors: Option<CpuAffinity>,
    /// Congestion control of sending sockets.
    pub congestion: CongestionChoice,
    /// Checksums.
    pub verify: Verify,
    /// Attempts per range, at least 1.
    pub attempts: u32,
    /// Time between attempts; `None`: short at first, and twice as long after each.
    pub retry_pause: Option<Duration>,
    /// Event log.
    pub events: Option<PathBuf>,
    /// Metrics file for monitoring.
    pub metrics_file: Option<PathBuf>,
    /// Summary object on standard output.
    pub json: bool,
    /// On the whole terminal.
    pub tui: bool,
    /// The command line for the event log, secrets masked.
    pub command: String,
}

impl JobSpec {
    /// Every location at a server.
    pub(crate) fn remote_places(&mut self) -> Vec<&mut RemoteUrl> {
        let sources = self.sources.iter_mut();
        let places = sources.chain([&mut self.destination]);
        places.filter_map(remote).collect()
    }

    /// This machine is the sender.
    pub fn sends(&self) -> bool {
        matches!(self.destination, Location::Remote(_)) && !self.is_between_servers()
    }

    /// Several jobs are to copy a file of this size.
    pub(crate) fn divides(&self, size: Option<u64>) -> bool {
        let is_above = size
            .zip(self.divide_above)
            .is_some_and(|(size, above)| size > above);
        is_above && self.part.is_none()
    }

    /// Files that exist are not replaced, whatever they are.
    pub(crate) fn keeps_existing(&self) -> bool {
        let refuses = matches!(
            self.existing,
            ExistingFiles::Refuse | ExistingFiles::RefuseOthers
        );
        let level = self.sync.as_ref().map(|sync| sync.level);
        refuses || level == Some(Level::Exists)
    }

    /// There may be more than one file.
    pub(crate) fn has_several(&self) -> bool {
        self.recursive || self.sources.len() > 1 || self.files_from.is_some()
    }

    /// Third-party copy: the bytes do not pass this machine.
    pub fn is_between_servers(&self) -> bool {
        let is_remote = |place: &Location| matches!(place, Location::Remote(_));
        is_remote(&self.destination) && self.sources.iter().all(is_remote)
    }
}

/// `--preserve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// The modification time, in whole seconds.
    pub times: bool,
    /// The permission bits.
    pub modes: bool,
}

/// `sync`: the destination becomes like the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncSpec {
    /// What files must have in common to be skipped.
    pub level: Level,
    /// The names to compare.
    pub filter: Filter,
    /// Copies and unchanged files get the times and the permissions of their sources.
    pub attributes: bool,
    /// Report what would be done, and do nothing.
    pub dry_run: bool,
    /// Extra names of the destination are deleted.
    pub delete: Option<DeleteOptions>,
}

/// What two files of one name must have in common to count as equal; each level includes those
/// before it, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No file counts as the same.
    Never,
    /// Nothing.
    Exists,
    /// Their size.
    Size,
    /// Their size, and the destination's is not older.
    NotOlder,
    /// The time of their last change, in whole seconds, where both ends can keep it.
    Modified,
    /// Their checksum, instead of the time.
    Checksum,
}

/// `--delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Nothing is deleted if more names than this would be.
    pub most: Option<u64>,
}

/// `--congestion`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CongestionChoice {
    /// The system's.
    #[default]
    System,
    /// This one.
    Fixed(String),
    /// Chosen by measurement of the path.
    Auto,
}

/// A list of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesFrom {
    /// To be read.
    List {
        /// `None`: standard input.
        file: Option<PathBuf>,
        /// Names end in NUL instead of a line end.
        nul: bool,
    },
    /// These.
    Pairs(Arc<[NamePair]>),
}

/// One file, named below the source and below the destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePair {
    /// Below the source.
    pub source: Vec<u8>,
    /// Below the destination.
    pub destination: Vec<u8>,
    /// A source with another number of bytes fails.
    pub bytes: Option<u64>,
    /// A copy with another checksum fails, before it gets its name where that can be.
    pub checksum: Option<(ChecksumAlgorithm, String)>,
    /// A source that was last changed at another time fails: seconds at servers, nanoseconds here.
    pub changed: Option<i64>,
    /// Other jobs have put all bytes into this file, beside the destination at a server. What
    /// remains is to compare it and to give it its name. A failure does not remove it.
    pub assembled: Option<Vec<u8>>,
    /// The upload to a bucket that the temporary file is: the one of `assembled`, or the
    /// destination of a part.
    pub upload: Option<SharedUpload>,
}

/// An upload in parts to a bucket, which several jobs send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedUpload {
    /// As the job that has begun it named it: [`crate::report::events::DividedUpload::known_as`].
    pub known_as: String,
    /// A job before may have completed it.
    pub may_be_complete: bool,
}

/// The root or the home that a path begins at, as `files_from` wants the ends of a copy, and the
/// name below it; `None` for a path with odd components or none.
pub fn top_and_name(location: Location) -> Option<(Location, Vec<u8>)> {
    let path = match &location {
        Location::Remote(url) => url.path.as_bytes(),
        Location::Local(path) => path,
        Location::Standard => return None,
    };
    let slash = match path {
        [b'/', ..] => 0,
        [b'~', b'/', ..] => 1,
        _ => return None,
    };
    let is_odd = |part: &[u8]| matches!(part, b"" | b"." | b"..");
    let name = path[slash + 1..].to_vec();
    if name.split(|b| *b == b'/').any(is_odd) {
        return None;
    }
    let top = path[..slash.max(1)].to_vec();
    let top = match location {
        Location::Remote(url) => Location::Remote(RemoteUrl {
            path: FtpPath::new(top).ok()?,
            ..url
        }),
        _ => Location::Local(top),
    };
    Some((top, name))
}

/// What becomes of files that exist at the destination, where `files_from` names what is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingFiles {
    /// The copy takes their place.
    #[default]
    Replace,
    /// The copy fails.
    Refuse,
    /// They stay where they have the size and the time of their source, in whole seconds.
    KeepSame,
    /// They stay where they have the size of their source.
    KeepSameSize,
    /// An earlier run of this job may have copied them: it has where they have the size of their
    /// source, and the checksum if the job verifies. Else the copy fails.
    RefuseOthers,
}

/// The most that a job may use, which another thread changes while it runs.
#[derive(Clone, Debug)]
pub struct SettingLimit(Arc<[AtomicU32; 2]>);

impl SettingLimit {
    /// At least 1 of each.
    pub fn new(concurrency: u32, parallelism: u32) -> Self {
        Self(Arc::new(
            [concurrency, parallelism].map(|most| AtomicU32::new(most.max(1))),
        ))
    }

    /// The job follows within half a second.
    pub fn set(&self, concurrency: u32, parallelism: u32) {
        for (now, most) in self.0.iter().zip([concurrency, parallelism]) {
            now.store(most.max(1), Ordering::Relaxed);
        }
    }

    pub(crate) fn now(&self) -> Setting {
        let [concurrency, parallelism] = self.0.each_ref().map(|most| most.load(Ordering::Relaxed));
        Setting::new(concurrency, parallelism)
    }
}

impl Default for SettingLimit {
    fn default() -> Self {
        Self::new(u32::MAX, u32::MAX)
    }
}

impl std::fmt::Display for FilesFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::List {
                file: Some(file), ..
            } => file.display().fmt(f),
            Self::List { file: None, .. } => f.write_str("standard input"),
            Self::Pairs(_) => f.write_str("the list of files"),
        }
    }
}

/// The journal of complete files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalSpec {
    /// In the user's state folder, if more than one file is copied.
    #[default]
    OfUser,
    /// In this file.
    File(PathBuf),
    /// None.
    Never,
}

/// Durability of a local file beyond the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// A crash of the machine within some seconds may lose it.
    #[default]
    None,
    /// Each file and its name are synced.
    File,
    /// All files are synced together before the command ends.
    Batch,
}

/// Part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: to the end.
    pub length: Option<u64>,
    /// A download writes the part at its offset and keeps the rest of the file; else the part
    /// becomes the whole file.
    pub stays: bool,
    /// An earlier job has begun to send it: what the server has of it is not sent again.
    pub resumes: bool,
}

/// Which tuner, and what the user has fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerSpec {
    /// Which.
    pub method: Method,
    /// Limits of every tuner: `--max-channels`, `-c`, `-p`.
    pub bounds: Bounds,
    /// `--epoch`, seconds, more than 0.
    pub epoch: Option<f64>,
    /// `--epoch-mode`.
    pub mode: EpochMode,
    /// Start with the setting of the last transfer over the path, and save this one's.
    pub remembers: bool,
    /// Weight among the transfers of this user over the same path; finite, above 0. `None`: no
    /// coordination.
    pub weight: Option<f64>,
    /// Rate limits.
    pub rates: Rates,
}

/// Rate limits, bit/s, at least 64000; `None`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of all channels of the copy together (`--max-rate`).
    pub own_bps: Option<u64>,
    /// Of all copies of this user on this host together (`--host-rate`).
    pub host_bps: Option<u64>,
}

/// Longest epoch unless the user sets one, seconds. Some methods were published with 30 s, longer
/// than most transfers.
const EPOCH_SECONDS_MAX: f64 = 3.0;

impl TunerSpec {
    /// Length of an epoch if the tuner does not set it, seconds.
    pub fn epoch_seconds(&self) -> f64 {
        self.epoch
            .unwrap_or_else(|| self.method.epoch_seconds().min(EPOCH_SECONDS_MAX))
    }

    /// The number of workers may change while files are moved.
    pub fn moves_workers(&self) -> bool {
        let fixed = matches!(self.method, Method::Static(_) | Method::Globus);
        self.mode == EpochMode::Restart || !fixed && self.bounds.concurrency.is_none()
    }
}

/// How a control epoch is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochMode {
    /// Data never stops: channels and sessions open and close.
    #[default]
    Live,
    /// As published: each epoch restarts everything. For comparison.
    Restart,
}

/// Whether checksums of both ends are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Whole files, where the server can.
    WherePossible,
    /// Always; a server that cannot fails the file. `None`: the client chooses the algorithm.
    Always(Option<ChecksumAlgorithm>),
    /// Never.
    Never,
}

/// Operations on files at servers.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are the arguments of the commands of the same name
pub enum Manage {
    List {
        url: RemoteUrl,
        style: ListStyle,
    },
    Stat {
        urls: Vec<RemoteUrl>,
        json: bool,
    },
    Checksum {
        algorithm: Option<ChecksumAlgorithm>,
        places: Vec<Location>,
    },
    MakeDirectory {
        urls: Vec<RemoteUrl>,
        parents: bool,
    },
    Remove {
        urls: Vec<RemoteUrl>,
        recursive: bool,
    },
    /// Both on one server.
    Rename {
        from: RemoteUrl,
        to: RemoteUrl,
    },
    ChangeMode {
        urls: Vec<RemoteUrl>,
        mode: u32,
    },
    /// Of a bucket.
    Uploads {
        url: RemoteUrl,
        aborts: bool,
    },
}

/// How names are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListStyle {
    /// Names alone.
    Names,
    /// A slash behind the names of directories.
    Classified,
    /// A line as `ls -l` has it.
    Long,
    /// A JSON object a line.
    Json,
}

impl Manage {
    /// Every location at a server.
    pub(crate) fn urls(&mut self) -> Vec<&mut RemoteUrl> {
        match self {
            Self::List { url, .. } | Self::Uploads { url, .. } => vec![url],
            Self::Checksum { places, .. } => places.iter_mut().filter_map(remote).collect(),
            Self::Rename { from, to } => vec![from, to],
            Self::Stat { urls, .. }
            | Self::MakeDirectory { urls, .. }
            | Self::Remove { urls, .. }
            | Self::ChangeMode { urls, .. } => urls.iter_mut().collect(),
        }
    }
}

fn remote(place: &mut Location) -> Option<&mut RemoteUrl> {
    match place {
        Location::Remote(url) => Some(url),
        Location::Local(_) | Location::Standard => None,
    }
}

/// Where a URL points, without a slash at the end.
///
/// # Errors
/// In a bucket `a//` and `a/.` begin other keys than `a`: they are refused, so that none is taken
/// for another.
pub(crate) fn place_of(url: &RemoteUrl) -> Result<FtpPath> {
    if url.scheme != Scheme::S3 {
        return Ok(without_end_slash(&url.path));
    }
    let path = url.path.as_bytes();
    if path.ends_with(b"//") || path.ends_with(b"/.") || path.ends_with(b"/./") {
        return Err(Error::Usage(format!(
            "{url}: is refused, as it ends in // or /. and could be taken for another key"
        )));
    }
    let bare = path.strip_suffix(b"/").filter(|bare| !bare.is_empty());
    Ok(bare
        .and_then(|bare| FtpPath::new(bare).ok())
        .unwrap_or_else(|| url.path.clone()))
}

/// The same where something is looked for: in a bucket a slash at the end stays, so that an object
/// of that name without a slash is not found.
///
/// # Errors
/// As [`place_of`].
pub(crate) fn sought_at(url: &RemoteUrl) -> Result<FtpPath> {
    let place = place_of(url)?;
    Ok(match url.scheme {
        Scheme::S3 => url.path.clone(),
        _ => place,
    })
}

/// `path` without trailing slashes and dots; the root stays.
pub(crate) fn without_end_slash(path: &FtpPath) -> FtpPath {
    let mut bytes = path.as_bytes();
    while let [rest @ .., b'/'] | [rest @ .., b'/', b'.'] = bytes {
        if rest.is_empty() {
            return FtpPath::root();
        }
        bytes = rest;
    }
    FtpPath::new(bytes).unwrap_or_else(|_| FtpPath::root())
}
