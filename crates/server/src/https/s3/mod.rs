//! S3: the directories at the root are buckets, and paths below them are keys.
//!
//! ```text
//!   answer ──► login ──► object, copy, listing, uploads ──► place, payload, notes, refused
//! ```
//! - `login`: whose signature a request has
//! - `object`: GET, HEAD, PUT and DELETE of objects; `copy`: CopyObject; `removal`: DeleteObjects
//! - `bucket`: buckets; `listing`: the keys of one; `walk`: in which order
//! - `uploads`: objects in parts; `completion`: their end; `completed`: the answers to it
//! - `place`: where an object is; `payload`: bodies and their checksums; `notes`: metadata of
//!   objects; `refused`: errors
//!
//! What a request asks for that is not here is answered with `NotImplemented`: a header or a query
//! that would be overlooked could mean another object, or less protection.

mod bucket;
mod completed;
mod completion;
mod copy;
mod listing;
mod login;
mod notes;
mod object;
mod payload;
mod place;
mod refused;
mod removal;
mod uploads;
mod walk;

use std::sync::Arc;

use godwit_http::s3::requests::{ObjectTarget, Query};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::Incoming,
    header::{self, HeaderName},
    http::request::Parts,
};

use self::{login::SignedLogin, payload::Payload, place::ObjectPlace, refused::S3Error};
use super::{
    answer::{HttpAnswer, check_readable, set, text},
    requests::skip_unread,
    session::{HttpConnection, HttpSession},
};

/// Type of answers.
const XML: &str = "application/xml";

/// Headers that are here, and others whose meaning nothing is lost without: what they ask for is
/// what this server does in any case, or no client relies on it.
const KNOWN: [&str; 22] = [
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-mode",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-type",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-metadata-directive",
    "x-amz-mp-object-size",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
    "x-amz-user-agent",
    "x-amz-optional-object-attributes",
];

/// Headers with the one value that this server can have.
const FIXED: [(&str, &[&str]); 3] = [
    ("x-amz-acl", &["", "private"]),
    ("x-amz-storage-class", &["", "STANDARD"]),
    ("content-encoding", &["", "aws-chunked", "identity"]),
];

/// Answers a request.
pub(super) async fn answer(
    connection: &Arc<HttpConnection>,
    request: Request<Incoming>,
) -> HttpAnswer {
    let (parts, mut body) = request.into_parts();
    let answered = carry_out(connection, &parts, &mut body).await;
    let mut answer = match answered {
        Ok(answer) => answer,
        Err(refused) => {
            skip_unread(&parts, &mut body).await;
            refused.answer(parts.uri.path(), parts.method == Method::HEAD)
        }
    };
    let id = HeaderName::from_static("x-amz-request-id");
    set(&mut answer, id, connection.permit.number());
    answer
}

async fn carry_out(
    connection: &Arc<HttpConnection>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<HttpAnswer, S3Error> {
    let target = ObjectTarget::of_path(parts.uri.path());
    let target = target.map_err(|why| S3Error::uri(&why.to_string()))?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let query = query.ok_or_else(|| S3Error::uri("the query is not in UTF-8"))?;
    let login = connection.log_in_by_key(parts, &target, &query).await?;
    check_readable(&parts.headers)?;
    check_known(&parts.headers)?;
    let SignedLogin {
        session,
        payload,
        verified,
    } = login;
    let body = Payload::new(body, &parts.headers, &payload, verified, session.data_limit)?;
    let asked = S3Request {
        session,
        method: &parts.method,
        headers: &parts.headers,
        query: &query,
    };
    match (target.bucket.is_empty(), target.key.is_empty()) {
        (true, _) => asked.of_service().await,
        (false, true) => asked.of_bucket(&target.bucket, body).await,
        (false, false) => asked.of_key(ObjectPlace::new(&target)?, body).await,
    }
}

/// A request whose sender is known.
struct S3Request<'a> {
    session: Arc<HttpSession>,
    method: &'a Method,
    headers: &'a HeaderMap,
    query: &'a Query,
}

