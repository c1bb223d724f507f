//! Commands of an upload, and what goes over the data channels.

use std::{io, sync::Arc, time::SystemTime};

use godwit_engine::data::{Monitor, Source, TransferJob};
use godwit_proto::{
    ByteRange, Command, FtpPath, RestartPoint, command::Mode, pi::transfer::Direction,
    timestamp::Timestamp,
};

use super::{Upload, UploadSource, stdin::StdinReader};
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    local::attributes::FileAttributes,
    session::{NextTransfer, SessionPair, TransferOutcome, TransferPlan},
    transfer::{
        FileTransfer, range_outcome::RangeOutcome, source_file::is_device,
        stealable_ranges::RangeKey,
    },
};

impl Upload {
    /// Sends bytes of the region, `None` for all of it.
    pub(super) async fn send_region(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
        began: &dyn Fn(),
    ) -> RangeOutcome {
        let mut range = self.region(range);
        if let UploadSource::Server(source) = &self.from {
            return self.relay(session, source, range).await;
        }
        let TransferOutcome {
            report,
            safe,
            result,
            ..
        } = loop {
            let tail = range.filter(|_| self.can_split(session));
            let tail = tail.map(|range| self.stealable.begin(range));
            let outcome = self
                .send_once(session, range, tail, next.clone(), began)
                .await;
            if self.can_go_on_otherwise(session, range, &outcome.result) {
                if session.endpoint.capabilities.lacks(Lack::Append) {
                    range = self.region(None);
                }
                continue;
            }
            // What others took meanwhile is theirs.
            range = tail.and_then(|tail| self.stealable.end(tail)).or(range);
            break outcome;
        };
        if let Err(error) = result {
            return match range {
                Some(range) if self.can_split(session) => {
                    RangeOutcome::failed_but(error, range, &safe)
                }
                range => RangeOutcome::failed(error, 0, vec![range]),
            };
        }
        let (sent, unsent) = report.map_or((0, Vec::new()), |r| (r.bytes, r.unsent));
        let Some(range) = range else {
            return RangeOutcome::whole(sent);
        };
        let left: Vec<_> = unsent
            .into_iter()
            .filter_map(|r| ByteRange::new(range.start + r.start, range.start + r.end))
            .collect();
        let expected = range.len() - left.iter().map(|r| r.len()).sum::<u64>();
        if sent == expected {
            return RangeOutcome {
                result: Ok(()),
                moved: sent,
                left: left.into_iter().map(Some).collect(),
            };
        }
        let error = Error::Size {
            doing: self.doing(),
            expected,
            got: sent,
        };
        RangeOutcome::failed(error, 0, vec![Some(range)])
    }

    async fn send_once(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
        tail: Option<RangeKey>,
        next: Option<NextTransfer>,
        began: &dyn Fn(),
    ) -> TransferOutcome {
        let doing = self.doing();
        let command = match self.store(session, range) {
            Ok(command) => command,
            Err(error) => return TransferOutcome::never_began(error),
        };
        let goes_on = self.goes_on_in_order(range);
        let ahead = self.ahead(session, range, &command);
        let began = |monitor: Option<&Monitor>| {
            if let UploadSource::Stream(input) = &self.from {
                input.open();
            }
            if let (Some(tail), Some(monitor)) = (tail, monitor) {
                self.stealable.flows(tail, monitor);
                began();
            }
        };
        if let (false, Some(safe)) = (goes_on, &self.safe) {
            // All of it is written again.
            safe.clear();
        }
        let plan = TransferPlan {
            doing: &doing,
            direction: Direction::Put,
            stream: self.is_stream() || goes_on,
            striped: self.is_large(),
            ahead,
            command,
            length: None,
            next,
            may_block: self.is_stream(),
            counts: true,
            feeds: false,
            is_cut: false,
            may_be_cut: tail.is_some() && self.can_be_cut(session),
            began: Some(&began),
            safe: self.safe.as_ref(),
            stored_as: self.stored_as(session),
        };
        self.mark_started();
        let outcome = session.transfer(plan, |_: Mode| self.job(range)).await;
        if let UploadSource::Stream(input) = &self.from {
            input.shut();
        }
        outcome
    }

