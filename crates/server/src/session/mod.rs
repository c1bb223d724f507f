//! One session: a task that owns the control connection, the interpreter, and the work that the
//! interpreter waits for.
//!
//! ```text
//!   socket ──bytes──► Security ──► ServerPi ──outputs──► Security ──► ReplyBuffer ──► socket
//!                                     ▲  │
//!                   answers, steps ───┘  └──► Work: PendingRequest | RunningTransfer (at most
//!                                             one), SpeculativeWork, DataChannels
//! ```
//! Events set state; only [`Session::carry_out`] acts on the interpreter's outputs. An idle session
//! is this struct and one descriptor: no thread, no read buffer, no listener.

mod control;
pub(crate) mod control_io;
mod handover;
mod lines;
pub(crate) mod reply_buffer;
mod requests;
mod session_log;
mod speculative;
mod work;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Instant, SystemTime},
};

use godwit_proto::{
    FtpPath,
    error::StorageFailure,
    pi::server::{Input, Outcome, Output, ServerConfig, ServerPi},
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
    handover::Handover,
    reply_buffer::{UNSENT_MAX, UNSENT_PAUSE},
    session_log::{CUT_SHORT, SessionLog, change_of, entry_of},
    work::{Work, WorkEvent},
};
use crate::{
    access::{admission::ConnectionPermit, gsi::refusal},
    login,
    observe::{
        class::Class,
        event::{Entry, What},
    },
    requests::Answer,
    service::Service,
    storage::failure,
    transfers::{TransferEnd, TransferStep},
};

/// Bytes taken from a control connection at a time.
const READ_BYTES: usize = 16 * 1024;

/// Steps of transfers and answers that a session takes, if they are ready, before it sends their
/// replies.
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
    /// The server shuts down.
    Aborted,
    /// Other connections that want to log in need its place.
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

/// Serves one client over any control connection.
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

/// The interpreter's settings; those that depend on the account are the ones before login.
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
    io: ControlIo,
    pi: ServerPi,
    work: Work,
    log: SessionLog,
    /// Of the control connection, on this side.
    local: SocketAddr,
    service: Arc<Service>,
    permit: ConnectionPermit,
    handover: Handover,
    /// The interpreter has sent its last reply.
    closing: bool,
}

