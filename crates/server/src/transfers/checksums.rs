//! Checksums, which may take hours: computed in turns with those of other sessions, and no longer
//! than the client waits.

use std::sync::Arc;

use godwit_engine::storage::{
    FileRef, Storage,
    digest::{Digest, Region, Sum},
};
use godwit_proto::{ChecksumAlgorithm, FtpPath, error::StorageFailure};
use rustix::io::Errno;

use crate::{access::turns::AccountTurns, storage::failure};

/// Receives the number of bytes done; returns false when the result is not needed any more.
pub(crate) type GoOn<'a> = &'a mut (dyn FnMut(u64) -> bool + Send);

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

/// Lets `sum` take a region of `file`. A step that runs is waited for.
pub(crate) async fn in_turns<S: Sum>(
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

/// Opens a file to read it.
pub(crate) async fn open(
    storage: Arc<dyn Storage>,
    path: FtpPath,
) -> Result<FileRef, StorageFailure> {
    blocking(move || storage.open_read(&path)).await
}

/// Runs `work` on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageFailure> + Send + 'static,
) -> Result<T, StorageFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(failure(Errno::IO, "carry out the command")))
}
