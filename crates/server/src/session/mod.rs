//! One session: a task that owns the control connection, the interpreter, and what the interpreter
//! is waiting for.
//!
//! ```text
//!   socket ──bytes──► Security ──► ServerPi ──outputs──► Security ──► ReplyBuffer ──► socket
//!                                     ▲  │
//!                   answers, steps ───┘  └──► Work: PendingRequest | RunningTransfer (at most
//!                                             one), SpeculativeWork, DataChannels
//! ```
//! Events set state; only [`Session::carry_out`] acts on what the interpreter asks for. An idle
//! session is this struct and one descriptor: no thread, no read buffer, no listener.

mod control;
pub(crate) mod control_io;
mod drain_on_disconnect;
mod handover;
mod lines;
mod progress_report;
pub(crate) mod reply_buffer;
mod requests;
mod session_log;
mod speculative;

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Instant, SystemTime},
};

use godwit_proto::{
    FtpPath,
    pi::server::{Input, Outcome, Output, ServerConfig, ServerPi, TransferKind, TransferRequest},
};
use rustix::io::Errno;
use tokio::{
    io::{Interest, Ready},
    net::TcpStream,
    sync::watch,
    time::sleep_until,
};
use tracing::{debug, info, warn};

pub(crate) use self::{
    control::Control,
    handover::{Entered, HandedOver, canonical, serve_after_login, serve_until_login},
};

use self::{
    control_io::ControlIo,
    reply_buffer::{UNSENT_MAX, UNSENT_PAUSE},
    speculative::SpeculativeWork,
};
use crate::{
    access::{
        admission::ConnectionPermit, gsi::refusal, rights::Rights, scoped::ScopedStorage,
        turns::AccountTurns,
    },
    login,
    observe::event::{Command, Entry, What},
    requests::{Answer, PendingRequest},
    service::Service,
    storage::{durability::Committer, failure},
    transfers::{RunningTransfer, TransferEnd, TransferStep, data_channels::DataChannels},
};

/// Bytes taken from a control connection at a time.
const READ_BYTES: usize = 16 * 1024;

/// Steps of transfers and answers that are taken before their replies leave, where the next is
/// there already.
const STEPS_A_WRITE: usize = 64;

/// Failed logins before a session is closed.
pub(crate) const LOGIN_ATTEMPTS_MAX: u32 = 5;

pub(crate) const EVICTED: &[u8] =
    b"421 Too many connections that have not logged in, closing control connection.\r\n";

/// The phase of the whole server. Sessions hold receivers: their number is the number of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// New connections and commands are served.
    Serving,
    /// No new commands; running transfers may end.
    Draining,
    /// Running transfers are aborted.
    Aborting,
}

/// Why a session ended.
#[derive(Debug)]
enum End {
    /// QUIT, or the interpreter closed it; its last reply says why.
    Closed,
    /// The client closed or lost the connection.
    Lost,
    /// Reading or writing failed.
    Broken(io::Error),
    /// The client does not read.
    Unread,
    /// The server goes down.
    Aborted,
    /// Others who want to log in need the room.
    Evicted,
    /// A process of the account has taken over.
    HandedOver,
}

/// Serves one client until the end.
pub(crate) async fn run(
    socket: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    service: Arc<Service>,
    phase: watch::Receiver<Phase>,
) {
    let local = match socket.local_addr() {
        Ok(local) => canonical(local),
        Err(error) => {
            let session = permit.number();
            debug!(session, %peer, %error, "connection was lost before the greeting");
            return;
        }
    };
    serve_connection(Control::Client(socket), peer, local, permit, service, phase).await;
}

/// Serves one client over whatever leads to it.
pub(crate) async fn serve_connection(
    control: Control,
    peer: SocketAddr,
    local: SocketAddr,
    permit: ConnectionPermit,
    service: Arc<Service>,
    phase: watch::Receiver<Phase>,
) {
    let session = Session::new(control, peer, local, permit, service, ServerPi::new);
    drop(session.live(phase).await);
}

