//! Transfers of small files that follow each other on one set of data channels without the session:
//! the mover goes on from one to the next by itself, which saves it and us two wake-ups a file.

use std::{collections::VecDeque, sync::Arc};

use godwit_engine::data::{
    ChannelSet, Sample, Transfer, TransferEvent, TransferJob, TransferReport,
};

use crate::report::progress::{Counters, LocalView, RunningTransfer};

/// Transfers that may wait behind the one that moves: a mover needs some tens of microseconds for a
/// file, a session that waits for its turn of a processor some hundreds.
const FILES_MAX: usize = 32;

/// And their bytes: what was sent behind a refusal was sent in vain. Fewer would leave channels
/// without work that are through with one file before others are.
const BYTES_MAX: u64 = 32 << 20;

/// The transfers, in the order of their turns.
pub(crate) struct LocalData {
    counters: Arc<Counters>,
    queued: VecDeque<(Transfer, u64)>,
    /// All of them, and those that are over: each by itself is too short to tell of its path.
    /// Begins with the first.
    running: Option<RunningTransfer>,
    bytes: u64,
}

impl LocalData {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        Self {
            counters: Arc::clone(counters),
            queued: VecDeque::new(),
            running: None,
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.queued.len() < FILES_MAX && self.bytes < BYTES_MAX
    }

    /// A file of `bytes` has its turn after those that have theirs already.
    pub(crate) fn queue(&mut self, set: &ChannelSet, job: TransferJob, bytes: u64) {
        let sends = matches!(job, TransferJob::Send(_));
        let series = || RunningTransfer::new(&self.counters, LocalView::Batch(set.batch()));
        let running = self.running.get_or_insert_with(series);
        if self.queued.is_empty() {
            running.rests(false);
        }
        let transfer = set.queue(sends, true, Box::new(move || Ok(job)));
        self.bytes += bytes;
        self.queued.push_back((transfer, bytes));
    }

    /// What the other end says of the channels.
    pub(crate) fn report(&self, sample: Sample) {
        if let Some(running) = &self.running {
            running.report(sample);
        }
    }

    /// How the first of them went, once it is over. Never where there is none. Cancel-safe.
    pub(crate) async fn next_end(&mut self) -> TransferReport {
        let Some((first, bytes)) = self.queued.front_mut() else {
            return std::future::pending().await;
        };
        loop {
            if let TransferEvent::Done(report) = first.next_event().await {
                self.bytes -= *bytes;
                self.queued.pop_front();
                if self.queued.is_empty()
                    && let Some(running) = &self.running
                {
                    running.rests(true);
                }
                return report;
            }
        }
    }

    /// Aborts them all, and with them the connections.
    pub(crate) fn clear(&mut self) {
        self.running = None;
        self.queued.clear();
        self.bytes = 0;
    }
}
