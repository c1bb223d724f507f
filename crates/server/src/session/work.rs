//! The work of a session: the request or transfer that runs, work before the turn of its command,
//! and the data channels of both.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use godwit_proto::{
    FtpPath,
    live::Live,
    pi::server::{Input, ListForm, Placement, Request, TransferKind, TransferRequest},
    temporary::is_temporary,
};
use tokio::sync::watch;

use super::{Phase, speculative::SpeculativeWork};
use crate::{
    access::{
        channel_quota::ChannelQuota, rights::Rights, scoped::ScopedStorage, turns::AccountTurns,
    },
    nodes::front::NodeChannels,
    observe::event::{Command, Progress, Running, What},
    requests::{Answer, PendingRequest},
    service::Service,
    storage::durability::Committer,
    transfers::{RunningTransfer, TransferEnd, TransferStep, data_channels::DataChannels},
};

/// Between two reports on a transfer.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Between two reports on idle data channels.
const IDLE_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// At most one of `request` and `transfer` runs.
pub(super) struct Work {
    pub(super) request: Option<PendingRequest>,
    pub(super) transfer: Option<Box<SessionTransfer>>,
    pub(super) speculative: SpeculativeWork,
    pub(super) channels: DataChannels,
    /// With the storage: the service's, or that of a login with limited rights.
    committer: Arc<Committer>,
    /// Of the account, for checksums.
    turns: AccountTurns,
    next_report_at: Option<Instant>,
}

/// A transfer, and what the logs record of it.
pub(super) struct SessionTransfer {
    pub(super) running: RunningTransfer,
    pub(super) command: Command,
    pub(super) path: FtpPath,
    pub(super) what: What,
}

pub(super) enum WorkEvent {
    Answer(Answer),
    Step(TransferStep),
    /// Speculative work that was dropped has ended.
    Dropped,
    /// [`Work::report`] is due.
    ReportDue,
}

impl Work {
    pub(super) fn new(service: &Service) -> Self {
        let mut channels = DataChannels::default();
        if let Some(nodes) = &service.nodes {
            let durability = service.committer.durability();
            channels.use_nodes(NodeChannels::new(nodes.clone(), durability));
        }
        Self {
            request: None,
            transfer: None,
            speculative: SpeculativeWork::default(),
            channels,
            committer: Arc::clone(&service.committer),
            turns: service.turns.of(""),
            next_report_at: None,
        }
    }

    /// The session has logged in.
    pub(super) fn admit(&mut self, quota: ChannelQuota, turns: AccountTurns) {
        self.channels.set_quota(Arc::new(quota));
        self.turns = turns;
    }

    pub(super) fn confine_to_rights(&mut self, rights: Rights, holder: &str, service: &Service) {
        let made = service.made.of(holder);
        if let Some(nodes) = self.channels.nodes_mut() {
            nodes.confine_to_rights(rights.clone());
        }
        let inner = self.committer.storage();
        let scoped = ScopedStorage::new(inner, rights, Arc::new(SystemTime::now), made);
        self.committer = Committer::new(self.committer.durability(), Arc::new(scoped));
    }

    /// Cancel-safe. `takes_answers`: not while the client has much to read, else pages of a listing
    /// would pile up.
    pub(super) async fn next_event(&mut self, takes_answers: bool) -> WorkEvent {
        let Self {
            request,
            transfer,
            speculative,
            channels,
            next_report_at,
            ..
        } = self;
        tokio::select! {
            answer = next_answer(request), if takes_answers => WorkEvent::Answer(answer),
            step = next_step(transfer, channels) => WorkEvent::Step(step),
            () = speculative.settle(channels) => WorkEvent::Dropped,
            () = super::until(*next_report_at) => WorkEvent::ReportDue,
        }
    }

    /// An answer or a step that is ready now.
    pub(super) async fn ready_event(&mut self) -> Option<WorkEvent> {
        tokio::select! {
            biased;
            step = next_step(&mut self.transfer, &self.channels) => Some(WorkEvent::Step(step)),
            answer = next_answer(&mut self.request) => Some(WorkEvent::Answer(answer)),
            () = std::future::ready(()) => None,
        }
    }

    pub(super) fn expect_transfer(&mut self, request: TransferRequest) {
        if self.channels.on_nodes() {
            return;
        }
        let channels = &mut self.channels;
        self.speculative
            .add_transfer(request, &self.committer, &self.turns, channels);
    }

    pub(super) fn expect_request(&mut self, request: Request) {
        if self.channels.on_nodes() {
            return;
        }
        let channels = &self.channels;
        self.speculative
            .add_request(request, &self.committer, &self.turns, channels);
    }

    /// Opens files of expected transfers.
    pub(super) fn prepare(&mut self) {
        self.speculative.prepare(&self.committer);
    }

    /// Starts a request that touches only storage, or takes the one that started before its turn.
    pub(super) fn start_request(&mut self, request: Request) {
        match self.speculative.ask(&request) {
            Some(started) => self.request = Some(started),
            None => self.start_request_now(request),
        }
    }