/// What the interpreter of a session is told; what depends on the account is what holds until
/// login.
pub(crate) fn interpreter_config(
    service: &Service,
    peer: SocketAddr,
    local: SocketAddr,
) -> ServerConfig {
    let settings = &service.settings;
    ServerConfig {
        greeting: settings.banner.clone(),
        version: format!("godwitd {}", env!("CARGO_PKG_VERSION")),
        peer,
        local,
        idle_limit: settings.idle_limit,
        login_limit: settings.login_limit,
        login_attempts_max: LOGIN_ATTEMPTS_MAX,
        foreign_data_hosts: false,
        channels_max: settings.channels_max,
        writable: false,
        home: FtpPath::root(),
        gssapi: service.gsi.is_some(),
        tls: settings.tls.is_some(),
        tokens: settings.tokens.is_some(),
        private_channel: service.owner.is_some(),
        clear_logins: login::in_clear(settings),
        min_protection: settings.protect,
        unix_time: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    }
}

struct Session {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    io: ControlIo,
    service: Arc<Service>,
    /// The way to storage: the service's, or after a login with limited rights one of its own.
    committer: Arc<Committer>,
    /// Of its account, for checksums.
    turns: AccountTurns,
    pi: ServerPi,
    request: Option<PendingRequest>,
    /// What `request` changes, for the audit log.
    change: Option<Entry>,
    transfer: Option<Box<Transfer>>,
    speculative: SpeculativeWork,
    channels: DataChannels,
    user: Option<String>,
    permit: ConnectionPermit,
    /// The monitor decides on a login.
    entering: bool,
    /// Bytes behind that login.
    held: Vec<u8>,
    /// The relay to the process that takes over.
    relay: Option<OwnedFd>,
    /// The interpreter has sent its last reply.
    closing: bool,
    /// When to report progress.
    next_progress_at: Option<Instant>,
}

/// A transfer, and what the log says of it.
struct Transfer {
    running: RunningTransfer,
    verb: &'static str,
    command: Command,
    path: FtpPath,
}

enum Event {
    Socket(io::Result<Ready>),
    /// The client closed the connection while nothing was read from it.
    Gone,
    Answer(Answer),
    Step(TransferStep),
    /// Nothing is left of what was begun too early.
    Forgotten,
    Phase(Phase),
    Deadline,
    Evicted,
    Tell,
}

impl Session {
    fn new(
        socket: Control,
        peer: SocketAddr,
        local: SocketAddr,
        permit: ConnectionPermit,
        service: Arc<Service>,
        interpreter: impl FnOnce(ServerConfig, Instant) -> ServerPi,
    ) -> Self {
        let peer = canonical(peer);
        let config = interpreter_config(&service, peer, local);
        Self {
            id: permit.number(),
            permit,
            peer,
            local,
            io: ControlIo::new(socket, service.settings.unread_limit),
            pi: interpreter(config, Instant::now()),
            committer: Arc::clone(&service.committer),
            turns: service.turns.of(""),
            service,
            request: None,
            change: None,
            transfer: None,
            speculative: SpeculativeWork::default(),
            channels: DataChannels::default(),
            user: None,
            entering: false,
            held: Vec::new(),
            relay: None,
            closing: false,
            next_progress_at: None,
        }
    }

    /// Serves until the end, or until another process takes over.
    async fn live(mut self, mut phase: watch::Receiver<Phase>) -> Option<HandedOver> {
        let (id, peer) = (self.id, self.peer);
        info!(session = id, %peer, "session begins");
        let begun = Instant::now();
        let end = self.serve(&mut phase).await;
        self.drain_upload(&end, &mut phase).await;
        // Sockets, files and threads go before the farewell, which may take its time.
        self.stop_work();
        if self.user.is_some() {
            self.record(Entry::new(What::Logout));
        }
        match &end {
            End::Closed | End::Aborted => self.io.control.close_gracefully().await,
            End::HandedOver => return self.into_handed_over(),
            End::Lost | End::Broken(_) | End::Unread | End::Evicted => {}
        }
        let seconds = begun.elapsed().as_secs();
        match end {
            End::Closed | End::HandedOver => info!(session = id, %peer, seconds, "session ends"),
            End::Lost => {
                info!(session = id, %peer, seconds, "session ends: connection closed by client")
            }
            End::Broken(error) => {
                info!(session = id, %peer, seconds, %error, "session ends: connection broke")
            }
            End::Unread => {
                warn!(session = id, %peer, seconds, "session ends: client does not read replies")
            }
            End::Aborted => info!(session = id, %peer, seconds, "session ends: cut by shutdown"),
            End::Evicted => {
                info!(session = id, %peer, seconds, "session ends: evicted before login")
            }
        }
        None
    }

