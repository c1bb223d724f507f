//! What is certain to come, told to the shell before its turn.
//!
//! Plain RETR and ERET behind a transfer that sends in MODE E, plain STOR behind one that receives,
//! and between them questions about files and, among receipts, the naming and dating of them.
//! Whatever else waits in the queue might change what a path means, or how a file is sent, so
//! nothing is foreseen past it. What is foreseen happens in the order of its commands: comparing
//! names would prove nothing, for links and `..` make one file of two.
//!
//! Whatever is foreseen comes next exactly as it was told, or is skipped
//! ([`Output::SkipForeseen`]), or is forgotten ([`Output::ForgetForeseen`]) together with all
//! behind it.

use crate::{
    command::{Command, Mode, TypeCode},
    path::FtpPath,
    site::Site,
};

use super::{
    Output, Pending, Placement, Queued, Request, ServerPi, TransferKind, TransferRequest,
    data_channel::DataChannel, session::ReceiptAttributes,
};

/// Most that is foreseen and has not come: transfers, for which a shell may hold files open, and
/// requests.
pub const FORESEEN_MAX: usize = 64;

/// Where so much is left, more is told: much at a time costs the shell less than one by one.
const FORESEEN_LOW: usize = FORESEEN_MAX / 2;

/// What has been told of the queue.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// Foreseen and not yet come.
    waiting: usize,
    /// Items at the front of the queue that were looked at and passed.
    scanned: usize,
    /// The item that runs was looked at.
    seen: bool,
    /// What the items that wait are behind.
    run: Option<Run>,
    /// As [`super::session::Session::rename_from`] will be behind the items that were looked at, if
    /// all goes well.
    rename_from: Option<FtpPath>,
}

/// One item of the queue, foreseen.
enum Coming {
    Transfer(TransferKind),
    Request(Request),
    /// It asks nothing of the shell.
    Nothing,
}

/// What may be foreseen behind what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Retrievals,
    Receipts,
}

impl Foresight {
    /// The front of the queue is run now.
    pub(super) fn item_leaves(&mut self) {
        self.seen = self.scanned > 0;
        self.scanned = self.scanned.saturating_sub(1);
    }
}

impl ServerPi {
    /// Tells of what waits, as far as it is certain how it will begin.
    pub(super) fn foresee(&mut self) {
        if self.foresight.waiting > FORESEEN_LOW {
            return;
        }
        let Some(run) = self.present_run() else {
            return;
        };
        self.foresight.run = Some(run);
        if self.foresight.scanned == 0 && matches!(self.pending, Pending::Transfer(_)) {
            self.foresight.rename_from = self.session.rename_from.clone();
        }
        while self.foresight.waiting < FORESEEN_MAX {
            let Some(Queued::Command { command, .. }) = self.queue.get(self.foresight.scanned)
            else {
                return;
            };
            let Ok(command) = &**command else { return };
            let Some(coming) = self.coming(run, command) else {
                return;
            };
            let output = match coming {
                Coming::Nothing => None,
                Coming::Request(request) => Some(Output::ForeseeRequest(request)),
                Coming::Transfer(mut kind) => {
                    if self.check_transfer(&mut kind).is_err() {
                        // It will be refused in its turn, and may take the data channel along.
                        return;
                    }
                    Some(Output::Foresee(TransferRequest {
                        kind,
                        mode: Mode::ExtendedBlock,
                        type_code: self.session.type_code,
                        reuse: true,
                    }))
                }
            };
            if let Some(Output::ForeseeRequest(request)) = &output {
                match request {
                    Request::CheckExists(from) => {
                        self.foresight.rename_from = Some(from.clone());
                    }
                    Request::Rename { .. } => self.foresight.rename_from = None,
                    _ => {}
                }
            }
            self.foresight.scanned += 1;
            if let Some(output) = output {
                self.foresight.waiting += 1;
                self.outputs.push_back(output);
            }
        }
    }

