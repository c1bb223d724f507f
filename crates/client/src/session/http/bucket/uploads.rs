//! Uploads in parts: begun, gone on with, completed or aborted.
//!
//! An upload lies under the temporary name of its file, and the service knows it by an id. Parts
//! are there once they were answered; which are there is asked when the upload is gone on with, and
//! before it is completed.

use std::time::{Duration, Instant};

use godwit_engine::control::ControlError;
use godwit_http::{
    multistatus::Resource,
    s3::{
        self,
        answers::{Part, PartsPage, completing, read_upload_id},
    },
};
use godwit_http_client::{Body, Bytes, HeaderName, HeaderValue, Method, Step, header};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath, Reply,
    error::{FailureKind, failure_kind},
};

use tokio::time::sleep;

use super::{
    commands::{directory, made_of},
    signing::unencrypted,
};
use crate::{
    endpoint::capabilities::Observed,
    endpoint::uploads::{PartedUpload, PendingObject, StoredObject, crc32c_of},
    local::{attributes::FileAttributes, files},
    session::http::{
        commands::{HttpControl, Looked, senseless},
        error::HttpError,
        replies::{Failed, reply},
    },
};

/// Time until an object that was just made is looked for again, if it is not there: at first, and
/// at last.
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(50);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(1600);

/// An upload that keeps parts is aborted again so often, after pauses as above.
const ABORTS_AGAIN_MAX: u32 = 5;

/// How long a service may take to show an object that it says it has made.
const SHOWN_IN: Duration = Duration::from_secs(3);

/// Bytes that a service puts together in a second, at least: some copy all parts, and say nothing
/// until they have.
const ASSEMBLED_A_SECOND: u64 = 16 << 20;

/// And the longest that it is waited for.
const ASSEMBLY_MAX: Duration = Duration::from_secs(3600);

/// Pages of parts: a thousand each.
const PAGES_MAX: usize = 100;

/// What tells the object of one upload from all others.
pub(in crate::session::http) const MARK_HEADER: &str = "x-amz-meta-godwit-upload";

/// How long a service may take to put an object of so many bytes together, and to show it.
pub(super) fn assembly(size: u64) -> Duration {
    let copied_in = Duration::from_secs(size / ASSEMBLED_A_SECOND);
    SHOWN_IN + copied_in.min(ASSEMBLY_MAX)
}

/// What an object is stored with.
pub(in crate::session::http) fn metadata(
    attributes: FileAttributes,
) -> Vec<(&'static str, String)> {
    let time = attributes
        .modified
        .map(|time| (s3::MTIME_HEADER, s3::mtime(time.0)));
    let mode = attributes
        .mode
        .map(|mode| (s3::MODE_HEADER, s3::mode(mode)));
    time.into_iter().chain(mode).collect()
}

