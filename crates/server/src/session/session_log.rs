//! Log lines and audit events of a session.

use std::net::SocketAddr;

use godwit_engine::data::Sample;
use godwit_gsi::name::DistinguishedName;
use godwit_proto::{
    error::StorageFailure,
    pi::server::{Request, TransferRequest},
};
use tracing::{info, warn};

use super::work::{SessionTransfer, subject_of};
use crate::{
    access::identity::Method,
    observe::{
        class::Class,
        event::{Entry, What, Who, Wire},
    },
    transfers::{TransferEnd, data_channels::DataChannels},
};

/// The reason in the audit log of a change whose outcome is unknown.
pub(super) const CUT_SHORT: &str = "cut short: it may have been done or not";

/// Names the session in its log lines and audit events.
pub(super) struct SessionLog {
    pub(super) id: u64,
    pub(super) peer: SocketAddr,
    /// The account, after login.
    pub(super) user: Option<String>,
    /// The audit event of the request that runs, if it changes something.
    pub(super) change: Option<Entry>,
}

impl SessionLog {
    pub(super) fn new(id: u64, peer: SocketAddr) -> Self {
        Self {
            id,
            peer,
            user: None,
            change: None,
        }
    }

    pub(super) fn who(&self, identity: Option<&DistinguishedName>) -> Who {
        Who {
            session: self.id,
            peer: self.peer,
            identity: identity.map(ToString::to_string),
            account: self.user.clone(),
        }
    }

    /// Logs the end of a transfer; returns its audit event.
    pub(super) fn transfer_ended(
        &self,
        transfer: &SessionTransfer,
        end: &TransferEnd,
        channels: &DataChannels,
    ) -> Entry {
        let failure = end.result.as_ref().err();
        let (outcome, error) = match failure {
            None => ("transfer complete", None),
            Some(error) => ("transfer failed", Some(error.to_string())),
        };
        let verb = match transfer.what {
            What::Get => "send",
            What::Put => "receive",
            _ => "list",
        };
        // Unknown values are left out: TCP reports on sending only, and not on transfers that end
        // in a moment.
        let totals = transfer.running.totals();
        let limits = totals.since(&Sample::default());
        let share = |of: Option<f64>| of.map(|share| (share * 1000.0).round() / 1000.0);
        let nodes = transfer.running.nodes();
        let retransmitted = totals.tcp.map(|tcp| tcp.bytes_retransmitted);
        info!(
            session = self.id,
            peer = %self.peer,
            user = ?self.user.as_deref().unwrap_or(""),
            verb,
            path = ?transfer.path,
            bytes = end.bytes,
            seconds = end.elapsed.as_secs_f64(),
            channels = end.channels_peak,
            nodes = (!nodes.is_empty()).then(|| nodes.join(" ")),
            error = error.as_deref(),
            retransmitted_bytes = retransmitted,
            loss_ratio = limits.loss_ratio,
            receive_window_limited = share(limits.receive_window_limited),
            send_buffer_limited = share(limits.send_buffer_limited),
            sender_idle = share(limits.sender_idle),
            cpu_busy = share(limits.cpu_busy),
            cpu_wait = share(limits.cpu_wait),
            source_wait = share(limits.source_wait),
            destination_wait = share(limits.destination_wait),
            "{outcome}"
        );
        let (buffer, block) = channels.sizes();
        let wire = Wire {
            command: transfer.command,
            buffer,
            block,
            streams: end.channels_peak,
        };
        Entry::new(transfer.what)
            .path(&transfer.path)
            .moved(end.bytes, end.elapsed)
            .wire(wire)
            .on_nodes(nodes)
            .cost(retransmitted, channels.count())
            .class(failure.map(Into::into))
            .ended(failure)
    }

    /// Logs a login; returns its audit event.
    pub(super) fn login(
        &self,
        user: &str,
        login: Result<Method, (Class, &StorageFailure)>,
    ) -> Entry {
        let event = Entry::new(What::Login).to(user);
        match login {
            Ok(method) => {
                info!(session = self.id, peer = %self.peer, ?user, "login");
                event.by(method)
            }
            Err((class, failure)) => {
                let why = &failure.text;
                warn!(session = self.id, peer = %self.peer, ?user, ?why, "login refused");
                event.class(Some(class)).ended(Some(why))
            }
        }
    }

    /// Logs a handshake that failed; returns its audit event.
    pub(super) fn handshake_failed(&self, failure: &StorageFailure) -> Entry {
        warn!(session = self.id, peer = %self.peer, error = ?failure.text, "handshake failed");
        let event = Entry::new(What::Prove).class(Some(Class::Handshake));
        event.ended(Some(&failure.text))
    }
}

/// The audit event of a transfer that does not run.
pub(super) fn entry_of(request: &TransferRequest) -> Entry {
    let (what, path) = subject_of(&request.kind);
    Entry::new(what).path(path)
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
