//! What a request shows of its sender.

use std::net::IpAddr;

use axum::http::{HeaderMap, header, request::Parts};
use zeroize::Zeroizing;

/// The other end of a connection; part of every request.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Where it is.
    pub address: Option<IpAddr>,
    /// What its certificate says.
    pub certificate: Shown,
}

/// What a certificate of the other end says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// It has shown none.
    #[default]
    Nothing,
    /// The name of its user, verified. That of a proxy is its holder's.
    Name(String),
    /// Why it proves nothing.
    Refused(String),
}

/// What a request shows of its sender.
#[derive(Clone, Default)]
pub struct Evidence {
    /// Where it comes from.
    pub address: Option<IpAddr>,
    /// Of `Authorization: Bearer`.
    pub bearer: Option<Zeroizing<String>>,
    /// What the certificate of the connection says.
    pub certificate: Shown,
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
