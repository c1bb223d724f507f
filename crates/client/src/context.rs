//! What all parts of one run share: the observer, the interrupt, the endpoints and what was learned
//! of them.

use std::{
    collections::HashSet,
    fmt::Display,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_engine::{
    data::{Congestion, RateLimit},
    storage::{FastPath, FileRef, PosixStorage},
};
use godwit_gsi::{cert::Credential, ftps};
use godwit_proto::{
    FtpPath,
    command::Password,
    odd_bytes::OddBytes,
    pi::login::Credentials,
    url::{RemoteUrl, Scheme, in_url},
};
use godwit_tune::Setting;
use tokio::sync::{OnceCell, watch};

use crate::{
    auth::secrets::Secrets,
    endpoint::{
        addresses::Addresses,
        observed_limit::{Ceiling, DataConnections},
    },
    error::Result,
    local::{durability::LocalDurability, journal::Journal},
    panics::on_thread,
    report::{
        events::{Event, EventLog, Observer, SettingView},
        progress::{Counters, Snapshot},
    },
    spec::Connections,
    stop::Stop,
};

/// Time between two words about how many small files are in flight.
const DEPTH_TOLD_EVERY: Duration = Duration::from_secs(1);

/// Shared by all sessions and workers of a run.
pub(crate) struct RunContext {
    pub(crate) connections: Connections,
    /// What data channels of `sshftp://` prove themselves with, once it was needed. One for all, so
    /// that two servers know each other.
    pub(crate) ephemeral_credential: OnceLock<Credential>,
    /// Our side of TLS with `ftpes://`, once it was needed.
    pub(crate) tls: OnceLock<ftps::Client>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Stop,
    /// What transfers and workers follow while they run. A run that moves no files leaves it at 1 x
    /// 1.
    pub(crate) target: watch::Sender<SettingTarget>,
    /// How fast all data channels may go together.
    pub(crate) rate: Arc<RateLimit>,
    /// What is noted of files, where the job keeps a journal.
    pub(crate) journal: OnceLock<Arc<Journal>>,
    /// All files of this machine.
    pub(crate) storage: PosixStorage,
    direct_io_warned: Once,
    /// Files of this machine that gets have put in place.
    pub(crate) durability: LocalDurability,
    /// What our data channels send with.
    pub(crate) congestion: Arc<Congestion>,
    pub(crate) started: Instant,
    /// Small files in flight on a session, as it was last told.
    pipelining: AtomicU32,
    /// When that was told last, and the most of all that was.
    depth_reported: Mutex<Option<(Instant, u32)>>,
    observer: Arc<dyn Observer>,
    log: Option<EventLog>,
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
}

impl RunContext {
    pub(crate) fn new(
        connections: Connections,
        observer: Arc<dyn Observer>,
        log: Option<EventLog>,
        stop: Stop,
        storage: PosixStorage,
    ) -> Arc<Self> {
        Arc::new(Self {
            connections,
            ephemeral_credential: OnceLock::new(),
            tls: OnceLock::new(),
            counters: Arc::default(),
            stop,
            target: watch::Sender::new(SettingTarget::default()),
            rate: Arc::default(),
            journal: OnceLock::new(),
            storage,
            direct_io_warned: Once::new(),
            durability: LocalDurability::default(),
            congestion: Arc::default(),
            started: Instant::now(),
            pipelining: AtomicU32::new(1),
            depth_reported: Mutex::default(),
            observer,
            log,
            endpoints: Mutex::default(),
        })
    }

    pub(crate) fn emit(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.append(event);
        }
        self.observer.on_event(event);
    }

    /// Something is done without, and why.
    pub(crate) fn note(&self, text: impl Display) {
        self.emit(&Event::Note {
            text: text.to_string(),
        });
    }

    /// Something the user must see.
    pub(crate) fn warn(&self, text: impl Display) {
        self.emit(&Event::Warning {
            text: text.to_string(),
        });
    }

    /// Says, once, that direct I/O was asked for and `file` has none.
    pub(crate) fn warn_no_direct_io(&self, file: &FileRef, name: impl Display) {
        if self.storage.is_direct_io() && matches!(file.fast_path(), FastPath::Descriptor(_)) {
            (self.direct_io_warned).call_once(|| {
                self.note(format_args!(
                    "{name}: no direct I/O there, the page cache is used"
                ));
            });
        }
    }

    /// `setting` as far as servers were found to let it.
    pub(crate) fn clamp_to_limits(&self, setting: Setting) -> Setting {
        Setting {
            concurrency: setting.concurrency.min(self.limit(|l| &l.sessions)),
            parallelism: setting.parallelism.min(self.limit(|l| &l.channels)),
            ..setting
        }
    }

    /// The limit of the run. Files go to any of the endpoints that take them and come from any of
    /// those that send them: the most generous counts on either side.
    fn limit(&self, ceiling: fn(&Capabilities) -> &Mutex<Ceiling>) -> u32 {
        let now = Instant::now();
        let endpoints = (self.endpoints.lock()).unwrap_or_else(PoisonError::into_inner);
        let of_side = |side: fn(&Capabilities) -> &AtomicBool| {
            let limits = (endpoints.iter().map(|e| &e.capabilities))
                .filter(|capabilities| known(side(capabilities)))
                .map(|capabilities| {
                    locked(ceiling(capabilities))
                        .in_force(now)
                        .unwrap_or(u32::MAX)
                });
            limits.max().unwrap_or(u32::MAX)
        };
        of_side(|l| &l.has_files).min(of_side(|l| &l.sends_files))
    }

    /// `endpoint` let no more than `most` sessions in.
    pub(crate) fn sessions_refused(&self, endpoint: &Endpoint, most: u32) {
        if locked(&endpoint.capabilities.sessions).refused(most, Instant::now()) {
            self.keep_to_limits(endpoint, "the server lets no further session in");
        }
    }

    /// `endpoint` gave up a transfer that had grown to more than `most` data channels.
    pub(crate) fn channels_refused(&self, endpoint: &Endpoint, most: u32) {
        if locked(&endpoint.capabilities.channels).refused(most, Instant::now()) {
            self.keep_to_limits(endpoint, "the server gave up when channels were added");
        }
    }

    fn keep_to_limits(&self, endpoint: &Endpoint, why: &str) {
        let before = *self.target.borrow();
        let (from, to) = (before.setting, self.clamp_to_limits(before.setting));
        if from != to {
            self.target.send_replace(SettingTarget {
                setting: to,
                ..before
            });
            self.emit(&Event::Decision {
                from: Some(self.view(from)),
                to: self.view(to),
                reason: format!("{from} -> {to}: {}: {why}", endpoint.name),
            });
        }
    }

    /// A session has so many small files in flight. Told where that is half or twice of what was
    /// told before, and, but for the first growth, not more often than each second: sessions
    /// differ, and nobody cares.
    pub(crate) fn report_depth(&self, depth: u32, round_trip: Duration) {
        let before = self.pipelining.load(Ordering::Relaxed);
        if depth < before.saturating_mul(2) && before < depth.saturating_mul(2) {
            return;
        }
        {
            let mut told = (self.depth_reported.lock()).unwrap_or_else(PoisonError::into_inner);
            let (at, most) = told.unzip();
            let grows = most.is_none_or(|most| depth > most);
            if !grows && at.is_some_and(|at| at.elapsed() < DEPTH_TOLD_EVERY) {
                return;
            }
            *told = Some((Instant::now(), depth.max(most.unwrap_or(0))));
        }
        let setting = self.target.borrow().setting;
        let from = self.view(setting);
        self.pipelining.store(depth, Ordering::Relaxed);
        self.emit(&Event::Decision {
            from: Some(from),
            to: self.view(setting),
            reason: format!(
                "{setting}: {depth} small files in flight on a control channel with a round trip of {:.1} ms",
                round_trip.as_secs_f64() * 1e3
            ),
        });
    }

    /// A setting as logs hold it.
    pub(crate) fn view(&self, setting: Setting) -> SettingView {
        Setting {
            pipelining_depth: self.pipelining.load(Ordering::Relaxed),
            ..setting
        }
        .into()
    }

    /// Progress, with what everybody steers towards.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            setting: Some(self.target.borrow().setting),
            ..self.counters.snapshot()
        }
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.observer.as_ref()
    }

    pub(crate) fn finish_log(&self) -> std::io::Result<()> {
        self.log.as_ref().map_or(Ok(()), EventLog::finish)
    }

    /// The one endpoint of this run that `url` is on.
    pub(crate) fn endpoint(&self, url: &RemoteUrl) -> Arc<Endpoint> {
        let mut known = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|e| e.is_of(url)) {
            return Arc::clone(found);
        }
        let root = RemoteUrl {
            path: FtpPath::root(),
            ..url.clone()
        };
        let name = root.to_string();
        let endpoint = Arc::new(Endpoint {
            name: name.strip_suffix('/').unwrap_or(&name).to_owned(),
            root,
            password: OnceCell::new(),
            capabilities: Capabilities::default(),
        });
        known.push(Arc::clone(&endpoint));
        endpoint
    }
}

