//! Names to addresses, listeners in a port range, socket options.

use std::{io, net::IpAddr, ops::RangeInclusive};

/// Ports that passive data channels may use.
pub type PortRange = RangeInclusive<u16>;

/// A listener on `address` with a free port, of `range` where there is one (tried from a random start). Backlog 1024, close-on-exec,
/// non-blocking. AddrInUse where the range is used up, and the message says which range.
pub fn listen(
    address: IpAddr,
    range: Option<&PortRange>,
    socket_buffer_bytes: Option<u64>,
) -> io::Result<std::net::TcpListener> {
    let _ = (address, range, socket_buffer_bytes);
    todo!()
}

/// `A-B` or `A,B` (as `GLOBUS_TCP_PORT_RANGE` spells it).
pub fn parse_port_range(text: &str) -> Option<PortRange> {
    let _ = text;
    todo!()
}
