//! The state that an earlier run left: its partial files are removed, and its complete files are
//! skipped if they still exist. The journal alone is not trusted: a file that it lists may have
//! been removed or replaced since, or lost in a power failure.

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

/// How far the clock of a server may be ahead of ours. With a larger difference its files seem to
/// have changed after the upload and are copied again.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Removes partial files of this machine, and those of small files in directories. Returns what
/// could not be removed.
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
    /// Removes the partial files of an earlier run that this one does not resume. A failed removal
    /// is a warning and nothing else.
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
    pub(super) fn skip_copied(&self, file: &SourceFile, checksum: Option<&str>) {
        let size = file.size;
        let end = FileEnd::DoneBefore { size, checksum };
        self.context.reporter.ended(&file.source(), &end);
        let before = &self.context.counters.files_before;
        before.fetch_add(1, Ordering::Relaxed);
    }

    /// The same for a download.
    pub(super) fn skip_copied_local(&self, file: &SourceFile, found: &fs::Metadata) {
        self.context
            .local
            .durability
            .record((found.dev(), found.ino()));
        self.skip_copied(file, None);
    }

    /// Queues a file that an earlier run completed for the check that it still exists. Servers are
    /// asked about many at a time.
    pub(super) async fn check_later(&mut self, file: SourceFile) {
        let is_elsewhere = |other: &SourceFile| !Arc::ptr_eq(&other.endpoint, &file.endpoint);
        if self.needs_check.first().is_some_and(is_elsewhere) {
            self.check_pending().await;
        }
        self.needs_check.push(file);
        // Only downloads are read for the comparison.
        let gets = (self.needs_check.iter()).filter(|file| file.direction() == Direction::Get);
        let sizes = gets.filter_map(|file| file.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        if self.needs_check.len() >= TOGETHER || bytes >= BYTES_TOGETHER {
            self.check_pending().await;
        }
    }

    /// Skips the queued files that exist; the others are copied again.
    pub(super) async fn check_pending(&mut self) {
        let files = std::mem::take(&mut self.needs_check);
        let Some(first) = files.first().filter(|_| !self.context.stop.is_cancelled()) else {
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

    /// Local files that were complete before this boot: only their bytes show whether they reached
    /// the disk.
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
        // Each file has its own result, also if it was removed meanwhile.
        let same = same.into_iter().chain(iter::repeat(false));
        for (file, same) in files.into_iter().zip(same) {
            match here(&file).filter(|_| same) {
                Some(found) => self.skip_copied_local(&file, &found),
                None => self.copy(file).await,
            }
        }
    }

    /// Returns for each file whether both ends have the same bytes.
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
            // A file that cannot be read is copied again; that copy reports why.
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
                    self.skip_copied(&file, None);
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

/// A file of the right size at the destination of a download.
pub(super) fn here(file: &SourceFile) -> Option<fs::Metadata> {
    let found = fs::metadata(path_here(file)?).ok()?;
    let is_as_long = found.is_file() && Some(found.len()) == file.size;
    is_as_long.then_some(found)
}

/// The source has changed since an earlier run recorded it: the partial file is of another version.
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

/// The size is right, and the file was not written to after the last record of the journal.
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
