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
        // A browser shows the certificate of its user with whatever any page has it send.
        let certificate = match is_of_another_site(&parts.headers) {
            true => Shown::Refused("a page of another site sent the request".to_owned()),
            false => peer.certificate,
        };
        Evidence {
            address: peer.address,
            bearer: bearer(&parts.headers),
            certificate,
        }
    }
}

/// Whether a browser says that a page of another origin has it send this. Programs that are no
/// browsers say neither.
pub(crate) fn is_of_another_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    // Of browsers that send no more. Scheme and usual port are the balancer's.
    let Some(origin) = headers.get(header::ORIGIN) else {
        return false;
    };
    let origin = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"));
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    origin.map(|(_, host)| host) != host
}

fn bearer(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| Zeroizing::new(token.trim().to_owned()))
}
