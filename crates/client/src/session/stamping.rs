//! Times and permission bits of files at a server.

use std::sync::atomic::Ordering;

use godwit_proto::{
    Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
    site::Site,
};

use super::Session;
use crate::{
    context::{Learned, known},
    error::Result,
    stamp::Stamp,
};

/// Files named whose times or permissions a server refuses. Further ones are only mentioned.
const REFUSALS_SHOWN: u32 = 20;

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

    /// Gives files their stamps, fifty of them at most. What the server refuses of it is reported, and is no failure. `shown`: the
    /// final URL of a file that has a temporary name.
    pub(crate) async fn stamp_all(
        &mut self,
        stamps: &[(&FtpPath, Stamp)],
        shown: Option<&str>,
    ) -> Result<()> {
        let each = stamps.iter();
        let commands = each.flat_map(|(path, stamp)| self.stamping(Some(stamp), path));
        let commands: Vec<_> = commands.collect();
        if commands.is_empty() {
            return Ok(());
        }
        let replies = self.ask_all(commands.iter().cloned(), "set times and permissions");
        let answered: Vec<_> = commands.iter().cloned().zip(replies.await?).collect();
        self.heed_stamped(&answered, shown);
        Ok(())
    }

    /// What a server answers to [`Self::stamping`]: one that does not know the command is asked no further, and another refusal is
    /// about that file alone.
    pub(crate) fn heed_stamped(&self, answered: &[(Command, Reply)], shown: Option<&str>) {
        for (command, reply) in answered {
            let path = match command {
                Command::Mfmt { path, .. } | Command::Site(Site::Chmod { path, .. }) => path,
                _ => continue,
            };
            let url = || shown.map_or_else(|| self.endpoint.url(path), str::to_owned);
            self.stamped(matches!(command, Command::Mfmt { .. }), reply, url);
        }
    }

    fn stamped(&self, is_time: bool, reply: &Reply, url: impl Fn() -> String) {
        let learned = &self.endpoint.learned;
        let Some(kind) = failure_kind(reply) else {
            return;
        };
        let lacks =
            kind == FailureKind::NotSupported && matches!(reply.code.get(), 500 | 502 | 504);
        if !lacks {
            let text = match learned.stamps_refused.fetch_add(1, Ordering::Relaxed) {
                ..REFUSALS_SHOWN if is_time => format!(
                    "{}: the server did not set its time, so that it will seem changed the next time (server said: {reply})",
                    url()
                ),
                ..REFUSALS_SHOWN => format!(
                    "{}: the server did not set its permissions (server said: {reply})",
                    url()
                ),
                REFUSALS_SHOWN => format!(
                    "{}: refuses the times or permissions of more files, which are not named",
                    self.endpoint.name()
                ),
                _ => return,
            };
            return self.context.warn(text);
        }
        match is_time {
            true if !learned.no_mfmt.swap(true, Ordering::Relaxed) => self.context.warn(format!(
                "{}: refuses to set times, so that these files will seem changed the next time: --size-only compares without \
                 (server said: {reply})",
                self.endpoint.name()
            )),
            true => {}
            false => Learned::learn(
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
