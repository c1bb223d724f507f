//! New proxies: for oneself (`godwit proxy init`) and for a peer (delegation).
//!
//! A peer never sees our key. It makes a key pair and a request ([`DelegationRequest`]); we sign
//! ([`sign_request`]); it puts its key, our signature and our chain together
//! ([`DelegationRequest::finish`]).

use std::time::{Duration, SystemTime};

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString};
use openssl::bn::BigNum;
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, PKeyRef, Private, Public};
use openssl::x509::{X509, X509Builder, X509Extension, X509Name, X509Req};

use super::certificate::{Certificate, asn1_time};
use super::extensions::{
    OID_INDEPENDENT, OID_INHERIT_ALL, OID_LIMITED, OID_PROXY_CERT_INFO, OID_PROXY_CERT_INFO_GT3,
    ProxyKind, ProxyPolicy,
};
use super::key::{self, KeyKind};
use super::{Credential, CredentialError};
use crate::der;

/// How far the beginning lies back, for peers whose clocks are late. As the Grid Community Toolkit
/// has it.
pub(super) const BACKDATED: Duration = Duration::from_secs(5 * 60);

/// The usual lifetime of a proxy made by hand.
pub const LIFETIME_DEFAULT: Duration = Duration::from_secs(12 * 60 * 60);

/// Largest request that is read, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Smallest RSA key that a peer may have a proxy for.
const PEER_RSA_BITS_MIN: u32 = 1024;
/// Largest: verifying gets slow beyond.
const PEER_RSA_BITS_MAX: u32 = 16_384;

/// What proxy to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRequest {
    /// The kind, where the issuer is no proxy; below a proxy it is the proxy's, for kinds do not
    /// mix.
    pub kind: ProxyKind,
    /// What it may do. Below a limited proxy `Impersonation` becomes `Limited`.
    pub policy: ProxyPolicy,
    /// How many proxies may follow; `None` is without bound. Legacy proxies cannot say.
    pub path_length: Option<u32>,
    /// How long it is valid, unless something above it ends earlier.
    pub lifetime: Duration,
}

impl Default for ProxyRequest {
    fn default() -> Self {
        Self {
            kind: ProxyKind::Rfc3820,
            policy: ProxyPolicy::Impersonation,
            path_length: None,
            lifetime: LIFETIME_DEFAULT,
        }
    }
}

impl ProxyRequest {
    /// What grid clients delegate by default.
    #[must_use]
    pub fn limited() -> Self {
        Self {
            policy: ProxyPolicy::Limited,
            ..Self::default()
        }
    }
}

/// A proxy with a new key, below this credential.
///
/// # Errors
/// When the issuer may not issue proxies (it has expired, is a CA, its path length is used up, its
/// key is not for signatures), or the key cannot be made.
pub fn create(
    issuer: &Credential,
    request: &ProxyRequest,
    key: KeyKind,
    now: SystemTime,
) -> Result<Credential, CredentialError> {
    let key = key.generate()?;
    let public = PKey::public_key_from_der(&key.public_key_to_der()?)?;
    let certificate = sign(issuer, &public, request, now)?;
    Credential::new(certificate, key, chain_below(issuer))
}

/// The certificate for a peer's request (PKCS#10, DER). Subject and extensions of the request say
/// nothing that counts.
///
/// # Errors
/// As [`create`]; also when the request cannot be read, is not signed by its own key, or has a key
/// that is too small.
pub fn sign_request(
    issuer: &Credential,
    request_der: &[u8],
    request: &ProxyRequest,
    now: SystemTime,
) -> Result<Certificate, CredentialError> {
    let fault = |fault| CredentialError::Request { fault };
    if request_der.len() > REQUEST_BYTES_MAX {
        return Err(fault("is too long"));
    }
    let asked = X509Req::from_der(request_der).map_err(|_| fault("cannot be read"))?;
    let public = asked
        .public_key()
        .map_err(|_| fault("has a key of an unknown kind"))?;
    if !asked.verify(&public).unwrap_or(false) {
        return Err(fault("is not signed by its own key"));
    }
    if public.id() == Id::RSA && !(PEER_RSA_BITS_MIN..=PEER_RSA_BITS_MAX).contains(&public.bits()) {
        return Err(fault("has an RSA key below 1024 or above 16384 bits"));
    }
    sign(issuer, &public, request, now)
}

/// As [`sign_request`] where both sides exchange text: the certificate for a request in PEM,
/// followed by `issuer` and its chain.
///
/// # Errors
/// As [`sign_request`].
pub fn sign_request_pem(
    issuer: &Credential,
    request_pem: &str,
    request: &ProxyRequest,
    now: SystemTime,
) -> Result<String, CredentialError> {
    let unreadable = CredentialError::Request {
        fault: "cannot be read",
    };
    let asked = X509Req::from_pem(request_pem.as_bytes()).map_err(|_| unreadable)?;
    let signed = sign_request(issuer, &asked.to_der()?, request, now)?;
    let mut pem = signed.as_x509().to_pem()?;
    for certificate in chain_below(issuer) {
        pem.extend(certificate.as_x509().to_pem()?);
    }
    String::from_utf8(pem).map_err(|_| CredentialError::CertificateMalformed)
}

