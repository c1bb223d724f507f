//! URLs of HTTP as they are on the wire: nothing is decoded, so that a path arrives as it was
//! written.

use std::{fmt, net::Ipv6Addr};

/// Longest URL.
const BYTES_MAX: usize = 8192;

/// How a server is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// How it is talked to.
    pub scheme: Scheme,
    /// In lower case; an address of IPv6 without brackets.
    pub host: String,
    /// Never 0.
    pub port: u16,
}

impl Origin {
    /// What a `Host` header has.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { scheme, host, port } = self;
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.clone(),
        };
        match *port == scheme.default_port() {
            true => host,
            false => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// What a request is for, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// The server.
    pub origin: Origin,
    /// Path and query, beginning with a slash.
    target: String,
}

/// Why there is no URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// No scheme stands before it.
    #[error("the URL has no scheme")]
    Relative,
    /// Of another protocol.
    #[error("the URL's scheme is neither https nor http")]
    Scheme,
    /// Credentials do not belong there.
    #[error("the URL has a user or a password")]
    User,
    /// None, or one with other characters.
    #[error("the URL's host is neither a name nor an address")]
    Host,
    /// See its text.
    #[error("the URL's port is no number from 1 to 65535")]
    Port,
    /// A control character, a space, or one that is not ASCII.
    #[error("the URL has a character that is to be encoded")]
    Character,
    /// More than 8192 bytes.
    #[error("the URL has more than {BYTES_MAX} bytes")]
    Long,
}

impl Url {
    /// A path and query of a server.
    ///
    /// # Errors
    /// When the target does not begin with a slash, or has a character that no request has.
    pub fn new(origin: Origin, target: impl Into<String>) -> Result<Self, BadUrl> {
        let mut target = target.into();
        if target.len() > BYTES_MAX {
            return Err(BadUrl::Long);
        }
        target.truncate(target.find('#').unwrap_or(target.len()));
        if target.is_empty() || target.starts_with('?') {
            target.insert(0, '/');
        }
        let is_fit = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>');
        if !target.starts_with('/') || !target.bytes().all(is_fit) {
            return Err(BadUrl::Character);
        }
        Ok(Self { origin, target })
    }

    /// An absolute URL. `davs` and `dav` are other words for `https` and `http`.
    ///
    /// # Errors
    /// See [`BadUrl`].
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > BYTES_MAX {
            return Err(BadUrl::Long);
        }
        let (scheme, rest) = text.trim().split_once("://").ok_or(BadUrl::Relative)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "https" | "davs" => Scheme::Https,
            "http" | "dav" => Scheme::Http,
            _ => return Err(BadUrl::Scheme),
        };
        Self::of_rest(scheme, rest)
    }

    fn of_rest(scheme: Scheme, rest: &str) -> Result<Self, BadUrl> {
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = host_and_port(authority)?;
        let origin = Origin {
            scheme,
            host,
            port: port.unwrap_or(scheme.default_port()),
        };
        Self::new(origin, target)
    }

    /// Path and query.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Where a reference in an answer to a request for this URL leads (RFC 3986 §5.2).
    ///
    /// # Errors
    /// See [`BadUrl`].
    pub fn join(&self, reference: &str) -> Result<Self, BadUrl> {
        let reference = reference.trim();
        if reference.len() > BYTES_MAX {
            return Err(BadUrl::Long);
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::of_rest(self.origin.scheme, rest);
        }
        let end = reference.find(['/', '?', '#']).unwrap_or(reference.len());
        if reference[..end].contains(':') {
            return Self::parse(reference);
        }
        let reference = reference.split('#').next().unwrap_or_default();
        let path = self.target.split('?').next().unwrap_or_default();
        let target = match reference.as_bytes().first() {
            None => self.target.clone(),
            Some(b'?') => format!("{path}{reference}"),
            Some(b'/') => without_dots(reference),
            Some(_) => {
                let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
                without_dots(&format!("{folder}{reference}"))
            }
        };
        Self::new(self.origin.clone(), target)
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), BadUrl> {
    if authority.contains('@') {
        return Err(BadUrl::User);
    }
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(BadUrl::Host)?;
            let host: Ipv6Addr = host.parse().map_err(|_| BadUrl::Host)?;
            (host.to_string(), rest)
        }
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            let (host, rest) = authority.split_at(end);
            let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || host.len() > 255 || !host.bytes().all(is_fit) {
                return Err(BadUrl::Host);
            }
            (host.to_ascii_lowercase(), rest)
        }
    };
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        None => return Err(BadUrl::Host),
        Some("") => None,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 && !port_has_sign(rest) => Some(port),
            _ => return Err(BadUrl::Port),
        },
    };
    Ok((host, port))
}

/// Numbers of Rust may begin with a plus.
fn port_has_sign(rest: &str) -> bool {
    rest.contains('+')
}

/// RFC 3986 §5.2.4. The query stays as it is.
fn without_dots(target: &str) -> String {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
        if is_last && matches!(segment, "." | "..") {
            kept.push("");
        }
    }
    format!("/{}{query}", kept.join("/"))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.target)
    }
}

/// Without the query, which may be a secret by itself.
impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.target.split('?').next().unwrap_or_default();
        write!(f, "{}{path}", self.origin)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_are_kept_as_they_are_written() {
        for (text, shown) in [
            (
                "https://A.Example/x%2fy?q=/..#f",
                "https://a.example/x%2fy?q=/..",
            ),
            ("davs://h:8443/a/../b", "https://h:8443/a/../b"),
            ("dav://[::1]:80", "http://[::1]/"),
            ("http://h?x", "http://h/?x"),
            ("HTTPS://h:/", "https://h/"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), shown);
        }
        for (text, why) in [
            ("/a", BadUrl::Relative),
            ("ftp://h/a", BadUrl::Scheme),
            ("https://u:p@h/a", BadUrl::User),
            ("https:///a", BadUrl::Host),
            ("https://h x/a", BadUrl::Host),
            ("https://[::1/a", BadUrl::Host),
            ("https://[fe80::1%25eth0]/a", BadUrl::Host),
            ("https://h:0/a", BadUrl::Port),
            ("https://h:+1/a", BadUrl::Port),
            ("https://h:65536/a", BadUrl::Port),
            ("https://h/a b", BadUrl::Character),
            ("https://h/a\r\nX: y", BadUrl::Character),
            ("https://h/\u{e4}", BadUrl::Character),
        ] {
            assert_eq!(Url::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn references_lead_where_the_rfc_says() {
        let base = Url::parse("https://a/b/c/d?q").unwrap();
        for (reference, target) in [
            ("g", "https://a/b/c/g"),
            ("./g", "https://a/b/c/g"),
            ("g/", "https://a/b/c/g/"),
            ("/g", "https://a/g"),
            ("//g", "https://g/"),
            ("?y", "https://a/b/c/d?y"),
            ("g?y#s", "https://a/b/c/g?y"),
            ("", "https://a/b/c/d?q"),
            (".", "https://a/b/c/"),
            ("..", "https://a/b/"),
            ("../../../g", "https://a/g"),
            ("http://x:81/y", "http://x:81/y"),
        ] {
            assert_eq!(
                base.join(reference).unwrap().to_string(),
                target,
                "{reference}"
            );
        }
        assert_eq!(base.join("javascript:x"), Err(BadUrl::Relative));
    }

    proptest! {
        #[test]
        fn nothing_panics(text: String, reference: String) {
            let _ = Url::parse(&text);
            let base = Url::parse("https://a/b/c/d?q").unwrap();
            let _ = base.join(&reference);
            let _ = Url::parse(&format!("https://{text}"));
        }
    }
}
