//! RETR, STOR and their kin: what they need, whether the data channel can carry them, and how they
//! end.
//!
//! ```text
//!   begin ──► Reserving (ALLO) ──► Listening (delayed PASV, 127) ──► Starting ──► Moving ──► 226
//!     │            │                    │                                  │            │
//!     └────────────┴────────────────────┴──────────── 4xx, 5xx ────────────┴────────────┘
//! ```
//! In MODE E, and for every receipt, a failure destroys the data channel object: a transfer that
//! was sent ahead would otherwise meet the connections, and the bytes, of the one that failed. Then
//! it fails at once instead of waiting.

use std::{mem, time::Instant};

use crate::{
    checksum::ChecksumAlgorithm,
    command::{Mode, Region},
    error::{StorageFailure, TransferFailure, errno, transfer_reply},
    live::Live,
    path::FtpPath,
    range_set::RangeSet,
    reply::ReplyCode,
    restart::RestartPoint,
};

use super::{
    ListForm, Outcome, Output, Pending, Placement, Request, ServerPi, TransferKind,
    TransferRequest, data_channel::DataChannel, markers::Markers, purpose::PassiveForm,
    transfer_checks::Way,
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

    /// When the shell must be asked for progress.
    pub(super) fn report_due(&self) -> Option<Instant> {
        if self.aborted {
            None
        } else {
            self.markers.due()
        }
    }

    /// Whether a live request finds a transfer to work on.
    pub(super) fn can_be(&self, live: Live, number: u64) -> bool {
        let moves = !self.aborted && matches!(self.phase, Phase::Moving);
        moves
            && match live {
                Live::Report => true,
                // Its connections would be taken for those of the transfer that the client means.
                Live::Channels(_, of) => {
                    of == number
                        && self.way() == Way::Send
                        && self.request.mode == Mode::ExtendedBlock
                }
            }
    }

    pub(super) fn kind(&self) -> &TransferKind {
        &self.request.kind
    }

    /// What tells the client the name that STOU made.
    fn chosen_name(&self) -> Option<Vec<u8>> {
        match &self.request.kind {
            TransferKind::Receive {
                path,
                placement: Placement::New,
                ..
            } => Some([b"FILE: ", path.as_bytes()].concat()),
            _ => None,
        }
    }

    fn way(&self) -> Way {
        Way::of(&self.request.kind)
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

    /// Room is looked for when the transfer begins: only then is the path, and so the file system,
    /// known.
    pub(super) fn run_allo(&mut self, bytes: u64) {
        self.session.receipt.expected_bytes = Some(bytes);
        self.answer(200, "ALLO command successful.");
    }

    pub(super) fn run_scks(&mut self, algorithm: ChecksumAlgorithm, value: String) {
        self.session.receipt.expect_checksum(algorithm, value);
        self.answer(200, "OK.");
    }

    pub(super) fn run_retr(&mut self, path: &FtpPath, region: Option<Region>) {
        let restart = self.session.restart.take();
        let path = self.session.resolve(path);
        self.begin_transfer(TransferKind::Send {
            path,
            region,
            restart,
        });
    }

    pub(super) fn run_stor(&mut self, path: &FtpPath) {
        self.receive(path, Placement::Replace);
    }

    /// The name differs from that of every other session and transfer; were it taken all the same,
    /// the file that has it stays.
    pub(super) fn run_stou(&mut self) {
        let nanoseconds = self.config.unix_time.as_nanos();
        let name = format!("stou-{nanoseconds:x}-{}", self.transfers);
        match self.session.cwd.join(name.as_bytes()) {
            Ok(path) => self.receive(&path, Placement::New),
            Err(_) => self.answer(553, "No file can be made here."),
        }
    }

    pub(super) fn run_appe(&mut self, path: &FtpPath) {
        self.receive(path, Placement::Append);
    }

    pub(super) fn run_esto(&mut self, offset: u64, path: &FtpPath) {
        self.receive(path, Placement::At(offset));
    }

    fn receive(&mut self, path: &FtpPath, placement: Placement) {
        let restart = self.session.restart.take();
        let attributes = mem::take(&mut self.session.receipt);
        let path = self.session.resolve(path);
        self.begin_transfer(TransferKind::Receive {
            path,
            placement,
            restart,
            expected_bytes: attributes.expected_bytes,
            checksums: attributes.checksums,
            modify: attributes.modify,
        });
    }

    pub(super) fn begin_transfer(&mut self, mut kind: TransferKind) {
        if let Err(refusal) = self.check_transfer(&mut kind) {
            self.drop_speculative();
            self.reply(&refusal);
            return match Way::of(&kind) {
                Way::Receive => self.part_with_data_channel(),
                Way::Send => self.drop_data_channel(),
            };
        }
        let session = &self.session;
        let reuse = session.data_channel.is_cached();
        let intervals = &session.markers;
        let markers = match (&kind, session.mode) {
            (TransferKind::Receive { .. }, Mode::ExtendedBlock) => {
                Markers::of_receipt(intervals.performance, intervals.restart)
            }
            (TransferKind::List { .. }, _) => Markers::default(),
            _ => Markers::if_asked(intervals.asked),
        };
        let reserve = reservation(&kind);
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
            self.listen_or_start(transfer);
        }
    }

    /// A request made for a transfer is done.
    pub(super) fn on_transfer_step(
        &mut self,
        transfer: Box<Transfer>,
        result: Result<Outcome, StorageFailure>,
    ) {
        match transfer.phase {
            Phase::Starting | Phase::Moving => {
                // No request is outstanding.
                self.pending = Pending::Transfer(transfer);
            }
            Phase::Reserving => match result {
                _ if transfer.aborted => self.fail(&transfer, &TransferFailure::Aborted),
                Err(failure) => self.fail(&transfer, &TransferFailure::Storage(failure)),
                // A shell that cannot tell the free space lets the transfer try.
                Ok(_) => self.listen_or_start(transfer),
            },
            Phase::Listening(form) => match self.accept_listening(form, result, true) {
                Ok(_) if transfer.aborted => self.fail(&transfer, &TransferFailure::Aborted),
                Ok(announcement) => {
                    self.reply(&announcement);
                    self.start(transfer);
                }
                Err(refusal) => {
                    self.reply(&refusal);
                    self.drop_data_channel();
                }
            },
        }
    }

    fn listen_or_start(&mut self, mut transfer: Box<Transfer>) {
        if let DataChannel::Delayed { form, spec } = &self.session.data_channel {
            let (form, spec) = (*form, spec.clone());
            let request = Request::Listen(spec, form.protocol(self.control_family()));
            self.outputs.push_back(Output::Request(request));
            transfer.phase = Phase::Listening(form);
            self.pending = Pending::Transfer(transfer);
        } else {
            self.start(transfer);
        }
    }

    fn start(&mut self, mut transfer: Box<Transfer>) {
        self.speculative_starts();
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
        transfer.markers.begin(now, unix_time);
        // RFC 1123 §4.1.2.9.
        let chosen = transfer.chosen_name();
        if let Some(name) = chosen {
            self.answer(if reused { 125 } else { 150 }, name);
        } else if reused {
            self.answer(125, "Beginning transfer; reusing existing data connection.");
        } else {
            self.answer(150, "Beginning transfer.");
        }
    }

    pub(super) fn on_transfer_stripes(&mut self, stripes: Vec<u64>) {
        if let Pending::Transfer(transfer) = &mut self.pending {
            transfer.markers.set_stripes(stripes);
        }
    }

    pub(super) fn on_transfer_progress(&mut self, now: Instant, bytes: u64, fresh: &RangeSet) {
        let unix_time = self.unix_time(now);
        let Pending::Transfer(transfer) = &mut self.pending else {
            return;
        };
        if transfer.aborted || !matches!(transfer.phase, Phase::Moving) {
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
                .end(now, unix_time, bytes, fresh, result.is_ok())
            {
                self.reply(&marker);
            }
        }
        match result {
            Ok(()) => {
                if !was_ready {
                    // GCT's client needs a 1xx before the 226, or it never looks at the data.
                    let chosen = transfer.chosen_name();
                    self.answer(150, chosen.unwrap_or_else(|| "Beginning transfer.".into()));
                }
                self.answer(226, "Transfer Complete.");
                self.after_success(&transfer, cached);
            }
            Err(failure) => self.fail(&transfer, &failure),
        }
    }

    fn after_success(&mut self, transfer: &Transfer, keep: bool) {
        if transfer.request.mode == Mode::Stream {
            self.drop_data_channel();
        } else if let DataChannel::Made { cached, .. } = &mut self.session.data_channel {
            *cached = keep;
        }
    }

    fn fail(&mut self, transfer: &Transfer, failure: &TransferFailure) {
        let mut reply = transfer_reply(failure);
        if let (TransferKind::List { form, .. }, TransferFailure::Storage(storage)) =
            (transfer.kind(), failure)
            && matches!(form, ListForm::Facts(_))
            && storage.errno == errno::ENOTDIR
        {
            // RFC 3659 §7.2.1: MLSD of what is no directory is an error of its argument.
            reply.code = ReplyCode::of(501);
        }
        self.reply(&reply);
        let is_of_the_file = matches!(failure, TransferFailure::Storage(_));
        let untouched = !matches!(transfer.phase, Phase::Moving);
        match transfer.way() {
            Way::Receive if is_of_the_file => self.part_with_data_channel(),
            // GCT leaves a listener open where only the file could not be opened.
            Way::Send if is_of_the_file && untouched && self.session.mode == Mode::Stream => {}
            _ => self.drop_data_channel(),
        }
    }
}

/// Room to look for: what ALLO said, less what REST says is there (whether ALLO counted that is not
/// known, and a transfer that would fit must not be refused).
fn reservation(kind: &TransferKind) -> Option<Request> {
    let TransferKind::Receive {
        path,
        expected_bytes: Some(expected),
        restart,
        ..
    } = kind
    else {
        return None;
    };
    let there = restart
        .as_ref()
        .map_or(0, |restart| restart.to_ranges().covered());
    let bytes = expected.saturating_sub(there);
    (bytes > 0).then(|| Request::Reserve {
        bytes,
        path: path.clone(),
    })
}
