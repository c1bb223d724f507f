//! A put whose bytes come from another server.

use godwit_proto::{ByteRange, Command, RestartPoint};

use super::Upload;
use crate::{
    error::{Error, Result},
    session::{PassedRegion, SessionPair, ThirdPartyPlan},
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
        let doing = self.doing();
        let retrieving = match &session.sender {
            Some(sender) => format!("get {}", sender.endpoint.url(&source.path)),
            None => String::new(),
        };
        let may_exist = self.relay_plan(session, source, range, (&doing, &retrieving));
        let relayed = match may_exist {
            Ok(plan) => {
                self.mark_started();
                session.relay(plan).await
            }
            Err(error) => return RangeOutcome::failed(error, 0, vec![range]),
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
        Ok(ThirdPartyPlan {
            storing,
            retrieving,
            stream: way.stream,
            may_be_cut: range.is_some() && self.can_be_cut(session),
            long: self.length.is_none_or(|length| length > SMALL_BYTES_MAX),
            allo_command: self.allo_command(session, range),
            store: self.store(session, range)?,
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
