//! Work that waits: files from the planner, pieces of shared files, and what workers gave back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use godwit_proto::ByteRange;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};

use super::file::FileJob;
use crate::{controller::Controller, plan::Planned};

/// Something for a worker to do.
pub(crate) enum Task {
    /// A file that nobody has begun.
    Begin(Planned),
    /// A piece of one that is shared.
    Piece(Arc<FileJob>, ByteRange),
}

pub(crate) struct Queue {
    planned: AsyncMutex<mpsc::Receiver<Planned>>,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    /// Shared files with octets that nobody has claimed.
    shared: VecDeque<Arc<FileJob>>,
    returned: VecDeque<Planned>,
    /// Files taken of which it is not known yet whether they will be shared. While there are some, nobody goes home.
    undecided: u32,
    /// The planner has finished.
    dry: bool,
}

impl Queue {
    pub(crate) fn new(planned: mpsc::Receiver<Planned>) -> Self {
        Self {
            planned: AsyncMutex::new(planned),
            inner: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// The next thing to do; `None` when there is nothing and will be nothing. After a [`Task::Begin`], [`Queue::decided`] must be called.
    pub(crate) async fn next(&self, controller: &Controller) -> Option<Task> {
        loop {
            // Registered before looking, so that no change falls between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look(controller) {
                Look::Task(task) => return Some(task),
                Look::Over => return None,
                Look::Wait { dry } => tokio::select! {
                    () = &mut changed => {}
                    planned = self.receive(), if !dry => self.accept(planned),
                },
            }
        }
    }

    async fn receive(&self) -> Option<Planned> {
        self.planned.lock().await.recv().await
    }

    /// A file from the planner joins those given back, so that one place hands them out.
    fn accept(&self, planned: Option<Planned>) {
        let mut inner = self.lock();
        match planned {
            Some(planned) => inner.returned.push_back(planned),
            None => inner.dry = true,
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    fn look(&self, controller: &Controller) -> Look {
        let mut inner = self.lock();
        // Large files first: they decide when the job ends.
        while let Some(file) = inner.shared.front() {
            if let Some(piece) = file.claim(controller) {
                return Look::Task(Task::Piece(Arc::clone(file), piece));
            }
            inner.shared.pop_front();
        }
        if let Some(planned) = inner.returned.pop_front() {
            inner.undecided += 1;
            return Look::Task(Task::Begin(planned));
        }
        if inner.dry && inner.undecided == 0 {
            return Look::Over;
        }
        Look::Wait { dry: inner.dry }
    }

    /// What came of a [`Task::Begin`]: shared with others, or not.
    pub(crate) fn decided(&self, shared: Option<&Arc<FileJob>>) {
        let mut inner = self.lock();
        inner.undecided = inner.undecided.saturating_sub(1);
        inner.shared.extend(shared.cloned());
        drop(inner);
        self.changed.notify_waiters();
    }

    /// A worker cannot do what it took. Counts as decided.
    pub(crate) fn give_back(&self, planned: Planned) {
        self.lock().returned.push_front(planned);
        self.decided(None);
    }

    /// A worker cannot move the piece it took.
    pub(crate) fn give_back_piece(&self, file: &Arc<FileJob>, piece: ByteRange) {
        file.unclaim(piece);
        self.lock().shared.push_back(Arc::clone(file));
        self.changed.notify_waiters();
    }

    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.dry && inner.returned.is_empty() && inner.shared.iter().all(|f| !f.has_unclaimed())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Look {
    Task(Task),
    Wait { dry: bool },
    Over,
}
