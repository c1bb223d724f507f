//! Times and permission bits of files at a server.

use std::sync::atomic::Ordering;

use godwit_proto::{
    Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
};

use super::Session;
use crate::{
    context::{Learned, known},
    error::Result,
    stamp::Stamp,
};

impl Session {
    /// The server keeps the times that files are given, as far as anybody knows.
    pub(crate) fn keeps_times(&self) -> bool {
        self.server.features.mfmt && !known(&self.endpoint.learned.no_mfmt)
    }

    /// What gives a file its stamp, as far as the server is known to take it.
    pub(crate) fn stamping(&self, stamp: Option<&Stamp>, path: &FtpPath) -> Vec<Command> {
        let commands = stamp.into_iter().flat_map(|stamp| stamp.commands(path));
        let taken = |command: &Command| match command {
            Command::Mfmt { .. } => self.keeps_times(),
            _ => !known(&self.endpoint.learned.no_chmod),
        };
        commands.filter(taken).collect()
    }

    /// Gives files their stamps, fifty of them at most. What the server refuses of it is told once, and is no failure.
    pub(crate) async fn stamp_all(&mut self, stamps: &[(&FtpPath, Stamp)]) -> Result<()> {
        let each = stamps.iter();
        let commands = each.flat_map(|(path, stamp)| self.stamping(Some(stamp), path));
        let commands: Vec<_> = commands.collect();
        if commands.is_empty() {
            return Ok(());
        }
        let replies = self.ask_all(commands.iter().cloned(), "set times and permissions");
        let answered: Vec<_> = commands.iter().cloned().zip(replies.await?).collect();
        self.heed_stamped(&answered);
        Ok(())
    }

    /// What a server answers to [`Self::stamping`]: one that refuses is asked no further.
    pub(crate) fn heed_stamped(&self, answered: &[(Command, Reply)]) {
        for (command, reply) in answered {
            self.stamped(command, reply);
        }
    }

    fn stamped(&self, command: &Command, reply: &Reply) {
        let learned = &self.endpoint.learned;
        match failure_kind(reply) {
            // The file is to blame, or the moment.
            None | Some(FailureKind::NotFound | FailureKind::Transient) => {}
            Some(_) if matches!(command, Command::Mfmt { .. }) => {
                if !learned.no_mfmt.swap(true, Ordering::Relaxed) {
                    self.context.warn(format!(
                        "{}: refuses to set times, so that these files will seem changed the next time: --size-only compares \
                         without (server said: {reply})",
                        self.endpoint.name()
                    ));
                }
            }
            Some(_) => Learned::learn(
                &learned.no_chmod,
                &self.context,
                format!(
                    "{}: refuses to set permissions, files get what it gives them (server said: {reply})",
                    self.endpoint.name()
                ),
            ),
        }
    }
}
