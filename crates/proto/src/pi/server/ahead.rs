//! Transfers that are certain to come, told to the shell before their turn.
//!
//! Only runs of plain RETR and ERET, or of plain STOR, behind a transfer that goes the same way in MODE E. Whatever else waits
//! in the queue might change what a path means, what is in a file, or how it is sent, so nothing is foreseen past it: links
//! and `..` make comparing names worthless. Retrievals may pass questions, which change nothing.
//!
//! A transfer that is foreseen is either the next to start, exactly as it was told, or is forgotten
//! ([`Output::ForgetForeseen`]) together with all behind it.

use crate::command::{Command, Mode, TypeCode};

use super::{
    Output, Pending, Placement, Queued, ServerPi, TransferKind, TransferRequest,
    data_channel::DataChannel, session::ReceiptAttributes,
};

/// Most transfers that are foreseen and not started: what a shell may hold open for them.
pub const FORESEEN_MAX: usize = 32;

/// Where so many are left, further ones are told: many at a time cost the shell less than one by one.
const FORESEEN_LOW: usize = FORESEEN_MAX / 2;

/// What has been told of the queue.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// Foreseen transfers that have not started.
    waiting: usize,
    /// Items at the front of the queue that were looked at and passed.
    scanned: usize,
}

/// What may be foreseen behind what runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Retrievals,
    Receipts,
}

impl Foresight {
    /// The front of the queue is run now.
    pub(super) fn item_leaves(&mut self) {
        self.scanned = self.scanned.saturating_sub(1);
    }
}

impl ServerPi {
    /// Tells of transfers that wait, as far as it is certain how they will begin.
    pub(super) fn foresee(&mut self) {
        if self.foresight.waiting > FORESEEN_LOW {
            return;
        }
        let Some(run) = self.present_run() else {
            return;
        };
        while self.foresight.waiting < FORESEEN_MAX {
            let Some(Queued::Command { command, .. }) = self.queue.get(self.foresight.scanned)
            else {
                return;
            };
            let kind = match (run, &**command) {
                (Run::Retrievals, Ok(Command::Retr(path))) => Some(TransferKind::Send {
                    path: self.session.resolve(path),
                    region: None,
                    restart: None,
                }),
                (Run::Retrievals, Ok(Command::Eret { region, path })) => Some(TransferKind::Send {
                    path: self.session.resolve(path),
                    region: Some(*region),
                    restart: None,
                }),
                (Run::Receipts, Ok(Command::Stor(path))) => Some(TransferKind::Receive {
                    path: self.session.resolve(path),
                    placement: Placement::Replace,
                    restart: None,
                    expected_bytes: None,
                    checksums: Vec::new(),
                    modify: None,
                }),
                (Run::Retrievals, Ok(command)) if is_question(command) => None,
                (_, Ok(Command::Noop)) => None,
                _ => return,
            };
            self.foresight.scanned += 1;
            let Some(mut kind) = kind else { continue };
            if self.check_transfer(&mut kind).is_err() {
                // It will be refused in its turn, and may take the data channel along.
                self.foresight.scanned -= 1;
                return;
            }
            self.foresight.waiting += 1;
            self.outputs.push_back(Output::Foresee(TransferRequest {
                kind,
                mode: Mode::ExtendedBlock,
                type_code: self.session.type_code,
                reuse: true,
            }));
        }
    }

    /// A transfer starts that may have been foreseen.
    pub(super) fn foreseen_starts(&mut self) {
        self.foresight.waiting = self.foresight.waiting.saturating_sub(1);
    }

    /// What was foreseen may not come, or not as it was told.
    pub(super) fn forget_foreseen(&mut self) {
        self.foresight.scanned = 0;
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
        let Pending::Transfer(transfer) = &self.pending else {
            return None;
        };
        if !transfer.is_with_shell() || transfer.aborted {
            return None;
        }
        match transfer.kind() {
            TransferKind::Send { .. } | TransferKind::List { .. } => Some(Run::Retrievals),
            // A checksum may still say no, and then nothing of the next file may have been taken; the last octet of TYPE A is
            // written at the end.
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

/// True for commands that change neither storage nor session.
fn is_question(command: &Command) -> bool {
    matches!(
        command,
        Command::Noop
            | Command::Size(_)
            | Command::Mdtm(_)
            | Command::Mlst(_)
            | Command::Cksm { .. }
            | Command::Pwd
    )
}
