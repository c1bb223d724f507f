//! The storage calls of requests.

use godwit_engine::storage::{FileKind, Storage, digest};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    commit::Expected,
    error::StorageFailure,
    pi::server::{Outcome, Request},
};
use rustix::io::Errno;

use super::AT_ONCE_BYTES;
use crate::{
    config::Durability,
    lookahead::recent_files::KnownFile,
    storage::{durability::Committer, failure, system_time},
};

/// S_ISUID and S_ISGID.
const BECOMES_OTHERS: u32 = 0o6000;

/// Runs a request to its end. `known`: facts on its file.
pub(super) fn run_at_once(
    request: Request,
    known: Option<KnownFile>,
    storage: &dyn Storage,
) -> Result<Outcome, StorageFailure> {
    match request {
        Request::Checksum {
            algorithm,
            offset,
            length,
            path,
        } => match known.and_then(|known| known.digest) {
            Some(digest) => Ok(digest),
            None => checksum(storage, &path, algorithm, offset, length),
        }
        .map(Outcome::Checksum),
        Request::Commit { from, to, expected } => commit(storage, &from, &to, &expected, known),
        other => run_simple(other, storage),
    }
}

/// Whether it would delay other sessions of the same mover.
pub(super) fn is_long(request: &Request, storage: &dyn Storage) -> bool {
    let is_short = |bytes| bytes <= AT_ONCE_BYTES;
    let (length, path) = match request {
        Request::Checksum { length, path, .. } => (length, path),
        // A file of another size than expected is not read.
        Request::Commit { from, expected, .. } if !expected.checksums.is_empty() => {
            (&expected.size, from)
        }
        _ => return false,
    };
    // A missing file is found missing soon.
    let size = || storage.stat(path).map_or(0, |found| found.size);
    !length.is_some_and(is_short) && !is_short(size())
}

/// Whether the names that it makes must be durable before its answer.
pub(super) fn must_be_durable(request: &Request, committer: &Committer) -> bool {
    committer.durability() != Durability::None && !named_by(request).is_empty()
}

/// Directories that a request changes and that must be synced before its reply.
pub(super) fn named_by(request: &Request) -> Vec<FtpPath> {
    match request {
        Request::Rename { from, to } => from.parent().into_iter().chain(to.parent()).collect(),
        // It stays in its directory.
        Request::Commit { to, .. } => Vec::from_iter(to.parent()),
        Request::MakeDirectory(path) => Vec::from_iter(path.parent()),
        _ => Vec::new(),
    }
}

/// Requests with one answer.
pub(super) fn run_simple(
    request: Request,
    storage: &dyn Storage,
) -> Result<Outcome, StorageFailure> {
    match request {
        Request::Stat(path) => {
            let facts = storage.stat(&path)?.facts();
            return Ok(Outcome::Facts(Box::new(facts)));
        }
        Request::ChangeDirectory(path) => {
            if storage.stat(&path)?.kind != FileKind::Directory {
                return Err(failure(Errno::NOTDIR, &format!("change to {path}")));
            }
        }
        Request::MakeDirectory(path) => storage.create_dir(&path)?,
        Request::RemoveDirectory(path) => storage.remove_dir(&path)?,
        Request::RemoveFile(path) => storage.remove_file(&path)?,
        Request::RemoveTree(path) => storage.remove_tree(&path)?,
        Request::CheckExists(path) => {
            storage.stat(&path)?;
        }
        Request::Rename { from, to } => storage.rename(&from, &to)?,
        Request::SetModified { path, modify } => {
            storage.set_modified(&path, system_time(modify))?
        }
        Request::SetMode { path, mode } => set_mode(storage, &path, mode)?,
        Request::SetGroup { path, group } => storage.set_group(&path, &group)?,
        Request::Truncate { path, length } => storage.set_len(&path, length)?,
        Request::Symlink { target, link } => storage.symlink(&target, &link)?,
        Request::Reserve { bytes, path } => reserve(storage, bytes, &path)?,
        // The rest needs the session or pages; it never comes here.
        Request::Login { .. }
        | Request::Adat { .. }
        | Request::StartTls
        | Request::DataContext(_)
        | Request::Listen(..)
        | Request::ConnectTo(..)
        | Request::WhoAmI
        | Request::ListControl { .. }
        | Request::Checksum { .. }
        | Request::BlockChecksums { .. }
        | Request::Commit { .. } => {
            return Err(failure(Errno::NOSYS, "carry out the command"));
        }
    }
    Ok(Outcome::Done)
}

/// A user who may write must not create programs that run as another account, such as the server's.
fn set_mode(storage: &dyn Storage, path: &FtpPath, mode: u32) -> Result<(), StorageFailure> {
    if mode & BECOMES_OTHERS != 0 {
        return Err(failure(
            Errno::PERM,
            &format!("set mode {mode:o} of {path} (set-user-ID and set-group-ID are not allowed)"),
        ));
    }
    storage.set_mode(path, mode)
}

/// Checks the free space only; nothing is reserved, so an abandoned upload leaves nothing behind.
fn reserve(storage: &dyn Storage, bytes: u64, path: &FtpPath) -> Result<(), StorageFailure> {
    if storage.free_bytes(path)? < bytes {
        return Err(failure(
            Errno::NOSPC,
            &format!("reserve {bytes} bytes for {path}"),
        ));
    }
    Ok(())
}

fn checksum(
    storage: &dyn Storage,
    path: &FtpPath,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
) -> Result<String, StorageFailure> {
    let file = storage.open_read(path)?;
    digest::of_file(&*file, algorithm, offset, length, &mut |_| true)
}

/// Renames a file if it is as expected. Facts in `known` are not looked up again.
fn commit(
    storage: &dyn Storage,
    from: &FtpPath,
    to: &FtpPath,
    expected: &Expected,
    known: Option<KnownFile>,
) -> Result<Outcome, StorageFailure> {
    let (file, size, known) = match known {
        Some(KnownFile { bytes, digest }) => (None, bytes, digest),
        None => {
            let file = storage.open_read(from)?;
            let size = file.metadata()?.size;
            (Some(file), size, None)
        }
    };
    if let Some(unlike) = other_size(expected, size) {
        return Ok(unlike);
    }
    for (algorithm, wanted) in &expected.checksums {
        let found = match (&known, &file) {
            (Some(digest), _) => digest.clone(),
            (None, Some(file)) => digest::of_file(&**file, *algorithm, 0, None, &mut |_| true)?,
            (None, None) => checksum(storage, from, *algorithm, 0, None)?,
        };
        if let Some(unlike) = other_digest(wanted, found) {
            return Ok(unlike);
        }
    }
    give_name(storage, from, to, expected)
}

/// Renames a file that is as expected.
pub(super) fn give_name(
    storage: &dyn Storage,
    from: &FtpPath,
    to: &FtpPath,
    expected: &Expected,
) -> Result<Outcome, StorageFailure> {
    if let Some(modify) = expected.modify {
        storage.set_modified(from, system_time(modify))?;
    }
    storage.rename(from, to)?;
    Ok(Outcome::Done)
}

/// The outcome if another size than `size` was expected.
pub(super) fn other_size(expected: &Expected, size: u64) -> Option<Outcome> {
    let expected = expected.size.filter(|expected| *expected != size)?;
    Some(Outcome::Unlike {
        found: format!("{size} bytes"),
        expected: format!("{expected} bytes"),
    })
}

/// The outcome if another checksum than `found` was expected.
pub(super) fn other_digest(expected: &str, found: String) -> Option<Outcome> {
    let expected = expected.to_owned();
    (found != expected).then_some(Outcome::Unlike { found, expected })
}
