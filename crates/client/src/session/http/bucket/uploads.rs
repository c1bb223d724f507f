//! Uploads in parts: begun, gone on with, completed or aborted.
//!
//! An upload lies under the temporary name of its file, and the service knows it by an id. Parts
//! are there once they were answered; which are there is asked when the upload is gone on with, and
//! before it is completed.

use godwit_http::{
    multistatus::Resource,
    s3::{
        self,
        answers::{Part, PartsPage, completing, read_upload_id},
    },
};
use godwit_http_client::{Body, Bytes, HeaderName, HeaderValue, Method};
use godwit_proto::{
    FtpPath, Reply,
    error::{FailureKind, failure_kind},
};

use super::commands::{directory, refusal_of};
use crate::{
    endpoint::uploads::{PartedUpload, PendingObject},
    local::attributes::FileAttributes,
    session::http::{
        commands::{HttpControl, Looked, senseless},
        replies::reply,
        server::HttpError,
    },
};

/// Pages of parts: a thousand each.
const PAGES_MAX: usize = 100;

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

/// Headers of these names and values.
pub(in crate::session::http) fn headers(
    pairs: &[(&'static str, String)],
) -> Vec<(HeaderName, HeaderValue)> {
    let header = |(name, value): &(&'static str, String)| {
        let value = HeaderValue::try_from(value).ok()?;
        Some((HeaderName::from_static(name), value))
    };
    pairs.iter().filter_map(header).collect()
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
        if let Some(upload) = bucket.endpoint.uploads.parts_of(temp_path) {
            return Ok(Ok(upload));
        }
        let Some(part_bytes) = s3::part_bytes(size) else {
            return Ok(Err(reply(
                552,
                "the object would be larger than 10000 parts of 5 GiB",
            )));
        };
        let target = format!("{}{}", bucket.target(to), s3::query(&[("uploads", "")]));
        let mut headers = metadata(attributes);
        headers.push(("x-amz-checksum-algorithm", "CRC32C".to_owned()));
        headers.push(("x-amz-checksum-type", "FULL_OBJECT".to_owned()));
        let begun = self.ask_bucket(Method::POST, &target, &headers, Body::default);
        let body = match begun.await? {
            Ok(body) => body,
            Err(refused) => return Ok(Err(refused)),
        };
        let id = read_upload_id(&body).map_err(|bad| senseless("POST", &bad.to_string()))?;
        let upload = PartedUpload {
            to: to.clone(),
            id,
            part_bytes,
            parts: Default::default(),
        };
        let uploads = &self.bucket()?.endpoint.uploads;
        uploads.insert(temp_path, PendingObject::Parts(upload.clone()));
        Ok(Ok(upload))
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
                    if failure_kind(&refused) == Some(FailureKind::NotFound) {
                        self.bucket()?.endpoint.uploads.forget(temp_path);
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
        Ok(self.renew_parts(temp_path).await?.map(|upload| Resource {
            is_collection: false,
            size: Some(upload.end()),
            ..directory(temp_path)
        }))
    }

    /// The parts become the object.
    pub(super) async fn complete(&mut self, temp_path: &FtpPath) -> Result<Reply, HttpError> {
        let upload = match self.renew_parts(temp_path).await? {
            Ok(upload) => upload,
            Err(refused) => return Ok(refused),
        };
        if !upload.has_no_gap() || upload.parts.is_empty() {
            return Ok(reply(450, "the service does not have all parts of it"));
        }
        let query = s3::query(&[("uploadId", &upload.id)]);
        let target = format!("{}{query}", self.bucket()?.target(&upload.to));
        let body = Bytes::from(completing(upload.parts.values()));
        let headers = [("content-type", "application/xml".to_owned())];
        let made = self.ask_bucket(Method::POST, &target, &headers, || {
            Body::Bytes(body.clone())
        });
        if let Some(refused) = refusal_of(made.await?)? {
            return Ok(refused);
        }
        self.bucket()?.endpoint.uploads.forget(temp_path);
        Ok(reply(250, "done"))
    }

    /// The parts are removed.
    pub(super) async fn abort(
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
        if matches!(failure_kind(&answer), None | Some(FailureKind::NotFound)) {
            self.bucket()?.endpoint.uploads.forget(temp_path);
        }
        Ok(answer)
    }
}
