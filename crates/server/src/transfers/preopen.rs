//! Files that are opened before their turn.
//!
//! ```text
//!   queued   ──► Untouched ──► Opening ──► Ready ──► Taken   a thread opens, the mover takes
//!                    └──────────────────────────────►┘       the mover was first: it opens
//! ```
//! Only files to be read are opened early: creating or truncating a file leaves a trace, and the
//! transfers before it may still fail.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use godwit_engine::storage::Storage;
use godwit_proto::{
    error::StorageFailure,
    pi::server::{TransferKind, TransferRequest},
};

use super::open::{self, Opened};

/// A file that was opened longer ago is opened again in its turn: during a long transfer another
/// process may have replaced it.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Longest wait for a thread that is opening the file. Then the mover opens it itself, and finds
/// the error.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Files that one thread opens before another is asked to help: on a fast storage one is ahead of
/// the mover alone.
const FILES_A_THREAD: usize = 8;

/// Threads that open files of one session at a time, for storage where each open waits for a
/// server.
const THREADS_MAX: usize = 4;

/// A transfer to come.
pub(crate) struct PreopenedTransfer {
    request: TransferRequest,
    state: Mutex<State>,
    settled: Condvar,
}

enum State {
    Untouched,
    /// `awaited`: a mover waits; waking it costs a system call.
    Opening {
        awaited: bool,
    },
    Ready(Opened, Instant),
    Taken,
}

impl PreopenedTransfer {
    pub(crate) fn new(request: TransferRequest) -> Arc<Self> {
        Arc::new(Self {
            request,
            state: Mutex::new(State::Untouched),
            settled: Condvar::new(),
        })
    }

    pub(crate) fn request(&self) -> &TransferRequest {
        &self.request
    }

    /// Opens the file now, or takes what was opened ahead. Blocks while storage does.
    pub(crate) fn take(&self, storage: &Arc<dyn Storage>) -> Result<Opened, StorageFailure> {
        let mut state = self.lock();
        let begun = Instant::now();
        while let State::Opening { awaited } = &mut *state
            && begun.elapsed() < OPEN_WAIT_MAX
        {
            *awaited = true;
            let waited = self.settled.wait_timeout(state, OPEN_WAIT_MAX);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ready(opened, at) if at.elapsed() <= AGE_MAX => Ok(opened),
            _ => {
                drop(state);
                open::open(self.request.clone(), Arc::clone(storage))
            }
        }
    }

    /// Opens the file, unless its turn has come or another thread does. A failure counts only in
    /// its turn.
    fn prepare(&self, storage: &Arc<dyn Storage>) {
        let mut state = self.lock();
        if !matches!(*state, State::Untouched) {
            return;
        }
        *state = State::Opening { awaited: false };
        drop(state);
        let opened = open::open(self.request.clone(), Arc::clone(storage));
        let mut state = self.lock();
        if let State::Opening { awaited } = *state {
            *state = match opened {
                Ok(opened) => State::Ready(opened, Instant::now()),
                Err(_) => State::Untouched,
            };
            if awaited {
                self.settled.notify_all();
            }
        }
    }

    /// It is not wanted any more: closes the file.
    pub(crate) fn forget(&self) {
        *self.lock() = State::Taken;
        self.settled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens those files of `batch` that may be opened before their turn, on blocking threads.
pub(crate) fn prepare(batch: Vec<Arc<PreopenedTransfer>>, storage: &Arc<dyn Storage>) {
    let batch: Arc<[_]> = batch
        .into_iter()
        .filter(|preopened| matches!(preopened.request.kind, TransferKind::Send { .. }))
        .collect();
    for _ in 0..batch.len().div_ceil(FILES_A_THREAD).min(THREADS_MAX) {
        let (batch, storage) = (Arc::clone(&batch), Arc::clone(storage));
        tokio::task::spawn_blocking(move || {
            for preopened in &*batch {
                preopened.prepare(&storage);
            }
        });
    }
}
