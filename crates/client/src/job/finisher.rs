//! Finishes large files on a session of its own, while those that moved them go on: a checksum
//! takes as long as reading the file does, and asking costs round trips.
//!
//! Where the server lets no further session in, workers finish their files themselves.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use super::{Job, file::FileJob, worker::Worker};
use crate::context::Place;

/// Files that wait to be finished, at most; each holds a file open.
const WAITING_MAX: usize = 16;

/// A file whose bytes are all there, and how many were moved.
pub(super) type Moved = (Arc<FileJob>, u64);

/// Where workers leave files that are to be finished.
pub(super) struct Finisher {
    sender: Mutex<Option<mpsc::UnboundedSender<Moved>>>,
    waiting: AtomicUsize,
    crowded: AtomicBool,
}

impl Finisher {
    /// And what [`run`] takes from.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Moved>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let finisher = Self {
            sender: Mutex::new(Some(sender)),
            waiting: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
        };
        (finisher, receiver)
    }

    /// It may be relied upon for one file more.
    pub(super) fn has_room(&self) -> bool {
        !self.crowded.load(Ordering::Relaxed) && self.waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    /// Leaves a file to it; false where it has ended.
    pub(super) fn take(&self, file: Arc<FileJob>, moved: u64) -> bool {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.take();
    }
}

/// Finishes what comes until [`Finisher::close`].
pub(super) async fn run(job: Arc<Job>, mut files: mpsc::UnboundedReceiver<Moved>) {
    let mut worker = Worker::new(Arc::clone(&job), Place::default());
    while let Some((file, moved)) = files.recv().await {
        if !worker.try_finish(&file, moved).await {
            job.finisher.crowded.store(true, Ordering::Relaxed);
            job.queue.give_moved(file, moved);
        }
        job.finisher.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    worker.close().await;
}
