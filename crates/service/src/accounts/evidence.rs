//! What a request shows of its sender.

use std::net::IpAddr;

use axum::http::{HeaderMap, header, request::Parts};
use zeroize::Zeroizing;

/// The other end of a connection; part of every request.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Where it is.
    pub address: Option<IpAddr>,
    /// Subject of its certificate, which TLS has verified.
    pub certificate: Option<String>,
}

/// What a request shows of its sender.
#[derive(Clone, Default)]
pub struct Evidence {
    /// Where it comes from.
    pub address: Option<IpAddr>,
    /// Of `Authorization: Bearer`.
    pub bearer: Option<Zeroizing<String>>,
    /// Subject of the certificate that TLS has verified.
    pub certificate: Option<String>,
}

impl Evidence {
    /// Of a request.
    pub fn of(parts: &Parts) -> Self {
        let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_default();
        Evidence {
            address: peer.address,
            bearer: bearer(&parts.headers),
            certificate: peer.certificate,
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| Zeroizing::new(token.trim().to_owned()))
}
