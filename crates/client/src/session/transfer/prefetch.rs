//! The next transfer, begun while the present one runs, so that both ends go from one to the other
//! without a round trip in between: a server that sends hears its command early, and one that
//! receives is sent the bytes behind those of the present one. A pause costs more than its round
//! trip: TCP sends a whole window at once behind it, and a queue that holds less loses the rest.
//!
//! Both use the same data channels, and nothing else may be asked between them. What comes early
//! stays where it is: replies here, bytes in the kernel. In doubt the session is given up: the
//! server owes a transfer, and its bytes could not be told from others.

use std::sync::Arc;

use godwit_engine::data::{Transfer, TransferJob, TransferReport};
use godwit_proto::{
    Command, Reply,
    command::Mode,
    pi::{client::CommandId, transfer::Direction},
};

use crate::{
    endpoint::capabilities::Lack,
    report::progress::{LocalView, RunningTransfer},
    session::{Session, TransferPlan},
};

/// A transfer that follows another on its session, on the same channels and without anything before
/// it.
#[derive(Clone)]
pub(crate) enum NextTransfer {
    /// The server sends, as soon as it has sent the present one.
    Get(Command),
    /// We send, as soon as we have sent the present one.
    Put {
        ahead: Option<Command>,
        command: Command,
        /// What is sent. Made when it begins.
        job: Arc<dyn Fn() -> TransferJob + Send + Sync>,
    },
}

pub(crate) struct Prefetched {
    pub(crate) id: CommandId,
    command: Command,
    /// Of what was sent just before it.
    pub(crate) ahead: Option<CommandId>,
    /// 1xx came.
    pub(crate) started: bool,
    pub(crate) reply: Option<Reply>,
    /// A put's.
    pub(crate) sending: Option<(Transfer, RunningTransfer)>,
}

impl Session {
    /// Asks for the next get, if there is one and the present channels will carry it.
    pub(crate) fn send_next(&mut self, plan: &TransferPlan<'_>, mode: Mode) {
        let Some(NextTransfer::Get(next)) = &plan.next else {
            return;
        };
        let wanted = self.channels_wanted();
        // Other channels need a new address between the two, unless those that are there can be
        // changed.
        let channels_stay =
            self.server.features.live_channels || self.server.parallelism == Some(wanted);
        if self.prefetched.is_none()
            && mode == Mode::ExtendedBlock
            && channels_stay
            && !self.endpoint.capabilities.lacks(Lack::Pipelining)
        {
            self.prefetched = Some(Prefetched {
                id: self.control.submit(next),
                command: next.clone(),
                ahead: None,
                started: false,
                reply: None,
                sending: None,
            });
        }
    }

    /// Begins the next put, if there is one and this worker is still wanted: our side is through
    /// with the present one, as `report` tells.
    pub(crate) fn begin_next(
        &mut self,
        plan: &TransferPlan<'_>,
        mode: Mode,
        report: &TransferReport,
    ) {
        let Some(NextTransfer::Put {
            ahead,
            command,
            job,
        }) = &plan.next
        else {
            return;
        };
        // A server with this extension of ours keeps its connections.
        let reuses = self.server.can_reuse(Direction::Put) || self.server.features.live_channels;
        let goes_on = report.result.is_ok() && report.unsent.is_empty() && report.cached > 0;
        let wanted = self.context.target.now().includes(self.data.place);
        if self.prefetched.is_some()
            || mode != Mode::ExtendedBlock
            || !(goes_on && reuses && wanted)
            || self.endpoint.capabilities.lacks(Lack::Pipelining)
        {
            return;
        }
        let Some(set) = &self.data.set else { return };
        let control = &mut self.commands.control;
        let ahead = ahead.as_ref().map(|command| control.submit(command));
        let id = control.submit(command);
        let transfer = set.start(job(), mode);
        let here = LocalView::Transfer(transfer.monitor());
        let running = RunningTransfer::new(&self.context.counters, here);
        self.prefetched = Some(Prefetched {
            id,
            command: command.clone(),
            ahead,
            started: false,
            reply: None,
            sending: Some((transfer, running)),
        });
    }

    /// A transfer was begun before its turn.
    pub(crate) fn has_begun_next(&self) -> bool {
        self.prefetched.is_some()
    }

    /// A 1xx (`None`) or final reply; false where it is not for the command sent ahead.
    pub(crate) fn on_prefetched_reply(&mut self, of: CommandId, reply: Option<&Reply>) -> bool {
        match &mut self.prefetched {
            Some(prefetched) if prefetched.id == of => {
                prefetched.started = true;
                prefetched.reply = reply.cloned();
                true
            }
            _ => false,
        }
    }

    /// The command that went ahead, if it is this one. Another one belongs to a transfer that
    /// was given up: the session is of no use then.
    pub(crate) fn take_pipelined(&mut self, plan: &TransferPlan<'_>) -> Option<Prefetched> {
        let prefetched = self.prefetched.take()?;
        match &prefetched.reply {
            // ARC's server runs one transfer at a time and answers a second so, at once and without
            // harm.
            Some(reply) if reply.code.get() == 421 => {
                self.endpoint.capabilities.learn(
                    Lack::Pipelining,
                    &self.context.reporter,
                    format!(
                        "{}: takes no command while a transfer runs (server said: {reply})",
                        self.endpoint.name()
                    ),
                );
                // Its bytes are on their way.
                self.broken |= prefetched.sending.is_some();
                None
            }
            _ if prefetched.command == plan.command && self.data.set.is_some() => Some(prefetched),
            _ => {
                self.broken = true;
                None
            }
        }
    }

    /// A transfer is over, well or not: a command sent ahead is good for something only where the
    /// channels live on.
    pub(crate) fn check_pipelined(&mut self, channels_live_on: bool) {
        if !channels_live_on && self.prefetched.take().is_some() {
            self.broken = true;
        }
    }
}
