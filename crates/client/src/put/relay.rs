//! A put whose bytes come from another server.

use godwit_proto::{ByteRange, Command, RestartPoint};

use super::Put;
use crate::{
    error::{Error, Result},
    job::Carried,
    pipelining::SMALL_BYTES_MAX,
    remote::RemoteSource,
    session::{RelayPlan, Session},
};

impl Put {
    /// Has the other server send bytes of the region. What has arrived when it fails is not sent
    /// again.
    pub(super) async fn relay(
        &self,
        session: &mut Session,
        source: &RemoteSource,
        range: Option<ByteRange>,
    ) -> Carried {
        let doing = self.doing();
        let retrieving = match &session.source {
            Some(sender) => format!("get {}", sender.endpoint.url(&source.path)),
            None => String::new(),
        };
        let begun = self.relay_plan(session, source, range, (&doing, &retrieving));
        let relayed = match begun {
            Ok(plan) => {
                self.begins();
                session.relay(plan).await
            }
            Err(error) => return Carried::failed(error, 0, vec![range]),
        };
        let Some(range) = range else {
            return match relayed.result {
                Ok(()) => Carried::whole(relayed.bytes.unwrap_or(0)),
                Err(error) => Carried::failed(error, 0, vec![None]),
            };
        };
        if relayed.is_cut {
            return Carried::cut_short(range, &relayed.safe);
        }
        let error = match (relayed.result, relayed.bytes) {
            (Ok(()), Some(got)) if got != range.len() => Error::Size {
                doing,
                expected: range.len(),
                got,
            },
            (Ok(()), _) => return Carried::whole(range.len()),
            (Err(error), _) => error,
        };
        match self.can_split(session) {
            true => Carried::failed_but(error, range, &relayed.safe),
            false => Carried::failed(error, 0, vec![Some(range)]),
        }
    }

    fn relay_plan<'a>(
        &self,
        session: &Session,
        source: &RemoteSource,
        range: Option<ByteRange>,
        (storing, retrieving): (&'a str, &'a str),
    ) -> Result<RelayPlan<'a>> {
        let Some(sender) = &session.source else {
            return Err(Error::Usage(format!("{retrieving}: no session for it")));
        };
        let way = source.way(sender, range)?;
        // The server that receives takes all there is.
        if way.cut.is_some() {
            return Err(source.lacks(sender, "ERET"));
        }
        Ok(RelayPlan {
            storing,
            retrieving,
            stream: way.stream,
            may_be_cut: range.is_some() && self.can_be_cut(session),
            long: self.length.is_none_or(|length| length > SMALL_BYTES_MAX),
            room: self.room(session, range),
            store: self.store(session, range)?,
            restart: way.rest.map(|n| Command::Rest(RestartPoint::Offset(n))),
            retrieve: way.command,
        })
    }
}