    async fn serve(&mut self, phase: &mut watch::Receiver<Phase>) -> End {
        // A session may be accepted just before the shutdown begins.
        let now = *phase.borrow_and_update();
        if let Some(end) = self.enter(now) {
            return end;
        }
        loop {
            self.carry_out();
            if let Err(error) = self.io.send() {
                return End::Broken(error);
            }
            if self.closing && self.io.unsent() == 0 {
                return End::Closed;
            }
            if self.io.unsent() > UNSENT_MAX {
                return End::Unread;
            }
            let end = match self.next_event(phase).await {
                Event::Forgotten => None,
                Event::Socket(ready) => self.on_socket(ready),
                Event::Gone => {
                    self.pi.handle_input(Instant::now(), Input::Closed);
                    Some(End::Lost)
                }
                Event::Answer(answer) => {
                    self.on_answer(answer);
                    self.continue_ready_work().await;
                    None
                }
                Event::Step(step) => {
                    self.on_step(step);
                    self.continue_ready_work().await;
                    None
                }
                Event::Phase(phase) => self.enter(phase),
                Event::Deadline => self.on_deadline(),
                Event::Tell => {
                    self.publish_progress();
                    None
                }
                Event::Evicted => {
                    self.push_replies(EVICTED.to_vec());
                    // Whoever reads it has room for a line.
                    drop(self.io.send());
                    Some(End::Evicted)
                }
            };
            if let Some(end) = end {
                return end;
            }
            if self.relay.is_some() {
                return End::HandedOver;
            }
        }
    }

    async fn next_event(&mut self, phase: &mut watch::Receiver<Phase>) -> Event {
        let has_room = self.io.unsent() < UNSENT_PAUSE;
        let takes = self.pi.wants_bytes() && !self.io.security.is_busy() && !self.entering;
        let reads = has_room && !self.closing && takes;
        let writes = self.io.unsent() > 0;
        // Commands that wait in the kernel would hide the end behind them for as long as work goes
        // on.
        let watches = !reads && !self.closing;
        let interest = match (reads, writes) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        let deadline = [self.pi.poll_timeout(), self.io.deadline()]
            .into_iter()
            .flatten()
            .min();
        let Self {
            io,
            request,
            transfer,
            speculative,
            channels,
            permit,
            next_progress_at,
            ..
        } = self;
        tokio::select! {
            ready = async { io.control.ready(interest.unwrap_or(Interest::ERROR)).await },
                if interest.is_some() => Event::Socket(ready),
            () = io.control.closed(), if watches => Event::Gone,
            // Not while the client has much to read: pages of a listing would pile up.
            answer = next_answer(request), if has_room => Event::Answer(answer),
            step = next_step(transfer, channels) => Event::Step(step),
            () = speculative.settle(channels) => Event::Forgotten,
            () = until(deadline) => Event::Deadline,
            () = until(*next_progress_at) => Event::Tell,
            () = permit.evicted() => Event::Evicted,
            changed = phase.changed() => Event::Phase(match changed {
                Ok(()) => *phase.borrow_and_update(),
                // The server was dropped.
                Err(_) => Phase::Aborting,
            }),
        }
    }

