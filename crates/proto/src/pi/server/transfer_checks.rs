//! What of a transfer can be refused without asking the shell.

use crate::{
    command::Mode,
    error::storage_reply,
    range_set::{ByteRange, RangeSet},
    reply::{Reply, ReplyCode},
    restart::RestartPoint,
};

use super::{
    Placement, ServerPi, TransferKind,
    data_channel::{DataChannel, End},
    files::read_only,
};

/// Which way the data goes, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Send,
    Receive,
}

impl Way {
    pub(super) fn of(kind: &TransferKind) -> Self {
        match kind {
            TransferKind::Send { .. } | TransferKind::List { .. } => Self::Send,
            TransferKind::Receive { .. } => Self::Receive,
        }
    }
}

impl ServerPi {
    /// Everything that can be refused without asking the shell.
    pub(super) fn check_transfer(&self, kind: &mut TransferKind) -> Result<(), Reply> {
        let refuse = |code: u16, why: &str| {
            Err(Reply::new(
                ReplyCode::of(code),
                format!("Command failed. : {why}"),
            ))
        };
        let way = Way::of(kind);
        if let TransferKind::Receive { path, .. } = kind
            && !self.session.account.writable
        {
            return Err(storage_reply(&read_only(path)));
        }
        let mode = self.session.mode;
        if !fit_restart(kind, mode) {
            return refuse(501, "This REST cannot be applied to this transfer.");
        }
        let end = match &self.session.data_channel {
            DataChannel::None => {
                return refuse(425, "There is no data channel, send PASV or PORT first.");
            }
            DataChannel::Delayed { .. } => End::Passive,
            DataChannel::Made { end, .. } => *end,
        };
        match (mode, way, end) {
            (Mode::ExtendedBlock, Way::Send, End::Passive) => refuse(
                500,
                "Handle not in the proper state. In MODE E the sender connects, send PORT.",
            ),
            (Mode::ExtendedBlock, Way::Receive, End::Active) => refuse(
                500,
                "Handle not in the proper state. In MODE E the receiver listens, send PASV.",
            ),
            _ => Ok(()),
        }
    }
}

/// False where REST asks for what the mode cannot carry: a bare stream has no offsets, so that
/// holes cannot be told; and an appended or a new file has no bytes that are "already there".
fn fit_restart(kind: &mut TransferKind, mode: Mode) -> bool {
    let restart = match kind {
        TransferKind::Send { restart, .. } => restart,
        TransferKind::Receive {
            restart: Some(_),
            placement: Placement::Append | Placement::New,
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
