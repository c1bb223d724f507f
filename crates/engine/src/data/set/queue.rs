//! What waits for its turn on a set: a mover begins the next when the one before has succeeded.

use std::sync::Arc;

use godwit_proto::error::TransferFailure;

use super::{
    super::{
        Opening, lock,
        mover::Order,
        transfer::{Attachment, TransferShared},
    },
    ChannelSet, SetShared, lost_with_an_earlier_one,
};

/// Work that is no transfer and has its turn among them, see [`ChannelSet::queue_work`].
pub type Work = Box<dyn FnOnce(Turn) + Send>;

pub(super) enum Waiting {
    Transfer {
        transfer: Arc<TransferShared>,
        open: Opening,
    },
    Work(Work),
}

/// The right to act before what is queued behind; dropping it lets the next begin.
pub struct Turn(Arc<SetShared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.turn_over();
    }
}

impl ChannelSet {
    /// Runs `work` on a mover when all transfers that were queued before have succeeded; where one of them fails, it is dropped.
    /// What takes longer than a small file does must go on elsewhere, and take its [`Turn`] along.
    pub fn queue_work(&self, work: Work) {
        self.shared.enqueue(Waiting::Work(work));
    }
}

impl SetShared {
    /// Begins at once where nothing runs.
    pub(super) fn enqueue(self: &Arc<Self>, waiting: Waiting) {
        let (refused, begins) = {
            let mut inner = lock(&self.inner);
            if inner.broken {
                (Some(waiting), false)
            } else {
                inner.queue.push_back(waiting);
                (None, !inner.occupied)
            }
        };
        if let Some(Waiting::Transfer { transfer, .. }) = refused {
            transfer.fail(lost_with_an_earlier_one());
        }
        if begins {
            self.movers[0].give(Order::BeginNext(Arc::clone(self)));
        }
    }

    /// Nothing has to do with it any more whose turn it was.
    pub(in crate::data) fn turn_over(self: &Arc<Self>) {
        let waiting = {
            let mut inner = lock(&self.inner);
            inner.occupied = false;
            !inner.queue.is_empty()
        };
        if waiting {
            self.movers[0].give(Order::BeginNext(Arc::clone(self)));
        }
    }

    /// Begins what is next, unless something runs. On a mover.
    pub(in crate::data) fn begin_next(self: &Arc<Self>) {
        let next = {
            let mut inner = lock(&self.inner);
            if inner.occupied {
                return;
            }
            let Some(next) = inner.queue.pop_front() else {
                return;
            };
            if let Waiting::Transfer { transfer, .. } = &next {
                inner.current = Some(Arc::clone(transfer));
            }
            inner.occupied = true;
            next
        };
        match next {
            Waiting::Transfer { transfer, open } => self.begin_queued(&transfer, open),
            Waiting::Work(work) => work(Turn(Arc::clone(self))),
        }
    }

    fn begin_queued(self: &Arc<Self>, transfer: &Arc<TransferShared>, open: Opening) {
        // As in `ChannelSet::start`.
        let starter = Attachment::new(transfer);
        transfer.start();
        let begun = open().map_err(TransferFailure::from).and_then(|job| {
            transfer.open(job, self.layout);
            self.begin(transfer)
        });
        if let Err(why) = begun {
            transfer.fail(why);
        }
        drop(starter);
    }
}
