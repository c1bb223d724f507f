//! One transfer: opens the file first (a fast failure leaves the data channel alone), then
//! connects, moves bytes, and runs the checks that success depends on (checksums, modification
//! time).
//!
//! ```text
//!   Opening ──► Moving ──► Finishing ──► Done    Opening and Finishing run on blocking threads
//!      └──────────┴── failure, abort ──────┘
//! ```
//! Files in MODE E start in Moving: the mover opens them in their turn, or takes them from
//! [`preopen`], so a queue of small files needs no step of the session.

pub(crate) mod checks;
pub(crate) mod checksums;
pub(crate) mod data_channels;
pub(crate) mod open;
pub(crate) mod preopen;
mod shared_writer;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use godwit_engine::{
    data::{Monitor, Sample, Transfer, TransferEvent, TransferReport},
    storage::{FileRef, Metadata},
};
use godwit_proto::{
    FtpPath, RangeSet,
    command::{Mode, TypeCode},
    error::{StorageFailure, TransferFailure},
    live::{Live, LiveReport},
    pi::server::{TransferKind, TransferRequest},
};
use tokio::task::JoinHandle;

use self::{checks::Checks, data_channels::DataChannels, open::Opened, preopen::PreopenedTransfer};
use crate::{
    access::turns::AccountTurns,
    config::Durability,
    nodes::front::{Unfenced, striped::StripedTransfer},
    observe::event::Flow,
    storage::durability::{Committer, SafeRanges},
};

/// A transfer of a session. Dropping it ends it, and the data channels it runs on must then be
/// dropped too.
pub(crate) struct RunningTransfer {
    stage: Stage,
    mode: Mode,
    receiving: bool,
    /// 111 reports ranges of a receipt only if wire offsets are file offsets.
    reports_ranges: bool,
    left: Arc<Mutex<Left>>,
    committer: Arc<Committer>,
    /// For checksums at the end.
    turns: AccountTurns,
    /// Directory of the file that a receipt creates.
    directory: Option<FtpPath>,
    safe: SafeRanges,
    /// Taken from the data plane and not yet returned.
    steps: VecDeque<TransferStep>,
    bytes: u64,
    /// Known once the bytes have moved.
    totals: Sample,
    /// The session has sent 150 already.
    announced: bool,
    aborted: bool,
    /// Until it is ordered from data nodes.
    for_nodes: Option<Box<NodesRequest>>,
    /// Bytes of each stripe, where there are several.
    stripes: Vec<u64>,
    /// The data nodes that moved it.
    nodes: Vec<String>,
    eods: u64,
}

/// What data nodes will be ordered to do.
struct NodesRequest {
    request: TransferRequest,
    /// Once it is open.
    file: Arc<Mutex<Option<Metadata>>>,
}

/// From the thread that opened the file.
#[derive(Default)]
struct Left {
    checks: Option<Checks>,
    written: Option<FileRef>,
}

enum Stage {
    Opening(JoinHandle<Result<Opened, StorageFailure>>),
    /// There is no data channel.
    Refused(TransferFailure),
    Moving(Transfer),
    /// On data nodes.
    Striped(Box<StripedTransfer>),
    Finishing {
        report: TransferReport,
        fresh: RangeSet,
        verdict: JoinHandle<Result<(), TransferFailure>>,
        stop: Arc<AtomicBool>,
    },
    WorkDone,
}

/// The step that the interpreter receives.
#[derive(Debug)]
pub(crate) enum TransferStep {
    /// Data connections are established.
    Ready { reused: bool },
    /// Over.
    Done(TransferEnd),
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct TransferEnd {
    pub(crate) bytes: u64,
    pub(crate) fresh: RangeSet,
    pub(crate) result: Result<(), TransferFailure>,
    pub(crate) cached: bool,
    pub(crate) channels_peak: u32,
    pub(crate) elapsed: Duration,
}

impl TransferEnd {
    /// Ended from outside with `bytes` moved.
    pub(crate) fn aborted(bytes: u64, fresh: RangeSet) -> Self {
        Self {
            bytes,
            fresh,
            ..Self::failed(TransferFailure::Aborted)
        }
    }

