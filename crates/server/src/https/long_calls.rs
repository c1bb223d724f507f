//! Threads for removals, copies and listings, which last as long as their files are many.
//!
//! No account has all of them: one that waits long for its share is asked to come back.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    time::Duration,
};

use godwit_proto::error::StorageFailure;
use rustix::io::Errno;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::storage::failure;

/// Calls at a time: each keeps a thread as long as it takes.
static LONG_CALLS: Semaphore = Semaphore::const_new(32);

/// Those of one account.
const PER_ACCOUNT: usize = 8;

/// How long a call waits for its thread. Clients try again after that.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(10);

type SharesOfCalls = HashMap<String, Weak<Semaphore>>;

static SHARES: LazyLock<Mutex<SharesOfCalls>> = LazyLock::new(Mutex::default);

/// The share of an account. Its sessions have the same one.
pub(super) fn long_calls_of(account: &str) -> Arc<Semaphore> {
    let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(share) = shares.get(account).and_then(Weak::upgrade) {
        return share;
    }
    shares.retain(|_, share| share.strong_count() > 0);
    let share = Arc::new(Semaphore::new(PER_ACCOUNT));
    shares.insert(account.to_owned(), Arc::downgrade(&share));
    share
}

/// A thread for a call. It is free again when this is dropped.
pub(super) struct CallTurn {
    _of_account: OwnedSemaphorePermit,
    _of_all: SemaphorePermit<'static>,
}

/// Waits for a thread, at most `limit`.
///
/// # Errors
/// `EAGAIN`: the account, or all together, have too many calls.
pub(super) async fn turn(
    share: &Arc<Semaphore>,
    limit: Duration,
) -> Result<CallTurn, StorageFailure> {
    let waiting = async {
        Some(CallTurn {
            _of_account: Arc::clone(share).acquire_owned().await.ok()?,
            _of_all: LONG_CALLS.acquire().await.ok()?,
        })
    };
    let turn = timeout(limit, waiting).await.ok().flatten();
    turn.ok_or_else(|| failure(Errno::AGAIN, "start one more of so many long calls"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_account_leaves_threads_to_others() {
        let share = long_calls_of("jo, who has many");
        let mut turns = Vec::new();
        for _ in 0..PER_ACCOUNT {
            turns.push(turn(&share, WAIT_LIMIT).await.unwrap());
        }
        // Another session of the account.
        let again = long_calls_of("jo, who has many");
        let refused = turn(&again, Duration::ZERO).await.err().unwrap();
        assert_eq!(refused.errno, Errno::AGAIN.raw_os_error());
        turn(&long_calls_of("sam, who has none"), WAIT_LIMIT)
            .await
            .unwrap();
        turns.pop();
        turn(&again, WAIT_LIMIT).await.unwrap();
    }
}
