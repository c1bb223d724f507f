//! Commands of a session as requests to a bucket.

use std::time::Duration;

use godwit_http::{
    conditions::parse_date,
    multistatus::Resource,
    s3::answers::{Made, Object, Page},
};
use godwit_http_client::{
    Body, HeaderName, HeaderValue, Method, Request, StatusCode, header, printable,
};
use godwit_proto::{
    ChecksumAlgorithm, Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
};

use super::{
    signing::{Bucket, ENCRYPTION_HEADER, ObjectOptions, meant, unencrypted},
    told_sums::{self, ObjectSums},
};
use crate::{
    endpoint::uploads::PendingObject,
    local::{attributes::FileAttributes, files},
    session::http::{
        commands::{HttpControl, Looked, described, senseless, timestamp},
        error::HttpError,
        replies::{Failed, not_offered, refusal, reply},
    },
};

/// Bytes of an answer: a page has a thousand keys of 1024 bytes, three for each where they are
/// encoded.
pub(super) const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Pages without the keys that are looked for, until the service counts as one that has no end:
/// some skip what was removed, a page at a time.
const SHORT_PAGES_MAX: usize = 1000;

/// A file of so many bytes is copied within a service by one request.
const COPY_BYTES_MAX: u64 = 5 << 30;

impl HttpControl {
    pub(super) fn bucket(&self) -> Result<&Bucket, HttpError> {
        let bucket = self.wire.server.bucket.as_ref();
        bucket.ok_or_else(|| HttpError::Senseless("the session is with no bucket".to_owned()))
    }

    pub(in crate::session::http) async fn carry_out_in_bucket(
        &mut self,
        command: &Command,
    ) -> Result<Reply, HttpError> {
        match command {
            Command::Mlst(Some(path)) => Ok(match self.look_in_bucket(path).await? {
                Ok(found) => described(&found, path),
                Err(refusal) => refusal,
            }),
            Command::Size(path) => Ok(match self.look_in_bucket(path).await? {
                Ok(Resource {
                    size: Some(size), ..
                }) => reply(213, &size.to_string()),
                Ok(_) => reply(550, "is a directory"),
                Err(refusal) => refusal,
            }),
            Command::Mdtm(path) => Ok(match self.look_in_bucket(path).await? {
                Ok(found) => match found.modified.and_then(timestamp) {
                    Some(time) => reply(213, &time.to_string()),
                    None => reply(550, "has no time"),
                },
                Err(refusal) => refusal,
            }),
            Command::Cwd(path) => Ok(match self.look_in_bucket(path).await? {
                Ok(found) if found.is_collection => reply(250, "directory"),
                Ok(_) => reply(550, "not a directory"),
                Err(refusal) => refusal,
            }),
            Command::Pwd => Ok(reply(257, "\"/\"")),
            Command::Noop => Ok(reply(200, "OK")),
            Command::Dele(path) => self.remove_object(path).await,
            Command::Rmd(path) => self.remove_prefix(path).await,
            // A directory is there with the first key in it.
            Command::Mkd(_) => Ok(reply(257, "not needed")),
            Command::Rnfr(path) => {
                self.from = Some(path.clone());
                self.rename_from_in_bucket(path).await
            }
            Command::Rnto(path) => match self.from.take() {
                Some(from) => self.rename_in_bucket(&from, path).await,
                None => Ok(reply(503, "RNFR first")),
            },
            Command::Cksm {
                algorithm,
                offset: 0,
                length: None,
                path,
            } => self.checksum_in_bucket(*algorithm, path).await,
            Command::Allo(_) => Ok(reply(202, "not needed")),
            other => Ok(not_offered(other.verb())),
        }
    }

