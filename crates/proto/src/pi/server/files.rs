//! Commands on files and directories that need no data channel (RFC 959 §4.1.3, RFC 3659, MFMT,
//! CKSM).

use std::time::Instant;

use crate::{
    checksum::ChecksumAlgorithm,
    command::TypeCode,
    commit::Commit,
    error::{StorageFailure, TransferFailure, errno, storage_reply, transfer_reply},
    facts::{FactType, Facts},
    path::FtpPath,
    reply::{BodyStyle, Reply, ReplyCode},
    timestamp::Timestamp,
};

use super::{
    Pending, Request, ServerPi,
    purpose::{ChecksumRun, Purpose},
};

impl ServerPi {
    pub(super) fn run_pwd(&mut self) {
        let mut text = quoted(&self.session.cwd);
        text.extend_from_slice(b" is current directory.");
        self.answer(257, text);
    }

    pub(super) fn run_cwd(&mut self, path: &FtpPath) {
        let path = self.session.resolve(path);
        self.request(
            Request::ChangeDirectory(path.clone()),
            Purpose::ChangeDirectory(path),
        );
    }

    pub(super) fn run_cdup(&mut self) {
        let path = self.session.cwd.parent().unwrap_or_else(FtpPath::root);
        self.request(
            Request::ChangeDirectory(path.clone()),
            Purpose::ChangeDirectory(path),
        );
    }

    pub(super) fn on_directory_changed(&mut self, path: FtpPath) {
        self.session.cwd = path;
        self.answer(250, "CWD command successful.");
    }

    pub(super) fn run_mkd(&mut self, path: &FtpPath) {
        let path = self.session.resolve(path);
        if self.may_write(&path) {
            self.request(
                Request::MakeDirectory(path.clone()),
                Purpose::MakeDirectory(path),
            );
        }
    }

    pub(super) fn on_directory_made(&mut self, path: &FtpPath) {
        // RFC 959 §5.4: the name first, where ftplib and others read it.
        let mut text = quoted(path);
        text.extend_from_slice(b" created successfully.");
        self.answer(257, text);
    }

    /// RFC 959 §5.4 lets MKD fail with 550 and not with 553, as GCT answers where the name is
    /// taken. Clients that put files at once each make the directory, and know from 550 that
    /// another was faster.
    pub(super) fn on_no_directory(&mut self, failure: &StorageFailure) {
        let mut reply = storage_reply(failure);
        if reply.code.get() == 553 {
            reply.code = ReplyCode::of(550);
        }
        self.reply(&reply);
    }

    /// A change of one path that ends in `250 OK.`
    pub(super) fn run_change(&mut self, path: &FtpPath, request: impl FnOnce(FtpPath) -> Request) {
        let path = self.session.resolve(path);
        if self.may_write(&path) {
            self.request(request(path), Purpose::Change);
        }
    }

    /// The system would say that the root is busy, and clients would try again.
    pub(super) fn run_rmd(&mut self, path: &FtpPath) {
        if self.session.resolve(path) == FtpPath::root() {
            return self.reply(&storage_reply(&StorageFailure {
                errno: errno::EPERM,
                doing: "remove the root".to_owned(),
                text: String::new(),
            }));
        }
        self.run_change(path, Request::RemoveDirectory);
    }

    /// RNFR changes nothing, so that a read-only server runs it: jglobus asks in this way whether a
    /// file exists.
    pub(super) fn run_rnfr(&mut self, path: &FtpPath) {
        self.session.rename_from = None;
        let path = self.session.resolve(path);
        self.request(
            Request::CheckExists(path.clone()),
            Purpose::RenameFrom(path),
        );
    }

    pub(super) fn on_rename_source(&mut self, path: FtpPath) {
        self.session.rename_from = Some(path);
        self.answer(350, "OK. Send RNTO with destination name.");
    }

    pub(super) fn run_rnto(&mut self, to: &FtpPath) {
        let Some(from) = self.session.rename_from.take() else {
            self.skip_speculative();
            return self.answer(501, "Invalid command arguments.");
        };
        self.run_change(to, |to| Request::Rename { from, to });
    }

    pub(super) fn run_commit(&mut self, commit: Commit) {
        match self.naming(&commit) {
            Some(request) => self.run_change(&commit.path, |_| request),
            None => self.answer(553, "No file has this name."),
        }
    }

