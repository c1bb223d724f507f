//! Sessions in two processes: a pre-login process starts the session and hands it over at login; a
//! process of the account continues it.

use std::{io, mem, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Instant};

use godwit_engine::control::protection::Received;
use godwit_proto::pi::server::{Account, Input, Output, ServerPi};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::watch,
};
use tracing::debug;

use super::{Control, Phase, Session, control_io::ControlIo};
use crate::{
    access::{
        admission::ConnectionPermit, channel_quota::ChannelQuota, identity::ControlProtection,
        rights::Rights, security::Security,
    },
    service::Service,
};

/// Who logged in through a pre-login process.
pub(crate) struct Entered {
    /// For the reply and the log.
    pub(crate) name: String,
    pub(crate) account: Account,
    /// What of storage is theirs; `None`: all.
    pub(crate) rights: Option<Rights>,
    /// The control connection's address on our side.
    pub(crate) local: SocketAddr,
    /// What protects the control connection.
    pub(crate) channel: ControlProtection,
    /// What data channels prove themselves with.
    pub(crate) security: Security,
    /// In the data channels of its account and address.
    pub(crate) quota: ChannelQuota,
}

/// A control connection whose commands another process carries out from now on.
pub(crate) struct HandedOver {
    id: u64,
    pub(crate) io: ControlIo,
    relay: Option<OwnedFd>,
    held: Vec<u8>,
}

/// Serves a stranger whom the monitor has greeted, up to the login that the monitor allows.
pub(crate) async fn serve_until_login(
    socket: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    service: Arc<Service>,
    phase: watch::Receiver<Phase>,
) -> Option<HandedOver> {
    let local = canonical(socket.local_addr().ok()?);
    let socket = Control::Client(socket);
    let mut session = Session::new(socket, peer, local, permit, service, |config, now| {
        ServerPi::new(config, now)
    });
    let greeting = session.pi.poll_output();
    debug_assert!(matches!(greeting, Some(Output::Send(_))));
    session.live(phase).await
}

/// Serves who has logged in, over the relay.
pub(crate) async fn serve_after_login(
    relay: UnixStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    service: Arc<Service>,
    phase: watch::Receiver<Phase>,
    entered: Entered,
) {
    let Entered {
        name,
        account,
        rights,
        local,
        channel,
        security,
        quota,
    } = entered;
    let socket = Control::Relay(relay);
    let told = name.clone();
    let mut session = Session::new(socket, peer, local, permit, service, |config, now| {
        ServerPi::entered(config, told, account, channel.mechanism(), now)
    });
    session.io.security = security;
    session.channels.set_quota(Arc::new(quota));
    if let Some(rights) = rights {
        session.confine_to_rights(rights, &name);
    }
    session.user = Some(name);
    drop(session.live(phase).await);
}

impl Session {
    /// Commands behind the login are not ours to run, so lines are taken one by one, and held while
    /// a login is decided on.
    pub(super) fn receive_lines(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'\n');
            let (line, behind) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
            rest = behind;
            if self.entering {
                self.held.extend_from_slice(line);
                continue;
            }
            self.pi.handle_input(Instant::now(), Input::Bytes(line));
            // The interpreter refuses clear text behind AUTH, so it must see it before the answer.
            if self.pi.may_begin_protection() && !rest.is_empty() {
                let behind = mem::take(&mut rest);
                self.pi.handle_input(Instant::now(), Input::Bytes(behind));
            }
            self.carry_out();
        }
    }

    /// The login failed.
    pub(super) fn receive_held_lines(&mut self) {
        let held = mem::take(&mut self.held);
        self.receive_lines(&held);
    }

    pub(super) fn hand_over(&mut self, relay: OwnedFd) {
        debug!(session = self.id, "handed over");
        self.relay = Some(relay);
    }

    pub(super) fn into_handed_over(self) -> Option<HandedOver> {
        Some(HandedOver {
            id: self.id,
            io: self.io,
            relay: Some(self.relay?),
            held: self.held,
        })
    }
}

impl HandedOver {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The way to the session, once.
    pub(crate) fn take_relay(&mut self) -> io::Result<OwnedFd> {
        self.relay.take().ok_or(io::ErrorKind::NotConnected.into())
    }

    /// Bytes that came behind the login, in clear.
    pub(crate) fn take_held(&mut self) -> Vec<u8> {
        mem::take(&mut self.held)
    }

    /// What the session is to prove data channels with; empty: nothing.
    pub(crate) fn delegated_pem(&self) -> io::Result<Vec<u8>> {
        self.io.security.delegated_pem().map_err(io::Error::other)
    }

    /// What the client's bytes mean, and whether it has said that no more come.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, bool), String> {
        let Some(opened) = self.io.security.open(bytes) else {
            return Ok((bytes.to_vec(), false));
        };
        let (mut commands, mut closed) = (Vec::new(), false);
        for one in opened.map_err(|error| error.to_string())? {
            match one {
                Received::Commands(lines) => commands.extend(lines),
                Received::Telnet(answer) => self.io.push(&answer),
                Received::Closed => closed = true,
                Received::Unprotected => {
                    self.io.push_replies(
                        b"533 Commands must be protected, closing control connection.\r\n".to_vec(),
                    )?;
                    return Err("a command came in clear".to_owned());
                }
            }
        }
        Ok((commands, closed))
    }
}

/// IPv4 as IPv4, also where a dual-stack listener shows it in IPv6 clothes.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
