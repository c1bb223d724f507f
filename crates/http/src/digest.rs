//! Checksums in headers: `Want-Digest` and `Digest` (RFC 3230), `Want-Repr-Digest` and
//! `Repr-Digest` (RFC 9530).
//!
//! RFC 3230 writes Adler-32 and CRCs as hexadecimal digits and hashes as base64; RFC 9530 writes
//! each value as base64 between colons.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_proto::ChecksumAlgorithm;

/// Items of a list that are read.
const ITEMS_MAX: usize = 32;

/// A checksum, in lower-case hexadecimal.
pub type Checksum = (ChecksumAlgorithm, String);

/// Name under RFC 3230, as the IANA has it registered, and under RFC 9530.
const NAMES: [(ChecksumAlgorithm, &str, &str); 6] = [
    (ChecksumAlgorithm::Adler32, "adler32", "adler"),
    (ChecksumAlgorithm::Crc32c, "crc32c", "crc32c"),
    (ChecksumAlgorithm::Md5, "md5", "md5"),
    (ChecksumAlgorithm::Sha1, "sha", "sha"),
    (ChecksumAlgorithm::Sha256, "sha-256", "sha-256"),
    (ChecksumAlgorithm::Sha512, "sha-512", "sha-512"),
];

/// Which header a checksum stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `Digest` and `Want-Digest`.
    Rfc3230,
    /// `Repr-Digest` and `Want-Repr-Digest`.
    Rfc9530,
}

impl Form {
    fn algorithm(self, name: &str) -> Option<ChecksumAlgorithm> {
        let name = name.trim();
        let found = NAMES.iter().find(|(_, old, new)| match self {
            Self::Rfc3230 => old.eq_ignore_ascii_case(name),
            // Keys of a dictionary are in lower case (RFC 8941 §3.2).
            Self::Rfc9530 => *new == name,
        });
        found.map(|(algorithm, ..)| *algorithm)
    }

    fn name(self, algorithm: ChecksumAlgorithm) -> &'static str {
        let found = NAMES.iter().find(|(of, ..)| *of == algorithm);
        found.map_or("", |(_, old, new)| match self {
            Self::Rfc3230 => old,
            Self::Rfc9530 => new,
        })
    }

    /// All that we know, as the value of a header that offers them.
    pub fn offer(self) -> String {
        let names = NAMES
            .iter()
            .enumerate()
            .map(|(rank, (_, old, new))| match self {
                Self::Rfc3230 => (*old).to_owned(),
                Self::Rfc9530 => format!("{new}={}", 10 - rank),
            });
        names.collect::<Vec<_>>().join(", ")
    }

    /// The algorithms of a header that offers them which we know, in its order.
    pub fn offered(self, header: &str) -> Vec<ChecksumAlgorithm> {
        let items = header.split(',').take(ITEMS_MAX);
        let name = |item: &'_ str| item.split([';', '=']).next().unwrap_or_default().to_owned();
        items
            .filter_map(|item| self.algorithm(&name(item)))
            .collect()
    }

    /// The algorithm that a client prefers among those that we know; unknown ones are left out.
    pub fn preferred(self, wanted: &str) -> Option<ChecksumAlgorithm> {
        let items = wanted.split(',').take(ITEMS_MAX);
        let known = items.filter_map(|item| match self {
            Self::Rfc3230 => {
                let (name, parameter) = item.split_once(';').unwrap_or((item, ""));
                let weight = parameter.trim().strip_prefix("q=").unwrap_or("1");
                let weight: f64 = weight.trim().parse().unwrap_or(0.0);
                Some((self.algorithm(name)?, weight))
            }
            Self::Rfc9530 => {
                let (name, weight) = item.split_once('=')?;
                let weight: u8 = weight.trim().parse().ok().filter(|weight| *weight <= 10)?;
                Some((self.algorithm(name)?, f64::from(weight)))
            }
        });
        let mut best: Option<(ChecksumAlgorithm, f64)> = None;
        for (algorithm, weight) in known.filter(|(_, weight)| *weight > 0.0) {
            // The first of equals.
            if best.is_none_or(|(_, before)| weight > before) {
                best = Some((algorithm, weight));
            }
        }
        best.map(|(algorithm, _)| algorithm)
    }

    /// The value of the header. `hex`: as [`ChecksumAlgorithm`] writes it.
    pub fn write(self, algorithm: ChecksumAlgorithm, hex: &str) -> String {
        let name = self.name(algorithm);
        let base64 = || STANDARD.encode(bytes_of(hex).unwrap_or_default());
        match (self, is_hex(algorithm)) {
            (Self::Rfc3230, true) => format!("{name}={hex}"),
            (Self::Rfc3230, false) => format!("{name}={}", base64()),
            (Self::Rfc9530, _) => format!("{name}=:{}:", base64()),
        }
    }

    /// The checksums of a header that we know.
    ///
    /// # Errors
    /// One of those is malformed: it must not count as one that was not there.
    pub fn read(self, header: &str) -> Result<Vec<Checksum>, BadDigest> {
        let mut found = Vec::new();
        for item in header.split(',').take(ITEMS_MAX) {
            let Some((name, value)) = item.split_once('=') else {
                continue;
            };
            let Some(algorithm) = self.algorithm(name) else {
                continue;
            };
            let value = value.trim();
            let hex = match (self, is_hex(algorithm)) {
                (Self::Rfc3230, true) => algorithm.normalize_value(value),
                (Self::Rfc3230, false) => hex_of(value),
                (Self::Rfc9530, _) => value
                    .strip_prefix(':')
                    .and_then(|value| value.strip_suffix(':'))
                    .and_then(hex_of),
            };
            let hex = hex.filter(|hex| hex.len() == algorithm.hex_digits());
            found.push((algorithm, hex.ok_or(BadDigest)?));
        }
        Ok(found)
    }
}

