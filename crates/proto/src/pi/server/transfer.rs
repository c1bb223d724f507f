//! RETR, STOR and their kin: what they need, whether the data channel can carry them, and how they end.
//!
//! ```text
//!   begin ──► Reserving (ALLO) ──► Listening (delayed passive, 127) ──► Starting ──► Moving ──► 226
//!     │            │                    │                                  │            │
//!     └────────────┴────────────────────┴──────────── 4xx, 5xx ────────────┴────────────┘
//! ```
//! In MODE E, and for every receipt, a failure destroys the data channel object: a transfer that was sent ahead
//! would otherwise meet the connections, and the octets, of the one that failed. Then it fails at
//! once instead of waiting.

use std::{mem, time::Instant};

use crate::{
    checksum::ChecksumAlgorithm,
    command::{Mode, Region},
    error::{StorageFailure, TransferFailure, storage_reply, transfer_reply},
    path::FtpPath,
    range_set::{ByteRange, RangeSet},
    reply::{Reply, ReplyCode},
    restart::RestartPoint,
};

use super::{
    Outcome, Output, Pending, Placement, Request, ServerPi, TransferKind, TransferRequest,
    data_channel::{DataChannel, End, PassiveForm, Way},
    files::read_only,
    markers::Markers,
};

/// The transfer that runs, or is about to.
#[derive(Debug)]
pub(super) struct Transfer {
    request: TransferRequest,
    phase: Phase,
    pub(super) markers: Markers,
    /// ABOR came.
    pub(super) aborted: bool,
}

#[derive(Debug)]
enum Phase {
    /// The shell looks for room.
    Reserving,
    /// The shell opens a listener whose address goes out as 127 or 129.
    Listening(PassiveForm),
    /// The shell opens the file and gets data connections.
    Starting,
    /// A 1xx was sent.
    Moving,
}

impl Transfer {
    /// True where `TransferDone` is due.
    pub(super) fn is_with_shell(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Moving)
    }

    fn way(&self) -> Way {
        way(&self.request.kind)
    }
}

impl ServerPi {
    pub(super) fn run_rest(&mut self, point: RestartPoint) {
        self.session.restart = Some(point);
        self.answer(
            350,
            "Restart Marker OK. Send STORE or RETR to initiate transfer.",
        );
    }

    /// Room is looked for when the transfer begins: only then is the path, and so the file system, known.
    pub(super) fn run_allo(&mut self, bytes: u64) {
        self.session.receipt.expected_bytes = Some(bytes);
        self.answer(200, "ALLO command successful.");
    }

    pub(super) fn run_scks(&mut self, algorithm: ChecksumAlgorithm, value: String) {
        let is_hex = value.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_hex || value.len() != algorithm.hex_digits() {
            return self.answer(501, format!("bad parameter, {algorithm} expected."));
        }
        self.session.receipt.expect_checksum(algorithm, value);
        self.answer(200, "OK.");
    }

    pub(super) fn run_retr(&mut self, now: Instant, path: &FtpPath, region: Option<Region>) {
        let restart = self.session.restart.take();
        let path = self.session.resolve(path);
        self.begin_transfer(
            now,
            TransferKind::Send {
                path,
                region,
                restart,
            },
        );
    }

    pub(super) fn run_stor(&mut self, now: Instant, path: &FtpPath) {
        self.receive(now, path, Placement::Replace);
    }

    pub(super) fn run_appe(&mut self, now: Instant, path: &FtpPath) {
        self.receive(now, path, Placement::Append);
    }

    pub(super) fn run_esto(&mut self, now: Instant, offset: u64, path: &FtpPath) {
        self.receive(now, path, Placement::At(offset));
    }

    fn receive(&mut self, now: Instant, path: &FtpPath, placement: Placement) {
        let restart = self.session.restart.take();
        let attributes = mem::take(&mut self.session.receipt);
        let path = self.session.resolve(path);
        self.begin_transfer(
            now,
            TransferKind::Receive {
                path,
                placement,
                restart,
                expected_bytes: attributes.expected_bytes,
                checksums: attributes.checksums,
                modify: attributes.modify,
            },
        );
    }

