//! A session's data channel object: the mover it runs on, the addresses it announces.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_engine::{
    data::{
        ChannelLimiter, ChannelParams, ChannelSecurity, ChannelSet, FilePart, JobOpener, Mover,
        QueuedWork, Transfer, TransferJob,
    },
    host::net::{self, PortRange},
    storage::Metadata,
};
use godwit_proto::{
    command::{Mode, NetworkProtocol},
    error::{StorageFailure, TransferFailure},
    pi::server::{DataChannelSpec, TransferKind, TransferRequest},
};
use rustix::io::Errno;

use crate::{
    access::channel_quota::{ChannelQuota, Channels},
    config::ServerSettings,
    lookahead::{recent_files::RecentFiles, reorder::RecentNames},
    nodes::front::{NodeChannels, Unfenced, striped::StripedTransfer},
    storage::{failure, failure_of},
};

const LISTENING: &str = "listen for data connections";

/// The mover closes a former listener later; in a small range the new one needs that port.
const PORT_PATIENCE: Duration = Duration::from_millis(500);

const PORT_RETRY: Duration = Duration::from_millis(2);

/// Nothing until the first PASV or PORT: an idle session has no thread and no listener.
#[derive(Default)]
pub(crate) struct DataChannels {
    /// One thread for the session, kept from its first transfer on.
    mover: Option<Mover>,
    set: Option<ChannelSet>,
    /// The set is protected by TLS of FTP (RFC 4217).
    is_tls: bool,
    /// When the last set was dropped.
    closed_at: Option<Instant>,
    /// Of the channels of account and address; `None` before login.
    quota: Option<Arc<ChannelQuota>>,
    /// Of the set: bytes of socket buffers, 0 as the kernel has it, and of a block.
    sizes: (u64, u64),
    passed: Arc<RecentFiles>,
    last_names: RecentNames,
    /// What of each file goes to the peer.
    part: FilePart,
    /// Where data nodes move the data.
    nodes: Option<NodeChannels>,
}

impl DataChannels {
    /// The session has logged in.
    pub(crate) fn set_quota(&mut self, quota: Arc<ChannelQuota>) {
        self.quota = Some(quota);
    }

    /// The session's data moves on `nodes`.
    pub(crate) fn use_nodes(&mut self, nodes: NodeChannels) {
        self.nodes = Some(nodes);
    }

    pub(crate) fn on_nodes(&self) -> bool {
        self.nodes.is_some()
    }

    pub(crate) fn nodes_mut(&mut self) -> Option<&mut NodeChannels> {
        self.nodes.as_mut()
    }

    /// Where data nodes move the data: files into which some may still write.
    pub(crate) fn unfenced(&self) -> Option<Arc<Unfenced>> {
        self.nodes.as_ref().map(NodeChannels::unfenced)
    }

    /// What later sets send of a file.
    pub(crate) fn set_part(&mut self, part: FilePart) {
        self.part = part;
    }

    /// Begins a transfer on data nodes, whose file is open here as `job` says and is `file`.
    pub(crate) fn start_on_nodes(
        &self,
        request: &TransferRequest,
        job: &TransferJob,
        file: Option<&Metadata>,
    ) -> Result<StripedTransfer, TransferFailure> {
        let stripes = self.nodes.as_ref().and_then(NodeChannels::stripes);
        let stripes = stripes.ok_or_else(no_data_channel)?;
        StripedTransfer::start(stripes, request, job, file)
    }

    /// Closes the present set and decides where to listen: on the address of `local`'s family that
    /// the client reached, or on all where a configured address is announced.
    pub(crate) fn plan_listen(
        &mut self,
        spec: DataChannelSpec,
        security: Option<ChannelSecurity>,
        family: NetworkProtocol,
        (local, client): (IpAddr, IpAddr),
        settings: &ServerSettings,
    ) -> Result<ListenPlan, StorageFailure> {
        self.close();
        let patience = match self.closed_at {
            Some(at) => PORT_PATIENCE.saturating_sub(at.elapsed()),
            None => Duration::ZERO,
        };
        let (announced, bound) = addresses(family, local, &settings.data_address)
            .ok_or_else(|| failure(Errno::AFNOSUPPORT, LISTENING))?;
        Ok(ListenPlan {
            spec,
            security,
            client,
            announced,
            bound,
            ports: settings.port_range.clone(),
            patience,
        })
    }

