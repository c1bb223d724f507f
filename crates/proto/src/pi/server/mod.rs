//! The server's protocol interpreter: bytes in, replies and requests out.
//!
//! The shell owns sockets, files and movers. It feeds [`Input`]s with the present time and carries
//! out [`Output`]s in order. At most one [`Request`] or transfer is outstanding; commands that
//! arrive meanwhile are queued (the shell pauses at [`QUEUE_PAUSE`]) and answered in order. ABOR
//! alone is read out of order, and the live requests of [`crate::live`] alone are answered so.
//!
//! ```text
//!              line ──► queue ──► dispatch ──► reply                         (Pending::Nothing)
//!                         ▲          ├──────► Request ── Done ──► reply      (Pending::Request)
//!                         │          └──────► transfer (transfer.rs)         (Pending::Transfer)
//!                         │                     Reserving ─► Listening ─► Starting ─► Moving
//!                  ABOR marks what waits           └─────────────┴── 4xx ─────┴── 226/4xx
//! ```
//!
//! # What the shell may rely on
//! - `DropDataChannels` comes whenever the data channel object is gone, also after each transfer in
//!   MODE S and after a failed one (a moment later where a receipt failed for reasons of its file:
//!   no connection may be closed before); a shell that forgets by itself as well does no harm.
//! - `Close` is the last output. It ends data channels, too. Inputs after it are ignored.
//! - `SpeculativeTransfer` and `SpeculativeRequest` announce what waits in the queue. The next
//!   `StartTransfer` or `Request` is the first announced one that was neither skipped nor dropped.
//! - After `AbortTransfer` one `TransferDone` is still due; before it no other transfer or request
//!   starts.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    command::{Command, CommandError},
    line::{BadLine, LineEvent, LineReader},
    live::Live,
    reply::{Reply, ReplyCode, write_last},
    site::Site,
};

mod abort;
mod data_channel;
mod dispatch;
mod files;
mod help;
mod listing;
mod live_request;
mod login;
mod lookahead;
mod markers;
mod options;
mod purpose;
mod security;
mod session;
mod site;
mod transfer;
mod transfer_checks;
mod types;

pub use lookahead::SPECULATIVE_MAX;
pub use types::*;

use lookahead::Lookahead;
use purpose::Purpose;
use session::Session;
use transfer::Transfer;

/// Commands read ahead above which the shell should read no more until some have run:
/// [`ServerPi::wants_bytes`].
pub const QUEUE_PAUSE: usize = 1000;

/// Bytes of commands read ahead, with the same meaning.
pub const QUEUE_BYTES_PAUSE: usize = 256 * 1024;

/// Where commands are left to the kernel, so is the end of the connection behind them, and a client
/// that is gone would be served for hours. So a command that takes longer than this is followed by
/// a preliminary reply, and [`PROBE_EVERY`] by another: the kernel of a client that is gone answers
/// it with a reset.
const PROBE_AFTER: Duration = Duration::from_secs(3);
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Commands read ahead before the session is closed with `500 Pipeline queue full.` A shell that
/// reads 16 KiB at a time and pauses never gets here, even where all lines are empty.
pub const QUEUE_MAX: usize = QUEUE_PAUSE + 16 * 1024;

/// Bytes of commands read ahead, with the same end: a thousand long lines would be 64 MB a session.
pub const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The interpreter of one session.
#[derive(Debug)]
pub struct ServerPi {
    config: ServerConfig,
    started: Instant,
    session: Session,
    lines: LineReader,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    lookahead: Lookahead,
    pending: Pending,
    /// Transfers that were asked for so far, refused ones included.
    transfers: u64,
    /// Live requests that the shell has not answered yet.
    live_requests: VecDeque<Live>,
    outputs: VecDeque<Output>,
    /// Last time a command began or ended.
    active_at: Instant,
    /// When `DropDataChannels` is due for the data channel of a receipt that failed.
    parting_until: Option<Instant>,
    /// When the client is asked for a sign of life: see [`PROBE_AFTER`].
    probe_at: Option<Instant>,
    /// The server is going down.
    draining: bool,
    /// `Close` has been put out.
    closed: bool,
}

/// What the shell owes us.
#[derive(Debug)]
enum Pending {
    Nothing,
    Request(Purpose),
    Transfer(Box<Transfer>),
}

