//! Certification authorities, users and hosts for tests, good ones and every kind of bad one.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::{Certificate, Credential};
use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509Extension, X509Name};

pub(crate) const HOUR: i64 = 3600;
pub(crate) const DAY: i64 = 24 * HOUR;

/// The moment at which tests that meet no clock happen: in 2027.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A certificate to be, with every field in reach.
#[derive(Clone)]
pub(crate) struct Blueprint {
    pub(crate) subject: Vec<(String, String)>,
    pub(crate) key: PKey<Private>,
    pub(crate) now: SystemTime,
    /// Seconds before and after `now`.
    pub(crate) valid: (i64, i64),
    pub(crate) version: i32,
    pub(crate) serial: u32,
    pub(crate) digest: MessageDigest,
    pub(crate) extensions: Vec<(String, bool, Vec<u8>)>,
}

pub(crate) const CA_TRUE: &[u8] = &[0x30, 3, 1, 1, 0xff];
pub(crate) const CA_TRUE_LENGTH_0: &[u8] = &[0x30, 6, 1, 1, 0xff, 2, 1, 0];
/// keyCertSign and cRLSign.
pub(crate) const USAGE_CA: &[u8] = &[3, 2, 1, 0x06];
/// digitalSignature and keyEncipherment.
pub(crate) const USAGE_END: &[u8] = &[3, 2, 5, 0xa0];
/// keyEncipherment only.
pub(crate) const USAGE_NO_SIGNATURES: &[u8] = &[3, 2, 5, 0x20];

pub(crate) const BASIC_CONSTRAINTS: &str = "2.5.29.19";
pub(crate) const KEY_USAGE: &str = "2.5.29.15";
pub(crate) const ALTERNATIVE_NAMES: &str = "2.5.29.17";
pub(crate) const PROXY_CERT_INFO: &str = "1.3.6.1.5.5.7.1.14";
pub(crate) const PROXY_CERT_INFO_GT3: &str = "1.3.6.1.4.1.3536.1.222";

impl Blueprint {
    pub(crate) fn new(subject: &str) -> Self {
        Self {
            subject: parts(subject),
            key: ec_key(),
            now: now(),
            valid: (-DAY, 30 * DAY),
            version: 2,
            serial: 4711,
            digest: MessageDigest::sha256(),
            extensions: Vec::new(),
        }
    }

    pub(crate) fn authority(subject: &str) -> Self {
        Self::new(subject)
            .extension(BASIC_CONSTRAINTS, true, CA_TRUE)
            .extension(KEY_USAGE, true, USAGE_CA)
    }

    pub(crate) fn user(subject: &str) -> Self {
        Self::new(subject).extension(KEY_USAGE, true, USAGE_END)
    }