/// The waiting side of a delegation: a new key, whose certificate the peer is asked to sign.
pub struct DelegationRequest {
    key: PKey<Private>,
    der: Vec<u8>,
}

impl DelegationRequest {
    /// Makes a key, and the request for it: P-256, whatever the peer's own key is. It costs next to
    /// nothing where RSA takes a fifth of a second, and all peers that were tried sign it and
    /// accept it on data channels.
    ///
    /// # Errors
    /// When the machine has no randomness.
    pub fn new() -> Result<Self, CredentialError> {
        Self::with_key(KeyKind::EcP256.generate()?)
    }

    /// The same with an existing key.
    ///
    /// # Errors
    /// When the key cannot sign.
    pub fn with_key(key: PKey<Private>) -> Result<Self, CredentialError> {
        let mut subject = X509Name::builder()?;
        // It is required, and has no meaning.
        subject.append_entry_by_nid(Nid::COMMONNAME, "proxy request")?;
        let mut request = X509Req::builder()?;
        request.set_version(0)?;
        request.set_subject_name(&subject.build())?;
        request.set_pubkey(&key)?;
        request.sign(&key, MessageDigest::sha256())?;
        let der = request.build().to_der()?;
        Ok(Self { key, der })
    }

    /// The request, PKCS#10 in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The request as text.
    ///
    /// # Errors
    /// When OpenSSL cannot write it.
    pub fn to_pem(&self) -> Result<String, CredentialError> {
        let pem = X509Req::from_der(&self.der)?.to_pem()?;
        String::from_utf8(pem).map_err(|_| CredentialError::CertificateMalformed)
    }

    /// The delegated credential, from what the peer signed and the chain that it has proven.
    ///
    /// # Errors
    /// When the certificate is not for this key, or not issued by the peer.
    pub fn finish(
        self,
        certificate_der: &[u8],
        peer_chain: &[Certificate],
    ) -> Result<Credential, CredentialError> {
        let certificate = Certificate::from_der(certificate_der)?;
        let issued = peer_chain.first().is_some_and(|peer| {
            certificate.proxy().is_some()
                && certificate.names_as_issuer(peer)
                && certificate.is_signed_by(peer)
        });
        if !issued {
            return Err(CredentialError::Issuer {
                subject: certificate.subject().to_string(),
                fault: "came back as a proxy, but is none of the peer's".to_owned(),
            });
        }
        match Credential::new(certificate, self.key, peer_chain.to_vec()) {
            Err(CredentialError::KeyMismatch { .. }) => Err(CredentialError::Delegated),
            other => other,
        }
    }
}

fn chain_below(issuer: &Credential) -> Vec<Certificate> {
    let mut chain = vec![issuer.certificate().clone()];
    chain.extend_from_slice(issuer.chain());
    chain
}

fn sign(
    issuer: &Credential,
    public: &PKeyRef<Public>,
    request: &ProxyRequest,
    now: SystemTime,
) -> Result<Certificate, CredentialError> {
    may_issue(issuer, now)?;
    let above = issuer.certificate();
    let kind = above.proxy().map_or(request.kind, |proxy| proxy.kind);
    let is_limited = above
        .proxy()
        .is_some_and(|proxy| proxy.policy == ProxyPolicy::Limited);
    let policy = match &request.policy {
        ProxyPolicy::Impersonation if is_limited => ProxyPolicy::Limited,
        policy => policy.clone(),
    };
    // Each proxy above leaves one less.
    let bound = above.proxy().and_then(|proxy| proxy.path_length);
    let bound = bound.map(|length| length.saturating_sub(1));
    let path_length = match (bound, request.path_length) {
        (Some(bound), Some(wanted)) => Some(bound.min(wanted)),
        (bound, wanted) => bound.or(wanted),
    };

    let serial = serial(public)?;
    let common_name = match (kind, &policy) {
        (ProxyKind::Legacy, ProxyPolicy::Impersonation) => "proxy".to_owned(),
        (ProxyKind::Legacy, ProxyPolicy::Limited) => "limited proxy".to_owned(),
        (ProxyKind::Legacy, _) => {
            return Err(CredentialError::Request {
                fault: "is for a legacy proxy, which can be full or limited only",
            });
        }
        _ => serial.to_string(),
    };
    let mut builder = X509Builder::new()?;
    builder.set_version(2)?;
    let issuer_name = above.as_x509().subject_name();
    builder.set_issuer_name(issuer_name)?;
    let subject = extended_name(&issuer_name.to_der()?, &common_name)?;
    builder.set_subject_name(&subject)?;
    if kind == ProxyKind::Legacy {
        builder.set_serial_number(above.as_x509().serial_number())?;
    } else {
        let serial = Asn1Integer::from_bn(&*BigNum::from_u32(serial)?)?;
        builder.set_serial_number(&serial)?;
    }
    let not_before = now.checked_sub(BACKDATED).unwrap_or(now);
    let not_after = now
        .checked_add(request.lifetime)
        .map_or(issuer.not_after(), |end| end.min(issuer.not_after()));
    builder.set_not_before(&*asn1_time(not_before)?)?;
    builder.set_not_after(&*asn1_time(not_after)?)?;
    builder.set_pubkey(public)?;
    if kind != ProxyKind::Legacy {
        builder.append_extension(proxy_cert_info(kind, &policy, path_length)?)?;
    }
    if let Some(usage) = above.extensions().key_usage {
        let content = usage.for_proxy().to_der();
        builder.append_extension(extension("2.5.29.15", true, &content)?)?;
    }
    if let Some((critical, content)) = &above.extensions().extended_key_usage {
        builder.append_extension(extension("2.5.29.37", *critical, content)?)?;
    }
    let digest = key::digest_for(issuer.key(), above.as_x509().signature_algorithm());
    builder.sign(issuer.key(), digest)?;
    let built: X509 = builder.build();
    // Read again, so that what we hold is what a peer will see.
    Certificate::from_der(&built.to_der()?)
}

