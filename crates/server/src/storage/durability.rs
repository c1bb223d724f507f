//! When a file counts as safe: what 226, 111 and the 250 of RNTO and MKD promise beyond "the kernel
//! has it".
//!
//! ```text
//!   entries ──► waiting ──► round ──► results    one round at a time; later entries wait
//! ```

use crate::config::Durability;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use godwit_engine::{
    data::FRESH_RANGES_MAX,
    storage::{FileRef, Storage},
};
use godwit_proto::{FtpPath, RangeSet, error::StorageFailure};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::failure;

/// From so many files on, one sync of their file system replaces those of the files: below it, what
/// others have written there is not worth the wait.
const FILES_A_ROUND: usize = 8;

/// Where all sessions bring what must be durable.
pub(crate) struct Committer {
    durability: Durability,
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Entry>,
    /// A round is on its way, and takes what waits after it.
    running: bool,
}

/// What was written or named, and who waits for it.
struct Entry {
    file: Option<FileRef>,
    directories: Vec<FtpPath>,
    verdict: oneshot::Sender<Result<(), StorageFailure>>,
}

impl Committer {
    pub(crate) fn new(durability: Durability, storage: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            durability,
            storage,
            state: Mutex::default(),
        })
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage)
    }

    /// Makes a file durable, where there is one, and the names in `directories`. Ends when it is,
    /// or never will be.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        file: Option<FileRef>,
        directories: Vec<FtpPath>,
    ) -> Result<(), StorageFailure> {
        let (verdict, given) = oneshot::channel();
        let entry = Entry {
            file,
            directories,
            verdict,
        };
        match self.durability {
            Durability::None => return Ok(()),
            Durability::File => {
                let storage = Arc::clone(&self.storage);
                tokio::task::spawn_blocking(move || run_round(vec![entry], &*storage, false));
            }
            Durability::Batch => {
                let first = {
                    let mut state = self.lock();
                    state.waiting.push(entry);
                    !std::mem::replace(&mut state.running, true)
                };
                if first {
                    let this = Arc::clone(self);
                    tokio::task::spawn_blocking(move || this.run());
                }
            }
        }
        given
            .await
            .unwrap_or_else(|_| Err(failure(Errno::IO, "make the file durable")))
    }

    fn run(&self) {
        let _guard = Unwinding(self);
        loop {
            let round = {
                let mut state = self.lock();
                let round = std::mem::take(&mut state.waiting);
                state.running = !round.is_empty();
                round
            };
            if round.is_empty() {
                return;
            }
            run_round(round, &*self.storage, true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ranges of a receipt on their way from "written" to "may be said in 111".
#[derive(Default)]
pub(crate) struct SafeRanges {
    unsynced: RangeSet,
    /// Being synced since the last marker.
    syncing: Option<(RangeSet, oneshot::Receiver<Result<(), StorageFailure>>)>,
}

impl SafeRanges {
    /// Takes what was written since the last call and syncs it; returns what was synced meanwhile.
    /// So a marker tells what was written before the marker before it.
    pub(crate) fn progress(&mut self, written: RangeSet, file: Option<FileRef>) -> RangeSet {
        self.unsynced.union_within(&written, FRESH_RANGES_MAX);
        let mut safe = RangeSet::new();
        if let Some((ranges, mut verdict)) = self.syncing.take() {
            match verdict.try_recv() {
                Ok(Ok(())) => safe = ranges,
                Err(oneshot::error::TryRecvError::Empty) => self.syncing = Some((ranges, verdict)),
                // The sync at the end decides.
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => {
                    self.unsynced.union_within(&ranges, FRESH_RANGES_MAX);
                }
            }
        }
        if let Some(file) = file
            && self.syncing.is_none()
            && !self.unsynced.is_empty()
        {
            let (verdict, given) = oneshot::channel();
            // The transfer may end before it.
            tokio::task::spawn_blocking(move || drop(verdict.send(file.sync())));
            self.syncing = Some((std::mem::take(&mut self.unsynced), given));
        }
        safe
    }

    /// What the last marker may say once all is synced; nothing where that will not be tried.
    pub(crate) fn end(&mut self, written: RangeSet, moved: bool) -> RangeSet {
        let mut rest = std::mem::take(&mut self.unsynced);
        rest.union_within(&written, FRESH_RANGES_MAX);
        if let Some((ranges, _)) = self.syncing.take() {
            rest.union_within(&ranges, FRESH_RANGES_MAX);
        }
        if moved { rest } else { RangeSet::new() }
    }
}

/// A round that panics must not leave those behind it waiting for ever.
struct Unwinding<'a>(&'a Committer);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.lock() = State::default();
        }
    }
}

