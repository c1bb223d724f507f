//! What an earlier run has left: files that it had begun are removed, and those that it has finished are left out, if they are still there. A
//! journal alone is not believed, since what it tells of may have been removed or replaced since.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use godwit_proto::{FtpPath, facts::Facts, url::Location};

use super::{Item, LocalEnd, Origin, OtherEnd, Planner, get::step};
use crate::{error::Error, local, session::Session};

/// Files that a server is asked about together.
const TOGETHER: usize = 100;

/// By how much the clock of a server may be ahead of ours before its files seem to have changed after we put them there: then they
/// are copied again.
const CLOCKS_APART: Duration = Duration::from_secs(60);

impl Planner {
    /// Removes what an earlier run had begun and this one does not go on with. What cannot be removed is told, and hinders nothing.
    pub(super) async fn sweep(&mut self) {
        let Some(journal) = self.context.journal.get() else {
            return;
        };
        let left = journal.left_behind();
        if left.is_empty() {
            return;
        }
        let Location::Remote(url) = &self.spec.destination else {
            for path in left {
                let path = local::path_of(&path);
                match std::fs::remove_file(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        let doing = format!("remove {}", path.display());
                        self.context.warn(Error::local(doing, &e));
                    }
                    _ => {}
                }
            }
            return;
        };
        let endpoint = self.context.endpoint(url);
        let paths: Vec<_> = left.into_iter().flat_map(FtpPath::new).collect();
        let server = endpoint.name();
        let remove = async |session: &mut Session| session.remove_files(&paths).await;
        match self.carrier.attempt(step(&endpoint, &server), remove).await {
            Ok(failed) => failed
                .into_iter()
                .for_each(|(_, why)| self.context.warn(why)),
            Err(setback) => self.context.note(Error::from(setback)),
        }
    }

    /// A file of the right size is at the destination of a get.
    pub(super) fn is_here(&self, item: &Item) -> bool {
        let OtherEnd::To(LocalEnd::Path(path)) = &item.other else {
            return false;
        };
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() && Some(found.len()) == item.size => {
                self.context.written.note(&found);
                true
            }
            _ => false,
        }
    }

    /// An earlier run has copied it.
    pub(super) fn leave_out(&self) {
        let before = &self.context.counters.files_before;
        before.fetch_add(1, Ordering::Relaxed);
    }

    /// A put that was finished, if the server still has the file: it is asked about many at a time.
    pub(super) async fn doubt(&mut self, item: Item) {
        self.doubtful.push(item);
        if self.doubtful.len() >= TOGETHER {
            self.settle_doubts().await;
        }
    }

    /// Leaves out those of the doubtful files that are there; the others are copied again.
    pub(super) async fn settle_doubts(&mut self) {
        let items = std::mem::take(&mut self.doubtful);
        let Some(first) = items.first().filter(|_| !self.context.stop.is_set()) else {
            return;
        };
        let endpoint = Arc::clone(&first.endpoint);
        let remotes: Vec<_> = items.iter().map(|item| item.remote.clone()).collect();
        let server = endpoint.name();
        let look = async |session: &mut Session| session.facts_of_all(&remotes).await;
        let found = self.carrier.attempt(step(&endpoint, &server), look).await;
        let found = found.unwrap_or_else(|setback| {
            let why = Error::from(setback);
            self.context.note(format!(
                "{server}: cannot be asked what it has of an earlier run, so all is copied again: {why}"
            ));
            Vec::new()
        });
        let noted_until = self.context.journal.get().and_then(|j| j.noted_until());
        let mut found = found.into_iter();
        for item in items {
            match found.next().flatten() {
                Some(facts) if is_as_we_left_it(&item, &facts, noted_until) => {
                    self.leave_out();
                }
                _ => self.copy(item).await,
            }
        }
    }
}

/// The source has changed since an earlier run noted something: what that has begun is of another file.
pub(super) fn is_newer(item: &Item, noted_until: Option<SystemTime>) -> bool {
    let noted = noted_until.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let (Some(changed), Some(noted)) = (item.changed, noted) else {
        return false;
    };
    let noted = match item.other {
        OtherEnd::From(Origin::Here(_)) => noted.as_nanos(),
        OtherEnd::From(Origin::Server(_)) | OtherEnd::To(_) => noted.as_secs().into(),
    };
    u128::try_from(changed).is_ok_and(|changed| changed > noted)
}

/// The size is right, and nobody has written to it since the journal was.
fn is_as_we_left_it(item: &Item, facts: &Facts, noted_until: Option<SystemTime>) -> bool {
    let latest = noted_until
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        .and_then(|t| i64::try_from((t + CLOCKS_APART).as_secs()).ok());
    let changed = facts.modify.map(|t| t.0);
    let unchanged = changed.zip(latest).is_some_and(|(c, l)| c <= l);
    unchanged && facts.size.is_some() && facts.size == item.size
}
