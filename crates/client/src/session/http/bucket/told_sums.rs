//! Checksums that a service sent with an object. The check after a download of a whole object
//! needs no request of its own.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use godwit_http::s3::CHECKSUMS;
use godwit_http_client::Answer;
use godwit_proto::ChecksumAlgorithm;
use parking_lot::Mutex;

/// A header of requests: the service is to tell what it has.
pub(in crate::session::http) const MODE: (&str, &str) = ("x-amz-checksum-mode", "ENABLED");

/// Objects that are remembered, at most.
const OBJECTS_MAX: usize = 1024;

/// How long it is kept. A file is checked directly after its download, or not at all.
const KEPT: Duration = Duration::from_secs(30);

/// What came with fetched objects and has not been used yet. The key is the target of the request.
pub(in crate::session::http) struct AnswerCache<T>(Mutex<HashMap<String, (Instant, T)>>);

impl<T> Default for AnswerCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> AnswerCache<T> {
    pub(in crate::session::http) fn keep(&self, target: &str, told: T) {
        let mut kept = self.0.lock();
        if kept.len() >= OBJECTS_MAX {
            kept.clear();
        }
        kept.insert(target.to_owned(), (Instant::now(), told));
    }

    pub(super) fn take(&self, target: &str) -> Option<T> {
        let (since, told) = self.0.lock().remove(target)?;
        (since.elapsed() < KEPT).then_some(told)
    }
}

/// The checksums of all bytes of an object, as its service computed them.
pub(in crate::session::http) struct ObjectSums([(ChecksumAlgorithm, Option<Vec<u8>>); 5]);

impl ObjectSums {
    /// What a service has of an object that came in parts may be a checksum of their checksums,
    /// and is no such sum.
    pub(in crate::session::http) fn read(answer: &Answer) -> Self {
        // Where that is not told, an object that came in parts has a tag that ends in their number.
        let tag = answer.header("etag").unwrap_or_default();
        let is_whole = match answer.header("x-amz-checksum-type") {
            Some(kind) => kind == "FULL_OBJECT",
            None => !tag.contains('-'),
        };
        Self(CHECKSUMS.map(|(algorithm, name, _)| {
            let value = answer.header(name).filter(|_| is_whole);
            // One of parts ends in their number, and is no base64.
            let value = value.and_then(|value| STANDARD.decode(value).ok());
            (algorithm, value)
        }))
    }

    /// In hexadecimal digits.
    pub(super) fn of(&self, algorithm: ChecksumAlgorithm) -> Option<String> {
        let (_, sum) = self.0.iter().find(|(of, _)| *of == algorithm)?;
        let sum = sum.as_ref()?;
        Some(sum.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether services tell such sums at all.
    pub(super) fn may_have(algorithm: ChecksumAlgorithm) -> bool {
        CHECKSUMS.iter().any(|(known, ..)| *known == algorithm)
    }
}
