//! Data nodes of a session that has a process of its own: the monitor has the links, since their
//! key must not be in the hands of users. It passes on what a session may say.

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    sync::{Arc, Mutex},
};

use tokio::{
    net::UnixStream,
    select,
    sync::{Notify, mpsc},
    task::spawn_blocking,
    time::sleep,
};
use tracing::debug;

use super::{
    data_node::{Node, lock},
    front_link::FrontLink,
    monitor::{NodeList, NodeMonitor},
    pool::{NodeLogin, Nodes},
    unfenced::Unfenced,
};
use crate::{
    config::NodeAddress,
    nodes::{
        link::{HEARD, QUEUE, carry},
        messages::{NodeOrder, NodeReport, shown},
        pulse::Pulse,
    },
    observe::metrics::NodeSource,
};

/// Links of a session at a time: one for each stripe. A command may have more addresses (1024):
/// then the session has no data channels, and its 425 says this limit.
pub(crate) const LINKS_MAX: usize = 256;

/// Bytes of the reasons why there is no node.
const WHY_MAX: usize = 8 * 1024;

/// Where a session finds its nodes.
#[derive(Clone)]
pub(crate) enum NodePool {
    /// In this process.
    Own(Arc<Nodes>),
    Monitored(Arc<MonitoredNodes>),
}

/// Nodes by way of the monitor.
pub(crate) struct MonitoredNodes {
    monitor: Arc<dyn NodeMonitor>,
    /// Those that were well once.
    known: Mutex<BTreeMap<NodeAddress, Arc<Node>>>,
    why_none: Mutex<String>,
    unfenced: Arc<Unfenced>,
}

impl NodePool {
    /// For monitoring; `None` where another process has the nodes.
    pub(crate) fn source(&self) -> Option<Arc<dyn NodeSource>> {
        match self {
            Self::Own(nodes) => Some(Arc::clone(nodes) as _),
            Self::Monitored(_) => None,
        }
    }

    pub(crate) fn monitored(monitor: Arc<dyn NodeMonitor>) -> Self {
        Self::Monitored(Arc::new(MonitoredNodes {
            unfenced: Arc::new(Unfenced::monitored(Arc::clone(&monitor))),
            monitor,
            known: Mutex::default(),
            why_none: Mutex::default(),
        }))
    }

    pub(super) fn unfenced(&self) -> Arc<Unfenced> {
        match self {
            Self::Own(nodes) => Arc::clone(&nodes.unfenced),
            Self::Monitored(nodes) => Arc::clone(&nodes.unfenced),
        }
    }

    /// The nodes that are well, the least busy first.
    pub(super) async fn well(&self) -> Vec<Arc<Node>> {
        match self {
            Self::Own(nodes) => nodes.well().await,
            Self::Monitored(nodes) => nodes.well().await,
        }
    }

    /// Why a session gets no node.
    pub(super) fn why_none(&self) -> String {
        match self {
            Self::Own(nodes) => nodes.why_none(),
            Self::Monitored(nodes) => lock(&nodes.why_none).clone(),
        }
    }

    /// A link for a session.
    pub(super) async fn open(
        &self,
        node: &Arc<Node>,
        login: &NodeLogin,
    ) -> Result<FrontLink, String> {
        match self {
            Self::Own(nodes) => nodes.open(node, login).await,
            Self::Monitored(nodes) => nodes.open(node).await,
        }
    }
}

impl MonitoredNodes {
    async fn well(&self) -> Vec<Arc<Node>> {
        let monitor = Arc::clone(&self.monitor);
        let asked = spawn_blocking(move || monitor.nodes()).await;
        let asked = asked.unwrap_or_else(|error| Err(error.to_string()));
        let list = asked.unwrap_or_else(|why_none| NodeList {
            well: Vec::new(),
            why_none,
        });
        *lock(&self.why_none) = list.why_none;
        let mut known = lock(&self.known);
        let each = list.well.into_iter().map(|well| {
            let address = well.address.clone();
            let node = known.entry(address).or_insert_with(|| Node::well(well));
            Arc::clone(node)
        });
        each.collect()
    }

    async fn open(&self, node: &Arc<Node>) -> Result<FrontLink, String> {
        let (monitor, address) = (Arc::clone(&self.monitor), node.address.clone());
        let socket = spawn_blocking(move || monitor.link(&address)).await;
        let socket = socket.unwrap_or_else(|error| Err(error.to_string()))?;
        let stream = UnixStream::from_std(StdUnixStream::from(socket));
        let stream = stream.map_err(|error| error.to_string())?;
        Ok(FrontLink::passed_on(node, stream))
    }
}

impl Nodes {
    /// For the process of a session.
    pub(crate) async fn list(&self) -> NodeList {
        let well = self.well().await;
        let mut why_none = self.why_none();
        why_none.truncate(why_none.floor_char_boundary(WHY_MAX));
        NodeList {
            well: well.iter().map(|node| node.as_well()).collect(),
            why_none,
        }
    }

