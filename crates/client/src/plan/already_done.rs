//! What an earlier run has left: files that it had begun are removed, and those that it has
//! finished are left out, if they are still there. A journal alone is not believed, since what it
//! tells of may have been removed or replaced since, or lost with the power.

use std::{
    fs, io, iter,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use godwit_proto::{
    ChecksumAlgorithm, FtpPath, facts::Facts, pi::transfer::Direction, url::Location,
};

use super::{
    Planner,
    checksums::{BYTES_TOGETHER, TOGETHER, checksums, checksums_here, offered},
    copy_path::CopyPath,
};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::{files, journal::LeftoverDirectory},
    panics::on_thread,
    report::events::FileEnd,
    session::{Session, retry::Operation},
    transfer::{
        source_file::{LocalEnd, Origin, Peer, RemotePath, SourceFile},
        verify,
    },
};

/// By how much the clock of a server may be ahead of ours before its files seem to have changed
/// after we put them there: then they are copied again.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Removes files of this machine, and what small ones have left in directories. What could not be
/// removed.
fn clear(left: &[Vec<u8>], leftovers: &[LeftoverDirectory]) -> Vec<Error> {
    let mut failed = Vec::new();
    let mut unless_gone = |error: io::Error, doing: String| {
        if error.kind() != io::ErrorKind::NotFound {
            failed.push(Error::local(doing, &error));
        }
    };
    let mut paths: Vec<_> = left.iter().map(|path| files::path_of(path)).collect();
    for leftovers in leftovers {
        match leftovers.files() {
            Ok(files) => paths.extend(files),
            Err(error) => {
                let doing = format!(
                    "look for what is not whole in {}",
                    leftovers.directory().display()
                );
                unless_gone(error, doing);
            }
        }
    }
    for path in paths {
        if let Err(error) = fs::remove_file(&path) {
            unless_gone(error, format!("remove {}", path.display()));
        }
    }
    failed
}

impl Planner {
    /// Removes what an earlier run had begun and this one does not go on with. What cannot be
    /// removed is told, and hinders nothing.
    pub(super) async fn sweep(&mut self) {
        let Some(journal) = self.context.local.journal.get() else {
            return;
        };
        let (left, leftovers) = (journal.orphans(), journal.leftovers());
        if left.is_empty() && leftovers.is_empty() {
            return;
        }
        let Location::Remote(url) = &self.spec.destination else {
            // Directories may be long.
            let doing = || "remove what an earlier run has left".to_owned();
            match on_thread(doing, move || clear(&left, &leftovers)).await {
                Ok(failed) => failed
                    .into_iter()
                    .for_each(|why| self.context.reporter.warn(why)),
                Err(bug) => self.fail(self.spec.destination.to_string(), bug).await,
            }
            return;
        };
        let endpoint = self.context.endpoints.of(url);
        let paths: Vec<_> = left.into_iter().flat_map(FtpPath::new).collect();
        let server = endpoint.name();
        let remove = async |session: &mut Session| session.remove_files(&paths).await;
        match self
            .retrying
            .attempt(Operation::on(&endpoint, &server), remove)
            .await
        {
            Ok(failed) => failed
                .into_iter()
                .for_each(|(_, why)| self.context.reporter.warn(why)),
            Err(error) => self.context.reporter.note(Error::from(error)),
        }
    }

    /// An earlier run has copied it.
    fn skip_copied(&self, file: &SourceFile) {
        let end = FileEnd::DoneBefore { size: file.size };
        self.context.reporter.ended(&file.source(), &end);
        let before = &self.context.counters.files_before;
        before.fetch_add(1, Ordering::Relaxed);
    }

    /// The same for a get.
    pub(super) fn skip_copied_local(&self, file: &SourceFile, found: &fs::Metadata) {
        self.context
            .local
            .durability
            .record((found.dev(), found.ino()));
        self.skip_copied(file);
    }