/// What waits for its turn, in the order of its reply.
#[derive(Debug)]
enum Queued {
    Command {
        /// As long as its line was.
        bytes: usize,
        command: Box<Result<Command, CommandError>>,
    },
    Bad(BadLine),
    /// A command in clear on a protected channel.
    Unprotected,
    /// A command that ABOR overtook.
    Aborted,
    /// The ABOR itself.
    Abort,
}

impl ServerPi {
    /// A session that begins now; the greeting is the first output.
    pub fn new(config: ServerConfig, now: Instant) -> Self {
        let mut pi = Self::new_without_greeting(config, now);
        pi.greet();
        pi
    }

    fn new_without_greeting(config: ServerConfig, now: Instant) -> Self {
        Self {
            session: Session::new(&config),
            started: now,
            lines: LineReader::default(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            lookahead: Lookahead::default(),
            pending: Pending::Nothing,
            transfers: 0,
            live_requests: VecDeque::new(),
            outputs: VecDeque::new(),
            active_at: now,
            parting_until: None,
            probe_at: None,
            draining: false,
            closed: false,
            config,
        }
    }

    /// Takes what happened. Never panics, whatever the peer sends; a shell's input that answers
    /// nothing outstanding is ignored.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        if self.closed {
            return;
        }
        match input {
            Input::Bytes(bytes) => {
                self.on_bytes(now, bytes);
                return self.arm_probe(now);
            }
            Input::Unprotected => self.enqueue(Queued::Unprotected),
            Input::Unreadable => {
                self.answer(535, "The protected command cannot be opened.");
                return self.end_session();
            }
            Input::Closed => return self.end_session(),
            Input::Timeout => self.on_timeout(now),
            Input::Shutdown => self.draining = true,
            Input::Done(result) => {
                self.probe_at = None;
                self.on_done(now, result);
            }
            Input::ChecksumProgress(bytes) => self.on_checksum_progress(now, bytes),
            Input::TransferReady { reused } => self.on_transfer_ready(now, reused),
            Input::TransferStripes(stripes) => self.on_transfer_stripes(stripes),
            Input::TransferProgress { bytes, fresh } => {
                self.on_transfer_progress(now, bytes, &fresh);
            }
            Input::Live(report) => self.on_live(report),
            Input::TransferDone {
                bytes,
                fresh,
                result,
                cached,
            } => {
                self.probe_at = None;
                self.on_transfer_done(now, bytes, &fresh, result, cached);
            }
        }
        self.run_queue(now);
        self.look_ahead();
        self.arm_probe(now);
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let markers = match &self.pending {
            Pending::Transfer(transfer) => transfer.report_due(),
            _ => None,
        };
        let deadlines = [
            markers,
            self.parting_until,
            self.probe_at,
            self.idle_deadline(),
            self.login_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn on_bytes(&mut self, now: Instant, bytes: &[u8]) {
        for event in self.lines.push(bytes) {
            match event {
                LineEvent::Answer(answer) => self.send(|out| out.extend_from_slice(&answer)),
                LineEvent::Line(line) => self.on_line(&line),
                LineEvent::Bad(why) => self.enqueue(Queued::Bad(why)),
            }
            self.run_queue(now);
            if self.closed {
                return;
            }
        }
        self.look_ahead();
    }

    fn on_line(&mut self, line: &[u8]) {
        if !self.is_idle() && is_abort(line) {
            return self.on_abort_while_busy();
        }
        match Command::parse(line) {
            Ok(Command::Site(Site::Live(live))) if self.takes_live_requests() => {
                self.run_live_request(live)
            }
            command => self.enqueue(Queued::Command {
                bytes: line.len(),
                command: Box::new(command),
            }),
        }
    }

    /// False while so much waits that the shell should leave further commands to the kernel. An
    /// ABOR that is behind them is then seen late.
    pub fn wants_bytes(&self) -> bool {
        self.queue.len() < QUEUE_PAUSE && self.queue_bytes < QUEUE_BYTES_PAUSE
    }

    fn enqueue(&mut self, item: Queued) {
        self.queue_bytes += item.bytes();
        self.queue.push_back(item);
        // The queue is emptied whenever nothing is outstanding, so only a busy session can fill it.
        if self.queue.len() > QUEUE_MAX || self.queue_bytes > QUEUE_BYTES_MAX {
            self.answer(500, "Pipeline queue full.");
            self.end_session();
        }
    }

    /// Runs what waits until the shell owes us something.
    fn run_queue(&mut self, now: Instant) {
        // No command overtakes a live request: the client relies on that.
        while !self.closed && self.is_idle() && self.live_requests.is_empty() {
            if self.draining {
                self.answer(421, "Service not available, closing control connection.");
                return self.end_session();
            }
            let Some(item) = self.queue.pop_front() else {
                return;
            };
            self.queue_bytes -= item.bytes();
            self.lookahead.item_leaves();
            self.active_at = now;
            match item {
                Queued::Command { command, .. } => self.run_line(*command),
                Queued::Bad(why) => self.refuse_bad_line(why),
                Queued::Unprotected => self.answer(533, "Commands must be protected."),
                Queued::Aborted => self.answer(426, "Command Aborted."),
                Queued::Abort => self.run_abort(),
            }
        }
    }

    fn is_idle(&self) -> bool {
        matches!(self.pending, Pending::Nothing)
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.parting_until.is_some_and(|due| due <= now) {
            self.drop_data_channel();
        }
        if self.login_deadline().is_some_and(|due| due <= now) {
            self.answer(421, "Login Timeout: closing control connection.");
            self.end_session();
        } else if self.idle_deadline().is_some_and(|due| due <= now) {
            self.answer(421, "Idle Timeout: closing control connection.");
            self.end_session();
        } else if let Pending::Transfer(transfer) = &mut self.pending
            && transfer.report_due().is_some()
            && transfer.markers.ask(now)
        {
            self.outputs.push_back(Output::ReportProgress);
        }
        if !self.closed && self.probe_at.is_some_and(|due| due <= now) {
            self.probe_at = now.checked_add(PROBE_EVERY);
            self.answer(113, "Still at work.");
        }
    }

    fn arm_probe(&mut self, now: Instant) {
        self.probe_at = match self.is_idle() || self.wants_bytes() {
            true => None,
            false => self.probe_at.or_else(|| now.checked_add(PROBE_AFTER)),
        };
    }

    fn idle_deadline(&self) -> Option<Instant> {
        if self.is_idle() {
            self.active_at.checked_add(self.config.idle_limit)
        } else {
            None
        }
    }

    fn login_deadline(&self) -> Option<Instant> {
        if self.session.is_logged_in() {
            None
        } else {
            self.started.checked_add(self.config.login_limit)
        }
    }

    /// UNIX time at `now`.
    fn unix_time(&self, now: Instant) -> Duration {
        self.config
            .unix_time
            .saturating_add(now.saturating_duration_since(self.started))
    }

    /// Nothing more is said or done; whatever runs is stopped.
    fn end_session(&mut self) {
        if let Pending::Transfer(transfer) = &self.pending
            && transfer.is_with_shell()
            && !transfer.aborted
        {
            self.outputs.push_back(Output::AbortTransfer);
        }
        self.drop_speculative();
        self.drop_data_channel();
        self.pending = Pending::Nothing;
        self.queue.clear();
        self.queue_bytes = 0;
        self.closed = true;
        self.outputs.push_back(Output::Close);
    }

    /// A reply of one line with a code known when the program is built.
    fn answer(&mut self, code: u16, text: impl AsRef<[u8]>) {
        self.send(|out| write_last(ReplyCode::of(code), text.as_ref(), out));
    }

    fn reply(&mut self, reply: &Reply) {
        self.send(|out| reply.write_to(out));
    }

    /// Replies in a row leave in one write: pipelined commands then cost one packet, not one each.
    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(Output::Send(last)) = self.outputs.back_mut() {
            return write(last);
        }
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.outputs.push_back(Output::Send(bytes));
    }

    fn request(&mut self, request: Request, purpose: Purpose) {
        self.speculative_starts();
        self.outputs.push_back(Output::Request(request));
        self.pending = Pending::Request(purpose);
    }
}

impl Queued {
    fn bytes(&self) -> usize {
        match self {
            Self::Command { bytes, .. } => *bytes,
            Self::Bad(_) | Self::Unprotected | Self::Aborted | Self::Abort => 0,
        }
    }
}

fn is_abort(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ')
        .find(|word| !word.is_empty())
        .is_some_and(|word| word.eq_ignore_ascii_case(b"ABOR"))
}
