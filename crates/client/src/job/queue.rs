//! Work that waits: files from the planner, pieces of shared files, and what workers gave back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use godwit_proto::ByteRange;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};

use super::file::{Claim, FileJob};
use crate::{
    pieces::{Cutter, Speed},
    pipelining::SMALL_BYTES_MAX,
    plan::{Item, Planned},
};

/// Files taken from the planner at a time: one look at the channel for many small ones.
const RECEIVED_MAX: usize = 64;

/// Where a worker looks first. Large files decide when a job ends, so that one worker begins with
/// them while the others move small ones: neither the channels of the large nor the round trips of
/// the small stand alone at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Large files, while there are any.
    Large,
    /// Whatever comes.
    Any,
}

/// Something for a worker to do.
pub(crate) enum Task {
    /// A file that nobody has begun.
    Begin(Planned),
    /// A piece of one that is shared.
    Piece(Arc<FileJob>, ByteRange),
    /// A file that is to be finished, and the bytes moved for it.
    Finish(Arc<FileJob>, u64),
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
    /// Files to be finished by whoever has time.
    moved: Vec<(Arc<FileJob>, u64)>,
    /// Files taken of which it is not known yet whether they will be shared. While there are some,
    /// nobody goes home.
    undecided: u32,
    /// The planner has finished.
    dry: bool,
    /// Nothing is handed out any more.
    closed: bool,
}

impl Queue {
    pub(crate) fn new(planned: mpsc::Receiver<Planned>) -> Self {
        Self {
            planned: AsyncMutex::new(planned),
            inner: Mutex::default(),
            changed: Arc::default(),
        }
    }