    /// What is at a path: an object; what other keys begin with; or what we send there.
    pub(super) async fn look_in_bucket(&mut self, path: &FtpPath) -> Result<Looked, HttpError> {
        match self.bucket()?.endpoint.uploads.of(path) {
            Some(PendingObject::Parts(_)) => return self.look_at_upload(path).await,
            Some(PendingObject::Stored(stored)) => {
                return Ok(Ok(file(path, Some(stored.size), None)));
            }
            None => {}
        }
        if path.as_bytes() == b"/" {
            return Ok(Ok(directory(path)));
        }
        if !path.as_bytes().ends_with(b"/") {
            let exchange = self.head(path, &[]).await?;
            if exchange.answer.status.is_success() {
                let (size, tag) = (exchange.answer.bytes(), header::LAST_MODIFIED);
                let modified = exchange.header(tag).and_then(parse_date);
                self.wire.done(exchange).await;
                return Ok(Ok(file(path, size, modified)));
            }
            let is_missing = exchange.answer.status == StatusCode::NOT_FOUND;
            let refused = self.refused(exchange, Failed::Status).await;
            if !is_missing {
                return Ok(Err(refused));
            }
        }
        Ok(match self.first_below(path, 1).await? {
            Ok(objects) if objects.is_empty() => {
                Err(refusal(StatusCode::NOT_FOUND, "", Failed::Status))
            }
            Ok(_) => Ok(directory(path)),
            Err(refused) => Err(refused),
        })
    }

    /// The first `most` objects below a directory, or all where there are fewer. A page may be
    /// short, or empty, while others follow it.
    async fn first_below(
        &mut self,
        directory: &FtpPath,
        most: usize,
    ) -> Result<Result<Vec<Object>, Reply>, HttpError> {
        let prefix = prefix_of(directory);
        let Ok(prefix) = std::str::from_utf8(&prefix) else {
            return Ok(Err(refusal(StatusCode::NOT_FOUND, "", Failed::Status)));
        };
        let keys_max = most.to_string();
        let (mut objects, mut token) = (Vec::new(), None::<String>);
        for _ in 0..SHORT_PAGES_MAX {
            let mut query = vec![
                ("list-type", "2"),
                ("encoding-type", "url"),
                ("max-keys", keys_max.as_str()),
                ("prefix", prefix),
            ];
            query.extend(token.as_deref().map(|token| ("continuation-token", token)));
            let target = self.bucket()?.itself(&query);
            let page = match self.page(&target).await? {
                Ok(page) => page,
                Err(refused) => return Ok(Err(refused)),
            };
            objects.extend(page.objects);
            let next = page.next.filter(|_| objects.len() < most);
            if next.is_none() {
                return Ok(Ok(objects));
            }
            if next == token {
                return Err(senseless("GET", "it is the same page again"));
            }
            token = next;
        }
        Err(senseless("GET", "empty pages have no end"))
    }

    pub(super) async fn page(&mut self, target: &str) -> Result<Result<Page, Reply>, HttpError> {
        let listed = self.ask_bucket(Method::GET, target, &[], Body::default);
        Ok(match listed.await? {
            Ok(body) => Ok(Page::read(&body).map_err(|bad| senseless("GET", &bad.to_string()))?),
            Err(refused) => Err(refused),
        })
    }

    /// The body of the answer to a request, or why it was refused.
    pub(super) async fn ask_bucket(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&'static str, String)],
        body: impl Fn() -> Body,
    ) -> Result<Result<Vec<u8>, Reply>, HttpError> {
        let answered = self
            .ask_bucket_to_make(method, target, headers, body)
            .await?;
        Ok(answered.map(|(body, _)| body))
    }

    /// The same of a request that makes an object, and what the service says of its encryption.
    pub(super) async fn ask_bucket_to_make(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&'static str, String)],
        body: impl Fn() -> Body,
    ) -> Result<Result<(Vec<u8>, Option<String>), Reply>, HttpError> {
        let limit = self.work_limit();
        self.ask_bucket_within(limit, method, target, headers, body)
            .await
    }