    fn failed(failure: TransferFailure) -> Self {
        Self {
            bytes: 0,
            fresh: RangeSet::new(),
            result: Err(failure),
            cached: false,
            channels_peak: 0,
            elapsed: Duration::ZERO,
        }
    }
}

impl RunningTransfer {
    /// Begins.
    pub(crate) fn start(
        request: TransferRequest,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
        channels: &mut DataChannels,
    ) -> Self {
        if let Some(unfenced) = channels.unfenced() {
            return Self::on_nodes(request, unfenced, committer, turns);
        }
        let of_a_file = !matches!(request.kind, TransferKind::List { .. });
        if request.mode == Mode::ExtendedBlock && of_a_file {
            return Self::queued(&PreopenedTransfer::new(request), committer, turns, channels);
        }
        let mut transfer = Self::of(&request, committer, turns);
        let storage = committer.storage();
        transfer.stage = Stage::Opening(tokio::task::spawn_blocking(move || {
            open::open(request, storage)
        }));
        transfer
    }

    /// Begins when all before it on `channels` have succeeded, or follows them on each as soon as
    /// that is through with them.
    pub(crate) fn queued(
        preopened: &Arc<PreopenedTransfer>,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
        channels: &mut DataChannels,
    ) -> Self {
        let mut transfer = Self::of(preopened.request(), committer, turns);
        let kind = preopened.request().kind.clone();
        let (preopened, storage) = (Arc::clone(preopened), committer.storage());
        let (left, passed) = (
            Arc::clone(&transfer.left),
            Arc::clone(channels.recent_files()),
        );
        let queued = channels.queue(
            &kind,
            Box::new(move || {
                let opened = preopened.take(&storage)?;
                *lock(&left) = Left {
                    checks: opened.checks,
                    written: opened.written,
                };
                Ok(passed.begin(preopened.request(), opened.job, opened.modified))
            }),
        );
        transfer.stage = match queued {
            Ok(queued) => Stage::Moving(queued),
            Err(failure) => Stage::Refused(failure),
        };
        transfer
    }

    /// Begins with what `open` gives, on a blocking thread: at a data node, whose front end has
    /// looked at the request.
    pub(crate) fn opened_by(
        request: &TransferRequest,
        open: impl FnOnce() -> Result<Opened, StorageFailure> + Send + 'static,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
    ) -> Self {
        let mut transfer = Self::of(request, committer, turns);
        transfer.stage = Stage::Opening(tokio::task::spawn_blocking(open));
        transfer
    }

    /// Begins on data nodes: the file is opened here, so that rights, sizes and errors are the
    /// same as without nodes, and its bytes move there.
    fn on_nodes(
        request: TransferRequest,
        unfenced: Arc<Unfenced>,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
    ) -> Self {
        let mut transfer = Self::of(&request, committer, turns);
        let storage = committer.storage();
        let opened_file = Arc::default();
        transfer.for_nodes = Some(Box::new(NodesRequest {
            request: request.clone(),
            file: Arc::clone(&opened_file),
        }));
        transfer.stage = Stage::Opening(tokio::spawn(async move {
            let (opened, file) = open::open_for_nodes(request, storage, unfenced).await?;
            *lock(&opened_file) = file;
            Ok(opened)
        }));
        transfer
    }

    fn of(request: &TransferRequest, committer: &Arc<Committer>, turns: &AccountTurns) -> Self {
        let (receiving, directory) = match &request.kind {
            TransferKind::Receive { path, .. } => (true, path.parent()),
            TransferKind::Send { .. } | TransferKind::List { .. } => (false, None),
        };
        Self {
            stage: Stage::WorkDone,
            mode: request.mode,
            receiving,
            reports_ranges: receiving && request.type_code == TypeCode::Image,
            left: Arc::default(),
            committer: Arc::clone(committer),
            turns: turns.clone(),
            directory,
            safe: SafeRanges::default(),
            steps: VecDeque::new(),
            bytes: 0,
            totals: Sample::default(),
            announced: false,
            aborted: false,
            for_nodes: None,
            stripes: Vec::new(),
            nodes: Vec::new(),
            eods: 0,
        }
    }

    /// The next step. Cancel-safe; after `Done` never returns.
    pub(crate) async fn next(&mut self, channels: &DataChannels) -> TransferStep {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            self.advance(channels).await;
        }
    }

    /// Handles events of the data plane until the bytes have moved, so that they are durable before
    /// this transfer's turn. Cancel-safe.
    pub(crate) async fn move_on(&mut self, channels: &DataChannels) {
        while let Stage::Moving(_) | Stage::Striped(_) = self.stage {
            self.advance(channels).await;
        }
    }

