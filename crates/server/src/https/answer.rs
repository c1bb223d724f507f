//! Answers: statuses, headers that all have, and what failures of storage mean to a client.

use std::time::Duration;

use godwit_engine::storage::Metadata;
use godwit_http::{
    conditions::{Conditions, EntityTag, Validators, Verdict, date},
    target::BadTarget,
};
use godwit_proto::error::StorageFailure;
use hyper::{
    HeaderMap, Response, StatusCode,
    body::Bytes,
    header::{self, HeaderName, HeaderValue},
};
use rustix::io::Errno;

use super::body::AnswerBody;

/// When a client may come back that the server has had no place for.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

pub(super) type HttpAnswer = Response<AnswerBody>;

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) status: StatusCode,
    text: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Rejected {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            headers: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> Self {
        // What is no header is not worth a failure.
        self.headers
            .extend(value.try_into().ok().map(|value| (name, value)));
        self
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The client may come back after `pause`.
    pub(super) fn retry_after(self, pause: Duration) -> Self {
        self.with(header::RETRY_AFTER, pause.as_secs().max(1).to_string())
    }

    /// What a name needs to be made: its directory.
    pub(super) fn of_new_name(failure: StorageFailure) -> Self {
        let missing = [Errno::NOENT, Errno::NOTDIR].map(|errno| errno.raw_os_error());
        match missing.contains(&failure.errno) {
            true => Self::new(StatusCode::CONFLICT, "the parent directory does not exist"),
            false => failure.into(),
        }
    }
}

impl From<Rejected> for HttpAnswer {
    fn from(refused: Rejected) -> Self {
        let mut answer = text(refused.status, format!("{}\n", refused.text));
        for (name, value) in refused.headers {
            answer.headers_mut().append(name, value);
        }
        answer
    }
}

impl From<StorageFailure> for Rejected {
    fn from(failure: StorageFailure) -> Self {
        let refused = Self::new(status_of(failure.errno), failure.to_string());
        match refused.status {
            StatusCode::SERVICE_UNAVAILABLE => refused.retry_after(PAUSE),
            _ => refused,
        }
    }
}

impl From<BadTarget> for Rejected {
    fn from(why: BadTarget) -> Self {
        let status = match why {
            BadTarget::Long => StatusCode::URI_TOO_LONG,
            BadTarget::Elsewhere | BadTarget::Scheme => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, why.to_string())
    }
}

fn status_of(errno: i32) -> StatusCode {
    let known = [
        (Errno::NOENT, StatusCode::NOT_FOUND),
        (Errno::NOTDIR, StatusCode::NOT_FOUND),
        (Errno::ACCESS, StatusCode::FORBIDDEN),
        (Errno::PERM, StatusCode::FORBIDDEN),
        // A FIFO or a socket.
        (Errno::OPNOTSUPP, StatusCode::FORBIDDEN),
        (Errno::ROFS, StatusCode::FORBIDDEN),
        (Errno::LOOP, StatusCode::FORBIDDEN),
        (Errno::XDEV, StatusCode::FORBIDDEN),
        // The rights of a login do not reach so far, or have ended.
        (Errno::KEYREJECTED, StatusCode::FORBIDDEN),
        (Errno::KEYEXPIRED, StatusCode::UNAUTHORIZED),
        (Errno::EXIST, StatusCode::PRECONDITION_FAILED),
        (Errno::ISDIR, StatusCode::METHOD_NOT_ALLOWED),
        (Errno::NOTEMPTY, StatusCode::CONFLICT),
        (Errno::INVAL, StatusCode::CONFLICT),
        (Errno::AGAIN, StatusCode::SERVICE_UNAVAILABLE),
        (Errno::BUSY, StatusCode::CONFLICT),
        (Errno::TXTBSY, StatusCode::CONFLICT),
        (Errno::NAMETOOLONG, StatusCode::BAD_REQUEST),
        (Errno::FBIG, StatusCode::PAYLOAD_TOO_LARGE),
        (Errno::NOSPC, StatusCode::INSUFFICIENT_STORAGE),
        (Errno::DQUOT, StatusCode::INSUFFICIENT_STORAGE),
    ];
    let found = (known.iter()).find(|(known, _)| known.raw_os_error() == errno);
    found.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(_, status)| *status)
}

