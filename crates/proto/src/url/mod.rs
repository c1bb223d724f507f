//! URLs of endpoints: `gsiftp://[user@]host[:2811]/path`, `ftpes://`, `ftp://`, `sshftp://`,
//! `https://` and `davs://`, `http://` and `dav://`, `s3://[profile@]bucket/key`,
//! `file:///path`, a bare local path, `-`.

#[cfg(test)]
mod tests;

use std::{fmt, iter, net::Ipv6Addr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::{
    command::Password,
    path::{BadPath, FtpPath},
    text::{decimal, printable},
};

/// Where data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A server.
    Remote(RemoteUrl),
    /// A path of this machine, bytes.
    Local(Vec<u8>),
    /// `-`: standard input or output.
    Standard,
}

/// How the control channel is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `ftp://`, default port 21.
    Ftp,
    /// `gsiftp://`, default port 2811.
    Gsiftp,
    /// `ftpes://`, default port 21: FTP that begins TLS by AUTH TLS (RFC 4217), as other clients
    /// call it.
    Ftpes,
    /// `sshftp://`, default port 22.
    Sshftp,
    /// `https://`, default port 443.
    Https,
    /// `davs://`: another name of `https://`.
    Davs,
    /// `http://`, default port 80: in clear.
    Http,
    /// `dav://`: another name of `http://`.
    Dav,
    /// `s3://`: the host is a bucket, and which service has it is said elsewhere.
    S3,
}

/// A path on a server.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// Scheme.
    pub scheme: Scheme,
    /// `user@`, decoded.
    pub user: Option<String>,
    /// `user:password@`, decoded; never shown.
    pub password: Option<Password>,
    /// Host name or address; IPv6 without its brackets.
    pub host: String,
    /// Port, the scheme's default filled in.
    pub port: u16,
    /// Decoded path, without `//` but in a bucket; a trailing `/` is kept. Absolute, or beginning
    /// with `~` where the URL has `/~`: below the home of the user, or of the one whose name
    /// follows. `%00`, `%0D`, `%0A` are refused.
    pub path: FtpPath,
}

/// Why a text is no location. Messages name the offending part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A scheme that is not ours.
    #[error("unknown scheme {0:?}: use gsiftp, ftpes, ftp, sshftp, https, davs, s3 or file")]
    Scheme(String),
    /// One of our schemes without `//`.
    #[error("{0}: must be followed by //")]
    Slashes(&'static str),
    /// No or bad host. Not shown: it may be part of a password.
    #[error("no host, or none that could be one")]
    Host,
    /// A port that is no number in 1..=65535. Not shown: it may be a password.
    #[error("bad port: wanted 1..65535")]
    Port,
    /// The text before an `@` of the path may be a user and a password that hold a slash.
    #[error(
        "an @ follows a : and a /: in a user or a password write / as %2F, in a path write @ as %40"
    )]
    Ambiguous,
    /// A URL of HTTP has a query or a fragment, which is no part of the path there.
    #[error("a ? or # begins what is no part of a path: write ? as %3F and # as %23")]
    Query,
    /// Percent-encoding is broken or a control byte was encoded.
    #[error("bad escape in {0:?}")]
    Escape(String),
    /// `file://` with a host other than `localhost`. Not shown: it may hold a password.
    #[error("file URL names a host: only local files can be opened")]
    FileHost,
    /// A bucket with a password or a port.
    #[error(
        "s3://bucket/key has neither a password nor a port: keys and the service come from the \
         environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL) or ~/.aws"
    )]
    Bucket,
    /// A bad path.
    #[error("{0}")]
    Path(#[from] BadPath),
}

impl Location {
    /// Reads a command-line argument. Anything without `://` is a local path; `-` alone is standard
    /// input or output.
    pub fn parse(text: &[u8]) -> Result<Self, UrlError> {
        if text == b"-" {
            return Ok(Self::Standard);
        }
        if text.is_empty() {
            return Err(BadPath::Empty.into());
        }
        let Some((scheme, rest)) = split_scheme(text) else {
            return match scheme_without_slashes(text) {
                Some(scheme) => Err(UrlError::Slashes(scheme.as_str())),
                None => Ok(Self::Local(text.to_vec())),
            };
        };
        if scheme.eq_ignore_ascii_case("file") {
            return local(rest);
        }
        match Scheme::named(scheme) {
            Some(scheme) => RemoteUrl::parse(scheme, rest).map(Self::Remote),
            None => Err(UrlError::Scheme(printable(
                scheme.as_bytes(),
                QUOTED_CHARS_MAX,
            ))),
        }
    }
}

