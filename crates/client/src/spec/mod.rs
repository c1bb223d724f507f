//! Resolved requests: what is to be done, free of how it was spelled.

pub mod filter;
pub(crate) mod nesting;

use std::{
    ffi::OsString,
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
    cert::{Credential, files::Locations, key::KeyKind},
    ftps::Authorities,
    name::DistinguishedName,
};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    security::MinProtection,
    url::{Location, RemoteUrl},
};
use godwit_tune::{Bounds, Method, Setting};

use self::filter::Filter;
use crate::{auth::secrets::Secrets, service::ServiceRequest};

/// One run of the program.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What to do.
    pub request: Request,
    /// 0 quiet, 1 normal, 2 `-v`, 3 `-vv`.
    pub verbosity: u8,
    /// What holds for every connection.
    pub connections: Connections,
}

/// What is to be done.
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

/// What holds for every connection.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Time without an answer or a byte.
    pub stall_limit: Duration,
    /// Where passwords and tokens lie.
    pub secrets: Secrets,
    /// Whom to believe about servers of `ftpes://`.
    pub authorities: Authorities,
    /// Ports for our listeners (`GLOBUS_TCP_PORT_RANGE`).
    pub port_range: Option<PortRange>,
    /// What data channels must have at least (`--protect`); `None`: [`MinProtection::Identity`]
    /// with `gsiftp://`, and with `sshftp://` where the server can, [`MinProtection::Private`] with
    /// `ftpes://`, else [`MinProtection::Clear`].
    pub protect: Option<MinProtection>,
    /// Where credentials and trusted CAs lie.
    pub locations: Locations,
    /// Proxies that `gsiftp://` logs in with in place of that of `locations`: for a host, or for
    /// all that have none of their own.
    pub proxies: Vec<(Option<String>, PathBuf)>,
    /// Who servers of `gsiftp://` must be, in place of what their host's name says: likewise.
    pub subjects: Vec<(Option<String>, DistinguishedName)>,
    /// Credentials that `gsiftp://` logs in with at a host and port, before all others.
    pub granted: Vec<((String, u16), Credential)>,
    /// How `sshftp://` gets to servers.
    pub ssh: Ssh,
}

impl Connections {
    /// The proxy that was named for `host`, or else for all hosts.
    pub(crate) fn proxy_of(&self, host: &str) -> Option<&Path> {
        named_for(&self.proxies, host).map(PathBuf::as_path)
    }

    /// The credential that was handed over for `host` and `port`.
    pub(crate) fn granted_for(&self, host: &str, port: u16) -> Option<&Credential> {
        let is_for = |((of_host, of_port), _): &&((String, u16), Credential)| {
            of_host == host && *of_port == port
        };
        self.granted.iter().find(is_for).map(|(_, granted)| granted)
    }

    /// Who `host` must be, where that was said.
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
    /// OpenSSH's client, or what takes its options, with options of its own; words as a shell reads
    /// them.
    pub command: String,
    /// What is run at the far end, words as the login shell there reads them; `None`: what is found
    /// there.
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

/// What `proxy` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Makes one.
    Init(ProxyInit),
    /// Tells of one.
    Info(ProxyInfo),
}

/// A proxy to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInit {
    /// Certificate and key of the user; `None`: where the grid's tools look.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// Where to; `None`: where the grid's tools look.
    pub out: Option<PathBuf>,
    /// Its key.
    pub key: KeyKind,
    /// How long it is valid, unless its issuer ends earlier.
    pub lifetime: Duration,
    /// For data and nothing else: services that start jobs refuse it.
    pub limited: bool,
    /// The kind before RFC 3820.
    pub legacy: bool,
    /// Proxies below it at most.
    pub path_length: Option<u32>,
    /// The pass phrase of the key is the first line of standard input.
    pub passphrase_on_stdin: bool,
}

/// A proxy to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// The file; `None`: where the grid's tools look.
    pub file: Option<PathBuf>,
    /// Less time than this is a failure.
    pub valid_for: Option<Duration>,
    /// One JSON object.
    pub json: bool,
}

/// A copy. All sources are ours or all are servers'; where they are ours the destination is a
/// server's. The flags have seen to that.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// At least one, all at the same end.
    pub sources: Vec<Location>,
    /// Where to.
    pub destination: Location,
    /// Directories too.
    pub recursive: bool,
    /// With `recursive`: of a directory the files, without the directories in it; and of what a
    /// pattern matches the files.
    pub shallow: bool,
    /// Patterns match names with a leading dot too.
    pub dotted: bool,
    /// Paths below the source, which is one directory then; instead of all of it.
    pub files_from: Option<FilesFrom>,
    /// What becomes of files that exist.
    pub existing: ExistingFiles,
    /// Only what differs, and perhaps more than copies; then there is one source, and no part.
    pub sync: Option<SyncSpec>,
    /// What else than bytes a copy has of its source; `sync` decides for itself.
    pub preserve: Preserve,
    /// Where finished files are noted.
    pub journal: JournalSpec,
    /// How safe files are that arrive here.
    pub durability: Durability,
    /// Only a part; then there is one source, and it is a file.
    pub part: Option<Part>,
    /// How settings are chosen.
    pub tuner: TunerSpec,
    /// What no setting may pass.
    pub limit: SettingLimit,
    /// Small files in flight on a control channel, at least 1; `None`: as many as the path wants.
    pub pipelining: Option<u32>,
    /// SO_SNDBUF, SO_RCVBUF and SBUF.
    pub socket_buffer_bytes: Option<u64>,
    /// MODE E block.
    pub block_bytes: u64,
    /// Holes of files do not travel where both ends know them.
    pub sparse: bool,
    /// Files of this machine are read and written past the page cache.
    pub direct_io: bool,
    /// Those that all threads of this program keep to; `None`: wherever the kernel puts them.
    pub processors: Option<CpuAffinity>,
    /// Congestion control of our sending sockets.
    pub congestion: CongestionChoice,
    /// Checksums.
    pub verify: Verify,
    /// Attempts per range, at least 1.
    pub attempts: u32,
    /// Time between attempts; `None`: short at first, and twice as long after each.
    pub retry_pause: Option<Duration>,
    /// Event log.
    pub events: Option<PathBuf>,
    /// How it is doing, for monitoring.
    pub metrics_file: Option<PathBuf>,
    /// Summary object on standard output.
    pub json: bool,
    /// On the whole terminal.
    pub tui: bool,
    /// The command line for the event log, secrets masked.
    pub command: String,
}

