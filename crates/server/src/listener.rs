//! The accept loop: who gets a session, and how the server ends.

use std::{
    future::{Future, poll_fn},
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use godwit_engine::{host::net::set_linear_timeouts, storage::Storage};
use rustix::{io::Errno, net::sockopt};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    access::{admission::Admission, gsi::Gsi, limits::Refusal},
    config::{DEFAULT_PORT, ServerSettings},
    error::ServerError,
    https::{self, Dialect},
    nodes::front::{Unfenced, monitored::NodePool},
    observe::{
        audit::Audit,
        metrics::{self, Metrics, NodeSource},
    },
    privsep::{monitor, sandbox},
    reaper,
    service::Service,
    session::{self, Phase},
};

/// Connections that the kernel completes while we are busy.
const BACKLOG: u32 = 1024;

/// Rest after an accept that failed for want of descriptors or memory: trying at once would only
/// burn a core.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Time for sessions to say their last words once they are cut. Sessions that are stuck on storage
/// are left behind.
pub(crate) const ABORT_LIMIT: Duration = Duration::from_secs(5);

/// A server that listens. Connections wait in the kernel until [`Server::run`].
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    https: Vec<TcpListener>,
    https_addresses: Vec<SocketAddr>,
    s3: Vec<TcpListener>,
    s3_addresses: Vec<SocketAddr>,
    service: Arc<watch::Sender<Arc<Service>>>,
    admission: Arc<Admission>,
    /// Who asks for metrics, and where.
    metrics: Option<(TcpListener, SocketAddr)>,
}

/// Changes the settings of a running server.
#[derive(Clone)]
pub struct Reloader {
    service: Arc<watch::Sender<Arc<Service>>>,
    admission: Arc<Admission>,
}

/// Also checks that the kernel can separate privileges as the settings demand.
fn service_of(
    settings: ServerSettings,
    audit: Arc<Audit>,
    unfenced: Arc<Unfenced>,
) -> Result<Service, ServerError> {
    if let Some(separation) = &settings.separation {
        sandbox::prepare(separation).map_err(ServerError::Separation)?;
    }
    Service::new(settings, audit, unfenced)
}

impl Server {
    /// Opens the root and listens on all addresses of `settings`.
    pub async fn bind(settings: ServerSettings) -> Result<Self, ServerError> {
        let service = service_of(settings, Arc::default(), Arc::default())?;
        let listeners = listen_all(&service.settings.listen)?;
        Self::listening(listeners, service)
    }

    /// As [`Self::bind`], on sockets that listen already, at least one.
    ///
    /// # Errors
    /// As there, and [`ServerError::ListenTwice`] where `settings` name addresses.
    pub async fn on_sockets(
        sockets: Vec<std::net::TcpListener>,
        settings: ServerSettings,
    ) -> Result<Self, ServerError> {
        if !settings.listen.is_empty() {
            return Err(ServerError::ListenTwice);
        }
        let service = service_of(settings, Arc::default(), Arc::default())?;
        let listeners = sockets.into_iter().enumerate().map(|(number, socket)| {
            let ours = socket.set_nonblocking(true);
            let ours = ours.and_then(|()| TcpListener::from_std(socket));
            ours.map_err(|error| ServerError::HandedOver { number, error })
        });
        Self::listening(listeners.collect::<Result<_, _>>()?, service)
    }

    /// As [`Self::bind`], for sessions that serve `storage` in place of the root's files. A
    /// [`Reloader`] goes back to the root.
    pub async fn bind_on(
        storage: Arc<dyn Storage>,
        settings: ServerSettings,
    ) -> Result<Self, ServerError> {
        let audit = Arc::default();
        let gsi = settings.gsi.as_ref().map(Gsi::load).transpose()?;
        let service = Service::on(storage, settings, audit, gsi).with_tls()?;
        let listeners = listen_all(&service.settings.listen)?;
        Self::listening(listeners, service)
    }

