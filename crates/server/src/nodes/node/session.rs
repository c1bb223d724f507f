//! One link at a node: the channels of one session of a front end, and the transfer on them.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_engine::{
    data::{ChannelSecurity, FRESH_RANGES_MAX},
    storage::{FileRef, Storage},
};
use godwit_gsi::verify::Directory;
use godwit_proto::{
    FtpPath, RangeSet, command::NetworkProtocol, error::StorageFailure, live::Live,
    pi::server::DataChannelSpec, security::Dcau, temporary::is_temporary,
};
use rustix::io::Errno;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::{debug, info};

use super::open;
use crate::{
    access::{
        gsi::{DataContext, refusal},
        rights::Rights,
        scoped::ScopedStorage,
        security::NodeCredential,
    },
    nodes::messages::{
        Counts, Done, Family, NodeOrder, NodeReport, Share, Spans, Spec, Start, VERSION, shown,
    },
    service::Service,
    session::Phase,
    storage::failure,
    transfers::{RunningTransfer, TransferEnd, TransferStep, data_channels::DataChannels},
};

/// Time for the first messages of a front end.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// Between two reports on a transfer.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Every so many of them also say which ranges are safe, which may take a sync.
const RANGES_EVERY: u32 = 5;

/// Bytes of a file that a front end asks for.
const LOOK_BYTES: usize = 64;

/// Why a session at a node ends before its front end ends it.
pub(super) type Ended = Option<String>;

pub(super) struct NodeSession {
    service: Arc<Service>,
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
    fresh: RangeSet,
    counts: Counts,
    /// Since it began.
    ticks: u32,
}

impl NodeSession {
    pub(super) fn new(
        service: Arc<Service>,
        orders: mpsc::Receiver<NodeOrder>,
        reports: mpsc::Sender<NodeReport>,
        phase: watch::Receiver<Phase>,
        local: SocketAddr,
    ) -> Self {
        let local = local.ip().to_canonical();
        Self {
            lists: service.committer.storage(),
            service,
            orders,
            reports,
            phase,
            local,
            client: local,
            channels: DataChannels::default(),
            context: None,
            has_channels: false,
            transfer: None,
            fresh: RangeSet::new(),
            counts: Counts::default(),
            ticks: 0,
        }
    }

