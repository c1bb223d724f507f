//! What waits for its turn on a set: a mover begins the next when the one before has succeeded, or,
//! where it may follow, when a channel is through with that.

use std::sync::Arc;

use godwit_proto::error::TransferFailure;

use crate::data::{
    JobOpener, lock,
    mover::MoverCommand,
    set::{
        ChannelSet, SetShared, lost_with_earlier_transfer,
        queue::{Next, Waiting},
    },
    transfer::{TransferHandle, TransferShared},
};

/// Work that is no transfer and has its turn among them, see [`ChannelSet::queue_work`].
pub type QueuedWork = Box<dyn FnOnce(QueueTurn) + Send>;

/// The right to act before what is queued behind; dropping it lets the next begin.
pub struct QueueTurn(Arc<SetShared>);

impl Drop for QueueTurn {
    fn drop(&mut self) {
        self.0.work_leaves();
    }
}

impl ChannelSet {
    /// Runs `work` on a mover when all transfers that were queued before have succeeded; where one
    /// of them fails, it is dropped. What takes longer than a small file does must go on elsewhere,
    /// and take its [`QueueTurn`] along. `passable`: transfers that are queued behind it and may
    /// follow others need not wait for it either.
    pub fn queue_work(&self, work: QueuedWork, passable: bool) {
        self.shared.enqueue(Waiting::Work { work, passable });
    }
}

impl SetShared {
    /// Begins at once where nothing is before it, or where a channel is through with what is. Else
    /// whoever is done before it asks, and a mover need not be woken for each.
    pub(crate) fn enqueue(self: &Arc<Self>, waiting: Waiting) {
        let (refused, begins) = {
            let mut inner = lock(&self.inner);
            if inner.broken {
                (Some(waiting), false)
            } else {
                let follows = !inner.idle.is_empty() && !inner.queue.has_waiting_transfer();
                let begins = inner.queue.is_empty() || follows;
                inner.queue.push(waiting);
                (None, begins)
            }
        };
        if let Some(Waiting::Transfer { transfer, .. }) = refused {
            transfer.ends_with_set(lost_with_earlier_transfer());
        }
        if begins {
            self.ask_for_next();
        }
    }

    /// A mover looks whether something may begin.
    pub(crate) fn ask_for_next(self: &Arc<Self>) {
        self.movers[0].give(MoverCommand::BeginNext(Arc::clone(self)));
    }

    /// Nothing has to do with it any more.
    pub(crate) fn transfer_leaves(self: &Arc<Self>, transfer: &TransferShared) {
        let waiting = {
            let mut inner = lock(&self.inner);
            inner.queue.leaves(transfer);
            inner.queue.has_waiting()
        };
        if waiting {
            self.ask_for_next();
        }
    }

    fn work_leaves(self: &Arc<Self>) {
        let waiting = {
            let mut inner = lock(&self.inner);
            inner.queue.work_leaves();
            inner.queue.has_waiting()
        };
        if waiting {
            self.ask_for_next();
        }
    }

    /// Begins what may begin. On a mover.
    pub(crate) fn begin_next(self: &Arc<Self>) {
        loop {
            let next = {
                let mut inner = lock(&self.inner);
                // Other channels for the next send are made when none carries anything.
                let free = inner.wanted.is_none() && inner.idle.iter().any(|idle| idle.used);
                inner.queue.next(free)
            };
            match next {
                Some(Next::Transfer {
                    transfer,
                    open,
                    behind,
                }) => self.begin_queued(&transfer, open, behind),
                Some(Next::Work(work)) => work(QueueTurn(Arc::clone(self))),
                None => return,
            }
        }
    }

    fn begin_queued(
        self: &Arc<Self>,
        transfer: &Arc<TransferShared>,
        open: JobOpener,
        behind: bool,
    ) {
        // As in `ChannelSet::start`.
        let starter = TransferHandle::new(transfer);
        transfer.start();
        let begun = open().map_err(TransferFailure::from).and_then(|job| {
            transfer.open(job, self.layout);
            match behind {
                true => self.follow(transfer),
                false => self.begin(transfer),
            }
        });
        if let Err(why) = begun {
            transfer.fail(why);
        }
        drop(starter);
    }

    /// Lets the channels carry it that are through with what is before it; the others come when
    /// they are.
    fn follow(self: &Arc<Self>, transfer: &Arc<TransferShared>) -> Result<(), TransferFailure> {
        let mut inner = lock(&self.inner);
        if inner.broken {
            return Err(lost_with_earlier_transfer());
        }
        let mut idle = std::mem::take(&mut inner.idle);
        if transfer.is_send() {
            let free = u32::try_from(idle.len()).unwrap_or(u32::MAX);
            transfer.follow(inner.open, inner.open.saturating_sub(free));
            idle.retain(|channel| transfer.sender_joins(channel.stripe));
        }
        // As in `begin`: at the last tick there may have been nothing to watch.
        let watch = (0, MoverCommand::Watch(Arc::downgrade(self)));
        let assigned = idle.into_iter().map(|channel| {
            let handle = TransferHandle::new(transfer);
            let mover = channel.mover;
            let order = MoverCommand::Assign { channel, handle };
            (mover, order)
        });
        self.give_all([watch].into_iter().chain(assigned).collect());
        inner.queue.opened(transfer);
        Ok(())
    }
}
