//! URLs of endpoints: `gsiftp://[user@]host[:2811]/path`, `ftp://`, `sshftp://`, `file:///path`, a bare local path, `-`.

use crate::path::FtpPath;
use std::fmt;

/// Where data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A server.
    Remote(RemoteUrl),
    /// A path of this machine, octets.
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
    /// `sshftp://`, default port 22.
    Sshftp,
}

/// A path on a server.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// Scheme.
    pub scheme: Scheme,
    /// `user@`, decoded.
    pub user: Option<String>,
    /// `user:password@`, decoded; never shown.
    pub password: Option<crate::command::Password>,
    /// Host name or address; IPv6 without its brackets.
    pub host: String,
    /// Port, the scheme's default filled in.
    pub port: u16,
    /// Decoded path, always absolute (`/~/x` is home). `%00`, `%0D`, `%0A` are refused.
    pub path: FtpPath,
}

/// Why a text is no location. Messages name the offending part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A scheme that is not ours.
    #[error("unknown scheme {0:?}: use gsiftp, ftp, sshftp or file")]
    Scheme(String),
    /// No or bad host.
    #[error("no host in {0:?}")]
    Host(String),
    /// A port that is no number in 1..=65535.
    #[error("bad port {0:?}: wanted 1..65535")]
    Port(String),
    /// Percent-encoding is broken or a control octet was encoded.
    #[error("bad escape in {0:?}")]
    Escape(String),
    /// `file://` with a host other than `localhost`.
    #[error("file URL names host {0:?}: only local files can be opened")]
    FileHost(String),
    /// A bad path.
    #[error("{0}")]
    Path(#[from] crate::path::BadPath),
}

impl Location {
    /// Reads a command-line argument. Anything without `://` is a local path; `-` alone is standard input or output.
    pub fn parse(text: &[u8]) -> Result<Self, UrlError> {
        let _ = text;
        todo!()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl fmt::Display for RemoteUrl {
    /// Percent-encoded, default port and password left out.
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
