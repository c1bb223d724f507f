//! A certificate, the key that belongs to it, and the certificates above it.

use std::fmt;
use std::time::SystemTime;

use openssl::pkey::{Id, PKey, Private};
use openssl::x509::X509;

use super::certificate::Certificate;
use super::contexts::Contexts;
use super::extensions::ProxyPolicy;
use super::{CredentialError, key};
use crate::name::DistinguishedName;

/// Most certificates in one chain: proxies of proxies and all CAs. Chosen well above any seen.
pub const CHAIN_MAX: usize = 32;

/// What one proves an identity with.
#[derive(Clone)]
pub struct Credential {
    certificate: Certificate,
    key: PKey<Private>,
    chain: Vec<Certificate>,
    contexts: Contexts,
}

/// What `godwit proxy info` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialInfo {
    /// The certificate's own name.
    pub subject: DistinguishedName,
    /// Who issued it.
    pub issuer: DistinguishedName,
    /// Whom it stands for.
    pub identity: DistinguishedName,
    /// `RFC 3820 proxy, limited` or `certificate`.
    pub kind: String,
    /// `RSA 2048`.
    pub key: String,
    /// Until when all of it is valid.
    pub not_after: SystemTime,
}

impl Credential {
    /// Puts a credential together.
    ///
    /// # Errors
    /// When the key is not the certificate's, or the chain exceeds [`CHAIN_MAX`].
    pub fn new(
        certificate: Certificate,
        key: PKey<Private>,
        chain: Vec<Certificate>,
    ) -> Result<Self, CredentialError> {
        if chain.len() >= CHAIN_MAX {
            return Err(CredentialError::ChainTooLong { max: CHAIN_MAX });
        }
        if !certificate.public_key()?.public_eq(&key) {
            return Err(CredentialError::KeyMismatch {
                subject: certificate.subject().to_string(),
            });
        }
        Ok(Self {
            certificate,
            key,
            chain,
            contexts: Contexts::default(),
        })
    }

    /// Reads a credential from PEM: the first certificate is its own, the others are its chain. The
    /// key may lie in the same text, as in a proxy file, or in another.
    ///
    /// # Errors
    /// When a part is missing or does not fit the other, or the key is encrypted and `passphrase`
    /// does not open it.
    pub fn from_pem(
        certificates: &[u8],
        key: &[u8],
        passphrase: Option<&[u8]>,
    ) -> Result<Self, CredentialError> {
        let mut certificates = certificates_from_pem(certificates)?.into_iter();
        let certificate = certificates.next().ok_or(CredentialError::NoCertificate)?;
        let key = key_from_pem(key, passphrase)?;
        Self::new(certificate, key, certificates.collect())
    }

    /// A proxy file: certificate, key, chain (the order that every grid tool reads). Holds the key:
    /// see [`super::files::write_private`].
    ///
    /// # Errors
    /// When OpenSSL cannot write keys of this kind.
    pub fn to_pem(&self) -> Result<Vec<u8>, CredentialError> {
        let mut pem = self.certificate.as_x509().to_pem()?;
        // Old tools know PKCS#1 only.
        pem.extend(match self.key.id() {
            Id::RSA => self.key.rsa()?.private_key_to_pem()?,
            _ => self.key.private_key_to_pem_pkcs8()?,
        });
        for certificate in &self.chain {
            pem.extend(certificate.as_x509().to_pem()?);
        }
        Ok(pem)
    }

    /// The certificate that the key belongs to.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The certificates above it, nearest first.
    #[must_use]
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &PKey<Private> {
        &self.key
    }

    /// What TLS has made of it.
    pub(crate) fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    /// Whom it stands for: the subject of the certificate below which there are only proxies that
    /// inherit.
    #[must_use]
    pub fn identity(&self) -> DistinguishedName {
        let mut holder = &self.certificate;
        for _ in 0..self.chain.len() {
            if !inherits(holder) {
                break;
            }
            match self
                .chain
                .iter()
                .find(|other| holder.names_as_issuer(other))
            {
                Some(issuer) => holder = issuer,
                None => return holder.issuer().clone(),
            }
        }
        holder.subject().clone()
    }

    /// Until when it and everything above it is valid.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.chain
            .iter()
            .map(Certificate::not_after)
            .fold(self.certificate.not_after(), SystemTime::min)
    }

    /// From when on it and everything above it is valid.
    #[must_use]
    pub fn not_before(&self) -> SystemTime {
        self.chain
            .iter()
            .map(Certificate::not_before)
            .fold(self.certificate.not_before(), SystemTime::max)
    }

    /// What a user wants to know of it.
    #[must_use]
    pub fn info(&self) -> CredentialInfo {
        let kind = match self.certificate.proxy() {
            None => "certificate".to_owned(),
            Some(proxy) => {
                let policy = match &proxy.policy {
                    ProxyPolicy::Impersonation => "full",
                    ProxyPolicy::Limited => "limited",
                    ProxyPolicy::Independent => "independent",
                    ProxyPolicy::Other(language) => language,
                };
                format!("{} proxy, {policy}", proxy.kind.name())
            }
        };
        CredentialInfo {
            subject: self.certificate.subject().clone(),
            issuer: self.certificate.issuer().clone(),
            identity: self.identity(),
            kind,
            key: key::describe(&self.key),
            not_after: self.not_after(),
        }
    }
}

/// Without the key.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("certificate", &self.certificate)
            .field("key", &"***")
            .field("chain", &self.chain)
            .finish()
    }
}

/// A proxy that acts as its issuer.
pub(crate) fn inherits(certificate: &Certificate) -> bool {
    certificate
        .proxy()
        .is_some_and(|proxy| proxy.policy != ProxyPolicy::Independent)
}

/// All certificates of a PEM text; other parts of it are passed over.
///
/// # Errors
/// When one cannot be read, or there are more than [`CHAIN_MAX`].
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<Certificate>, CredentialError> {
    let certificates =
        X509::stack_from_pem(pem).map_err(|_| CredentialError::CertificateMalformed)?;
    if certificates.len() > CHAIN_MAX {
        return Err(CredentialError::ChainTooLong { max: CHAIN_MAX });
    }
    certificates.into_iter().map(Certificate::new).collect()
}

fn key_from_pem(pem: &[u8], passphrase: Option<&[u8]>) -> Result<PKey<Private>, CredentialError> {
    let has = |needle: &[u8]| pem.windows(needle.len()).any(|window| window == needle);
    if !has(b"PRIVATE KEY-----") {
        return Err(CredentialError::NoKey);
    }
    // Without a callback of ours OpenSSL would ask on the terminal.
    let key = PKey::private_key_from_pem_callback(pem, |buffer| match passphrase {
        Some(passphrase) if passphrase.len() <= buffer.len() => {
            buffer[..passphrase.len()].copy_from_slice(passphrase);
            Ok(passphrase.len())
        }
        _ => Ok(0),
    });
    key.map_err(|_| {
        if has(b"ENCRYPTED") {
            CredentialError::Passphrase
        } else {
            CredentialError::KeyMalformed
        }
    })
}