    fn on_socket(&mut self, ready: io::Result<Ready>) -> Option<End> {
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Some(End::Broken(error)),
        };
        // Writing is tried on every round of the loop.
        if ready.is_readable() || ready.is_read_closed() || ready.is_error() {
            self.read()
        } else {
            None
        }
    }

    fn read(&mut self) -> Option<End> {
        // What comes in the midst of a step of a handshake is for the next.
        if self.closing || self.io.security.is_busy() {
            return None;
        }
        let mut buffer = [0; READ_BYTES];
        match self.io.control.try_read(&mut buffer) {
            Ok(0) => {
                self.pi.handle_input(Instant::now(), Input::Closed);
                Some(End::Lost)
            }
            Ok(count) => {
                if self.user.is_none() {
                    self.permit.received_first_byte();
                }
                self.receive(&buffer[..count]);
                None
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                None
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Some(End::Lost),
            Err(error) => Some(End::Broken(error)),
        }
    }

    fn on_answer(&mut self, answer: Answer) {
        let input = match answer {
            Answer::Tls(step) => {
                self.request = None;
                return self.on_tls(*step);
            }
            Answer::Listener(plan, listener) => {
                self.request = None;
                let settings = &self.service.settings;
                let announced = self.channels.listen(&plan, listener, settings);
                Input::Done(announced.map(|address| Outcome::Listening(vec![address])))
            }
            Answer::Progress(bytes) => Input::ChecksumProgress(bytes),
            Answer::Handshake(step) => {
                self.request = None;
                let kept = match &self.service.gsi {
                    Some(gsi) => self.io.security.keep(gsi, *step),
                    None => Err(failure(Errno::OPNOTSUPP, "prove an identity")),
                };
                if let Err(failure) = &kept {
                    self.permit.failed();
                    self.log_handshake(failure);
                }
                Input::Done(kept.map(Outcome::Adat))
            }
            Answer::Login { user, admitted } => {
                self.request = None;
                Input::Done(self.decide(&user, admitted))
            }
            Answer::NotStarted(request) => {
                self.request = None;
                return self.begin_request(request);
            }
            Answer::Entered(entered) => {
                self.request = None;
                self.entering = false;
                match entered {
                    Ok(relay) => return self.hand_over(relay),
                    Err(why) => {
                        let refused = Input::Done(Err(refusal(&why)));
                        self.pi.handle_input(Instant::now(), refused);
                        self.carry_out();
                        return self.receive_held_lines();
                    }
                }
            }
            Answer::Done(result) => {
                let more = matches!(&result, Ok(Outcome::Listing { last: false, .. }));
                if !more {
                    let failure = result.as_ref().err();
                    self.log_change(failure.map(Into::into), failure);
                    self.request = None;
                }
                Input::Done(result)
            }
        };
        self.pi.handle_input(Instant::now(), input);
    }

    fn confine_to_rights(&mut self, rights: Rights, holder: &str) {
        let inner = self.committer.storage();
        let made = self.service.made.of(holder);
        let scoped = ScopedStorage::new(inner, rights, Arc::new(SystemTime::now), made);
        self.committer = Committer::new(self.committer.durability(), Arc::new(scoped));
    }

    /// Takes what has happened meanwhile: replies to small files then leave many at a time.
    async fn continue_ready_work(&mut self) {
        for _ in 0..STEPS_A_WRITE {
            self.carry_out();
            if self.io.unsent() >= UNSENT_PAUSE {
                return;
            }
            tokio::select! {
                biased;
                step = next_step(&mut self.transfer, &self.channels) => self.on_step(step),
                answer = next_answer(&mut self.request) => self.on_answer(answer),
                () = std::future::ready(()) => return,
            }
        }
    }

    fn on_step(&mut self, step: TransferStep) {
        match step {
            TransferStep::Ready { reused } => self
                .pi
                .handle_input(Instant::now(), Input::TransferReady { reused }),
            TransferStep::Done(end) => self.on_transfer_end(end),
        }
    }

    fn on_transfer_end(&mut self, end: TransferEnd) {
        if let Some(transfer) = self.transfer.take() {
            self.log_transfer(&transfer, &end);
        }
        let input = Input::TransferDone {
            bytes: end.bytes,
            fresh: end.fresh,
            result: end.result,
            cached: end.cached,
        };
        self.pi.handle_input(Instant::now(), input);
    }

    fn on_deadline(&mut self) -> Option<End> {
        let now = Instant::now();
        let unread = self.io.deadline();
        if unread.is_some_and(|deadline| deadline <= now) {
            return Some(End::Unread);
        }
        self.pi.handle_input(now, Input::Timeout);
        None
    }

    fn enter(&mut self, phase: Phase) -> Option<End> {
        match phase {
            Phase::Serving => None,
            Phase::Draining => {
                self.pi.handle_input(Instant::now(), Input::Shutdown);
                None
            }
            Phase::Aborting => {
                // The interpreter owes the client a word on what was cut, and its 421.
                let now = Instant::now();
                self.pi.handle_input(now, Input::Shutdown);
                if let Some(end) = self.abort_transfer() {
                    self.on_transfer_end(end);
                }
                if self.request.take().is_some() {
                    let cut = failure(Errno::CANCELED, "go on while shutting down");
                    self.pi.handle_input(now, Input::Done(Err(cut)));
                }
                self.carry_out();
                // What cannot be sent at once is not worth waiting for.
                drop(self.io.send());
                Some(End::Aborted)
            }
        }
    }

    /// Does what the interpreter asks, in order, until it has nothing more to ask.
    fn carry_out(&mut self) {
        // What ends behind the interpreter's back may still touch files: what comes next must not
        // meet it.
        while !self.speculative.is_ending()
            && let Some(output) = self.pi.poll_output()
        {
            match output {
                Output::SpeculativeTransfer(request) => {
                    self.speculative.add_transfer(
                        request,
                        &self.committer,
                        &self.turns,
                        &mut self.channels,
                    );
                }
                Output::SpeculativeRequest(request) => self.speculative.add_request(
                    request,
                    &self.committer,
                    &self.turns,
                    &self.channels,
                ),
                Output::SkipSpeculative => self.speculative.skip(),
                Output::DropSpeculative => {
                    self.log_speculative();
                    self.speculative.forget();
                }
                Output::Send(bytes) => self.push_replies(bytes),
                Output::Protect => self.protect(),
                Output::Request(request) => self.carry_out_request(request),
                Output::StartTransfer(request) => self.start_transfer(request),
                Output::AbortTransfer => {
                    if let Some(transfer) = &mut self.transfer {
                        transfer.running.abort();
                    }
                }
                Output::ReportProgress => self.report_progress(),
                Output::Live(live) => {
                    let transfer = self.transfer.as_ref();
                    let report = transfer.and_then(|t| t.running.live(live));
                    self.pi
                        .handle_input(Instant::now(), Input::Live(report.map(Box::new)));
                }
                Output::NextChannels(channels) => self.channels.next_channels(channels),
                Output::DropDataChannels => self.channels.close(),
                Output::Close => {
                    self.io.push_close();
                    self.closing = true;
                    self.stop_work();
                }
                Output::Note(text) => {
                    info!(session = self.id, peer = %self.peer, note = ?text, "client note");
                }
            }
        }
        self.speculative.prepare(&self.committer);
    }

    fn start_transfer(&mut self, request: TransferRequest) {
        debug!(session = self.id, request = ?request, "transfer begins");
        let (verb, path) = match &request.kind {
            TransferKind::Send { path, .. } => ("send", path),
            TransferKind::Receive { path, .. } => ("receive", path),
            TransferKind::List { path, .. } => ("list", path),
        };
        let path = path.clone();
        let command = session_log::command_of(&request.kind);
        let running = match self.speculative.start(&request) {
            Some(running) => running,
            None => {
                RunningTransfer::start(request, &self.committer, &self.turns, &mut self.channels)
            }
        };
        self.transfer = Some(Box::new(Transfer {
            running,
            verb,
            command,
            path,
        }));
        self.schedule_progress();
    }

    fn report_progress(&mut self) {
        if let Some(transfer) = &mut self.transfer {
            let (bytes, fresh) = transfer.running.progress();
            self.pi
                .handle_input(Instant::now(), Input::TransferProgress { bytes, fresh });
        }
    }
}

async fn next_answer(request: &mut Option<PendingRequest>) -> Answer {
    match request {
        Some(request) => request.next().await,
        None => std::future::pending().await,
    }
}

async fn next_step(transfer: &mut Option<Box<Transfer>>, channels: &DataChannels) -> TransferStep {
    match transfer {
        Some(transfer) => transfer.running.next(channels).await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
