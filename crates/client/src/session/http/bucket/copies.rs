//! Copies that a service carries out itself, between its buckets: a small object by one request, a
//! larger one part by part into an upload, as if this machine had sent the parts.

use std::{sync::Arc, time::Duration};

use godwit_engine::data::Sample;
use godwit_http::s3::{
    self,
    answers::{Made, Part},
};
use godwit_http_client::{Body, Method, header};
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Command, FtpPath, RangeSet, Reply,
    error::{FailureKind, failure_kind},
};
use tokio::task::{JoinError, JoinSet};

use super::{
    commands::made_of,
    signing::ENCRYPTION_HEADER,
    told_sums::{self, ObjectSums},
    uploads::{assembly, is_of_no_upload, metadata},
};
use crate::{
    endpoint::{
        capabilities::Lack,
        uploads::{PartedUpload, PendingObject, StoredObject, crc32c_of, crc32c_text},
    },
    error::Error,
    local::attributes::FileAttributes,
    report::progress::{LocalView, RunningTransfer},
    session::{
        Session,
        http::{
            commands::HttpControl,
            error::HttpError,
            region::PARTED_BYTES_MIN,
            replies::{Failed, not_offered, reply},
            wire::Wire,
        },
        third_party::{ThirdPartyOutcome, ThirdPartyPlan},
    },
};

/// Most parts that are copied at the same time.
const TOGETHER_MAX: u32 = 32;

/// What a service has answered, or its refusal.
type Answered<T> = Result<Result<T, Reply>, HttpError>;

/// An object that is copied.
#[derive(Clone)]
struct CopySource {
    /// Bucket and key, as a header has them.
    path: String,
    /// The `ETag` of the version that is meant.
    tag: String,
}

impl CopySource {
    /// An object of `control`'s bucket.
    fn new(control: &HttpControl, path: &FtpPath, tag: String) -> Result<Self, HttpError> {
        let bucket = control.bucket()?.endpoint.host();
        let key = s3::encoded_path(path.as_bytes());
        Ok(Self {
            path: format!("/{bucket}{key}"),
            tag,
        })
    }

    fn headers(&self) -> [(&'static str, String); 2] {
        [
            ("x-amz-copy-source", self.path.clone()),
            ("x-amz-copy-source-if-match", self.tag.clone()),
        ]
    }
}

/// Why a copy by the service has ended early.
enum CopyFailure {
    /// It copies none, or none of these: they pass through this machine.
    Lacks(Reply),
    /// No copy was asked for.
    NotBegun(Reply),
    Refused(Reply),
    Lost(HttpError),
    Panicked(JoinError),
    Stopped,
}

impl CopyFailure {
    /// After a request for a copy.
    fn of<T>(copied: Answered<T>) -> Result<T, Self> {
        let lacks = |refused: &Reply| {
            refused.code.get() == 502
                || failure_kind(refused) == Some(FailureKind::PermissionDenied)
        };
        match copied {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(refused)) if lacks(&refused) => Err(Self::Lacks(refused)),
            Ok(Err(refused)) => Err(Self::Refused(refused)),
            // It may have taken the request for one that stores nothing.
            Err(HttpError::Senseless(why)) => Err(Self::Lacks(reply(502, &why))),
            Err(error) => Err(Self::Lost(error)),
        }
    }
}

impl From<HttpError> for CopyFailure {
    fn from(error: HttpError) -> Self {
        Self::Lost(error)
    }
}

/// What is copied.
struct Copying<'a> {
    source: CopySource,
    temp_path: &'a FtpPath,
    to: &'a FtpPath,
    attributes: FileAttributes,
    /// Bytes of the object.
    size: u64,
    /// Of all of them, where the service tells.
    crc32c: Option<u32>,
    region: ByteRange,
}

/// What the service says of an object that is to be copied.
struct SourceObject {
    tag: Option<String>,
    size: Option<u64>,
    crc32c: Option<u32>,
}