    async fn advance(&mut self, channels: &DataChannels) {
        let end = match &mut self.stage {
            Stage::Opening(opening) => {
                let opened = opening.await;
                self.opened(opened, channels)
            }
            Stage::Moving(transfer) => match transfer.next_event().await {
                TransferEvent::Ready { reused } => {
                    if !self.announced {
                        self.steps.push_back(TransferStep::Ready { reused });
                    }
                    None
                }
                TransferEvent::Done(report) => self.moved(report),
            },
            Stage::Striped(striped) => match striped.next_event().await {
                TransferEvent::Ready { reused } => {
                    self.steps.push_back(TransferStep::Ready { reused });
                    None
                }
                TransferEvent::Done(report) => self.moved(report),
            },
            Stage::Finishing { verdict, .. } => {
                let verdict = verdict.await.unwrap_or_else(|_| Err(internal_error()));
                self.finished(verdict)
            }
            Stage::Refused(failure) => Some(TransferEnd::failed(failure.clone())),
            Stage::WorkDone => std::future::pending().await,
        };
        if let Some(end) = end {
            self.stage = Stage::WorkDone;
            self.steps.push_back(TransferStep::Done(end));
        }
    }

    fn opened(
        &mut self,
        opened: Result<Result<Opened, StorageFailure>, tokio::task::JoinError>,
        channels: &DataChannels,
    ) -> Option<TransferEnd> {
        let opened = match opened {
            Ok(Ok(_)) if self.aborted => {
                return Some(TransferEnd::failed(TransferFailure::Aborted));
            }
            Ok(Ok(opened)) => opened,
            Ok(Err(failure)) => {
                let mut end = TransferEnd::failed(failure.into());
                // A receipt that fails before it starts must not leave connections behind: the
                // client may have put the file's bytes on them already.
                end.cached = !self.receiving && channels.cached() > 0;
                return Some(end);
            }
            Err(_) => return Some(TransferEnd::failed(internal_error())),
        };
        *lock(&self.left) = Left {
            checks: opened.checks,
            written: opened.written,
        };
        if let Some(for_nodes) = self.for_nodes.take() {
            let file = lock(&for_nodes.file).take();
            let request = &for_nodes.request;
            return match channels.start_on_nodes(request, &opened.job, file.as_ref()) {
                Ok(striped) => {
                    self.stage = Stage::Striped(Box::new(striped));
                    None
                }
                Err(failure) => Some(TransferEnd::failed(failure)),
            };
        }
        // Cached connections have shaken hands.
        let announce = channels.shakes_hands_after_150() && channels.cached() == 0;
        match channels.start(opened.job, self.mode) {
            Ok(transfer) => {
                if announce {
                    self.announced = true;
                    self.steps.push_back(TransferStep::Ready { reused: false });
                }
                self.stage = Stage::Moving(transfer);
                None
            }
            Err(failure) => Some(TransferEnd::failed(failure)),
        }
    }

