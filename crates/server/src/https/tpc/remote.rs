//! Requests to the other server of a copy.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_http::{
    digest::{Checksum, Form},
    multistatus::{self, Hrefs},
};
use godwit_http_client::{
    Answer, Body, Bytes, Connection, Connector, HeaderMap, Method, Patience, Request, StatusCode,
    Url, header, redirect::Redirects,
};
use hyper::header::{HeaderName, HeaderValue};
use tracing::info;

use super::{failed::Failed, report::CopyProgress};
use crate::observe::class::Class;

/// Some servers read the whole file for a checksum.
const CHECKSUM_LIMIT: Duration = Duration::from_secs(1800);

/// All questions about what a server lists together, and bytes of the answer.
const LISTED_LIMIT: Duration = Duration::from_secs(120);
const LISTED_BYTES_MAX: usize = 64 << 10;

const XML: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");

const PROPERTIES: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/></D:prop></D:propfind>";

/// Bytes of a file, and when it was changed.
pub(super) type ListedVersion = (u64, SystemTime);

/// The other server, and the file there.
pub(super) struct Remote {
    pub(super) connector: Connector,
    pub(super) url: Url,
    /// Of the user, for this server alone.
    pub(super) headers: HeaderMap,
    pub(super) progress: Arc<CopyProgress>,
}

impl Remote {
    /// Sends a request, and again where the server redirects it. `kept`: a connection from before,
    /// and the one that the answer comes on. It is sent again when no answer comes.
    pub(super) async fn ask(
        &self,
        kept: &mut Option<Connection>,
        mut patience: Patience,
        make: impl Fn(&str) -> Request,
    ) -> Result<Answer, Failed> {
        let mut way = Redirects::new(self.url.clone());
        loop {
            let mut connection = self.connection(&way, kept.take()).await?;
            let request = self.signed(&way, make(way.url().target()));
            let answer = connection.send(request.answered_within(patience.limit()));
            let answer = answer.await;
            if let Err(error) = &answer
                && patience.asks_again(error)
            {
                info!(remote = ?self.url, why = %error, "copy asks again");
                continue;
            }
            let answer = answer?;
            if !Redirects::is_redirect(answer.status) {
                *kept = Some(connection);
                return Ok(answer);
            }
            way.follow(answer.header(header::LOCATION.as_str()))?;
        }
    }

    /// A connection to where a request goes now.
    pub(super) async fn connection(
        &self,
        way: &Redirects,
        kept: Option<Connection>,
    ) -> Result<Connection, Failed> {
        let origin = &way.url().origin;
        if let Some(mut kept) = kept
            && kept.origin() == origin
            && kept.is_reusable().await
        {
            return Ok(kept);
        }
        let connection = self.connector.connect(origin).await?;
        self.progress.connected(connection.peer());
        Ok(connection)
    }

    /// With the headers of the user, unless another server has redirected the request.
    pub(super) fn signed(&self, way: &Redirects, mut request: Request) -> Request {
        if way.carries_credentials() {
            request.headers.extend(self.headers.clone());
        }
        request
    }

    /// Size and time of the file as the other server lists it, which tell its version where the
    /// answers to GET name none. `None`: it does not list it, or not so.
    pub(super) async fn listed(&self) -> Result<Option<ListedVersion>, Failed> {
        let make = |target: &str| {
            let method = Method::from_bytes(b"PROPFIND").unwrap_or(Method::OPTIONS);
            Request::new(method, target)
                .with(
                    HeaderName::from_static("depth"),
                    HeaderValue::from_static("0"),
                )
                .with(header::CONTENT_TYPE, XML)
                .with_body(Body::Bytes(Bytes::from_static(PROPERTIES)))
        };
        let patience = Patience::new(Some(0), LISTED_LIMIT);
        let mut answer = self.ask(&mut None, patience, make).await?;
        if answer.status != StatusCode::MULTI_STATUS {
            return Err(refused(answer).await);
        }
        let body = answer.whole(LISTED_BYTES_MAX).await?;
        // Its path is of no interest: nothing else was asked for.
        let found = multistatus::read(&body, Hrefs::Literal).unwrap_or_default();
        Ok(match &found[..] {
            [file] if !file.is_collection => file.size.zip(file.modified),
            _ => None,
        })
    }