impl Scheme {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::Ftp,
        Self::Gsiftp,
        Self::Ftpes,
        Self::Sshftp,
        Self::Https,
        Self::Davs,
        Self::Http,
        Self::Dav,
        Self::S3,
    ];

    /// The scheme of this name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|scheme| scheme.as_str().eq_ignore_ascii_case(name))
    }

    /// As it stands before `://`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Gsiftp => "gsiftp",
            Self::Ftpes => "ftpes",
            Self::Sshftp => "sshftp",
            Self::Https => "https",
            Self::Davs => "davs",
            Self::Http => "http",
            Self::Dav => "dav",
            Self::S3 => "s3",
        }
    }

    /// HTTP, WebDAV and S3, in clear or not.
    pub const fn is_http(self) -> bool {
        matches!(
            self,
            Self::Https | Self::Davs | Self::Http | Self::Dav | Self::S3
        )
    }

    /// Port where a URL names none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Ftp | Self::Ftpes => 21,
            Self::Gsiftp => 2811,
            Self::Sshftp => 22,
            Self::Https | Self::Davs | Self::S3 => 443,
            Self::Http | Self::Dav => 80,
        }
    }
}

impl RemoteUrl {
    /// Behind `://`. `?` and `#` have no meaning in URLs of FTP and belong to the path, as in GCT's
    /// clients.
    fn parse(scheme: Scheme, rest: &[u8]) -> Result<Self, UrlError> {
        let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
        if login(rest).is_some_and(|(_, at)| at > slash) {
            return Err(UrlError::Ambiguous);
        }
        let (authority, path) = rest.split_at(slash);
        let is_bucket = scheme == Scheme::S3;
        if scheme.is_http() && !is_bucket && path.iter().any(|b| matches!(b, b'?' | b'#')) {
            return Err(UrlError::Query);
        }
        let at = authority.iter().rposition(|b| *b == b'@');
        let (user, password) = match at {
            Some(at) => user_info(&authority[..at])?,
            None => (None, None),
        };
        let (host, port) = host_and_port(&authority[at.map_or(0, |at| at + 1)..])?;
        if is_bucket && (password.is_some() || port.is_some()) {
            return Err(UrlError::Bucket);
        }
        Ok(Self {
            scheme,
            user,
            password,
            host,
            port: port.unwrap_or(scheme.default_port()),
            path: match is_bucket {
                true => key_path(path)?,
                false => remote_path(path, !scheme.is_http())?,
            },
        })
    }

    /// The path begins at a home, and only the server knows where that is: `~`, or `~name`.
    pub fn home(&self) -> Option<&[u8]> {
        let path = self.path.as_bytes();
        let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
        path.starts_with(b"~").then_some(&path[..end])
    }

    /// [`names_directory`] of the path.
    pub fn names_directory(&self) -> bool {
        names_directory(self.path.as_bytes())
    }
}

/// The path names a directory by its end: a slash, `.` or `..` as its last component.
pub fn names_directory(path: &[u8]) -> bool {
    let last = path.rsplit(|b| *b == b'/').next();
    !path.is_empty() && matches!(last, Some(b"" | b"." | b".."))
}

/// Characters of foreign text that an error keeps.
const QUOTED_CHARS_MAX: usize = 80;

/// Scheme and what follows `://`; `None` for what is no URL, e.g. `./a://b`.
fn split_scheme(text: &[u8]) -> Option<(&str, &[u8])> {
    let at = text.windows(3).position(|w| w == b"://")?;
    let scheme = std::str::from_utf8(&text[..at]).ok()?;
    let mut chars = scheme.chars();
    let sound = chars.next()?.is_ascii_alphabetic()
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    sound.then_some((scheme, &text[at + 3..]))
}

