//! SITE.

use crate::{
    path::FtpPath,
    reply::{BodyStyle, Reply, ReplyCode},
    site::{STACK_WORDS, Site},
};

use super::{
    Output, Request, ServerPi,
    purpose::{ChecksumRun, Purpose},
};

/// Bytes of a client's word about itself that go to the log.
const NOTE_BYTES_MAX: usize = 1024;

impl ServerPi {
    pub(super) fn run_site(&mut self, site: Site) {
        match site {
            Site::Help => self.run_help(None),
            Site::ClientInfo(text) => self.note("client", &text),
            Site::TaskId(text) => self.note("task", &text),
            Site::Whoami => self.request(Request::WhoAmI, Purpose::WhoAmI),
            Site::Version => {
                let version = self.config.version.clone();
                self.answer(200, version);
            }
            Site::Chmod { mode, path } => {
                self.run_change(&path, |path| Request::SetMode { path, mode });
            }
            Site::Chgrp { group, path } => {
                self.run_change(&path, |path| Request::SetGroup { path, group });
            }
            Site::Utime { modify, path } => {
                self.run_change(&path, |path| Request::SetModified { path, modify });
            }
            Site::Truncate { length, path } => {
                self.run_change(&path, |path| Request::Truncate { path, length });
            }
            Site::RemoveTree(path) => self.run_change(&path, Request::RemoveTree),
            Site::SymlinkFrom(target) => {
                self.session.symlink_from = Some(target);
                self.answer(350, "OK. Send SITE SYMLINKTO with symlink name.");
            }
            Site::SymlinkTo(link) => match self.session.symlink_from.take() {
                Some(target) => self.symlink(target, &link),
                None => self.answer(501, "Invalid command arguments."),
            },
            Site::Symlink { target, link } => self.symlink(target, &link),
            Site::Buffer { bytes, .. } => {
                self.set_socket_buffer(bytes);
                self.answer(200, "Site Command Successful.");
            }
            Site::StorAttr { modify, checksums } => {
                self.session.receipt.modify = modify;
                for (algorithm, value) in checksums {
                    self.session.receipt.expect_checksum(algorithm, value);
                }
                self.answer(250, "OK.");
            }
            Site::NextChannels(n) => self.run_next_channels(n),
            Site::Live(live) => self.run_live_request(live),
            Site::Commit(commit) => self.run_commit(commit),
            Site::BlockChecksums {
                leaf,
                offset,
                length,
                path,
            } => {
                let path = self.session.resolve(&path);
                self.request(
                    Request::BlockChecksums {
                        leaf,
                        offset,
                        length,
                        path,
                    },
                    Purpose::Checksum(ChecksumRun::default()),
                );
            }
            Site::Stack { word, drivers } => self.run_stack(&word, &drivers),
            Site::Refused { word, .. } => self.refuse_site(&word),
        }
    }

    /// The target goes into the link as it was given: relative targets stay relative.
    fn symlink(&mut self, target: FtpPath, link: &FtpPath) {
        self.run_change(link, |link| Request::Symlink { target, link });
    }

    fn note(&mut self, kind: &str, text: &str) {
        let text: String = text
            .chars()
            .take(NOTE_BYTES_MAX)
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        self.outputs
            .push_back(Output::Note(format!("{kind}: {text}")));
        self.answer(250, "OK.");
    }

    /// GCT's clients send this before each copy, with the drivers that a server of theirs has
    /// anyway.
    fn run_stack(&mut self, word: &str, drivers: &str) {
        let known = STACK_WORDS.iter().find(|(known, _)| *known == word);
        let served = known.map_or(&[][..], |(_, served)| *served);
        let foreign = (drivers.split(',').map(str::trim)).find(|driver| !served.contains(driver));
        let Some(foreign) = foreign else {
            return self.answer(250, "OK.");
        };
        let what = match word {
            "SETDISKSTACK" => "filesystem",
            _ => "data channel",
        };
        let driver = foreign.split(':').next().unwrap_or_default();
        // gfal2 looks for these words and goes back to TCP.
        self.reply(&Reply::with_body(
            ReplyCode::of(500),
            BodyStyle::Code,
            format!("Setting {what} driver stack failed."),
            [format!("globus_xio: Bad parameter, {driver} driver not whitelisted").into_bytes()],
            "End.",
        ));
    }

    fn refuse_site(&mut self, word: &str) {
        match word {
            "DSI" => self.answer(500, "no such DSI"),
            _ => self.answer(500, "Invalid command."),
        }
    }
}
