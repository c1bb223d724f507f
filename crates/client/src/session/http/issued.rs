//! A token of a server for one of its files, which another server is to fetch or store: for users
//! who are known there by a certificate, which they cannot lend. dCache, XRootD and `godwitd` issue
//! them to a POST of `application/macaroon-request`.

use godwit_http_client::{Body, Bytes, HeaderValue, Method, Request, StatusCode, header};
use godwit_proto::FtpPath;
use serde::Deserialize;

use super::{
    replies::{Failed, refusal},
    server::HttpServer,
};
use crate::{
    endpoint::capabilities::Lack,
    session::{Session, control::Control},
};

/// What another server may do with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lent {
    Reading,
    /// Also over what is there: a copy may be tried again.
    Writing,
}

impl Lent {
    /// The words of dCache.
    fn request(self) -> &'static str {
        match self {
            Self::Reading => {
                r#"{"caveats":["activity:DOWNLOAD,READ_METADATA,LIST"],"validity":"PT12H"}"#
            }
            Self::Writing => {
                r#"{"caveats":["activity:UPLOAD,DELETE,MANAGE,READ_METADATA,LIST"],"validity":"PT12H"}"#
            }
        }
    }
}

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 32 << 10;

#[derive(Deserialize)]
struct Issued {
    macaroon: String,
}

impl Session {
    /// What shows another server's request for `path` to be the user's: the user's own token, else
    /// one that this server issues. `None`: there is none, and the file may be for everybody.
    pub(super) async fn lend(&mut self, path: &FtpPath, lent: Lent) -> Option<HeaderValue> {
        let Control::Http(control) = &mut self.commands.control else {
            return None;
        };
        let server = control.server();
        if let Some(own) = server.bearer() {
            return Some(own.clone());
        }
        let is_asked = server.shows_certificate && !server.has_login();
        if !is_asked
            || self
                .commands
                .endpoint
                .capabilities
                .lacks(Lack::IssuedTokens)
        {
            return None;
        }
        let target = HttpServer::target(path, false);
        let request = |target: &str| {
            let kind = HeaderValue::from_static("application/macaroon-request");
            Request::new(Method::POST, target)
                .with(header::CONTENT_TYPE, kind)
                .with_body(Body::Bytes(Bytes::from_static(lent.request().as_bytes())))
        };
        let asked = async {
            let mut exchange = control.wire.send(&target, request).await?;
            let status = exchange.answer.status;
            let body = exchange.body(ANSWER_BYTES_MAX).await?;
            if body.is_some() {
                control.wire.done(exchange).await;
            }
            Ok::<_, super::error::HttpError>((status, body.unwrap_or_default()))
        };
        // What was lost on its way may come the next time.
        let (status, body) = asked.await.ok()?;
        if let Some(token) = token_in(status, &body) {
            return Some(token);
        }
        // Others know what is asked for, and give this user none here, or none now.
        if !matches!(status.as_u16(), 200 | 400 | 405 | 415 | 501) {
            return None;
        }
        let reply = refusal(status, "", Failed::Status);
        self.lesson(
            Lack::IssuedTokens,
            &reply,
            "tokens for other servers",
            "they fetch and store as who they are",
        );
        None
    }
}

fn token_in(status: StatusCode, body: &[u8]) -> Option<HeaderValue> {
    if !status.is_success() {
        return None;
    }
    let issued: Issued = serde_json::from_slice(body).ok()?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", issued.macaroon)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_what_servers_answer() {
        let token = |status, body: &str| token_in(status, body.as_bytes());
        let long = r#"{"macaroon":"MDA","uri":{"target":"https://h/f"}}"#;
        assert_eq!(token(StatusCode::OK, long).unwrap(), "Bearer MDA");
        for body in [
            "",
            "{}",
            "<html/>",
            "{\"macaroon\":7}",
            "{\"macaroon\":\"a\\nb\"}",
        ] {
            assert!(token(StatusCode::OK, body).is_none(), "{body}");
        }
        assert!(token(StatusCode::NOT_FOUND, long).is_none());
    }

    #[test]
    fn requests_are_json() {
        for lent in [Lent::Reading, Lent::Writing] {
            let request: serde_json::Value = serde_json::from_str(lent.request()).unwrap();
            assert_eq!(request["validity"], "PT12H");
        }
    }
}