/// The mark of an object that is stored only where there is none: so that one is known that an
/// earlier request has stored whose answer was lost. A temporary name is of one file.
pub(in crate::session::http) fn mark_of(temp_path: &FtpPath) -> String {
    let sum = openssl::sha::sha256(temp_path.as_bytes());
    sum[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Headers of these names and values.
pub(in crate::session::http) fn headers(
    pairs: &[(&'static str, String)],
) -> Vec<(HeaderName, HeaderValue)> {
    let pair = |(name, value): &(&'static str, String)| {
        let value = HeaderValue::try_from(value).ok()?;
        Some((HeaderName::from_static(name), value))
    };
    pairs.iter().filter_map(pair).collect()
}

/// True if a service says that it has no such upload; other things can be missing, too.
pub(in crate::session::http) fn is_of_no_upload(refused: &Reply) -> bool {
    let is_missing = failure_kind(refused) == Some(FailureKind::NotFound);
    is_missing && refused.text().contains("NoSuchUpload")
}

/// True if the service may have begun an upload whose id is unknown. Nothing in its list of uploads
/// tells which of them is that: another client may have begun one for the same key meanwhile.
fn may_have_begun<T>(created: &Result<Result<T, Reply>, HttpError>) -> bool {
    match created {
        Ok(Ok(_)) => false,
        // What stands before the service may have had no answer of it.
        Ok(Err(refused)) => {
            let said = ["HTTP 500", "HTTP 502", "HTTP 504"];
            said.iter().any(|said| refused.text().starts_with(said))
        }
        Err(HttpError::Connection(error)) => matches!(error.step, Step::Request | Step::Body),
        Err(HttpError::Senseless(_)) => true,
        Err(HttpError::Redirect(_) | HttpError::Url(_)) => false,
    }
}

impl HttpControl {
    /// The upload that lies under a temporary name, or a new one for an object of `size` bytes.
    pub(in crate::session::http) async fn begin_upload(
        &mut self,
        temp_path: &FtpPath,
        to: &FtpPath,
        attributes: FileAttributes,
        size: u64,
    ) -> Result<Result<PartedUpload, Reply>, HttpError> {
        let bucket = self.bucket()?;
        let known = bucket.endpoint.uploads.parts_of(temp_path);
        if let Some(upload) = known {
            if upload.size == size {
                return Ok(Ok(upload));
            }
            let aborted = self.abort(temp_path, &upload).await?;
            if self
                .bucket()?
                .endpoint
                .uploads
                .parts_of(temp_path)
                .is_some()
            {
                return Ok(Err(aborted));
            }
        }
        let Some(part_bytes) = s3::part_bytes(size) else {
            return Ok(Err(reply(
                552,
                "the object would be larger than 10000 parts of 5 GiB",
            )));
        };
        let query = s3::query(&[("uploads", "")]);
        let target = format!("{}{query}", self.bucket()?.target(to));
        let mark = format!("{:016x}{:016x}", files::random(), files::random());
        let mut headers = metadata(attributes);
        headers.extend(self.bucket()?.object_headers());
        headers.push((MARK_HEADER, mark.clone()));
        headers.push(("x-amz-checksum-algorithm", "CRC32C".to_owned()));
        headers.push(("x-amz-checksum-type", "FULL_OBJECT".to_owned()));
        let created = self.create_upload(&target, &headers).await;
        if may_have_begun(&created) {
            let bucket = self.bucket()?;
            let url = bucket.endpoint.url(to);
            bucket.warn(format!(
                "{url}: no answer tells whether an upload in parts has begun: `godwit uploads ls \
                 {url}` lists what stays of it, which costs money"
            ));
        }
        let (id, encryption) = match created? {
            Ok(created) => created,
            Err(refused) => return Ok(Err(refused)),
        };
        let upload = PartedUpload {
            to: to.clone(),
            id,
            mark,
            part_bytes,
            size,
            parts: Default::default(),
            sent: Default::default(),
            asked_at: None,
        };
        let uploads = &self.bucket()?.endpoint.uploads;
        uploads.insert(temp_path, PendingObject::Parts(upload.clone()));
        let said = headers.iter().map(|(name, value)| (*name, value.as_str()));
        match unencrypted(said, encryption.as_deref()) {
            None => Ok(Ok(upload)),
            Some(refused) => {
                self.abort_once(temp_path, &upload).await?;
                Ok(Err(refused))
            }
        }
    }

    /// The same for a session.
    pub(in crate::session) async fn begin_divided(
        &mut self,
        temp_path: &FtpPath,
        to: &FtpPath,
        attributes: FileAttributes,
        size: u64,
    ) -> Result<Result<PartedUpload, Reply>, ControlError> {
        let begun = self.begin_upload(temp_path, to, attributes, size).await;
        begun.map_err(|error| error.of_control(&self.peer()))
    }

    /// The id of a new upload, and what the service says of its encryption.
    async fn create_upload(
        &mut self,
        target: &str,
        headers: &[(&'static str, String)],
    ) -> Result<Result<(String, Option<String>), Reply>, HttpError> {
        let created = self.ask_bucket_to_make(Method::POST, target, headers, Body::default);
        let (body, encryption) = match created.await? {
            Ok(created) => created,
            Err(refused) => return Ok(Err(refused)),
        };
        let id = read_upload_id(&body).map_err(|bad| senseless("POST", &bad.to_string()))?;
        Ok(Ok((id, encryption)))
    }

    /// Whether the service encrypts as it is asked to, before anything is replaced: it says so of
    /// an upload, which is called off.
    pub(in crate::session::http) async fn check_encryption(
        &mut self,
        temp_path: &FtpPath,
        to: &FtpPath,
        attributes: FileAttributes,
    ) -> Result<Result<(), Reply>, HttpError> {
        let bucket = self.bucket()?;
        if !bucket.encrypts() || bucket.endpoint.capabilities.has(Observed::Encrypts) {
            return Ok(Ok(()));
        }
        let upload = match self.begin_upload(temp_path, to, attributes, 1).await? {
            Ok(upload) => upload,
            Err(refused) => return Ok(Err(refused)),
        };
        let aborted = self.abort_once(temp_path, &upload).await?;
        if failure_kind(&aborted).is_some() {
            return Ok(Err(aborted));
        }
        let capabilities = &self.bucket()?.endpoint.capabilities;
        capabilities.record(Observed::Encrypts);
        Ok(Ok(()))
    }

    /// Asks which parts of an upload are there.
    async fn renew_parts(
        &mut self,
        temp_path: &FtpPath,
    ) -> Result<Result<PartedUpload, Reply>, HttpError> {
        let uploads = |control: &Self| {
            control
                .bucket()
                .map(|own| own.endpoint.uploads.parts_of(temp_path))
        };
        let gone = || reply(550, "no such file or directory");
        let Some(upload) = uploads(self)? else {
            return Ok(Err(gone()));
        };
        let (mut parts, mut marker) = (Vec::<Part>::new(), None::<String>);
        for _ in 0..PAGES_MAX {
            let mut query = vec![("uploadId", upload.id.as_str())];
            query.extend(
                marker
                    .as_deref()
                    .map(|marker| ("part-number-marker", marker)),
            );
            let target = format!("{}{}", self.bucket()?.target(&upload.to), s3::query(&query));
            let page = match self
                .ask_bucket(Method::GET, &target, &[], Body::default)
                .await?
            {
                Ok(body) => PartsPage::read(&body),
                Err(refused) => {
                    if is_of_no_upload(&refused) {
                        self.upload_is_gone(temp_path, &upload).await?;
                    }
                    return Ok(Err(refused));
                }
            };
            let page = page.map_err(|bad| senseless("GET", &bad.to_string()))?;
            parts.extend(page.parts);
            match page.next {
                None => {
                    let known = &self.bucket()?.endpoint.uploads;
                    known.set_parts(temp_path, parts);
                    return Ok(uploads(self)?.ok_or_else(gone));
                }
                Some(next) if next.to_string() == marker.clone().unwrap_or_default() => {
                    return Err(senseless("GET", "it is the same page again"));
                }
                Some(next) => marker = Some(next.to_string()),
            }
        }
        Err(senseless("GET", "the parts of the upload have no end"))
    }

    /// As a file of the bytes that are there.
    pub(super) async fn look_at_upload(
        &mut self,
        temp_path: &FtpPath,
    ) -> Result<Looked, HttpError> {
        let size = match self.renew_parts(temp_path).await? {
            Ok(upload) => upload.end(),
            Err(refused) => match self.bucket()?.endpoint.uploads.of(temp_path) {
                // It was completed, and the answer lost.
                Some(PendingObject::Stored(stored)) => stored.size,
                _ => return Ok(Err(refused)),
            },
        };
        Ok(Ok(Resource {
            is_collection: false,
            size: Some(size),
            ..directory(temp_path)
        }))
    }

    /// The service does not know the upload any longer: it was aborted, or completed and the answer
    /// lost. The object that came of it has its mark. A service that was asked for it may still put
    /// it together, and show what was there before.
    async fn upload_is_gone(
        &mut self,
        temp_path: &FtpPath,
        upload: &PartedUpload,
    ) -> Result<(), HttpError> {
        let limit = match upload.asked_at {
            Some(asked_at) => assembly(upload.size).saturating_sub(asked_at.elapsed()),
            None => Duration::ZERO,
        };
        let is_due = |refused: &Reply| failure_kind(refused) != Some(FailureKind::PermissionDenied);
        let found = self.object_within(limit, upload, is_due).await?;
        match found {
            Ok(tag) => {
                let mut crc32c = upload.crc32c();
                if crc32c.is_none() {
                    // What another run has sent.
                    let sum = match self.sums_in_bucket(&upload.to).await? {
                        Ok(sums) => sums.of(ChecksumAlgorithm::Crc32c),
                        Err(refused) if failure_kind(&refused) == Some(FailureKind::Transient) => {
                            return Ok(());
                        }
                        Err(_) => None,
                    };
                    crc32c = sum.and_then(|sum| u32::from_str_radix(&sum, 16).ok());
                }
                let stored = StoredObject {
                    at: upload.to.clone(),
                    size: upload.size,
                    tag,
                    crc32c,
                };
                let uploads = &self.bucket()?.endpoint.uploads;
                uploads.insert(temp_path, PendingObject::Stored(stored));
            }
            Err(refused) if failure_kind(&refused) == Some(FailureKind::Transient) => {}
            Err(_) => self.bucket()?.endpoint.uploads.forget(temp_path),
        }
        Ok(())
    }

    /// The same, again and again while it `is_due`, for no longer than `limit`.
    async fn object_within(
        &mut self,
        limit: Duration,
        upload: &PartedUpload,
        is_due: impl Fn(&Reply) -> bool,
    ) -> Result<Result<Option<String>, Reply>, HttpError> {
        let (since, mut pause) = (Instant::now(), LOOK_AGAIN_FIRST);
        loop {
            let found = self.object_of(upload).await?;
            if !found.as_ref().is_err_and(&is_due) || since.elapsed() >= limit {
                return Ok(found);
            }
            sleep(pause).await;
            pause = (2 * pause).min(LOOK_AGAIN_MAX);
        }
    }

    /// The `ETag` of what has the object's name, if that is what came of an upload; if not, why.
    async fn object_of(
        &mut self,
        upload: &PartedUpload,
    ) -> Result<Result<Option<String>, Reply>, HttpError> {
        let exchange = self.head(&upload.to, &[]).await?;
        if !exchange.answer.status.is_success() {
            return Ok(Err(self.refused(exchange, Failed::Status).await));
        }
        let size = exchange.answer.bytes();
        let tag = exchange.header(header::ETAG).map(str::to_owned);
        let is_marked = exchange.answer.header(MARK_HEADER) == Some(&*upload.mark);
        self.wire.done(exchange).await;
        Ok(match (is_marked, size) {
            (true, Some(size)) if size == upload.size => Ok(tag),
            (true, size) => {
                let size = size.map_or_else(|| "?".to_owned(), |size| size.to_string());
                let text = format!("the object has {size} bytes, and not {}", upload.size);
                Err(reply(501, &text))
            }
            (false, _) => Err(reply(501, "the object is not the one that was sent")),
        })
    }

    /// The parts become the object.
    pub(super) async fn complete(&mut self, temp_path: &FtpPath) -> Result<Reply, HttpError> {
        let known = self.bucket()?.endpoint.uploads.parts_of(temp_path);
        let known = known.and_then(|upload| upload.crc32c());
        let upload = match self.renew_parts(temp_path).await? {
            Ok(upload) => upload,
            Err(refused) => return self.completed_before(temp_path, refused),
        };
        let crc32c = upload.crc32c();
        let has_changed = known.zip(crc32c).is_some_and(|(one, other)| one != other);
        if !upload.is_whole() || has_changed {
            return Ok(reply(450, "the service does not have all parts of it"));
        }
        let query = s3::query(&[("uploadId", &upload.id)]);
        let target = format!("{}{query}", self.bucket()?.target(&upload.to));
        let body = Bytes::from(completing(upload.parts.values()));
        let mut headers = vec![
            ("content-type", "application/xml".to_owned()),
            ("x-amz-mp-object-size", upload.size.to_string()),
        ];
        headers.extend(self.bucket()?.condition());
        let limit = self.work_limit() + assembly(upload.size);
        let body = || Body::Bytes(body.clone());
        let uploads = &self.bucket()?.endpoint.uploads;
        uploads.set_asked(temp_path);
        let made = self.ask_bucket_within(limit, Method::POST, &target, &headers, body);
        let made = match made_of(made.await?.map(|(body, _)| body))? {
            Ok(made) => made,
            Err(refused) => {
                if is_of_no_upload(&refused) {
                    self.upload_is_gone(temp_path, &upload).await?;
                }
                return self.completed_before(temp_path, refused);
            }
        };
        let theirs = made.crc32c.as_deref().and_then(crc32c_of);
        if theirs.zip(crc32c).is_some_and(|(one, other)| one != other) {
            let text = "the checksum of the object is not that of its parts";
            return Ok(reply(501, text));
        }
        let is_unseen = |refused: &Reply| failure_kind(refused) == Some(FailureKind::NotFound);
        let shown = self.object_within(SHOWN_IN, &upload, is_unseen).await?;
        if let Err(refused) = shown {
            if is_unseen(&refused) {
                // The upload stays known, and its object may be found by its mark.
                return Ok(reply(450, "the service does not show the object yet"));
            }
            // Who may only store has the checksum alone.
            let is_proven = theirs.is_some() && theirs == crc32c;
            if !is_proven || failure_kind(&refused) != Some(FailureKind::PermissionDenied) {
                return Ok(refused);
            }
        }
        self.bucket()?.endpoint.uploads.forget(temp_path);
        Ok(reply(250, "done"))
    }

    /// The reply to a completion that was refused: done, if an earlier one has made the object.
    fn completed_before(&self, temp_path: &FtpPath, refused: Reply) -> Result<Reply, HttpError> {
        let uploads = &self.bucket()?.endpoint.uploads;
        if !uploads.is_stored(temp_path) {
            return Ok(refused);
        }
        uploads.forget(temp_path);
        Ok(reply(250, "done"))
    }

    /// The parts are removed, also those that were still on their way to the service: it may store
    /// them after an abort.
    pub(super) async fn abort(
        &mut self,
        temp_path: &FtpPath,
        upload: &PartedUpload,
    ) -> Result<Reply, HttpError> {
        let aborted = self.abort_once(temp_path, upload).await?;
        if failure_kind(&aborted).is_some() {
            return Ok(aborted);
        }
        let mut pause = LOOK_AGAIN_FIRST;
        for _ in 0..ABORTS_AGAIN_MAX {
            if !self.has_parts(upload).await {
                return Ok(aborted);
            }
            sleep(pause).await;
            pause = (2 * pause).min(LOOK_AGAIN_MAX);
            let again = self.abort_once(temp_path, upload).await?;
            if is_of_no_upload(&again) {
                return Ok(aborted);
            }
            if failure_kind(&again).is_some() {
                return Ok(again);
            }
        }
        if self.has_parts(upload).await {
            let bucket = self.bucket()?;
            let url = bucket.endpoint.url(&upload.to);
            bucket.warn(format!(
                "{url}: parts of an upload stay although the service has aborted it: `godwit \
                 uploads ls {url}` lists what costs money"
            ));
        }
        Ok(aborted)
    }

    /// The same where no part was sent.
    async fn abort_once(
        &mut self,
        temp_path: &FtpPath,
        upload: &PartedUpload,
    ) -> Result<Reply, HttpError> {
        let query = s3::query(&[("uploadId", &upload.id)]);
        let target = format!("{}{query}", self.bucket()?.target(&upload.to));
        let aborted = self.ask_bucket(Method::DELETE, &target, &[], Body::default);
        let answer = aborted
            .await?
            .map_or_else(|refused| refused, |_| reply(250, "done"));
        if failure_kind(&answer).is_none() || is_of_no_upload(&answer) {
            self.bucket()?.endpoint.uploads.forget(temp_path);
        }
        Ok(answer)
    }

    /// Whether the service lists parts of an upload that was aborted; no where it does not tell.
    async fn has_parts(&mut self, upload: &PartedUpload) -> bool {
        let query = s3::query(&[("uploadId", &upload.id)]);
        let Ok(bucket) = self.bucket() else {
            return false;
        };
        let target = format!("{}{query}", bucket.target(&upload.to));
        let listed = self.ask_bucket(Method::GET, &target, &[], Body::default);
        match listed.await {
            Ok(Ok(body)) => PartsPage::read(&body).is_ok_and(|page| !page.parts.is_empty()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_time_by_its_size_and_an_hour_at_most() {
        assert_eq!(assembly(0), SHOWN_IN);
        assert_eq!(
            assembly(50_000_000_000),
            SHOWN_IN + Duration::from_secs(2980)
        );
        assert_eq!(assembly(5 << 40), SHOWN_IN + ASSEMBLY_MAX);
    }
}