    /// It was finished, if it still is there: servers are asked about many at a time.
    pub(super) async fn check_later(&mut self, file: SourceFile) {
        let is_elsewhere = |other: &SourceFile| !Arc::ptr_eq(&other.endpoint, &file.endpoint);
        if self.needs_check.first().is_some_and(is_elsewhere) {
            self.check_pending().await;
        }
        self.needs_check.push(file);
        // Only gets are read, to be compared.
        let gets = (self.needs_check.iter()).filter(|file| file.direction() == Direction::Get);
        let sizes = gets.filter_map(|file| file.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        if self.needs_check.len() >= TOGETHER || bytes >= BYTES_TOGETHER {
            self.check_pending().await;
        }
    }

    /// Leaves out those of the doubtful files that are there; the others are copied again.
    pub(super) async fn check_pending(&mut self) {
        let files = std::mem::take(&mut self.needs_check);
        let Some(first) = files.first().filter(|_| !self.context.stop.is_set()) else {
            return;
        };
        match first.direction() {
            Direction::Put => {
                self.stat_at_server(Arc::clone(&first.endpoint), files)
                    .await
            }
            Direction::Get => self.compare(Arc::clone(&first.endpoint), files).await,
        }
    }

    /// Files of ours that were finished before the machine was started: only their bytes tell
    /// whether they have reached the disk.
    async fn compare(&mut self, endpoint: Arc<Endpoint>, files: Vec<SourceFile>) {
        let same = self.have_same_bytes(&endpoint, &files).await;
        let same = same.unwrap_or_else(|why| {
            self.context.reporter.note(format!(
                "{}: cannot tell whether files that were finished before this machine was started \
                 are whole, so they are copied again: {why}",
                endpoint.name()
            ));
            Vec::new()
        });
        // Each has its own answer, also where a file has vanished since.
        let same = same.into_iter().chain(iter::repeat(false));
        for (file, same) in files.into_iter().zip(same) {
            match here(&file).filter(|_| same) {
                Some(found) => self.skip_copied_local(&file, &found),
                None => self.copy(file).await,
            }
        }
    }

    /// Of each whether both ends have the same bytes.
    async fn have_same_bytes(
        &mut self,
        endpoint: &Arc<Endpoint>,
        files: &[SourceFile],
    ) -> Result<Vec<bool>> {
        let offered = offered(&mut self.retrying, endpoint).await?;
        let mut algorithms = ChecksumAlgorithm::ALL.into_iter();
        let Some(algorithm) = algorithms.find(|algorithm| offered.contains(algorithm)) else {
            return Err(Error::MissingFeature {
                endpoint: endpoint.name(),
                feature: "CKSM".to_owned(),
                consequence: "checksums cannot be compared".to_owned(),
            });
        };
        let there = |file: &SourceFile| {
            CopyPath::There(RemotePath {
                endpoint: Arc::clone(endpoint),
                path: file.remote.clone(),
            })
        };
        let theirs: Vec<_> = files.iter().map(there).collect();
        let (ours, theirs) = tokio::join!(
            checksums_here(algorithm, files.iter().flat_map(path_here)),
            checksums(&mut self.retrying, algorithm, theirs.iter().collect()),
        );
        let agree = |(ours, theirs): (Result<_>, Result<_>)| match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => verify::agree("", algorithm, ours, theirs).is_ok(),
            // One that cannot be read is copied again, and that will say why.
            _ => false,
        };
        Ok(ours.into_iter().zip(theirs).map(agree).collect())
    }

    async fn stat_at_server(&mut self, endpoint: Arc<Endpoint>, files: Vec<SourceFile>) {
        let remotes: Vec<_> = files.iter().map(|file| file.remote.clone()).collect();
        let server = endpoint.name();
        let look = async |session: &mut Session| session.facts_of_all(&remotes).await;
        let found = self
            .retrying
            .attempt(Operation::on(&endpoint, &server), look)
            .await;
        let found = found.unwrap_or_else(|error| {
            let why = Error::from(error);
            self.context.reporter.note(format!(
                "{server}: cannot be asked what it has of an earlier run, so all is copied again: \
                 {why}"
            ));
            Vec::new()
        });
        let last_record_time = self
            .context
            .local
            .journal
            .get()
            .and_then(|j| j.last_record_time());
        let mut found = found.into_iter();
        for file in files {
            match found.next().flatten() {
                Some(facts) if is_as_we_left_it(&file, &facts, last_record_time) => {
                    self.skip_copied(&file);
                }
                _ => self.copy(file).await,
            }
        }
    }
}

fn path_here(file: &SourceFile) -> Option<&Path> {
    match &file.other {
        Peer::To(LocalEnd::Path(path)) => Some(path),
        Peer::To(LocalEnd::Standard) | Peer::From(_) => None,
    }
}

/// A file of the right size that is at the destination of a get.
pub(super) fn here(file: &SourceFile) -> Option<fs::Metadata> {
    let found = fs::metadata(path_here(file)?).ok()?;
    let is_as_long = found.is_file() && Some(found.len()) == file.size;
    is_as_long.then_some(found)
}

/// The source has changed since an earlier run noted something: what that has begun is of another
/// file.
pub(super) fn is_newer(file: &SourceFile, last_record_time: Option<SystemTime>) -> bool {
    let noted = last_record_time.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let (Some(changed), Some(noted)) = (file.changed, noted) else {
        return false;
    };
    let noted = match file.other {
        Peer::From(Origin::Here(_)) => noted.as_nanos(),
        Peer::From(Origin::Server(_)) | Peer::To(_) => noted.as_secs().into(),
    };
    u128::try_from(changed).is_ok_and(|changed| changed > noted)
}

/// The size is right, and nobody has written to it since the journal was.
fn is_as_we_left_it(
    file: &SourceFile,
    facts: &Facts,
    last_record_time: Option<SystemTime>,
) -> bool {
    let latest = last_record_time
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        .and_then(|t| i64::try_from((t + CLOCKS_APART).as_secs()).ok());
    let changed = facts.modify.map(|t| t.0);
    let unchanged = changed.zip(latest).is_some_and(|(c, l)| c <= l);
    unchanged && facts.size.is_some() && facts.size == file.size
}
