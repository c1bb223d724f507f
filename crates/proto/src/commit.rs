//! Giving a file its name in one step: `SITE GODWIT COMMIT`, an extension of ours
//! (docs/spec/commit.md).
//!
//! A client that stores under a temporary name needs CKSM, RNFR and RNTO behind each STOR, and for
//! the last two the answer to the first. This one command can follow its STOR at once, since the
//! server itself compares.

use crate::{checksum::ChecksumAlgorithm, path::FtpPath, timestamp::Timestamp};

/// What FEAT announces.
pub const FEATURE: &str = "X-GODWIT COMMIT";

/// `SITE GODWIT COMMIT facts path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The present name, in the directory of `path`.
    pub temporary: TemporaryName,
    /// What the file must be.
    pub expected: Expected,
    /// Its name from now on.
    pub path: FtpPath,
}

/// A name without a directory that can be a fact: no control byte, blank, `/`, `;` or DEL, and not
/// `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryName(Vec<u8>);

impl TemporaryName {
    /// `None` for any other bytes.
    pub fn new(name: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| !matches!(byte, 0..=b' ' | b'/' | b';' | 0x7f);
        let is_name = !name.is_empty() && name != b"." && name != b"..";
        (is_name && name.iter().all(is_plain)).then(|| Self(name.to_vec()))
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a file must be to get its name. Of nothing that is `None` or empty anything is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Bytes.
    pub size: Option<u64>,
    /// Algorithm and value in lower-case hexadecimal; each must be right.
    pub checksums: Vec<(ChecksumAlgorithm, String)>,
    /// Modification time to set.
    pub modify: Option<Timestamp>,
}