impl Session {
    /// Has the service copy an object of `source`, or what is missing of it. `None`: it does not,
    /// or the two buckets are not of one service and the same user.
    pub(in crate::session) async fn relay_within_service(
        &mut self,
        source: &mut Session,
        plan: &ThirdPartyPlan<'_>,
    ) -> Option<ThirdPartyOutcome> {
        let ((to, attributes), safe) = plan.stored_as.as_ref().zip(plan.safe.as_ref())?;
        let (Command::Stor(temp_path) | Command::Appe(temp_path)) = &plan.store else {
            return None;
        };
        let Command::Retr(from) = &plan.retrieve else {
            return None;
        };
        let (size, endpoint) = (safe.size(), Arc::clone(&self.endpoint));
        if endpoint.capabilities.lacks(Lack::ServiceCopies) || size == 0 {
            return None;
        }
        let together = self.channels_wanted().clamp(1, TOGETHER_MAX);
        let theirs = source.http()?;
        if !self.http()?.is_of_service_of(theirs) {
            return None;
        }
        let found = match theirs.source_object(from).await {
            Ok(Ok(found)) if found.size == Some(size) => found,
            Ok(Ok(_)) => {
                let what = source.endpoint.url(from);
                return Some(ThirdPartyOutcome::failed(Error::Changed { what }));
            }
            Ok(Err(refused)) => {
                let error = Error::refused(plan.retrieving, refused);
                return Some(ThirdPartyOutcome::failed(error));
            }
            Err(error) => {
                let (doing, peer) = (plan.retrieving.to_owned(), theirs.peer());
                let error = error.of_control(&peer);
                return Some(ThirdPartyOutcome::failed(Error::Control { doing, error }));
            }
        };
        let tag = found.tag.filter(|tag| !tag.starts_with("W/"))?;
        let copying = Copying {
            source: CopySource::new(theirs, from, tag).ok()?,
            crc32c: found.crc32c,
            temp_path,
            to,
            attributes: *attributes,
            size,
            region: plan.passed.region.unwrap_or(ByteRange {
                start: 0,
                end: size,
            }),
        };
        self.context.counters.on_transfer_start(self.round_trip);
        let mut outcome = ThirdPartyOutcome {
            result: Ok(()),
            is_cut: false,
            safe: RangeSet::new(),
            bytes: Some(copying.region.len()),
        };
        let ended = self.copy_in_service(&copying, plan, together, &mut outcome.safe);
        let Err(ended) = ended.await else {
            return Some(outcome);
        };
        outcome.bytes = None;
        let doing = plan.storing.to_owned();
        outcome.result = Err(match ended {
            CopyFailure::Lacks(refused) => {
                if refused.code.get() == 502 {
                    self.lesson(
                        Lack::ServiceCopies,
                        &refused,
                        "copies from another bucket",
                        "objects pass through this machine",
                    );
                }
                return None;
            }
            CopyFailure::Refused(refused) if has_changed(&refused) => Error::Changed {
                what: source.endpoint.url(from),
            },
            // As of bytes that are sent: nothing is learned of where they begin.
            CopyFailure::Refused(refused) => Error::Refused {
                doing,
                reply: Box::new(refused),
                started: true,
            },
            CopyFailure::NotBegun(refused) => Error::refused(doing, refused),
            CopyFailure::Lost(error) => Error::Control {
                doing,
                error: error.of_control(&self.http()?.peer()),
            },
            CopyFailure::Panicked(error) => Error::Internal {
                doing,
                why: error.to_string(),
            },
            CopyFailure::Stopped => Error::Interrupted,
        });
        Some(outcome)
    }

