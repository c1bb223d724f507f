//! A logged-in control channel, what is known of the server's state, one mover, and the data
//! channels that stay open between files.
//!
//! # Map
//! - [`retry`]: sessions that are opened again when they fail; [`pool`]: idle ones
//! - [`connect`]: from a host name to a greeting; [`login`]: from a greeting to a session; [`tls`]:
//!   `ftpes://`; [`ssh`]: `sshftp://`; [`delegation`]: servers that know the user by different
//!   credentials; [`home`]: paths that begin at the user's home
//! - [`control`]: what commands go through; [`http`]: `https://`, `davs://` and `s3://`
//! - [`commands`]: files, directories, listings, renames, attributes
//! - [`transfer`]: one transfer command with its data: channels, state, requests while it runs, the
//!   next transfer begun ahead
//! - [`third_party`]: the same between two servers; [`through_client`]: where neither can send to
//!   the other

mod commands;
mod connect;
mod control;
mod delegation;
pub(crate) mod home;
pub(crate) mod http;
mod login;
pub(crate) mod pool;
pub(crate) mod retry;
mod ssh;
mod third_party;
mod through_client;
mod tls;
pub(crate) mod transfer;

use std::{
    net::IpAddr,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_engine::{
    control::{ControlError, ProtocolTrace},
    data::{ChannelParams, ChannelSet, Mover},
};
use godwit_proto::{Command, FtpPath, Reply, pi::transfer::ServerState, timestamp::Timestamp};

use self::{
    connect::connect_any, control::Control, http::Lanes, ssh::process::SshProcess,
    transfer::prefetch::Prefetched,
};
use crate::{
    context::RunContext,
    endpoint::{
        Endpoint,
        capabilities::{Lack, Observed},
        uploads::PartedUpload,
    },
    error::{Error, Result},
    kept_sessions::{KeptPair, KeptSession, LoggedIn},
    local::attributes::FileAttributes,
    passing::Side,
    report::events::{ChannelState, Event},
    setting_target::WorkerSlot,
};

pub(crate) use self::{
    commands::{
        files::{Found, SizeReply, TOGETHER_MAX, checksum_in},
        listing::{
            BadName, CompleteListing, DirectoryEntry, LineQueue, LineSink, ListingLines,
            NameReader, list_here, queue,
        },
        rename::DisplacedFile,
    },
    third_party::{PassedRegion, ThirdPartyPlan},
    through_client::WindowMemory,
    transfer::{TransferOutcome, TransferPlan, prefetch::NextTransfer},
};

/// A logged-in control channel: what needs no data channel.
pub(crate) struct ControlSession {
    pub(crate) context: Arc<RunContext>,
    pub(crate) endpoint: Arc<Endpoint>,
    /// What the server can do, and the present state of modes and channels.
    pub(crate) server: ServerState,
    pub(crate) control: Control,
    /// What leads to the server; killed where the session is dropped.
    program: Option<SshProcess>,
    /// The transfer command that went out before its turn: its reply comes before all others.
    pub(crate) prefetched: Option<Prefetched>,
    /// Shortest time from a command to its answer: what the path takes.
    pub(crate) round_trip: Duration,
    /// A reply is missing or the connection is gone: nothing more can be asked.
    pub(crate) broken: bool,
    /// Its working directory may be another than the user's home.
    has_moved: bool,
    /// When it logged in.
    since: Instant,
}

/// Our end of the data channels of a session, and how they are to be.
pub(crate) struct DataPlane {
    mover: Option<Mover>,
    /// Of a server of HTTP, in place of a mover.
    lanes: Lanes,
    pub(crate) set: Option<ChannelSet>,
    /// Channel parameters of transfers. A session that only asks and lists leaves them at their
    /// default.
    pub(crate) params: ChannelParams,
    /// Of the worker whose session it is.
    pub(crate) place: WorkerSlot,
    /// Of its last transfer; one that passes nothing on is the destination of what it moves.
    side: Side,
    /// Where data channels begin and end, ours first.
    addresses: [IpAddr; 2],
    /// A receiver was asked to report its progress often.
    markers_requested: bool,
    /// When the server may next be asked for its side of a get.
    next_report: tokio::time::Instant,
}

/// A control session with its data channels.
pub(crate) struct Session {
    pub(crate) commands: ControlSession,
    pub(crate) data: DataPlane,
}

impl Deref for Session {
    type Target = ControlSession;

    fn deref(&self) -> &ControlSession {
        &self.commands
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut ControlSession {
        &mut self.commands
    }
}

impl Session {
    /// Connects to the first address of the endpoint that answers, and logs in.
    pub(crate) async fn open(
        context: &Arc<RunContext>,
        endpoint: &Arc<Endpoint>,
        params: ChannelParams,
    ) -> Result<Self> {
        tokio::select! {
            session = Self::open_undisturbed(context, endpoint, params) => session,
            () = context.stop.cancelled() => Err(Error::Interrupted),
        }
    }

    /// Like [`Self::open`], also after the user's interrupt: cleaning up needs a session then.
    pub(crate) async fn open_undisturbed(
        context: &Arc<RunContext>,
        endpoint: &Arc<Endpoint>,
        params: ChannelParams,
    ) -> Result<Self> {
        login::check_scheme(context, endpoint)?;
        if endpoint.is_http() {
            let opened = Box::pin(http::login::open(context, endpoint)).await?;
            return Ok(Self::new(context, endpoint, params, opened, None));
        }
        if endpoint.is_ssh() {
            let connected = ssh::connect(context, endpoint).await?;
            return Self::begin(context, endpoint, params, connected).await;
        }
        let connected = connect_any(context, endpoint).await?;
        Self::begin(context, endpoint, params, connected).await
    }

    async fn begin(
        context: &Arc<RunContext>,
        endpoint: &Arc<Endpoint>,
        params: ChannelParams,
        connected: login::Connected,
    ) -> Result<Self> {
        let (opened, program) = login::log_in(context, endpoint, connected).await?;
        let opened = ftp(opened);
        Ok(Self::new(context, endpoint, params, opened, program))
    }

    fn new(
        context: &Arc<RunContext>,
        endpoint: &Arc<Endpoint>,
        params: ChannelParams,
        mut opened: LoggedIn<Control>,
        program: Option<SshProcess>,
    ) -> Self {
        opened.server.wants_holes = params.holes;
        context.counters.on_login(opened.round_trip);
        Self {
            commands: ControlSession {
                context: Arc::clone(context),
                endpoint: Arc::clone(endpoint),
                server: opened.server,
                control: opened.control,
                program,
                prefetched: None,
                round_trip: opened.round_trip,
                broken: false,
                has_moved: false,
                since: opened.since,
            },
            data: DataPlane {
                mover: None,
                lanes: Lanes::default(),
                set: opened.set,
                params: ChannelParams {
                    security: opened.security,
                    ..params
                },
                place: WorkerSlot::default(),
                side: Side::Destination,
                addresses: opened.addresses,
                markers_requested: opened.markers_requested,
                next_report: tokio::time::Instant::now(),
            },
        }
    }

    /// One that an earlier run has left.
    fn of_kept(
        context: &Arc<RunContext>,
        endpoint: &Arc<Endpoint>,
        params: ChannelParams,
        kept: KeptSession,
    ) -> Self {
        endpoint.capabilities.record(Observed::Greeted);
        let session = Self::new(context, endpoint, params, ftp(kept.opened), None);
        session.report_channels(ChannelState::Opened, session.cached());
        session
    }

    /// A later run can go on with it. Nothing of its last transfer has failed. Servers that are
    /// reached by ssh trust an identity of one run, and a log of the dialogue is one run's. Those
    /// of HTTP have nothing to go on with.
    fn can_be_kept(&self) -> bool {
        let is_at_rest = !self.broken && self.prefetched.is_none() && !self.has_moved;
        let is_well = self.server.type_code.is_some();
        let is_bound = self.program.is_some() || self.context.reporter.observer().hears_dialogue();
        is_at_rest && is_well && !is_bound && !self.endpoint.is_http()
    }

    fn into_kept(self) -> Option<KeptSession> {
        self.report_channels(ChannelState::Retired, self.cached());
        let Self { commands, data } = self;
        let Control::Ftp(control) = commands.control else {
            return None;
        };
        Some(KeptSession {
            root: commands.endpoint.root().clone(),
            opened: LoggedIn {
                control: *control,
                addresses: data.addresses,
                server: commands.server,
                set: data.set,
                markers_requested: data.markers_requested,
                round_trip: commands.round_trip,
                security: data.params.security,
                since: commands.since,
            },
        })
    }

    /// Closes data channels that are open without a transfer.
    fn forget_channels(&mut self) {
        self.data.set = None;
        self.server.cached = None;
        self.server.stripes = 1;
    }

    /// Data channels that are open without a transfer.
    fn cached(&self) -> u32 {
        let cached = self.data.set.as_ref().map_or(0, ChannelSet::cached);
        u32::try_from(cached).unwrap_or(u32::MAX)
    }

    /// Closes the session in good order.
    pub(crate) async fn quit(mut self) {
        let lanes = self.data.lanes.close();
        self.report_channels(ChannelState::Retired, self.cached() + lanes);
        self.data.set = None;
        if !self.broken && self.prefetched.is_none() {
            let ControlSession {
                control, program, ..
            } = self.commands;
            control.quit().await;
            if let Some(program) = program {
                program.leave();
            }
        }
    }
}

impl DataPlane {
    fn mover(&mut self) -> Result<Mover> {
        if let Some(mover) = &self.mover {
            return Ok(mover.clone());
        }
        let mover = Mover::spawn("godwit-mover").map_err(|error| Error::System {
            doing: "start a mover thread".to_owned(),
            error: Arc::new(error),
        })?;
        self.mover = Some(mover.clone());
        Ok(mover)
    }
}

impl ControlSession {
    /// The times of the files that objects of a bucket are of, one each; `None`: it is not kept, or
    /// the service does not answer.
    pub(crate) async fn times_of_objects(&mut self, paths: &[FtpPath]) -> Vec<Option<Timestamp>> {
        let stop = self.context.stop.clone();
        match &mut self.control {
            Control::Http(control) => tokio::select! {
                times = control.times_of_objects(paths) => times,
                () = stop.cancelled() => vec![None; paths.len()],
            },
            Control::Ftp(_) => vec![None; paths.len()],
        }
    }

    /// Begins an upload in parts to a bucket, under a temporary name of the object `to`.
    pub(crate) async fn begin_upload(
        &mut self,
        temp_path: &FtpPath,
        (to, attributes): (&FtpPath, FileAttributes),
        size: u64,
    ) -> Result<PartedUpload> {
        let doing = format!("put {}", self.endpoint.url(to));
        let Control::Http(control) = &mut self.control else {
            return Err(Error::MissingFeature {
                endpoint: self.endpoint.name(),
                feature: "uploads in parts".to_owned(),
                consequence: format!("several jobs cannot {doing}"),
            });
        };
        match control.begin_divided(temp_path, to, attributes, size).await {
            Ok(Ok(upload)) => Ok(upload),
            Ok(Err(refusal)) => Err(Error::refused(doing, refusal)),
            Err(error) => Err(Error::Control { doing, error }),
        }
    }

    /// Sends a command and waits for its final reply, whatever it says. `doing` names verb and URL
    /// for messages.
    pub(crate) async fn ask(&mut self, command: &Command, doing: &str) -> Result<Reply> {
        // The answer would wait behind a transfer that is never taken.
        self.broken |= self.prefetched.is_some();
        if self.broken {
            return Err(self.not_connected(doing));
        }
        self.has_moved |= matches!(command, Command::Cwd(_));
        let stop = self.context.stop.clone();
        let asked = Instant::now();
        let outcome = tokio::select! {
            outcome = self.control.call(command) => {
                // A session of HTTP answers some by itself, and has that of its connections.
                if matches!(self.control, Control::Ftp(_)) {
                    self.round_trip = self.round_trip.min(asked.elapsed());
                }
                outcome
            }
            () = stop.cancelled() => {
                self.broken = true;
                return Err(Error::Interrupted);
            }
        };
        self.checked(outcome, doing)
    }

    /// Sends a command that must succeed.
    pub(crate) async fn ask_ok(&mut self, command: &Command, doing: &str) -> Result<Reply> {
        let reply = self.ask(command, doing).await?;
        if reply.code.is_success() || reply.code.is_intermediate() {
            Ok(reply)
        } else {
            Err(Error::refused(doing, reply))
        }
    }

    /// False once nothing more can be asked.
    pub(crate) fn is_usable(&self) -> bool {
        !self.broken
    }

    fn checked(
        &mut self,
        outcome: std::result::Result<Reply, ControlError>,
        doing: &str,
    ) -> Result<Reply> {
        match outcome {
            Ok(reply) => {
                if reply.code.get() == 421 {
                    self.broken = true;
                }
                Ok(reply)
            }
            Err(error) => {
                self.broken = true;
                Err(Error::Control {
                    doing: doing.to_owned(),
                    error,
                })
            }
        }
    }

    /// Learns from `reply` that the server lacks something, and reports it once.
    pub(crate) fn lesson(&self, which: Lack, reply: &Reply, what: &str, consequence: &str) {
        self.endpoint.capabilities.learn(
            which,
            &self.context.reporter,
            format!(
                "{}: no {what}: {consequence} (server said: {reply})",
                self.endpoint.name()
            ),
        );
    }

    fn not_connected(&self, doing: &str) -> Error {
        Error::Control {
            doing: doing.to_owned(),
            error: ControlError::Io {
                peer: self.control.peer(),
                error: Arc::new(std::io::ErrorKind::NotConnected.into()),
            },
        }
    }
}

/// A session, and one with the server that sends to it where bytes go from server to server. They
/// live and die together. Alone it is used as its receiver.
pub(crate) struct SessionPair {
    pub(crate) receiver: Session,
    pub(crate) sender: Option<Session>,
}

impl SessionPair {
    /// It can be used with `endpoint`, and with `sender` if there is one.
    fn serves(&self, endpoint: &Arc<Endpoint>, sender: Option<&Arc<Endpoint>>) -> bool {
        let own = self.sender.as_ref().map(|sender| &sender.endpoint);
        self.is_usable()
            && Arc::ptr_eq(&self.endpoint, endpoint)
            && sender.is_none_or(|sender| own.is_some_and(|own| Arc::ptr_eq(own, sender)))
    }

    /// The receiver, and the sender if there is one.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Session> {
        [Some(&self.receiver), self.sender.as_ref()]
            .into_iter()
            .flatten()
    }

    /// Bytes go from the sender to the receiver by way of this machine.
    pub(crate) fn is_through_client(&self) -> bool {
        let Some(sender) = &self.sender else {
            return false;
        };
        let copies = |session: &Session| !session.endpoint.capabilities.lacks(Lack::Copies);
        let is_like = self.endpoint.is_like(&sender.endpoint);
        !is_like || self.endpoint.is_http() && !self.servers().any(copies)
    }

    /// False once nothing more can be asked.
    pub(crate) fn is_usable(&self) -> bool {
        self.servers().all(|session| session.is_usable())
    }

    /// One that an earlier run has left.
    fn of_kept(
        context: &Arc<RunContext>,
        endpoint: &Arc<Endpoint>,
        sender: Option<&Arc<Endpoint>>,
        params: &ChannelParams,
        kept: KeptPair,
    ) -> Self {
        let of = |endpoint: &Arc<Endpoint>, kept| {
            Session::of_kept(context, endpoint, params.clone(), kept)
        };
        Self {
            receiver: of(endpoint, kept.receiver),
            sender: (sender.zip(kept.sender)).map(|(sender, kept)| of(sender, kept)),
        }
    }

    /// A later run can go on with it.
    fn can_be_kept(&self) -> bool {
        self.servers().all(Session::can_be_kept)
    }

    fn into_kept(self) -> Option<KeptPair> {
        let sender = match self.sender {
            Some(sender) => Some(sender.into_kept()?),
            None => None,
        };
        let receiver = self.receiver.into_kept()?;
        Some(KeptPair { receiver, sender })
    }

    /// Closes both in good order.
    pub(crate) async fn quit(self) {
        if let Some(sender) = self.sender {
            sender.quit().await;
        }
        self.receiver.quit().await;
    }
}

impl KeptPair {
    /// It is of this server, and of the one that sends to it where there is one.
    fn serves(&self, endpoint: &Endpoint, sender: Option<&Arc<Endpoint>>) -> bool {
        let senders = match (&self.sender, sender) {
            (Some(kept), Some(sender)) => sender.is_of(&kept.root),
            (kept, sender) => kept.is_none() && sender.is_none(),
        };
        senders && endpoint.is_of(&self.receiver.root)
    }

    /// One of its sessions is with this server.
    fn is_with(&self, endpoint: &Endpoint) -> bool {
        let is_of = |kept: &KeptSession| endpoint.is_of(&kept.root);
        is_of(&self.receiver) || self.sender.as_ref().is_some_and(is_of)
    }
}

impl From<Session> for SessionPair {
    fn from(receiver: Session) -> Self {
        Self {
            receiver,
            sender: None,
        }
    }
}

impl Deref for SessionPair {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.receiver
    }
}

impl DerefMut for SessionPair {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.receiver
    }
}

fn client_info(endpoint: &Endpoint) -> String {
    format!(
        "scheme={};appname=\"godwit\";appver=\"{}\";",
        endpoint.scheme_name(),
        env!("CARGO_PKG_VERSION")
    )
}

/// `None` where no observer wants it: two lines a command are work.
fn protocol_trace(context: &Arc<RunContext>, endpoint: &Arc<Endpoint>) -> Option<ProtocolTrace> {
    if !context.reporter.observer().hears_dialogue() {
        return None;
    }
    // Weak: the log lives in the control channel, which must not keep the run alive.
    let context = Arc::downgrade(context);
    let host = endpoint.host().to_owned();
    Some(Arc::new(move |sent, line| {
        if let Some(context) = context.upgrade() {
            context.reporter.emit(&Event::Dialogue {
                host: host.clone(),
                sent,
                line: line.to_owned(),
            });
        }
    }))
}

fn ftp(opened: LoggedIn) -> LoggedIn<Control> {
    opened.map_control(|control| Control::Ftp(Box::new(control)))
}