/// A checksum in a header is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a checksum of the request is malformed")]
pub struct BadDigest;

fn is_hex(algorithm: ChecksumAlgorithm) -> bool {
    use ChecksumAlgorithm::{Adler32, Crc32c};
    matches!(algorithm, Adler32 | Crc32c)
}

fn hex_of(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| std::str::from_utf8(pair).ok());
    pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChecksumAlgorithm::*;

    #[test]
    fn what_is_offered_is_read() {
        for form in [Form::Rfc3230, Form::Rfc9530] {
            assert_eq!(form.offered(&form.offer()).len(), NAMES.len());
            assert_eq!(form.preferred(&form.offer()), Some(NAMES[0].0));
        }
        let told = Form::Rfc3230.offered("unixsum;q=1, MD5;q=0.3,adler32");
        assert_eq!(told, [ChecksumAlgorithm::Md5, ChecksumAlgorithm::Adler32]);
    }

    #[test]
    fn the_preferred_algorithm_is_one_that_is_known() {
        for (form, wanted, preferred) in [
            (Form::Rfc3230, "ADLER32", Some(Adler32)),
            (
                Form::Rfc3230,
                "md5;q=0.3, adler32;q=0.5, crc32",
                Some(Adler32),
            ),
            (Form::Rfc3230, "sha-256, adler32", Some(Sha256)),
            (Form::Rfc3230, "crc32, unixsum", None),
            (Form::Rfc3230, "md5;q=0", None),
            (Form::Rfc3230, "md5;q=NaN", None),
            (Form::Rfc3230, "", None),
            (Form::Rfc9530, "sha-256=5, adler=10", Some(Adler32)),
            (Form::Rfc9530, "sha-512=0", None),
            (Form::Rfc9530, "sha-512=11", None),
            (Form::Rfc9530, "SHA-512=1", None),
            (Form::Rfc9530, "sha-512", None),
        ] {
            assert_eq!(form.preferred(wanted), preferred, "{wanted}");
        }
    }

    #[test]
    fn values_are_hexadecimal_or_base64() {
        let md5 = "900150983cd24fb0d6963f7d28e17f72";
        for (form, algorithm, hex, text) in [
            (Form::Rfc3230, Adler32, "0cc737eb", "adler32=0cc737eb"),
            (Form::Rfc9530, Adler32, "0cc737eb", "adler=:DMc36w==:"),
            (Form::Rfc3230, Crc32c, "e3069283", "crc32c=e3069283"),
            (Form::Rfc3230, Md5, md5, "md5=kAFQmDzST7DWlj99KOF/cg=="),
            (Form::Rfc9530, Md5, md5, "md5=:kAFQmDzST7DWlj99KOF/cg==:"),
        ] {
            assert_eq!(form.write(algorithm, hex), text);
            assert_eq!(
                form.read(text),
                Ok(vec![(algorithm, hex.to_owned())]),
                "{text}"
            );
        }
    }

    #[test]
    fn malformed_checksums_are_not_taken_for_absent_ones() {
        for text in [
            "adler32=xyz",
            "adler32=",
            "md5=AAAA",
            "md5=!",
            "sha-256=:AA==:",
        ] {
            assert_eq!(Form::Rfc3230.read(text), Err(BadDigest), "{text}");
        }
        for text in [
            "adler=DMc36w==",
            "adler=:DMc36w==",
            "adler=:DMc3:",
            "adler=?1",
        ] {
            assert_eq!(Form::Rfc9530.read(text), Err(BadDigest), "{text}");
        }
        for text in ["", "unixsum=5", "crc32=00", "adler32"] {
            assert_eq!(Form::Rfc3230.read(text), Ok(Vec::new()), "{text}");
        }
        let short = Form::Rfc3230.read("ADLER32=1, unixsum=1");
        assert_eq!(short, Ok(vec![(Adler32, "00000001".to_owned())]));
    }
}
