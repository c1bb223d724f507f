//! Data nodes of a session that has a process of its own: the monitor has the links, since their
//! key must not be in the hands of users. It passes on what a session may say.

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    sync::{Arc, Mutex},
};

use tokio::{net::UnixStream, select, sync::mpsc, task::spawn_blocking};
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
        link::{QUEUE, carry},
        messages::{NodeOrder, NodeReport, shown},
    },
    observe::metrics::NodeSource,
};

/// Links of a session at a time: one for each stripe, of which there are at most as many as
/// addresses in a command.
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
        Ok(FrontLink::over(node, stream))
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
        tokio::spawn(async move {
            pass_on(link, stream).await;
            drop(held);
        });
        Ok(())
    }
}

/// Until one of both ends.
async fn pass_on(link: FrontLink, stream: UnixStream) {
    let (to_session, outgoing) = mpsc::channel(QUEUE);
    let (incoming, mut orders) = mpsc::channel::<NodeOrder>(QUEUE);
    let mut moved = Moved::default();
    let passing = async {
        loop {
            select! {
                order = orders.recv() => match order {
                    Some(order) if order.is_of_a_session() => link.send(order),
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
                    Err(gone) => {
                        link.node.lost(&gone);
                        let why = shown(&gone.why);
                        // A session that is gone itself does not need it.
                        drop(to_session.send(NodeReport::Refused { why }).await);
                        return;
                    }
                },
            }
        }
    };
    let carrying = carry::<_, NodeReport, NodeOrder>(stream, outgoing, incoming);
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
