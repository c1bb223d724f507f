//! The transfers and other work of a set in order: those that have begun and are not over, then
//! those that wait.
//!
//! Each channel carries the transfers one after the other, and does its part in one before other
//! channels do theirs. So several may have begun: new connections and limits belong to the first of
//! them, and the others follow on the channels that are free of it.

use std::{collections::VecDeque, sync::Arc};

use crate::data::{job::JobOpener, transfer::shared::TransferShared};

/// Work that is no transfer and has its turn among them, see
/// [`ChannelSet::queue_work`](crate::data::ChannelSet::queue_work).
pub type QueuedWork = Box<dyn FnOnce(QueueTurn) + Send>;

/// The right to act before what is queued behind; dropping it lets the next begin.
pub struct QueueTurn(Arc<dyn WorkEvents>);

impl QueueTurn {
    pub(crate) fn new(set: Arc<dyn WorkEvents>) -> Self {
        Self(set)
    }
}

impl Drop for QueueTurn {
    fn drop(&mut self) {
        self.0.work_leaves();
    }
}

/// What queued work tells the set that runs it.
pub(crate) trait WorkEvents: Send + Sync {
    /// The work that runs is done.
    fn work_leaves(&self);
}

/// Transfers that may have begun at a time: each holds a file open. Far away a channel that repeats
/// a lost segment keeps the others waiting for a round trip at least, and small files are soon
/// sent.
const BEGUN_MAX: usize = 32;

pub(crate) enum Waiting {
    Transfer {
        transfer: Arc<TransferShared>,
        open: JobOpener,
        /// It may begin while those before it are not over.
        follows: bool,
    },
    Work {
        work: QueuedWork,
        /// Transfers behind it that follow may begin before it.
        passable: bool,
    },
}

enum QueueEntry {
    Begun {
        transfer: Arc<TransferShared>,
        /// Its source or sink is open: channels may carry it.
        open: bool,
        /// It has a result; channels have yet to let go of it.
        over: bool,
    },
    Working {
        passable: bool,
    },
    Waiting(Waiting),
}

/// What begins next.
pub(crate) enum Next {
    Transfer {
        transfer: Arc<TransferShared>,
        open: JobOpener,
        /// Others are before it.
        behind: bool,
    },
    Work(QueuedWork),
}

#[derive(Default)]
pub(crate) struct TransferQueue(VecDeque<QueueEntry>);

