//! Finishes large files on a session of its own, while those that moved them go on: a checksum
//! takes as long as reading the file does, and asking costs round trips.
//!
//! Where the server lets no further session in, workers finish their files themselves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Job, file_task::FileTask, worker::Worker};
use crate::setting_target::WorkerSlot;

/// Files that wait to be finished, at most; each holds a file open.
const WAITING_MAX: usize = 16;

/// A file whose bytes are all there, and how many were moved.
pub(super) type MovedFile = (Arc<FileTask>, u64);

/// Where workers leave files that are to be finished.
pub(super) struct Verifier {
    sender: Mutex<Option<mpsc::UnboundedSender<MovedFile>>>,
    waiting: AtomicUsize,
    crowded: AtomicBool,
}

impl Verifier {
    /// And what [`run`] takes from.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<MovedFile>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let verifier = Self {
            sender: Mutex::new(Some(sender)),
            waiting: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
        };
        (verifier, receiver)
    }

    /// It may be relied upon for one file more.
    pub(super) fn has_room(&self) -> bool {
        !self.crowded.load(Ordering::Relaxed) && self.waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    /// Leaves a file to it; false where it has ended.
    pub(super) fn take(&self, file: Arc<FileTask>, moved: u64) -> bool {
        let sender = self.sender.lock();
        let taken = sender
            .as_ref()
            .is_some_and(|s| s.send((file, moved)).is_ok());
        if taken {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        let mut sender = self.sender.lock();
        sender.take();
    }
}

/// Finishes what comes until [`Verifier::close`].
pub(super) async fn run(job: Arc<Job>, mut files: mpsc::UnboundedReceiver<MovedFile>) {
    let mut worker = Worker::new(Arc::clone(&job), WorkerSlot::default());
    while let Some((file, moved)) = files.recv().await {
        if !worker.try_finish(&file, moved).await {
            job.verifier.crowded.store(true, Ordering::Relaxed);
            job.queue.give_moved(file, moved);
        }
        job.verifier.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    worker.end().await;
}