    pub(crate) fn host(subject: &str, names: &[&str]) -> Self {
        let mut content = Vec::new();
        for name in names {
            let (tag, bytes) = match name.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(address)) => (0x87, address.octets().to_vec()),
                Ok(std::net::IpAddr::V6(address)) => (0x87, address.octets().to_vec()),
                Err(_) => (0x82, name.as_bytes().to_vec()),
            };
            content.extend(tlv(tag, &bytes));
        }
        let host = Self::user(subject);
        if names.is_empty() {
            host
        } else {
            host.extension(ALTERNATIVE_NAMES, false, &tlv(0x30, &content))
        }
    }

    /// A proxy below a credential, as bad as the rest of the blueprint makes it.
    pub(crate) fn proxy(issuer: &Credential, common_name: &str) -> Self {
        let subject = format!("{}/CN={common_name}", issuer.certificate().subject());
        Self::new(&subject).valid(-60, 12 * HOUR)
    }

    pub(crate) fn extension(mut self, oid: &str, critical: bool, content: &[u8]) -> Self {
        self.extensions
            .push((oid.to_owned(), critical, content.to_vec()));
        self
    }

    pub(crate) fn without(mut self, oid: &str) -> Self {
        self.extensions.retain(|(other, ..)| other != oid);
        self
    }

    pub(crate) fn valid(mut self, from: i64, to: i64) -> Self {
        self.valid = (from, to);
        self
    }

    pub(crate) fn at(mut self, now: SystemTime) -> Self {
        self.now = now;
        self
    }

    pub(crate) fn serial(mut self, serial: u32) -> Self {
        self.serial = serial;
        self
    }

    pub(crate) fn key(mut self, key: PKey<Private>) -> Self {
        self.key = key;
        self
    }

    pub(crate) fn digest(mut self, digest: MessageDigest) -> Self {
        self.digest = digest;
        self
    }

    pub(crate) fn self_signed(self) -> Credential {
        let name = x509_name(&self.subject);
        let key = self.key.clone();
        let certificate = self.signed_by(&name, &key);
        Credential::new(certificate, key, Vec::new()).expect("a credential")
    }

    /// Issued by a credential, whose chain it gets if the issuer is no root.
    pub(crate) fn issued_by(self, issuer: &Credential) -> Credential {
        let key = self.key.clone();
        let name = issuer.certificate().as_x509().subject_name();
        let certificate = self.signed_by(name, issuer.key());
        let mut chain = Vec::new();
        if !issuer.certificate().is_self_issued() {
            chain.push(issuer.certificate().clone());
            chain.extend_from_slice(issuer.chain());
        }
        Credential::new(certificate, key, chain).expect("a credential")
    }

    pub(crate) fn signed_by(
        self,
        issuer: &openssl::x509::X509NameRef,
        key: &PKey<Private>,
    ) -> Certificate {
        let mut builder = X509::builder().unwrap();
        builder.set_version(self.version).unwrap();
        let serial = Asn1Integer::from_bn(&BigNum::from_u32(self.serial).unwrap()).unwrap();
        builder.set_serial_number(&serial).unwrap();
        builder.set_issuer_name(issuer).unwrap();
        builder.set_subject_name(&x509_name(&self.subject)).unwrap();
        let at = |seconds| asn1_time(self.now, seconds);
        builder.set_not_before(&at(self.valid.0)).unwrap();
        builder.set_not_after(&at(self.valid.1)).unwrap();
        builder.set_pubkey(&self.key).unwrap();
        for (oid, critical, content) in &self.extensions {
            let oid = Asn1Object::from_str(oid).unwrap();
            let content = Asn1OctetString::new_from_bytes(content).unwrap();
            let extension = X509Extension::new_from_der(&oid, *critical, &content).unwrap();
            builder.append_extension(extension).unwrap();
        }
        builder.sign(key, self.digest).unwrap();
        Certificate::new(builder.build()).expect("a certificate")
    }
}

pub(crate) fn asn1_time(now: SystemTime, seconds: i64) -> Asn1Time {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let moment = i64::try_from(since.as_secs()).unwrap() + seconds;
    Asn1Time::from_unix(moment).unwrap()
}

/// proxyCertInfo of RFC 3820 with this policy language.
pub(crate) fn proxy_cert_info(language: &str, length: Option<u8>, text: Option<&[u8]>) -> Vec<u8> {
    let oid = Asn1Object::from_str(language).unwrap();
    let mut policy = tlv(6, oid.as_slice());
    if let Some(text) = text {
        policy.extend(tlv(4, text));
    }
    let mut content = length.map(|n| vec![2, 1, n]).unwrap_or_default();
    content.extend(tlv(0x30, &policy));
    tlv(0x30, &content)
}

pub(crate) const INHERIT_ALL: &str = "1.3.6.1.5.5.7.21.1";
pub(crate) const INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
pub(crate) const LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";

/// A short element of DER.
pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 0x80, "only short elements");
    [&[tag, length], content].concat()
}

pub(crate) fn ec_key() -> PKey<Private> {
    KeyKind::EcP256.generate().expect("a key")
}

/// RSA keys take their time to make: one serves all tests that want one.
pub(crate) fn rsa_key() -> PKey<Private> {
    static KEY: OnceLock<PKey<Private>> = OnceLock::new();
    KEY.get_or_init(|| KeyKind::Rsa(2048).generate().expect("a key"))
        .clone()
}

/// A part without `=` belongs to the value before it, as in `/CN=host/a.example`.
fn parts(subject: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for part in subject.split('/').skip(1) {
        match (part.split_once('='), parts.last_mut()) {
            (Some((label, value)), _) => parts.push((label.to_owned(), value.to_owned())),
            (None, Some((_, value))) => *value = format!("{value}/{part}"),
            (None, None) => panic!("label=value is expected in {subject}"),
        }
    }
    parts
}

fn x509_name(parts: &[(String, String)]) -> X509Name {
    let mut builder = X509Name::builder().unwrap();
    for (label, value) in parts {
        builder.append_entry_by_text(label, value).unwrap();
    }
    builder.build()
}
