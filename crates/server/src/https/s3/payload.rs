//! Bodies of requests: taken out of their chunks, and compared with the checksums that the client
//! tells of them.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_engine::storage::digest::Digest;
use godwit_http::s3::{
    CHECKSUMS,
    chunked::{BadChunk, Chunks, Streaming},
    signing::{UNSIGNED_PAYLOAD, Verified, hex},
};
use godwit_proto::ChecksumAlgorithm;
use hyper::{
    HeaderMap, StatusCode,
    body::{Body as _, Bytes, Incoming},
};

use super::{
    super::{
        answer::{Rejected, header_text},
        received::next_bytes,
    },
    refused::S3Error,
};

/// Bytes of a checksum in base64, the longest that is known, and some more.
const SUM_BYTES_MAX: usize = 100;

/// The body of a request.
pub(super) struct Payload<'a> {
    body: &'a mut Incoming,
    limit: Duration,
    /// `None`: the body comes as it is.
    chunks: Option<Chunks>,
    /// Bytes that have not been taken apart.
    rest: Bytes,
    /// Of all, without what chunks add. `None`: it does not say.
    length: Option<u64>,
    got: u64,
    told: Vec<ToldChecksum>,
}

/// A checksum that the client tells.
struct ToldChecksum {
    algorithm: ChecksumAlgorithm,
    /// Header that it came by, or will come by behind the body.
    name: &'static str,
    /// In small hexadecimal digits; `None`: it comes behind the body.
    value: Option<String>,
}

/// A checksum of a whole object, as the client tells it.
pub(super) struct ObjectChecksum {
    pub(super) algorithm: ChecksumAlgorithm,
    /// Its header.
    pub(super) name: &'static str,
    /// In small hexadecimal digits.
    pub(super) value: String,
}

const CONTENT_SHA256: &str = "x-amz-content-sha256";
const CONTENT_MD5: &str = "content-md5";

fn bad_digest(text: &str) -> S3Error {
    S3Error::new(StatusCode::BAD_REQUEST, "InvalidDigest", text)
}

impl<'a> Payload<'a> {
    pub(super) fn new(
        body: &'a mut Incoming,
        headers: &HeaderMap,
        payload: &str,
        verified: Option<Verified>,
        limit: Duration,
    ) -> Result<Self, S3Error> {
        let mut told = told(headers)?;
        let of_body = body.size_hint().exact();
        let (chunks, length) = match Streaming::parse(payload) {
            Some(how) => {
                let unsigned = || S3Error::denied("the chunks are signed, and the request is not");
                let chunks = Chunks::new(how, verified).ok_or_else(unsigned)?;
                let length = header_text(headers, "x-amz-decoded-content-length");
                let length = length.and_then(|text| text.parse().ok());
                let missing = || {
                    let text = "x-amz-decoded-content-length is missing";
                    S3Error::new(StatusCode::LENGTH_REQUIRED, "MissingContentLength", text)
                };
                (Some(chunks), Some(length.ok_or_else(missing)?))
            }
            None if payload == UNSIGNED_PAYLOAD => (None, of_body),
            None => {
                let is_hex =
                    payload.len() == 64 && payload.bytes().all(|byte| byte.is_ascii_hexdigit());
                if !is_hex {
                    let text = "x-amz-content-sha256 is no checksum, or of no kind known here";
                    return Err(S3Error::argument(text));
                }
                told.push(ToldChecksum {
                    algorithm: ChecksumAlgorithm::Sha256,
                    name: CONTENT_SHA256,
                    value: Some(payload.to_ascii_lowercase()),
                });
                (None, of_body)
            }
        };
        if chunks.is_none() && told.iter().any(|told| told.value.is_none()) {
            return Err(S3Error::argument("x-amz-trailer needs a body in chunks"));
        }
        Ok(Self {
            body,
            limit,
            chunks,
            rest: Bytes::new(),
            length,
            got: 0,
            told,
        })
    }