    /// Opens a link for the process of a session, which has the other end of `socket`, and passes
    /// on what both say until one ends. `held` is dropped then.
    pub(crate) async fn relay(
        &self,
        address: &NodeAddress,
        login: &NodeLogin,
        socket: OwnedFd,
        held: impl Send + 'static,
    ) -> Result<(), String> {
        let node = (self.at(address)).ok_or_else(|| format!("{address} is no data node"))?;
        let link = self.open(node, login).await?;
        let stream = UnixStream::from_std(StdUnixStream::from(socket));
        let stream = stream.map_err(|error| error.to_string())?;
        let is_of_a_process = login.account.is_some();
        let sooner = is_of_a_process.then(|| Arc::clone(&self.sooner));
        tokio::spawn(async move {
            pass_on(link, stream, sooner).await;
            drop(held);
        });
        Ok(())
    }
}

/// Until one of both ends. `sooner`: the node has a process of the user's for the link, which the
/// user may end. So an end says nothing of the node, which is asked at once.
async fn pass_on(link: FrontLink, stream: UnixStream, sooner: Option<Arc<Notify>>) {
    let (to_session, outgoing) = mpsc::channel(QUEUE);
    let (incoming, mut orders) = mpsc::channel::<NodeOrder>(HEARD);
    let mut moved = Moved::default();
    let passing = async {
        loop {
            select! {
                order = orders.recv() => match order {
                    Some(order) if order.is_of_a_session() => link.pass(order).await,
                    Some(_) => return debug!("a session gives an order that is not its own"),
                    None => return,
                },
                report = link.next() => match report {
                    Ok(report) => {
                        moved.count(&link, &report);
                        if to_session.send(report).await.is_err() {
                            return;
                        }
                    }
                    Err(mut gone) => {
                        if let Some(sooner) = &sooner {
                            gone.is_of_one_link = true;
                            sooner.notify_one();
                        }
                        link.node.lost(&gone);
                        // The session may let others write where the node did.
                        sleep(link.quiet_in(false)).await;
                        let why = shown(&gone.why);
                        // A session that is gone itself does not need it.
                        drop(to_session.send(NodeReport::Refused { why }).await);
                        return;
                    }
                },
            }
        }
    };
    let pulse = Pulse::new();
    let carrying = carry::<_, NodeReport, NodeOrder>(stream, outgoing, incoming, &pulse);
    tokio::pin!(carrying);
    select! {
        () = passing => {}
        _ = &mut carrying => return,
    }
    // The last report still leaves.
    drop(to_session);
    drop(carrying.await);
}

/// What a node has reported of the transfer that runs.
#[derive(Default)]
struct Moved {
    transfer: u64,
    bytes: u64,
}

impl Moved {
    /// Counts what the process of the session counts for itself.
    fn count(&mut self, link: &FrontLink, report: &NodeReport) {
        let (transfer, counts) = match report {
            NodeReport::Progress {
                transfer, counts, ..
            } => (*transfer, *counts),
            NodeReport::Done(done) => (done.transfer, done.counts),
            _ => return,
        };
        if transfer != self.transfer {
            *self = Self { transfer, bytes: 0 };
        }
        link.node.add_bytes(counts.bytes.saturating_sub(self.bytes));
        self.bytes = counts.bytes;
        link.set_channels(counts.channels);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::nodes::{link::next_message, messages::encode};

    fn channels(channels: u32) -> NodeOrder {
        NodeOrder::Steer { channels }
    }

    /// Passes on what `said` has for a node that begins to read late; what arrives there.
    fn arrive(said: &[NodeOrder]) -> Vec<NodeOrder> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (of_node, _, _) = FrontLink::detached("dtn", false);
            let (stream, mut node) = tokio::io::duplex(64);
            let link = FrontLink::over(&of_node.node, stream);
            let (monitor, mut session) = UnixStream::pair().unwrap();
            let passing = tokio::spawn(pass_on(link, monitor, None));
            // Not more at a time than an end may say.
            for some in said.chunks(QUEUE / 2) {
                let bytes: Vec<_> = some.iter().map(|order| encode(order).unwrap()).collect();
                session.write_all(&bytes.concat()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let mut arrived = Vec::new();
            let next = async |node: &mut _| next_message::<NodeOrder>(node, 1000).await;
            let limit = Duration::from_secs(1);
            while let Ok(Ok(order)) = tokio::time::timeout(limit, next(&mut node)).await {
                arrived.push(order);
            }
            passing.abort();
            arrived
        })
    }

    #[test]
    fn no_order_is_lost_on_its_way_to_a_node_that_is_slow() {
        let said: Vec<_> = (0..600).map(channels).collect();
        let arrived = arrive(&said);
        assert_eq!(format!("{arrived:?}"), format!("{said:?}"));
    }

    #[test]
    fn who_a_session_is_and_what_there_is_at_the_root_it_may_not_say_itself() {
        let login = NodeOrder::Login {
            user: "root".to_owned(),
            session: 1,
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            rights: None,
            durability: crate::config::Durability::None,
            ftps: false,
            account: None,
        };
        let name = "shadow".to_owned();
        for foreign in [
            login,
            NodeOrder::Look { name },
            NodeOrder::Hello { version: 2 },
        ] {
            let arrived = arrive(&[channels(1), foreign, channels(2)]);
            assert_eq!(format!("{arrived:?}"), format!("{:?}", [channels(1)]));
        }
    }
}
