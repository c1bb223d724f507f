//! Keys, and the digest that goes with them.

use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use openssl::rsa::Rsa;
use openssl::x509::X509AlgorithmRef;

use super::CredentialError;

/// How strong keys and signatures must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strength {
    /// RSA from 2048 bits, no SHA-1: as Debian's OpenSSL demands of the Grid Community Toolkit.
    #[default]
    Modern,
    /// RSA from 1024 bits, SHA-1 too: for peers with old Java libraries. MD5 is refused in any
    /// case.
    Legacy,
}

impl Strength {
    /// Least RSA key size in bits.
    #[must_use]
    pub fn rsa_bits_min(self) -> u32 {
        match self {
            Self::Modern => 2048,
            Self::Legacy => 1024,
        }
    }
}

/// What kind of key to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA of so many bits: what every peer understands. Bounds: [`RSA_BITS_MIN`] to
    /// [`RSA_BITS_MAX`].
    Rsa(u32),
    /// ECDSA over P-256: made in a moment, where all peers are of this decade. Who holds one cannot
    /// delegate to the reference server (13.24), which makes an RSA key of as many bits as the
    /// delegating key has.
    EcP256,
}

/// Shortest RSA key that is made: NIST SP 800-57 for use after 2013.
pub const RSA_BITS_MIN: u32 = 2048;
/// Longest RSA key that is made: more takes minutes.
pub const RSA_BITS_MAX: u32 = 4096;

impl KeyKind {
    /// A new key.
    ///
    /// # Errors
    /// When the size is out of bounds, or the machine has no randomness.
    pub fn generate(self) -> Result<PKey<Private>, CredentialError> {
        match self {
            Self::Rsa(bits) if (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) => {
                Ok(PKey::from_rsa(Rsa::generate(bits)?)?)
            }
            Self::Rsa(_) => Err(CredentialError::Request {
                fault: "names an RSA key size out of bounds (2048 to 4096 bits)",
            }),
            Self::EcP256 => {
                let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
                Ok(PKey::from_ec_key(EcKey::generate(&group)?)?)
            }
        }
    }
}

/// `RSA 2048` or `EC 256`, as `proxy info` shows it.
#[must_use]
pub fn describe<T: HasPublic>(key: &PKeyRef<T>) -> String {
    let family = match key.id() {
        Id::RSA | Id::RSA_PSS => "RSA",
        Id::EC => "EC",
        Id::ED25519 => "Ed25519",
        Id::ED448 => "Ed448",
        Id::DSA => "DSA",
        _ => "key",
    };
    format!("{family} {}", key.bits())
}

/// The digest of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digest {
    /// MD2, MD4, MD5: broken.
    Broken(&'static str),
    Sha1,
    /// SHA-2 and what came after; also schemes that bring their own.
    Good,
    Unknown,
}

/// The digest that a signature algorithm uses.
pub(crate) fn digest_of(algorithm: &X509AlgorithmRef) -> Digest {
    let nid = algorithm.object().nid();
    let Some(algorithms) = nid.signature_algorithms() else {
        return match nid {
            // Their parameters say more, and OpenSSL refuses what is weak in them.
            Nid::RSASSAPSS => Digest::Good,
            _ => match algorithm.object().to_string().as_str() {
                "ED25519" | "ED448" | "1.3.101.112" | "1.3.101.113" => Digest::Good,
                _ => Digest::Unknown,
            },
        };
    };
    match algorithms.digest {
        Nid::MD5 => Digest::Broken("MD5"),
        Nid::MD2 => Digest::Broken("MD2"),
        Nid::MD4 => Digest::Broken("MD4"),
        Nid::SHA1 => Digest::Sha1,
        // Ed25519 and RSASSA-PSS show up here with no digest of their own.
        _ => Digest::Good,
    }
}

/// The digest for a new signature: as in the issuer's own certificate where that is a good one,
/// else SHA-256. Keys that bring their own digest take none.
pub(crate) fn digest_for<T>(key: &PKeyRef<T>, issuer: &X509AlgorithmRef) -> MessageDigest {
    if matches!(key.id(), Id::ED25519 | Id::ED448) {
        return MessageDigest::null();
    }
    let digest = issuer.object().nid().signature_algorithms();
    match digest.map(|algorithms| algorithms.digest) {
        Some(Nid::SHA384) => MessageDigest::sha384(),
        Some(Nid::SHA512) => MessageDigest::sha512(),
        _ => MessageDigest::sha256(),
    }
}
