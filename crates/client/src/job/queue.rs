//! Work that waits: files from the planner, pieces of shared files, and what workers gave back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use godwit_proto::ByteRange;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};

use super::file::{Claim, FileJob};
use crate::{pieces::Cutter, plan::Planned};

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
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Inner {
    /// Files that several workers may move.
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
            changed: Arc::default(),
        }
    }

    /// The next thing to do, for a session that moved `rate_bps` before; `None` when there is nothing and will be nothing.
    /// After a [`Task::Begin`], [`Queue::decided`] must be called. Cancel-safe.
    pub(crate) async fn next(&self, cutter: &Cutter, rate_bps: Option<f64>) -> Option<Task> {
        loop {
            // Registered before looking, so that no change falls between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look(cutter, rate_bps) {
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

    fn look(&self, cutter: &Cutter, rate_bps: Option<f64>) -> Look {
        let mut inner = self.lock();
        inner.shared.retain(|file| file.is_open());
        // Large files first: they decide when the job ends.
        for file in &inner.shared {
            if let Some(piece) = file.claim(cutter, rate_bps) {
                return Look::Task(Task::Piece(Arc::clone(file), piece));
            }
        }
        if let Some(planned) = inner.returned.pop_front() {
            inner.undecided += 1;
            return Look::Task(Task::Begin(planned));
        }
        let mut later = false;
        for file in &inner.shared {
            match file.relieve() {
                Claim::Piece(piece) => {
                    return Look::Task(Task::Piece(Arc::clone(file), piece));
                }
                Claim::Later => later = true,
                Claim::Nothing => {}
            }
        }
        if inner.dry && inner.undecided == 0 && !later {
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

    /// A piece of a shared file is done, or given back in part.
    pub(crate) fn piece_done(&self) {
        self.changed.notify_waiters();
    }

    /// There is, or may yet be, something for a further worker.
    pub(crate) fn has_work(&self) -> bool {
        let inner = self.lock();
        !inner.dry
            || inner.undecided > 0
            || !inner.returned.is_empty()
            || inner.shared.iter().any(|f| f.has_work())
    }

    /// Told whenever [`Self::has_work`] may answer anew.
    pub(crate) fn changed(&self) -> &Arc<Notify> {
        &self.changed
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