/// What a run steers towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingTarget {
    pub(crate) setting: Setting,
    /// How often everything was to begin anew (`--epoch-mode restart`).
    pub(crate) generation: u64,
}

impl Default for SettingTarget {
    fn default() -> Self {
        Self {
            setting: Setting::new(1, 1),
            generation: 0,
        }
    }
}

impl SettingTarget {
    /// Whether the worker in `place` is still wanted.
    pub(crate) fn includes(&self, place: WorkerSlot) -> bool {
        place.rank < self.setting.concurrency && place.generation == self.generation
    }
}

/// A worker's place: the ones of the highest rank leave first, and all when a new generation
/// begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerSlot {
    pub(crate) rank: u32,
    pub(crate) generation: u64,
}

/// A server as one user sees it.
pub(crate) struct Endpoint {
    root: RemoteUrl,
    /// `root` without its slash.
    name: String,
    /// Of the user of `root`, once it was needed.
    password: OnceCell<Password>,
    pub(crate) capabilities: Capabilities,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a server turned out to lack. Sessions of one endpoint share it, so that each lesson costs
/// one command.
#[derive(Default)]
pub(crate) struct Capabilities {
    /// It answered a greeting once: failures to connect are passing from now on.
    pub(crate) reached: AtomicBool,
    pub(crate) addresses: Addresses,
    /// Sessions that it lets in at a time, as far as anybody has found out.
    sessions: Mutex<Ceiling>,
    /// Data channels that it takes in one transfer, likewise.
    channels: Mutex<Ceiling>,
    /// Data connections between it and this machine, and those from another server to it.
    data: [Mutex<DataConnections>; 2],
    /// Files go there, or come from there to this machine.
    pub(crate) has_files: AtomicBool,
    /// It sends files to another server.
    pub(crate) sends_files: AtomicBool,
    pub(crate) no_port: AtomicBool,
    pub(crate) no_pasv: AtomicBool,
    /// It connects to no host but ours.
    pub(crate) no_foreign: AtomicBool,
    /// A data connection of ours has come up that it listened for.
    pub(crate) data_reached: AtomicBool,
    /// Another server has connected to it.
    pub(crate) met: AtomicBool,
    /// Another server could not connect to it, and what that said. One firewall is taken for that
    /// of all.
    pub(crate) unreached: OnceLock<String>,
    pub(crate) no_mode_e: AtomicBool,
    pub(crate) no_allo: AtomicBool,
    pub(crate) no_mlst: AtomicBool,
    pub(crate) no_mlsd: AtomicBool,
    pub(crate) no_list: AtomicBool,
    /// It takes `-a` for a name, or does without.
    pub(crate) no_list_all: AtomicBool,
    /// Its MLSD, or its LIST and NLST with `-a`, list the directory itself.
    pub(crate) mlsd_lists_itself: AtomicBool,
    pub(crate) all_lists_itself: AtomicBool,
    pub(crate) no_size: AtomicBool,
    pub(crate) no_mdtm: AtomicBool,
    pub(crate) no_cksm: AtomicBool,
    pub(crate) no_rename: AtomicBool,
    /// It refuses names with a leading dot.
    pub(crate) no_dots: AtomicBool,
    /// It has looked for a name with a leading dot, and said that there is no such file.
    pub(crate) dots_looked_up: AtomicBool,
    /// It has stored a file under a name with a leading dot.
    pub(crate) dots_stored: AtomicBool,
    pub(crate) no_rest_stor: AtomicBool,
    pub(crate) no_append: AtomicBool,
    pub(crate) rename_probed: AtomicBool,
    pub(crate) no_mfmt: AtomicBool,
    pub(crate) no_chmod: AtomicBool,
    /// Times and permissions of single files that it has refused.
    pub(crate) attributes_refused: AtomicU32,
    pub(crate) no_buffers: AtomicBool,
    pub(crate) no_live_requests: AtomicBool,
    pub(crate) no_pipelining: AtomicBool,
    /// Files came in a pipeline: what it takes need not be found out again by each session.
    pub(crate) gets_pipelined: AtomicBool,
    /// Small files that a session had in flight last; 0: nothing is known.
    pub(crate) depth: AtomicU32,
    /// Directories that refused a put. What goes there travels alone: in a pipeline each refusal
    /// would cost a session.
    pub(crate) closed_directories: Mutex<HashSet<FtpPath>>,
    /// Directories that refused each temporary name and took the final one.
    pub(crate) in_place_folders: Mutex<HashSet<FtpPath>>,
    /// [`OddBytes`] in names that were seen to come back whole.
    pub(crate) names_pass: AtomicU8,
    /// Where data channels begin and end, ours first, where the control channel does not tell.
    pub(crate) data_addresses: OnceLock<[IpAddr; 2]>,
}

/// Directories remembered as closed, or as written in place. More of them cost time and nothing
/// else.
const FOLDERS_MAX: usize = 10_000;

impl Capabilities {
    /// What is known of its data connections: to this machine, or from another server.
    pub(crate) fn data(&self, from_server: bool) -> MutexGuard<'_, DataConnections> {
        locked(&self.data[usize::from(from_server)])
    }

