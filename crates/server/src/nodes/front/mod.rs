//! The front end's half: which nodes there are, and a session's stripes on them.
//!
//! - `data_node`: one of them; `front_link`: a link to it; [`pool`]: all, and which are well
//! - [`stripes`]: the links of a session; [`striped`]: one transfer over them; `leases`: which node
//!   sends which bytes; `unfenced`: files into which a lost node may still write
//! - [`monitor`], [`monitored`]: the same for a session that has a process of its own

mod data_node;
mod front_link;
mod leases;
pub(crate) mod monitor;
pub(crate) mod monitored;
pub(crate) mod pool;
pub(crate) mod striped;
pub(crate) mod stripes;
mod unfenced;

use std::{future::Future, net::SocketAddr, sync::Arc};

use godwit_proto::error::StorageFailure;

pub(crate) use self::unfenced::Unfenced;
use self::{
    monitored::NodePool,
    pool::NodeLogin,
    stripes::{Stripes, Wanted, host},
};
use crate::{
    access::{channel_quota::Channels, rights::Rights, security::NodeSecurity},
    config::Durability,
    nodes::messages::NodeOrder,
};

/// The data channels of a session whose data moves on nodes.
pub(crate) struct NodeChannels {
    nodes: NodePool,
    /// What 226 and 111 promise.
    durability: Durability,
    /// What the login may list.
    rights: Option<Rights>,
    stripes: Option<Arc<Stripes>>,
    /// Of an earlier data channel object, for the next one.
    held: Option<Arc<Stripes>>,
}

/// Stripes, and the addresses where they listen.
pub(crate) type MadeStripes = Result<(Stripes, Vec<SocketAddr>), StorageFailure>;

impl NodeChannels {
    pub(crate) fn new(nodes: NodePool, durability: Durability) -> Self {
        Self {
            nodes,
            durability,
            rights: None,
            stripes: None,
            held: None,
        }
    }

    pub(crate) fn confine_to_rights(&mut self, rights: Rights) {
        self.rights = Some(rights);
    }

    /// Closes the present stripes and makes others.
    pub(crate) fn make(
        &mut self,
        user: &str,
        session: u64,
        client: SocketAddr,
        security: NodeSecurity,
        wanted: Wanted,
    ) -> impl Future<Output = MadeStripes> + Send + 'static {
        self.close();
        let login = NodeLogin {
            user: user.to_owned(),
            session,
            client: host(client.ip()),
            rights: self.rights.clone(),
            durability: self.durability,
            ftps: security.ftps,
            account: None,
        };
        let held = self.held.take().and_then(Arc::into_inner);
        let links = held.map_or_else(Vec::new, |mut held| std::mem::take(&mut held.links));
        Stripes::make(self.nodes.clone(), login, security, links, wanted)
    }

    pub(crate) fn keep(&mut self, stripes: Stripes) {
        self.stripes = Some(Arc::new(stripes));
    }

    pub(crate) fn stripes(&self) -> Option<&Arc<Stripes>> {
        self.stripes.as_ref()
    }

    /// Files into which nodes that were cut off may still write.
    pub(crate) fn unfenced(&self) -> Arc<Unfenced> {
        self.nodes.unfenced()
    }

    pub(crate) fn close(&mut self) {
        if let Some(stripes) = self.stripes.take() {
            stripes.close();
            self.held = Some(stripes);
        }
    }

    pub(crate) fn next_channels(&self, channels: u32) {
        if let Some(stripes) = &self.stripes {
            let channels = each(channels, stripes.links.len());
            stripes.send_to_all(|| NodeOrder::NextChannels { channels });
        }
    }

    /// Channels at the last reports of the nodes.
    pub(crate) fn count(&self) -> Channels {
        let now = self.stripes.as_ref().map_or(0, |stripes| {
            let each = stripes.links.iter().map(|link| link.channels());
            each.fold(0, u32::saturating_add)
        });
        Channels {
            now,
            opened: now.into(),
        }
    }
}

/// Channels of one of so many stripes, at least 1.
fn each(channels: u32, stripes: usize) -> u32 {
    let stripes = u32::try_from(stripes).unwrap_or(u32::MAX).max(1);
    channels.div_ceil(stripes).max(1)
}
