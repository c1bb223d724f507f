//! Names of checksum algorithms as CKSM and SCKS spell them.

use std::{fmt, str::FromStr};

/// A checksum algorithm that CKSM or SCKS can name, upper case on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumAlgorithm {
    /// Adler-32 (RFC 1950), eight hex digits.
    Adler32,
    /// CRC-32C (RFC 3720 appendix B.4), eight hex digits.
    Crc32c,
    /// CRC-64 of NVM Express (NVM Command Set 5.2.1.3.4), as S3 has it, 16 hex digits.
    Crc64Nvme,
    /// CRC-32 (RFC 1952 section 8), eight hex digits.
    Crc32,
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-1 (RFC 3174).
    Sha1,
    /// SHA-256 (RFC 6234).
    Sha256,
    /// SHA-512 (RFC 6234).
    Sha512,
}

impl ChecksumAlgorithm {
    /// All algorithms, cheapest per byte first on a machine with CRC32 instructions.
    pub const ALL: [Self; 8] = [
        Self::Crc32c,
        Self::Adler32,
        Self::Crc64Nvme,
        Self::Crc32,
        Self::Sha1,
        Self::Md5,
        Self::Sha256,
        Self::Sha512,
    ];

    /// Name on the wire, e.g. `SHA256`.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::Adler32 => "ADLER32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Crc32 => "CRC32",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
        }
    }

    /// Length of the lower-case hexadecimal value, in digits.
    pub const fn hex_digits(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32c | Self::Crc32 => 8,
            Self::Crc64Nvme => 16,
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    /// A hexadecimal value as this algorithm writes it: lower case, with the leading zeros that
    /// some tools drop. `None` for anything else.
    pub fn normalize_value(self, value: &str) -> Option<String> {
        let digits = self.hex_digits();
        let hex = !value.is_empty() && value.bytes().all(|b| b.is_ascii_hexdigit());
        (hex && value.len() <= digits).then(|| {
            let mut whole = "0".repeat(digits - value.len());
            whole.push_str(value);
            whole.make_ascii_lowercase();
            whole
        })
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wire_name())
    }
}

/// The name given is no algorithm of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown checksum algorithm {0:?}")]
pub struct UnknownAlgorithm(pub String);

impl FromStr for ChecksumAlgorithm {
    type Err = UnknownAlgorithm;
    /// Case-insensitive; hyphens are ignored (`sha-256`).
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let letters = s.bytes().filter(|byte| *byte != b'-');
        let folded = letters.map(|byte| byte.to_ascii_uppercase());
        Self::ALL
            .into_iter()
            .find(|a| a.wire_name().bytes().eq(folded.clone()))
            .ok_or_else(|| UnknownAlgorithm(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_case_and_hyphens() {
        for a in ChecksumAlgorithm::ALL {
            assert_eq!(a.wire_name().to_lowercase().parse(), Ok(a));
        }
        assert_eq!("sha-256".parse(), Ok(ChecksumAlgorithm::Sha256));
        assert!("crc".parse::<ChecksumAlgorithm>().is_err());
    }

    #[test]
    fn values_get_their_zeros_back() {
        let adler = ChecksumAlgorithm::Adler32;
        assert_eq!(adler.normalize_value("2C0011").as_deref(), Some("002c0011"));
        for bad in ["", "123456789", "xyz", "0x12", "+1"] {
            assert_eq!(adler.normalize_value(bad), None, "{bad:?}");
        }
    }
}
