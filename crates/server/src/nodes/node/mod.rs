//! godwitd --data-node: takes the links of front ends, and moves their sessions' data.

mod open;
mod session;

use std::{
    future::Future,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use self::session::NodeSession;
use super::{
    link::{QUEUE, carry},
    random::random_name,
    tls::NodeEndTls,
};
use crate::{
    config::{NodeSettings, ServerSettings},
    error::ServerError,
    listener::ABORT_LIMIT,
    service::Service,
    session::Phase,
};

/// Links at a time: a session of a front end has one for each stripe.
const LINKS_MAX: usize = 20_000;

/// Time for the handshake of TLS.
const TLS_LIMIT: Duration = Duration::from_secs(10);

/// Rest after an accept that failed for want of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A data node that listens. Front ends wait in the kernel until [`DataNode::run`].
pub struct DataNode {
    listener: TcpListener,
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    service: Arc<Service>,
    tls: NodeEndTls,
    instance: String,
    links: Arc<Semaphore>,
}

impl DataNode {
    /// Opens the root and listens where the settings of the node say. Within a runtime.
    ///
    /// # Errors
    /// As of a server; [`ServerError::NodeTls`] where certificates cannot be used.
    pub fn bind(settings: ServerSettings, node: &NodeSettings) -> Result<Self, ServerError> {
        let failed = |error| ServerError::Listen {
            address: node.listen,
            error,
        };
        let tls = NodeEndTls::load(&node.tls, &node.front_ends).map_err(ServerError::NodeTls)?;
        let service = Arc::new(Service::new(settings, Arc::default())?);
        let listener = StdListener::bind(node.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            inner: Arc::new(Inner {
                service,
                tls,
                instance: random_name().map_err(failed)?,
                links: Arc::new(Semaphore::new(LINKS_MAX)),
            }),
        })
    }

    /// Where it listens, with the port that was free.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is ready, and every session with data channels has ended, or was cut
    /// after the drain time.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let phase = watch::Sender::new(Phase::Serving);
        tokio::select! {
            () = shutdown => {}
            () = self.accept(&phase) => {}
        }
        let drain = self.inner.service.settings.drain;
        let links = phase.receiver_count();
        info!(links, drain_seconds = drain.as_secs(), "shutting down");
        phase.send_replace(Phase::Draining);
        // Front ends that ask meanwhile are told, so that they take another node at once.
        let ended = tokio::select! {
            ended = timeout(drain, phase.closed()) => ended.is_ok(),
            () = self.accept(&phase) => false,
        };
        drop(self.listener);
        if !ended {
            warn!(links = phase.receiver_count(), "cutting what still runs");
            phase.send_replace(Phase::Aborting);
            drop(timeout(ABORT_LIMIT, phase.closed()).await);
        }
    }

    async fn accept(&self, phase: &watch::Sender<Phase>) {
        loop {
            match self.listener.accept().await {
                Ok((socket, peer)) => {
                    let Ok(permit) = Arc::clone(&self.inner.links).try_acquire_owned() else {
                        warn!(%peer, "more than {LINKS_MAX} links, refused");
                        continue;
                    };
                    let (inner, phase) = (Arc::clone(&self.inner), phase.subscribe());
                    tokio::spawn(async move {
                        inner.serve(socket, peer, phase).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a front end, resting");
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

impl Inner {
    async fn serve(&self, socket: TcpStream, peer: SocketAddr, phase: watch::Receiver<Phase>) {
        drop(socket.set_nodelay(true));
        let local = match socket.local_addr() {
            Ok(local) => local,
            Err(error) => return debug!(%peer, %error, "a front end was lost"),
        };
        let (stream, front_end) = match timeout(TLS_LIMIT, self.tls.accept(socket)).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(why)) => return warn!(%peer, why, "no front end"),
            Err(_) => return warn!(%peer, "no front end: its handshake takes too long"),
        };
        if let Err(why) = &front_end {
            warn!(%peer, why, "a front end is refused");
        }
        let (reports, outgoing) = mpsc::channel(QUEUE);
        let (incoming, orders) = mpsc::channel(QUEUE);
        let service = Arc::clone(&self.service);
        let session = NodeSession::new(service, orders, reports, phase, local);
        let (ended, carried) = tokio::join!(
            session.serve(front_end, &self.instance),
            carry(stream, outgoing, incoming)
        );
        match (ended, carried) {
            (Some(why), _) => debug!(%peer, why, "a link ends"),
            (None, Err(error)) => debug!(%peer, %error, "a link ends"),
            (None, Ok(())) => debug!(%peer, "a link ends"),
        }
    }
}
