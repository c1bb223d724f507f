//! Announces commands of the queue to the shell before their turn, as far as they are certain.
//!
//! Plain RETR and ERET behind a transfer that sends in MODE E, plain STOR behind one that receives,
//! and between them questions about files and, among receipts, the naming and dating of them.
//! Any other command in the queue might change what a path means, or how a file is sent, so the
//! lookahead stops before it. Speculative items keep the order of their commands: comparing names
//! would not show that two are independent, since links and `..` may name one file twice.
//!
//! A speculative item comes next exactly as announced, or is skipped
//! ([`Output::SkipSpeculative`]), or is dropped ([`Output::DropSpeculative`]) together with all
//! items behind it.

use crate::{
    command::{Command, Mode, TypeCode},
    path::FtpPath,
    site::Site,
};

use super::{
    Output, Pending, Placement, Queued, Request, ServerPi, TransferKind, TransferRequest,
    data_channel::DataChannel, session::ReceiptAttributes,
};

/// Most speculative items that have not come yet: requests, and transfers, for which a shell may
/// hold files open.
pub const SPECULATIVE_MAX: usize = 64;

/// With this many left, more are announced: many at a time cost the shell less than one by one.
const SPECULATIVE_LOW: usize = SPECULATIVE_MAX / 2;

/// How much of the queue was announced.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    /// Announced and not yet come.
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

/// What a command of the queue asks of the shell.
enum Coming {
    Transfer(TransferKind),
    Request(Request),
    /// It asks nothing of the shell.
    Nothing,
}

/// The kind of transfers that may be announced behind the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Retrievals,
    Receipts,
}

impl Lookahead {
    /// The front of the queue is run now.
    pub(super) fn item_leaves(&mut self) {
        self.seen = self.scanned > 0;
        self.scanned = self.scanned.saturating_sub(1);
    }
}

impl ServerPi {
    /// Announces waiting commands, as far as it is certain how they will begin.
    pub(super) fn look_ahead(&mut self) {
        if self.lookahead.waiting > SPECULATIVE_LOW {
            return;
        }
        let Some(run) = self.present_run() else {
            return;
        };
        self.lookahead.run = Some(run);
        if self.lookahead.scanned == 0 && matches!(self.pending, Pending::Transfer(_)) {
            self.lookahead.rename_from = self.session.rename_from.clone();
        }
        while self.lookahead.waiting < SPECULATIVE_MAX {
            let Some(Queued::Command { command, .. }) = self.queue.get(self.lookahead.scanned)
            else {
                return;
            };
            let Ok(command) = &**command else { return };
            let Some(coming) = self.coming(run, command) else {
                return;
            };
            let output = match coming {
                Coming::Nothing => None,
                Coming::Request(request) => Some(Output::SpeculativeRequest(request)),
                Coming::Transfer(mut kind) => {
                    if self.check_transfer(&mut kind).is_err() {
                        // It will be refused in its turn, and may take the data channel along.
                        return;
                    }
                    Some(Output::SpeculativeTransfer(TransferRequest {
                        kind,
                        mode: Mode::ExtendedBlock,
                        type_code: self.session.type_code,
                        reuse: true,
                    }))
                }
            };
            if let Some(Output::SpeculativeRequest(request)) = &output {
                match request {
                    Request::CheckExists(from) => {
                        self.lookahead.rename_from = Some(from.clone());
                    }
                    Request::Rename { .. } => self.lookahead.rename_from = None,
                    _ => {}
                }
            }
            self.lookahead.scanned += 1;
            if let Some(output) = output {
                self.lookahead.waiting += 1;
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
                from: self.lookahead.rename_from.clone()?,
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

    /// A transfer or request starts that may have been announced.
    pub(super) fn speculative_starts(&mut self) {
        self.lookahead.waiting = self.lookahead.waiting.saturating_sub(1);
    }

    /// An announced command asks nothing of the shell after all.
    pub(super) fn skip_speculative(&mut self) {
        if self.lookahead.seen && self.lookahead.waiting > 0 {
            self.lookahead.waiting -= 1;
            self.outputs.push_back(Output::SkipSpeculative);
        }
    }

    /// Announced items may not come, or not as announced.
    pub(super) fn drop_speculative(&mut self) {
        self.lookahead.scanned = 0;
        self.lookahead.seen = false;
        if std::mem::take(&mut self.lookahead.waiting) > 0 {
            self.outputs.push_back(Output::DropSpeculative);
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
            Pending::Request(_) if self.lookahead.seen => return self.lookahead.run,
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
