//! A process of the service: listens, serves, and ends without breaking off what it can finish.

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Router};
use godwit_engine::host::net::raise_fd_limit;
use godwit_service_api::site::Role;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::{
    ServiceError,
    accounts::{Accounts, Evidence, Peer, Shown, oidc::Issuers},
    agent::{self, Authentication},
    api::{self, Api},
    config::{self, LOCAL_AGENT, Personal, ServeSettings},
    credentials::{Vault, issued::Renewer},
    fts,
    gateway::{self, Gateway},
    metrics::{self, Interface, measured},
    reports::{self, mail::Mailer, webhook::Webhooks},
    schedules::ScheduleRunner,
    scheduling::{self, Board},
    store::{Store, StoreError},
    tls::Tls,
    traces::Traces,
    web,
};

/// Connections at a time; more wait in the kernel.
const CONNECTIONS_MAX: usize = 20_000;

/// Time for the handshake of TLS.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);

/// Time for the head of a request, and of rest between requests.
const HEAD_LIMIT: Duration = Duration::from_secs(60);

/// Time for requests to end after a signal.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Rest after an accept that failed for want of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Between two looks at the version of the tables.
const VERSION_LOOK: Duration = Duration::from_secs(5);

/// A socket, and what is served there.
struct Listener {
    socket: TcpListener,
    tls: Option<Tls>,
    router: Router,
}

/// A process that listens. Connections wait in the kernel until [`Server::run`].
pub struct Server {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    fts_addresses: Vec<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    url: String,
    stopping: watch::Sender<bool>,
    store: Store,
    board: Arc<Board>,
    reports: reports::Sender,
    renewer: Renewer,
    submitter: ScheduleRunner,
    agent: Option<agent::Config>,
    new_token: Option<Zeroizing<String>>,
    traces: Traces,
}