    /// Takes the listener of a plan; returns what to announce.
    pub(crate) fn listen(
        &mut self,
        plan: &ListenPlan,
        listener: TcpListener,
        settings: &ServerSettings,
    ) -> Result<SocketAddr, StorageFailure> {
        let port = listener
            .local_addr()
            .map_err(|e| failure_of(&e, LISTENING))?
            .port();
        let mover = self.mover()?;
        self.is_tls = is_tls(plan.security.as_ref());
        let mut params = self.params(&plan.spec, plan.security.clone(), settings);
        // A peer that proves an identity may connect from any address.
        let proven = matches!(plan.security, Some(ChannelSecurity::Gsi(_)));
        params.only_from = (!plan.spec.foreign_hosts && !proven).then(|| [plan.client].into());
        self.sizes = sizes_of(&params);
        let set = ChannelSet::passive(&[mover], listener, params)
            .map_err(|e| failure_of(&e, LISTENING))?;
        self.set = Some(set);
        Ok(SocketAddr::new(plan.announced, port))
    }

    /// Remembers `peers`; they are connected to when a transfer starts.
    pub(crate) fn connect_to(
        &mut self,
        spec: &DataChannelSpec,
        security: Option<ChannelSecurity>,
        peers: Vec<SocketAddr>,
        (local, client): (IpAddr, IpAddr),
        settings: &ServerSettings,
    ) -> Result<(), StorageFailure> {
        self.close();
        let mover = self.mover()?;
        self.is_tls = is_tls(security.as_ref());
        let mut params = self.params(spec, security, settings);
        // The client expects us from where it has reached us. Other hosts may be out of reach from
        // there, and a link-local address means nothing without its interface.
        let is_client = |peer: &SocketAddr| peer.ip().to_canonical() == client.to_canonical();
        let local = local.to_canonical();
        let is_link_local = matches!(local, IpAddr::V6(v6) if v6.is_unicast_link_local());
        params.source = (peers.iter().all(is_client) && !is_link_local).then_some(local);
        self.sizes = sizes_of(&params);
        let set = ChannelSet::active(&[mover], peers, spec.layout, params);
        self.set = Some(set);
        Ok(())
    }

    /// Channels now, and opened in all.
    pub(crate) fn count(&self) -> Channels {
        if let Some(nodes) = &self.nodes {
            return nodes.count();
        }
        (self.quota.as_ref()).map_or_else(Channels::default, |quota| quota.channels())
    }

    /// Bytes of socket buffers that the client asked for, 0 where it did not, and of a block at
    /// most.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        self.sizes
    }

    /// Closes listener and connections; a transfer that runs on them fails.
    pub(crate) fn close(&mut self) {
        if self.set.take().is_some() {
            self.closed_at = Some(Instant::now());
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.close();
        }
    }

    /// Clients begin TLS on a data connection when they have read the 150 (the examples of RFC 4217
    /// have it so): it must not wait for that.
    pub(crate) fn shakes_hands_after_150(&self) -> bool {
        self.set.is_some() && self.is_tls
    }

    /// The file that moved last.
    pub(crate) fn recent_files(&self) -> &Arc<RecentFiles> {
        &self.passed
    }

    /// Connections that wait for the next transfer.
    pub(crate) fn cached(&self) -> usize {
        self.set.as_ref().map_or(0, ChannelSet::cached)
    }

    /// Sets the number of channels for the next transfer, if connections wait for one.
    pub(crate) fn next_channels(&self, channels: u32) {
        if let Some(set) = &self.set {
            set.next_channels(channels);
        }
        if let Some(nodes) = &self.nodes {
            nodes.next_channels(channels);
        }
    }

    pub(crate) fn start(&self, job: TransferJob, mode: Mode) -> Result<Transfer, TransferFailure> {
        match &self.set {
            Some(set) => Ok(set.start(job, mode)),
            None => Err(no_data_channel()),
        }
    }

    /// Starts a transfer in MODE E behind those that were queued before: see [`ChannelSet::queue`].
    pub(crate) fn queue(
        &mut self,
        kind: &TransferKind,
        open: JobOpener,
    ) -> Result<Transfer, TransferFailure> {
        let sends = !matches!(kind, TransferKind::Receive { .. });
        let follows = self.last_names.may_follow(kind);
        match &self.set {
            Some(set) => Ok(set.queue(sends, follows, open)),
            None => Err(no_data_channel()),
        }
    }

    /// Queues `work` among them: see [`ChannelSet::queue_work`]. Dropped without a data channel.
    pub(crate) fn queue_work(&self, work: QueuedWork, passable: bool) {
        if let Some(set) = &self.set {
            set.queue_work(work, passable);
        }
    }

    fn params(
        &self,
        spec: &DataChannelSpec,
        security: Option<ChannelSecurity>,
        settings: &ServerSettings,
    ) -> ChannelParams {
        ChannelParams {
            parallelism: spec.parallelism.clamp(1, settings.channels_max),
            channels_max: settings.channels_max,
            holes: spec.holes,
            socket_buffer_bytes: spec.socket_buffer_bytes,
            security,
            channel_limiter: (self.quota.clone()).map(|quota| -> Arc<dyn ChannelLimiter> { quota }),
            connect_limit: settings.data_limit,
            stall_limit: settings.data_limit,
            closes_late: true,
            reports_safe: false,
            part: self.part,
            ..ChannelParams::default()
        }
    }

    fn mover(&mut self) -> Result<Mover, StorageFailure> {
        if let Some(mover) = &self.mover {
            return Ok(mover.clone());
        }
        let mover = Mover::spawn("data").map_err(|e| failure_of(&e, "start a data mover"))?;
        self.mover = Some(mover.clone());
        Ok(mover)
    }
}

