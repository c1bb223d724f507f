//! What objects are stored with besides their bytes: type, metadata of clients, checksums, and
//! times.
//!
//! They lie in one extended attribute of the file, where the file system has those; else they are
//! lost, as where another program changes the file, or puts another one in its place. The time of
//! modification is the file's own, as rclone and `godwit` tell it (`mtime`).

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_engine::storage::{FastPath, File, Metadata};
use godwit_http::s3::MTIME_HEADER;
use godwit_proto::error::StorageFailure;
use hyper::{
    HeaderMap,
    header::{
        CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, HeaderName,
    },
};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use serde::{Deserialize, Serialize};

use super::{
    super::answer::{HttpAnswer, set},
    payload::checksum_header,
    refused::S3Error,
};

/// Bytes of names and values: what services allow, and a type.
const NOTES_BYTES_MAX: usize = 2048;

const ATTRIBUTE: &str = "user.godwit.s3";

/// A header of requests that is to be answered with checksums.
const CHECKSUM_MODE: &str = "x-amz-checksum-mode";

/// The checksum that each object has.
pub(super) const CRC32C: &str = "x-amz-checksum-crc32c";

/// Type of an object that was stored without one.
const PLAIN: &str = "binary/octet-stream";

const META: &str = "x-amz-meta-";

/// Headers that are kept besides.
const KEPT: [HeaderName; 5] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    EXPIRES,
];

fn is_kept(name: &str) -> bool {
    name.starts_with(META) || KEPT.iter().any(|kept| name == kept)
}

/// What an object is stored with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Notes {
    /// Names in small letters, and values.
    headers: Vec<(String, String)>,
    /// The same of checksums of all bytes, in base64.
    checksums: Vec<(String, String)>,
    /// Seconds and nanoseconds since 1970.
    modified: Option<(u64, u32)>,
}

/// What the attribute has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    headers: Vec<(String, String)>,
    #[serde(default)]
    checksums: Vec<(String, String)>,
    /// Of the file that they describe: another program may write other bytes into it.
    size: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