    /// What the other server says about the file of so many bytes, on a connection from before.
    pub(super) async fn tell(
        &self,
        mut kept: Option<Connection>,
        validator: Option<&Validator>,
        bytes: Option<u64>,
    ) -> Result<Told, Failed> {
        let patience = Patience::new(bytes, CHECKSUM_LIMIT);
        let answer = self.ask(&mut kept, patience, |target| {
            let request = Request::new(Method::HEAD, target)
                .with(
                    HeaderName::from_static("want-digest"),
                    HeaderValue::from_static("adler32;q=1, crc32c;q=0.9, md5;q=0.5"),
                )
                .with(
                    HeaderName::from_static("want-repr-digest"),
                    HeaderValue::from_static("adler=10, crc32c=9, md5=5"),
                )
                .with(header::ACCEPT_ENCODING, IDENTITY);
            Validator::add(validator, request)
        });
        let answer = answer.await?;
        match answer.status {
            // Length and checksums of another form say nothing about the file.
            status if status.is_success() && is_encoded(&answer) => Ok(Told {
                presence: Presence::There,
                ..Told::default()
            }),
            status if status.is_success() => Ok(Told {
                presence: Presence::There,
                bytes: answer.bytes(),
                checksums: checksums_of(&answer.headers)?,
            }),
            StatusCode::PRECONDITION_FAILED => Err(Failed::changed()),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Told {
                presence: Presence::Absent,
                ..Told::default()
            }),
            _ => Ok(Told::default()),
        }
    }
}

/// What the other server says about its file.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) presence: Presence,
    pub(super) bytes: Option<u64>,
    /// None where it knows none of ours.
    pub(super) checksums: Vec<Checksum>,
}

/// Whether the other server has the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Absent,
    /// It does not say: it forbids the question, for example.
    #[default]
    Unknown,
}

/// The file as it is, not compressed.
pub(super) const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// Whether an answer is about another form of the file than the other server has.
pub(super) fn is_encoded(answer: &Answer) -> bool {
    let encoding = answer.headers.get(header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The checksums in an answer. A malformed one must not count as one that was not there.
pub(super) fn checksums_of(headers: &HeaderMap) -> Result<Vec<Checksum>, Failed> {
    let mut found = Vec::new();
    for (form, name) in [(Form::Rfc3230, "digest"), (Form::Rfc9530, "repr-digest")] {
        for value in headers.get_all(name) {
            let read = value.to_str().ok().and_then(|value| form.read(value).ok());
            let malformed = || {
                let text = "a checksum of the remote side is malformed";
                Failed::new(Class::Protocol, text)
            };
            found.extend(read.ok_or_else(malformed)?);
        }
    }
    Ok(found)
}

/// How later requests say that they are about the file of the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Validator(HeaderName, HeaderValue);

impl Validator {
    /// `None`: the server gives none that holds.
    pub(super) fn of(answer: &Answer) -> Option<Self> {
        let tag = answer.headers.get(header::ETAG);
        let is_weak = |tag: &&HeaderValue| !tag.as_bytes().starts_with(b"\"");
        match tag.filter(|tag| !is_weak(tag)) {
            Some(tag) => Some(Self(header::IF_MATCH, tag.clone())),
            None => {
                let date = answer.headers.get(header::LAST_MODIFIED)?;
                Some(Self(header::IF_UNMODIFIED_SINCE, date.clone()))
            }
        }
    }

    /// Whether an answer is about another file than the first one. A server may ignore the
    /// condition of the request.
    pub(super) fn contradicts(&self, answer: &Answer) -> bool {
        let name = match self.0 == header::IF_MATCH {
            true => header::ETAG,
            false => header::LAST_MODIFIED,
        };
        answer.headers.get(name).is_some_and(|now| *now != self.1)
    }

    pub(super) fn add(validator: Option<&Self>, request: Request) -> Request {
        match validator {
            Some(Self(name, value)) => request.with(name.clone(), value.clone()),
            None => request,
        }
    }
}

/// Of an answer that is no success. FTS looks for the status in the text.
pub(super) async fn refused(mut answer: Answer) -> Failed {
    let status = answer.status.as_u16();
    let class = match status {
        404 | 410 => Class::NotFound,
        401 | 403 => Class::Permission,
        412 => return Failed::changed(),
        413 | 507 => Class::Space,
        _ => Class::Protocol,
    };
    let reason = answer.reason().await;
    let text = format!("remote side failed with status code {status}; error message: {reason:?}");
    Failed {
        // Another moment may be better: too many requests, overload, a gateway.
        is_transient: matches!(status, 429 | 500 | 502 | 503 | 504),
        ..Failed::new(class, text)
    }
}

/// Fails if a checksum has another value there than here.
pub(super) fn compare(expected: &[Checksum], known: &[Checksum]) -> Result<(), Failed> {
    for (algorithm, here) in known {
        let mut there = expected.iter().filter(|(of, _)| of == algorithm);
        if let Some((_, there)) = there.find(|(_, there)| there != here) {
            let text = format!("checksum mismatch: {algorithm} is {here} here and {there} there");
            return Err(Failed::new(Class::Checksum, text));
        }
    }
    Ok(())
}
