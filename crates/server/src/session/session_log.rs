//! What the server's log and the audit log record of a session.

use godwit_engine::data::Sample;
use godwit_proto::{
    error::StorageFailure,
    pi::server::{ListForm, Placement, Request, TransferKind},
};
use tracing::{info, warn};

use super::{Session, Transfer};
use crate::{
    access::identity::Method,
    observe::{
        class::Class,
        event::{Command, Entry, What, Who, Wire},
    },
    transfers::TransferEnd,
};

/// The result of a change whose outcome is unknown.
pub(super) const CUT_SHORT: &str = "cut short: it may have been done or not";

impl Session {
    pub(super) fn log_transfer(&self, transfer: &Transfer, end: &TransferEnd) {
        let Transfer {
            verb,
            command,
            path,
            running,
        } = transfer;
        let failure = end.result.as_ref().err();
        let seconds = end.elapsed.as_secs_f64();
        let user = self.user.as_deref().unwrap_or("");
        let (outcome, error) = match &end.result {
            Ok(()) => ("transfer complete", None),
            Err(error) => ("transfer failed", Some(error.to_string())),
        };
        // What is not known is left out: TCP tells of sending only, and of nothing that is over in
        // a moment.
        let totals = running.totals();
        let limits = totals.since(&Sample::default());
        let quota = |of: Option<f64>| of.map(|quota| (quota * 1000.0).round() / 1000.0);
        let (buffer, block) = self.channels.sizes();
        let wire = Wire {
            command: *command,
            buffer,
            block,
            streams: end.channels_peak,
        };
        let retransmitted = totals.tcp.map(|tcp| tcp.bytes_retransmitted);
        let event = Entry::new(transfer.what())
            .path(path)
            .moved(end.bytes, end.elapsed)
            .wire(wire)
            .cost(retransmitted, self.channels.count())
            .class(failure.map(Into::into));
        self.record(event.ended(failure));
        info!(
            session = self.id,
            peer = %self.peer,
            user = ?user,
            verb,
            path = ?path,
            bytes = end.bytes,
            seconds,
            channels = end.channels_peak,
            error = error.as_deref(),
            retransmitted_bytes = retransmitted,
            loss_ratio = limits.loss_ratio,
            receive_window_limited = quota(limits.receive_window_limited),
            send_buffer_limited = quota(limits.send_buffer_limited),
            sender_idle = quota(limits.sender_idle),
            cpu_busy = quota(limits.cpu_busy),
            cpu_wait = quota(limits.cpu_wait),
            source_wait = quota(limits.source_wait),
            destination_wait = quota(limits.destination_wait),
            "{outcome}"
        );
    }

    pub(super) fn log_login(&self, user: &str, login: Result<Method, (Class, &StorageFailure)>) {
        let event = Entry::new(What::Login).to(user);
        match login {
            Ok(method) => {
                self.record(event.by(method));
                info!(session = self.id, peer = %self.peer, user = ?user, "login");
            }
            Err((class, failure)) => {
                let why = &failure.text;
                self.record(event.class(Some(class)).ended(Some(why)));
                warn!(session = self.id, peer = %self.peer, user = ?user, ?why, "login refused");
            }
        }
    }

    pub(super) fn log_handshake(&self, failure: &StorageFailure) {
        warn!(session = self.id, peer = %self.peer, error = ?failure.text, "handshake failed");
        if let Some(parent) = &self.service.monitor
            && let Err(error) = parent.handshake_failed(&failure.text)
        {
            warn!(session = self.id, %error, "the parent does not hear");
        }
        let event = Entry::new(What::Prove).class(Some(Class::Handshake));
        self.record(event.ended(Some(&failure.text)));
    }

    /// Records the end of a change.
    pub(super) fn log_change(&mut self, class: Option<Class>, failure: Option<impl ToString>) {
        if let Some(event) = self.change.take() {
            self.record(event.class(class).ended(failure));
        }
    }

    /// Records speculative work that is dropped.
    pub(super) fn log_speculative(&self) {
        let requests = self.speculative.requests().filter_map(change_of);
        let transfers = self
            .speculative
            .transfers()
            .map(|request| match &request.kind {
                TransferKind::Receive { path, .. } => Entry::new(What::Put).path(path),
                TransferKind::Send { path, .. } => Entry::new(What::Get).path(path),
                TransferKind::List { path, .. } => Entry::new(What::List).path(path),
            });
        for entry in requests.chain(transfers) {
            let entry = entry.class(Some(Class::Aborted));
            self.record(entry.ended(Some(CUT_SHORT)));
        }
    }

    pub(super) fn record(&self, entry: Entry) {
        let identity = self.io.security.identity().map(ToString::to_string);
        let who = Who {
            session: self.id,
            peer: self.peer,
            identity,
            account: self.user.clone(),
        };
        self.permit.connection_metrics().observe(&who, &entry);
        self.service.audit.record(&who, &entry);
    }
}

/// The command of a transfer.
pub(super) fn command_of(kind: &TransferKind) -> Command {
    match kind {
        TransferKind::Send { region: None, .. } => Command::Retr,
        TransferKind::Send { .. } => Command::Eret,
        TransferKind::Receive {
            placement: Placement::Replace,
            ..
        } => Command::Stor,
        TransferKind::Receive { .. } => Command::Esto,
        TransferKind::List { form, .. } => match form {
            ListForm::Long => Command::List,
            ListForm::Names => Command::Nlst,
            _ => Command::Mlsd,
        },
    }
}

/// The audit event of a request, if it has one.
pub(super) fn change_of(request: &Request) -> Option<Entry> {
    let event = match request {
        Request::MakeDirectory(path) => Entry::new(What::Mkdir).path(path),
        Request::RemoveDirectory(path) => Entry::new(What::Rmdir).path(path),
        Request::RemoveFile(path) | Request::RemoveTree(path) => {
            Entry::new(What::Delete).path(path)
        }
        Request::Rename { from, to } | Request::Commit { from, to, .. } => {
            Entry::new(What::Rename).path(from).to(to)
        }
        Request::SetModified { path, modify } => Entry::new(What::Touch).path(path).to(modify),
        Request::SetMode { path, mode } => {
            Entry::new(What::Chmod).path(path).to(format!("{mode:o}"))
        }
        Request::SetGroup { path, group } => Entry::new(What::Chgrp).path(path).to(group),
        Request::Truncate { path, length } => Entry::new(What::Truncate).path(path).to(length),
        Request::Symlink { target, link } => Entry::new(What::Symlink).path(link).to(target),
        _ => return None,
    };
    Some(event)
}
