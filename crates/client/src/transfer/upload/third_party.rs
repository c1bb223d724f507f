//! A put whose bytes come from another server.

use std::sync::atomic::Ordering;

use godwit_proto::{ByteRange, Command, RestartPoint};

use super::{Upload, UploadSource};
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    session::{Found, PassedRegion, SessionPair, ThirdPartyPlan},
    transfer::{
        FileTransfer, SMALL_BYTES_MAX, range_outcome::RangeOutcome, remote_source::RemoteSource,
    },
};

impl Upload {
    /// Has the other server send bytes of the region. What has arrived when it fails is not sent
    /// again.
    pub(crate) async fn relay(
        &self,
        session: &mut SessionPair,
        source: &RemoteSource,
        range: Option<ByteRange>,
    ) -> RangeOutcome {
        if range != self.region(None) {
            self.is_relayed_in_parts.store(true, Ordering::Relaxed);
        }
        let doing = self.doing();
        let retrieving = match &session.sender {
            Some(sender) => format!("get {}", sender.endpoint.url(&source.path)),
            None => String::new(),
        };
        let mut range = range;
        let relayed = loop {
            let plan = match self.relay_plan(session, source, range, (&doing, &retrieving)) {
                Ok(plan) => plan,
                Err(error) => return RangeOutcome::failed(error, 0, vec![range]),
            };
            if let (false, Some(safe)) = (self.goes_on_in_order(range), &self.safe) {
                // All of it is written again.
                safe.clear();
            }
            self.mark_started();
            let relayed = session.relay(plan).await;
            // The source sends the whole file alone.
            let is_whole_wanted = match &relayed.result {
                Err(
                    error @ Error::Refused {
                        reply,
                        started: false,
                        ..
                    },
                ) => {
                    let is_of_rest = matches!(reply.code.get(), 501..=504);
                    is_of_rest && !self.is_of_destination(error) && self.goes_on_in_order(range)
                }
                _ => false,
            };
            if is_whole_wanted && session.is_usable() {
                range = self.region(None);
                continue;
            }
            if !self.can_go_on_otherwise(session, range, &relayed.result) {
                break relayed;
            }
            if session.endpoint.capabilities.lacks(Lack::Append) {
                range = self.region(None);
            }
        };
        let Some(range) = range else {
            return match relayed.result {
                Ok(()) => RangeOutcome::whole(relayed.bytes.unwrap_or(0)),
                Err(error) => RangeOutcome::failed(error, 0, vec![None]),
            };
        };
        if relayed.is_cut {
            return RangeOutcome::cut_short(range, &relayed.safe);
        }
        let error = match (relayed.result, relayed.bytes) {
            (Ok(()), Some(got)) if got != range.len() => Error::Size {
                doing,
                expected: range.len(),
                got,
            },
            (Ok(()), _) => return RangeOutcome::whole(range.len()),
            (Err(error), _) => error,
        };
        match self.can_split(session) {
            true => RangeOutcome::failed_but(error, range, &relayed.safe),
            false => RangeOutcome::failed(error, 0, vec![Some(range)]),
        }
    }

    /// It goes alone, and may change its channels on the way.
    pub(super) fn is_large(&self) -> bool {
        self.length.is_none_or(|length| length > SMALL_BYTES_MAX)
    }

    /// The source tells when it was changed.
    pub(super) fn has_source_time(&self) -> bool {
        self.version
            .is_some_and(|version| version.changed.is_some())
    }

    /// Parts that passed through this machine, each in a transfer of its own, are of the version
    /// that was planned.
    pub(super) async fn check_source(&self, session: &mut SessionPair) -> Result<()> {
        let may_mix = self.is_assembled || self.is_relayed_in_parts.load(Ordering::Relaxed);
        if !may_mix || !session.is_through_client() {
            return Ok(());
        }
        let (UploadSource::Server(from), Some(source), Some(planned)) =
            (&self.from, &mut session.sender, self.version)
        else {
            return Ok(());
        };
        let is_planned = match source.stat(&from.path).await? {
            Found::File(now) => {
                let changed = now.modify.map(|time| time.0);
                now.size.is_none_or(|size| size == planned.size) && changed == planned.changed
            }
            _ => false,
        };
        match is_planned {
            true => Ok(()),
            false => Err(Error::Changed {
                what: source.endpoint.url(&from.path),
            }),
        }
    }

    fn relay_plan<'a>(
        &self,
        session: &SessionPair,
        source: &RemoteSource,
        range: Option<ByteRange>,
        (storing, retrieving): (&'a str, &'a str),
    ) -> Result<ThirdPartyPlan<'a>> {
        let Some(sender) = &session.sender else {
            return Err(Error::Usage(format!("{retrieving}: no session for it")));
        };
        let way = source.way(sender, range)?;
        // A server that receives from the other takes all there is.
        if way.cut.is_some() && !session.is_through_client() {
            return Err(source.lacks(sender, "ERET"));
        }
        let store = self.store(session, range)?;
        Ok(ThirdPartyPlan {
            storing,
            retrieving,
            stream: way.stream,
            may_be_cut: range.is_some() && self.can_be_cut(session),
            long: self.is_large(),
            ahead: self.ahead(session, range, &store),
            safe: self.safe.clone(),
            stored_as: self.stored_as(session),
            store,
            restart: way.rest.map(|n| Command::Rest(RestartPoint::Offset(n))),
            retrieve: way.command,
            passed: PassedRegion {
                region: range,
                base: way.base,
                stream_start: way.stream_start,
                limit: way.limit,
                cut: way.cut,
            },
        })
    }
}
