//! What the answers to a file come to, and what follows for it and for the others in flight.

use std::sync::atomic::Ordering;

use godwit_proto::{
    Command, Reply,
    error::{FailureKind, failure_kind},
    pi::transfer::Direction,
};
use tokio::time::Instant;

use super::{COMMAND_BYTES, Feed, Pipeline, learn};
use crate::{
    error::{Error, Result},
    events::Event,
    flight::Flight,
    session::lineup::{Slot, State},
    taking_up,
    verify::Agreed,
};

impl<F: Feed> Pipeline<'_, F> {
    pub(super) async fn settle(&mut self, at: usize) {
        match self.lineup.state(at) {
            State::Open => {}
            State::Refused => self.refused(at),
            State::Broken => {
                let slot = self.lineup.get(at);
                let failure = slot.and_then(|s| s.failure().cloned());
                let doing = slot.map(|s| s.load.doing().to_string()).unwrap_or_default();
                let error = failure.map(|failure| Error::Transfer { doing, failure });
                self.give_up(error.map(|error| (at, error)));
            }
            State::Arrived => self.compare(at).await,
            State::Renamed => self.renamed(at),
        }
    }

    async fn compare(&mut self, at: usize) {
        let Some(slot) = self.lineup.get_mut(at) else {
            return;
        };
        let reply = slot.checked.take();
        let stamped = std::mem::take(&mut slot.stamped);
        if !stamped.is_empty() {
            let target = slot.load.item.target();
            self.session.heed_stamped(&stamped, Some(&target));
        }
        if let Some(refusal) = reply.as_ref().filter(|reply| slot.load.is_nameless(reply)) {
            let refusal = refusal.clone();
            if let Some(slot) = self.lineup.remove(at) {
                self.nameless(slot, refusal);
            }
            return;
        }
        let verified = slot.load.verify(self.session, self.spec, reply).await;
        let agreed = match verified {
            Ok(agreed) => agreed,
            Err(error) if self.ours => {
                self.tell_setback(&error);
                return self.return_one(at, true);
            }
            // Perhaps these were not its bytes.
            Err(error) => return self.give_up(Some((at, error))),
        };
        self.count(at);
        let Some(slot) = self.lineup.get_mut(at) else {
            return;
        };
        let names = slot.load.names();
        let Some((from, to)) = names.map(|(from, to)| (from.clone(), to.clone())) else {
            let outcome = slot
                .load
                .commit(&self.session.context.written)
                .map(|()| agreed);
            return self.done(at, outcome);
        };
        slot.agreed = agreed;
        let stamping = self.session.stamping(slot.load.item.stamp.as_ref(), &from);
        let bytes =
            (2 + stamping.len()) * (COMMAND_BYTES + from.as_bytes().len().max(to.as_bytes().len()));
        let control = &mut self.session.control;
        let stamping = stamping
            .into_iter()
            .map(|c| (control.submit(&c), c))
            .collect();
        let rename = [Command::Rnfr(from), Command::Rnto(to)].map(|c| control.submit(&c));
        self.lineup.renames(at, stamping, rename, bytes);
    }

    /// Its bytes are there, and right.
    fn count(&mut self, at: usize) {
        let Some(slot) = self.lineup.get(at) else {
            return;
        };
        let bytes = slot.load.size();
        self.arrived += 1;
        let context = &self.session.context;
        context.counters.moved(bytes);
        let learned = &self.session.endpoint.learned;
        if self.direction == Direction::Get && self.arrived == 1 {
            learned.gets_pipelined.store(true, Ordering::Relaxed);
        }
        learned.depth.store(self.pace.depth(), Ordering::Relaxed);
        let is_paced = !self.is_to_steer();
        let deeper = is_paced && self.pace.arrived(bytes, Instant::now().into_std());
        self.place.goes_at(self.pace.rate());
        if deeper || self.arrived == 1 {
            context.pipelines(self.pace.depth(), self.session.round_trip);
        }
    }

    fn renamed(&mut self, at: usize) {
        let Some(mut slot) = self.lineup.remove(at) else {
            return;
        };
        if !slot.stamped.is_empty() {
            let target = slot.load.item.target();
            self.session.heed_stamped(&slot.stamped, Some(&target));
        }
        let [rnfr, rnto] = std::mem::take(&mut slot.renamed);
        let (Some(rnfr), Some(rnto)) = (rnfr, rnto) else {
            return;
        };
        if rnfr.code.is_intermediate() && rnto.code.is_success() {
            slot.load.renamed();
            return self.feed.settled(&slot.load, Ok(slot.agreed));
        }
        // RNTO after a refused RNFR fails for lack of it.
        let refused_rnfr = !rnfr.code.is_intermediate();
        self.nameless(slot, if refused_rnfr { rnfr } else { rnto });
    }

    /// Its bytes are there, and the server does not give it its name.
    fn nameless(&mut self, slot: Slot<Flight>, refusal: Reply) {
        if let Some(path) = slot.load.rubbish() {
            let id = self.session.control.submit(&Command::Dele(path.clone()));
            self.removing.push_back((id, path.clone()));
        }
        if failure_kind(&refusal) == Some(FailureKind::Exists) {
            // This server does not rename over a file: what is there must go first.
            return self.leavings.returned.push(slot.load.into_item(true));
        }
        let to = self.session.endpoint.url(&slot.load.item.remote);
        let error = Error::refused(format!("rename to {to}"), refusal);
        self.feed.settled(&slot.load, Err(error));
    }

    fn refused(&mut self, at: usize) {
        let Some(slot) = self.lineup.get(at) else {
            return;
        };
        let Some(reply) = slot.answer.clone() else {
            return;
        };
        // Where all has come that was not to be sent, it was another's.
        let begun = slot.begun || slot.is_whole();
        let kind = failure_kind(&reply);
        let of_the_file = match kind {
            Some(
                FailureKind::NotFound
                | FailureKind::PermissionDenied
                | FailureKind::NotADirectory
                | FailureKind::IsADirectory,
            ) => true,
            // Some say so of any file that does not open.
            Some(FailureKind::Other) => matches!(reply.code.get(), 550 | 553),
            _ => false,
        };
        let error = Error::Refused {
            doing: slot.load.doing().to_string(),
            reply: Box::new(reply.clone()),
            started: begun,
        };
        let never = kind == Some(FailureKind::NotSupported) && self.arrived == 0 && !begun;
        if reply.code.get() == 421 || never {
            learn(&self.session.context, &self.session.endpoint, &reply);
            return self.give_up(None);
        }
        let (context, endpoint) = (&self.session.context, &self.session.endpoint);
        if slot.load.refused_name(context, endpoint, &error) {
            // Its name was refused: it goes alone, under another one.
            return self.give_up(Some((at, error)));
        }
        match self.direction {
            Direction::Get if begun => self.give_up(Some((at, error))),
            // The server has sent nothing for it.
            Direction::Get if of_the_file => {
                self.done(at, Err(error));
            }
            Direction::Get => {
                self.feeding = false;
                self.channels_gone = true;
                self.return_one(at, false);
            }
            Direction::Put if of_the_file && !begun => {
                let learned = &self.session.endpoint.learned;
                learned.folder_is_closed(&slot.load.item.remote);
                self.done(at, Err(error));
                self.give_up(None);
            }
            Direction::Put => self.give_up(Some((at, error))),
        }
    }

    fn done(&mut self, at: usize, outcome: Result<Option<Agreed>>) {
        if let Some(slot) = self.lineup.remove(at) {
            self.feed.settled(&slot.load, outcome);
        }
    }

    fn return_one(&mut self, at: usize, alone: bool) {
        if let Some(slot) = self.lineup.remove(at) {
            self.bring_back(slot.load, alone);
        }
    }

    fn bring_back(&mut self, mut flight: Flight, alone: bool) {
        self.leave(&mut flight);
        self.leavings.returned.push(flight.into_item(alone));
    }

    /// What is there of a file stays where it can be gone on with.
    fn leave(&mut self, flight: &mut Flight) {
        if self.session.context.journal.get().is_some() && taking_up::is_possible(self.session) {
            flight.keep();
        }
        self.leavings.rubbish.extend(flight.rubbish().cloned());
    }

    /// Nothing is certain any more of what is in flight. The file at a place may be the reason, and
    /// goes alone from now on.
    pub(super) fn give_up(&mut self, reason: Option<(usize, Error)>) {
        if let Some((at, error)) = reason {
            match error.is_for_want_of_room() {
                // There is none for another attempt.
                true => {
                    if let Some(mut slot) = self.lineup.remove(at) {
                        self.leave(&mut slot.load);
                        self.feed.settled(&slot.load, Err(error));
                    }
                }
                false => {
                    self.tell_setback(&error);
                    self.return_one(at, true);
                }
            }
        }
        self.flowing.clear();
        let in_flight: Vec<_> = self.lineup.give_up().collect();
        for flight in in_flight {
            self.bring_back(flight, false);
        }
        let removing = std::mem::take(&mut self.removing);
        self.leavings
            .rubbish
            .extend(removing.into_iter().map(|(_, path)| path));
        self.session.set = None;
        self.session.broken = true;
        self.feeding = false;
    }

    pub(super) fn tell_setback(&self, error: &Error) {
        let path = match self.lineup.get(0) {
            Some(slot) => slot.load.item.source(),
            None => self.session.endpoint.name(),
        };
        self.session.context.emit(&Event::Retry {
            path,
            range: None,
            attempt: 1,
            error: error.to_string(),
        });
    }
}