    /// Data channels of a new transfer, of the `wanted`.
    pub(crate) fn fit_channels(&self, wanted: u32) -> u32 {
        let most = locked(&self.channels).at(Instant::now());
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// A put into the directory of `path` was refused.
    pub(crate) fn record_closed_directory(&self, path: &FtpPath) {
        remember(&self.closed_directories, path);
    }

    /// A put into the directory of `path` may well be refused.
    pub(crate) fn may_be_closed(&self, path: &FtpPath) -> bool {
        holds(&self.closed_directories, path)
    }

    /// The directory of `path` takes final names alone. False where that was known.
    pub(crate) fn folder_is_in_place(&self, path: &FtpPath) -> bool {
        remember(&self.in_place_folders, path)
    }

    /// The directory of `path` takes final names alone.
    pub(crate) fn is_in_place(&self, path: &FtpPath) -> bool {
        holds(&self.in_place_folders, path)
    }

    /// Nothing in `path` makes it doubtful that the server understands it.
    pub(crate) fn passes(&self, path: &FtpPath) -> bool {
        OddBytes::from_bits(self.names_pass.load(Ordering::Relaxed))
            .has(OddBytes::of(path.as_bytes()))
    }
}

/// Adds the directory of `path`. False where it was there, or there is no room.
fn remember(folders: &Mutex<HashSet<FtpPath>>, path: &FtpPath) -> bool {
    let mut folders = locked(folders);
    let has_room = folders.len() < FOLDERS_MAX;
    let folder = path.parent().filter(|_| has_room);
    folder.is_some_and(|folder| folders.insert(folder))
}

fn holds(folders: &Mutex<HashSet<FtpPath>>, path: &FtpPath) -> bool {
    let folders = locked(folders);
    !folders.is_empty()
        && path
            .parent()
            .is_some_and(|folder| folders.contains(&folder))
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Endpoint {
    pub(crate) fn host(&self) -> &str {
        &self.root.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.root.port
    }

    /// The URL of `path` here, for messages.
    pub(crate) fn url(&self, path: &FtpPath) -> String {
        // Of each small file, and more than once.
        let mut url = String::with_capacity(self.name.len() + path.as_bytes().len() + 8);
        url.push_str(&self.name);
        url.extend(in_url(path));
        url
    }

    /// The URL without path, for messages.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    pub(crate) fn scheme_name(&self) -> &'static str {
        self.root.scheme.as_str()
    }

    /// Both sides prove who they are (GSI).
    pub(crate) fn has_identities(&self) -> bool {
        self.root.scheme == Scheme::Gsiftp
    }

    /// The user's ssh leads to it.
    pub(crate) fn is_ssh(&self) -> bool {
        self.root.scheme == Scheme::Sshftp
    }

    /// Whom the URL names.
    pub(crate) fn user(&self) -> Option<&str> {
        self.root.user.as_deref()
    }

    /// TLS as FTP has it (AUTH TLS).
    pub(crate) fn is_tls(&self) -> bool {
        self.root.scheme == Scheme::Ftpes
    }

    /// Who logs in, where no token does. A password is never sent for anonymous logins, nor where
    /// identities are proven: then the user is one of the accounts that the server's map has for
    /// ours, or its first. Asks the user at most once.
    pub(crate) async fn credentials(&self, secrets: &Secrets) -> Result<Credentials> {
        if self.has_identities() {
            let mapped = || ":globus-mapping:".to_owned();
            return Ok(Credentials {
                user: self.root.user.clone().unwrap_or_else(mapped),
                password: Password::new("dummy"),
                secret: false,
            });
        }
        // ssh has seen to who it is.
        let user = self.root.user.clone().filter(|_| !self.is_ssh());
        let Some(user) = user else {
            return Ok(Credentials {
                user: "anonymous".to_owned(),
                password: Password::new("godwit@"),
                secret: false,
            });
        };
        if let Some(password) = self.root.password.clone() {
            return Ok(Credentials {
                user,
                password,
                secret: true,
            });
        }
        let asked = self.password.get_or_try_init(|| async {
            let (secrets, host, name) = (secrets.clone(), self.root.host.clone(), user.clone());
            let doing = || format!("find the password for {}", self.name());
            on_thread(doing, move || secrets.password(&host, &name)).await?
        });
        let password = asked.await?.clone();
        Ok(Credentials {
            user,
            password,
            secret: true,
        })
    }

    fn is_of(&self, url: &RemoteUrl) -> bool {
        self.root.scheme == url.scheme
            && self.root.host == url.host
            && self.root.port == url.port
            && self.root.user == url.user
            && self.root.password == url.password
    }
}

impl Capabilities {
    /// Remembers a lesson and tells it, once.
    pub(crate) fn learn(flag: &AtomicBool, context: &RunContext, text: impl Display) {
        if !flag.swap(true, Ordering::Relaxed) {
            context.note(text);
        }
    }
}

/// True for a lesson learned.
pub(crate) fn known(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