    /// The data plane has ended. `None`: checks follow.
    fn moved(&mut self, report: TransferReport) -> Option<TransferEnd> {
        let mut fresh = self.fresh();
        // Nodes have made durable what they report.
        let is_ours = matches!(self.stage, Stage::Moving(_));
        if is_ours && self.committer.durability() != Durability::None {
            fresh = self.safe.end(fresh, report.result.is_ok());
        }
        self.bytes = report.bytes;
        match &self.stage {
            Stage::Moving(transfer) => {
                let monitor = transfer.monitor();
                (self.totals, self.eods) = (monitor.sample(), monitor.eods());
            }
            Stage::Striped(striped) => {
                self.totals = striped.sample();
                self.stripes = striped.stripes();
                self.nodes = striped.nodes();
            }
            _ => {}
        }
        // The transfer holds the file until here.
        self.stage = Stage::WorkDone;
        if report.result.is_err() || self.aborted {
            return Some(end_of(report, fresh));
        }
        let Left { checks, written } = std::mem::take(&mut *lock(&self.left));
        let durable = self.receiving && self.committer.durability() != Durability::None;
        if checks.is_none() && !durable {
            return Some(end_of(report, fresh));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (committer, turns) = (Arc::clone(&self.committer), self.turns.clone());
        let directories = Vec::from_iter(self.directory.take());
        let verdict = tokio::spawn(async move {
            if let Some(checks) = checks {
                checks.run(&turns, &stopped).await?;
            }
            Ok(committer.commit(written, directories).await?)
        });
        self.stage = Stage::Finishing {
            report,
            fresh,
            verdict,
            stop,
        };
        None
    }

    fn finished(&mut self, verdict: Result<(), TransferFailure>) -> Option<TransferEnd> {
        match std::mem::replace(&mut self.stage, Stage::WorkDone) {
            Stage::Finishing {
                mut report, fresh, ..
            } => {
                report.result = if self.aborted {
                    Err(TransferFailure::Aborted)
                } else {
                    verdict
                };
                Some(end_of(report, fresh))
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// EODs of a send, once the bytes have moved.
    pub(crate) fn eods(&self) -> u64 {
        self.eods
    }

    /// The data plane's sample of the whole transfer, once the bytes have moved.
    pub(crate) fn totals(&self) -> Sample {
        self.totals
    }

    /// Bytes so far.
    pub(crate) fn flow(&self) -> Flow {
        let sample = match &self.stage {
            Stage::Moving(transfer) => transfer.monitor().sample(),
            Stage::Striped(striped) => striped.sample(),
            _ => self.totals,
        };
        Flow {
            bytes: sample.bytes.max(self.bytes),
            retransmitted: sample.tcp.map_or(0, |tcp| tcp.bytes_retransmitted),
        }
    }

    /// Bytes so far, and ranges that became safe since the last call.
    pub(crate) fn progress(&mut self) -> (u64, RangeSet) {
        match &self.stage {
            Stage::Moving(transfer) => self.bytes = transfer.monitor().progress().bytes,
            Stage::Striped(striped) => {
                self.bytes = striped.sample().bytes;
                self.stripes = striped.stripes();
            }
            _ => {}
        }
        let mut fresh = self.fresh();
        let is_ours = !matches!(self.stage, Stage::Striped(_));
        if is_ours && self.committer.durability() != Durability::None {
            let written = lock(&self.left).written.clone();
            fresh = self.safe.progress(fresh, written);
        }
        (self.bytes, fresh)
    }

    /// Bytes of each stripe at the last progress; empty without several.
    pub(crate) fn stripes(&self) -> &[u64] {
        &self.stripes
    }

    /// The data nodes that moved it, once it has ended; empty without.
    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The data plane, while it moves bytes in this process.
    pub(crate) fn monitor(&self) -> Option<Monitor> {
        match &self.stage {
            Stage::Moving(transfer) => Some(transfer.monitor()),
            _ => None,
        }
    }

    /// Looks at the data plane or changes its channels; `None` where it does not run.
    pub(crate) fn live(&self, live: Live) -> Option<LiveReport> {
        let transfer = match &self.stage {
            Stage::Moving(transfer) => transfer,
            Stage::Striped(striped) => {
                if let Live::Channels(wanted, _) = live {
                    striped.steer(wanted);
                }
                return Some(striped.sample().into());
            }
            _ => return None,
        };
        let monitor = transfer.monitor();
        match live {
            Live::Channels(wanted, _) => {
                monitor.steer(wanted);
            }
            Live::Report => {}
        }
        Some(monitor.sample().into())
    }

    fn fresh(&self) -> RangeSet {
        match &self.stage {
            Stage::Moving(transfer) if self.reports_ranges => transfer.take_fresh(),
            Stage::Striped(striped) if self.reports_ranges => striped.take_fresh(),
            _ => RangeSet::new(),
        }
    }

    /// Ends a receipt once it has read the bytes that have arrived; [`TransferStep::Done`] follows
    /// soon. False if it does not receive.
    pub(crate) fn drain(&mut self) -> bool {
        match &self.stage {
            Stage::Moving(transfer) if self.receiving => {
                self.aborted = true;
                transfer.drain();
                true
            }
            Stage::Striped(striped) if self.receiving => {
                self.aborted = true;
                striped.drain();
                true
            }
            _ => false,
        }
    }

    /// Ends it; [`TransferStep::Done`] follows. Work on a blocking thread is waited for: a file
    /// that is still being opened would else be truncated under the next transfer.
    pub(crate) fn abort(&mut self) {
        self.aborted = true;
        match &self.stage {
            Stage::Moving(transfer) => transfer.abort(),
            Stage::Striped(striped) => striped.abort(),
            Stage::Finishing { stop, .. } => stop.store(true, Ordering::Relaxed),
            Stage::Opening(_) | Stage::Refused(_) | Stage::WorkDone => {}
        }
    }
}

impl Drop for RunningTransfer {
    fn drop(&mut self) {
        if let Stage::Finishing { stop, .. } = &self.stage {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

fn end_of(report: TransferReport, fresh: RangeSet) -> TransferEnd {
    TransferEnd {
        bytes: report.bytes,
        fresh,
        cached: report.result.is_ok() && report.cached > 0,
        result: report.result,
        channels_peak: report.channels_peak,
        elapsed: report.elapsed,
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn internal_error() -> TransferFailure {
    TransferFailure::Storage(StorageFailure {
        errno: 0,
        doing: "carry out the transfer".to_owned(),
        text: "internal error, see the server's log".to_owned(),
    })
}
