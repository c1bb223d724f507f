//! One connection as the privileged monitor sees it: it reads no data of the client, and grants a
//! pre-login process only what the gridmap and the limits allow.

mod login;
mod nodes;

use crate::access::accounts::Accounts;
use std::{
    fs::{File, OpenOptions},
    io,
    net::SocketAddr,
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_gsi::cert::files;
use godwit_proto::pi::server::{Output, ServerPi};
use rustix::process::Signal;
use tokio::{
    net::TcpStream,
    sync::{Semaphore, watch},
    task::spawn_blocking,
    time::{sleep_until, timeout},
};
use tracing::{debug, info, warn};

use super::{
    Role,
    link::{LinkError, MonitorEnd},
    messages::{
        BadMessage, FromPreLogin, FromSession, MonitorReply, PreLoginSetup, checked_anchor,
    },
    process::Process,
    turns::TurnGrants,
};

use crate::{
    access::{admission::ConnectionPermit, channel_quota::ChannelQuota},
    error::WhoActs,
    nodes::front::{monitored::LINKS_MAX, pool::NodeLogin},
    observe::{
        class::Class,
        event::{Entry, What, Who},
    },
    service::Service,
    session::{EVICTED, Phase, canonical, interpreter_config},
};

/// Opening a file takes as much of the monitor's time as a message of so many bytes.
const FILE_BYTES: usize = 4 * 1024;

/// Questions of a pre-login process: some 20 CA files for each of its logins.
const QUESTIONS_MAX: u32 = 1000;

/// Logins that a pre-login process may ask for, and handshakes that may fail: as many as a session
/// allows.
const LOGINS_MAX: u32 = crate::session::LOGIN_ATTEMPTS_MAX;

/// A session reports progress at most once a second; this many more may have been delayed.
const PROGRESS_BURST: u64 = 10;

/// Time beyond the limit for logins after which a pre-login process that has not ended itself is
/// ended.
const LOGIN_GRACE: Duration = Duration::from_secs(5);

/// Time for one process to say its last words when the other has ended.
const LAST_REPLIES_LIMIT: Duration = Duration::from_secs(5);

const TOO_SLOW: &[u8] = b"421 Login Timeout: closing control connection.\r\n";
const GOING_DOWN: &[u8] = b"421 Service not available, closing control connection.\r\n";

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("cannot start a process: {0}")]
    Start(io::Error),
    #[error("link: {0}")]
    Link(#[from] LinkError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("its pre-login process asks too often")]
    Questions,
    #[error("its pre-login process does not end after the time for login")]
    Slow,
    #[error("its session said something else than it should")]
    Session,
    #[error("its session reports progress too often")]
    ProgressFlood,
    #[error("its session asks for a turn while it has one, or gives back what it has not")]
    Turns,
}

impl ConnectionError {
    fn who(&self) -> WhoActs {
        match self {
            Self::Link(error) => error.who(),
            Self::Start(_) | Self::Io(_) | Self::Slow => WhoActs::Machine,
            Self::Questions | Self::Session | Self::ProgressFlood | Self::Turns => {
                WhoActs::Security
            }
        }
    }
}

impl From<BadMessage> for ConnectionError {
    fn from(error: BadMessage) -> Self {
        Self::Link(error.into())
    }
}

/// Serves one connection until its processes have ended.
pub(crate) async fn serve_connection(
    socket: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    service: Arc<Service>,
    accounts: Arc<Accounts>,
    phase: watch::Receiver<Phase>,
) {
    let Ok(local) = socket.local_addr() else {
        return;
    };
    let mut connection = Connection {
        peer: canonical(peer),
        local: canonical(local),
        begun: Instant::now(),
        permit,
        service,
        accounts,
        phase,
        identity: None,
        account: None,
        quota: None,
        progress_reports: 0,
        node_login: None,
        node_links: Arc::new(Semaphore::new(LINKS_MAX)),
    };
    let (session, peer) = (connection.permit.number(), connection.peer);
    let socket = match connection.greet(socket).await {
        Ok(Some(socket)) => socket,
        Ok(None) => return,
        Err(error) => {
            return debug!(session, %peer, %error, "connection was lost before the greeting");
        }
    };
    info!(session, %peer, "connection starts");
    let ended = connection.serve(socket).await;
    let seconds = connection.begun.elapsed().as_secs();
    match ended {
        Ok(()) => info!(session, %peer, seconds, "connection ends"),
        Err(why) => {
            warn!(session, %peer, seconds, %why, "connection ended: {}", why.who());
        }
    }
}

struct Connection {
    peer: SocketAddr,
    local: SocketAddr,
    begun: Instant,
    permit: ConnectionPermit,
    service: Arc<Service>,
    accounts: Arc<Accounts>,
    phase: watch::Receiver<Phase>,
    /// What the pre-login process says that was proven.
    identity: Option<String>,
    account: Option<String>,
    /// What its session has not given back of data channels when it dies, this gives back.
    quota: Option<ChannelQuota>,
    /// Number of progress reports of its session.
    progress_reports: u64,
    /// Whose session data nodes serve.
    node_login: Option<NodeLogin>,
    node_links: Arc<Semaphore>,
}