/// Without a body.
pub(super) fn empty(status: StatusCode) -> HttpAnswer {
    with_body(status, AnswerBody::Text(Bytes::new()))
}

pub(super) fn text(status: StatusCode, text: String) -> HttpAnswer {
    let mut answer = with_body(status, AnswerBody::Text(text.into()));
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    answer
}

/// Files are of users, and browsers must not run what is in them with the rights of others.
pub(super) fn with_body(status: StatusCode, body: AnswerBody) -> HttpAnswer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    set(&mut answer, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(
        &mut answer,
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
         sandbox allow-downloads",
    );
    answer
}

/// Values are ours: what is no header is left out.
pub(super) fn set(answer: &mut HttpAnswer, name: HeaderName, value: impl TryInto<HeaderValue>) {
    if let Ok(value) = value.try_into() {
        answer.headers_mut().insert(name, value);
    }
}

/// By which a client knows a file again. A file that is replaced has another inode.
pub(super) fn validators(metadata: &Metadata) -> Validators {
    let (device, inode) = metadata.unique;
    let since = metadata.modified.duration_since(std::time::UNIX_EPOCH);
    let modified = since.map_or(0, |since| since.as_nanos());
    let tag = format!("{device:x}-{inode:x}-{:x}-{modified:x}", metadata.size);
    Validators {
        tag: EntityTag::strong(tag).expect("hexadecimal digits are a tag"),
        modified: metadata.modified,
    }
}

pub(super) fn set_validators(answer: &mut HttpAnswer, validators: &Validators) {
    set(answer, header::ETAG, validators.tag.to_string());
    set(answer, header::LAST_MODIFIED, date(validators.modified));
}

/// Headers that change what a request does.
const DECISIVE: [&str; 9] = [
    "depth",
    "destination",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "overwrite",
    "range",
];

/// Refuses headers that would count as missing, and bodies in a form that nothing here decodes.
pub(super) fn check_readable(headers: &HeaderMap) -> Result<(), Rejected> {
    // hyper decodes `chunked` where it comes last, and leaves what comes before it in the body.
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_decoded = codings
        .next()
        .is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_decoded || codings.next().is_some() {
        let text = "the only Transfer-Encoding known here is chunked";
        return Err(Rejected::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let unreadable = |name: &&&str| {
        let mut values = headers.get_all(**name).iter();
        values.any(|value| value.to_str().is_err())
    };
    match DECISIVE.iter().find(unreadable) {
        None => Ok(()),
        Some(name) => Err(Rejected::new(
            StatusCode::BAD_REQUEST,
            format!("{name}: no text"),
        )),
    }
}

/// A header's text. `None`: it is missing, or no text.
pub(super) fn header_text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn conditions(headers: &HeaderMap) -> Conditions<'_> {
    Conditions {
        if_match: header_text(headers, header::IF_MATCH),
        if_none_match: header_text(headers, header::IF_NONE_MATCH),
        if_modified_since: header_text(headers, header::IF_MODIFIED_SINCE),
        if_unmodified_since: header_text(headers, header::IF_UNMODIFIED_SINCE),
    }
}

/// Refuses a change whose conditions fail. `current`: what is there.
pub(super) fn check_change(
    headers: &HeaderMap,
    current: Option<&Metadata>,
) -> Result<(), Rejected> {
    let current = current.map(validators);
    if conditions(headers).excludes_unreadably() {
        let text = "If-None-Match is neither * nor a list of tags";
        return Err(Rejected::new(StatusCode::BAD_REQUEST, text));
    }
    match conditions(headers).check(current.as_ref(), false) {
        Verdict::Proceed => Ok(()),
        Verdict::Failed | Verdict::NotModified => Err(Rejected::new(
            StatusCode::PRECONDITION_FAILED,
            "a condition of the request is not met",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_storage_have_statuses() {
        for (errno, status) in [
            (2, 404),
            (13, 403),
            (28, 507),
            (17, 412),
            (5, 500),
            (0, 500),
        ] {
            assert_eq!(status_of(errno).as_u16(), status, "{errno}");
        }
    }
}