    async fn copy_in_service(
        &mut self,
        copying: &Copying<'_>,
        plan: &ThirdPartyPlan<'_>,
        together: u32,
        copied: &mut RangeSet,
    ) -> Result<(), CopyFailure> {
        let (endpoint, context) = (Arc::clone(&self.endpoint), Arc::clone(&self.context));
        let no_bucket = || CopyFailure::NotBegun(not_offered("STOR"));
        let control = self.http().ok_or_else(no_bucket)?;
        let running = RunningTransfer::new(&context.counters, LocalView::Nothing);
        let is_begun = endpoint.uploads.parts_of(copying.temp_path).is_some();
        let is_small = copying.size <= PARTED_BYTES_MIN && !is_begun;
        // There is no condition for copies that all services know.
        if is_small && control.bucket()?.condition().is_none() {
            let (to, attributes) = (copying.to, copying.attributes);
            let encrypts = control.check_encryption(copying.temp_path, to, attributes);
            encrypts.await?.map_err(CopyFailure::NotBegun)?;
            let mut own = control.beside();
            let stored = tokio::select! {
                stored = own.copy_small(copying) => CopyFailure::of(stored)?,
                () = context.stop.cancelled() => return Err(CopyFailure::Stopped),
            };
            control.more_wires.push(own.wire);
            let stored = PendingObject::Stored(stored);
            endpoint.uploads.insert(copying.temp_path, stored);
            copied.insert(copying.region);
            return Ok(());
        }
        let (to, attributes) = (copying.to, copying.attributes);
        let upload = control.begin_upload(copying.temp_path, to, attributes, copying.size);
        let upload = Arc::new(upload.await?.map_err(CopyFailure::NotBegun)?);
        let safe = plan.safe.as_ref();
        if let Some(safe) = safe {
            safe.name_version(upload.version());
        }
        let is_missing = |part: &ByteRange| {
            let is_wanted = part.start < copying.region.end && part.end > copying.region.start;
            is_wanted && safe.is_none_or(|safe| !safe.gaps(*part).is_empty())
        };
        let mut missing = upload.all_parts().filter(is_missing);
        let mut tasks = JoinSet::new();
        let (mut moved, mut failed) = (0, None);
        loop {
            while tasks.len() < together as usize && failed.is_none() {
                let Some(part) = missing.next() else { break };
                let (own, upload) = (control.beside(), Arc::clone(&upload));
                tasks.spawn(copy_part(own, upload, copying.source.clone(), part));
            }
            let joined = tokio::select! {
                joined = tasks.join_next() => joined,
                // What the service has copied meanwhile is found when it is gone on with.
                () = context.stop.cancelled() => return Err(CopyFailure::Stopped),
            };
            match joined {
                None => break,
                Some(Ok((wire, part, made))) => {
                    control.more_wires.push(wire);
                    match made {
                        Ok(made) => {
                            let id = &upload.id;
                            endpoint.uploads.add(copying.temp_path, id, made);
                            safe.inspect(|safe| safe.add(part));
                            copied.insert(part);
                            moved += part.len();
                            running.report(Sample {
                                bytes: moved,
                                channels: together,
                                ..Sample::default()
                            });
                        }
                        Err(ended) => drop(failed.get_or_insert(ended)),
                    }
                }
                Some(Err(error)) => drop(failed.get_or_insert(CopyFailure::Panicked(error))),
            }
        }
        if let Some(CopyFailure::Refused(refused)) = &failed
            && is_of_no_upload(refused)
        {
            endpoint.uploads.forget(copying.temp_path);
        }
        failed.map_or(Ok(()), Err)?;
        let whole = endpoint.uploads.parts_of(copying.temp_path);
        let theirs = whole.filter(PartedUpload::is_whole);
        let theirs = theirs.and_then(|upload| upload.crc32c());
        match theirs.zip(copying.crc32c) {
            Some((theirs, ours)) if theirs != ours => {
                control.abort(copying.temp_path, &upload).await?;
                safe.inspect(|safe| safe.clear());
                let text = "the checksums of its copies are not those of their bytes";
                Err(CopyFailure::Lacks(reply(502, text)))
            }
            _ => Ok(()),
        }
    }
}

/// Has the service copy one part. The connection can be used again.
async fn copy_part(
    mut control: HttpControl,
    upload: Arc<PartedUpload>,
    source: CopySource,
    range: ByteRange,
) -> (Wire, ByteRange, Result<Part, CopyFailure>) {
    let made = control.copy_part(&upload, &source, range).await;
    (control.wire, range, CopyFailure::of(made))
}

/// The source is another version.
fn has_changed(refused: &Reply) -> bool {
    let text = refused.text();
    text.contains("PreconditionFailed") || text.starts_with("HTTP 412")
}

impl HttpControl {
    /// Whether the bucket is of the service of another one, and asked as the same user.
    fn is_of_service_of(&self, other: &Self) -> bool {
        let of = |control: &Self| {
            let bucket = control.bucket().ok()?;
            Some(bucket.service_and_access(&control.server().origin))
        };
        of(self).is_some_and(|own| of(other) == Some(own))
    }

