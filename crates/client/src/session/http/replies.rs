//! Answers of HTTP as replies that a server of FTP would give in the same state.

use godwit_http_client::{StatusCode, printable};
use godwit_proto::{
    Reply,
    error::{FailureKind, failure_kind},
    reply::ReplyCode,
};

/// What a request has failed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// As the status says.
    Status,
    /// A collection was to be made where something is.
    Making,
}

/// The reply for an answer that is no success. `text` is what the server says about it.
pub(super) fn refusal(status: StatusCode, text: &str, failed: Failed) -> Reply {
    let number = status.as_u16();
    let (code, kind, phrase) = match number {
        401 => (530, FailureKind::PermissionDenied, "permission denied"),
        403 => (550, FailureKind::PermissionDenied, "permission denied"),
        404 | 410 => (550, FailureKind::NotFound, "no such file or directory"),
        405 if failed == Failed::Making => (550, FailureKind::Exists, "file exists"),
        405 | 501 => (502, FailureKind::NotSupported, "operation not supported"),
        409 => (550, FailureKind::NotFound, "no such file or directory"),
        412 => (550, FailureKind::Exists, "file exists"),
        507 => (452, FailureKind::NoSpace, "no space left"),
        408 | 423 | 425 | 429 | 500 | 502..=504 => (450, FailureKind::Transient, ""),
        _ => (501, FailureKind::Other, ""),
    };
    let reason = status.canonical_reason().unwrap_or_default();
    let said = format!("HTTP {number} {reason}");
    let texts = [
        (!text.is_empty())
            .then(|| joined(&format!("{said}: {}", printable(text.as_bytes())), phrase)),
        Some(joined(&said, phrase)),
    ];
    // What the server says may hold words that mean something else to the readers of replies.
    let mut replies = texts
        .into_iter()
        .flatten()
        .map(|text| reply(code, text.as_str()));
    let found = replies.find(|reply| failure_kind(reply) == Some(kind));
    found.unwrap_or_else(|| reply(code, phrase))
}

fn joined(said: &str, phrase: &str) -> String {
    match phrase {
        "" => said.to_owned(),
        phrase => format!("{said}: {phrase}"),
    }
}

/// A reply of one line.
pub(super) fn reply(code: u16, text: &str) -> Reply {
    Reply::new(ReplyCode::of(code), text)
}

/// A command that has no counterpart in HTTP.
pub(super) fn not_offered(verb: &str) -> Reply {
    reply(502, &format!("{verb}: HTTP has no such operation"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_kind_of_failure_that_they_mean_whatever_the_server_says() {
        for (status, kind) in [
            (401, FailureKind::PermissionDenied),
            (403, FailureKind::PermissionDenied),
            (404, FailureKind::NotFound),
            (405, FailureKind::NotSupported),
            (409, FailureKind::NotFound),
            (412, FailureKind::Exists),
            (429, FailureKind::Transient),
            (400, FailureKind::Other),
            (500, FailureKind::Transient),
            (503, FailureKind::Transient),
            (507, FailureKind::NoSpace),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            for text in [
                "",
                "not found",
                "GridFTP-Errno: 28",
                "permission denied\r\n",
            ] {
                let reply = refusal(status, text, Failed::Status);
                assert_eq!(
                    failure_kind(&reply),
                    Some(kind),
                    "{status} {text:?} {reply}"
                );
            }
        }
        let taken = refusal(StatusCode::METHOD_NOT_ALLOWED, "", Failed::Making);
        assert_eq!(failure_kind(&taken), Some(FailureKind::Exists));
    }

    #[test]
    fn the_text_of_the_server_is_shown_where_it_misleads_no_one() {
        let reply = refusal(StatusCode::NOT_FOUND, "gone for good", Failed::Status);
        assert!(reply.text().contains("gone for good"), "{reply}");
    }
}
