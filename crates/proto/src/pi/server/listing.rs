//! STAT, MLST, MLSC on the control channel; LIST, NLST, MLSD, MLSR over the data channel (RFC 3659
//! §7).

use std::time::Instant;

use crate::{
    facts::{Facts, write_line},
    listing::format_line,
    path::FtpPath,
    reply::{BodyStyle, Reply, ReplyCode},
    timestamp::Timestamp,
};

use super::{
    ListForm, Request, ServerPi, TransferKind,
    purpose::{ControlListing, Purpose},
};

impl ServerPi {
    pub(super) fn run_stat(&mut self, path: Option<&FtpPath>) {
        match path {
            None => self.answer(212, "GridFTP server status."),
            Some(path) => {
                let path = self.session.resolve(path);
                self.request(Request::Stat(path.clone()), Purpose::Status(path));
            }
        }
    }

    pub(super) fn on_status(&mut self, now: Instant, path: &FtpPath, facts: &Facts) {
        let seconds = i64::try_from(self.unix_time(now).as_secs()).unwrap_or(i64::MAX);
        let line = format_line(facts, 1, path.as_bytes(), Timestamp(seconds));
        self.reply(&framed(213, "status of ", path, [line]));
    }

    pub(super) fn run_mlst(&mut self, path: Option<&FtpPath>) {
        let path = self.session.resolve_or_cwd(path);
        self.request(Request::Stat(path.clone()), Purpose::Facts(path));
    }

    pub(super) fn on_facts(&mut self, path: &FtpPath, facts: &Facts) {
        let mut line = Vec::new();
        write_line(facts, self.session.facts, b"", &mut line);
        // A reply can carry what a line of a listing cannot: CR.
        line.extend_from_slice(path.as_bytes());
        self.reply(&framed(250, "status of ", path, [line]));
    }

    pub(super) fn run_mlsc(&mut self, path: Option<&FtpPath>) {
        let path = self.session.resolve_or_cwd(path);
        self.request(
            Request::ListControl { path: path.clone() },
            Purpose::ListControl(ControlListing { path }),
        );
    }

    pub(super) fn on_listing_page(
        &mut self,
        listing: ControlListing,
        entries: Vec<(Facts, Vec<u8>)>,
        last: bool,
    ) {
        let code = if last { 250 } else { 150 };
        let selection = self.session.facts;
        let body = entries.into_iter().map(|(facts, name)| {
            let mut line = Vec::new();
            write_line(&facts, selection, &name, &mut line);
            line
        });
        let page = framed(code, "Contents of ", &listing.path, body);
        self.reply(&page);
        if !last {
            self.pending = super::Pending::Request(Purpose::ListControl(listing));
        }
    }

    pub(super) fn run_mlsd(&mut self, path: Option<&FtpPath>) {
        self.list(path, ListForm::Facts(self.session.facts));
    }

    pub(super) fn run_mlsr(&mut self, path: Option<&FtpPath>) {
        let form = ListForm::FactsRecursive {
            selection: self.session.facts,
            continue_on_error: self.session.recursive.continue_on_error,
            follow_links: self.session.recursive.follow_links,
        };
        self.list(path, form);
    }

    pub(super) fn run_list(&mut self, path: Option<&FtpPath>) {
        self.list(path, ListForm::Long);
    }

    pub(super) fn run_nlst(&mut self, path: Option<&FtpPath>) {
        self.list(path, ListForm::Names);
    }

    fn list(&mut self, path: Option<&FtpPath>, form: ListForm) {
        let path = self.session.resolve_or_cwd(path);
        self.begin_transfer(TransferKind::List { path, form });
    }
}

/// `250-status of /p`, body, `250 End.`
fn framed(
    code: u16,
    title: &str,
    path: &FtpPath,
    body: impl IntoIterator<Item = Vec<u8>>,
) -> Reply {
    let mut first = title.as_bytes().to_vec();
    first.extend_from_slice(path.as_bytes());
    Reply::with_body(ReplyCode::of(code), BodyStyle::Blank, first, body, "End.")
}
