//! CompleteMultipartUpload: the parts become an object, one behind the other.
//!
//! Clients wait for the answer's first byte, and that takes as long as a copy of all parts. So
//! after a while the answer begins, with status 200 and blanks, and says at its end what has come
//! of it.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use godwit_engine::storage::{File, digest::Digest};
use godwit_http::s3::{
    requests::{CompletingPart, XML_BYTES_MAX, read_completing},
    written::Answer,
};
use godwit_proto::{ChecksumAlgorithm, error::StorageFailure};
use hyper::{HeaderMap, StatusCode, body::Bytes, header};
use rustix::io::Errno;
use tokio::{
    task::JoinHandle,
    time::{interval, timeout},
};

use super::{
    super::{
        answer::{HttpAnswer, conditions, header_text, set, validators, with_body},
        body::{AnswerBody, LineBody},
        change::long_call,
        put::WRITE_BYTES,
        record::Transfer,
        session::HttpSession,
    },
    XML, completed,
    notes::CRC32C,
    object::{begin, check_name, finish},
    payload::{ObjectChecksum, Payload, base64_of},
    place::ObjectPlace,
    refused::{NO_UPLOAD, S3Error},
    uploads::{Upload, find, named, part_name, remove},
    xml,
};
use crate::{access::long_calls::CallKind, observe::event::What, storage::failure};

/// Until the answer begins: sooner ones have a status of their own.
const STATUS_LIMIT: Duration = Duration::from_secs(5);

/// Between two blanks.
const BLANK_EVERY: Duration = Duration::from_secs(5);

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

pub(super) async fn complete(
    session: &Arc<HttpSession>,
    place: ObjectPlace,
    id: &str,
    headers: &HeaderMap,
    mut body: Payload<'_>,
) -> Result<HttpAnswer, S3Error> {
    let upload = match find(session, &place, id).await {
        Err(refused) if refused.code == NO_UPLOAD => Err(refused),
        found => Ok(found?),
    };
    let told = body.take_checksums();
    let body = body.whole(XML_BYTES_MAX).await?;
    let parts = read_completing(&body)?;
    let upload = match (upload, completed::answer_of(id, &place.path, &parts)) {
        (Ok(upload), _) => upload,
        (Err(_), Some(answer)) => return Ok(xml(StatusCode::OK, answer)),
        (Err(refused), None) => return Err(refused),
    };
    let is_ordered = parts.is_sorted_by(|one, next| one.part.number < next.part.number);
    if !is_ordered {
        let text = "the numbers of the parts do not ascend";
        return Err(S3Error::new(
            StatusCode::BAD_REQUEST,
            "InvalidPartOrder",
            text,
        ));
    }
    if parts.is_empty() {
        return Err(godwit_http::dav::BadXml::Unexpected.into());
    }
    let size = header_text(headers, "x-amz-mp-object-size");
    let size = size.map(|size| size.parse::<u64>());
    let size = size
        .transpose()
        .map_err(|_| S3Error::argument("x-amz-mp-object-size"))?;
    check_name(session, &place, headers, None).await?;
    let completion = Completion {
        is_new: conditions(headers).demands_new(),
        id: id.to_owned(),
        place,
        upload,
        parts,
        size,
        told,
    };
    let session = Arc::clone(session);
    let mut joining = Joining(tokio::spawn(
        async move { completion.carry_out(&session).await },
    ));
    if let Ok(joined) = timeout(STATUS_LIMIT, &mut joining.0).await {
        return Ok(xml(
            StatusCode::OK,
            joined.unwrap_or_else(|_| Err(broken()))?,
        ));
    }
    let body = LineBody::new(|lines| {
        tokio::spawn(async move {
            let mut blanks = interval(BLANK_EVERY);
            let joined = loop {
                tokio::select! {
                    joined = &mut joining.0 => break joined,
                    _ = blanks.tick() => {
                        if lines.send(Bytes::from_static(b" ")).await.is_err() {
                            return;
                        }
                    }
                }
            };
            let joined = joined.unwrap_or_else(|_| Err(broken()));
            let text = joined.unwrap_or_else(|refused| refused.body(""));
            // The declaration of XML would have to be the first.
            let text = text.split_once("?>\n").map_or(&*text, |(_, rest)| rest);
            drop(lines.send(Bytes::copy_from_slice(text.as_bytes())).await);
        })
    });
    let mut answer = with_body(StatusCode::OK, AnswerBody::Lines(body));
    set(&mut answer, header::CONTENT_TYPE, XML);
    Ok(answer)
}

fn broken() -> S3Error {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    S3Error::new(status, "InternalError", "see the log of the server")
}

/// Ends with the request.
struct Joining(JoinHandle<Result<String, S3Error>>);

impl Drop for Joining {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Completion {
    place: ObjectPlace,
    id: String,
    upload: Upload,
    parts: Vec<CompletingPart>,
    /// Of the object, where the client tells it.
    size: Option<u64>,
    /// Checksums of the object that the client tells.
    told: Vec<ObjectChecksum>,
    is_new: bool,
}

impl Completion {
    async fn carry_out(self, session: &HttpSession) -> Result<String, S3Error> {
        let place = &self.place;
        let mut transfer = Transfer::begin(&session.recorder, What::Put, &place.path, WRITE_BYTES);
        let joined = self.join(session, &mut transfer).await;
        let failure = joined.as_ref().err();
        transfer.end(failure.map(|refused| (refused.class(), &*refused.text)));
        // The same request may have come twice, and the other one has taken the parts.
        joined.or_else(|refused| {
            completed::answer_of(&self.id, &place.path, &self.parts).ok_or(refused)
        })
    }