impl Kept {
    fn describes(&self, metadata: &Metadata) -> bool {
        (self.size, self.modified) == (metadata.size, nanoseconds(metadata.modified))
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

impl Notes {
    /// Of a request that stores something.
    pub(super) fn of_request(headers: &HeaderMap) -> Result<Self, S3Error> {
        let mut notes = Self::default();
        let mut bytes = 0;
        for (name, value) in headers {
            let name = name.as_str();
            if !is_kept(name) {
                continue;
            }
            let unreadable = || S3Error::argument("metadata are in ASCII");
            let value = value.to_str().map_err(|_| unreadable())?;
            match (name, modified_of(value)) {
                (MTIME_HEADER, Some(modified)) => notes.modified = Some(modified),
                _ => {
                    bytes += name.len() + value.len();
                    notes.headers.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        match bytes <= NOTES_BYTES_MAX {
            true => Ok(notes),
            false => Err(S3Error::new(
                hyper::StatusCode::BAD_REQUEST,
                "MetadataTooLarge",
                "the metadata have more than 2048 bytes",
            )),
        }
    }

    /// The same with the time of what they were put to, which a copy keeps.
    pub(super) fn dated(mut self, metadata: &Metadata) -> Self {
        let since = metadata
            .modified
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok();
        self.modified = since.map(|since| (since.as_secs(), since.subsec_nanos()));
        self
    }

    /// The same with checksums of all bytes: their headers, and values in base64.
    pub(super) fn with_checksums(self, checksums: &[(&str, String)]) -> Self {
        let checksums = checksums.iter();
        let checksums = checksums.map(|(name, value)| ((*name).to_owned(), value.clone()));
        Self {
            checksums: checksums.collect(),
            ..self
        }
    }

    pub(super) fn modified(&self) -> Option<SystemTime> {
        let (seconds, nanoseconds) = self.modified?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
    }

    /// Puts them to an open file that has its bytes and its time, where it can have them. Blocks.
    pub(super) fn put(&self, file: &dyn File) -> Result<(), StorageFailure> {
        let FastPath::Descriptor(descriptor) = file.fast_path() else {
            return Ok(());
        };
        let metadata = file.metadata()?;
        let kept = Kept {
            headers: self.headers.clone(),
            checksums: self.checksums.clone(),
            size: metadata.size,
            modified: nanoseconds(metadata.modified),
        };
        let text = serde_json::to_vec(&kept).unwrap_or_default();
        // The file is as good without them.
        let _ = fsetxattr(descriptor, ATTRIBUTE, &text, XattrFlags::empty());
        Ok(())
    }

    /// Those of an open file. Blocks.
    pub(super) fn of_file(file: &dyn File, metadata: &Metadata) -> Self {
        let kept = match file.fast_path() {
            FastPath::Descriptor(descriptor) => {
                let mut text = vec![0; 4 * NOTES_BYTES_MAX];
                let count = fgetxattr(descriptor, ATTRIBUTE, &mut text[..]).unwrap_or(0);
                text.truncate(count);
                let kept = serde_json::from_slice::<Kept>(&text).ok();
                kept.filter(|kept| kept.describes(metadata))
            }
            _ => None,
        };
        kept.map_or_else(Self::default, |kept| Self {
            headers: kept.headers,
            checksums: kept.checksums,
            modified: None,
        })
    }

    /// Tells the checksums of the whole object, where a request wants them.
    pub(super) fn tell_checksums(&self, headers: &HeaderMap, answer: &mut HttpAnswer) {
        let mode = headers.get(CHECKSUM_MODE);
        if !mode.is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"ENABLED")) {
            return;
        }
        for (name, value) in &self.checksums {
            // Another program may have written the attribute.
            if let Some(name) = checksum_header(name).filter(|_| STANDARD.decode(value).is_ok()) {
                set(answer, HeaderName::from_static(name), value.clone());
                let kind = HeaderName::from_static("x-amz-checksum-type");
                set(answer, kind, "FULL_OBJECT");
            }
        }
    }

    /// Tells them.
    pub(super) fn describe(self, answer: &mut HttpAnswer, metadata: &Metadata) {
        set(answer, CONTENT_TYPE, PLAIN);
        for (name, value) in self.headers {
            // Another program may have written the attribute.
            let is_ours = is_kept(&name);
            if let Ok(name) = HeaderName::try_from(name)
                && is_ours
            {
                set(answer, name, value);
            }
        }
        let since = metadata.modified.duration_since(SystemTime::UNIX_EPOCH);
        if let Ok(since) = since {
            let text = match since.subsec_nanos() {
                0 => since.as_secs().to_string(),
                nanoseconds => format!("{}.{nanoseconds:09}", since.as_secs()),
            };
            set(answer, HeaderName::from_static(MTIME_HEADER), text);
        }
    }
}

/// Seconds, and a fraction of up to nine digits.
fn modified_of(text: &str) -> Option<(u64, u32)> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.len() > 12 || fraction.len() > 9 || !is_digits(seconds) || !is_digits(fraction) {
        return None;
    }
    let nanoseconds = format!("{fraction:0<9}").parse().ok()?;
    Some((seconds.parse().ok()?, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rclone() {
        for (text, expected) in [
            ("1354040105", Some((1_354_040_105, 0))),
            ("1354040105.5", Some((1_354_040_105, 500_000_000))),
            ("1354040105.000000001", Some((1_354_040_105, 1))),
            ("0", Some((0, 0))),
            ("", None),
            ("-1", None),
            ("1.-5", None),
            ("1.0000000001", None),
            ("9999999999999", None),
            ("2012-11-27T18:15:05Z", None),
        ] {
            assert_eq!(modified_of(text), expected, "{text}");
        }
    }

    #[test]
    fn metadata_are_bounded() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-a", "b".parse().unwrap());
        headers.insert("x-amz-acl", "private".parse().unwrap());
        headers.insert(MTIME_HEADER, "7".parse().unwrap());
        let notes = Notes::of_request(&headers).unwrap();
        assert_eq!(notes.headers, [("x-amz-meta-a".to_owned(), "b".to_owned())]);
        assert_eq!(notes.modified, Some((7, 0)));
        headers.insert("x-amz-meta-b", "b".repeat(NOTES_BYTES_MAX).parse().unwrap());
        let refused = Notes::of_request(&headers).unwrap_err();
        assert_eq!(refused.code, "MetadataTooLarge");
    }
}