    /// `None` for a path that has no directory, or a name that is too long.
    pub(super) fn naming(&self, commit: &Commit) -> Option<Request> {
        let to = self.session.resolve(&commit.path);
        let from = to.sibling(commit.temporary.as_bytes())?;
        Some(Request::Commit {
            from,
            to,
            expected: commit.expected.clone(),
        })
    }

    pub(super) fn on_unlike(&mut self, found: String, expected: String) {
        self.reply(&transfer_reply(&TransferFailure::Checksum {
            computed: found,
            expected,
        }));
    }

    pub(super) fn run_size(&mut self, path: &FtpPath) {
        let path = self.session.resolve(path);
        self.request(Request::Stat(path), Purpose::Size);
    }

    pub(super) fn on_size(&mut self, facts: &Facts) {
        match facts.size {
            _ if facts.kind == Some(FactType::Dir) => self.answer(550, "A directory has no size."),
            // RFC 3659 §4: as many as would be sent, which takes reading all of it.
            _ if self.session.type_code == TypeCode::Ascii => {
                self.answer(550, "SIZE is not told in TYPE A, send TYPE I first.");
            }
            Some(size) => self.answer(213, size.to_string()),
            None => self.answer(550, "The size is not known."),
        }
    }

    pub(super) fn run_mdtm(&mut self, path: &FtpPath) {
        let path = self.session.resolve(path);
        self.request(Request::Stat(path), Purpose::ModifyTime);
    }

    pub(super) fn on_modify_time(&mut self, facts: &Facts) {
        match facts.modify {
            Some(modify) => self.answer(213, modify.to_string()),
            None => self.answer(550, "The modification time is not known."),
        }
    }

    pub(super) fn run_mfmt(&mut self, modify: Timestamp, path: &FtpPath) {
        let resolved = self.session.resolve(path);
        if self.may_write(&resolved) {
            self.request(
                Request::SetModified {
                    path: resolved,
                    modify,
                },
                Purpose::SetModified {
                    modify,
                    path: path.clone(),
                },
            );
        }
    }

    pub(super) fn on_modified_set(&mut self, modify: Timestamp, path: &FtpPath) {
        let mut text = format!("Modify={modify}; ").into_bytes();
        text.extend_from_slice(path.as_bytes());
        self.answer(213, text);
    }

    pub(super) fn run_cksm(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &FtpPath,
    ) {
        let path = self.session.resolve(path);
        self.request(
            Request::Checksum {
                algorithm,
                offset,
                length,
                path,
            },
            Purpose::Checksum(ChecksumRun::default()),
        );
    }

    /// The shell reports as often as it likes; the client hears it as often as it asked.
    pub(super) fn on_checksum_progress(&mut self, now: Instant, bytes: u64) {
        let (Pending::Request(Purpose::Checksum(run)), Some(every)) =
            (&mut self.pending, self.session.markers.checksum)
        else {
            return;
        };
        if run
            .reported_at
            .is_some_and(|at| now.saturating_duration_since(at) < every)
        {
            return;
        }
        run.reported_at = Some(now);
        let time = self.unix_time(now).as_secs_f64();
        self.reply(&Reply::with_body(
            ReplyCode::of(113),
            BodyStyle::Blank,
            "Status Marker",
            [
                format!("Timestamp: {time:.1}").into_bytes(),
                format!("Bytes Processed: {bytes}").into_bytes(),
            ],
            "End.",
        ));
    }

    /// False, and refused, on a server that only reads.
    pub(super) fn may_write(&mut self, path: &FtpPath) -> bool {
        if !self.session.account.writable {
            self.reply(&storage_reply(&read_only(path)));
        }
        self.session.account.writable
    }
}

/// What a storage that may not be written says of `path`.
pub(super) fn read_only(path: &FtpPath) -> StorageFailure {
    StorageFailure {
        errno: errno::EACCES,
        doing: format!("change {path} on a read-only server"),
        text: "Permission denied".to_owned(),
    }
}

/// In quotes, quotes inside doubled (RFC 959 appendix II).
fn quoted(path: &FtpPath) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in path.as_bytes() {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
    out
}
