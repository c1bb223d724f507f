//! What the answers to a file come to, and what follows for it and for the others in flight.

use std::sync::atomic::Ordering;

use godwit_proto::{
    Command, Reply,
    error::{FailureKind, failure_kind},
    pi::transfer::Direction,
};
use tokio::time::Instant;

use super::{
    COMMAND_BYTES, FileSource, Pipeline,
    file::PipelinedFile,
    in_flight::{FileProgress, InFlightFile},
    learn,
};
use crate::{
    endpoint::capabilities::{Lack, Observed},
    error::{Error, Result},
    report::events::Event,
    transfer::{resume, verify::AgreedChecksum},
};

impl<F: FileSource> Pipeline<'_, F> {
    pub(super) async fn settle(&mut self, at: usize) {
        match self.in_flight_files.state(at) {
            FileProgress::Open => {}
            FileProgress::Refused => self.refused(at),
            FileProgress::Broken => {
                let slot = self.in_flight_files.get(at);
                let failure = slot.and_then(|s| s.failure().cloned());
                let doing = slot.map(|s| s.load.doing().to_string()).unwrap_or_default();
                let error = failure.map(|failure| Error::Transfer { doing, failure });
                self.give_up(error.map(|error| (at, error)));
            }
            FileProgress::Arrived => self.compare(at).await,
            FileProgress::Renamed => self.renamed(at),
        }
    }

    async fn compare(&mut self, at: usize) {
        let Some(slot) = self.in_flight_files.get_mut(at) else {
            return;
        };
        let reply = slot.checked.take();
        let attribute_replies = std::mem::take(&mut slot.attribute_replies);
        if !attribute_replies.is_empty() {
            let target = slot.load.source_file.target();
            self.session
                .check_attribute_replies(&attribute_replies, Some(&target));
        }
        if let Some(refusal) = reply
            .as_ref()
            .filter(|reply| slot.load.is_rename_failure(reply))
        {
            let refusal = refusal.clone();
            if let Some(slot) = self.in_flight_files.remove(at) {
                self.on_rename_refused(slot, refusal);
            }
            return;
        }
        let verified = slot.load.verify(self.session, self.spec, reply).await;
        let agreed = match verified {
            Ok(agreed) => agreed,
            Err(error) if self.ours => {
                self.report_retry(&error);
                return self.return_one(at, true);
            }
            // Perhaps these were not its bytes.
            Err(error) => return self.give_up(Some((at, error))),
        };
        self.count(at);
        let Some(slot) = self.in_flight_files.get_mut(at) else {
            return;
        };
        let names = slot.load.names();
        let Some((from, to)) = names.map(|(from, to)| (from.clone(), to.clone())) else {
            let outcome = slot
                .load
                .commit(&self.session.context.local.durability)
                .map(|()| agreed);
            return self.done(at, outcome);
        };
        slot.agreed = agreed;
        let attribute_commands = self
            .session
            .attribute_commands(slot.load.source_file.attributes.as_ref(), &from);
        let bytes = (2 + attribute_commands.len())
            * (COMMAND_BYTES + from.as_bytes().len().max(to.as_bytes().len()));
        let control = &mut self.session.control;
        let attribute_commands = attribute_commands
            .into_iter()
            .map(|c| (control.submit(&c), c))
            .collect();
        let rename = [Command::Rnfr(from), Command::Rnto(to)].map(|c| control.submit(&c));
        self.in_flight_files
            .renames(at, attribute_commands, rename, bytes);
    }

    /// Its bytes are there, and right.
    fn count(&mut self, at: usize) {
        let Some(slot) = self.in_flight_files.get(at) else {
            return;
        };
        let bytes = slot.load.size();
        self.arrived += 1;
        let context = &self.session.context;
        slot.load.stored(context);
        context.counters.moved(bytes);
        let capabilities = &self.session.endpoint.capabilities;
        if self.direction == Direction::Get && self.arrived == 1 {
            capabilities.record(Observed::GetsPipelined);
        }
        capabilities
            .depth
            .store(self.depth_controller.depth(), Ordering::Relaxed);
        let is_paced = !self.is_to_steer();
        let deeper = is_paced
            && self
                .depth_controller
                .on_complete(bytes, Instant::now().into_std());
        self.rate_slot.set_rate(self.depth_controller.rate());
        if deeper || self.arrived == 1 {
            context
                .target
                .report_depth(self.depth_controller.depth(), self.session.round_trip);
        }
    }

    fn renamed(&mut self, at: usize) {
        let Some(mut slot) = self.in_flight_files.remove(at) else {
            return;
        };
        if !slot.attribute_replies.is_empty() {
            let target = slot.load.source_file.target();
            self.session
                .check_attribute_replies(&slot.attribute_replies, Some(&target));
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
        if let Some((from, _)) = slot.load.names().filter(|_| refused_rnfr) {
            self.session.renames_nothing(from, &rnfr);
        }
        self.on_rename_refused(slot, if refused_rnfr { rnfr } else { rnto });
    }

    /// Its bytes are there, and the server does not give it its name.
    fn on_rename_refused(&mut self, slot: InFlightFile<PipelinedFile>, refusal: Reply) {
        if let Some(path) = slot.load.leftover() {
            let id = self.session.control.submit(&Command::Dele(path.clone()));
            self.removing.push_back((id, path.clone()));
        }
        let is_in_place = self.session.endpoint.capabilities.lacks(Lack::Rename);
        if is_in_place || failure_kind(&refusal) == Some(FailureKind::Exists) {
            // This server does not rename, or not over a file: what is there must go first.
            return self.leftovers.returned.push(slot.load.into_item(true));
        }
        let to = self.session.endpoint.url(&slot.load.source_file.remote);
        let error = Error::refused(format!("rename to {to}"), refusal);
        self.feed.settled(&slot.load, Err(error));
    }

    fn refused(&mut self, at: usize) {
        let Some(slot) = self.in_flight_files.get_mut(at) else {
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
        if slot.load.refused_name(&self.session.endpoint, &error) {
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
                let capabilities = &self.session.endpoint.capabilities;
                capabilities.record_closed_directory(&slot.load.source_file.remote);
                self.done(at, Err(error));
                self.give_up(None);
            }
            Direction::Put => self.give_up(Some((at, error))),
        }
    }

    fn done(&mut self, at: usize, outcome: Result<Option<AgreedChecksum>>) {
        if let Some(slot) = self.in_flight_files.remove(at) {
            self.feed.settled(&slot.load, outcome);
        }
    }

    fn return_one(&mut self, at: usize, alone: bool) {
        if let Some(slot) = self.in_flight_files.remove(at) {
            self.return_to_queue(slot.load, alone);
        }
    }

    fn return_to_queue(&mut self, mut file_in_flight: PipelinedFile, alone: bool) {
        self.keep_partial_file(&mut file_in_flight);
        self.leftovers
            .returned
            .push(file_in_flight.into_item(alone));
    }

    /// What is there of a file stays where it can be resumed.
    fn keep_partial_file(&mut self, file_in_flight: &mut PipelinedFile) {
        let is_stored = |path| self.session.endpoint.uploads.is_stored(path);
        let has_all = file_in_flight.leftover().is_some_and(is_stored);
        let has_journal = self.session.context.local.journal.get().is_some();
        if has_journal && !has_all && resume::can_resume(self.session) {
            file_in_flight.keep();
        }
        self.leftovers
            .leftover
            .extend(file_in_flight.leftover().cloned());
    }

    /// Nothing is certain any more of what is in flight. The file at a place may be the reason, and
    /// goes alone from now on.
    pub(super) fn give_up(&mut self, reason: Option<(usize, Error)>) {
        if let Some((at, error)) = reason {
            match error.is_disk_full() {
                // There is none for another attempt.
                true => {
                    if let Some(mut slot) = self.in_flight_files.remove(at) {
                        self.keep_partial_file(&mut slot.load);
                        self.feed.settled(&slot.load, Err(error));
                    }
                }
                false => {
                    self.report_retry(&error);
                    self.return_one(at, true);
                }
            }
        }
        self.flowing.clear();
        let in_flight: Vec<_> = self.in_flight_files.give_up().collect();
        for file_in_flight in in_flight {
            self.return_to_queue(file_in_flight, false);
        }
        let removing = std::mem::take(&mut self.removing);
        self.leftovers
            .leftover
            .extend(removing.into_iter().map(|(_, path)| path));
        self.session.data.set = None;
        self.session.broken = true;
        self.feeding = false;
    }

    pub(super) fn report_retry(&self, error: &Error) {
        let path = match self.in_flight_files.get(0) {
            Some(slot) => slot.load.source_file.source(),
            None => self.session.endpoint.name(),
        };
        self.session.context.reporter.emit(&Event::Retry {
            path,
            range: None,
            attempt: 1,
            error: error.to_string(),
        });
    }
}