    /// Takes the checksums that are told of an object, where that is not the body, from those that
    /// the body is compared with.
    pub(super) fn take_checksums(&mut self) -> Vec<ObjectChecksum> {
        let of_object = |told: &ToldChecksum| told.name.starts_with("x-amz-checksum-");
        let (of_object, of_body) = std::mem::take(&mut self.told)
            .into_iter()
            .partition::<Vec<_>, _>(of_object);
        self.told = of_body;
        let known = of_object.into_iter();
        known
            .filter_map(|told| {
                Some(ObjectChecksum {
                    algorithm: told.algorithm,
                    name: told.name,
                    value: told.value?,
                })
            })
            .collect()
    }

    /// Bytes of the body, where it says so.
    pub(super) const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Checksums that have to be computed of its bytes.
    pub(super) fn algorithms(&self) -> Vec<ChecksumAlgorithm> {
        self.told.iter().map(|told| told.algorithm).collect()
    }

    /// The next bytes. `None`: there are no more, and what has come is of the length that was said.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            if self.rest.is_empty() {
                match next_bytes(self.body, self.limit).await.map_err(of_body)? {
                    Some(bytes) => self.rest = bytes,
                    None => return self.ended().map(|()| None),
                }
            }
            let taken = match &mut self.chunks {
                None => std::mem::take(&mut self.rest),
                Some(chunks) => {
                    let mut left = &self.rest[..];
                    let count = chunks.next(&mut left).map_err(of_chunk)?;
                    let behind = self.rest.len() - left.len();
                    let taken = self.rest.split_to(behind);
                    match count {
                        None => continue,
                        Some(count) => taken.slice(taken.len() - count..),
                    }
                }
            };
            if taken.is_empty() {
                continue;
            }
            self.got += taken.len() as u64;
            if self.length.is_some_and(|length| self.got > length) {
                return Err(incomplete());
            }
            return Ok(Some(taken));
        }
    }

    fn ended(&mut self) -> Result<(), S3Error> {
        if self.length.is_some_and(|length| self.got != length) {
            return Err(incomplete());
        }
        let Some(chunks) = self.chunks.take() else {
            return Ok(());
        };
        let trailers = chunks.finish().map_err(of_chunk)?;
        for told in self.told.iter_mut().filter(|told| told.value.is_none()) {
            let found = trailers.iter().find(|(name, _)| name == told.name);
            let (_, text) = found.ok_or_else(|| bad_digest("the trailer did not come"))?;
            told.value = Some(hex_of(text).ok_or_else(|| bad_digest(told.name))?);
        }
        Ok(())
    }

    /// Compares what was told with what was found. Returns headers of checksums that hold.
    pub(super) fn compare(
        &mut self,
        found: &[(ChecksumAlgorithm, String)],
    ) -> Result<Vec<(&'static str, String)>, S3Error> {
        let mut held = Vec::new();
        for told in &self.told {
            let found = found.iter().find(|(of, _)| *of == told.algorithm);
            let found = found.map(|(_, value)| value);
            if found.is_none() || found != told.value.as_ref() {
                let code = match told.name {
                    CONTENT_SHA256 => "XAmzContentSHA256Mismatch",
                    _ => "BadDigest",
                };
                let text = format!("the bytes are not those of {}", told.name);
                return Err(S3Error::new(StatusCode::BAD_REQUEST, code, text));
            }
            if let Some(value) = found.filter(|_| told.name.starts_with("x-amz-checksum-")) {
                held.push((told.name, base64_of(value)));
            }
        }
        Ok(held)
    }

    /// A whole body of at most `bytes_max` bytes, which is that of its checksums.
    pub(super) async fn whole(mut self, bytes_max: usize) -> Result<Vec<u8>, S3Error> {
        let mut whole = Vec::new();
        let limit = self.limit;
        let reading = async {
            while let Some(bytes) = self.next().await? {
                if whole.len() + bytes.len() > bytes_max {
                    let text = format!("the body has more than {bytes_max} bytes");
                    let code = "MaxMessageLengthExceeded";
                    return Err(S3Error::new(StatusCode::BAD_REQUEST, code, text));
                }
                whole.extend_from_slice(&bytes);
            }
            Ok(())
        };
        let late = |_| {
            let text = "the body takes too long";
            Err(S3Error::new(
                StatusCode::BAD_REQUEST,
                "RequestTimeout",
                text,
            ))
        };
        tokio::time::timeout(limit, reading)
            .await
            .unwrap_or_else(late)?;
        let found: Vec<_> = (self.algorithms().into_iter())
            .map(|algorithm| {
                let mut digest = Digest::new(algorithm);
                digest.update(&whole);
                (algorithm, digest.finish())
            })
            .collect();
        self.compare(&found)?;
        Ok(whole)
    }
}

