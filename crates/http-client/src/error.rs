//! What fails, and where.

use std::{fmt, io, net::SocketAddr, time::Duration};

use crate::url::Origin;

/// What a connection was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asking for the addresses of a name.
    Resolve,
    /// TCP.
    Connect,
    /// TLS.
    Handshake,
    /// Sending a request, and waiting for the head of its answer.
    Request,
    /// Reading the body of an answer.
    Body,
}

/// Why it has failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// A limit of time.
    #[error("no answer within {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// Name servers know none.
    #[error("the name has no address")]
    NoAddress,
    /// The policy allows no address; this is one of them.
    #[error("{} is not an address that may be connected to", .0.ip())]
    Refused(SocketAddr),
    /// The kernel, or a name server.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// OpenSSL.
    #[error("{0}")]
    Tls(String),
    /// The server's certificate, by OpenSSL or by the rules of grids, see
    /// [`godwit_gsi::https::Trust`].
    #[error("the server's certificate is not trusted: {0}")]
    Untrusted(String),
    /// The connector has no TLS.
    #[error("TLS is not set up here")]
    NoTls,
    /// The connection ended before an answer, or within one.
    #[error("the server has closed the connection")]
    Closed,
    /// What the server says is not HTTP, or too long.
    #[error("{0}")]
    Protocol(String),
    /// The body of the request could not be made.
    #[error("the body of the request has ended early")]
    OwnBody,
    /// The request has a target or a header that none can have.
    #[error("the request is malformed")]
    OwnRequest,
}

/// A failure of a connection.
#[derive(Debug)]
pub struct Error {
    /// What was going on.
    pub step: Step,
    /// With whom.
    pub origin: Origin,
    /// What went wrong.
    pub cause: Cause,
}

impl Error {
    /// The same request may succeed on another connection.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        // A name that has no address now has none in a moment.
        self.step != Step::Resolve
            && matches!(self.cause, Cause::Timeout(_) | Cause::Closed | Cause::Io(_))
    }

    /// The server has got the request, and has said nothing within the limit.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.step == Step::Request && matches!(self.cause, Cause::Timeout(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Resolve => "cannot resolve",
            Step::Connect => "cannot connect to",
            Step::Handshake => "no TLS with",
            Step::Request => "no answer of",
            Step::Body => "cannot read from",
        };
        write!(f, "{step} {}: {}", self.origin, self.cause)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<hyper::Error> for Cause {
    fn from(error: hyper::Error) -> Self {
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return Self::Closed;
        }
        if error.is_user() || error.is_body_write_aborted() {
            return Self::OwnBody;
        }
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            if let Some(io) = inner.downcast_ref::<io::Error>() {
                return match io.kind() {
                    io::ErrorKind::UnexpectedEof => Self::Closed,
                    kind => Self::Io(io::Error::new(kind, io.to_string())),
                };
            }
            source = inner.source();
        }
        Self::Protocol(error.to_string())
    }
}