fn sizes_of(params: &ChannelParams) -> (u64, u64) {
    (params.socket_buffer_bytes.unwrap_or(0), params.block_bytes)
}

fn no_data_channel() -> TransferFailure {
    TransferFailure::NoConnection("no data channel: PASV or PORT must come first".to_owned())
}

/// How to listen for data connections.
#[derive(Debug)]
pub(crate) struct ListenPlan {
    spec: DataChannelSpec,
    security: Option<ChannelSecurity>,
    /// The control connection's host.
    client: IpAddr,
    announced: IpAddr,
    bound: IpAddr,
    ports: Option<PortRange>,
    /// How long to retry while all ports are taken.
    patience: Duration,
}

impl ListenPlan {
    /// Blocks: a large range may have to be searched.
    pub(crate) fn open(&self) -> Result<TcpListener, StorageFailure> {
        let started = Instant::now();
        loop {
            let buffer = self.spec.socket_buffer_bytes;
            match net::listen(self.bound, self.ports.as_ref(), buffer) {
                Ok(listener) => return Ok(listener),
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && started.elapsed() < self.patience =>
                {
                    std::thread::sleep(PORT_RETRY);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    return Err(StorageFailure {
                        text: "all ports for data connections are taken, try again later"
                            .to_owned(),
                        ..failure_of(&error, LISTENING)
                    });
                }
                Err(error) => return Err(failure_of(&error, LISTENING)),
            }
        }
    }
}

fn is_tls(security: Option<&ChannelSecurity>) -> bool {
    matches!(security, Some(ChannelSecurity::TlsServer { .. }))
}

/// What to announce and what to bind. `local` is the control connection's own address. `None` where
/// the family asked for is not the one the client came by and no address of it is configured:
/// nothing we could announce is known to reach us.
fn addresses(
    family: NetworkProtocol,
    local: IpAddr,
    configured: &[IpAddr],
) -> Option<(IpAddr, IpAddr)> {
    let fits = |address: &IpAddr| match family {
        NetworkProtocol::Ipv4 => address.is_ipv4(),
        NetworkProtocol::Ipv6 => address.is_ipv6(),
    };
    if let Some(announced) = configured.iter().find(|a| fits(a)) {
        // A router forwards: the local address of the connections is unknown.
        let any = match family {
            NetworkProtocol::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
            NetworkProtocol::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        return Some((*announced, any));
    }
    // A dual-stack listener shows IPv4 clients as ::ffff:a.b.c.d, which PASV cannot say.
    let local = local.to_canonical();
    fits(&local).then_some((local, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn announces_the_address_the_client_reached() {
        use NetworkProtocol::{Ipv4, Ipv6};
        for (family, local, configured, want) in [
            (Ipv4, "10.1.2.3", &[][..], Some(("10.1.2.3", "10.1.2.3"))),
            (Ipv4, "::ffff:10.1.2.3", &[], Some(("10.1.2.3", "10.1.2.3"))),
            (Ipv4, "::1", &[], None),
            (Ipv6, "::1", &[], Some(("::1", "::1"))),
            (Ipv6, "10.1.2.3", &[], None),
            (
                Ipv4,
                "10.1.2.3",
                &["192.0.2.7"],
                Some(("192.0.2.7", "0.0.0.0")),
            ),
            (
                Ipv6,
                "10.1.2.3",
                &["192.0.2.7", "2001:db8::7"],
                Some(("2001:db8::7", "::")),
            ),
        ] {
            let configured: Vec<_> = configured.iter().map(|a| ip(a)).collect();
            assert_eq!(
                addresses(family, ip(local), &configured),
                want.map(|(a, b)| (ip(a), ip(b))),
                "{family:?} {local} {configured:?}"
            );
        }
    }
}