    pub(super) fn start_request_now(&mut self, request: Request) {
        // Only requests on the data channels see what moved before: this one may change it, and
        // later requests too.
        self.channels.recent_files().forget();
        let (committer, turns) = (&self.committer, &self.turns);
        self.request = Some(match self.channels.unfenced() {
            Some(unfenced) => PendingRequest::start_on_nodes(request, committer, turns, unfenced),
            None => PendingRequest::start(request, committer, turns),
        });
    }

    pub(super) fn start_transfer(&mut self, request: TransferRequest) {
        let (what, path) = subject_of(&request.kind);
        let path = path.clone();
        let command = command_of(&request.kind);
        let running = self.speculative.start(&request).unwrap_or_else(|| {
            RunningTransfer::start(request, &self.committer, &self.turns, &mut self.channels)
        });
        self.transfer = Some(Box::new(SessionTransfer {
            running,
            command,
            path,
            what,
        }));
        let soon = Instant::now() + REPORT_INTERVAL;
        self.next_report_at = Some(self.next_report_at.map_or(soon, |at| at.min(soon)));
    }

    /// Bytes and safe ranges of the transfer, for the interpreter.
    pub(super) fn progress(&mut self) -> Option<Input<'static>> {
        let (bytes, fresh) = self.transfer.as_mut()?.running.progress();
        Some(Input::TransferProgress { bytes, fresh })
    }

    /// Bytes of each stripe of the transfer, where it has several.
    pub(super) fn stripes(&self) -> Vec<u64> {
        let transfer = self.transfer.as_ref();
        transfer.map_or_else(Vec::new, |transfer| transfer.running.stripes().to_vec())
    }

    pub(super) fn live(&self, live: Live) -> Input<'static> {
        let transfer = self.transfer.as_ref();
        let report = transfer.and_then(|transfer| transfer.running.live(live));
        Input::Live(report.map(Box::new))
    }

    /// Reports progress for the metrics and schedules the next report: an idle session sends none.
    pub(super) fn report(&mut self) -> Progress {
        let transfer = self.transfer.as_deref().map(|transfer| Running {
            what: transfer.what,
            path: transfer.path.to_string(),
            flow: transfer.running.flow(),
        });
        let channels = self.channels.count();
        let interval = match (&transfer, channels.now) {
            (Some(_), _) => Some(REPORT_INTERVAL),
            (None, 1..) => Some(IDLE_REPORT_INTERVAL),
            (None, 0) => None,
        };
        self.next_report_at = interval.map(|interval| Instant::now() + interval);
        Progress { transfer, channels }.bounded()
    }

    /// The client is gone, but it may have sent more than the transfer has read, and resumes where
    /// the file ends. Only under a temporary name: the client may already write another one again.
    pub(super) async fn drain_upload(&mut self, phase: &mut watch::Receiver<Phase>) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        let is_worth_it = transfer.path.file_name().is_some_and(is_temporary);
        if !(is_worth_it && transfer.running.drain()) {
            return;
        }
        let drained = async {
            while let TransferStep::Ready { .. } = transfer.running.next(&self.channels).await {}
        };
        tokio::select! {
            () = drained => {}
            // Also if the server is gone.
            _ = phase.wait_for(|phase| *phase == Phase::Aborting) => {}
        }
    }

    /// Aborts the running transfer without waiting for the data plane. Dropping it ends it.
    pub(super) fn abort_transfer(&mut self) -> Option<TransferEnd> {
        let running = &mut self.transfer.as_mut()?.running;
        running.abort();
        let (bytes, fresh) = running.progress();
        Some(TransferEnd::aborted(bytes, fresh))
    }

    /// Closes files, sockets and listeners.
    pub(super) fn stop(&mut self) {
        self.request = None;
        self.transfer = None;
        self.speculative = SpeculativeWork::default();
        self.channels = DataChannels::default();
    }
}

async fn next_answer(request: &mut Option<PendingRequest>) -> Answer {
    match request {
        Some(request) => request.next().await,
        None => std::future::pending().await,
    }
}

async fn next_step(
    transfer: &mut Option<Box<SessionTransfer>>,
    channels: &DataChannels,
) -> TransferStep {
    match transfer {
        Some(transfer) => transfer.running.next(channels).await,
        None => std::future::pending().await,
    }
}

/// The audit log's name of a transfer, and its path.
pub(super) fn subject_of(kind: &TransferKind) -> (What, &FtpPath) {
    match kind {
        TransferKind::Send { path, .. } => (What::Get, path),
        TransferKind::Receive { path, .. } => (What::Put, path),
        TransferKind::List { path, .. } => (What::List, path),
    }
}

/// The command of a transfer.
fn command_of(kind: &TransferKind) -> Command {
    match kind {
        TransferKind::Send { region: None, .. } => Command::Retr,
        TransferKind::Send { .. } => Command::Eret,
        TransferKind::Receive {
            placement: Placement::Replace,
            ..
        } => Command::Stor,
        TransferKind::Receive { .. } => Command::Esto,
        TransferKind::List { form, .. } => match form {
            ListForm::Long => Command::List,
            ListForm::Names => Command::Nlst,
            _ => Command::Mlsd,
        },
    }
}
