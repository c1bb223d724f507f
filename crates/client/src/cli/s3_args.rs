//! Options for buckets.

use clap::Args;

use super::Resolved;
use crate::spec::buckets::{BucketOptions, Encryption, EncryptionMethod};

/// Characters of a storage class or of the id of a key: far more than any has.
const NAME_CHARS_MAX: usize = 2048;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct S3Args {
    /// Service of s3://. Without this option: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile,
    /// or AWS
    #[arg(long = "s3-endpoint", value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Its region. Without this option: AWS_REGION, AWS_DEFAULT_REGION, the profile, or us-east-1
    #[arg(long = "s3-region", value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// Storage class of objects that are made in buckets, as STANDARD_IA
    #[arg(long = "s3-storage-class", value_name = "NAME", value_parser = storage_class)]
    storage_class: Option<String>,
    /// How the service encrypts objects that are made: AES256, aws:kms or aws:kms:dsse. One that
    /// does not say that it has done so is an error
    #[arg(long = "s3-server-side-encryption", value_name = "METHOD", value_parser = method)]
    encryption: Option<EncryptionMethod>,
    /// The key for aws:kms
    #[arg(
        long = "s3-sse-kms-key-id",
        value_name = "ID",
        requires = "encryption",
        value_parser = key_id
    )]
    key: Option<String>,
    /// Pay for requests to buckets whose owners do not
    #[arg(long = "s3-requester-pays")]
    requester_pays: bool,
}

impl S3Args {
    pub(super) fn options(&self) -> Resolved<BucketOptions> {
        if self.encryption == Some(EncryptionMethod::Aes256) && self.key.is_some() {
            return Err("--s3-sse-kms-key-id: AES256 has no keys of users".to_owned());
        }
        let encryption = self.encryption.map(|method| Encryption {
            method,
            key: self.key.clone(),
        });
        Ok(BucketOptions {
            storage_class: self.storage_class.clone(),
            encryption,
            requester_pays: self.requester_pays,
            keeps_existing: false,
        })
    }

    /// The option that says something of objects that are made.
    pub(super) fn of_objects(&self) -> Option<&'static str> {
        match (&self.storage_class, self.encryption) {
            (Some(_), _) => Some("--s3-storage-class"),
            (None, Some(_)) => Some("--s3-server-side-encryption"),
            (None, None) => None,
        }
    }
}

fn storage_class(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("wanted the name of a storage class, as STANDARD_IA".to_owned()),
    }
}

fn key_id(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_graphic();
    match !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("wanted the id of a key".to_owned()),
    }
}

fn method(text: &str) -> Result<EncryptionMethod, String> {
    use EncryptionMethod::{Aes256, Kms, KmsTwice};
    let found = [Aes256, Kms, KmsTwice]
        .into_iter()
        .find(|method| method.as_str() == text);
    found.ok_or_else(|| "wanted AES256, aws:kms or aws:kms:dsse".to_owned())
}
