//! The links of one session: one for each of its stripes, made when the session first needs data
//! channels, and kept for its next ones.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use godwit_proto::{
    command::NetworkProtocol, error::StorageFailure, mode_e::layout::StripeLayout,
    pi::server::DataChannelSpec,
};
use rustix::io::Errno;
use tokio::task::JoinSet;

use super::{
    data_node::{Gone, Node, lock},
    front_link::FrontLink,
    monitored::NodePool,
    pool::NodeLogin,
    unfenced::Unfenced,
};
use crate::{
    access::security::{NodeCredential, NodeSecurity},
    nodes::messages::{NodeOrder, NodeReport, Share, Spec, shown},
    storage::failure,
};

/// The stripes of a data channel object, in the order in which the client knows their addresses.
pub(crate) struct Stripes {
    pub(super) links: Vec<FrontLink>,
    pub(super) shares: Shares,
    /// Connections have survived a transfer.
    pub(super) cached: AtomicBool,
    pub(super) unfenced: Arc<Unfenced>,
    /// Whose session it is.
    pub(super) user: String,
}

/// What each stripe sends of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shares {
    /// There is one stripe, or the client sends.
    Whole,
    /// To each address what the layout has for it.
    Layout,
    /// What it is given while it sends.
    Leased,
    /// The same, all to one address, where one says EOF for all.
    Joined,
}

/// Where a session's channels shall be.
pub(crate) enum Wanted {
    Listen(DataChannelSpec, NetworkProtocol),
    ConnectTo(DataChannelSpec, Vec<SocketAddr>),
}

impl Wanted {
    pub(crate) fn spec(&self) -> &DataChannelSpec {
        match self {
            Self::Listen(spec, _) | Self::ConnectTo(spec, _) => spec,
        }
    }
}

impl fmt::Debug for Stripes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.links.iter().map(|link| link.node.address.to_string());
        f.debug_list().entries(nodes).finish()
    }
}

/// A report of a stripe, or why there will be none any more.
pub(super) type StripeReport = (usize, Result<NodeReport, Gone>);

impl Stripes {
    /// Finds nodes and lets them listen, or remember whom to connect to. `held`: links of the
    /// session from before.
    pub(super) async fn make(
        nodes: NodePool,
        login: NodeLogin,
        security: NodeSecurity,
        held: Vec<FrontLink>,
        wanted: Wanted,
    ) -> Result<(Self, Vec<SocketAddr>), StorageFailure> {
        let (ftps, unfenced) = (security.ftps, nodes.unfenced());
        let user = login.user.clone();
        let login = (login, security.credential);
        match wanted {
            Wanted::Listen(spec, family) => {
                let well = nodes.well().await;
                // One node for a client that knows one address.
                let count = if spec.striped { well.len() } else { 1 };
                let order = move |_| NodeOrder::Listen {
                    spec: Spec::new(&spec, ftps),
                    family: family.into(),
                };
                let (links, answers) =
                    find(&nodes, &login, held, well, count, count == 1, order).await?;
                let listening = |answer| match answer {
                    NodeReport::Listening { address } => Some(address),
                    _ => None,
                };
                let addresses = answers.into_iter().filter_map(listening).collect();
                Ok((Self::of(links, Shares::Whole, unfenced, user), addresses))
            }
            Wanted::ConnectTo(spec, peers) => {
                let well = nodes.well().await;
                let (count, shares) = match (peers.len(), spec.layout) {
                    // A client that knows striping takes what comes from all.
                    (1, _) if spec.striped && well.len() > 1 => (well.len(), Shares::Joined),
                    (0 | 1, _) => (1, Shares::Whole),
                    (count, Some(_)) => (count, Shares::Layout),
                    (count, None) => (count, Shares::Leased),
                };
                let layout = spec.layout;
                let spec = Spec {
                    // What is left of a lease is counted in bytes that were sent.
                    holes: spec.holes && count == 1,
                    ..Spec::new(&spec, ftps)
                };
                let order = move |index: usize| NodeOrder::ConnectTo {
                    spec: spec.clone(),
                    peer: peers[index % peers.len()],
                    share: share_of(shares, layout, index, count),
                };
                // More addresses than nodes: some nodes have several.
                let nodes_of_each = well.iter().cycle().take(count.max(1)).cloned().collect();
                let (links, _) = find(
                    &nodes,
                    &login,
                    held,
                    nodes_of_each,
                    count,
                    count == 1,
                    order,
                )
                .await?;
                Ok((Self::of(links, shares, unfenced, user), Vec::new()))
            }
        }
    }

    pub(super) fn of(
        links: Vec<FrontLink>,
        shares: Shares,
        unfenced: Arc<Unfenced>,
        user: String,
    ) -> Self {
        Self {
            user,
            unfenced,
            links,
            shares,
            cached: AtomicBool::new(false),
        }
    }

    pub(super) fn send_to_all(&self, order: impl Fn() -> NodeOrder) {
        self.links.iter().for_each(|link| link.send(order()));
    }

