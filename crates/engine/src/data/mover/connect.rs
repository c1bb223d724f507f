//! Connections that a mover makes itself.

use std::{io, net::SocketAddr};

use godwit_proto::error::TransferFailure;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    data::{params::ChannelParams, transfer::shared::TransferHandle},
    storage::text_of,
};

pub(crate) fn not_connected(peer: SocketAddr, error: &io::Error) -> TransferFailure {
    TransferFailure::NoConnection(format!("to {peer}: {}", text_of(error)))
}

/// A connection that we have made cannot be used.
pub(crate) fn connection_failed(handle: &TransferHandle, stripe: usize, why: TransferFailure) {
    if handle.is_send() {
        handle.sender_failed_to_open(stripe, why);
    } else {
        handle.fail(why);
    }
}

/// Begins to connect.
pub(crate) fn connect_socket(
    peer: SocketAddr,
    params: &ChannelParams,
    sending: bool,
) -> io::Result<mio::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    // Before connect: the window scale is fixed in the handshake.
    if let Some(bytes) = params.socket_buffer_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    if sending {
        params.congestion.demand(&socket)?;
    }
    if let Some(source) = params.source {
        // The port is chosen with the peer known: else no two connections could share one.
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true).map_err(io::Error::from)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&peer.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    Ok(mio::net::TcpStream::from_std(socket.into()))
}
