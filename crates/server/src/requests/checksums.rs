//! CKSM, block checksums, and COMMIT: requests that may compute for hours.

use std::sync::Arc;

use godwit_engine::storage::{Storage, digest::SummedLeaves};
use godwit_proto::{
    FtpPath,
    commit::Expected,
    error::StorageFailure,
    pi::server::{Outcome, Request},
};
use rustix::io::Errno;

use super::storage_calls::{give_name, other_digest, other_size};
use crate::{
    access::turns::AccountTurns,
    storage::failure,
    transfers::checksums::{GoOn, blocking, checksum, in_turns, open},
};

/// Answers such a request; `go_on` hears the progress of it.
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

/// Renames a file if it is as expected.
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