fn incomplete() -> S3Error {
    let text = "the body is not of the length that was said";
    S3Error::new(StatusCode::BAD_REQUEST, "IncompleteBody", text)
}

/// The connection has broken, or no byte comes.
fn of_body(refused: Rejected) -> S3Error {
    match refused.status {
        StatusCode::BAD_REQUEST => S3Error::new(refused.status, "IncompleteBody", refused.text()),
        _ => refused.into(),
    }
}

fn of_chunk(why: BadChunk) -> S3Error {
    let (status, code) = match why {
        BadChunk::Signature => (StatusCode::FORBIDDEN, "SignatureDoesNotMatch"),
        BadChunk::Malformed => (StatusCode::BAD_REQUEST, "IncompleteBody"),
        BadChunk::Large => (StatusCode::BAD_REQUEST, "InvalidRequest"),
    };
    S3Error::new(status, code, why.to_string())
}

/// The checksums of the headers, and those that come behind the body.
fn told(headers: &HeaderMap) -> Result<Vec<ToldChecksum>, S3Error> {
    let mut told = Vec::new();
    if let Some(value) = headers.get(CONTENT_MD5) {
        let value = value.to_str().ok().and_then(hex_of);
        let value = value.filter(|hex| hex.len() == 32);
        told.push(ToldChecksum {
            algorithm: ChecksumAlgorithm::Md5,
            name: CONTENT_MD5,
            value: Some(value.ok_or_else(|| bad_digest("Content-MD5 is none"))?),
        });
    }
    for (algorithm, name, _) in CHECKSUMS {
        if let Some(value) = headers.get(name) {
            let value = value.to_str().ok().and_then(hex_of);
            let value = Some(value.ok_or_else(|| bad_digest(name))?);
            told.push(ToldChecksum {
                algorithm,
                name,
                value,
            });
        }
    }
    for trailer in headers.get_all("x-amz-trailer") {
        let names = trailer.to_str().unwrap_or_default().split(',');
        for trailer in names.map(str::trim) {
            let known = CHECKSUMS
                .iter()
                .find(|(_, name, _)| name.eq_ignore_ascii_case(trailer));
            let Some((algorithm, name, _)) = known else {
                return Err(S3Error::not_implemented(&format!("the trailer {trailer}")));
            };
            if told.iter().any(|told| told.name == *name) {
                return Err(S3Error::argument("a checksum is told twice"));
            }
            told.push(ToldChecksum {
                algorithm: *algorithm,
                name,
                value: None,
            });
        }
    }
    Ok(told)
}

/// Of base64, which headers have.
fn hex_of(text: &str) -> Option<String> {
    let text = Some(text.trim()).filter(|text| text.len() <= SUM_BYTES_MAX)?;
    STANDARD.decode(text).ok().map(|bytes| hex(&bytes))
}

/// The header of a checksum that is known here.
pub(super) fn checksum_header(name: &str) -> Option<&'static str> {
    let mut headers = CHECKSUMS.iter().map(|(_, header, _)| *header);
    headers.find(|header| *header == name)
}

/// The base64 of hexadecimal digits.
pub(super) fn base64_of(digits: &str) -> String {
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .filter_map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok())
        .collect();
    STANDARD.encode(bytes)
}
