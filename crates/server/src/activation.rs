//! The protocol of systemd and other service managers: they may provide the sockets (`LISTEN_FDS`),
//! and expect a notification when the server is ready (`NOTIFY_SOCKET`).

use std::{io, net::TcpListener};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use sd_notify::NotifyState;
use tracing::warn;

use crate::error::ServerError;

/// The sockets of the service manager, for [`crate::Server::on_sockets`]; none without one.
/// Takes them out of the environment, so a second call finds none.
pub fn sockets() -> Result<Vec<TcpListener>, ServerError> {
    let mut handed = ListenFd::from_env();
    let taken = (0..handed.len()).map(|number| {
        take(&mut handed, number).map_err(|error| ServerError::HandedOver { number, error })
    });
    taken.collect()
}

fn take(handed: &mut ListenFd, number: usize) -> io::Result<TcpListener> {
    let socket = handed.take_tcp_listener(number)?;
    let socket = socket.ok_or(io::ErrorKind::NotFound)?;
    match socket_acceptconn(&socket)? {
        true => Ok(socket),
        false => Err(io::Error::other(
            "it does not listen: Accept= of its unit must be no",
        )),
    }
}

/// Tells the service manager, where there is one, that clients are served from now on.
pub fn tell_ready() {
    tell(NotifyState::Ready);
}

/// The same, that no more are.
pub fn tell_stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!(%error, "cannot notify the service manager");
    }
}