impl Server {
    /// Opens database, key and sockets.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub async fn bind(settings: ServeSettings) -> Result<Self, ServiceError> {
        let store = match &settings.personal {
            Some(personal) => {
                make_private(&personal.data)?;
                Store::migrate(&settings.database).await?
            }
            None => Store::open(&settings.database).await?,
        };
        let store = store
            .with_lease(settings.lease)
            .with_divide_above(settings.divide_above);
        let key = settings.key.read()?;
        let tls = settings.tls.as_ref().map(Tls::new).transpose()?;
        let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
        for address in &settings.listen {
            let (socket, bound) = listen(*address).await?;
            sockets.push((socket, tls.clone()));
            addresses.push(bound);
        }
        let (mut fts_sockets, mut fts_addresses) = (Vec::new(), Vec::new());
        for address in &settings.fts {
            let (socket, bound) = listen(*address).await?;
            fts_sockets.push((socket, tls.clone()));
            fts_addresses.push(bound);
        }
        let instance = format!("{} {}", config::host_name(), Uuid::now_v7());
        let traces = Traces::new(&settings.traces, "godwit-service", instance)
            .map_err(ServiceError::Usage)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", addresses[0]);
        let issuers = Issuers::new(&settings.issuers)?;
        let accounts = Arc::new(Accounts::new(store.clone(), issuers));
        let (mut new_token, mut agent) = (None, None);
        if let Some(personal) = &settings.personal {
            new_token = operator_token(personal, &accounts, &store, &url).await?;
            if personal.agent {
                // Its own address: the certificate of the others may name another host.
                let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let (socket, bound) = listen(loopback).await?;
                sockets.push((socket, None));
                let token = agent_token(&accounts, &store).await?;
                agent = Some(config::local_agent(
                    personal,
                    format!("http://{bound}"),
                    (token, traces.clone()),
                ));
            }
        }
        let vault = Vault::new(store.clone(), key);
        let (stopping, board) = (watch::Sender::new(false), Arc::<Board>::default());
        let gateway = Gateway {
            store: store.clone(),
            board: Arc::clone(&board),
            accounts: Arc::clone(&accounts),
            vault: vault.clone(),
            addresses: settings.api.policy.scope(),
            traces: traces.clone(),
        };
        let policy = settings.api.policy.clone();
        let mailer = |mail| Mailer::new(mail, policy.clone(), config::host_name());
        let mailer = settings.mail.as_ref().map(mailer).transpose()?;
        let reports = reports::Sender {
            store: store.clone(),
            board: Arc::clone(&board),
            webhooks: Webhooks::new(vault.clone(), policy)?,
            mailer,
        };
        let renewer = Renewer {
            vault: vault.clone(),
            accounts: Arc::clone(&accounts),
            board: Arc::clone(&board),
        };
        let api = Api::new(
            store.clone(),
            accounts,
            vault,
            Arc::clone(&board),
            (settings.api, traces.clone()),
            stopping.subscribe(),
        );
        let api = Arc::new(api);
        let submitter = ScheduleRunner {
            api: Arc::clone(&api),
            board: Arc::clone(&board),
        };
        let fts = fts::router(Arc::clone(&api));
        let fts = measured(fts, board.metrics(), Interface::Fts);
        let agents = measured(gateway::router(gateway), board.metrics(), Interface::Agents);
        let pages = web::router(Arc::clone(&api), settings.secure_cookies);
        let pages = measured(pages, board.metrics(), Interface::Web);
        let router = measured(api::router(api), board.metrics(), Interface::Api);
        let router = router.merge(agents).merge(pages);
        let with = |(socket, tls), router: &Router| Listener {
            socket,
            tls,
            router: router.clone(),
        };
        let sockets = sockets.into_iter().map(|socket| with(socket, &router));
        let fts_sockets = fts_sockets.into_iter().map(|socket| with(socket, &fts));
        let mut listeners: Vec<_> = sockets.chain(fts_sockets).collect();
        let mut metrics_address = None;
        if let Some(address) = settings.metrics {
            let (socket, bound) = listen(address).await?;
            listeners.push(Listener {
                socket,
                tls: None,
                router: metrics::router(Arc::clone(board.metrics()), store.clone()),
            });
            metrics_address = Some(bound);
        }
        Ok(Self {
            listeners,
            addresses,
            fts_addresses,
            metrics_address,
            url,
            stopping,
            store,
            board,
            reports,
            renewer,
            submitter,
            agent,
            new_token,
            traces,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens for clients of FTS3.
    pub fn fts_addresses(&self) -> &[SocketAddr] {
        &self.fts_addresses
    }

    /// Where it serves metrics.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// URL of the first address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The operator's token, where this process has made it.
    pub fn new_token(&self) -> Option<&str> {
        self.new_token.as_ref().map(|token| token.as_str())
    }

    /// Serves until `stop`, then lets units of the agent in the process and requests end.
    ///
    /// # Errors
    /// The agent cannot begin.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServiceError> {
        raise_fd_limit();
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut parts = JoinSet::new();
        for listener in self.listeners {
            let permits = Arc::clone(&permits);
            parts.spawn(accept(listener, permits, self.stopping.subscribe()));
        }
        let (store, board) = (self.store.clone(), self.board);
        let mut stopping = self.stopping.subscribe();
        parts.spawn(async move {
            let node = format!("{} {}", config::host_name(), Uuid::now_v7());
            scheduling::run(store, &board, &node, stopped(&mut stopping)).await;
        });
        let (reports, mut stopping) = (self.reports, self.stopping.subscribe());
        parts.spawn(async move { reports.run(stopped(&mut stopping)).await });
        let (renewer, mut stopping) = (self.renewer, self.stopping.subscribe());
        parts.spawn(async move { renewer.run(stopped(&mut stopping)).await });
        let (submitter, mut stopping) = (self.submitter, self.stopping.subscribe());
        parts.spawn(async move { submitter.run(stopped(&mut stopping)).await });
        let (watched, mut outdated) = (self.store.clone(), None);
        let stop = async {
            tokio::select! {
                () = stop => {}
                why = migrated(&watched) => outdated = Some(why),
            }
        };
        let ended = match self.agent {
            Some(config) => agent::run(config, stop).await,
            None => {
                stop.await;
                Ok(())
            }
        };
        self.stopping.send_replace(true);
        while parts.join_next().await.is_some() {}
        let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        if timeout(DRAIN_LIMIT, permits.acquire_many(all))
            .await
            .is_err()
        {
            tracing::warn!("some requests are cut off");
        }
        self.store.close().await;
        self.traces.end().await;
        match outdated {
            Some(why) => Err(why.into()),
            None => Ok(ended?),
        }
    }
}

/// Until another process has migrated the tables to a version that this program does not know: what
/// it would write then may be wrong.
async fn migrated(store: &Store) -> StoreError {
    loop {
        sleep(VERSION_LOOK).await;
        // A database that does not answer now says nothing of its tables.
        if let Err(newer @ StoreError::Newer { .. }) = store.check_version().await {
            tracing::error!(error = %newer, "this process ends");
            return newer;
        }
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServiceError> {
    let failed = |error| ServiceError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn accept(listener: Listener, permits: Arc<Semaphore>, stopping: watch::Receiver<bool>) {
    let mut stop = stopping.clone();
    loop {
        let accepted = tokio::select! {
            () = stopped(&mut stop) => return,
            permit = Arc::clone(&permits).acquire_owned() => {
                tokio::select! {
                    () = stopped(&mut stop) => return,
                    accepted = listener.socket.accept() => {
                        accepted.map(|accepted| (accepted, permit))
                    }
                }
            }
        };
        match accepted {
            Ok(((stream, address), Ok(permit))) => {
                let connection = Connection {
                    address,
                    router: listener.router.clone(),
                    stopping: stopping.clone(),
                    _permit: permit,
                };
                tokio::spawn(connection.serve(stream, listener.tls.clone()));
            }
            Ok((_, Err(_))) => return,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Without a sender there is no server.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

struct Connection {
    address: SocketAddr,
    router: Router,
    stopping: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<Tls>) {
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return self.exchange(stream, Shown::Nothing).await;
        };
        match timeout(HANDSHAKE_LIMIT, tls.accept(stream)).await {
            Ok(Ok((stream, shown))) => self.exchange(stream, shown).await,
            Ok(Err(error)) => {
                tracing::debug!(address = %self.address, %error, "no handshake of TLS");
            }
            Err(_) => tracing::debug!(address = %self.address, "the handshake of TLS stopped"),
        }
    }

    async fn exchange(
        mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        certificate: Shown,
    ) {
        let peer = Peer {
            address: Some(self.address.ip()),
            certificate,
        };
        let service = Router::new()
            .fallback_service(self.router)
            .layer(Extension(peer));
        let mut builder = Builder::new(TokioExecutor::new()).http1_only();
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT);
        let service = TowerToHyperService::new(service);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut self.stopping) => {
                connection.as_mut().graceful_shutdown();
                timeout(DRAIN_LIMIT, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(address = %self.address, %error, "a connection broke");
        }
    }
}

fn make_private(directory: &Path) -> Result<(), ServiceError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(ServiceError::file(directory))
}

/// The token of the one person, which lies beside the database. A new one where there is none that
/// is good.
async fn operator_token(
    personal: &Personal,
    accounts: &Accounts,
    store: &Store,
    url: &str,
) -> Result<Option<Zeroizing<String>>, ServiceError> {
    let user = person();
    accounts.ensure(&user, Role::Operator).await?;
    write_private(&personal.data.join("url"), url)?;
    let path = personal.data.join("token");
    if let Ok(text) = fs::read_to_string(&path) {
        let evidence = Evidence {
            bearer: Some(Zeroizing::new(text.trim().to_owned())),
            ..Default::default()
        };
        if accounts.authenticate(&evidence).await.is_ok() {
            return Ok(None);
        }
    }
    let token = accounts.new_token(&user, "local", None).await?;
    store
        .audit(
            &user,
            "token.new",
            &format!("{user} {}", token.view.id),
            "local",
        )
        .await?;
    let token = Zeroizing::new(token.token);
    write_private(&path, &token)?;
    Ok(Some(token))
}

/// A token of the agent in this process, in place of those of earlier ones.
async fn agent_token(accounts: &Accounts, store: &Store) -> Result<Authentication, StoreError> {
    accounts.ensure(LOCAL_AGENT, Role::Agent).await?;
    for token in store.tokens(LOCAL_AGENT).await? {
        store.remove_token(LOCAL_AGENT, token.id).await?;
    }
    let token = accounts
        .new_token(LOCAL_AGENT, "in the process", None)
        .await?;
    Ok(Authentication {
        token: Some(Zeroizing::new(token.token)),
        ..Authentication::default()
    })
}

/// Makes the user `operator` and writes a token of it to a file.
///
/// # Errors
/// The file cannot be written, or the database does not answer.
pub async fn make_operator(store: &Store, path: &Path) -> Result<(), ServiceError> {
    write_token(store, "operator", Role::Operator, path).await
}

/// Makes an agent that may poll under this name, and writes a token of it to a file.
///
/// # Errors
/// A user has the name, the file cannot be written, or the database does not answer.
pub async fn enroll_agent(store: &Store, name: &str, path: &Path) -> Result<(), ServiceError> {
    match store.principal(name).await {
        Ok(principal) if principal.role != Role::Agent => {
            let why = format!("{name} is the name of a user, not of an agent");
            return Err(ServiceError::Usage(why));
        }
        Ok(_) | Err(StoreError::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    write_token(store, name, Role::Agent, path).await
}

async fn write_token(
    store: &Store,
    name: &str,
    role: Role,
    path: &Path,
) -> Result<(), ServiceError> {
    let accounts = Accounts::new(store.clone(), Issuers::default());
    accounts.ensure(name, role).await?;
    let token = accounts
        .new_token(name, "made on the host of the service", None)
        .await?;
    let subject = format!("{name} {}", token.view.id);
    let by = "the host of the service";
    store
        .audit(by, "token.new", &subject, &token.view.label)
        .await?;
    write_private(path, &Zeroizing::new(token.token))
}

/// Name of the person who runs it.
fn person() -> String {
    let name = std::env::var("USER").unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.len() <= 64 && name.chars().all(is_name) {
        true => name,
        false => "operator".to_owned(),
    }
}

/// Writes a file that only its owner can read; in place of one that is there.
fn write_private(path: &Path, text: &str) -> Result<(), ServiceError> {
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(&new)
        .and_then(|mut file| {
            writeln!(file, "{text}")?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, path))
        .map_err(ServiceError::file(path))
}