    fn listening(listeners: Vec<TcpListener>, service: Service) -> Result<Self, ServerError> {
        let service = Arc::new(service);
        service.audit.open(&service.settings)?;
        let admission = Admission::new(service.settings.bounds);
        admission.metrics().set_nodes(nodes_of(&service));
        let addresses = addresses_of(&listeners)?;
        let https = listen_each(&service.settings.https)?;
        let https_addresses = addresses_of(&https)?;
        let s3 = listen_each(&service.settings.s3)?;
        let s3_addresses = addresses_of(&s3)?;
        let metrics = match service.settings.metrics {
            Some(address) => {
                let failed = |error| ServerError::Metrics { address, error };
                let listener = listen(address, true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Some((listener, address))
            }
            None => None,
        };
        Ok(Self {
            listeners,
            addresses,
            https,
            https_addresses,
            s3,
            s3_addresses,
            admission,
            service: Arc::new(watch::Sender::new(service)),
            metrics,
        })
    }

    /// Where it listens, with the ports that were free.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it serves HTTPS, with the ports that were free.
    pub fn https_addrs(&self) -> &[SocketAddr] {
        &self.https_addresses
    }

    /// Where it serves S3, with the ports that were free.
    pub fn s3_addrs(&self) -> &[SocketAddr] {
        &self.s3_addresses
    }

    /// Where it serves metrics, with the port that it took.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// A handle for SIGUSR1.
    pub fn status(&self) -> Status {
        Status(Arc::clone(self.admission.metrics()))
    }

    /// A handle for SIGHUP.
    pub fn reloader(&self) -> Reloader {
        Reloader {
            service: Arc::clone(&self.service),
            admission: Arc::clone(&self.admission),
        }
    }

    /// Serves until `shutdown` is ready and every session has ended, or was cut after the drain
    /// time. Where this future is dropped, all sessions are cut at once.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let metrics = Arc::clone(self.admission.metrics());
        match self.metrics.take() {
            // As long as there is something to tell, also while the server goes down.
            Some((listener, _)) => tokio::select! {
                () = metrics::http::serve(listener, metrics) => {}
                () = self.serve(shutdown) => {}
            },
            None => self.serve(shutdown).await,
        }
    }

    async fn accept(&self, protocol: Protocol, phase: &watch::Sender<Phase>) {
        let listeners = match protocol {
            Protocol::Ftp => &self.listeners,
            Protocol::Http(Dialect::WebDav) => &self.https,
            Protocol::Http(Dialect::S3) => &self.s3,
        };
        let mut next_listener = 0;
        loop {
            match poll_fn(|context| accept_any(listeners, &mut next_listener, context)).await {
                Ok((socket, peer)) => self.begin(protocol, socket, peer, phase),
                Err(error) if is_out_of_resources(&error) => {
                    warn!(%error, "cannot accept a connection, resting");
                    sleep(ACCEPT_REST).await;
                }
                // The client closed the connection before the server accepted it.
                Err(error) => debug!(%error, "cannot accept a connection"),
            }
        }
    }

    fn begin(
        &self,
        protocol: Protocol,
        socket: TcpStream,
        peer: SocketAddr,
        phase: &watch::Sender<Phase>,
    ) {
        let service = Arc::clone(&self.service.borrow());
        let permit = match self.admission.admit(peer.ip()) {
            Ok(permit) => permit,
            Err(why) => {
                warn!(%peer, %why, "connection refused");
                if protocol == Protocol::Ftp {
                    refuse(socket, &why);
                }
                return;
            }
        };
        prepare(&socket);
        let phase = phase.subscribe();
        match (protocol, service.accounts.clone()) {
            (Protocol::Http(dialect), _) => {
                tokio::spawn(https::serve(socket, peer, permit, service, phase, dialect))
            }
            (Protocol::Ftp, None) => {
                tokio::spawn(session::run(socket, peer, permit, service, phase))
            }
            (Protocol::Ftp, Some(accounts)) => tokio::spawn(monitor::serve_connection(
                socket, peer, permit, service, accounts, phase,
            )),
        };
    }

    async fn serve(self, shutdown: impl Future<Output = ()>) {
        let phase = watch::Sender::new(Phase::Serving);
        tokio::select! {
            () = shutdown => {}
            () = self.accept(Protocol::Ftp, &phase) => {}
            () = self.accept(DAV, &phase), if !self.https.is_empty() => {}
            () = self.accept(S3, &phase), if !self.s3.is_empty() => {}
            () = reaper::run(&self.service, &self.admission) => {}
        }
        // The ports are free for a successor while old transfers end.
        drop((self.listeners, self.https, self.s3));
        let drain = self.service.borrow().settings.drain;
        info!(
            sessions = phase.receiver_count(),
            drain_seconds = drain.as_secs(),
            "shutting down"
        );
        phase.send_replace(Phase::Draining);
        if timeout(drain, phase.closed()).await.is_err() {
            warn!(sessions = phase.receiver_count(), "cutting what still runs");
            phase.send_replace(Phase::Aborting);
            if timeout(ABORT_LIMIT, phase.closed()).await.is_err() {
                warn!(sessions = phase.receiver_count(), "sessions left behind");
            }
        }
    }
}

/// What a running server does.
#[derive(Clone)]
pub struct Status(Arc<Metrics>);

impl Status {
    /// Tells the log of each connection and of what it does, with no more than a thousand lines,
    /// and in one line of all since the server began.
    pub fn log(&self) {
        self.0.log_status();
    }
}