/// Where a password begins and ends in what follows `://`, as far as can be told of text that may
/// be no valid URL: the first `:`, but for those of an address in brackets, and the last `@` behind
/// it. A port that servers have by default is a port: transfer services write
/// `gsiftp://host:2811/path/a@b`.
fn login(rest: &[u8]) -> Option<(usize, usize)> {
    let at = rest.iter().rposition(|b| *b == b'@')?;
    let colon = colon(rest).filter(|colon| *colon < at)?;
    let port = rest[colon + 1..].split(|b| *b == b'/').next()?;
    (!DEFAULT_PORTS.contains(&port)).then_some((colon, at))
}

/// Of `ftp://` and `ftpes://`, `sshftp://`, FTP over TLS from the first byte, `gsiftp://`,
/// `http://` and `https://`.
const DEFAULT_PORTS: [&[u8]; 6] = [b"21", b"22", b"990", b"2811", b"80", b"443"];

fn colon(rest: &[u8]) -> Option<usize> {
    let address = match rest.first() {
        Some(b'[') => rest.iter().position(|b| *b == b']').unwrap_or(0),
        _ => 0,
    };
    Some(address + rest[address..].iter().position(|b| *b == b':')?)
}

/// `ftp:/h` and the like: a mistake that would show the password of what was meant.
fn scheme_without_slashes(text: &[u8]) -> Option<Scheme> {
    let colon = text.iter().position(|b| *b == b':')?;
    Scheme::named(std::str::from_utf8(&text[..colon]).ok()?)
}

/// `text` with all that may be the password of a URL as stars. Works on text that is no valid URL
/// too: that is when messages quote it.
pub fn masked(text: &str) -> String {
    let from = match (text.find("://"), scheme_without_slashes(text.as_bytes())) {
        (Some(at), _) => at + 3,
        (None, Some(scheme)) => scheme.as_str().len() + 1,
        (None, None) => return text.to_owned(),
    };
    let (scheme, rest) = text.split_at(from);
    let (login, rest) = match login(rest.as_bytes()) {
        Some((colon, at)) => (format!("{}:***@", &rest[..colon]), &rest[at + 1..]),
        None => (String::new(), rest),
    };
    // What stands in the place of a port may be a password, or the end of one, whose host is
    // missing.
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    match colon(&authority.as_bytes()[host..]).map(|colon| host + colon) {
        Some(colon) if is_no_port(&authority[colon + 1..]) => {
            format!("{scheme}{login}{}:***", &rest[..colon])
        }
        _ => format!("{scheme}{login}{rest}"),
    }
}

fn is_no_port(text: &str) -> bool {
    !text.is_empty() && decimal::<u16>(text).is_none()
}

/// `[localhost]/path` of a file URL.
fn local(rest: &[u8]) -> Result<Location, UrlError> {
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(slash);
    if !host.is_empty() && !host.eq_ignore_ascii_case(b"localhost") {
        return Err(UrlError::FileHost);
    }
    if path.is_empty() {
        return Err(BadPath::Empty.into());
    }
    let path = decode(path)?;
    if path.contains(&0) {
        return Err(BadPath::Byte(0).into());
    }
    Ok(Location::Local(path))
}

/// Percent-decoding that refuses a `%` without two hexadecimal digits (RFC 3986 §2.1).
fn decode(text: &[u8]) -> Result<Vec<u8>, UrlError> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => rest = &rest[at + 3..],
            _ => return Err(bad_escape(text)),
        }
    }
    Ok(percent_decode(text).collect())
}

fn bad_escape(text: &[u8]) -> UrlError {
    UrlError::Escape(printable(text, QUOTED_CHARS_MAX))
}

