//! Threads for calls that last as long as their files are many or large, over HTTPS and S3.
//!
//! No account has all of them. A call waits for its thread, and its client is asked to come back
//! when that has taken too long. Copies have threads of their own: they can take hours, and
//! listings do not wait for them. PROPFIND, and GET of a directory, need none: they read a piece
//! of the directory whenever the client has read the one before.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use godwit_proto::error::StorageFailure;
use rustix::io::Errno;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::storage::failure;

/// Calls of a kind at a time.
const OF_ALL: usize = 32;

/// Those of one account.
const PER_ACCOUNT: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Of a bucket: the names of a page may be far apart in its tree.
    Listing,
    /// A copy, also of the parts of an object, or the removal of a tree.
    Change,
}

impl CallKind {
    /// How long a call waits for its thread.
    const fn wait_limit(self) -> Duration {
        match self {
            // Clients of S3 wait for half a minute or more, and try again when asked to.
            Self::Listing => Duration::from_secs(20),
            // Many clients of WebDAV do not try again.
            Self::Change => Duration::from_secs(120),
        }
    }
}

/// As many calls of each kind as may run at a time.
struct Places {
    listings: Arc<Semaphore>,
    changes: Arc<Semaphore>,
}

impl Places {
    fn new(count: usize) -> Self {
        let semaphore = || Arc::new(Semaphore::new(count));
        Self {
            listings: semaphore(),
            changes: semaphore(),
        }
    }

    fn of(&self, kind: CallKind) -> Arc<Semaphore> {
        Arc::clone(match kind {
            CallKind::Listing => &self.listings,
            CallKind::Change => &self.changes,
        })
    }
}

/// The long calls of a server.
pub(crate) struct LongCalls {
    places: Arc<Places>,
    shares: Mutex<HashMap<String, Weak<ShareOfCalls>>>,
}

/// Those of an account. Its sessions have the same share.
pub(crate) struct ShareOfCalls {
    of_account: Places,
    of_all: Arc<Places>,
}

/// A thread for calls that follow each other. It is free again when this is dropped, and the last
/// call has returned.
#[derive(Clone)]
pub(crate) struct CallTurn {
    _permits: Arc<[OwnedSemaphorePermit; 2]>,
}

impl Default for LongCalls {
    fn default() -> Self {
        Self {
            places: Arc::new(Places::new(OF_ALL)),
            shares: Mutex::default(),
        }
    }
}

impl LongCalls {
    pub(crate) fn of(&self, account: &str) -> Arc<ShareOfCalls> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(account).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(ShareOfCalls {
            of_account: Places::new(PER_ACCOUNT),
            of_all: Arc::clone(&self.places),
        });
        shares.insert(account.to_owned(), Arc::downgrade(&share));
        share
    }
}

impl ShareOfCalls {
    /// Waits for a thread.
    ///
    /// # Errors
    /// `EAGAIN`: the account, or all together, have had too many calls for too long.
    pub(crate) async fn turn(&self, kind: CallKind) -> Result<CallTurn, StorageFailure> {
        self.turn_within(kind, kind.wait_limit()).await
    }

    async fn turn_within(
        &self,
        kind: CallKind,
        limit: Duration,
    ) -> Result<CallTurn, StorageFailure> {
        let waiting = async {
            // The share first: a call that waits for it keeps nothing from other accounts.
            let of_account = self.of_account.of(kind).acquire_owned().await?;
            let of_all = self.of_all.of(kind).acquire_owned().await?;
            Ok::<_, AcquireError>([of_account, of_all])
        };
        match timeout(limit, waiting).await {
            Ok(Ok(permits)) => Ok(CallTurn {
                _permits: Arc::new(permits),
            }),
            // The semaphores are never closed.
            _ => Err(failure(
                Errno::AGAIN,
                "wait longer for other calls of this kind",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CallKind; 2] = [CallKind::Listing, CallKind::Change];

    #[tokio::test]
    async fn an_account_leaves_threads_to_others() {
        let calls = LongCalls::default();
        for kind in KINDS {
            let share = calls.of("jo");
            let mut turns = Vec::new();
            for _ in 0..PER_ACCOUNT {
                turns.push(share.turn(kind).await.unwrap());
            }
            // Another session of the account.
            let again = calls.of("jo");
            let refused = again.turn_within(kind, Duration::ZERO).await.err().unwrap();
            assert_eq!(refused.errno, Errno::AGAIN.raw_os_error());
            let other = calls.of("sam");
            other.turn_within(kind, Duration::ZERO).await.unwrap();
            // Neither kind takes the threads of the other.
            for other in KINDS.into_iter().filter(|other| *other != kind) {
                again.turn_within(other, Duration::ZERO).await.unwrap();
            }
            turns.pop();
            again.turn_within(kind, Duration::ZERO).await.unwrap();
        }
    }

    #[tokio::test]
    async fn all_accounts_together_have_a_limit() {
        let calls = LongCalls::default();
        let shares = ["a", "b", "c", "d"].map(|account| calls.of(account));
        let mut turns = Vec::new();
        for share in &shares {
            for _ in 0..PER_ACCOUNT {
                turns.push(share.turn(CallKind::Change).await.unwrap());
            }
        }
        let next = calls.of("e");
        let refused = next.turn_within(CallKind::Change, Duration::ZERO).await;
        assert!(refused.is_err());
        // A call that follows keeps the thread.
        let kept = turns.pop().unwrap();
        drop(kept.clone());
        let refused = next.turn_within(CallKind::Change, Duration::ZERO).await;
        assert!(refused.is_err());
        drop(kept);
        next.turn_within(CallKind::Change, Duration::ZERO)
            .await
            .unwrap();
    }
}