    /// The next report of a stripe that `is_awaited`; each end of a link is said once. Cancel-safe.
    pub(super) async fn next(&self, mut is_awaited: impl FnMut(usize) -> bool) -> StripeReport {
        std::future::poll_fn(|context| {
            for (index, link) in self.links.iter().enumerate() {
                if !is_awaited(index) {
                    continue;
                }
                if let Poll::Ready(report) = lock(&link.reports).poll_recv(context) {
                    let report = report.ok_or_else(|| link.why_gone());
                    return Poll::Ready((index, report));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Closes the channels.
    pub(super) fn close(&self) {
        self.send_to_all(|| NodeOrder::Drop);
        self.links.iter().for_each(|link| link.set_channels(0));
        self.cached.store(false, Ordering::Relaxed);
    }
}

fn share_of(shares: Shares, layout: Option<StripeLayout>, index: usize, count: usize) -> Share {
    match (shares, layout) {
        (Shares::Layout, Some(layout)) => Share::Stripe {
            index,
            count,
            layout,
        },
        (Shares::Leased | Shares::Joined, _) => Share::Leased,
        _ => Share::Whole,
    }
}

/// Links to `count` of `nodes` whose answers to the orders are good. Where `any` will do, the next
/// node takes the place of one that fails; else the others do without it, if the client does not
/// wait for it.
async fn find(
    nodes: &NodePool,
    login: &(NodeLogin, Option<NodeCredential>),
    mut held: Vec<FrontLink>,
    candidates: Vec<Arc<Node>>,
    count: usize,
    any: bool,
    order: impl Fn(usize) -> NodeOrder + Clone + Send + 'static,
) -> Result<(Vec<FrontLink>, Vec<NodeReport>), StorageFailure> {
    held.retain(|link| !link.is_gone());
    let candidates = match any {
        // The node that the session had before: its link is there.
        true => {
            let mut all = candidates;
            if let Some(link) = held.first() {
                all.sort_by_key(|node| !Arc::ptr_eq(node, &link.node));
            }
            all
        }
        false => candidates,
    };
    let mut refused = None;
    let mut found = Vec::new();
    let mut rest = candidates.into_iter().enumerate();
    while found.len() < count {
        let missing = count - found.len();
        let mut asked = JoinSet::new();
        for (index, node) in rest.by_ref().take(missing) {
            let had = held.iter().position(|link| Arc::ptr_eq(&link.node, &node));
            let had = had.map(|at| held.swap_remove(at));
            let (nodes, login, order) = (nodes.clone(), login.clone(), order.clone());
            // Whichever node it is, it takes the first place that is free.
            let place = if any { 0 } else { index };
            asked
                .spawn(async move { (index, ask(&nodes, &node, &login, had, order(place)).await) });
        }
        if asked.is_empty() {
            break;
        }
        for (index, answer) in asked.join_all().await {
            match answer {
                Ok(link) => found.push((index, link)),
                Err(why) => refused = Some(why),
            }
        }
    }
    found.sort_by_key(|(index, _)| *index);
    let lost_one = found.len() < count && matches!(order(0), NodeOrder::ConnectTo { .. });
    if found.is_empty() || lost_one {
        let none = || failure_because(Errno::AGAIN, &nodes.why_none());
        return Err(refused.unwrap_or_else(none));
    }
    Ok(found.into_iter().map(|(_, found)| found).unzip())
}

async fn ask(
    nodes: &NodePool,
    node: &Arc<Node>,
    (login, credential): &(NodeLogin, Option<NodeCredential>),
    had: Option<FrontLink>,
    order: NodeOrder,
) -> Result<(FrontLink, NodeReport), StorageFailure> {
    let lost =
        |why: String| failure_because(Errno::AGAIN, &format!("data node {}: {why}", node.address));
    let link = match had {
        Some(link) => link,
        None => nodes.open(node, login).await.map_err(lost)?,
    };
    if let Some(NodeCredential { text, is_chosen }) = credential.clone() {
        link.send(NodeOrder::Secure { text, is_chosen });
    }
    let is_of_client = is_of_client(&order, login.client);
    link.send(order);
    match link.answer().await {
        Ok(NodeReport::Unable { failure })
            if is_of_client && failure.errno == Errno::AFNOSUPPORT.raw_os_error() =>
        {
            let (has, wants) = match login.client {
                IpAddr::V4(_) => ("IPv6", "IPv4"),
                IpAddr::V6(_) => ("IPv4", "IPv6"),
            };
            Err(lost(format!(
                "its front end reaches it by {has}, and the client has come by {wants}: give it \
                 an address of {wants} with data-address there"
            )))
        }
        Ok(NodeReport::Unable { failure }) => Err(StorageFailure {
            text: format!("data node {}: {}", node.address, shown(&failure.text)),
            ..failure
        }),
        // The session has no place there; others may.
        Ok(NodeReport::Refused { why }) => Err(lost(shown(&why))),
        Ok(answer @ (NodeReport::Listening { .. } | NodeReport::Noted)) => Ok((link, answer)),
        Ok(_) => {
            let why = "it does not answer as a data node does";
            node.leave_out(why);
            Err(lost(why.to_owned()))
        }
        Err(gone) => {
            node.lost(&gone);
            Err(lost(gone.why))
        }
    }
}

/// The family that a node shall listen by is that of the control connection: a client could be told
/// no other one.
fn is_of_client(order: &NodeOrder, client: IpAddr) -> bool {
    match order {
        NodeOrder::Listen { family, .. } => match NetworkProtocol::from(*family) {
            NetworkProtocol::Ipv4 => client.is_ipv4(),
            NetworkProtocol::Ipv6 => client.is_ipv6(),
        },
        _ => false,
    }
}

pub(super) fn failure_because(errno: Errno, why: &str) -> StorageFailure {
    StorageFailure {
        text: why.to_owned(),
        ..failure(errno, "use a data node")
    }
}

/// Host of a client, as nodes compare it.
pub(super) fn host(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
