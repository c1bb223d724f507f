//! Transfers and requests that start before the turn of their commands.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_proto::pi::server::{Request, TransferRequest};

use crate::{
    access::turns::AccountTurns,
    requests::{PendingRequest, WorkDone},
    storage::durability::Committer,
    transfers::{
        RunningTransfer, TransferStep,
        data_channels::DataChannels,
        preopen::{self, PreopenedTransfer},
    },
};

/// Transfers and requests that the interpreter expects: opened early, and queued on the data
/// channels in order. So a mover continues from one small file to the next, and renames it, without
/// the session.
#[derive(Default)]
pub(crate) struct SpeculativeWork {
    waiting: VecDeque<SpeculativeItem>,
    /// To be opened early.
    fresh: Vec<Arc<PreopenedTransfer>>,
    /// Whether the source of the next rename exists.
    source: Option<Arc<AtomicBool>>,
    /// Dropped work that has not ended yet.
    ending: VecDeque<Ending>,
}

enum SpeculativeItem {
    Transfer(Arc<PreopenedTransfer>, Box<RunningTransfer>),
    Request(PendingRequest, WorkDone),
}

enum Ending {
    Transfer(Box<RunningTransfer>),
    Request(WorkDone),
}

impl SpeculativeWork {
    pub(crate) fn add_transfer(
        &mut self,
        request: TransferRequest,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
        channels: &mut DataChannels,
    ) {
        let preopened = PreopenedTransfer::new(request);
        let transfer = RunningTransfer::queued(&preopened, committer, turns, channels);
        self.fresh.push(Arc::clone(&preopened));
        self.waiting
            .push_back(SpeculativeItem::Transfer(preopened, Box::new(transfer)));
    }

    pub(crate) fn add_request(
        &mut self,
        request: Request,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
        channels: &DataChannels,
    ) {
        let (pending, over) = match request {
            Request::CheckExists(path) => {
                let found = Arc::new(AtomicBool::new(false));
                self.source = Some(Arc::clone(&found));
                let tell = move |ok| found.store(ok, Ordering::Relaxed);
                let request = Request::CheckExists(path);
                PendingRequest::queued(request, committer, turns, channels, || true, tell)
            }
            Request::Rename { .. } => {
                // Without a check of the source, that check has had its turn, and it exists.
                let source = self.source.take();
                let may = move || source.is_none_or(|found| found.load(Ordering::Relaxed));
                PendingRequest::queued(request, committer, turns, channels, may, |_| ())
            }
            other => PendingRequest::queued(other, committer, turns, channels, || true, |_| ()),
        };
        self.waiting
            .push_back(SpeculativeItem::Request(pending, over));
    }

    /// The requests whose turn has not come.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.waiting.iter().filter_map(|waiting| match waiting {
            SpeculativeItem::Request(pending, _) => pending.request(),
            SpeculativeItem::Transfer(..) => None,
        })
    }

    /// The transfers whose turn has not come.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = &TransferRequest> {
        self.waiting.iter().filter_map(|waiting| match waiting {
            SpeculativeItem::Transfer(preopened, _) => Some(preopened.request()),
            SpeculativeItem::Request(..) => None,
        })
    }

    /// Opens files that were added since the last call, if they may be opened early.
    pub(crate) fn prepare(&mut self, committer: &Committer) {
        if !self.fresh.is_empty() {
            preopen::prepare(std::mem::take(&mut self.fresh), &committer.storage());
        }
    }

    /// The first item, which must be `request`; `None` if there is none.
    pub(crate) fn start(&mut self, request: &TransferRequest) -> Option<RunningTransfer> {
        match self.waiting.pop_front()? {
            SpeculativeItem::Transfer(preopened, transfer) => {
                debug_assert_eq!(preopened.request().kind, request.kind);
                Some(*transfer)
            }
            other @ SpeculativeItem::Request(..) => {
                debug_assert!(false, "a request was expected");
                self.waiting.push_front(other);
                None
            }
        }
    }

    /// As [`Self::start`], of a request.
    pub(crate) fn ask(&mut self, request: &Request) -> Option<PendingRequest> {
        match self.waiting.pop_front()? {
            SpeculativeItem::Request(pending, _) => {
                debug_assert!(pending.is_of(request));
                Some(pending)
            }
            other @ SpeculativeItem::Transfer(..) => {
                debug_assert!(false, "a transfer was expected");
                self.waiting.push_front(other);
                None
            }
        }
    }

    /// The first item does not come: a rename without source, which will do nothing.
    pub(crate) fn skip(&mut self) {
        self.waiting.pop_front();
    }

    /// Ends all items: [`Self::settle`] waits for that.
    pub(crate) fn forget(&mut self) {
        self.fresh.clear();
        self.source = None;
        for waiting in self.waiting.drain(..) {
            self.ending.push_back(match waiting {
                SpeculativeItem::Transfer(preopened, mut transfer) => {
                    preopened.forget();
                    transfer.abort();
                    Ending::Transfer(transfer)
                }
                // Dropping the receiver of the answer ends long work at its next check.
                SpeculativeItem::Request(_, over) => Ending::Request(over),
            });
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Waits until no dropped item touches a file any more. Without dropped items it never ends,
    /// and makes those durable whose bytes have moved, before their turn. Cancel-safe.
    pub(crate) async fn settle(&mut self, channels: &DataChannels) {
        if self.ending.is_empty() {
            for waiting in &mut self.waiting {
                if let SpeculativeItem::Transfer(_, transfer) = waiting {
                    transfer.move_on(channels).await;
                }
            }
            return std::future::pending().await;
        }
        while let Some(ending) = self.ending.front_mut() {
            match ending {
                Ending::Transfer(transfer) => {
                    while let TransferStep::Ready { .. } = transfer.next(channels).await {}
                }
                Ending::Request(over) => over.wait().await,
            }
            self.ending.pop_front();
        }
    }
}