    /// Another one, for requests at the same time.
    fn beside(&mut self) -> Self {
        let kept = self.more_wires.pop();
        let wire = kept.unwrap_or_else(|| Wire::new(Arc::clone(self.server())));
        Self::new(wire, self.peer())
    }

    async fn source_object(&mut self, path: &FtpPath) -> Answered<SourceObject> {
        let (name, value) = told_sums::MODE;
        let exchange = self.head(path, &[(name, value.to_owned())]).await?;
        if !exchange.answer.status.is_success() {
            return Ok(Err(self.refused(exchange, Failed::Status).await));
        }
        let sum = ObjectSums::read(&exchange.answer).of(ChecksumAlgorithm::Crc32c);
        let found = SourceObject {
            tag: exchange.header(header::ETAG).map(str::to_owned),
            size: exchange.answer.bytes(),
            crc32c: sum.and_then(|sum| u32::from_str_radix(&sum, 16).ok()),
        };
        self.wire.done(exchange).await;
        Ok(Ok(found))
    }

    async fn copy_small(&mut self, copying: &Copying<'_>) -> Answered<StoredObject> {
        let to = copying.to;
        let mut headers = self.bucket()?.object_headers();
        headers.extend(metadata(copying.attributes));
        headers.push(("x-amz-metadata-directive", "REPLACE".to_owned()));
        headers.push(("x-amz-checksum-algorithm", "CRC32C".to_owned()));
        let made = self.copy_whole(&copying.source, to, headers).await?;
        Ok(made.map(|made| StoredObject {
            at: to.clone(),
            size: copying.size,
            tag: Some(made.tag),
            crc32c: made.crc32c.as_deref().and_then(crc32c_of),
        }))
    }

    /// Has the service copy the version of an object with this `ETag` to another key, with what
    /// `headers` say of the copy.
    pub(super) async fn copy_within_bucket(
        &mut self,
        (from, tag): (&FtpPath, &str),
        to: &FtpPath,
        headers: Vec<(&'static str, String)>,
    ) -> Answered<()> {
        let source = CopySource::new(self, from, tag.to_owned())?;
        let copied = self.copy_whole(&source, to, headers).await?;
        Ok(copied.map(|_| ()))
    }

    /// The same by the one request that copies all of an object.
    async fn copy_whole(
        &mut self,
        source: &CopySource,
        to: &FtpPath,
        mut headers: Vec<(&'static str, String)>,
    ) -> Answered<Made> {
        let encryption = headers.iter().find(|(name, _)| *name == ENCRYPTION_HEADER);
        let encryption = encryption.map(|(_, method)| method.clone());
        headers.extend(source.headers());
        let target = self.bucket()?.target(to);
        let copied = self.ask_bucket_to_make(Method::PUT, &target, &headers, Body::default);
        let (copied, told) = copied.await?.map_or_else(
            |refused| (Err(refused), None),
            |(body, encryption)| (Ok(body), encryption),
        );
        let made = match made_of(copied)? {
            Ok(made) => made,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(method) = encryption
            && let Some(refused) = self.check_copy(to, &made.tag, &method, told).await?
        {
            return Ok(Err(refused));
        }
        Ok(Ok(made))
    }

    async fn copy_part(
        &mut self,
        upload: &PartedUpload,
        source: &CopySource,
        range: ByteRange,
    ) -> Answered<Part> {
        let number = upload.number_at(range.start).unwrap_or_default();
        let query = [
            ("partNumber", &*number.to_string()),
            ("uploadId", &upload.id),
        ];
        let target = format!("{}{}", self.bucket()?.target(&upload.to), s3::query(&query));
        let mut headers = Vec::from(source.headers());
        let bytes = format!("bytes={}-{}", range.start, range.end - 1);
        headers.push(("x-amz-copy-source-range", bytes));
        let limit: Duration = self.work_limit() + assembly(range.len());
        let copied = self.ask_bucket_within(limit, Method::PUT, &target, &headers, Body::default);
        let made = made_of(copied.await?.map(|(body, _)| body))?;
        Ok(made.map(|made| Part {
            number,
            size: range.len(),
            tag: made.tag,
            crc32c: made.crc32c.as_deref().and_then(crc32c_of).map(crc32c_text),
        }))
    }
}
