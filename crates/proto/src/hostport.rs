//! Addresses of data channels: `h1,h2,h3,h4,p1,p2`, `|1|ip|port|`, and the replies that carry them.

use std::net::SocketAddr;

/// `h1,h2,h3,h4,p1,p2` (RFC 959 §5.3.2). `None` for anything else, numbers above 255 included.
pub fn parse_comma(text: &str) -> Option<SocketAddr> {
    let _ = text;
    todo!()
}

/// `|1|ip|port|` or `|2|ip|port|` (RFC 2428 §2), any delimiter 33..=126.
pub fn parse_extended(text: &str) -> Option<SocketAddr> {
    let _ = text;
    todo!()
}

/// `h1,h2,h3,h4,p1,p2`; `None` for an IPv6 address.
pub fn format_comma(addr: SocketAddr) -> Option<String> {
    let _ = addr;
    todo!()
}

/// `|1|ip|port|` or `|2|ip|port|`.
pub fn format_extended(addr: SocketAddr) -> String {
    let _ = addr;
    todo!()
}

/// The address in the text of a 227 or 127 reply: the six numbers after `(`, or the first digits.
pub fn parse_227(text: &str) -> Option<SocketAddr> {
    let _ = text;
    todo!()
}

/// The address of a 229 or 129 reply to EPSV: `(|||port|)` takes the host from `peer`.
pub fn parse_229(text: &str, peer: std::net::IpAddr) -> Option<SocketAddr> {
    let _ = (text, peer);
    todo!()
}
