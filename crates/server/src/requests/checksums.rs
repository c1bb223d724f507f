//! Checksums, which may take hours: made in turns with those of others, and no longer than somebody
//! waits.

use std::sync::Arc;

use godwit_engine::storage::{
    FileRef, Storage,
    digest::{Digest, Region, Sum, SummedLeaves},
};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    commit::Expected,
    error::StorageFailure,
    pi::server::{Outcome, Request},
};
use rustix::io::Errno;

use super::storage_calls::{give_name, other_digest, other_size};
use crate::{access::turns::AccountTurns, storage::failure};

/// Receives the number of bytes done; returns false when the result is not needed any more.
pub(crate) type GoOn<'a> = &'a mut (dyn FnMut(u64) -> bool + Send);

/// CKSM, the leaves of a file, and the commit of one.
pub(super) async fn answer(
    request: Request,
    storage: Arc<dyn Storage>,
    turns: &AccountTurns,
    go_on: GoOn<'_>,
) -> Result<Outcome, StorageFailure> {
    match request {
        Request::Checksum {
            algorithm,
            offset,
            length,
            path,
        } => {
            let file = open(storage, path).await?;
            let digest = checksum(file, algorithm, offset, length, turns, go_on).await;
            digest.map(Outcome::Checksum)
        }
        Request::BlockChecksums {
            leaf,
            offset,
            length,
            path,
        } => {
            let file = open(storage, path).await?;
            let sum = SummedLeaves::new(leaf);
            let leaves = in_turns(file, sum, offset, length, turns, go_on).await?;
            Ok(Outcome::BlockChecksums(leaves.finish()))
        }
        Request::Commit { from, to, expected } => {
            commit(storage, from, to, expected, turns, go_on).await
        }
        _ => Err(failure(Errno::NOSYS, "carry out the command")),
    }
}

/// Checksum of a region of `file`.
pub(crate) async fn checksum(
    file: FileRef,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    turns: &AccountTurns,
    go_on: GoOn<'_>,
) -> Result<String, StorageFailure> {
    let digest = Digest::new(algorithm);
    let digest = in_turns(file, digest, offset, length, turns, go_on).await?;
    Ok(digest.finish())
}

/// Lets `sum` take a region of `file`. A step that has begun is waited for.
async fn in_turns<S: Sum>(
    file: FileRef,
    mut sum: S,
    offset: u64,
    length: Option<u64>,
    turns: &AccountTurns,
    go_on: GoOn<'_>,
) -> Result<S, StorageFailure> {
    let mut region = {
        let file = Arc::clone(&file);
        blocking(move || Region::new(&*file, offset, length)).await?
    };
    loop {
        let turn = turns.next().await;
        if !go_on(region.done()) {
            return Err(failure(Errno::CANCELED, "checksum"));
        }
        let file = Arc::clone(&file);
        let step = blocking(move || {
            let more = region.step(&*file, &mut sum);
            // Hundreds may wait for their next turn.
            region.pause();
            drop(turn);
            more.map(|more| (more, region, sum))
        });
        let more;
        (more, region, sum) = step.await?;
        if !more {
            return Ok(sum);
        }
    }
}

/// Gives a file its name if it is what was expected.
async fn commit(
    storage: Arc<dyn Storage>,
    from: FtpPath,
    to: FtpPath,
    expected: Expected,
    turns: &AccountTurns,
    go_on: GoOn<'_>,
) -> Result<Outcome, StorageFailure> {
    let file = open(Arc::clone(&storage), from.clone()).await?;
    let metadata = {
        let file = Arc::clone(&file);
        blocking(move || file.metadata()).await?
    };
    if let Some(unlike) = other_size(&expected, metadata.size) {
        return Ok(unlike);
    }
    for (algorithm, wanted) in &expected.checksums {
        let file = Arc::clone(&file);
        let found = checksum(file, *algorithm, 0, None, turns, go_on).await?;
        if let Some(unlike) = other_digest(wanted, found) {
            return Ok(unlike);
        }
    }
    blocking(move || give_name(&*storage, &from, &to, &expected)).await
}

/// Opens a file to read it.
pub(crate) async fn open(
    storage: Arc<dyn Storage>,
    path: FtpPath,
) -> Result<FileRef, StorageFailure> {
    blocking(move || storage.open_read(&path)).await
}

/// Lets a blocking thread do it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageFailure> + Send + 'static,
) -> Result<T, StorageFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(failure(Errno::IO, "carry out the command")))
}
