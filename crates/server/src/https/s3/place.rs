//! Where a bucket and an object are.

use godwit_http::s3::requests::{BadKey, ObjectTarget, check_key, is_bucket};
use godwit_proto::{FtpPath, temporary};
use hyper::StatusCode;

use super::refused::S3Error;
use crate::storage::leftovers::UPLOADS;

/// Where an object is, or would be.
#[derive(Clone, Debug)]
pub(super) struct ObjectPlace {
    pub(super) bucket: String,
    pub(super) key: Vec<u8>,
    pub(super) path: FtpPath,
    /// The key ends in a slash: a directory.
    pub(super) is_mark: bool,
}

impl ObjectPlace {
    pub(super) fn new(target: &ObjectTarget) -> Result<Self, S3Error> {
        let directory = bucket_path(&target.bucket)?;
        Self::within(&target.bucket, &directory, &target.key)
    }

    /// Of a key of the bucket at `directory`.
    pub(super) fn within(bucket: &str, directory: &FtpPath, key: &[u8]) -> Result<Self, S3Error> {
        let (below, is_mark) = check_key(key).map_err(|why| {
            let code = match why {
                BadKey::Long => "KeyTooLongError",
                _ => "InvalidArgument",
            };
            S3Error::new(StatusCode::BAD_REQUEST, code, why.to_string())
        })?;
        if below.split(|byte| *byte == b'/').any(is_hidden) {
            let text = "names of this kind are those of unfinished files";
            return Err(S3Error::argument(text));
        }
        let path = [directory.as_bytes(), b"/", below].concat();
        let path = FtpPath::new(path).map_err(|_| S3Error::argument("the key is no path"))?;
        Ok(Self {
            bucket: bucket.to_owned(),
            key: key.to_vec(),
            path,
            is_mark,
        })
    }

    /// As it stands in answers.
    pub(super) fn resource(&self) -> String {
        format!("/{}/{}", self.bucket, String::from_utf8_lossy(&self.key))
    }
}

/// What is no object, and in no listing.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name == UPLOADS.as_bytes() || temporary::is_temporary(name)
}

/// Directory of a bucket.
pub(super) fn bucket_path(name: &str) -> Result<FtpPath, S3Error> {
    let path = is_bucket(name).then(|| FtpPath::new(format!("/{name}")).ok());
    path.flatten().ok_or_else(S3Error::no_bucket)
}