    /// What goes before the command that stores a range: where it begins, or room for it.
    pub(super) fn ahead(
        &self,
        session: &SessionPair,
        range: Option<ByteRange>,
        command: &Command,
    ) -> Option<Command> {
        if self.divided.is_some() {
            let from = self.offset + range.map_or(0, |range| range.start);
            return Some(Command::Rest(RestartPoint::Offset(from)));
        }
        if !self.goes_on_in_order(range) {
            return self.allo_command(session, range);
        }
        // APPE begins where the file ends.
        let from = range.filter(|_| !matches!(command, Command::Appe(_)));
        from.map(|range| Command::Rest(RestartPoint::Offset(range.start)))
    }

    /// The final name and what is known of the file, for a bucket: that wants them first.
    pub(super) fn stored_as(&self, session: &SessionPair) -> Option<(FtpPath, FileAttributes)> {
        let to = self.divided.as_ref().or(self.rename_to.as_ref());
        let to = to.filter(|_| session.endpoint.is_bucket())?;
        let changed = match &self.from {
            UploadSource::File(file) => {
                let modified = file.metadata().ok()?.modified;
                let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok();
                since.and_then(|since| i64::try_from(since.as_secs()).ok())
            }
            UploadSource::Server(_) => self.version.and_then(|version| version.changed),
            UploadSource::Stream(_) => None,
        };
        let attributes = self.attributes.unwrap_or_default();
        let modified = attributes.modified.or(changed.map(Timestamp));
        Some((
            to.clone(),
            FileAttributes {
                modified,
                ..attributes
            },
        ))
    }

    /// Which command writes a range, `None` for all of it.
    pub(super) fn store(&self, session: &SessionPair, range: Option<ByteRange>) -> Result<Command> {
        let whole = range.is_none_or(|r| r.start == 0 && Some(r.end) == self.length);
        let from = self.offset + range.map_or(0, |r| r.start);
        if self.goes_on_in_order(range) {
            let path = self.temp_path.clone();
            return Ok(match session.endpoint.capabilities.lacks(Lack::RestStor) {
                false => Command::Stor(path),
                true => Command::Appe(path),
            });
        }
        if self.divided.is_some() {
            return Ok(Command::Stor(self.temp_path.clone()));
        }
        // Onto a device every part is as good as the whole.
        let device = is_device(&self.temp_path);
        if whole && (!self.is_part || device && from == 0) {
            return Ok(Command::Stor(self.temp_path.clone()));
        }
        if session.server.features.esto {
            return Ok(Command::Esto {
                offset: from,
                path: self.temp_path.clone(),
            });
        }
        Err(Error::MissingFeature {
            endpoint: session.endpoint.name(),
            feature: "ESTO".to_owned(),
            consequence: format!("a part of {} cannot be written", self.url),
        })
    }

    /// Sets room aside for a range. A device takes none, and a server that looks may see too little
    /// of it.
    pub(super) fn allo_command(
        &self,
        session: &SessionPair,
        range: Option<ByteRange>,
    ) -> Option<Command> {
        let takes = !is_device(&self.temp_path) && !session.endpoint.capabilities.lacks(Lack::Allo);
        // Holes take none.
        let stored = match &self.from {
            UploadSource::File(file) if session.sends_holes() => {
                file.metadata().map(|m| m.stored).ok()
            }
            UploadSource::File(_) | UploadSource::Stream(_) | UploadSource::Server(_) => None,
        };
        let bytes = |range: ByteRange| range.len().min(stored.unwrap_or(u64::MAX));
        range.filter(|_| takes).map(|r| Command::Allo(bytes(r)))
    }

    pub(super) fn job(&self, range: Option<ByteRange>) -> TransferJob {
        let from = self.offset + range.map_or(0, |r| r.start);
        TransferJob::Send(self.source(from, range))
    }

    fn source(&self, from: u64, range: Option<ByteRange>) -> Source {
        match &self.from {
            UploadSource::File(file) => Source::File {
                file: Arc::clone(file),
                base: from,
                ranges: vec![ByteRange {
                    start: 0,
                    end: range.map_or(0, ByteRange::len),
                }],
            },
            UploadSource::Stream(input) => Source::Stream(Box::new(StdinReader(Arc::clone(input)))),
            // Not ours to send.
            UploadSource::Server(_) => Source::Stream(Box::new(io::empty())),
        }
    }
}