fn may_issue(issuer: &Credential, now: SystemTime) -> Result<(), CredentialError> {
    let above = issuer.certificate();
    let refused = |fault: &str| {
        Err(CredentialError::Issuer {
            subject: above.subject().to_string(),
            fault: fault.to_owned(),
        })
    };
    if issuer.not_after() <= now {
        return refused("has expired and can issue no proxy");
    }
    if above.extensions().is_ca {
        return refused("is a CA and can issue no proxy");
    }
    if let Some(usage) = above.extensions().key_usage
        && !usage.digital_signature()
    {
        return refused("is not for signatures (key usage) and can issue no proxy");
    }
    match above.proxy() {
        Some(proxy) if proxy.path_length == Some(0) => {
            refused("has a path length of 0 and can issue no further proxy")
        }
        _ => Ok(()),
    }
}

/// 31 bits of the key's SHA-1, as the Grid Community Toolkit numbers proxies. Not a matter of
/// security.
fn serial(public: &PKeyRef<Public>) -> Result<u32, CredentialError> {
    let digest = hash(MessageDigest::sha1(), &public.public_key_to_der()?)?;
    let first = digest.iter().take(4);
    let number = first.fold(0_u32, |number, &byte| number << 8 | u32::from(byte));
    Ok(number & 0x7fff_ffff)
}

/// The name with one common name more. Built as DER, so that relative names of several attributes
/// stay together.
fn extended_name(name_der: &[u8], common_name: &str) -> Result<X509Name, CredentialError> {
    let malformed = |_| CredentialError::CertificateMalformed;
    let content = der::Reader::new(name_der)
        .expect(der::SEQUENCE)
        .map_err(malformed)?;
    const PRINTABLE_STRING: u8 = 0x13;
    let oid = der::write(der::OID, &[0x55, 4, 3]);
    let value = der::write(PRINTABLE_STRING, common_name.as_bytes());
    let added = der::write(der::SET, &der::write_sequence(&[&oid, &value]));
    Ok(X509Name::from_der(&der::write_sequence(&[
        content, &added,
    ]))?)
}

fn proxy_cert_info(
    kind: ProxyKind,
    policy: &ProxyPolicy,
    path_length: Option<u32>,
) -> Result<X509Extension, CredentialError> {
    let language = match policy {
        ProxyPolicy::Impersonation => OID_INHERIT_ALL,
        ProxyPolicy::Limited => OID_LIMITED,
        ProxyPolicy::Independent => OID_INDEPENDENT,
        ProxyPolicy::Other(language) => language,
    };
    let language = Asn1Object::from_str(language)?;
    let policy = der::write_sequence(&[&der::write(der::OID, language.as_slice())]);
    let length = path_length.map(der::write_unsigned);
    let (oid, content) = match (kind, length) {
        (ProxyKind::Gt3, Some(length)) => {
            let length = der::write(der::context(1), &length);
            (OID_PROXY_CERT_INFO_GT3, [policy, length].concat())
        }
        (ProxyKind::Gt3, None) => (OID_PROXY_CERT_INFO_GT3, policy),
        (_, length) => (
            OID_PROXY_CERT_INFO,
            [length.unwrap_or_default(), policy].concat(),
        ),
    };
    extension(oid, true, &der::write(der::SEQUENCE, &content))
}

fn extension(oid: &str, critical: bool, content: &[u8]) -> Result<X509Extension, CredentialError> {
    let content = Asn1OctetString::new_from_bytes(content)?;
    Ok(X509Extension::new_from_der(
        &*Asn1Object::from_str(oid)?,
        critical,
        &content,
    )?)
}
