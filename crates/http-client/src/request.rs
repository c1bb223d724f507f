//! Requests.

use std::{fmt, time::Duration};

use hyper::{
    HeaderMap, Method,
    header::{HeaderName, HeaderValue},
};

use crate::body::Body;

/// A request of a server that is known otherwise.
pub struct Request {
    /// What to do.
    pub method: Method,
    /// Path and query, as they are on the wire.
    pub target: String,
    /// `Host` and `Content-Length` are added.
    pub headers: HeaderMap,
    /// What is sent with it.
    pub body: Body,
    pub(crate) expects_continue: bool,
    pub(crate) answer_limit: Option<Duration>,
}

impl Request {
    /// Without headers and a body.
    #[must_use]
    pub fn new(method: Method, target: impl Into<String>) -> Self {
        Self {
            method,
            target: target.into(),
            headers: HeaderMap::new(),
            body: Body::Empty,
            expects_continue: false,
            answer_limit: None,
        }
    }

    /// One header more.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// With this body.
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// The body is sent when the server asks for it, or does not answer for a while. A server that
    /// answers something else gets no body, and the connection cannot be used again.
    #[must_use]
    pub fn expecting_continue(mut self) -> Self {
        self.expects_continue = true;
        self
    }

    /// The server may think so long after the request's body, instead of
    /// [`Limits::answer`](crate::Limits::answer).
    #[must_use]
    pub fn answered_within(mut self, limit: Duration) -> Self {
        self.answer_limit = Some(limit);
        self
    }
}

/// Values of this header let others do what the user may.
#[must_use]
pub fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str();
    let known = [
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "copy-header",
        "x-amz-security-token",
        "x-amz-sso_bearer_token",
    ];
    known.contains(&name) || name.starts_with("transferheader")
}

/// Without secrets, and without the query, which may be one.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.headers.iter().map(|(name, value)| {
            let value = match is_secret(name) {
                true => HeaderValue::from_static("..."),
                false => value.clone(),
            };
            (name, value)
        });
        let path = self.target.split('?').next().unwrap_or_default();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &path)
            .field("headers", &shown.collect::<Vec<_>>())
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secrets() {
        let secret = || HeaderValue::from_static("s3cret");
        let mut request = Request::new(Method::GET, "/f?authz=s3cret");
        for name in [
            "authorization",
            "transferheaderauthorization",
            "cookie",
            "copy-header",
            "x-amz-security-token",
            "x-amz-sso_bearer_token",
        ] {
            request = request.with(HeaderName::from_static(name), secret());
        }
        let shown = format!("{request:?}");
        assert!(!shown.contains("s3cret") && shown.contains("/f"), "{shown}");
    }
}