    /// What `command` will ask of the shell; `None` where that is not certain, or nothing may be
    /// done behind it.
    fn coming(&self, run: Run, command: &Command) -> Option<Coming> {
        let resolve = |path: &FtpPath| self.session.resolve(path);
        if let Some(question) = self.question(command) {
            return Some(Coming::Request(question));
        }
        let writes = run == Run::Receipts && self.session.account.writable;
        Some(match (run, command) {
            (_, Command::Noop | Command::Pwd) => Coming::Nothing,
            (Run::Retrievals, Command::Retr(path)) => Coming::Transfer(TransferKind::Send {
                path: resolve(path),
                region: None,
                restart: None,
            }),
            (Run::Retrievals, Command::Eret { region, path }) => {
                Coming::Transfer(TransferKind::Send {
                    path: resolve(path),
                    region: Some(*region),
                    restart: None,
                })
            }
            (Run::Receipts, Command::Stor(path)) => Coming::Transfer(TransferKind::Receive {
                path: resolve(path),
                placement: Placement::Replace,
                restart: None,
                expected_bytes: None,
                checksums: Vec::new(),
                modify: None,
            }),
            (_, Command::Rnfr(path)) if writes => {
                Coming::Request(Request::CheckExists(resolve(path)))
            }
            (_, Command::Rnto(path)) if writes => Coming::Request(Request::Rename {
                from: self.foresight.rename_from.clone()?,
                to: resolve(path),
            }),
            (_, Command::Site(Site::Commit(commit))) if writes => {
                Coming::Request(self.naming(commit)?)
            }
            (_, Command::Mfmt { modify, path }) if writes => {
                Coming::Request(Request::SetModified {
                    path: resolve(path),
                    modify: *modify,
                })
            }
            _ => return None,
        })
    }

    /// The request of a command that changes neither storage nor session.
    fn question(&self, command: &Command) -> Option<Request> {
        let resolve = |path: &FtpPath| self.session.resolve(path);
        match command {
            Command::Size(path) | Command::Mdtm(path) => Some(Request::Stat(resolve(path))),
            Command::Mlst(Some(path)) => Some(Request::Stat(resolve(path))),
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => Some(Request::Checksum {
                algorithm: *algorithm,
                offset: *offset,
                length: *length,
                path: resolve(path),
            }),
            _ => None,
        }
    }

    /// Something comes that may have been foreseen.
    pub(super) fn foreseen_comes(&mut self) {
        self.foresight.waiting = self.foresight.waiting.saturating_sub(1);
    }

    /// A command that was foreseen asks nothing after all.
    pub(super) fn skip_foreseen(&mut self) {
        if self.foresight.seen && self.foresight.waiting > 0 {
            self.foresight.waiting -= 1;
            self.outputs.push_back(Output::SkipForeseen);
        }
    }

    /// What was foreseen may not come, or not as it was told.
    pub(super) fn forget_foreseen(&mut self) {
        self.foresight.scanned = 0;
        self.foresight.seen = false;
        if std::mem::take(&mut self.foresight.waiting) > 0 {
            self.outputs.push_back(Output::ForgetForeseen);
        }
    }

    /// What the command that runs lets follow it unseen.
    fn present_run(&self) -> Option<Run> {
        let session = &self.session;
        if session.mode != Mode::ExtendedBlock
            || !matches!(session.data_channel, DataChannel::Made { .. })
            || session.restart.is_some()
            || session.receipt != ReceiptAttributes::default()
            || self.draining
        {
            return None;
        }
        let transfer = match &self.pending {
            Pending::Transfer(transfer) => transfer,
            // What runs is itself behind a transfer.
            Pending::Request(_) if self.foresight.seen => return self.foresight.run,
            Pending::Request(_) | Pending::Nothing => return None,
        };
        if !transfer.is_with_shell() || transfer.aborted {
            return None;
        }
        match transfer.kind() {
            TransferKind::Send { .. } | TransferKind::List { .. } => Some(Run::Retrievals),
            // A checksum may still say no, and then nothing of the next file may have been taken;
            // the last byte of TYPE A is written at the end.
            TransferKind::Receive {
                checksums, modify, ..
            } => {
                let ends_with_its_data = checksums.is_empty()
                    && modify.is_none()
                    && session.type_code == TypeCode::Image;
                ends_with_its_data.then_some(Run::Receipts)
            }
        }
    }
}
