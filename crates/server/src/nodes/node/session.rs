//! One link at a node: the channels of one session of a front end, and the transfer on them.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_engine::{
    data::{ChannelSecurity, FRESH_RANGES_MAX},
    storage::Storage,
};
use godwit_proto::{
    RangeSet,
    command::NetworkProtocol,
    error::StorageFailure,
    live::Live,
    pi::server::DataChannelSpec,
    security::{Dcau, Protection},
};
use rustix::io::Errno;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::{debug, info};

use super::{look::look, open, shared::NodeShared};
use crate::{
    access::{
        gsi::{DataContext, refusal},
        rights::Rights,
        scoped::ScopedStorage,
        security::NodeCredential,
    },
    nodes::{
        messages::{Counts, Done, Family, NodeOrder, NodeReport, Share, Spans, Spec, Start, shown},
        pulse::Pulse,
    },
    session::Phase,
    storage::{durability::Committer, failure},
    transfers::{RunningTransfer, TransferEnd, TransferStep, data_channels::DataChannels},
};

/// Between two reports on a transfer.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Every so many of them also say which ranges are safe, which may take a sync.
const RANGES_EVERY: u32 = 5;

/// Why a node that runs sessions as one account has no place for one that has its own.
const ONE_ACCOUNT_HERE: &str = "its front end runs sessions as their users' accounts, and this \
    node runs them as one: start both as root, or none";

/// Why a session at a node ends before its front end ends it.
pub(super) type Ended = Option<String>;

pub(super) struct NodeSession {
    shared: Arc<NodeShared>,
    /// As durable as the front end promises.
    committer: Arc<Committer>,
    orders: mpsc::Receiver<NodeOrder>,
    reports: mpsc::Sender<NodeReport>,
    phase: watch::Receiver<Phase>,
    /// Our address of the link: data channels use it.
    local: IpAddr,
    client: IpAddr,
    /// What the login may list.
    lists: Arc<dyn Storage>,
    channels: DataChannels,
    /// What they prove themselves with.
    context: Option<DataContext>,
    /// There is a listener, or an address to connect to.
    has_channels: bool,
    transfer: Option<Box<RunningTransfer>>,
    /// What the front end calls it.
    number: u64,
    fresh: RangeSet,
    counts: Counts,
    /// Since it began.
    ticks: u32,
    /// Of the link.
    pulse: Arc<Pulse>,
}

impl NodeSession {
    pub(super) fn new(
        shared: Arc<NodeShared>,
        orders: mpsc::Receiver<NodeOrder>,
        reports: mpsc::Sender<NodeReport>,
        phase: watch::Receiver<Phase>,
        local: SocketAddr,
        pulse: Arc<Pulse>,
    ) -> Self {
        let local = local.ip().to_canonical();
        Self {
            lists: shared.service.committer.storage(),
            committer: Arc::clone(&shared.service.committer),
            shared,
            orders,
            reports,
            phase,
            local,
            client: local,
            channels: DataChannels::default(),
            context: None,
            has_channels: false,
            transfer: None,
            number: 0,
            fresh: RangeSet::new(),
            counts: Counts::default(),
            ticks: 0,
            pulse,
        }
    }