impl Reloader {
    /// New sessions get `settings`; those that run keep theirs. The listening addresses stay what
    /// they are.
    pub fn reload(&self, settings: ServerSettings) -> Result<(), ServerError> {
        let before = Arc::clone(&self.service.borrow());
        let addresses = |of: &ServerSettings| {
            let http = (of.https.clone(), of.s3.clone());
            (of.listen.clone(), http, of.metrics)
        };
        if addresses(&settings) != addresses(&before.settings) {
            warn!("listening addresses change at the next start only");
        }
        let audit = Arc::clone(&before.audit);
        // Nodes that were cut off write on.
        let unfenced = Arc::clone(&before.unfenced);
        let mut service = service_of(settings, audit, unfenced)?;
        // Tokens that users have handed on stay good.
        if service.issuer.is_some() && before.issuer.is_some() {
            service.issuer.clone_from(&before.issuer);
        }
        let service = Arc::new(service);
        // Also where its name is the same: the file may be another by now.
        service.audit.open(&service.settings)?;
        self.admission.change(service.settings.bounds);
        self.admission.metrics().set_nodes(nodes_of(&service));
        self.service.send_replace(service);
        Ok(())
    }
}

/// For monitoring.
fn nodes_of(service: &Service) -> Option<Arc<dyn NodeSource>> {
    service.nodes.as_ref().and_then(NodePool::source)
}

/// What clients of a listener speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ftp,
    Http(Dialect),
}

const DAV: Protocol = Protocol::Http(Dialect::WebDav);
const S3: Protocol = Protocol::Http(Dialect::S3);

/// The next connection of any listener; each listener gets its turn.
fn accept_any(
    listeners: &[TcpListener],
    next: &mut usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
    for step in 0..listeners.len() {
        let index = (*next + step) % listeners.len();
        if let Poll::Ready(result) = listeners[index].poll_accept(context) {
            *next = index + 1;
            return Poll::Ready(result);
        }
    }
    Poll::Pending
}

/// One reply, and no session: refusing must cost less than serving.
fn refuse(socket: TcpStream, why: &Refusal) {
    use io::Write as _;
    // A fresh connection has room for one line; without room, no client reads it.
    if let Ok(mut socket) = socket.into_std() {
        drop(socket.write(format!("421 {why}, closing control connection.\r\n").as_bytes()));
    }
}

fn prepare(socket: &TcpStream) {
    // Replies are small, and the client waits for each.
    let nodelay = socket.set_nodelay(true);
    let timeouts = set_linear_timeouts(socket);
    // A client that vanished holds its session until the kernel's keepalive fails.
    let keepalive = sockopt::set_socket_keepalive(socket, true).map_err(io::Error::from);
    if let Err(error) = nodelay.and(timeouts).and(keepalive) {
        debug!(%error, "cannot set options of a control connection");
    }
}

fn is_out_of_resources(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

fn addresses_of(listeners: &[TcpListener]) -> Result<Vec<SocketAddr>, ServerError> {
    let addresses = listeners.iter().map(|listener| {
        listener.local_addr().map_err(|error| ServerError::Listen {
            address: unspecified_v6(),
            error,
        })
    });
    addresses.collect()
}

fn listen_each(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, ServerError> {
    let listeners = addresses.iter().map(|address| {
        listen(*address, is_dual(*address, addresses)).map_err(|error| ServerError::Listen {
            address: *address,
            error,
        })
    });
    listeners.collect()
}

fn listen_all(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, ServerError> {
    let failed = |address| move |error| ServerError::Listen { address, error };
    if !addresses.is_empty() {
        return listen_each(addresses);
    }
    // By default everything that the machine has. Both families on one socket where there are both.
    let v6 = unspecified_v6();
    match listen(v6, true) {
        Ok(listener) => Ok(vec![listener]),
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
            ) =>
        {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT));
            Ok(vec![listen(v4, false).map_err(failed(v4))?])
        }
        Err(error) => Err(failed(v6)(error)),
    }
}

fn unspecified_v6() -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT))
}

/// `[::]:p` means every address of both families, unless the settings name IPv4 addresses with
/// that port as well.
fn is_dual(address: SocketAddr, all: &[SocketAddr]) -> bool {
    address.is_ipv6()
        && address.ip().is_unspecified()
        && !all
            .iter()
            .any(|other| other.is_ipv4() && other.port() == address.port())
}

/// `dual`: an IPv6 socket takes IPv4 clients as well.
fn listen(address: SocketAddr, dual: bool) -> io::Result<TcpListener> {
    // `::ffff:a.b.c.d` is an IPv4 address.
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        let socket = TcpSocket::new_v6()?;
        sockopt::set_ipv6_v6only(&socket, !dual)?;
        socket
    };
    // Else a restart fails for minutes while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