/// Syncs all of `round` and notifies all waiters. Waiters of one call share its failure.
fn run_round(round: Vec<Entry>, storage: &dyn Storage, together: bool) {
    let files = round.iter().filter(|entry| entry.file.is_some()).count();
    let together = together && files >= FILES_A_ROUND;
    let mut systems = BTreeMap::new();
    let mut names = BTreeMap::new();
    for Entry {
        file,
        directories,
        verdict,
    } in round
    {
        let result = match &file {
            Some(file) if together => sync_system(file, &mut systems),
            Some(file) => file.sync(),
            None => Ok(()),
        };
        let result = result.and_then(|()| {
            for directory in directories {
                let bytes = directory.as_bytes().to_vec();
                names
                    .entry(bytes)
                    .or_insert_with(|| storage.sync_directory(&directory))
                    .clone()?;
            }
            Ok(())
        });
        // The session may have ended.
        drop(verdict.send(result));
    }
}

/// Once for each file system, by the first of its files.
fn sync_system(
    file: &FileRef,
    systems: &mut BTreeMap<u64, Result<(), StorageFailure>>,
) -> Result<(), StorageFailure> {
    let (device, _) = file.as_opened()?.unique;
    systems
        .entry(device)
        .or_insert_with(|| file.sync_file_system())
        .clone()
}

#[cfg(test)]
mod tests {
    use godwit_engine::storage::{
        MemoryStorage, WriteMode,
        faulty::{Fault, FaultyStorage, Operation},
    };

    use super::*;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    /// Counts syncs; the first waits until `open` is dropped.
    fn storage(
        faults: Vec<Fault>,
    ) -> (
        Arc<dyn Storage>,
        Arc<Mutex<u64>>,
        std::sync::mpsc::Sender<()>,
    ) {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let (gate, calls) = (Mutex::new(gate), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&calls);
        let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()), faults).with_delay(
            Arc::new(move |operation, number| {
                if operation == Operation::Sync {
                    *counted.lock().unwrap() += 1;
                    if number == 0 {
                        let _ = gate.lock().unwrap().recv();
                    }
                }
            }),
        );
        (Arc::new(storage), calls, open)
    }

    async fn commit_all(
        committer: &Arc<Committer>,
        storage: &Arc<dyn Storage>,
        files: usize,
        calls: &Mutex<u64>,
        open: std::sync::mpsc::Sender<()>,
    ) -> Vec<Result<(), StorageFailure>> {
        let mut waiting = Vec::new();
        for i in 0..files {
            let file = storage
                .open_write(&path(&format!("/{i}")), WriteMode::New)
                .unwrap();
            let to = Arc::clone(committer);
            waiting.push(tokio::spawn(async move {
                to.commit(Some(file), vec![path("/")]).await
            }));
            // Each is handed in before the next, and the others while the first is synced.
            tokio::task::yield_now().await;
            while committer.durability() != Durability::None && *calls.lock().unwrap() == 0 {
                tokio::task::yield_now().await;
            }
        }
        drop(open);
        let mut verdicts = Vec::new();
        for verdict in waiting {
            verdicts.push(verdict.await.unwrap());
        }
        verdicts
    }

    fn run(
        durability: Durability,
        files: usize,
        faults: Vec<Fault>,
    ) -> (Vec<Result<(), StorageFailure>>, u64) {
        let (storage, calls, open) = storage(faults);
        let committer = Committer::new(durability, Arc::clone(&storage));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let verdicts = runtime.block_on(commit_all(&committer, &storage, files, &calls, open));
        let calls = *calls.lock().unwrap();
        (verdicts, calls)
    }

    fn fail(nth: u64) -> Vec<Fault> {
        vec![Fault::Fail {
            operation: Operation::Sync,
            nth,
            errno: Errno::IO.raw_os_error(),
        }]
    }

    #[test]
    fn files_that_come_while_one_is_synced_share_the_next_round() {
        let (verdicts, calls) = run(Durability::Batch, 101, Vec::new());
        assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
        assert_eq!(calls, 4, "a file and its name, a file system and the name");
        let (_, calls) = run(Durability::File, 101, Vec::new());
        assert_eq!(calls, 202);
        let (_, calls) = run(Durability::None, 101, Vec::new());
        assert_eq!(calls, 0);
    }

    #[test]
    fn sharers_of_a_sync_share_its_failure() {
        let (verdicts, _) = run(Durability::Batch, 101, fail(2));
        assert_eq!(verdicts[0], Ok(()));
        for verdict in &verdicts[1..] {
            assert_eq!(
                verdict.as_ref().unwrap_err().errno,
                Errno::IO.raw_os_error()
            );
        }
        let (verdicts, _) = run(Durability::File, 20, fail(3));
        assert_eq!(verdicts.iter().filter(|v| v.is_err()).count(), 1);
    }
}
