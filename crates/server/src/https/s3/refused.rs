//! Errors, with the codes of S3.

use godwit_http::{dav::BadXml, s3::written::Answer};
use godwit_proto::error::StorageFailure;
use hyper::{StatusCode, header};
use rustix::io::Errno;

use super::{
    super::answer::{HttpAnswer, PAUSE, Rejected, empty, set},
    xml,
};
use crate::observe::class::Class;

pub(super) const NO_UPLOAD: &str = "NoSuchUpload";

/// Why a request is not carried out.
#[derive(Clone, Debug)]
pub(super) struct S3Error {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) text: String,
    /// Of the object, where a range begins behind it.
    size: Option<u64>,
}

impl S3Error {
    pub(super) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            code,
            text: text.into(),
            size: None,
        }
    }

    pub(super) fn uri(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidURI", text)
    }

    pub(super) fn argument(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidArgument", text)
    }

    pub(super) fn not_implemented(what: &str) -> Self {
        let text = format!("{what} is not known here");
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text)
    }

    pub(super) fn denied(text: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "AccessDenied", text)
    }

    pub(super) fn no_key() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NoSuchKey",
            "there is no such object",
        )
    }

    pub(super) fn no_bucket() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NoSuchBucket",
            "there is no such bucket",
        )
    }

    pub(super) fn no_upload() -> Self {
        Self::new(StatusCode::NOT_FOUND, NO_UPLOAD, "there is no such upload")
    }

    pub(super) fn precondition() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            "a condition of the request is not met",
        )
    }

    pub(super) fn range(size: u64) -> Self {
        Self {
            size: Some(size),
            ..Self::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "InvalidRange",
                "the range does not begin inside the object",
            )
        }
    }

    /// What the audit log and the metrics say.
    pub(super) fn class(&self) -> Class {
        match self.code {
            "NoSuchKey" | "NoSuchBucket" | NO_UPLOAD => Class::NotFound,
            "AccessDenied" => Class::Permission,
            "BadDigest" | "XAmzContentSHA256Mismatch" => Class::Checksum,
            "IncompleteBody" | "RequestTimeout" => Class::ConnectionLost,
            "InsufficientStorage" => Class::Space,
            "PreconditionFailed" => Class::Exists,
            "SignatureDoesNotMatch" => Class::Protocol,
            "SlowDown" => Class::Limit,
            _ => Class::Storage,
        }
    }

    pub(super) fn answer(self, resource: &str, is_head: bool) -> HttpAnswer {
        let mut answer = match is_head || self.status == StatusCode::NOT_MODIFIED {
            true => empty(self.status),
            false => xml(self.status, self.body(resource)),
        };
        if let Some(size) = self.size {
            set(
                &mut answer,
                header::CONTENT_RANGE,
                format!("bytes */{size}"),
            );
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            set(&mut answer, header::RETRY_AFTER, PAUSE.as_secs());
        }
        answer
    }

    pub(super) fn body(&self, resource: &str) -> String {
        Answer::refusal(self.code, &self.text, resource)
    }
}

impl From<StorageFailure> for S3Error {
    fn from(failure: StorageFailure) -> Self {
        let known = [
            (Errno::NOENT, 404, "NoSuchKey"),
            (Errno::NOTDIR, 404, "NoSuchKey"),
            (Errno::ACCESS, 403, "AccessDenied"),
            (Errno::PERM, 403, "AccessDenied"),
            (Errno::OPNOTSUPP, 403, "AccessDenied"),
            (Errno::ROFS, 403, "AccessDenied"),
            (Errno::LOOP, 403, "AccessDenied"),
            (Errno::XDEV, 403, "AccessDenied"),
            (Errno::KEYREJECTED, 403, "AccessDenied"),
            (Errno::KEYEXPIRED, 403, "AccessDenied"),
            (Errno::EXIST, 412, "PreconditionFailed"),
            (Errno::ISDIR, 409, "InvalidRequest"),
            (Errno::AGAIN, 503, "SlowDown"),
            (Errno::BUSY, 409, "OperationAborted"),
            (Errno::TXTBSY, 409, "OperationAborted"),
            (Errno::NAMETOOLONG, 400, "KeyTooLongError"),
            (Errno::FBIG, 400, "EntityTooLarge"),
            (Errno::NOSPC, 507, "InsufficientStorage"),
            (Errno::DQUOT, 507, "InsufficientStorage"),
        ];
        let found = (known.iter()).find(|(errno, ..)| errno.raw_os_error() == failure.errno);
        let (status, code) =
            found.map_or((500, "InternalError"), |(_, status, code)| (*status, *code));
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, code, failure.to_string())
    }
}

impl From<Rejected> for S3Error {
    fn from(refused: Rejected) -> Self {
        let (status, code) = match refused.status.as_u16() {
            400 => (refused.status, "InvalidRequest"),
            401 | 403 => (StatusCode::FORBIDDEN, "AccessDenied"),
            408 => (StatusCode::BAD_REQUEST, "RequestTimeout"),
            412 => (refused.status, "PreconditionFailed"),
            413 => (StatusCode::BAD_REQUEST, "MaxMessageLengthExceeded"),
            429 | 503 => (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            501 => (refused.status, "NotImplemented"),
            _ => (refused.status, "InternalError"),
        };
        Self::new(status, code, refused.text())
    }
}

impl From<BadXml> for S3Error {
    fn from(why: BadXml) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "MalformedXML", why.to_string())
    }
}
