//! A session at a data node that runs as root: the front end says whose it is, and a process of
//! that account moves its data. Root passes bytes on between the link and the process.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    os::{fd::AsFd as _, unix::net::UnixStream as StdUnixStream},
    time::Duration,
};

use godwit_gsi::cert::files;
use rustix::process::Signal;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::UnixStream,
    sync::watch,
    time::timeout,
};

use super::{
    Role,
    link::{MonitorEnd, relay_pair},
    messages::{FromSession, NodeSessionSetup},
    monitor::open_anchor,
    process::Process,
};
use crate::{
    access::accounts::SystemAccount, config::ServerSettings, nodes::messages::NodeOrder,
    session::Phase,
};

/// Time for the process to take on its account and to open the root. The front end hears nothing
/// meanwhile, and waits a little longer.
const READY_LIMIT: Duration = Duration::from_secs(2);

/// Time for the process to end when its link has, and for the last words of both.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Silence of an end, or time in which it takes no bytes, after which it is cut off or stands
/// still: there are several beats in a second.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// Bytes passed on at a time.
const COPY_BYTES: usize = 16 * 1024;

/// The process of a session.
pub(crate) struct NodeProcess {
    process: Process,
    stream: UnixStream,
}

impl NodeProcess {
    /// Starts it. `login`: without the account. The error is for the front end.
    pub(crate) async fn start(
        account: SystemAccount,
        login: NodeOrder,
        local: SocketAddr,
        settings: &ServerSettings,
    ) -> Result<Self, String> {
        let started = Self::try_start(account, login, local, settings).await;
        started.map_err(|error| format!("no process for a session begins: {error}"))?
    }

    async fn try_start(
        account: SystemAccount,
        login: NodeOrder,
        local: SocketAddr,
        settings: &ServerSettings,
    ) -> io::Result<Result<Self, String>> {
        let (ours, theirs) = relay_pair()?;
        let process = Process::start(Role::NodeSession)?;
        let separation = settings.separation.as_ref();
        // A process that its user may take over gets the key only where the session needs it.
        let ftps = matches!(&login, NodeOrder::Login { ftps: true, .. });
        let tls = settings.tls.as_ref().filter(|_| ftps);
        let pair = tls.and_then(|tls| files::first_pair(&tls.host));
        let has_certificate = pair.is_some();
        let setup = NodeSessionSetup {
            parent: std::process::id(),
            ids: account.ids,
            require_sandbox: separation.is_some_and(|of| of.require_sandbox),
            local,
            login,
            has_certificate,
            settings: settings.clone(),
        };
        let host: Vec<File> = match pair {
            Some((certificate, key)) => {
                let opened = [certificate, key].into_iter().map(File::open);
                opened.collect::<io::Result<_>>()?
            }
            None => Vec::new(),
        };
        let mut beside = vec![theirs.as_fd()];
        beside.extend(host.iter().map(File::as_fd));
        let sent = process.link.send(&setup, &beside).await;
        sent.map_err(io::Error::other)?;
        let name = account.name;
        match timeout(READY_LIMIT, process.link.receive()).await {
            Ok(Ok(FromSession::Ready)) => Ok(Ok(Self {
                process,
                stream: UnixStream::from_std(StdUnixStream::from(ours))?,
            })),
            Ok(Ok(FromSession::Unable { why })) => {
                Ok(Err(format!("the files of {name} cannot be served: {why}")))
            }
            Ok(Ok(_)) => Ok(Err("internal error, see the log of the node".to_owned())),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Ok(Err(format!(
                "the process of {name} is not ready after {} s",
                READY_LIMIT.as_secs()
            ))),
        }
    }

    /// Until the link or the process ends. When this returns the process has ended, or is killed.
    pub(crate) async fn serve(
        mut self,
        front_end: impl AsyncRead + AsyncWrite + Unpin,
        settings: &ServerSettings,
        mut phase: watch::Receiver<Phase>,
    ) {
        let users = settings.node.as_ref().and_then(|node| node.users.clone());
        let link = &self.process.link;
        let process = &self.process;
        tokio::select! {
            () = relay(front_end, self.stream) => {}
            () = answer(link, users.as_deref()) => {}
            () = async {
                // Draining, then aborting.
                while phase.changed().await.is_ok() {
                    process.signal(Signal::TERM);
                }
                std::future::pending().await
            } => {}
        }
        drop(timeout(END_LIMIT, self.process.ended()).await);
    }
}

/// Passes bytes on until one end is over. The other hears of it by the end of its stream, and has
/// [`END_LIMIT`] for its last words: the process may be stopped, or not mean to end.
async fn relay(
    front_end: impl AsyncRead + AsyncWrite + Unpin,
    process: impl AsyncRead + AsyncWrite + Unpin,
) {
    let (from_front_end, to_front_end) = split(front_end);
    let (from_process, to_process) = split(process);
    let orders = copy(from_front_end, to_process);
    let reports = copy(from_process, to_front_end);
    tokio::pin!(orders, reports);
    tokio::select! {
        () = &mut orders => drop(timeout(END_LIMIT, reports).await),
        () = &mut reports => drop(timeout(END_LIMIT, orders).await),
    }
}

/// Until `from` ends, or one of both stands still. Then `to` ends.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut bytes = vec![0; COPY_BYTES];
    loop {
        let count = match timeout(SILENCE_LIMIT, from.read(&mut bytes)).await {
            Ok(Ok(count)) if count > 0 => count,
            _ => break,
        };
        let written = async {
            to.write_all(&bytes[..count]).await?;
            to.flush().await
        };
        match timeout(SILENCE_LIMIT, written).await {
            Ok(Ok(())) => {}
            _ => break,
        }
    }
    drop(timeout(END_LIMIT, to.shutdown()).await);
}

/// Opens files of CAs, until the process says something else.
async fn answer(link: &MonitorEnd, users: Option<&std::path::Path>) {
    while let Ok(FromSession::Trust { name }) = link.receive().await {
        if open_anchor(users, link, name).await.is_err() {
            return;
        }
    }
}
