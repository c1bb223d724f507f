//! Work that waits: files from the planner, pieces of shared files, and what workers gave back.

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use godwit_proto::ByteRange;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};

use super::{
    file_task::FileTask,
    piece_size::{PieceSizer, SessionRate},
};
use crate::{
    plan::PlanEntry,
    setting_target::{Target, WorkerSlot},
    transfer::{SMALL_BYTES_MAX, source_file::SourceFile},
};

/// Files taken from the planner at a time: one look at the channel for many small ones.
const RECEIVED_MAX: usize = 64;

/// Where a worker looks first. Large files decide when a job ends, so that one worker begins with
/// them while the others move small ones: neither the channels of the large nor the round trips of
/// the small stand alone at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Large files, while there are any.
    Large,
    /// Whatever comes.
    Any,
}

impl Priority {
    /// Of a worker: one of several begins with the large files.
    pub(crate) fn of(target: &Target, slot: WorkerSlot) -> Self {
        match target.setting.concurrency > 1 && slot.rank == 0 {
            true => Self::Large,
            false => Self::Any,
        }
    }
}

/// Something for a worker to do.
pub(crate) enum WorkItem {
    /// A file that no worker has begun.
    Begin(PlanEntry),
    /// A piece of one that has begun; `None`: all of it.
    Piece(Arc<FileTask>, Option<ByteRange>),
    /// A file that is to be finished, and the bytes moved for it.
    Finish(Arc<FileTask>, u64),
}

pub(crate) struct Queue {
    planned: AsyncMutex<mpsc::Receiver<PlanEntry>>,
    inner: Mutex<QueueState>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct QueueState {
    /// Files that several workers may move.
    shared: VecDeque<Arc<FileTask>>,
    returned: VecDeque<PlanEntry>,
    /// Files to be finished by the next idle worker.
    moved: Vec<(Arc<FileTask>, u64)>,
    /// Files taken of which it is not known yet whether they will be shared. While there are some,
    /// no worker exits.
    in_setup: u32,
    /// The planner has finished.
    plan_exhausted: bool,
    /// Nothing is handed out any more.
    closed: bool,
}

impl Queue {
    pub(crate) fn new(planned: mpsc::Receiver<PlanEntry>) -> Self {
        Self {
            planned: AsyncMutex::new(planned),
            inner: Mutex::default(),
            changed: Arc::default(),
        }
    }

    /// The next thing to do, for a session of `rate`; `None` when there is nothing and will be
    /// nothing. `from` says where among the files that wait it looks first. After a
    /// [`WorkItem::Begin`], [`Queue::setup_done`] must be called. Cancel-safe.
    pub(crate) async fn next(
        &self,
        sizer: &PieceSizer,
        rate: SessionRate,
        from: Priority,
    ) -> Option<WorkItem> {
        loop {
            // Registered before looking, so that no change falls between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look(sizer, rate, from) {
                ControlFlow::Break(item) => return item,
                ControlFlow::Continue(plan_exhausted) => tokio::select! {
                    () = &mut changed => {}
                    planned = self.receive(), if !plan_exhausted => self.accept(planned),
                },
            }
        }
    }