impl JobSpec {
    /// Every place at a server.
    pub(crate) fn remote_places(&mut self) -> Vec<&mut RemoteUrl> {
        let sources = self.sources.iter_mut();
        let places = sources.chain([&mut self.destination]);
        places.filter_map(remote).collect()
    }

    /// We are the sender.
    pub fn sends(&self) -> bool {
        matches!(self.destination, Location::Remote(_)) && !self.is_between_servers()
    }

    /// There may be more than one file.
    pub(crate) fn has_several(&self) -> bool {
        self.recursive || self.sources.len() > 1 || self.files_from.is_some()
    }

    /// Servers send to a server, and the bytes do not pass here.
    pub fn is_between_servers(&self) -> bool {
        let is_remote = |place: &Location| matches!(place, Location::Remote(_));
        is_remote(&self.destination) && self.sources.iter().all(is_remote)
    }
}

/// `--preserve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// The time of the last change, in whole seconds.
    pub times: bool,
    /// The permission bits.
    pub modes: bool,
}

/// `sync`: the destination becomes like the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncSpec {
    /// What files must have in common not to be copied.
    pub level: Level,
    /// Which names are compared.
    pub filter: Filter,
    /// Copies get the times and the permissions of their sources, and so does what is the same but
    /// for them.
    pub attributes: bool,
    /// Tell what would be done, and do nothing.
    pub dry_run: bool,
    /// What the source does not have goes.
    pub delete: Option<DeleteOptions>,
}

/// What files of one name must have in common to count as the same; each level wants what those
/// before it want, but for what it says.
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
    /// Nothing goes where more names than this would have to.
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
    /// Whichever the path turns out to need.
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

/// The journal of finished files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalSpec {
    /// In the user's state folder, where more than one file is to be copied.
    #[default]
    OfUser,
    /// In this file.
    File(PathBuf),
    /// None.
    Never,
}

/// How safe a file is that has arrived here, beside that the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// A crash of the machine within some seconds may lose it.
    #[default]
    None,
    /// It was synced by itself before it got its name, and so was its name.
    File,
    /// All of them are synced together when the last is there, and the command ends after that.
    Batch,
}

/// Part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: to the end.
    pub length: Option<u64>,
    /// A get writes it where it was, into a file that keeps the rest of what it has; else the part
    /// becomes the whole file.
    pub stays: bool,
}

/// Which tuner, and what the user has fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerSpec {
    /// Which.
    pub method: Method,
    /// What no tuner may pass: `--max-channels`, `-c`, `-p`.
    pub bounds: Bounds,
    /// `--epoch`, seconds, more than 0.
    pub epoch: Option<f64>,
    /// `--epoch-mode`.
    pub mode: EpochMode,
    /// Begin where the last transfer over the path ended, and keep where this one does.
    pub remembers: bool,
    /// Part in what transfers of this user over the same path have together, relative to theirs;
    /// finite, above 0. `None`: tune as if there were no others.
    pub weight: Option<f64>,
    /// How fast it may go.
    pub rates: Rates,
}

/// Caps, bit/s, at least 64000; `None`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of all channels of the copy together (`--max-rate`).
    pub own_bps: Option<u64>,
    /// Of all copies of this user on this host together (`--host-rate`).
    pub host_bps: Option<u64>,
}

/// Longest epoch where the user asks for none, seconds. Some methods were published with 30 s, in
/// which most transfers are over.
const EPOCH_SECONDS_MAX: f64 = 3.0;

impl TunerSpec {
    /// Length of an epoch whose length the tuner leaves to us, seconds.
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
    /// Data never stops: channels and sessions come and go.
    #[default]
    Live,
    /// As published: between epochs everything ends and begins again. For comparison.
    Restart,
}

/// Whether checksums of both ends are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Whole files, where the server can.
    WherePossible,
    /// Always; a server that cannot fails the file. `None` leaves the choice of algorithm to us.
    Always(Option<ChecksumAlgorithm>),
    /// Never.
    Never,
}

/// Operations on what lies on servers.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are the arguments of the commands of the same name
pub enum Manage {
    List {
        url: RemoteUrl,
        long: bool,
        /// A slash behind the names of directories.
        classify: bool,
    },
    Stat {
        urls: Vec<RemoteUrl>,
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
}

impl Manage {
    /// Every place at a server.
    pub(crate) fn urls(&mut self) -> Vec<&mut RemoteUrl> {
        match self {
            Self::List { url, .. } => vec![url],
            Self::Checksum { places, .. } => places.iter_mut().filter_map(remote).collect(),
            Self::Rename { from, to } => vec![from, to],
            Self::Stat { urls }
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

/// `path` without slashes and dots of its own at its end; the root stays.
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
