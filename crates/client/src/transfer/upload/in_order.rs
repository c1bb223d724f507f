//! A file that is sent to a server in order, and continued behind what the server has:
//! [`crate::transfer::resume::is_in_order`].

use std::sync::atomic::Ordering;

use godwit_proto::{ByteRange, RangeSet};

use super::Upload;
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    session::{SessionPair, WINDOW_BYTES},
};

impl Upload {
    /// Where the server has the beginning of the file under its temporary name.
    pub(crate) async fn missing_in_order(
        &self,
        session: &mut SessionPair,
    ) -> Result<Option<Vec<ByteRange>>> {
        let is_refused = session.endpoint.capabilities.lacks(Lack::Append);
        let (Some(length), true, false) = (
            self.length,
            self.may_exist.load(Ordering::Relaxed),
            is_refused,
        ) else {
            return Ok(None);
        };
        let there = session.size(&self.temp_path).await?;
        self.was_there.store(there.is_some(), Ordering::Relaxed);
        // More than the file has is none of it.
        let there = there.filter(|there| *there <= length).unwrap_or(0);
        let there = match session.endpoint.is_http() {
            true => self.without_gaps(there),
            false => there,
        };
        let left = ByteRange::new(there, length);
        Ok(Some(Vec::from_iter(left.filter(|left| !left.is_empty()))))
    }

    /// How much of `there` bytes has no gaps: parts that were on their way have left some.
    fn without_gaps(&self, there: u64) -> u64 {
        let confirmed = self.confirmed.load(Ordering::Relaxed);
        let confirmed = Some(confirmed).filter(|confirmed| *confirmed <= there);
        let there = (there.saturating_sub(WINDOW_BYTES)).max(confirmed.unwrap_or(0));
        if there == 0 {
            // It is made again.
            self.confirmed.store(0, Ordering::Relaxed);
        }
        there
    }

    /// The server has these bytes of `range`, counted from its start.
    pub(crate) fn record_confirmed(&self, range: ByteRange, safe: &RangeSet) {
        let of_range = ByteRange {
            start: 0,
            end: range.len(),
        };
        let first_gap = safe
            .gaps(of_range)
            .first()
            .map_or(range.len(), |gap| gap.start);
        let confirmed = range.start + first_gap;
        self.confirmed.fetch_max(confirmed, Ordering::Relaxed);
    }

    /// The server refuses to go on with what it has: by the command after which there is another,
    /// which is found out here.
    pub(crate) fn can_go_on_otherwise(
        &self,
        session: &SessionPair,
        range: Option<ByteRange>,
        result: &Result<()>,
    ) -> bool {
        let Err(Error::Refused {
            reply,
            started: false,
            ..
        }) = result
        else {
            return false;
        };
        // Others are for want of a connection or of room.
        let is_of_command = matches!(reply.code.get(), 451 | 500..=504 | 550 | 551 | 553..);
        if !self.goes_on_in_order(range) || !is_of_command || !session.is_usable() {
            return false;
        }
        match session.endpoint.capabilities.lacks(Lack::RestStor) {
            false => {
                let instead = "files are gone on with by APPE";
                session.lesson(Lack::RestStor, reply, "REST for STOR", instead);
            }
            true => {
                let instead = "files that were cut are sent from their first byte";
                session.lesson(Lack::Append, reply, "APPE", instead);
            }
        }
        true
    }

    /// The server has what is before this range.
    pub(crate) fn goes_on_in_order(&self, range: Option<ByteRange>) -> bool {
        self.in_order && range.is_some_and(|range| range.start > 0)
    }
}