    /// The next file that `fits`, or that could not be planned, for a session that has such files
    /// in flight. `None` where something else waits to be done, or nothing more will come. After
    /// `Some`, [`Queue::setup_done`] must be called. Cancel-safe.
    pub(crate) async fn next_small(
        &self,
        from: Priority,
        fits: impl Fn(&SourceFile) -> bool,
    ) -> Option<PlanEntry> {
        loop {
            // Registered before looking, so that no change falls between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look_small(from, &fits) {
                ControlFlow::Break(small) => return small,
                ControlFlow::Continue(()) => tokio::select! {
                    () = &mut changed => {}
                    planned = self.receive() => self.accept(planned),
                },
            }
        }
    }

    fn look_small(
        &self,
        from: Priority,
        fits: impl Fn(&SourceFile) -> bool,
    ) -> ControlFlow<Option<PlanEntry>> {
        let mut inner = self.lock();
        if inner.closed {
            return ControlFlow::Break(None);
        }
        let is_pipelinable = |planned: &PlanEntry| match planned {
            PlanEntry::File(source_file) => fits(source_file),
            PlanEntry::Failed { .. } => true,
        };
        let small = match from {
            Priority::Large if inner.returned.iter().any(|p| !is_pipelinable(p)) => None,
            _ => inner.returned.iter().position(is_pipelinable),
        };
        if let Some(small) = small.and_then(|at| inner.returned.remove(at)) {
            inner.in_setup += 1;
            return ControlFlow::Break(Some(small));
        }
        // What waits is large, then.
        let large_waits = !inner.returned.is_empty();
        if large_waits || inner.plan_exhausted || inner.shared.iter().any(|file| file.has_work()) {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }

    /// Empty when the planner has finished.
    async fn receive(&self) -> Vec<PlanEntry> {
        let mut planned = Vec::new();
        let mut receiver = self.planned.lock().await;
        receiver.recv_many(&mut planned, RECEIVED_MAX).await;
        planned
    }

    /// Files from the planner join those given back, so that one place hands them out.
    fn accept(&self, planned: Vec<PlanEntry>) {
        let mut inner = self.lock();
        inner.plan_exhausted |= planned.is_empty();
        inner.returned.extend(planned);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// What a worker can do now (`None`: nothing more will come), or whether the planner has
    /// finished.
    fn look(
        &self,
        sizer: &PieceSizer,
        rate: SessionRate,
        from: Priority,
    ) -> ControlFlow<Option<WorkItem>, bool> {
        let mut inner = self.lock();
        if inner.closed {
            return ControlFlow::Break(None);
        }
        if let Some((file, moved)) = inner.moved.pop() {
            return ControlFlow::Break(Some(WorkItem::Finish(file, moved)));
        }
        inner.shared.retain(|file| file.is_open());
        // Large files first: they decide when the job ends.
        for file in &inner.shared {
            if let Some(piece) = file.claim(sizer, rate) {
                let item = WorkItem::Piece(Arc::clone(file), Some(piece));
                return ControlFlow::Break(Some(item));
            }
        }
        let first = inner.first(from);
        if let Some(planned) = inner.returned.remove(first) {
            inner.in_setup += 1;
            return ControlFlow::Break(Some(WorkItem::Begin(planned)));
        }
        let mut later = false;
        for file in &inner.shared {
            if let Some(piece) = file.steal_range() {
                let item = WorkItem::Piece(Arc::clone(file), Some(piece));
                return ControlFlow::Break(Some(item));
            }
            later |= file.has_work();
        }
        if inner.plan_exhausted && inner.in_setup == 0 && !later {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(inner.plan_exhausted)
    }

    /// What [`Self::next`] would give now, if it is of a file that `fits`: for a session that still
    /// moves something else. After a [`WorkItem::Begin`], [`Queue::setup_done`] must be called.
    pub(crate) fn ahead(
        &self,
        sizer: &PieceSizer,
        rate: SessionRate,
        from: Priority,
        fits: impl Fn(&SourceFile) -> bool,
    ) -> Option<WorkItem> {
        let mut inner = self.lock();
        if inner.closed || !inner.moved.is_empty() {
            return None;
        }
        for file in &inner.shared {
            if file.has_unclaimed() {
                let file = Arc::clone(file);
                let piece = Some(&file).filter(|file| fits(&file.source_file));
                let piece = piece.and_then(|file| file.claim(sizer, rate))?;
                return Some(WorkItem::Piece(file, Some(piece)));
            }
        }
        let at = inner.first(from);
        match inner.returned.get(at) {
            Some(PlanEntry::File(source_file)) if fits(source_file) => {
                inner.in_setup += 1;
                inner.returned.remove(at).map(WorkItem::Begin)
            }
            _ => None,
        }
    }

    /// A file is to be finished by the next idle worker.
    pub(crate) fn give_moved(&self, file: Arc<FileTask>, moved: u64) {
        self.lock().moved.push((file, moved));
        self.changed.notify_waiters();
    }

    /// What came of a [`WorkItem::Begin`]: shared with others, or not.
    pub(crate) fn setup_done(&self, shared: Option<&Arc<FileTask>>) {
        let mut inner = self.lock();
        inner.in_setup = inner.in_setup.saturating_sub(1);
        inner.shared.extend(shared.cloned());
        drop(inner);
        self.changed.notify_waiters();
    }

    /// A worker cannot do what it took. Counts as decided.
    pub(crate) fn give_back(&self, planned: PlanEntry) {
        self.lock().returned.push_front(planned);
        self.setup_done(None);
    }

    /// A file was decided, and is to be begun another time.
    pub(crate) fn begin_again(&self, planned: PlanEntry) {
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
        let has_work = !inner.plan_exhausted
            || inner.in_setup > 0
            || !inner.returned.is_empty()
            || !inner.moved.is_empty()
            || inner.shared.iter().any(|f| f.has_work());
        has_work && !inner.closed
    }

    /// Hands nothing out any more, whatever waits: workers that wait exit.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// No worker takes anything any more: the planner must not wait for room.
    pub(crate) async fn end(&self) {
        self.planned.lock().await.close();
    }

    /// A file that `fits` waits.
    pub(crate) fn has_file(&self, fits: impl Fn(&SourceFile) -> bool) -> bool {
        let inner = self.lock();
        let waits = |planned: &PlanEntry| match planned {
            PlanEntry::File(source_file) => fits(source_file),
            PlanEntry::Failed { .. } => false,
        };
        !inner.closed && inner.returned.iter().any(waits)
    }

    /// Files wait that no worker has begun.
    pub(crate) fn has_files(&self) -> bool {
        !self.lock().returned.is_empty()
    }

    /// Notified whenever [`Self::has_work`] may answer again.
    pub(crate) fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock()
    }
}

impl QueueState {
    /// Where the file waits that is begun next.
    fn first(&self, from: Priority) -> usize {
        let large = match from {
            Priority::Large => self.returned.iter().position(is_large),
            Priority::Any => None,
        };
        large.unwrap_or(0)
    }
}

fn is_large(planned: &PlanEntry) -> bool {
    matches!(planned, PlanEntry::File(file) if file.size.is_none_or(|size| size > SMALL_BYTES_MAX))
}