    pub(super) fn begin_transfer(&mut self, now: Instant, mut kind: TransferKind) {
        if let Err(refusal) = self.check_transfer(&mut kind) {
            self.reply(&refusal);
            return self.after_failure(way(&kind), true);
        }
        let session = &self.session;
        let reuse = session.data_channel.is_cached();
        let intervals = &session.markers;
        let markers = match (way(&kind), session.mode) {
            (Way::Receive, Mode::ExtendedBlock) => {
                Markers::of_receipt(intervals.performance, intervals.restart)
            }
            _ => Markers::if_asked(intervals.asked),
        };
        let reserve = match &kind {
            TransferKind::Receive {
                path,
                expected_bytes: Some(bytes @ 1..),
                ..
            } => Some(Request::Reserve {
                bytes: *bytes,
                path: path.clone(),
            }),
            _ => None,
        };
        let transfer = Box::new(Transfer {
            request: TransferRequest {
                kind,
                mode: session.mode,
                type_code: session.type_code,
                reuse,
            },
            phase: Phase::Reserving,
            markers,
            aborted: false,
        });
        if let Some(request) = reserve {
            self.outputs.push_back(Output::Request(request));
            self.pending = Pending::Transfer(transfer);
        } else {
            self.listen_or_start(now, transfer);
        }
    }

    /// Everything that can be refused without asking the shell.
    fn check_transfer(&self, kind: &mut TransferKind) -> Result<(), Reply> {
        let refuse = |code: u16, why: &str| {
            Err(Reply::new(
                ReplyCode::of(code),
                format!("Command failed. : {why}"),
            ))
        };
        let way = way(kind);
        if let TransferKind::Receive { path, .. } = kind
            && !self.session.account.writable
        {
            return Err(storage_reply(&read_only(path)));
        }
        let mode = self.session.mode;
        if !fit_restart(kind, mode) {
            return refuse(501, "This REST cannot be applied to this transfer.");
        }
        let (end, cached) = match &self.session.data_channel {
            DataChannel::None => {
                return refuse(425, "There is no data channel, send PASV or PORT first.");
            }
            DataChannel::Delayed { .. } => (End::Passive, None),
            DataChannel::Made { end, cached } => (*end, *cached),
        };
        if mode == Mode::Stream {
            return Ok(());
        }
        match (way, end) {
            (Way::Send, End::Passive) => {
                return refuse(
                    500,
                    "Handle not in the proper state. In MODE E the sender connects, send PORT.",
                );
            }
            (Way::Receive, End::Active) => {
                return refuse(
                    500,
                    "Handle not in the proper state. In MODE E the receiver listens, send PASV.",
                );
            }
            _ => {}
        }
        match cached {
            Some(Way::Send) if way == Way::Receive => {
                refuse(500, "Cannot reuse a write connection for reading.")
            }
            Some(Way::Receive) if way == Way::Send => {
                refuse(500, "Cannot reuse a read connection for writing.")
            }
            _ => Ok(()),
        }
    }

    /// A request made for a transfer is done.
    pub(super) fn on_transfer_step(
        &mut self,
        now: Instant,
        transfer: Box<Transfer>,
        result: Result<Outcome, StorageFailure>,
    ) {
        match transfer.phase {
            Phase::Starting | Phase::Moving => {
                // No request is outstanding.
                self.pending = Pending::Transfer(transfer);
            }
            Phase::Reserving => match result {
                _ if transfer.aborted => self.fail(transfer.way(), &TransferFailure::Aborted),
                Err(failure) => self.fail(transfer.way(), &TransferFailure::Storage(failure)),
                Ok(_) => self.listen_or_start(now, transfer),
            },
            Phase::Listening(form) => match self.accept_listening(form, result, true) {
                Ok(_) if transfer.aborted => self.fail(transfer.way(), &TransferFailure::Aborted),
                Ok(announcement) => {
                    self.reply(&announcement);
                    self.start(transfer);
                }
                Err(refusal) => {
                    self.reply(&refusal);
                    self.after_failure(transfer.way(), true);
                }
            },
        }
    }

    fn listen_or_start(&mut self, _now: Instant, mut transfer: Box<Transfer>) {
        if let DataChannel::Delayed { form, spec } = self.session.data_channel {
            let request = Request::Listen(spec, form.protocol(self.control_family()));
            self.outputs.push_back(Output::Request(request));
            transfer.phase = Phase::Listening(form);
            self.pending = Pending::Transfer(transfer);
        } else {
            self.start(transfer);
        }
    }

    fn start(&mut self, mut transfer: Box<Transfer>) {
        self.outputs
            .push_back(Output::StartTransfer(transfer.request.clone()));
        transfer.phase = Phase::Starting;
        self.pending = Pending::Transfer(transfer);
    }

