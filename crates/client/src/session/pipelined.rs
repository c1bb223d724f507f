//! The command of the next transfer, sent while the present one runs, so that the server goes from one to the other without
//! a round trip in between.
//!
//! Both use the same data channels, and nothing else may be asked between them. What comes early stays where it is: replies
//! here, octets in the kernel. In doubt the session is given up: the server owes a transfer, and nobody could tell its octets
//! from others.

use godwit_proto::{Command, Reply, command::Mode, pi::client::CommandId};

use super::{Session, TransferPlan};
use crate::context::{Learned, known};

pub(super) struct Pipelined {
    pub(super) id: CommandId,
    command: Command,
    /// 1xx came.
    pub(super) started: bool,
    pub(super) reply: Option<Reply>,
}

impl Session {
    /// Sends the command of the next transfer, if there is one and the present channels will carry it.
    pub(super) fn send_next(&mut self, plan: &TransferPlan<'_>, mode: Mode) {
        let Some(next) = &plan.next else { return };
        let wanted = self.context.target.borrow().setting.parallelism;
        // Other channels need a new address between the two, unless those that are there can be changed.
        let channels_stay =
            self.server.features.live_channels || self.server.parallelism == Some(wanted);
        if self.pipelined.is_none()
            && mode == Mode::ExtendedBlock
            && channels_stay
            && !known(&self.endpoint.learned.no_pipelining)
        {
            self.pipelined = Some(Pipelined {
                id: self.control.submit(next),
                command: next.clone(),
                started: false,
                reply: None,
            });
        }
    }

    /// A 1xx (`None`) or final reply; false where it is not for the command sent ahead.
    pub(super) fn heard_early(&mut self, of: CommandId, reply: Option<&Reply>) -> bool {
        match &mut self.pipelined {
            Some(pipelined) if pipelined.id == of => {
                pipelined.started = true;
                pipelined.reply = reply.cloned();
                true
            }
            _ => false,
        }
    }

    /// The command that went ahead, if it is this one. Another is a transfer that nobody wants any more: the session is of no
    /// use then.
    pub(super) fn take_pipelined(&mut self, plan: &TransferPlan<'_>) -> Option<Pipelined> {
        let pipelined = self.pipelined.take()?;
        match &pipelined.reply {
            // ARC's server runs one transfer at a time and answers a second so, at once and without harm.
            Some(reply) if reply.code.get() == 421 => {
                Learned::learn(
                    &self.endpoint.learned.no_pipelining,
                    &self.context,
                    format!(
                        "{}: takes no command while a transfer runs (server said: {reply})",
                        self.endpoint.name()
                    ),
                );
                None
            }
            _ if pipelined.command == plan.command && self.set.is_some() => Some(pipelined),
            _ => {
                self.broken = true;
                None
            }
        }
    }

    /// A transfer is over, well or not: a command sent ahead is good for something only where the channels live on.
    pub(super) fn check_pipelined(&mut self, channels_live_on: bool) {
        if !channels_live_on && self.pipelined.take().is_some() {
            self.broken = true;
        }
    }
}
