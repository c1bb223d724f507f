//! S3 without I/O: how a key stands in a request, parts of uploads, metadata of files, what
//! services answer ([`answers`]), keys that STS issues ([`sts`]), and signatures of requests
//! ([`signing`]). What only a service needs: requests ([`requests`]), bodies whose chunks are
//! signed ([`chunked`]), and how answers are written ([`written`]).
//!
//! Source: Amazon S3 API Reference, version 2006-03-01.

pub mod answers;
pub mod chunked;
pub mod requests;
pub mod signing;
pub mod sts;
pub mod written;

use std::ops::RangeInclusive;

use godwit_proto::ChecksumAlgorithm;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What signatures (AWS SigV4) keep as it is.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The same in a path.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Checksums, their headers, and their elements in descriptions of parts.
pub const CHECKSUMS: [(ChecksumAlgorithm, &str, &str); 5] = [
    (
        ChecksumAlgorithm::Crc32c,
        "x-amz-checksum-crc32c",
        "ChecksumCRC32C",
    ),
    (
        ChecksumAlgorithm::Crc64Nvme,
        "x-amz-checksum-crc64nvme",
        "ChecksumCRC64NVME",
    ),
    (
        ChecksumAlgorithm::Crc32,
        "x-amz-checksum-crc32",
        "ChecksumCRC32",
    ),
    (
        ChecksumAlgorithm::Sha1,
        "x-amz-checksum-sha1",
        "ChecksumSHA1",
    ),
    (
        ChecksumAlgorithm::Sha256,
        "x-amz-checksum-sha256",
        "ChecksumSHA256",
    ),
];

/// Bytes of an object that one PUT sends, at most.
pub const PUT_BYTES_MAX: u64 = 5 << 30;

/// Parts of an upload, at most.
pub const PARTS_MAX: u64 = 10_000;

/// Bytes of a part, at most. The least is 5 MiB, but for the last one.
pub const PART_BYTES_MAX: u64 = 5 << 30;

/// Parts that we make have whole MiB, and so many bytes where the bounds of services leave a
/// choice. The least that services take: a connection that has lost packets needs seconds for one,
/// and at the end all wait for it.
const MIB: u64 = 1 << 20;
const PART_BYTES_SMALL: u64 = 5 * MIB;
const PART_BYTES_LARGE: u64 = 64 * MIB;

/// Parts of an object that is between these: enough that all connections end together.
const PARTS_WANTED: u64 = 512;

/// The path of a request, of the bytes of one.
pub fn encoded_path(path: &[u8]) -> String {
    percent_encode(path, PATH).to_string()
}

/// `?name=value&...`, encoded. An empty value has no `=`.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let encoded = |text: &str| percent_encode(text.as_bytes(), UNRESERVED).to_string();
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
    let pairs: Vec<_> = pairs.iter().map(pair).collect();
    format!("?{}", pairs.join("&"))
}

/// Bytes of each part but the last of an object of `size` bytes; `None`: no upload has so many.
pub fn part_bytes(size: u64) -> Option<u64> {
    let wanted = size.div_ceil(PARTS_WANTED).next_multiple_of(MIB);
    let least = size.div_ceil(PARTS_MAX).checked_next_multiple_of(MIB)?;
    let bytes = wanted.clamp(PART_BYTES_SMALL, PART_BYTES_LARGE).max(least);
    (bytes <= PART_BYTES_MAX).then_some(bytes)
}

/// Header of an object's modification time, as rclone writes it.
pub const MTIME_HEADER: &str = "x-amz-meta-mtime";

/// Of the years 1 to 9999.
const MTIME_SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Header of its permission bits, as rclone writes them with `--metadata`.
pub const MODE_HEADER: &str = "x-amz-meta-mode";

/// The value of [`MTIME_HEADER`], of seconds since 1970.
pub fn mtime(seconds: i64) -> String {
    seconds.to_string()
}

/// The seconds of a value of [`MTIME_HEADER`], which may have a fraction; `None`: it is no time of
/// the years 1 to 9999.
pub fn read_mtime(value: &str) -> Option<i64> {
    let (seconds, fraction) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_early = seconds.starts_with('-') && fraction.bytes().any(|byte| byte != b'0');
    let seconds = seconds.parse::<i64>().ok()?.checked_sub(is_early.into())?;
    MTIME_SECONDS.contains(&seconds).then_some(seconds)
}

/// The value of [`MODE_HEADER`], of the permission bits of a file.
pub fn mode(bits: u32) -> String {
    format!("{:o}", 0o10_0000 | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_to_the_bounds_of_services() {
        for (size, bytes) in [
            (1, 5 << 20),
            (1 << 30, 5 << 20),
            (4 << 30, 8 << 20),
            (10 << 30, 20 << 20),
            (50 << 30, 64 << 20),
            (1 << 40, 105 << 20),
        ] {
            assert_eq!(part_bytes(size), Some(bytes), "{size}");
            assert!(size.div_ceil(bytes) <= PARTS_MAX);
        }
        let most = PARTS_MAX * PART_BYTES_MAX;
        assert_eq!(part_bytes(most), Some(PART_BYTES_MAX));
        for more in [most + 1, u64::MAX] {
            assert_eq!(part_bytes(more), None);
        }
    }

    #[test]
    fn keys_and_queries_are_encoded_as_signatures_want_it() {
        let path = encoded_path("/b/a b//../ü+~(1)".as_bytes());
        assert_eq!(path, "/b/a%20b//../%C3%BC%2B~%281%29");
        let query = query(&[("prefix", "a/&b"), ("uploads", "")]);
        assert_eq!(query, "?prefix=a%2F%26b&uploads=");
    }

    #[test]
    fn metadata_is_that_of_rclone() {
        assert_eq!(mtime(1_354_040_105), "1354040105");
        assert_eq!(mode(0o640), "100640");
    }

    #[test]
    fn times_are_read_in_whole_seconds() {
        for (value, seconds) in [
            ("1354040105.123456789", Some(1_354_040_105)),
            (" 12 ", Some(12)),
            ("-1.5", Some(-2)),
            ("-1.0", Some(-1)),
            ("1e9", None),
            ("1.2.3", None),
            ("1.-2", None),
            ("", None),
            ("9223372036854775807", None),
            ("-9223372036854775808.1", None),
        ] {
            assert_eq!(read_mtime(value), seconds, "{value}");
        }
    }
}