    /// Until the front end, or the node, ends it. `front_end`: who it is, or why it is none.
    pub(super) async fn serve(
        mut self,
        front_end: Result<String, String>,
        instance: &str,
    ) -> Ended {
        let version = match timeout(HELLO_LIMIT, self.orders.recv()).await {
            Ok(Some(NodeOrder::Hello { version })) => version,
            Ok(None) => return None,
            Ok(Some(_)) | Err(_) => return Some("it does not say hello".to_owned()),
        };
        let why = match &front_end {
            Err(why) => Some(why.clone()),
            Ok(_) if version != VERSION => Some(format!(
                "it speaks version {version} of node links, and this node {VERSION}: install the \
                 same godwit on both"
            )),
            Ok(_) if *self.phase.borrow_and_update() != Phase::Serving => {
                Some("the node is shutting down".to_owned())
            }
            Ok(_) => None,
        };
        if let Some(why) = why {
            self.report(NodeReport::Refused { why: why.clone() });
            return Some(why);
        }
        let instance = instance.to_owned();
        self.report(NodeReport::Welcome { version, instance });
        let mut tick = interval(REPORT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.carry_out(order).await,
                    None => return None,
                },
                step = next_step(&mut self.transfer, &self.channels) => self.on_step(step),
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

    /// The link carries so many at a time that a full queue means that it is dead; it says so
    /// itself.
    fn report(&self, report: NodeReport) {
        drop(self.reports.try_send(report));
    }

    async fn carry_out(&mut self, order: NodeOrder) {
        match order {
            NodeOrder::Beat | NodeOrder::Hello { .. } => {}
            NodeOrder::Look { name } => {
                let storage = self.service.committer.storage();
                let text = spawn_blocking(move || look(&*storage, &name)).await;
                let text = text.unwrap_or_else(|_| Err("internal error".to_owned()));
                self.report(NodeReport::Seen { text });
            }
            NodeOrder::Login {
                user,
                session,
                client,
                rights,
            } => self.log_in(&user, session, client, rights),
            NodeOrder::Secure { text, is_chosen } => {
                self.secure(&NodeCredential { text, is_chosen });
            }
            NodeOrder::Listen { spec, family } => {
                let report = match self.listen(&spec, family).await {
                    Ok(address) => NodeReport::Listening { address },
                    Err(failure) => NodeReport::Unable { failure },
                };
                self.report(report);
            }
            NodeOrder::ConnectTo { spec, peer, share } => {
                let report = match self.connect_to(&spec, peer, share) {
                    Ok(()) => NodeReport::Noted,
                    Err(failure) => NodeReport::Unable { failure },
                };
                self.report(report);
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
                if let Some(transfer) = &mut self.transfer {
                    transfer.drain();
                }
            }
            NodeOrder::Abort => {
                if let Some(transfer) = &mut self.transfer {
                    transfer.abort();
                }
            }
            NodeOrder::Drop => self.drop_channels(),
        }
    }

    fn running(&self) -> Option<&RunningTransfer> {
        self.transfer.as_deref()
    }

    fn log_in(&mut self, user: &str, session: u64, client: IpAddr, rights: Option<Rights>) {
        info!(front_session = session, user = shown(user), %client, "a session uses this node");
        self.client = client;
        let storage = self.service.committer.storage();
        self.lists = match rights {
            Some(rights) => {
                let made = self.service.made.of(user);
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
        let users = self
            .service
            .settings
            .node
            .as_ref()
            .and_then(|node| node.users.clone());
        let Some(users) = users else {
            return;
        };
        match credential.context(Arc::new(Directory::new(users))) {
            Ok(context) => self.context = Some(context),
            Err(why) => debug!(why, "no credential of a session"),
        }
    }

    fn guard(&self, spec: &DataChannelSpec) -> Result<Option<ChannelSecurity>, StorageFailure> {
        let node = self.service.settings.node.as_ref();
        if spec.dcau != Dcau::None && node.is_some_and(|node| node.users.is_none()) {
            return Err(refusal(
                "the node knows no authorities of users: name their directory there with \
                 --trusted-certs, or send DCAU N",
            ));
        }
        DataContext::guard(self.context.as_ref(), spec)
    }

    async fn listen(&mut self, spec: &Spec, family: Family) -> Result<SocketAddr, StorageFailure> {
        self.drop_channels();
        let settings = &self.service.settings;
        let family = NetworkProtocol::from(family);
        let spec = DataChannelSpec::from(spec);
        let hosts = (self.local, self.client);
        let guard = self.guard(&spec)?;
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
        let settings = &self.service.settings;
        let spec = DataChannelSpec::from(spec);
        let hosts = (self.local, self.client);
        let guard = self.guard(&spec)?;
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
        let request = open::request_of(&start);
        debug!(?request, "a transfer starts");
        let (storage, lists) = (self.service.committer.storage(), Arc::clone(&self.lists));
        self.transfer = Some(Box::new(RunningTransfer::opened_by(
            &request,
            move || open::open(&start.job, &storage, lists),
            &self.service.committer,
            &self.service.turns.of(""),
        )));
    }

    fn on_step(&mut self, step: TransferStep) {
        match step {
            TransferStep::Ready { reused } => self.report(NodeReport::Ready { reused }),
            TransferStep::Done(end) => self.on_end(end),
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

    fn progress(&mut self) {
        let (counts, fresh) = (self.counts, Spans::take(&mut self.fresh));
        self.report(NodeReport::Progress { counts, fresh });
    }

    fn on_end(&mut self, end: TransferEnd) {
        let eods = (self.transfer.as_ref()).map_or(0, |transfer| transfer.eods());
        let retransmitted = (self.transfer.as_ref())
            .and_then(|transfer| transfer.totals().tcp)
            .map(|tcp| tcp.bytes_retransmitted);
        self.transfer = None;
        self.fresh.union_within(&end.fresh, FRESH_RANGES_MAX);
        let counts = Counts {
            bytes: end.bytes,
            channels: 0,
            retransmitted,
        };
        let mut fresh = Spans::take(&mut self.fresh);
        while !self.fresh.is_empty() {
            self.report(NodeReport::Progress { counts, fresh });
            fresh = Spans::take(&mut self.fresh);
        }
        self.report(NodeReport::Done(Box::new(Done {
            counts,
            fresh,
            failure: end.result.err(),
            cached: end.cached,
            channels_peak: end.channels_peak,
            eods,
        })));
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

/// The first bytes of a file at the root that a front end has made for this.
fn look(storage: &dyn Storage, name: &str) -> Result<String, String> {
    let is_meant = !name.contains('/') && is_temporary(name.as_bytes());
    let path = FtpPath::new(format!("/{name}")).ok().filter(|_| is_meant);
    let path = path.ok_or("that is no name of such a file")?;
    let read = |file: FileRef| {
        let mut bytes = [0; LOOK_BYTES];
        let count = file.read_at(0, &mut bytes)?;
        Ok::<_, StorageFailure>(String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    let read = storage.open_read(&path).and_then(read);
    read.map_err(|failure| failure.text)
}
