//! Times and permission bits of files at a server.

use std::sync::atomic::Ordering;

use godwit_proto::{
    Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
    site::Site,
};

use crate::{
    endpoint::capabilities::Lack, error::Result, local::attributes::FileAttributes,
    session::ControlSession,
};

/// Files named whose times or permissions a server refuses. Further ones are only mentioned.
const REFUSALS_SHOWN: u32 = 20;

impl ControlSession {
    /// The server keeps the times that files are given, as far as anybody knows.
    pub(crate) fn keeps_times(&self) -> bool {
        self.server.features.mfmt && !self.endpoint.capabilities.lacks(Lack::Mfmt)
    }

    /// What gives a file its stamp, as far as the server is known to take it.
    pub(crate) fn attribute_commands(
        &self,
        attributes: Option<&FileAttributes>,
        path: &FtpPath,
    ) -> Vec<Command> {
        let commands = attributes
            .into_iter()
            .flat_map(|attributes| attributes.commands(path));
        let taken = |command: &Command| match command {
            Command::Mfmt { .. } => self.keeps_times(),
            _ => !self.endpoint.capabilities.lacks(Lack::Chmod),
        };
        commands.filter(taken).collect()
    }

    /// Gives files their stamps, fifty of them at most. What the server refuses of it is reported,
    /// and is no failure. `shown`: the final URL of a file that has a temporary name.
    pub(crate) async fn set_attributes(
        &mut self,
        all_attributes: &[(&FtpPath, FileAttributes)],
        shown: Option<&str>,
    ) -> Result<()> {
        let each = all_attributes.iter();
        let commands =
            each.flat_map(|(path, attributes)| self.attribute_commands(Some(attributes), path));
        let commands: Vec<_> = commands.collect();
        if commands.is_empty() {
            return Ok(());
        }
        let replies = self.ask_all(commands.iter().cloned(), "set times and permissions");
        let answered: Vec<_> = commands.iter().cloned().zip(replies.await?).collect();
        self.check_attribute_replies(&answered, shown);
        Ok(())
    }

    /// The same for directories: what is said of each that the server refuses. Some set times of
    /// files alone, so that there may be many.
    pub(crate) async fn set_directory_attributes(
        &mut self,
        all_attributes: &[(FtpPath, FileAttributes)],
    ) -> Result<Vec<String>> {
        let mut commands = Vec::new();
        for (path, attributes) in all_attributes {
            let each = self.attribute_commands(Some(attributes), path);
            commands.extend(each.into_iter().map(|command| (command, path)));
        }
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let asked = commands.iter().map(|(command, _)| command.clone());
        let replies = self
            .ask_all(asked, "set times and permissions of directories")
            .await?;
        let mut refused = Vec::new();
        let mut last = None;
        for ((command, path), reply) in commands.into_iter().zip(replies) {
            match failure_kind(&reply) {
                None => {}
                Some(kind) if is_unknown(kind, &reply) => {
                    self.check_attribute_replies(&[(command, reply)], None);
                }
                // Time and permissions of one directory are said together.
                Some(_) if last == Some(path) => {}
                Some(_) => {
                    last = Some(path);
                    refused.push(format!(
                        "{} (server said: {reply})",
                        self.endpoint.url(path)
                    ));
                }
            }
        }
        Ok(refused)
    }

    /// What a server answers to [`Self::attribute_commands`]: one that does not know the command is
    /// asked no further, and another refusal is about that file alone.
    pub(crate) fn check_attribute_replies(
        &self,
        answered: &[(Command, Reply)],
        shown: Option<&str>,
    ) {
        for (command, reply) in answered {
            let path = match command {
                Command::Mfmt { path, .. } | Command::Site(Site::Chmod { path, .. }) => path,
                _ => continue,
            };
            let url = || shown.map_or_else(|| self.endpoint.url(path), str::to_owned);
            self.check_attribute_reply(matches!(command, Command::Mfmt { .. }), reply, url);
        }
    }

    fn check_attribute_reply(&self, is_time: bool, reply: &Reply, url: impl Fn() -> String) {
        let capabilities = &self.endpoint.capabilities;
        let Some(kind) = failure_kind(reply) else {
            return;
        };
        if !is_unknown(kind, reply) {
            let text = match capabilities
                .attributes_refused
                .fetch_add(1, Ordering::Relaxed)
            {
                ..REFUSALS_SHOWN if is_time => format!(
                    "{}: the server did not set its time, so that it will seem changed the next \
                     time (server said: {reply})",
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
            return self.context.reporter.warn(text);
        }
        match is_time {
            true if capabilities.record_lack(Lack::Mfmt) => self.context.reporter.warn(format!(
                "{}: refuses to set times, so that these files will seem changed the next time: \
                 --size-only compares without \
                 (server said: {reply})",
                self.endpoint.name()
            )),
            true => {}
            false => capabilities.learn(
                Lack::Chmod,
                &self.context.reporter,
                format!(
                    "{}: refuses to set permissions, files get what it gives them (server said: \
                     {reply})",
                    self.endpoint.name()
                ),
            ),
        }
    }
}

/// The server does not have the command at all.
fn is_unknown(kind: FailureKind, reply: &Reply) -> bool {
    kind == FailureKind::NotSupported && matches!(reply.code.get(), 500 | 502 | 504)
}