impl S3Request<'_> {
    async fn of_service(&self) -> Result<HttpAnswer, S3Error> {
        match *self.method {
            Method::GET if self.query.has_only(&[]) => bucket::list(&self.session).await,
            _ => Err(S3Error::not_implemented("the request")),
        }
    }

    async fn of_bucket(&self, name: &str, body: Payload<'_>) -> Result<HttpAnswer, S3Error> {
        let session = &self.session;
        let has_only = |names: &[&str]| self.query.has_only(names);
        let bucket = || bucket::find(session, name);
        match *self.method {
            Method::HEAD if has_only(&[]) => {
                bucket().await?;
                Ok(super::answer::empty(StatusCode::OK))
            }
            Method::GET if has_only(&["location"]) && self.query.get("location").is_some() => {
                bucket().await?;
                Ok(bucket::location())
            }
            Method::GET if self.query.get("uploads").is_some() => {
                uploads::list(session, &bucket().await?, self.query).await
            }
            Method::GET => {
                let asked = listing::ListRequest::new(self.query)?;
                listing::list(session, name, bucket().await?, asked).await
            }
            Method::POST if has_only(&["delete"]) && self.query.get("delete").is_some() => {
                bucket().await?;
                removal::remove_all(session, name, body).await
            }
            Method::PUT if has_only(&[]) => match bucket().await {
                Ok(_) => Err(S3Error::new(
                    StatusCode::CONFLICT,
                    "BucketAlreadyOwnedByYou",
                    "the bucket exists",
                )),
                Err(_) => Err(S3Error::not_implemented("to make a bucket")),
            },
            _ => Err(S3Error::not_implemented("the request")),
        }
    }

    async fn of_key(&self, place: ObjectPlace, body: Payload<'_>) -> Result<HttpAnswer, S3Error> {
        let (session, headers) = (&self.session, self.headers);
        let has_only = |names: &[&str]| self.query.has_only(names);
        let upload = self.query.get("uploadId");
        let is_copy = headers.contains_key("x-amz-copy-source");
        match (self.method.as_str(), upload) {
            ("GET", None) if has_only(&[]) => object::get(session, &place, headers).await,
            ("HEAD", None) if has_only(&[]) => object::head(session, &place, headers).await,
            ("PUT", None) if has_only(&[]) && is_copy => {
                copy::copy(session, &place, headers, body).await
            }
            ("PUT", None) if has_only(&[]) => object::put(session, &place, headers, body).await,
            ("DELETE", None) if has_only(&[]) => object::delete(session, &place, headers).await,
            ("POST", None) if has_only(&["uploads"]) && self.query.get("uploads").is_some() => {
                uploads::create(session, &place, headers).await
            }
            ("PUT", Some(id)) if has_only(&["partNumber", "uploadId"]) && !is_copy => {
                let number = self.query.get("partNumber");
                uploads::put_part(session, &place, id, number, body).await
            }
            ("GET", Some(id)) if has_only(&["max-parts", "part-number-marker", "uploadId"]) => {
                uploads::list_parts(session, &place, id, self.query).await
            }
            ("POST", Some(id)) if has_only(&["uploadId"]) => {
                completion::complete(session, place, id, headers, body).await
            }
            ("DELETE", Some(id)) if has_only(&["uploadId"]) => {
                uploads::abort(session, &place, id).await
            }
            _ => Err(S3Error::not_implemented("the request")),
        }
    }
}

/// Refuses what would be overlooked.
fn check_known(headers: &HeaderMap) -> Result<(), S3Error> {
    for (name, value) in headers {
        let name = name.as_str();
        let fixed = FIXED.iter().find(|(fixed, _)| *fixed == name);
        let is_known = match fixed {
            Some((_, values)) => value.to_str().is_ok_and(|value| values.contains(&value)),
            None if name.starts_with("x-amz-meta-") => true,
            None => !name.starts_with("x-amz-") || KNOWN.contains(&name),
        };
        if !is_known {
            return Err(S3Error::not_implemented(&format!("the header {name}")));
        }
    }
    Ok(())
}

/// An answer in XML.
fn xml(status: StatusCode, body: String) -> HttpAnswer {
    let mut answer = text(status, body);
    set(&mut answer, header::CONTENT_TYPE, XML);
    answer
}
