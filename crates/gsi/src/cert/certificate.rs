//! One certificate, with what GSI asks of it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::pkey::{PKey, Public};
use openssl::x509::X509;

use super::CredentialError;
use super::extensions::{self, Extensions, ProxyInfo, ProxyKind, ProxyPolicy};
use crate::name::DistinguishedName;

/// Largest certificate that is read, in bytes of DER. Real ones have one or two thousand.
pub const DER_BYTES_MAX: usize = 64 * 1024;

/// The identifier of commonName.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// A certificate that was taken apart once.
#[derive(Clone)]
pub struct Certificate {
    x509: X509,
    subject: DistinguishedName,
    issuer: DistinguishedName,
    extensions: Extensions,
    proxy: Option<ProxyInfo>,
    extends_issuer: bool,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Certificate {
    /// Reads DER.
    ///
    /// # Errors
    /// When it is no certificate, has an extension twice or one that cannot be read, or exceeds
    /// [`DER_BYTES_MAX`].
    pub fn from_der(der: &[u8]) -> Result<Self, CredentialError> {
        if der.len() > DER_BYTES_MAX {
            return Err(CredentialError::CertificateMalformed);
        }
        let x509 = X509::from_der(der).map_err(|_| CredentialError::CertificateMalformed)?;
        Self::new(x509)
    }

    /// Takes a certificate apart that OpenSSL has read.
    ///
    /// # Errors
    /// As [`Certificate::from_der`].
    pub fn new(x509: X509) -> Result<Self, CredentialError> {
        let malformed = CredentialError::CertificateMalformed;
        let der = x509.to_der()?;
        if der.len() > DER_BYTES_MAX {
            return Err(malformed);
        }
        let Ok(parts) = extensions::parts(&der) else {
            return Err(malformed);
        };
        let (Ok(issuer), Ok(subject)) = (
            extensions::relative_names(parts.issuer),
            extensions::relative_names(parts.subject),
        ) else {
            return Err(malformed);
        };
        // RFC 3820 §3.4: the subject of a proxy is its issuer's and one common name more.
        let added = subject.strip_prefix(issuer.as_slice());
        let added_name = match added {
            Some([rdn]) => match rdn.as_slice() {
                [(oid, value)] if oid == COMMON_NAME => Some(value.as_slice()),
                _ => None,
            },
            _ => None,
        };
        let legacy_policy = match added_name {
            Some(b"proxy") => Some(ProxyPolicy::Impersonation),
            Some(b"limited proxy") => Some(ProxyPolicy::Limited),
            _ => None,
        };
        let extends_issuer = added_name.is_some() && !issuer.is_empty();
        let proxy = parts.extensions.proxy.clone().or_else(|| {
            legacy_policy.map(|policy| ProxyInfo {
                kind: ProxyKind::Legacy,
                policy,
                path_length: None,
                has_policy_text: false,
                critical: true,
            })
        });
        let extensions = parts.extensions;
        Ok(Self {
            subject: DistinguishedName::from_x509(x509.subject_name()),
            issuer: DistinguishedName::from_x509(x509.issuer_name()),
            not_before: system_time(x509.not_before()).ok_or(malformed.clone())?,
            not_after: system_time(x509.not_after()).ok_or(malformed)?,
            extensions,
            proxy,
            extends_issuer,
            x509,
        })
    }

    /// Whose it is.
    #[must_use]
    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// Who issued it.
    #[must_use]
    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// What makes it a proxy, if it is one.
    #[must_use]
    pub fn proxy(&self) -> Option<&ProxyInfo> {
        self.proxy.as_ref()
    }

    /// The other extensions.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The subject is the issuer and one common name more.
    #[must_use]
    pub fn extends_issuer(&self) -> bool {
        self.extends_issuer
    }

    /// Issuer and subject are the same, as in the certificate of a root CA.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        same_name(self.x509.subject_name(), self.x509.issuer_name())
    }

    /// The other one's subject is this one's issuer. Says nothing of the signature.
    #[must_use]
    pub fn names_as_issuer(&self, other: &Self) -> bool {
        same_name(self.x509.issuer_name(), other.x509.subject_name())
    }

    /// The signature is by this certificate's key.
    #[must_use]
    pub fn is_signed_by(&self, issuer: &Self) -> bool {
        issuer
            .public_key()
            .is_ok_and(|key| self.x509.verify(&key).unwrap_or(false))
    }

    /// From when it is valid.
    #[must_use]
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Until when it is valid.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The subject's hash, as files of a CA directory are named after it.
    #[must_use]
    pub fn subject_hash(&self) -> u32 {
        self.x509.subject_name_hash()
    }

    /// The issuer's hash.
    #[must_use]
    pub fn issuer_hash(&self) -> u32 {
        self.x509.issuer_name_hash()
    }

    /// The key of the subject.
    ///
    /// # Errors
    /// When OpenSSL does not know keys of this kind.
    pub fn public_key(&self) -> Result<PKey<Public>, CredentialError> {
        Ok(self.x509.public_key()?)
    }

    /// DER.
    ///
    /// # Errors
    /// When OpenSSL runs out of memory.
    pub fn to_der(&self) -> Result<Vec<u8>, CredentialError> {
        Ok(self.x509.to_der()?)
    }

    /// As OpenSSL holds it.
    #[must_use]
    pub fn as_x509(&self) -> &X509 {
        &self.x509
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        match (self.x509.to_der(), other.x509.to_der()) {
            (Ok(one), Ok(two)) => one == two,
            _ => false,
        }
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("subject", &self.subject)
            .field("issuer", &self.issuer)
            .field("proxy", &self.proxy)
            .finish_non_exhaustive()
    }
}

fn same_name(one: &openssl::x509::X509NameRef, other: &openssl::x509::X509NameRef) -> bool {
    one.try_cmp(other).is_ok_and(std::cmp::Ordering::is_eq)
}

/// A time of ASN.1. Before 1970 counts as 1970.
pub(crate) fn system_time(time: &Asn1TimeRef) -> Option<SystemTime> {
    const DAY: i64 = 24 * 60 * 60;
    let epoch = Asn1Time::from_unix(0).ok()?;
    let difference = epoch.diff(time).ok()?;
    let seconds = i64::from(difference.days) * DAY + i64::from(difference.secs);
    let seconds = u64::try_from(seconds).unwrap_or(0);
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The other way round, whole seconds.
pub(crate) fn asn1_time(time: SystemTime) -> Result<Asn1Time, CredentialError> {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Ok(Asn1Time::from_unix(seconds)?)
}