    pub(super) fn on_transfer_ready(&mut self, now: Instant, reused: bool) {
        let unix_time = self.unix_time(now);
        let Pending::Transfer(transfer) = &mut self.pending else {
            return;
        };
        if transfer.aborted || !matches!(transfer.phase, Phase::Starting) {
            return;
        }
        transfer.phase = Phase::Moving;
        let marker = transfer.markers.begin(now, unix_time);
        if reused {
            self.answer(125, "Beginning transfer; reusing existing data connection.");
        } else {
            self.answer(150, "Beginning transfer.");
        }
        if let Some(marker) = marker {
            self.reply(&marker);
        }
    }

    pub(super) fn on_transfer_progress(&mut self, now: Instant, bytes: u64, fresh: &RangeSet) {
        let unix_time = self.unix_time(now);
        let Pending::Transfer(transfer) = &mut self.pending else {
            return;
        };
        if !matches!(transfer.phase, Phase::Moving) {
            return;
        }
        for marker in transfer.markers.progress(now, unix_time, bytes, fresh) {
            self.reply(&marker);
        }
    }

    pub(super) fn on_transfer_done(
        &mut self,
        now: Instant,
        bytes: u64,
        fresh: &RangeSet,
        result: Result<(), TransferFailure>,
        cached: bool,
    ) {
        if !matches!(&self.pending, Pending::Transfer(transfer) if transfer.is_with_shell()) {
            return;
        }
        let Pending::Transfer(mut transfer) = mem::replace(&mut self.pending, Pending::Nothing)
        else {
            return;
        };
        self.active_at = now;
        let result = if transfer.aborted {
            Err(TransferFailure::Aborted)
        } else {
            result
        };
        let was_ready = matches!(transfer.phase, Phase::Moving);
        if was_ready {
            let unix_time = self.unix_time(now);
            for marker in transfer
                .markers
                .end(unix_time, bytes, fresh, result.is_ok())
            {
                self.reply(&marker);
            }
        }
        match result {
            Ok(()) => {
                if !was_ready {
                    // GCT's client needs a 1xx before the 226, or it never looks at the data.
                    self.answer(150, "Beginning transfer.");
                }
                self.answer(226, "Transfer Complete.");
                self.after_success(&transfer, cached);
            }
            Err(failure) => {
                // GCT leaves a listener open where only the file could not be opened.
                let untouched = !was_ready && matches!(failure, TransferFailure::Storage(_));
                self.reply(&transfer_reply(&failure));
                self.after_failure(transfer.way(), !untouched);
            }
        }
    }

    fn after_success(&mut self, transfer: &Transfer, keep: bool) {
        if transfer.request.mode == Mode::Stream {
            self.drop_data_channel();
        } else if let DataChannel::Made { cached, .. } = &mut self.session.data_channel {
            *cached = keep.then(|| transfer.way());
        }
    }

    fn fail(&mut self, way: Way, failure: &TransferFailure) {
        self.reply(&transfer_reply(failure));
        self.after_failure(way, true);
    }

    /// `touched`: data connections may have been made, or were refused.
    fn after_failure(&mut self, way: Way, touched: bool) {
        if touched || way == Way::Receive || self.session.mode == Mode::ExtendedBlock {
            self.drop_data_channel();
        }
    }
}

fn way(kind: &TransferKind) -> Way {
    match kind {
        TransferKind::Send { .. } | TransferKind::List { .. } => Way::Send,
        TransferKind::Receive { .. } => Way::Receive,
    }
}

/// False where REST asks for what the mode cannot carry: a bare stream has no offsets, so that holes
/// cannot be told; and an appended file has no octets that are "already there".
fn fit_restart(kind: &mut TransferKind, mode: Mode) -> bool {
    let restart = match kind {
        TransferKind::Send { restart, .. } => restart,
        TransferKind::Receive {
            restart: Some(_),
            placement: Placement::Append,
            ..
        } => return false,
        TransferKind::Receive { restart, .. } => restart,
        TransferKind::List { .. } => return true,
    };
    if let (Mode::Stream, Some(RestartPoint::Ranges(ranges))) = (mode, &*restart) {
        let Some(there) = prefix(ranges) else {
            return false;
        };
        *restart = Some(RestartPoint::Offset(there));
    }
    true
}

/// The `n` of a set that is exactly `0..n`.
fn prefix(ranges: &RangeSet) -> Option<u64> {
    let mut ranges = ranges.iter();
    match (ranges.next(), ranges.next()) {
        (None, _) => Some(0),
        (Some(ByteRange { start: 0, end }), None) => Some(end),
        _ => None,
    }
}