enum Event {
    Socket(io::Result<Ready>),
    /// The client closed the connection while nothing was read from it.
    Gone,
    Work(WorkEvent),
    Phase(Phase),
    Deadline,
    Evicted,
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
            io: ControlIo::new(socket, service.settings.unread_limit),
            pi: interpreter(config, Instant::now()),
            work: Work::new(&service),
            log: SessionLog::new(permit.number(), peer),
            local,
            service,
            permit,
            handover: Handover::default(),
            closing: false,
        }
    }

    /// Serves until the end, or until another process takes over.
    async fn live(mut self, mut phase: watch::Receiver<Phase>) -> Option<HandedOver> {
        let (id, peer) = (self.log.id, self.log.peer);
        info!(session = id, %peer, "session starts");
        let started = Instant::now();
        let end = self.serve(&mut phase).await;
        if let End::Lost | End::Broken(_) = end {
            self.work.drain_upload(&mut phase).await;
        }
        // Sockets, files and threads go before the last replies, which may take a while.
        self.stop_work();
        if self.log.user.is_some() {
            self.record(Entry::new(What::Logout));
        }
        match &end {
            End::Closed | End::Aborted => self.io.control.close_gracefully().await,
            End::HandedOver => return self.into_handed_over(),
            End::Lost | End::Broken(_) | End::Unread | End::Evicted => {}
        }
        let seconds = started.elapsed().as_secs();
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
            End::Aborted => {
                info!(session = id, %peer, seconds, "session ends: aborted by shutdown")
            }
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
                Event::Socket(ready) => self.on_socket(ready),
                Event::Gone => {
                    self.input(Input::Closed);
                    Some(End::Lost)
                }
                Event::Work(event) => {
                    self.on_work(event);
                    self.continue_ready_work().await;
                    None
                }
                Event::Phase(phase) => self.enter(phase),
                Event::Deadline => self.on_deadline(),
                Event::Evicted => {
                    self.push_replies(EVICTED.to_vec());
                    // A client that reads has room for a line.
                    drop(self.io.send());
                    Some(End::Evicted)
                }
            };
            if let Some(end) = end {
                return end;
            }
            if self.handover.relay.is_some() {
                return End::HandedOver;
            }
        }
    }

    async fn next_event(&mut self, phase: &mut watch::Receiver<Phase>) -> Event {
        let has_room = self.io.unsent() < UNSENT_PAUSE;
        let takes =
            self.pi.wants_bytes() && !self.io.security.is_busy() && !self.handover.is_deciding;
        let reads = has_room && !self.closing && takes;
        let writes = self.io.unsent() > 0;
        // Commands that wait in the kernel would hide the end behind them while work runs.
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
            io, work, permit, ..
        } = self;
        tokio::select! {
            ready = async { io.control.ready(interest.unwrap_or(Interest::ERROR)).await },
                if interest.is_some() => Event::Socket(ready),
            () = io.control.closed(), if watches => Event::Gone,
            event = work.next_event(has_room) => Event::Work(event),
            () = until(deadline) => Event::Deadline,
            () = permit.evicted() => Event::Evicted,
            changed = phase.changed() => Event::Phase(match changed {
                Ok(()) => *phase.borrow_and_update(),
                // The server was dropped.
                Err(_) => Phase::Aborting,
            }),
        }
    }

    fn on_work(&mut self, event: WorkEvent) {
        match event {
            WorkEvent::Answer(answer) => self.on_answer(answer),
            WorkEvent::Step(TransferStep::Ready { reused }) => {
                self.input(Input::TransferReady { reused });
            }
            WorkEvent::Step(TransferStep::Done(end)) => self.on_transfer_end(end),
            WorkEvent::Dropped => {}
            WorkEvent::ReportDue => {
                let progress = self.work.report();
                self.permit.connection_metrics().progress(&progress);
                self.service.audit.progress(progress);
            }
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.pi.handle_input(Instant::now(), input);
    }

    fn on_socket(&mut self, ready: io::Result<Ready>) -> Option<End> {
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Some(End::Broken(error)),
        };
        // The loop writes in every round.
        if ready.is_readable() || ready.is_read_closed() || ready.is_error() {
            self.read()
        } else {
            None
        }
    }

    fn read(&mut self) -> Option<End> {
        // Bytes that arrive during a step of a handshake are for the next step.
        if self.closing || self.io.security.is_busy() {
            return None;
        }
        let mut buffer = [0; READ_BYTES];
        match self.io.control.try_read(&mut buffer) {
            Ok(0) => {
                self.input(Input::Closed);
                Some(End::Lost)
            }
            Ok(count) => {
                if self.log.user.is_none() {
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
        let more = matches!(
            &answer,
            Answer::Progress(_) | Answer::Done(Ok(Outcome::Listing { last: false, .. }))
        );
        if !more {
            self.work.request = None;
        }
        let result = match answer {
            Answer::Tls(step) => return self.on_tls(*step),
            Answer::NotStarted(request) => return self.work.start_request_now(request),
            Answer::Progress(bytes) => return self.input(Input::ChecksumProgress(bytes)),
            Answer::Listener(plan, listener) => {
                let settings = &self.service.settings;
                let announced = self.work.channels.listen(&plan, listener, settings);
                announced.map(|address| Outcome::Listening(vec![address]))
            }
            Answer::Stripes(made) => made.map(|(stripes, addresses)| {
                if let Some(nodes) = self.work.channels.nodes_mut() {
                    nodes.keep(stripes);
                }
                match addresses.is_empty() {
                    true => Outcome::Done,
                    false => Outcome::Listening(addresses),
                }
            }),
            Answer::Handshake(step) => {
                let kept = match &self.service.gsi {
                    Some(gsi) => self.io.security.keep(gsi, *step),
                    None => Err(failure(Errno::OPNOTSUPP, "authenticate")),
                };
                if let Err(failure) = &kept {
                    self.permit.failed();
                    self.on_handshake_failure(failure);
                }
                kept.map(Outcome::Adat)
            }
            Answer::Login { user, admitted } => self.decide(&user, admitted),
            Answer::Entered(entered) => {
                self.handover.is_deciding = false;
                match entered {
                    Ok(relay) => return self.hand_over(relay),
                    Err(why) => {
                        self.input(Input::Done(Err(refusal(&why))));
                        self.carry_out();
                        return self.receive_held_lines();
                    }
                }
            }
            Answer::Done(result) => {
                if !more {
                    let failure = result.as_ref().err();
                    self.end_change(failure.map(Into::into), failure);
                }
                result
            }
        };
        self.input(Input::Done(result));
    }

    fn on_handshake_failure(&mut self, failure: &StorageFailure) {
        if let Some(monitor) = &self.service.monitor
            && let Err(error) = monitor.handshake_failed(&failure.text)
        {
            warn!(session = self.log.id, %error, "cannot report the handshake to the monitor");
        }
        self.record(self.log.handshake_failed(failure));
    }

    /// Records an event in the audit log and the metrics.
    fn record(&self, entry: Entry) {
        let who = self.log.who(self.io.security.identity());
        self.permit.connection_metrics().observe(&who, &entry);
        self.service.audit.record(&who, &entry);
    }

    /// Records the end of the change that a request makes, if it makes one.
    fn end_change(&mut self, class: Option<Class>, failure: Option<impl ToString>) {
        if let Some(change) = self.log.change.take() {
            self.record(change.class(class).ended(failure));
        }
    }

    /// Records speculative work that is about to be dropped.
    fn record_speculative(&self) {
        let requests = self.work.speculative.requests().filter_map(change_of);
        let transfers = self.work.speculative.transfers().map(entry_of);
        for entry in requests.chain(transfers) {
            let entry = entry.class(Some(Class::Aborted));
            self.record(entry.ended(Some(CUT_SHORT)));
        }
    }

    /// Ends all work, and closes files, sockets and listeners.
    fn stop_work(&mut self) {
        if let Some(end) = self.work.abort_transfer() {
            self.record_transfer(&end);
        }
        self.end_change(Some(Class::Aborted), Some(CUT_SHORT));
        self.record_speculative();
        self.work.stop();
    }

    /// Handles work that is ready: the replies to many small files then leave together.
    async fn continue_ready_work(&mut self) {
        for _ in 0..STEPS_A_WRITE {
            self.carry_out();
            if self.io.unsent() >= UNSENT_PAUSE {
                return;
            }
            match self.work.ready_event().await {
                Some(event) => self.on_work(event),
                None => return,
            }
        }
    }

    /// Bytes of each stripe, where a transfer has several.
    fn input_stripes(&mut self) {
        let stripes = self.work.stripes();
        if !stripes.is_empty() {
            self.input(Input::TransferStripes(stripes));
        }
    }

    fn on_transfer_end(&mut self, end: TransferEnd) {
        self.input_stripes();
        self.record_transfer(&end);
        let input = Input::TransferDone {
            bytes: end.bytes,
            fresh: end.fresh,
            result: end.result,
            cached: end.cached,
        };
        self.input(input);
    }

    fn record_transfer(&mut self, end: &TransferEnd) {
        if let Some(transfer) = self.work.transfer.take() {
            let entry = self.log.transfer_ended(&transfer, end, &self.work.channels);
            self.record(entry);
        }
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
                self.input(Input::Shutdown);
                None
            }
            Phase::Aborting => {
                // The interpreter owes the client a reply on the aborted work, and its 421.
                let now = Instant::now();
                self.pi.handle_input(now, Input::Shutdown);
                if let Some(end) = self.work.abort_transfer() {
                    self.on_transfer_end(end);
                }
                if self.work.request.take().is_some() {
                    let cut = failure(Errno::CANCELED, "continue while shutting down");
                    self.pi.handle_input(now, Input::Done(Err(cut)));
                }
                self.carry_out();
                // Replies that cannot be sent at once are not worth waiting for.
                drop(self.io.send());
                Some(End::Aborted)
            }
        }
    }

    /// Acts on the interpreter's outputs, in order, until there are none.
    fn carry_out(&mut self) {
        // Dropped work may still touch files: what comes next must not meet it.
        while !self.work.speculative.is_ending()
            && let Some(output) = self.pi.poll_output()
        {
            match output {
                Output::SpeculativeTransfer(request) => self.work.expect_transfer(request),
                Output::SpeculativeRequest(request) => self.work.expect_request(request),
                Output::SkipSpeculative => self.work.speculative.skip(),
                Output::DropSpeculative => {
                    self.record_speculative();
                    self.work.speculative.forget();
                }
                Output::Send(bytes) => self.push_replies(bytes),
                Output::Protect => self.protect(),
                Output::Request(request) => self.carry_out_request(request),
                Output::StartTransfer(request) => {
                    debug!(session = self.log.id, ?request, "transfer starts");
                    self.work.start_transfer(request);
                }
                Output::AbortTransfer => {
                    if let Some(transfer) = &mut self.work.transfer {
                        transfer.running.abort();
                    }
                }
                Output::ReportProgress => {
                    if let Some(progress) = self.work.progress() {
                        self.input_stripes();
                        self.input(progress);
                    }
                }
                Output::Live(live) => self.input(self.work.live(live)),
                Output::NextChannels(channels) => self.work.channels.next_channels(channels),
                Output::DropDataChannels => self.work.channels.close(),
                Output::Close => {
                    self.io.push_close();
                    self.closing = true;
                    self.stop_work();
                }
                Output::Note(text) => {
                    let (session, peer) = (self.log.id, self.log.peer);
                    info!(session, %peer, note = ?text, "client note");
                }
            }
        }
        self.work.prepare();
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
