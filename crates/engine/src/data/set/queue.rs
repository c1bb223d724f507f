//! Transfers that wait for their turn: a mover begins the next when the one before has succeeded.

use std::sync::Arc;

use godwit_proto::error::TransferFailure;

use super::{
    super::{
        Opening, lock,
        mover::Order,
        transfer::{Attachment, TransferShared},
    },
    SetShared, lost_with_an_earlier_one,
};

/// A transfer that begins when those before it have succeeded.
pub(super) struct Waiting {
    pub(super) transfer: Arc<TransferShared>,
    pub(super) open: Opening,
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
        if let Some(Waiting { transfer, .. }) = refused {
            transfer.fail(lost_with_an_earlier_one());
        }
        if begins {
            self.movers[0].give(Order::BeginNext(Arc::clone(self)));
        }
    }

    /// No mover has to do with the transfer any more whose turn it was.
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

    /// Opens and begins the next transfer, unless one runs. On a mover.
    pub(in crate::data) fn begin_next(self: &Arc<Self>) {
        let Waiting { transfer, open } = {
            let mut inner = lock(&self.inner);
            if inner.occupied {
                return;
            }
            let Some(waiting) = inner.queue.pop_front() else {
                return;
            };
            inner.current = Some(Arc::clone(&waiting.transfer));
            inner.occupied = true;
            waiting
        };
        // As in `ChannelSet::start`.
        let starter = Attachment::new(&transfer);
        transfer.start();
        let begun = open().map_err(TransferFailure::from).and_then(|job| {
            transfer.open(job, self.layout);
            self.begin(&transfer)
        });
        if let Err(why) = begun {
            transfer.fail(why);
        }
        drop(starter);
    }
}