/// What the monitor knows of a session that runs.
struct SessionState {
    /// It has said that its user logged out.
    logged_out: bool,
    turns: TurnGrants,
}

impl Connection {
    /// Greets, and waits until something comes, without reading it. `None`: nothing does.
    async fn greet(&mut self, socket: TcpStream) -> io::Result<Option<TcpStream>> {
        let config = interpreter_config(&self.service, self.peer, self.local);
        if let Some(Output::Send(greeting)) = ServerPi::new(config, self.begun).poll_output() {
            // A fresh connection has room for a greeting.
            socket.try_write(&greeting)?;
        }
        let mut first = [0; 1];
        let last_word = tokio::select! {
            count = socket.peek(&mut first) => return Ok((count? > 0).then_some(socket)),
            () = self.permit.evicted() => EVICTED,
            () = sleep_until((self.begun + self.service.settings.login_limit).into()) => TOO_SLOW,
            _ = self.phase.wait_for(|phase| *phase != Phase::Serving) => GOING_DOWN,
        };
        socket.try_write(last_word)?;
        Ok(None)
    }

    async fn serve(&mut self, socket: TcpStream) -> Result<(), ConnectionError> {
        self.permit.received_first_byte();
        let pre_login = Process::start(Role::PreLogin).map_err(ConnectionError::Start)?;
        let settings = &self.service.settings;
        let setup = PreLoginSetup {
            parent: std::process::id(),
            session: self.permit.number(),
            peer: self.peer,
            ids: self.accounts.pre_login.clone(),
            require_sandbox: self.accounts.require_sandbox,
            settings: settings.clone(),
        };
        let host = self.host()?;
        let mut beside = vec![socket.as_fd()];
        beside.extend(host.iter().map(File::as_fd));
        pre_login.link.send(&setup, &beside).await?;
        drop(beside);
        drop(socket);
        let Some((session, turns)) = self.before_login(&pre_login).await? else {
            return Ok(());
        };
        self.after_login(pre_login, session, turns).await
    }

    /// The certificate and the key that the server shows, open for reading; nothing where it shows
    /// none.
    fn host(&self) -> io::Result<Vec<File>> {
        let settings = &self.service.settings;
        // Under GSI and TLS it is the same.
        let gsi = settings.gsi.as_ref().map(|gsi| &gsi.host);
        let pairs = gsi.or(settings.tls.as_ref().map(|tls| &tls.host));
        match pairs.and_then(|pairs| files::first_pair(pairs)) {
            Some((certificate, key)) => [certificate, key].into_iter().map(File::open).collect(),
            None => Ok(Vec::new()),
        }
    }

    /// Answers a pre-login process until it has a session, or has ended.
    async fn before_login(
        &mut self,
        pre_login: &Process,
    ) -> Result<Option<(Process, TurnGrants)>, ConnectionError> {
        let deadline = self.begun + self.service.settings.login_limit + LOGIN_GRACE;
        let (mut questions, mut logins, mut handshakes) = (0, 0, 0);
        loop {
            let message = tokio::select! {
                message = pre_login.link.receive() => message,
                () = self.permit.evicted() => {
                    debug!(session = self.permit.number(), "sent away");
                    return Ok(None);
                }
                () = sleep_until(deadline.into()) => return Err(ConnectionError::Slow),
                changed = self.phase.changed() => {
                    pre_login.signal(Signal::TERM);
                    if changed.is_err() {
                        return Ok(None);
                    }
                    continue;
                }
            };
            questions += 1;
            if questions > QUESTIONS_MAX {
                return Err(ConnectionError::Questions);
            }
            match message {
                Err(LinkError::Closed) => return Ok(None),
                Err(error) => return Err(error.into()),
                Ok(FromPreLogin::Trust { name }) => self.anchor(&pre_login.link, name).await?,
                Ok(FromPreLogin::HandshakeFailed { why }) => {
                    handshakes += 1;
                    if handshakes > LOGINS_MAX {
                        return Err(ConnectionError::Questions);
                    }
                    self.permit.failed();
                    let entry = Entry::new(What::Prove).class(Some(Class::Handshake));
                    self.record(&entry.ended(Some(why)));
                }
                Ok(FromPreLogin::Login(caller)) => {
                    logins += 1;
                    if logins > LOGINS_MAX {
                        return Err(ConnectionError::Questions);
                    }
                    match self.log_in(*caller).await? {
                        Ok((session, relay, turns)) => {
                            pre_login
                                .link
                                .send(&MonitorReply::Entered, &[relay.as_fd()])
                                .await?;
                            return Ok(Some((session, turns)));
                        }
                        Err(why) => {
                            pre_login
                                .link
                                .send(&MonitorReply::Refused { why }, &[])
                                .await?
                        }
                    }
                }
            }
        }
    }