impl TransferQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.0.push_back(QueueEntry::Waiting(waiting));
    }

    /// Begins at once. Only where the line is empty.
    pub(crate) fn begin(&mut self, transfer: &Arc<TransferShared>) {
        self.0.push_back(QueueEntry::begun(transfer));
    }

    /// What may begin now, marked as begun. `free`: a channel is, that is through with all that has
    /// begun.
    pub(crate) fn next(&mut self, free: bool) -> Option<Next> {
        let mut last = None;
        let mut begun = 0;
        for at in 0..self.0.len() {
            let waiting = match &self.0[at] {
                QueueEntry::Begun { open: false, .. } | QueueEntry::Working { passable: false } => {
                    return None;
                }
                QueueEntry::Begun { transfer, .. } => {
                    last = Some(transfer);
                    begun += 1;
                    continue;
                }
                QueueEntry::Working { passable: true } => continue,
                QueueEntry::Waiting(waiting) => waiting,
            };
            let may = match waiting {
                Waiting::Work { .. } if at == 0 => true,
                Waiting::Work { passable: true, .. } => continue,
                Waiting::Work { .. } => false,
                Waiting::Transfer { .. } if at == 0 => true,
                Waiting::Transfer { follows, .. } => {
                    *follows
                        && begun < BEGUN_MAX
                        && last.is_none_or(|last| free && last.lets_follow())
                }
            };
            return may.then(|| self.begin_at(at, begun > 0)).flatten();
        }
        None
    }

    fn begin_at(&mut self, at: usize, behind: bool) -> Option<Next> {
        let entry = self.0.get_mut(at)?;
        let begun = match entry {
            QueueEntry::Waiting(Waiting::Transfer { transfer, .. }) => QueueEntry::begun(transfer),
            QueueEntry::Waiting(Waiting::Work { passable, .. }) => QueueEntry::Working {
                passable: *passable,
            },
            QueueEntry::Begun { .. } | QueueEntry::Working { .. } => return None,
        };
        match std::mem::replace(entry, begun) {
            QueueEntry::Waiting(Waiting::Transfer { transfer, open, .. }) => Some(Next::Transfer {
                transfer,
                open,
                behind,
            }),
            QueueEntry::Waiting(Waiting::Work { work, .. }) => Some(Next::Work(work)),
            QueueEntry::Begun { .. } | QueueEntry::Working { .. } => None,
        }
    }

    /// Channels may carry it.
    pub(crate) fn opened(&mut self, transfer: &TransferShared) {
        if let Some(QueueEntry::Begun { open, .. }) = self.find(transfer) {
            *open = true;
        }
    }

    /// It has a result. The one that is the first now, where another was.
    pub(crate) fn over(&mut self, transfer: &TransferShared) -> Option<Arc<TransferShared>> {
        let was_first = self.is_first(transfer);
        if let Some(QueueEntry::Begun { over, .. }) = self.find(transfer) {
            *over = true;
        }
        self.first().filter(|_| was_first).cloned()
    }

    /// No channel carries it any more, and it has a result.
    pub(crate) fn leaves(&mut self, transfer: &TransferShared) {
        self.0.retain(|entry| !entry.is_of(transfer));
    }

    /// The work that runs is done.
    pub(crate) fn work_leaves(&mut self) {
        let working = |entry: &QueueEntry| matches!(entry, QueueEntry::Working { .. });
        if let Some(at) = self.0.iter().position(working) {
            self.0.remove(at);
        }
    }

    /// All that has begun and is not over, in order.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Arc<TransferShared>> {
        self.0.iter().filter_map(|entry| match entry {
            QueueEntry::Begun {
                transfer,
                over: false,
                ..
            } => Some(transfer),
            _ => None,
        })
    }

    pub(crate) fn first(&self) -> Option<&Arc<TransferShared>> {
        self.running().next()
    }

    fn is_first(&self, transfer: &TransferShared) -> bool {
        self.first()
            .is_some_and(|first| std::ptr::eq(&raw const **first, transfer))
    }

    /// It has begun, and others before it are not over.
    pub(crate) fn is_behind(&self, transfer: &TransferShared) -> bool {
        let mut running = self.running().skip(1);
        running.any(|other| std::ptr::eq(&raw const **other, transfer))
    }

    /// What a channel carries that is through with `transfer`.
    pub(crate) fn after(&self, transfer: &TransferShared) -> Option<&Arc<TransferShared>> {
        let at = self.0.iter().position(|entry| entry.is_of(transfer));
        let mut behind = self.0.iter().skip(at.map_or(0, |at| at + 1));
        behind.find_map(|entry| match entry {
            QueueEntry::Begun {
                transfer,
                open: true,
                over: false,
            } => Some(transfer),
            _ => None,
        })
    }

    /// Something waits that may begin.
    pub(crate) fn has_waiting(&self) -> bool {
        (self.0.iter()).any(|entry| matches!(entry, QueueEntry::Waiting(_)))
    }

    /// A transfer waits.
    pub(crate) fn has_waiting_transfer(&self) -> bool {
        let waits =
            |entry: &QueueEntry| matches!(entry, QueueEntry::Waiting(Waiting::Transfer { .. }));
        self.0.iter().any(waits)
    }

    /// Its transfers, begun or not. Work that has not begun is dropped.
    pub(crate) fn into_transfers(self) -> impl Iterator<Item = Arc<TransferShared>> {
        self.0.into_iter().filter_map(|entry| match entry {
            QueueEntry::Begun { transfer, .. }
            | QueueEntry::Waiting(Waiting::Transfer { transfer, .. }) => Some(transfer),
            QueueEntry::Working { .. } | QueueEntry::Waiting(Waiting::Work { .. }) => None,
        })
    }

    fn find(&mut self, transfer: &TransferShared) -> Option<&mut QueueEntry> {
        self.0.iter_mut().find(|entry| entry.is_of(transfer))
    }
}

impl QueueEntry {
    fn begun(transfer: &Arc<TransferShared>) -> Self {
        Self::Begun {
            transfer: Arc::clone(transfer),
            open: false,
            over: false,
        }
    }

    fn is_of(&self, transfer: &TransferShared) -> bool {
        match self {
            Self::Begun {
                transfer: other, ..
            } => std::ptr::eq(&raw const **other, transfer),
            Self::Working { .. } | Self::Waiting(_) => false,
        }
    }
}
