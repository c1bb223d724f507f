//! Sessions in two processes: a pre-login process starts the session and hands it over at login; a
//! process of the account continues it.

use std::{io, mem, net::SocketAddr, os::fd::OwnedFd, sync::Arc};

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

/// A login through a pre-login process.
pub(crate) struct Entered {
    /// For the reply and the log.
    pub(crate) name: String,
    pub(crate) account: Account,
    /// Limits its storage; `None`: all of it.
    pub(crate) rights: Option<Rights>,
    /// The server's address of the control connection.
    pub(crate) local: SocketAddr,
    /// What protects the control connection.
    pub(crate) channel: ControlProtection,
    /// With the credential of data channels.
    pub(crate) security: Security,
    /// Of the data channels of its account and address.
    pub(crate) quota: ChannelQuota,
}

/// A control connection whose commands another process carries out from now on.
pub(crate) struct HandedOver {
    id: u64,
    pub(crate) io: ControlIo,
    relay: Option<OwnedFd>,
    held: Vec<u8>,
}

/// The handover of a session in a pre-login process.
#[derive(Default)]
pub(super) struct Handover {
    /// The monitor decides on a login.
    pub(super) is_deciding: bool,
    /// Bytes behind that login.
    held: Vec<u8>,
    /// The relay to the process that takes over.
    pub(super) relay: Option<OwnedFd>,
}

/// Serves a client that the monitor has greeted, until the monitor allows a login.
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

/// Serves a session after login, over the relay.
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
    let user = name.clone();
    let mut session = Session::new(socket, peer, local, permit, service, |config, now| {
        ServerPi::entered(config, user, account, channel.mechanism(), now)
    });
    session.io.security = security;
    session.work.channels.set_quota(Arc::new(quota));
    if let Some(rights) = rights {
        let service = Arc::clone(&session.service);
        session.work.confine_to_rights(rights, &name, &service);
    }
    session.log.user = Some(name);
    drop(session.live(phase).await);
}

impl Session {
    /// Another process carries out the commands behind the login. So lines are taken one by one,
    /// and held while the monitor decides on a login.
    pub(super) fn receive_lines(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'\n');
            let (line, behind) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
            rest = behind;
            if self.handover.is_deciding {
                self.handover.held.extend_from_slice(line);
                continue;
            }
            self.input(Input::Bytes(line));
            // The interpreter refuses clear text behind AUTH, so it must see it before the answer.
            if self.pi.may_begin_protection() && !rest.is_empty() {
                let behind = mem::take(&mut rest);
                self.input(Input::Bytes(behind));
            }
            self.carry_out();
        }
    }

    /// The login failed.
    pub(super) fn receive_held_lines(&mut self) {
        let held = mem::take(&mut self.handover.held);
        self.receive_lines(&held);
    }

    pub(super) fn hand_over(&mut self, relay: OwnedFd) {
        debug!(session = self.log.id, "handed over");
        self.handover.relay = Some(relay);
    }

    pub(super) fn into_handed_over(self) -> Option<HandedOver> {
        Some(HandedOver {
            id: self.log.id,
            io: self.io,
            relay: Some(self.handover.relay?),
            held: self.handover.held,
        })
    }
}

impl HandedOver {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The relay to the session, once.
    pub(crate) fn take_relay(&mut self) -> io::Result<OwnedFd> {
        self.relay.take().ok_or(io::ErrorKind::NotConnected.into())
    }

    /// Bytes that arrived behind the login, unprotected.
    pub(crate) fn take_held(&mut self) -> Vec<u8> {
        mem::take(&mut self.held)
    }

    /// The credential of the session's data channels; empty: none.
    pub(crate) fn delegated_pem(&self) -> io::Result<Vec<u8>> {
        self.io.security.delegated_pem().map_err(io::Error::other)
    }

    /// The client's bytes without protection, and whether the client closed the stream.
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

/// IPv4 as IPv4, also if a dual-stack listener shows it as mapped IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