    async fn join(
        &self,
        session: &HttpSession,
        transfer: &mut Transfer,
    ) -> Result<String, S3Error> {
        let place = &self.place;
        // For all parts: one that waited in the middle could fail, and all before it with it.
        let turn = session.long_calls.turn(CallKind::Change).await?;
        let partial = begin(session, place).await?;
        let others = self.told.iter().map(|told| told.algorithm);
        let others = others.filter(|of| *of != ChecksumAlgorithm::Crc32c);
        let algorithms: Vec<_> = iter::once(ChecksumAlgorithm::Crc32c)
            .chain(others)
            .collect();
        let mut digests: Vec<_> = algorithms.iter().map(|of| Digest::new(*of)).collect();
        let mut offset = 0;
        for CompletingPart { part, checksums } in &self.parts {
            let path = named(&self.upload.directory, &part_name(part.number))?;
            let (storage, into) = (Arc::clone(&session.unscoped), Arc::clone(&partial.file));
            let tag = part.tag.clone();
            let mut sums = PartSum::of(part.crc32c.as_deref(), checksums);
            let joined = long_call(session, &turn, move |_, stop| {
                let file = match storage.open_read(&path) {
                    Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => {
                        return Ok(None);
                    }
                    file => file?,
                };
                let metadata = file.as_opened()?;
                let known = validators(&metadata).tag.to_string();
                if tag.trim_matches('"') != known.trim_matches('"') {
                    return Ok(None);
                }
                append(&*file, metadata.size, &*into, offset, stop, &mut |bytes| {
                    digests.iter_mut().for_each(|digest| digest.update(bytes));
                    sums.iter_mut().for_each(|sum| sum.update(bytes));
                })?;
                Ok(Some((metadata.size, digests, sums)))
            });
            let Some((size, gone_on, sums)) = joined.await? else {
                let text = format!("part {} is not there, or another one", part.number);
                return Err(S3Error::new(StatusCode::BAD_REQUEST, "InvalidPart", text));
            };
            if !sums.into_iter().all(PartSum::holds) {
                let text = format!("part {} has another checksum", part.number);
                return Err(S3Error::new(StatusCode::BAD_REQUEST, "InvalidPart", text));
            }
            digests = gone_on;
            offset += size;
            transfer.moved(usize::try_from(size).unwrap_or(usize::MAX));
        }
        if self.size.is_some_and(|size| size != offset) {
            let text = format!("the parts have {offset} bytes");
            return Err(S3Error::new(
                StatusCode::BAD_REQUEST,
                "InvalidRequest",
                text,
            ));
        }
        let digests = digests.into_iter().map(Digest::finish);
        let found: Vec<_> = algorithms.into_iter().zip(digests).collect();
        for told in &self.told {
            let digest = found.iter().find(|(of, _)| *of == told.algorithm);
            if digest.is_none_or(|(_, digest)| *digest != told.value) {
                let text = format!("the parts are not those of {}", told.name);
                return Err(S3Error::new(StatusCode::BAD_REQUEST, "BadDigest", text));
            }
        }
        let crc32c = base64_of(&found[0].1);
        let mut checksums = vec![(CRC32C, crc32c.clone())];
        let told = self.told.iter().filter(|told| told.name != CRC32C);
        checksums.extend(told.map(|told| (told.name, base64_of(&told.value))));
        let notes = self.upload.manifest.notes.clone();
        let notes = notes.with_checksums(&checksums);
        let known = finish(session, place, partial, &notes, self.is_new).await?;
        let mut answer = Answer::new("CompleteMultipartUploadResult");
        answer.field("Location", &place.resource());
        answer.field("Bucket", &place.bucket);
        if answer.key("Key", &place.key).is_err() {
            answer.field("Key", &String::from_utf8_lossy(&place.key));
        }
        answer.field("ETag", &known.tag.to_string());
        answer.field("ChecksumCRC32C", &crc32c);
        answer.field("ChecksumType", "FULL_OBJECT");
        let answer = answer.finish();
        completed::remember(&self.id, &place.path, &self.parts, &answer);
        // The object is there. What cannot be removed now is removed as a leftover.
        drop(remove(session, self.upload.directory.clone()).await);
        Ok(answer)
    }
}

/// A checksum that the client tells of a part.
struct PartSum {
    /// In base64.
    told: String,
    digest: Digest,
}

impl PartSum {
    fn of(crc32c: Option<&str>, checksums: &[(ChecksumAlgorithm, String)]) -> Vec<Self> {
        let crc32c = crc32c.map(|told| (ChecksumAlgorithm::Crc32c, told));
        let others = checksums.iter().map(|(of, told)| (*of, told.as_str()));
        let all = crc32c.into_iter().chain(others);
        let all = all.map(|(algorithm, told)| Self {
            told: told.trim().to_owned(),
            digest: Digest::new(algorithm),
        });
        all.collect()
    }

    fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    fn holds(self) -> bool {
        base64_of(&self.digest.finish()) == self.told
    }
}

/// Copies a file of `size` bytes to `offset` of another. Blocks.
pub(super) fn append(
    from: &dyn File,
    size: u64,
    into: &dyn File,
    offset: u64,
    stop: &AtomicBool,
    taken: &mut dyn FnMut(&[u8]),
) -> Result<(), StorageFailure> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut done = 0;
    while done < size {
        if stop.load(Ordering::Relaxed) {
            return Err(failure(Errno::CANCELED, "copy"));
        }
        let most = usize::try_from(size - done).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let got = from.read_at(done, &mut buffer[..most])?;
        if got == 0 {
            return Err(failure(
                Errno::NODATA,
                "copy a file that has become shorter",
            ));
        }
        into.write_all_at(offset + done, &buffer[..got])?;
        taken(&buffer[..got]);
        done += got as u64;
    }
    Ok(())
}