    /// The same, answered within `limit`.
    pub(super) async fn ask_bucket_within(
        &mut self,
        limit: Duration,
        method: Method,
        target: &str,
        headers: &[(&'static str, String)],
        body: impl Fn() -> Body,
    ) -> Result<Result<(Vec<u8>, Option<String>), Reply>, HttpError> {
        let request = |target: &str| {
            let mut request = Request::new(method.clone(), target)
                .with_body(body())
                .answered_within(limit);
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::try_from(value) {
                    request = request.with(HeaderName::from_static(name), value);
                }
            }
            request
        };
        let mut exchange = self.wire.send(target, request).await?;
        if !exchange.answer.status.is_success() {
            return Ok(Err(self.refused(exchange, Failed::Status).await));
        }
        let Some(body) = exchange.body(ANSWER_BYTES_MAX).await? else {
            return Err(senseless(method.as_str(), "it is too long"));
        };
        if exchange.is_well_without_condition && matches!(Made::read(&body), Ok(Ok(_))) {
            self.bucket()?.lacks_conditions();
        }
        let encryption = exchange.answer.header(ENCRYPTION_HEADER).map(str::to_owned);
        self.wire.done(exchange).await;
        Ok(Ok((body, encryption)))
    }

    /// DELETE succeeds where nothing is, too: what is there is looked at before.
    async fn remove_object(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        match self.bucket()?.endpoint.uploads.of(path) {
            Some(PendingObject::Parts(upload)) => return self.abort(path, &upload).await,
            Some(PendingObject::Stored(stored)) => {
                let removed = self.remove_own(&stored.at, stored.tag.as_deref()).await?;
                if matches!(failure_kind(&removed), None | Some(FailureKind::NotFound)) {
                    self.bucket()?.endpoint.uploads.forget(path);
                }
                return Ok(removed);
            }
            None => {}
        }
        match self.look_in_bucket(path).await? {
            Ok(found) if found.is_collection => Ok(reply(550, "is a directory")),
            Ok(_) => self.delete(path, &[]).await,
            Err(refused) => Ok(refused),
        }
    }

    /// Removes an object that we have stored under its final name, and that had this `ETag` then.
    /// Another writer may have replaced it since: in doubt it stays.
    async fn remove_own(&mut self, at: &FtpPath, tag: Option<&str>) -> Result<Reply, HttpError> {
        let now = match self.object_at(at).await? {
            Ok(found) => found.tag,
            Err(refused) => return Ok(refused),
        };
        if !tag.is_some_and(|tag| is_same_tag(tag, &now)) {
            let text = format!("the object {at} may be that of another writer, and stays");
            return Ok(reply(553, &text));
        }
        let removed = self.delete(at, &[("if-match", now)]).await?;
        match failure_kind(&removed) {
            // Many services know no conditions of DELETE.
            Some(FailureKind::NotSupported) => self.delete(at, &[]).await,
            _ => Ok(removed),
        }
    }

    async fn delete(
        &mut self,
        at: &FtpPath,
        headers: &[(&'static str, String)],
    ) -> Result<Reply, HttpError> {
        let target = self.bucket()?.target(at);
        let removed = self.ask_bucket(Method::DELETE, &target, headers, Body::default);
        Ok(removed
            .await?
            .map_or_else(|refused| refused, |_| reply(250, "done")))
    }

    /// A directory is gone with the last key in it; some programs make one that is empty, by an
    /// object whose key ends in a slash.
    async fn remove_prefix(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        let objects = match self.first_below(path, 2).await? {
            Ok(objects) => objects,
            Err(refused) => return Ok(refused),
        };
        let prefix = prefix_of(path);
        let is_marker = |key: &[u8]| key == prefix;
        if objects.iter().any(|object| !is_marker(&object.key)) {
            return Ok(reply(550, "directory not empty"));
        }
        if objects.is_empty() {
            // It went with its last object.
            return Ok(reply(250, "done"));
        }
        let Ok(marker) = FtpPath::new([b"/", &prefix[..]].concat()) else {
            return Ok(reply(550, "no such directory"));
        };
        self.delete(&marker, &[]).await
    }

    async fn rename_from_in_bucket(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        if self.bucket()?.endpoint.uploads.of(path).is_some() {
            return Ok(reply(350, "ready"));
        }
        Ok(match self.look_in_bucket(path).await? {
            Ok(found) if found.is_collection => {
                reply(501, "a bucket has no directories that could be renamed")
            }
            Ok(found) if found.size.is_some_and(|size| size > COPY_BYTES_MAX) => {
                reply(501, "an object of more than 5 GiB cannot be renamed")
            }
            Ok(_) => reply(350, "ready"),
            Err(refused) => refused,
        })
    }

    /// What we have sent becomes an object, or is one. Others are copied within the service, and
    /// removed.
    async fn rename_in_bucket(&mut self, from: &FtpPath, to: &FtpPath) -> Result<Reply, HttpError> {
        match self.bucket()?.endpoint.uploads.of(from) {
            Some(PendingObject::Stored(stored)) if stored.at == *to => {
                self.bucket()?.endpoint.uploads.forget(from);
                return Ok(reply(250, "done"));
            }
            Some(PendingObject::Parts(upload)) if upload.to == *to => {
                return self.complete(from).await;
            }
            Some(_) => return Ok(reply(553, "it was sent for another name")),
            None => {}
        }
        if from == to {
            return Ok(reply(553, "it has that name already"));
        }
        let source = match self.object_at(from).await? {
            Ok(found) => found,
            Err(refused) => return Ok(refused),
        };
        let unique = format!(".{:016x}", files::random());
        let Ok(probe) = FtpPath::new([to.as_bytes(), unique.as_bytes()].concat()) else {
            return Ok(reply(553, "not a name"));
        };
        let encrypts = self.check_encryption(&probe, to, FileAttributes::default());
        if let Err(refused) = encrypts.await? {
            return Ok(refused);
        }
        let mut headers = self.bucket()?.object_headers();
        // A copy would have those of the service.
        headers.extend(source.options.kept_beside(&headers));
        let copied = self.copy_within_bucket((from, &source.tag), to, headers);
        if let Err(refused) = copied.await? {
            return Ok(refused);
        }
        match self.object_at(from).await? {
            Ok(now) if now.tag == source.tag => {}
            Ok(_) => return Ok(reply(450, "it has changed meanwhile, and was not removed")),
            Err(refused) => return Ok(refused),
        }
        self.delete(from, &[]).await
    }

    /// Why a copy is not encrypted with `method`, as it should be: then it is removed. `told` is
    /// what the answer to the request that made it says of its encryption.
    pub(super) async fn check_copy(
        &mut self,
        to: &FtpPath,
        tag: &str,
        method: &str,
        told: Option<String>,
    ) -> Result<Option<Reply>, HttpError> {
        let wanted = [(ENCRYPTION_HEADER, method)];
        let Some(refused) = unencrypted(wanted, told.as_deref()) else {
            return Ok(None);
        };
        // Some services tell it of objects and not of copies.
        if let Ok(copy) = self.object_at(to).await?
            && is_same_tag(&copy.tag, tag)
            && unencrypted(wanted, copy.options.encryption()).is_none()
        {
            return Ok(None);
        }
        let removed = self.remove_own(to, Some(tag)).await?;
        let copy = match failure_kind(&removed) {
            None | Some(FailureKind::NotFound) => "the copy was removed",
            Some(_) => {
                let bucket = self.bucket()?;
                let (url, why) = (bucket.endpoint.url(to), removed.text());
                bucket.warn(format!(
                    "{url}: is not encrypted, and was not removed: {why}"
                ));
                "the copy was not removed"
            }
        };
        let text = format!("{}: {copy}, and its source stays", refused.text());
        Ok(Some(reply(504, &text)))
    }

    /// The tag of an object, and what it was stored with.
    async fn object_at(&mut self, path: &FtpPath) -> Result<Result<ObjectAt, Reply>, HttpError> {
        let exchange = self.head(path, &[]).await?;
        if !exchange.answer.status.is_success() {
            return Ok(Err(self.refused(exchange, Failed::Status).await));
        }
        let tag = exchange.header(header::ETAG).map(str::to_owned);
        let options = ObjectOptions::read(&exchange.answer);
        self.wire.done(exchange).await;
        let tag = tag.ok_or_else(|| reply(501, "the service names no ETag of it"));
        Ok(tag.map(|tag| ObjectAt { tag, options }))
    }

    /// Of all bytes alone: what a service has of an object that came in parts may be a checksum of
    /// their checksums. An `ETag` is none.
    async fn checksum_in_bucket(
        &mut self,
        algorithm: ChecksumAlgorithm,
        path: &FtpPath,
    ) -> Result<Reply, HttpError> {
        let untold = || {
            reply(
                504,
                &format!("the service tells no {algorithm} of all bytes"),
            )
        };
        let ours = match self.bucket()?.endpoint.uploads.of(path) {
            Some(PendingObject::Stored(stored)) => Some(stored.crc32c),
            Some(PendingObject::Parts(upload)) => Some(upload.crc32c()),
            None => None,
        };
        if let Some(value) = ours {
            let value = value.filter(|_| algorithm == ChecksumAlgorithm::Crc32c);
            return Ok(value.map_or_else(untold, |value| reply(213, &format!("{value:08x}"))));
        }
        if !ObjectSums::may_have(algorithm) {
            return Ok(untold());
        }
        let bucket = self.bucket()?;
        let sums = match bucket.sums.take(&bucket.target(path)) {
            Some(sums) => sums,
            None => match self.sums_in_bucket(path).await? {
                Ok(sums) => sums,
                Err(refused) => return Ok(refused),
            },
        };
        let Some(sum) = sums.of(algorithm) else {
            // Another one is asked for next.
            let bucket = self.bucket()?;
            bucket.sums.keep(&bucket.target(path), sums);
            return Ok(untold());
        };
        Ok(reply(213, &sum))
    }

    /// The checksums that the service has of an object.
    pub(super) async fn sums_in_bucket(
        &mut self,
        path: &FtpPath,
    ) -> Result<Result<ObjectSums, Reply>, HttpError> {
        let (name, value) = told_sums::MODE;
        let exchange = self.head(path, &[(name, value.to_owned())]).await?;
        if !exchange.answer.status.is_success() {
            return Ok(Err(self.refused(exchange, Failed::Status).await));
        }
        let sums = ObjectSums::read(&exchange.answer);
        self.wire.done(exchange).await;
        Ok(Ok(sums))
    }
}

/// An object that is there.
struct ObjectAt {
    /// Its `ETag`.
    tag: String,
    options: ObjectOptions,
}

/// Some services write quotes in one answer and not in another.
fn is_same_tag(one: &str, other: &str) -> bool {
    one.trim_matches('"') == other.trim_matches('"')
}

/// What was made, or why nothing was. With status 200, too.
pub(super) fn made_of(answer: Result<Vec<u8>, Reply>) -> Result<Result<Made, Reply>, HttpError> {
    let body = match answer {
        Ok(body) => body,
        Err(refused) => return Ok(Err(refused)),
    };
    let made = Made::read(&body);
    let made = made.map_err(|bad| senseless("the request", &bad.to_string()))?;
    Ok(made.map_err(|refused| {
        let status = meant(StatusCode::OK, &refused.code);
        let text = format!("{}: {}", refused.code, refused.message);
        refusal(status, &printable(text.as_bytes()), Failed::Status)
    }))
}

fn file(path: &FtpPath, size: Option<u64>, modified: Option<std::time::SystemTime>) -> Resource {
    Resource {
        size,
        modified,
        is_collection: false,
        ..directory(path)
    }
}

pub(super) fn directory(path: &FtpPath) -> Resource {
    Resource {
        path: path.as_bytes().to_vec(),
        is_collection: true,
        size: None,
        modified: None,
        tag: None,
        free_bytes: None,
    }
}

/// What the keys in a directory begin with.
pub(super) fn prefix_of(directory: &FtpPath) -> Vec<u8> {
    let path = directory.as_bytes();
    let mut prefix = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    if !prefix.is_empty() && !prefix.ends_with(b"/") {
        prefix.push(b'/');
    }
    prefix
}
