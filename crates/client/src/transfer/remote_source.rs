//! A file at a server, to be read: which command fetches which part of it.

use godwit_proto::{ByteRange, Command, FtpPath, command::Region};

use super::source_file::is_device;
use crate::{
    error::{Error, Result},
    session::Session,
    spec::Part,
};

/// What is to be read of a file at a server.
pub(crate) struct RemoteSource {
    pub(crate) path: FtpPath,
    pub(crate) is_part: bool,
    /// First byte at the server.
    pub(crate) offset: u64,
    /// Bytes wanted and expected; `None`: whatever there is.
    pub(crate) length: Option<u64>,
    /// Upper bound of a part whose end is not known.
    ask: Option<u64>,
}

impl RemoteSource {
    /// `size` is that of the whole file, where it is known; `url` is for messages.
    pub(crate) fn new(
        path: &FtpPath,
        size: Option<u64>,
        part: Option<Part>,
        url: &str,
    ) -> Result<Self> {
        let offset = part.map_or(0, |p| p.offset);
        let left = match size {
            Some(size) if offset > size => {
                return Err(Error::Usage(format!(
                    "{url}: --offset {offset} is past its end, it has {size} bytes"
                )));
            }
            size => size.map(|s| s - offset),
        };
        let wanted = part.and_then(|p| p.length);
        // Without a size a shorter file than asked for is no error. Devices have what
        // they are asked for.
        let length = match (left, wanted) {
            (Some(left), wanted) => Some(wanted.map_or(left, |w| w.min(left))),
            (None, wanted) => wanted.filter(|_| is_device(path)),
        };
        Ok(Self {
            path: path.clone(),
            is_part: part.is_some(),
            offset,
            length,
            ask: wanted,
        })
    }

    /// Which command fetches a range of what is to be read, `None` for all of it. `session` is with
    /// its server.
    pub(crate) fn way(&self, session: &Session, range: Option<ByteRange>) -> Result<RetrievePlan> {
        let features = &session.server.features;
        let whole = range.is_none_or(|r| r.start == 0 && Some(r.end) == self.length);
        let start = range.map_or(0, |r| r.start);
        let length = range.map(ByteRange::len).or(self.length).or(self.ask);
        if whole && !self.is_part {
            return Ok(RetrievePlan {
                limit: self.length,
                ..RetrievePlan::new(Command::Retr(self.path.clone()))
            });
        }
        if features.eret {
            let from = self.offset + start;
            let region = Region {
                offset: from,
                // Past the end of any file; servers send what there is.
                length: length.unwrap_or(i64::MAX.unsigned_abs() - from),
            };
            return Ok(RetrievePlan {
                base: start,
                limit: Some(region.length),
                ..RetrievePlan::new(Command::Eret {
                    region,
                    path: self.path.clone(),
                })
            });
        }
        let from = self.offset + start;
        if from > 0 && !features.rest_stream {
            return Err(self.lacks(session, "ERET and no REST STREAM"));
        }
        let to_the_end = match range {
            Some(range) => Some(range.end) == self.length && self.ask.is_none(),
            None => self.ask.is_none(),
        };
        Ok(RetrievePlan {
            stream: true,
            rest: Some(from).filter(|from| *from > 0),
            stream_start: start,
            cut: length.filter(|_| !to_the_end),
            // A server that passes over the REST sends too much.
            limit: self.length.filter(|_| to_the_end),
            ..RetrievePlan::new(Command::Retr(self.path.clone()))
        })
    }

    /// A part of it cannot be had.
    pub(crate) fn lacks(&self, session: &Session, feature: &str) -> Error {
        Error::MissingFeature {
            endpoint: session.endpoint.name(),
            feature: feature.to_owned(),
            consequence: format!("a part of {} cannot be fetched", self.path),
        }
    }
}

/// How a range is fetched.
pub(crate) struct RetrievePlan {
    pub(crate) command: Command,
    /// MODE S even where MODE E works.
    pub(crate) stream: bool,
    pub(crate) rest: Option<u64>,
    /// Byte of what is read that has wire offset 0.
    pub(crate) base: u64,
    pub(crate) stream_start: u64,
    pub(crate) limit: Option<u64>,
    /// The server sends more than these bytes, which the receiver has to cut off.
    pub(crate) cut: Option<u64>,
}

impl RetrievePlan {
    fn new(command: Command) -> Self {
        Self {
            command,
            stream: false,
            rest: None,
            base: 0,
            stream_start: 0,
            limit: None,
            cut: None,
        }
    }
}
