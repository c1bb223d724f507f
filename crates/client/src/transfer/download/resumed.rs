//! What is there of a file from an earlier attempt or run, and what is fetched of it.

use godwit_proto::{ByteRange, RangeSet, error::TransferFailure};

use super::Download;
use crate::{
    error::{Error, Result},
    local::journal::Order,
    session::SessionPair,
    transfer::{range_outcome::RangeOutcome, resume, source_file::SourceFile},
};

/// Bytes of a range that are fetched again where all of it is here and only the server's word is
/// missing. Chosen arbitrarily.
pub(super) const PROOF_BYTES: u64 = 64 << 10;

impl Download {
    /// The bytes of a part of the file are there.
    pub(super) fn has_come(&self, range: Option<ByteRange>) -> bool {
        let part = range.filter(|range| Some(*range) != self.whole());
        match (&self.safe, part) {
            (Some(safe), Some(part)) => safe.gaps(part).is_empty(),
            _ => false,
        }
    }

    /// What is there is the beginning of the file.
    pub(super) fn is_beginning(&self) -> bool {
        self.in_order && self.safe.is_none()
    }

    /// The server does not send what is behind the beginning, or not so.
    pub(super) fn is_refused_in_order(
        &self,
        range: Option<ByteRange>,
        result: &Result<u64>,
    ) -> bool {
        let is_all = range.is_none() || range == self.whole();
        let goes_on = self.in_order && !is_all;
        // After others the same REST is tried again. ProFTPD says 451 where it takes none.
        let is_of_command = matches!(
            result,
            Err(Error::Refused { reply, started: false, .. })
                if !matches!(reply.code.get(), 421 | 425 | 426 | 450)
        );
        goes_on && is_of_command
    }

    /// Before more is fetched of a file of which an attempt has brought its beginning: whether the
    /// source is still the same. One of another size is not what was asked for; of another time, it
    /// begins at its first byte.
    pub(super) async fn is_unchanged(
        &self,
        session: &mut SessionPair,
        source_file: &SourceFile,
    ) -> Result<bool> {
        let now = resume::version(session, &self.from.path).await?;
        let (Some(now), Some(before)) = (now, *self.version.lock()) else {
            return Ok(false);
        };
        if now.size != before.size {
            let what = source_file.source();
            return Err(Error::Changed { what });
        }
        if now != before {
            *self.version.lock() = Some(now);
            if let Some(journal) = session.context.local.journal.get() {
                journal.record_source(&source_file.target(), now, order_of(session));
            }
            if let Some(safe) = &self.safe {
                safe.clear();
            }
        }
        // Without a time nothing tells that it is the same.
        Ok(now == before && now.changed.is_some())
    }

    /// What is to be fetched after an attempt at `range` of a file in order has failed, and how
    /// many bytes it has brought.
    pub(super) fn after_failure(
        &self,
        range: ByteRange,
        safe: &RangeSet,
        error: &Error,
    ) -> (u64, Option<ByteRange>) {
        // The server has passed over the REST.
        let is_elsewhere = matches!(
            error,
            Error::Transfer {
                failure: TransferFailure::Protocol(_),
                ..
            }
        );
        if is_elsewhere {
            return (0, None);
        }
        let first_gap = safe.gaps(range).into_iter().next();
        // All of it is here, and the server called it a failure: a little that comes well is a
        // success.
        let proof = range.end - range.len().min(PROOF_BYTES);
        let start = first_gap.map_or(proof, |gap| gap.start);
        (start - range.start, ByteRange::new(start, range.end))
    }

    /// The same of a file whose bytes come in any order: `safe` are there.
    pub(super) fn after_failure_in_any_order(
        &self,
        range: ByteRange,
        safe: &RangeSet,
        error: Error,
    ) -> RangeOutcome {
        let mut safe = from_start_of(range, safe);
        // All of it is here, and the server called it a failure: a little that comes well is a
        // success.
        if let (true, Some(account)) = (safe.covered() == range.len(), &self.safe) {
            let start = range.len() - range.len().min(PROOF_BYTES);
            safe.remove(ByteRange {
                start,
                end: range.len(),
            });
            account.forget(ByteRange {
                start: range.start + start,
                end: range.end,
            });
        }
        RangeOutcome::failed_but(error, range, &safe)
    }
}

/// The bytes of `range` in `safe`, counted from its start.
fn from_start_of(range: ByteRange, safe: &RangeSet) -> RangeSet {
    let shifted = safe.iter().filter_map(|safe| {
        let (start, end) = (safe.start.max(range.start), safe.end.min(range.end));
        ByteRange::new(
            start.checked_sub(range.start)?,
            end.checked_sub(range.start)?,
        )
    });
    shifted.collect()
}

/// In which order bytes come from the server.
pub(super) fn order_of(session: &SessionPair) -> Order {
    match session.endpoint.is_http() {
        true => Order::Any,
        false => Order::Ascending,
    }
}
