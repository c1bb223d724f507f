//! One session in a process of its own.

use std::{net::SocketAddr, sync::Arc};

use godwit_gsi::verify::Anchors;
use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
};
use tracing::debug;

use super::{session::NodeSession, shared::NodeShared};
use crate::{
    nodes::{
        link::{HEARD, QUEUE, carry},
        messages::NodeOrder,
        pulse::Pulse,
    },
    service::Service,
    session::Phase,
};

/// Serves the session that `login` has begun, over what root passes on. `anchors`: the authorities
/// of users.
pub(crate) async fn serve_session(
    stream: UnixStream,
    login: NodeOrder,
    service: Arc<Service>,
    anchors: Option<Arc<dyn Anchors>>,
    phase: watch::Receiver<Phase>,
    local: SocketAddr,
) {
    let (reports, outgoing) = mpsc::channel(QUEUE);
    let (incoming, orders) = mpsc::channel(HEARD);
    // There is room.
    drop(incoming.try_send(login));
    let shared = Arc::new(NodeShared::of_process(service, anchors));
    let pulse = Arc::new(Pulse::new());
    let session = NodeSession::new(shared, orders, reports, phase, local, Arc::clone(&pulse));
    let carrying = carry(stream, outgoing, incoming, &pulse);
    let (ended, carried) = tokio::join!(session.serve(), carrying);
    if let Some(why) = ended {
        debug!(why, "a session ends");
    } else if let Err(error) = carried {
        debug!(%error, "a session ends");
    }
}
