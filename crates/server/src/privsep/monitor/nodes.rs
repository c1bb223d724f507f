//! Data nodes of sessions: the monitor has the links to them, and says there whose session it is.

use std::{os::fd::AsFd as _, sync::Arc, time::Duration};

use super::{Connection, ConnectionError};
use crate::{
    config::NodeAddress,
    nodes::front::{
        monitored::{LINKS_MAX, NodePool},
        pool::Nodes,
    },
    privsep::{
        link::{MonitorEnd, relay_pair},
        messages::MonitorReply,
    },
};

/// A new link takes as much of the monitor's time as a message of so many bytes.
const LINK_BYTES: usize = 64 * 1024;

impl Connection {
    fn nodes(&self) -> Result<&Arc<Nodes>, ConnectionError> {
        match &self.service.nodes {
            Some(NodePool::Own(nodes)) => Ok(nodes),
            // Its session would not ask.
            Some(NodePool::Monitored(_)) | None => Err(ConnectionError::Session),
        }
    }

    pub(super) async fn list_nodes(&self, link: &MonitorEnd) -> Result<(), ConnectionError> {
        let list = self.nodes()?.list().await;
        Ok(link.send(&MonitorReply::Nodes(list), &[]).await?)
    }

    pub(super) async fn open_node_link(
        &self,
        link: &MonitorEnd,
        node: &NodeAddress,
    ) -> Result<(), ConnectionError> {
        link.charge(LINK_BYTES);
        let login = self.node_login.as_ref().ok_or(ConnectionError::Session)?;
        let Ok(held) = Arc::clone(&self.node_links).try_acquire_owned() else {
            let why = format!("the session has {LINKS_MAX} links to data nodes already, the most");
            return Ok(link.send(&MonitorReply::Refused { why }, &[]).await?);
        };
        let (ours, theirs) = relay_pair()?;
        match self.nodes()?.relay(node, login, ours, held).await {
            Ok(()) => {
                let beside = [theirs.as_fd()];
                Ok(link.send(&MonitorReply::NodeLink, &beside).await?)
            }
            Err(why) => Ok(link.send(&MonitorReply::Refused { why }, &[]).await?),
        }
    }

    pub(super) fn add_unfenced(
        &self,
        file: (u64, u64),
        quiet_in: Duration,
    ) -> Result<(), ConnectionError> {
        let login = self.node_login.as_ref().ok_or(ConnectionError::Session)?;
        self.nodes()?.unfenced.add(&login.user, file, quiet_in);
        Ok(())
    }

    pub(super) async fn tell_unfenced(
        &self,
        link: &MonitorEnd,
        file: (u64, u64),
    ) -> Result<(), ConnectionError> {
        let quiet_in = self.nodes()?.unfenced.quiet_in(file);
        let reply = MonitorReply::Unfenced { quiet_in };
        Ok(link.send(&reply, &[]).await?)
    }
}
