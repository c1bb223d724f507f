//! godwitd --data-node: takes the links of front ends, and moves their sessions' data.

mod admission;
mod fenced_file;
mod look;
mod open;
pub(crate) mod process;
mod session;
mod shared;

use std::{
    future::Future,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use self::{
    admission::{LinkAdmission, LinkPlace, Unproven},
    session::NodeSession,
    shared::NodeShared,
};
use super::{
    link::{HEARD, NodeLinkError, QUEUE, carry, next_message, part, say},
    messages::{FIRST_MESSAGE_MAX, MESSAGE_MAX, NodeAccount, NodeOrder, NodeReport, VERSION},
    pulse::Pulse,
    random::random_name,
    tls::NodeEndTls,
};
use crate::{
    access::accounts::SystemAccount,
    config::{NodeSettings, ServerSettings},
    error::ServerError,
    listener::ABORT_LIMIT,
    privsep::node_monitor::NodeProcess,
    service::Service,
    session::Phase,
};

/// Time for the first message of a front end.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// Why a node that runs as root has no process for a session.
const ONE_ACCOUNT_THERE: &str = "its front end runs sessions as one account, and this node runs \
    them as their users': start both as root, or none";

/// Time for the handshake of TLS.
const TLS_LIMIT: Duration = Duration::from_secs(10);

/// Between two lines in the log about connections that are closed at once.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Rest after an accept that failed for want of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A data node that listens. Front ends wait in the kernel until [`DataNode::run`].
pub struct DataNode {
    listener: TcpListener,
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<NodeShared>,
    tls: NodeEndTls,
    instance: String,
    admission: Arc<LinkAdmission>,
    /// Connections that were closed at once since the last line about them in the log.
    unheard: AtomicU64,
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
        let service = Arc::new(Service::new(settings, Arc::default(), Arc::default())?);
        let listener = StdListener::bind(node.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            inner: Arc::new(Inner {
                shared: Arc::new(NodeShared::new(service)),
                tls,
                instance: random_name().map_err(failed)?,
                admission: Arc::default(),
                unheard: AtomicU64::new(0),
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
        let drain = self.inner.shared.service.settings.drain;
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
        let mut told: Option<Instant> = None;
        loop {
            match self.listener.accept().await {
                Ok((socket, peer)) => {
                    match self.inner.admission.connect(peer.ip(), Instant::now()) {
                        Ok(unproven) => {
                            let (inner, phase) = (Arc::clone(&self.inner), phase.subscribe());
                            let serving =
                                async move { inner.serve(socket, peer, unproven, phase).await };
                            tokio::spawn(serving);
                        }
                        Err(why) => {
                            drop(socket);
                            let count = self.inner.unheard.fetch_add(1, Ordering::Relaxed) + 1;
                            if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                                told = Some(Instant::now());
                                self.inner.unheard.store(0, Ordering::Relaxed);
                                warn!(%peer, %why, count, "connections are closed at once");
                            }
                        }
                    }
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
    /// `unproven`: given back when a front end has shown who it is.
    async fn serve(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        unproven: Unproven,
        mut phase: watch::Receiver<Phase>,
    ) {
        drop(socket.set_nodelay(true));
        let local = match socket.local_addr() {
            Ok(local) => local,
            Err(error) => return debug!(%peer, %error, "a front end was lost"),
        };
        let (mut stream, front_end) = match timeout(TLS_LIMIT, self.tls.accept(socket)).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(why)) => return warn!(%peer, why, "no front end"),
            Err(_) => return warn!(%peer, "no front end: its handshake takes too long"),
        };
        let welcomed = timeout(
            HELLO_LIMIT,
            self.welcome(&mut stream, front_end, &unproven, &mut phase),
        )
        .await;
        let _place = match welcomed {
            Ok(Ok(place)) => place,
            Ok(Err(why)) => {
                warn!(%peer, why, "a front end is refused");
                return part(&mut stream).await;
            }
            Err(_) => return warn!(%peer, "a front end does not say hello"),
        };
        drop(unproven);
        if self.shared.service.accounts.is_some() {
            let ended = self.serve_separated(stream, local, phase).await;
            return ended.unwrap_or_else(|why| debug!(%peer, why, "a link ends"));
        }
        let (reports, outgoing) = mpsc::channel(QUEUE);
        let (incoming, orders) = mpsc::channel(HEARD);
        let pulse = Arc::new(Pulse::new());
        let (shared, of_session) = (Arc::clone(&self.shared), Arc::clone(&pulse));
        let session = NodeSession::new(shared, orders, reports, phase, local, of_session);
        let carrying = carry(stream, outgoing, incoming, &pulse);
        let (ended, carried) = tokio::join!(session.serve(), carrying);
        match (ended, carried) {
            (Some(why), _) => debug!(%peer, why, "a link ends"),
            (None, Err(error)) => debug!(%peer, %error, "a link ends"),
            (None, Ok(())) => debug!(%peer, "a link ends"),
        }
    }

    /// As root, which does nothing for a session but start its process.
    async fn serve_separated(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        local: SocketAddr,
        phase: watch::Receiver<Phase>,
    ) -> Result<(), String> {
        let broken = |error: NodeLinkError| error.to_string();
        let service = &self.shared.service;
        let first = timeout(HELLO_LIMIT, next_message(&mut stream, MESSAGE_MAX)).await;
        let mut login = match first.map_err(|_| "it gives no order".to_owned())? {
            Ok(NodeOrder::Look { name }) => {
                let turns = Arc::clone(&self.shared.looks);
                let file = look::look(service.committer.storage(), name, turns).await;
                let seen = NodeReport::Seen { file };
                say(&mut stream, &seen).await.map_err(broken)?;
                part(&mut stream).await;
                return Ok(());
            }
            Ok(login) => login,
            Err(error) => return Err(broken(error)),
        };
        let account = match &mut login {
            NodeOrder::Login { account, .. } => account.take(),
            _ => return Err("a session gives orders before it has logged in".to_owned()),
        };
        let account = spawn_blocking(move || {
            let NodeAccount { name, ids } = account.ok_or(ONE_ACCOUNT_THERE)?;
            SystemAccount::of_front_end(&name, &ids).map_err(|why| why.to_string())
        });
        let account = account.await.unwrap_or_else(|error| Err(error.to_string()));
        let begun = match account {
            Ok(account) => NodeProcess::start(account, login, local, &service.settings).await,
            Err(why) => Err(why),
        };
        match begun {
            Ok(process) => {
                process.serve(stream, &service.settings, phase).await;
                Ok(())
            }
            Err(why) => {
                warn!(why, "a session is refused");
                let refused = NodeReport::Refused { why: why.clone() };
                say(&mut stream, &refused).await.map_err(broken)?;
                part(&mut stream).await;
                Err(why)
            }
        }
    }

    /// Hears hello, and answers. `front_end`: who it is, or why it is none; then no message of it
    /// is read.
    async fn welcome(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        front_end: Result<String, String>,
        unproven: &Unproven,
        phase: &mut watch::Receiver<Phase>,
    ) -> Result<LinkPlace, String> {
        let broken = |error: NodeLinkError| error.to_string();
        if let Err(why) = front_end {
            let refused = NodeReport::Refused { why: why.clone() };
            say(stream, &refused).await.map_err(broken)?;
            return Err(why);
        }
        let version = match next_message(stream, FIRST_MESSAGE_MAX)
            .await
            .map_err(broken)?
        {
            NodeOrder::Hello { version } => version,
            _ => return Err("it does not say hello".to_owned()),
        };
        let place = match *phase.borrow_and_update() {
            _ if version != VERSION => Err(format!(
                "it speaks version {version} of node links, and this node {VERSION}: install the \
                 same godwit on both"
            )),
            Phase::Serving => unproven.prove(),
            Phase::Draining | Phase::Aborting => Err("the node is shutting down".to_owned()),
        };
        let answer = match &place {
            Ok(_) => NodeReport::Welcome {
                version,
                instance: self.instance.clone(),
            },
            Err(why) => NodeReport::Refused { why: why.clone() },
        };
        say(stream, &answer).await.map_err(broken)?;
        place
    }
}