/// `user[:password]`. Text that cannot be sent is refused without being shown.
fn user_info(text: &[u8]) -> Result<(Option<String>, Option<Password>), UrlError> {
    let word = |part: &[u8], what: &str| {
        let bytes = decode(part).map_err(|_| UrlError::Escape(what.to_owned()))?;
        String::from_utf8(bytes)
            .ok()
            .filter(|t| !t.chars().any(char::is_control))
            .ok_or_else(|| UrlError::Escape(what.to_owned()))
    };
    let mut parts = text.splitn(2, |b| *b == b':');
    let user = word(parts.next().unwrap_or_default(), "user name")?;
    let password = parts.next().map(|p| word(p, "password")).transpose()?;
    Ok((
        Some(user).filter(|u| !u.is_empty()),
        password.map(Password::new),
    ))
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`; an empty port is none (RFC 3986 §3.2.3).
fn host_and_port(text: &[u8]) -> Result<(String, Option<u16>), UrlError> {
    let text = std::str::from_utf8(text).map_err(|_| UrlError::Host)?;
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, behind) = rest.split_once(']').ok_or(UrlError::Host)?;
        host.parse::<Ipv6Addr>().map_err(|_| UrlError::Host)?;
        match behind.strip_prefix(':') {
            Some(port) => (host, port),
            None if behind.is_empty() => (host, ""),
            None => return Err(UrlError::Host),
        }
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        if !is_host_name(host) {
            return Err(UrlError::Host);
        }
        (host, port)
    };
    if port.is_empty() {
        return Ok((host.to_owned(), None));
    }
    match decimal(port) {
        Some(number) if number > 0 => Ok((host.to_owned(), Some(number))),
        _ => Err(UrlError::Port),
    }
}

/// Longest name that DNS can hold (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// A name or an IPv4 address. Names beyond ASCII must come in their DNS form (`xn--`).
fn is_host_name(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    // A hyphen in front would make an option of it where it is handed to a program (and RFC 952 has
    // no such names).
    (1..=HOST_BYTES_MAX).contains(&host.len())
        && !host.starts_with('-')
        && host.bytes().all(allowed)
}

/// Decoded, without `//`; a trailing `/` stays, since it says "directory". Where servers have
/// homes, `/~` begins at one, as the clients of GCT have it: a name that begins so right below the
/// root is said `/%7E`.
fn remote_path(text: &[u8], has_homes: bool) -> Result<FtpPath, UrlError> {
    let decoded = decode(text)?;
    let mut path = vec![b'/'];
    let begins_at_home = has_homes && text.starts_with(b"/~");
    for byte in decoded {
        if byte != b'/' || path.last() != Some(&b'/') {
            path.push(byte);
        }
    }
    if begins_at_home {
        path.remove(0);
    }
    Ok(FtpPath::new(path)?)
}

/// A key behind a slash. Slashes in it are characters like others.
fn key_path(text: &[u8]) -> Result<FtpPath, UrlError> {
    match decode(text)? {
        path if path.is_empty() => Ok(FtpPath::root()),
        path => Ok(FtpPath::new(path)?),
    }
}

/// What a path keeps as it is: unreserved and what RFC 3986 §3.3 allows in segments, but for `@`,
/// which could end a login ([`UrlError::Ambiguous`]).
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':');

/// What a user name keeps as it is.
const USER: &AsciiSet = &PATH.add(b'/').add(b':');

impl fmt::Display for Location {
    /// What [`Location::parse`] reads back, apart from passwords. A local path that is no text, or
    /// that would be read as something else, becomes a file URL where it is absolute.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(url) => url.fmt(f),
            Self::Standard => f.write_str("-"),
            Self::Local(path) => {
                let plain = std::str::from_utf8(path).ok();
                let plain = plain.filter(|_| path != b"-" && split_scheme(path).is_none());
                match plain {
                    Some(text) => f.write_str(text),
                    None if path.starts_with(b"/") => {
                        write!(f, "file://{}", percent_encode(path, PATH))
                    }
                    None => write!(f, "./{}", String::from_utf8_lossy(path)),
                }
            }
        }
    }
}

impl fmt::Display for RemoteUrl {
    /// Percent-encoded, default port and password left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        if let Some(user) = &self.user {
            write!(f, "{}@", percent_encode(user.as_bytes(), USER))?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        in_url(&self.path).try_for_each(|part| f.write_str(part))
    }
}

/// A path as it is in URLs, behind host and port: parts that follow each other.
pub fn in_url(path: &FtpPath) -> impl Iterator<Item = &str> {
    let (front, path) = match path.as_bytes() {
        [b'/', b'~', rest @ ..] => ("/%7E", rest),
        path @ [b'~', ..] => ("/", path),
        path => ("", path),
    };
    iter::once(front).chain(percent_encode(path, PATH))
}

/// The URL of a directory without slashes at its end, to which `/` and a name can be added. That of
/// a root keeps those behind its scheme.
pub fn without_last_slashes(url: &str) -> &str {
    let trimmed = url.trim_end_matches('/');
    let kept = match trimmed.ends_with(':') {
        true => "//".len(),
        false => 0,
    };
    url.get(..trimmed.len() + kept).unwrap_or(trimmed)
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