    /// The next thing to do, for a session of `speed`; `None` when there is nothing and will be
    /// nothing. `from` says where among the files that wait it looks first. After a
    /// [`Task::Begin`], [`Queue::decided`] must be called. Cancel-safe.
    pub(crate) async fn next(&self, cutter: &Cutter, speed: Speed, from: End) -> Option<Task> {
        loop {
            // Registered before looking, so that no change falls between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look(cutter, speed, from) {
                Look::Task(task) => return Some(task),
                Look::Over => return None,
                Look::Wait { dry } => tokio::select! {
                    () = &mut changed => {}
                    planned = self.receive(), if !dry => self.accept(planned),
                },
            }
        }
    }

    /// The next file that `fits`, or that could not be planned, for a session that has such files
    /// in flight. `None` where something else waits to be done, or nothing more will come. After
    /// `Some`, [`Queue::decided`] must be called. Cancel-safe.
    pub(crate) async fn next_small(
        &self,
        from: End,
        fits: impl Fn(&Item) -> bool,
    ) -> Option<Planned> {
        loop {
            // Registered before looking, so that no change falls between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look_small(from, &fits) {
                Look::Task(small) => return Some(small),
                Look::Over => return None,
                Look::Wait { .. } => tokio::select! {
                    () = &mut changed => {}
                    planned = self.receive() => self.accept(planned),
                },
            }
        }
    }

    fn look_small(&self, from: End, fits: impl Fn(&Item) -> bool) -> Look<Planned> {
        let mut inner = self.lock();
        if inner.closed {
            return Look::Over;
        }
        let is_small = |planned: &Planned| match planned {
            Planned::File(item) => fits(item),
            Planned::Failed { .. } => true,
        };
        let small = match from {
            End::Large if inner.returned.iter().any(|p| !is_small(p)) => None,
            _ => inner.returned.iter().position(is_small),
        };
        if let Some(small) = small.and_then(|at| inner.returned.remove(at)) {
            inner.undecided += 1;
            return Look::Task(small);
        }
        // What waits is large, then.
        let large_waits = !inner.returned.is_empty();
        if large_waits || inner.dry || inner.shared.iter().any(|file| file.has_work()) {
            return Look::Over;
        }
        Look::Wait { dry: false }
    }

    /// Empty when the planner has finished.
    async fn receive(&self) -> Vec<Planned> {
        let mut planned = Vec::new();
        let mut receiver = self.planned.lock().await;
        receiver.recv_many(&mut planned, RECEIVED_MAX).await;
        planned
    }

    /// Files from the planner join those given back, so that one place hands them out.
    fn accept(&self, planned: Vec<Planned>) {
        let mut inner = self.lock();
        inner.dry |= planned.is_empty();
        inner.returned.extend(planned);
        drop(inner);
        self.changed.notify_waiters();
    }

    fn look(&self, cutter: &Cutter, speed: Speed, from: End) -> Look<Task> {
        let mut inner = self.lock();
        if inner.closed {
            return Look::Over;
        }
        if let Some((file, moved)) = inner.moved.pop() {
            return Look::Task(Task::Finish(file, moved));
        }
        inner.shared.retain(|file| file.is_open());
        // Large files first: they decide when the job ends.
        for file in &inner.shared {
            if let Some(piece) = file.claim(cutter, speed) {
                return Look::Task(Task::Piece(Arc::clone(file), piece));
            }
        }
        let first = inner.first(from);
        if let Some(planned) = inner.returned.remove(first) {
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

    /// What [`Self::next`] would give now, if it is of a file that `fits`: for a session that still
    /// moves something else. After a [`Task::Begin`], [`Queue::decided`] must be called.
    pub(crate) fn ahead(
        &self,
        cutter: &Cutter,
        speed: Speed,
        from: End,
        fits: impl Fn(&Item) -> bool,
    ) -> Option<Task> {
        let mut inner = self.lock();
        if inner.closed || !inner.moved.is_empty() {
            return None;
        }
        for file in &inner.shared {
            if file.has_unclaimed() {
                let file = Arc::clone(file);
                let piece = Some(&file).filter(|file| fits(&file.item));
                let piece = piece.and_then(|file| file.claim(cutter, speed))?;
                return Some(Task::Piece(file, piece));
            }
        }
        let at = inner.first(from);
        match inner.returned.get(at) {
            Some(Planned::File(item)) if fits(item) => {
                inner.undecided += 1;
                inner.returned.remove(at).map(Task::Begin)
            }
            _ => None,
        }
    }

    /// A file is to be finished by whoever has time.
    pub(crate) fn give_moved(&self, file: Arc<FileJob>, moved: u64) {
        self.lock().moved.push((file, moved));
        self.changed.notify_waiters();
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

    /// A file was decided, and is to be begun another time.
    pub(crate) fn begin_again(&self, planned: Planned) {
        self.lock().returned.push_front(planned);
        self.changed.notify_waiters();
    }

    /// A piece of a shared file is done, or given back in part.
    pub(crate) fn piece_done(&self) {
        self.changed.notify_waiters();
    }

    /// There is, or may yet be, something for a further worker.
    pub(crate) fn has_work(&self) -> bool {
        let inner = self.lock();
        let has_work = !inner.dry
            || inner.undecided > 0
            || !inner.returned.is_empty()
            || !inner.moved.is_empty()
            || inner.shared.iter().any(|f| f.has_work());
        has_work && !inner.closed
    }

    /// Hands nothing out any more, whatever waits: those that wait for something else go home.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// Nobody takes anything any more: the planner does not wait for room.
    pub(crate) async fn end(&self) {
        self.planned.lock().await.close();
    }

    /// Files wait that nobody has begun.
    pub(crate) fn has_files(&self) -> bool {
        !self.lock().returned.is_empty()
    }

    /// Told whenever [`Self::has_work`] may answer anew.
    pub(crate) fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Where the file waits that is begun next.
    fn first(&self, from: End) -> usize {
        let large = match from {
            End::Large => self.returned.iter().position(is_large),
            End::Any => None,
        };
        large.unwrap_or(0)
    }
}

enum Look<T> {
    Task(T),
    Wait { dry: bool },
    Over,
}

fn is_large(planned: &Planned) -> bool {
    matches!(planned, Planned::File(item) if item.size.is_none_or(|s| s > SMALL_BYTES_MAX))
}