    /// Until the front end, or the node, ends it.
    pub(super) async fn serve(mut self) -> Ended {
        let mut tick = interval(REPORT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => {
                        let ended = self.carry_out(order).await;
                        if ended.is_some() {
                            return ended;
                        }
                    }
                    None => return None,
                },
                step = next_step(&mut self.transfer, &self.channels) => self.on_step(step).await,
                _ = tick.tick(), if self.transfer.is_some() => self.on_tick(),
                _ = self.phase.changed() => {}
            }
            let phase = *self.phase.borrow_and_update();
            let is_idle = self.transfer.is_none() && !self.has_channels;
            match phase {
                Phase::Aborting => return Some("the node shuts down".to_owned()),
                Phase::Draining if is_idle => return Some("the node is shutting down".to_owned()),
                Phase::Draining | Phase::Serving => {}
            }
        }
    }

    /// Waits for room: what it says is said once. Where the link is dead it ends soon, and with it
    /// the wait.
    async fn report(&self, report: NodeReport) {
        drop(self.reports.send(report).await);
    }

    async fn carry_out(&mut self, order: NodeOrder) -> Ended {
        match order {
            NodeOrder::Beat(_) | NodeOrder::Hello { .. } => {}
            NodeOrder::Look { name } => {
                let storage = self.shared.service.committer.storage();
                let file = look(storage, name, Arc::clone(&self.shared.looks)).await;
                self.report(NodeReport::Seen { file }).await;
            }
            NodeOrder::Login {
                account: Some(_), ..
            } => {
                let why = ONE_ACCOUNT_HERE.to_owned();
                self.report(NodeReport::Refused { why }).await;
                return Some(ONE_ACCOUNT_HERE.to_owned());
            }
            NodeOrder::Login {
                user,
                session,
                client,
                rights,
                durability,
                ftps: _,
                account: _,
            } => {
                self.committer = self.shared.committer(durability);
                self.log_in(&user, session, client, rights);
            }
            NodeOrder::Secure { text, is_chosen } => {
                self.secure(&NodeCredential { text, is_chosen });
            }
            NodeOrder::Listen { spec, family } => {
                let report = match self.listen(&spec, family).await {
                    Ok(address) => NodeReport::Listening { address },
                    Err(failure) => NodeReport::Unable { failure },
                };
                self.report(report).await;
            }
            NodeOrder::ConnectTo { spec, peer, share } => {
                let report = match self.connect_to(&spec, peer, share) {
                    Ok(()) => NodeReport::Noted,
                    Err(failure) => NodeReport::Unable { failure },
                };
                self.report(report).await;
            }
            NodeOrder::Start(start) => self.start(*start),
            NodeOrder::Lease { ranges } => {
                if let Some(monitor) = self.running().and_then(RunningTransfer::monitor) {
                    monitor.lease(ranges.ranges());
                }
            }
            NodeOrder::Finish { ending } => {
                if let Some(monitor) = self.running().and_then(RunningTransfer::monitor) {
                    monitor.finish(ending.into());
                }
            }
            NodeOrder::Steer { channels } => {
                if let Some(transfer) = &self.transfer {
                    transfer.live(Live::Channels(channels, 0));
                }
            }
            NodeOrder::NextChannels { channels } => self.channels.next_channels(channels),
            NodeOrder::Drain => {
                // What has not begun to read has nothing to read to its end.
                if let Some(transfer) = &mut self.transfer
                    && !transfer.drain()
                {
                    transfer.abort();
                }
            }
            NodeOrder::Abort => {
                if let Some(transfer) = &mut self.transfer {
                    transfer.abort();
                }
            }
            NodeOrder::Drop => self.drop_channels(),
        }
        None
    }

    fn running(&self) -> Option<&RunningTransfer> {
        self.transfer.as_deref()
    }

    fn log_in(&mut self, user: &str, session: u64, client: IpAddr, rights: Option<Rights>) {
        info!(front_session = session, user = shown(user), %client, "a session uses this node");
        self.client = client;
        let service = &self.shared.service;
        let storage = service.committer.storage();
        self.lists = match rights {
            Some(rights) => {
                let made = service.made.of(user);
                Arc::new(ScopedStorage::new(
                    storage,
                    rights,
                    Arc::new(SystemTime::now),
                    made,
                ))
            }
            None => storage,
        };
    }

    fn drop_channels(&mut self) {
        self.transfer = None;
        self.channels.close();
        self.has_channels = false;
    }

    fn secure(&mut self, credential: &NodeCredential) {
        self.context = None;
        let Some(users) = self.shared.users.clone() else {
            return;
        };
        match credential.context(users) {
            Ok(context) => self.context = Some(context),
            Err(why) => debug!(why, "no credential of a session"),
        }
    }

    fn guard(
        &self,
        spec: &DataChannelSpec,
        ftps: bool,
    ) -> Result<Option<ChannelSecurity>, StorageFailure> {
        if ftps {
            if spec.protection == Protection::Clear {
                return Ok(None);
            }
            let server = self.shared.service.tls.clone().ok_or_else(|| {
                refusal(
                    "the node has no certificate for private data channels: name one there with \
                     --tls --cert, or send PROT C",
                )
            })?;
            return Ok(Some(ChannelSecurity::TlsServer {
                server,
                client: self.client,
            }));
        }
        if spec.dcau != Dcau::None && self.shared.users.is_none() {
            return Err(refusal(
                "the node knows no authorities of users: name their directory there with \
                 --trusted-certs, or send DCAU N",
            ));
        }
        DataContext::guard(self.context.as_ref(), spec)
    }

    async fn listen(&mut self, spec: &Spec, family: Family) -> Result<SocketAddr, StorageFailure> {
        self.drop_channels();
        let settings = &self.shared.service.settings;
        let family = NetworkProtocol::from(family);
        let ftps = spec.ftps;
        let spec = DataChannelSpec::from(spec);
        let hosts = (self.local, self.client);
        let guard = self.guard(&spec, ftps)?;
        let plan = (self.channels).plan_listen(spec, guard, family, hosts, settings)?;
        let opened = spawn_blocking(move || plan.open().map(|listener| (plan, listener))).await;
        let (plan, listener) = opened.map_err(|_| failure(Errno::IO, "listen"))??;
        let address = self.channels.listen(&plan, listener, settings)?;
        self.has_channels = true;
        Ok(address)
    }

    fn connect_to(
        &mut self,
        spec: &Spec,
        peer: SocketAddr,
        share: Share,
    ) -> Result<(), StorageFailure> {
        self.drop_channels();
        let settings = &self.shared.service.settings;
        let ftps = spec.ftps;
        let spec = DataChannelSpec::from(spec);
        let hosts = (self.local, self.client);
        let guard = self.guard(&spec, ftps)?;
        self.channels.set_part(share.into());
        (self.channels).connect_to(&spec, guard, vec![peer], hosts, settings)?;
        self.has_channels = true;
        Ok(())
    }

    fn start(&mut self, start: Start) {
        // The front end waits for the end of one before the next.
        self.transfer = None;
        self.fresh = RangeSet::new();
        self.counts = Counts::default();
        self.ticks = 0;
        self.number = start.transfer;
        let request = open::request_of(&start);
        debug!(?request, "a transfer starts");
        let service = &self.shared.service;
        let (storage, lists) = (service.committer.storage(), Arc::clone(&self.lists));
        let pulse = Arc::clone(&self.pulse);
        self.transfer = Some(Box::new(RunningTransfer::opened_by(
            &request,
            move || open::open(&start.job, &storage, lists, pulse),
            &self.committer,
            &service.turns.of(""),
        )));
    }

    async fn on_step(&mut self, step: TransferStep) {
        match step {
            TransferStep::Ready { reused } => {
                let transfer = self.number;
                self.report(NodeReport::Ready { transfer, reused }).await;
            }
            TransferStep::Done(end) => self.on_end(end).await,
        }
    }

    fn look_at_counts(&mut self) {
        if let Some(transfer) = &self.transfer
            && let Some(live) = transfer.live(Live::Report)
        {
            self.counts = Counts {
                bytes: live.bytes,
                channels: live.channels,
                retransmitted: live.bytes_retransmitted,
            };
        }
    }

    fn on_tick(&mut self) {
        let before = self.counts;
        self.look_at_counts();
        self.ticks += 1;
        if self.ticks.is_multiple_of(RANGES_EVERY)
            && let Some(transfer) = &mut self.transfer
        {
            let (_, fresh) = transfer.progress();
            self.fresh.union_within(&fresh, FRESH_RANGES_MAX);
        }
        if self.counts != before || !self.fresh.is_empty() {
            self.progress();
        }
    }

    /// Where there is no room for it, the next one says it, too.
    fn progress(&mut self) {
        let Ok(room) = self.reports.try_reserve() else {
            return;
        };
        room.send(NodeReport::Progress {
            transfer: self.number,
            counts: self.counts,
            fresh: Spans::take(&mut self.fresh),
        });
    }

    async fn on_end(&mut self, end: TransferEnd) {
        let eods = (self.transfer.as_ref()).map_or(0, |transfer| transfer.eods());
        let retransmitted = (self.transfer.as_ref())
            .and_then(|transfer| transfer.totals().tcp)
            .map(|tcp| tcp.bytes_retransmitted);
        self.transfer = None;
        self.fresh.union_within(&end.fresh, FRESH_RANGES_MAX);
        let transfer = self.number;
        let counts = Counts {
            bytes: end.bytes,
            channels: 0,
            retransmitted,
        };
        let mut fresh = Spans::take(&mut self.fresh);
        while !self.fresh.is_empty() {
            self.report(NodeReport::Progress {
                transfer,
                counts,
                fresh,
            })
            .await;
            fresh = Spans::take(&mut self.fresh);
        }
        self.report(NodeReport::Done(Box::new(Done {
            transfer,
            counts,
            fresh,
            failure: end.result.err(),
            cached: end.cached,
            channels_peak: end.channels_peak,
            eods,
        })))
        .await;
    }
}

async fn next_step(
    transfer: &mut Option<Box<RunningTransfer>>,
    channels: &DataChannels,
) -> TransferStep {
    match transfer {
        Some(transfer) => transfer.next(channels).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
