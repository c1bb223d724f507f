//! What a request shows of its sender.

use std::{net::IpAddr, time::SystemTime};

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
    /// Who its user is, verified.
    Name {
        /// That of a proxy is its holder's.
        name: String,
        /// When the first certificate of the chain expires.
        until: SystemTime,
    },
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
    // An origin without a host (`null`) is of no site, also where the request names none.
    match (origin, host) {
        (Some((_, origin)), Some(host)) => origin != host,
        _ => true,
    }
}

fn bearer(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| Zeroizing::new(token.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn an_origin_is_this_site_only_where_the_request_names_the_same_host() {
        for (origin, host, is_other) in [
            (None, None, false),
            (Some("https://h.example.org"), Some("h.example.org"), false),
            (Some("https://h.example.org"), Some("i.example.org"), true),
            (Some("https://h.example.org"), None, true),
            (Some("null"), Some("h.example.org"), true),
            (Some("null"), None, true),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::ORIGIN, origin), (header::HOST, host)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            assert_eq!(is_of_another_site(&headers), is_other, "{headers:?}");
        }
    }
}
