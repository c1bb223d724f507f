//! Which method does what.

use std::{sync::Arc, time::Duration};

use godwit_http::{
    dav::{OPEN_PARTS, PARTS},
    digest::Form,
    target::Target,
};
use hyper::{
    Method, Request, StatusCode,
    body::{Body as _, Incoming},
    header,
    http::request::Parts,
};
use tokio::time::timeout;

use super::{
    answer::{HttpAnswer, Rejected, check_readable, empty, set},
    change, get, issue, parts, propfind, put,
    received::next_bytes,
    session::{HttpConnection, HttpSession},
    tpc,
};

const METHODS: &str = "OPTIONS, GET, HEAD, PUT, DELETE, MKCOL, MOVE, COPY, PROPFIND";

/// Bytes of a refused request's body that are read, so that the client reads the answer before the
/// connection is reset.
const UNREAD_BYTES_MAX: usize = 256 * 1024;

/// And for how long.
const UNREAD_LIMIT: Duration = Duration::from_secs(2);

/// Answers a request.
pub(super) async fn answer(
    connection: &Arc<HttpConnection>,
    request: Request<Incoming>,
) -> HttpAnswer {
    let (parts, mut body) = request.into_parts();
    match carry_out(connection, &parts, &mut body).await {
        Ok(answer) => answer,
        Err(refused) => {
            skip_unread(&parts, &mut body).await;
            refused.into()
        }
    }
}

/// Reads some of a body whose request is refused.
pub(super) async fn skip_unread(parts: &Parts, body: &mut Incoming) {
    // A client that waits for 100 sends no body after an answer.
    if !parts.headers.contains_key(header::EXPECT) {
        drop(timeout(UNREAD_LIMIT, skip(body)).await);
    }
}

async fn skip(body: &mut Incoming) {
    let mut skipped = 0;
    while skipped < UNREAD_BYTES_MAX && !body.is_end_stream() {
        match next_bytes(body, UNREAD_LIMIT).await {
            Ok(Some(bytes)) => skipped += bytes.len(),
            _ => return,
        }
    }
}

async fn carry_out(
    connection: &Arc<HttpConnection>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    // What the server can do is no secret.
    if parts.method == Method::OPTIONS {
        return Ok(options());
    }
    let session = connection.log_in(&parts.headers).await?;
    let answer = match Target::of_path(parts.uri.path()) {
        Ok(target) => of_method(&session, &target, parts, body).await,
        Err(why) => Err(why.into()),
    };
    answer.map_err(|refused| session.explain(refused))
}

async fn of_method(
    session: &Arc<HttpSession>,
    target: &Target,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    let headers = &parts.headers;
    check_readable(headers)?;
    match parts.method.as_str() {
        "GET" => get::get(session, target, headers).await,
        "HEAD" => get::head(session, target, headers).await,
        "PROPFIND" => propfind::propfind(session, target, headers, body).await,
        "PUT" if headers.contains_key(header::CONTENT_RANGE) => {
            parts::put_part(session, target, headers, body).await
        }
        "PUT" => put::put(session, target, headers, body).await,
        "POST" if session.issues_tokens && issue::is_asked_for(headers) => {
            issue::issue(session, target, body).await
        }
        "DELETE" => change::delete(session, target, headers).await,
        "MKCOL" => change::make_collection(session, target, body).await,
        "MOVE" => change::move_to(session, target, headers).await,
        "COPY" if tpc::is_third_party(headers) => tpc::copy(session, target, headers).await,
        "COPY" => change::copy(session, target, headers).await,
        _ => {
            let text = "the method is not known here";
            let refused = Rejected::new(StatusCode::METHOD_NOT_ALLOWED, text);
            Err(refused.with(header::ALLOW, METHODS))
        }
    }
}

fn options() -> HttpAnswer {
    let mut answer = empty(StatusCode::OK);
    set(&mut answer, header::ALLOW, METHODS);
    let classes = format!("1, {PARTS}, {OPEN_PARTS}");
    set(&mut answer, header::HeaderName::from_static("dav"), classes);
    // RFC 3230 §4.3.1: in an answer it says which checksums there are.
    let digests = header::HeaderName::from_static("want-digest");
    set(&mut answer, digests, Form::Rfc3230.offer());
    answer
}
