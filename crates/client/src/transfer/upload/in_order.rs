//! A file that is sent to a server in order, and continued behind what the server has:
//! [`crate::transfer::resume::is_in_order`]; and one that a server of HTTP takes in parts.

use std::sync::atomic::Ordering;

use godwit_proto::{
    ByteRange,
    error::{FailureKind, failure_kind},
};

use super::Upload;
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    session::{SessionPair, SizeReply},
};

impl Upload {
    /// What the server does not have of the file under its temporary name.
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
        if length == 0 {
            return Ok(None);
        }
        let there = match session.ask_size(&self.temp_path).await? {
            SizeReply::Known(size) => Some(size),
            // A bucket that fails for a moment has not lost the upload.
            SizeReply::Refused(reply)
                if session.endpoint.is_bucket()
                    && failure_kind(&reply) == Some(FailureKind::Transient) =>
            {
                let doing = format!("ask what there is of {}", self.url);
                return Err(Error::refused(doing, reply));
            }
            SizeReply::Missing | SizeReply::Refused(_) | SizeReply::Unknown => None,
        };
        self.was_there.store(there.is_some(), Ordering::Relaxed);
        // More than the file has is none of it.
        let there = there.filter(|there| *there <= length).unwrap_or(0);
        if let Some(safe) = &self.safe {
            safe.keep(there);
            if let Some(upload) = session.endpoint.uploads.parts_of(&self.temp_path) {
                // The service knows better than the journal.
                safe.replace(upload.ranges());
            }
            return Ok(Some(safe.missing()));
        }
        let left = ByteRange::new(there, length);
        Ok(Some(Vec::from_iter(left.filter(|left| !left.is_empty()))))
    }

    /// Asks what there is of an upload that other jobs send, too: parts, or the object.
    pub(super) async fn ask_upload(&self, session: &mut SessionPair) -> Result<()> {
        if let SizeReply::Refused(reply) = session.ask_size(&self.temp_path).await?
            && failure_kind(&reply) == Some(FailureKind::Transient)
        {
            let doing = format!("ask what there is of {}", self.url);
            return Err(Error::refused(doing, reply));
        }
        match session.endpoint.uploads.of(&self.temp_path) {
            Some(_) => Ok(()),
            None => Err(self.upload_ended()),
        }
    }

    fn upload_ended(&self) -> Error {
        Error::UploadEnded {
            what: self.url.clone(),
        }
    }

    /// Of an upload that other jobs send, too, the parts of this one that are not there.
    pub(super) async fn missing_of_divided(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
    ) -> Result<Option<Vec<ByteRange>>> {
        let Some(region) = self.region(range) else {
            return Ok(None);
        };
        self.ask_upload(session).await?;
        let uploads = &session.endpoint.uploads;
        let upload = uploads.parts_of(&self.temp_path);
        let upload = upload.ok_or_else(|| self.upload_ended())?;
        let of_object = ByteRange {
            start: self.offset + region.start,
            end: self.offset + region.end,
        };
        let missing = upload.ranges().gaps(of_object);
        let of_part = |range: ByteRange| ByteRange {
            start: range.start - self.offset,
            end: range.end - self.offset,
        };
        Ok(Some(missing.into_iter().map(of_part).collect()))
    }

    /// The server refuses to go on with what it has: by the command after which there is another,
    /// which is found out here.
    pub(crate) fn can_go_on_otherwise(
        &self,
        session: &SessionPair,
        range: Option<ByteRange>,
        result: &Result<()>,
    ) -> bool {
        let Err(error) = result else {
            return false;
        };
        let Error::Refused {
            reply,
            started: false,
            ..
        } = error
        else {
            return false;
        };
        // Others are for want of a connection or of room.
        let is_of_command = matches!(reply.code.get(), 451 | 500..=504 | 550 | 551 | 553..);
        let is_told = is_of_command && self.is_of_destination(error);
        if !self.goes_on_in_order(range) || !is_told || !session.is_usable() {
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

    /// The server has what is before this range, or behind it.
    pub(crate) fn goes_on_in_order(&self, range: Option<ByteRange>) -> bool {
        let is_part = range.is_some() && range != self.region(None);
        self.in_order && is_part && (self.safe.is_some() || range.is_some_and(|r| r.start > 0))
    }

    /// The server has this part of the file.
    pub(crate) fn has_arrived(&self, range: Option<ByteRange>) -> bool {
        let part = range.filter(|range| Some(*range) != self.region(None));
        match (&self.safe, part) {
            (Some(safe), Some(part)) => safe.gaps(part).is_empty(),
            (None, Some(part)) => self.divided.is_some() && part.is_empty(),
            _ => false,
        }
    }
}
