//! Transfers that were begun before their command's turn.

use std::{collections::VecDeque, sync::Arc};

use godwit_proto::pi::server::TransferRequest;

use crate::{
    ahead::{self, Ahead},
    data_channels::DataChannels,
    durability::Committer,
    transfers::{RunningTransfer, TransferStep},
};

/// What the interpreter has foreseen and not started: opened ahead, and waiting on the data channels for the end of those before.
#[derive(Default)]
pub(crate) struct Foreseen {
    /// Told and not yet queued.
    told: Vec<TransferRequest>,
    waiting: VecDeque<(Arc<Ahead>, RunningTransfer)>,
    /// Forgotten, and not yet at their end.
    ending: VecDeque<RunningTransfer>,
}

impl Foreseen {
    pub(crate) fn add(&mut self, request: TransferRequest) {
        self.told.push(request);
    }

    /// Queues what was told since the last call.
    pub(crate) fn queue(&mut self, committer: &Arc<Committer>, channels: &DataChannels) {
        if self.told.is_empty() {
            return;
        }
        let batch: Vec<_> = self.told.drain(..).map(Ahead::new).collect();
        for ahead in &batch {
            let transfer = RunningTransfer::queued(ahead, committer, channels);
            self.waiting.push_back((Arc::clone(ahead), transfer));
        }
        ahead::prepare(batch, &committer.storage());
    }

    /// The first, which must be what was foreseen; `None` where nothing was begun.
    pub(crate) fn start(&mut self, request: &TransferRequest) -> Option<RunningTransfer> {
        if self.waiting.is_empty() && !self.told.is_empty() {
            self.told.remove(0);
        }
        let (ahead, transfer) = self.waiting.pop_front()?;
        debug_assert_eq!(ahead.request().kind, request.kind);
        Some(transfer)
    }

    /// Ends all of them: [`Self::settle`] waits for it.
    pub(crate) fn forget(&mut self) {
        self.told.clear();
        for (ahead, mut transfer) in self.waiting.drain(..) {
            ahead.forget();
            transfer.abort();
            self.ending.push_back(transfer);
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Where something was forgotten, waits until none of it touches a file any more. Else never ends, and lets those whose octets
    /// have moved be made durable before their turn. Cancel-safe.
    pub(crate) async fn settle(&mut self, channels: &DataChannels) {
        if self.ending.is_empty() {
            for (_, transfer) in &mut self.waiting {
                transfer.move_on(channels).await;
            }
            return std::future::pending().await;
        }
        while let Some(transfer) = self.ending.front_mut() {
            while let TransferStep::Ready { .. } = transfer.next(channels).await {}
            self.ending.pop_front();
        }
    }
}
