//! What services of S3 are asked for beside the bytes of files.

/// Options of all requests to buckets, and of all objects that are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketOptions {
    /// Letters, digits, `_` and `-`; `None`: that of the service, and of the source where an
    /// object is renamed.
    pub storage_class: Option<String>,
    /// How the service encrypts objects; `None`: as the bucket is set.
    pub encryption: Option<Encryption>,
    /// The user, and not the owner of the bucket, pays for requests.
    pub requester_pays: bool,
    /// An object that came after the files were compared is not replaced (`If-None-Match`): the
    /// copy fails.
    pub keeps_existing: bool,
}

/// How a service encrypts an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// With which keys.
    pub method: EncryptionMethod,
    /// The id of the key, of visible ASCII; `None`: that of the bucket or account. Not with
    /// [`EncryptionMethod::Aes256`].
    pub key: Option<String>,
}

/// Whose keys encrypt an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptionMethod {
    /// The service's own.
    Aes256,
    /// Those of its key management.
    Kms,
    /// The same, twice.
    KmsTwice,
}

impl EncryptionMethod {
    /// The value of `x-amz-server-side-encryption`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aes256 => "AES256",
            Self::Kms => "aws:kms",
            Self::KmsTwice => "aws:kms:dsse",
        }
    }
}