    /// Listens to a session until it or its pre-login process has ended, and then for what is left.
    async fn after_login(
        &mut self,
        mut pre_login: Process,
        mut session: Process,
        turns: TurnGrants,
    ) -> Result<(), ConnectionError> {
        if *self.phase.borrow() != Phase::Serving {
            // It began while the server was going down.
            session.signal(Signal::TERM);
        }
        let mut state = SessionState {
            logged_out: false,
            turns,
        };
        let ended = loop {
            tokio::select! {
                message = session.link.receive() => match message {
                    Err(LinkError::Closed) => break Ok(()),
                    Err(error) => break Err(error.into()),
                    Ok(message) => match self.answer(&session.link, message, &mut state).await {
                        Ok(()) => {}
                        Err(why) => break Err(why),
                    },
                },
                _ = pre_login.process.wait() => break Ok(()),
                // Its end of the link may live on in a process that it gave it to.
                _ = session.process.wait() => break Ok(()),
                changed = self.phase.changed() => {
                    session.signal(Signal::TERM);
                    pre_login.signal(Signal::TERM);
                    if changed.is_err() {
                        break Ok(());
                    }
                }
            }
        };
        if ended.is_ok() {
            let last_words = async {
                while let Ok(message) = session.link.receive().await {
                    self.answer(&session.link, message, &mut state).await?;
                }
                pre_login.ended().await;
                session.ended().await;
                Ok::<_, ConnectionError>(())
            };
            drop(timeout(LAST_REPLIES_LIMIT, last_words).await);
        }
        if !state.logged_out {
            self.record(&Entry::new(What::Logout).ended(Some("its process ended without a word")));
        }
        ended
    }

    async fn answer(
        &mut self,
        link: &MonitorEnd,
        message: FromSession,
        state: &mut SessionState,
    ) -> Result<(), ConnectionError> {
        match message {
            FromSession::Trust { name } => self.anchor(link, name).await,
            FromSession::Audit(entry) => {
                if !entry.is_of_session() {
                    return Err(ConnectionError::Session);
                }
                state.logged_out |= entry.is_logout();
                self.record(&entry.bounded());
                Ok(())
            }
            FromSession::Progress(progress) => {
                self.progress_reports += 1;
                if self.progress_reports > self.begun.elapsed().as_secs() + PROGRESS_BURST {
                    return Err(ConnectionError::ProgressFlood);
                }
                self.permit
                    .connection_metrics()
                    .progress(&progress.bounded());
                Ok(())
            }
            FromSession::TurnWanted => state.turns.wanted().ok_or(ConnectionError::Turns),
            FromSession::TurnEnded => state.turns.ended().ok_or(ConnectionError::Turns),
            FromSession::Nodes => self.list_nodes(link).await,
            FromSession::NodeLink { node } => self.open_node_link(link, &node).await,
            FromSession::AddUnfenced {
                device,
                inode,
                quiet_in,
            } => self.add_unfenced((device, inode), quiet_in),
            FromSession::IsUnfenced { device, inode } => {
                self.tell_unfenced(link, (device, inode)).await
            }
            FromSession::Ready | FromSession::Unable { .. } => Err(ConnectionError::Session),
        }
    }

    async fn anchor(&self, link: &MonitorEnd, name: String) -> Result<(), ConnectionError> {
        let settings = self.service.settings.gsi.as_ref();
        let directory = settings.map(|gsi| gsi.authorities.as_path());
        Ok(open_anchor(directory, link, name).await?)
    }

    fn record(&self, entry: &Entry) {
        let who = Who {
            session: self.permit.number(),
            peer: self.peer,
            identity: self.identity.clone(),
            account: self.account.clone(),
        };
        self.permit.connection_metrics().observe(&who, entry);
        self.service.audit.record(&who, entry);
    }
}

/// Answers with a file of the directory of CAs, open for reading.
pub(super) async fn open_anchor(
    directory: Option<&Path>,
    link: &MonitorEnd,
    name: String,
) -> Result<(), LinkError> {
    checked_anchor(&name)?;
    link.charge(FILE_BYTES);
    let path = directory.map(|directory| directory.join(&name));
    let opened = spawn_blocking(move || {
        let path = path.ok_or(io::ErrorKind::NotFound)?;
        // What is no file must not hold us up.
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let flags = i32::try_from(flags).unwrap_or_default();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    });
    let opened = opened
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    match opened {
        Ok(file) => link.send(&MonitorReply::File, &[file.as_fd()]).await?,
        Err(error) => {
            let errno = rustix::io::Errno::from_io_error(&error);
            let errno = errno.unwrap_or(rustix::io::Errno::IO).raw_os_error();
            link.send(&MonitorReply::NoFile { errno }, &[]).await?;
        }
    }
    Ok(())
}
