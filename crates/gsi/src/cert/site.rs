//! A certificate authority of one site, and the certificates of its machines, which authenticate to
//! one another only.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use openssl::{
    asn1::Asn1Integer,
    bn::{BigNum, MsbOption},
    hash::MessageDigest,
    nid::Nid,
    pkey::{PKeyRef, Private},
    x509::{
        X509, X509Builder, X509Name, X509NameRef,
        extension::{
            AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage,
            SubjectAlternativeName, SubjectKeyIdentifier,
        },
    },
};

use super::{
    Certificate, Credential, CredentialError,
    certificate::asn1_time,
    key::{KeyKind, digest_for},
    proxy::BACKDATED,
};

/// Bits of serial numbers: RFC 5280 has 20 bytes, and a sign.
const SERIAL_BITS: i32 = 127;

/// Characters of a common name (RFC 5280, ub-common-name).
pub const NAME_MAX: usize = 64;

/// Hosts of a certificate.
pub const HOSTS_MAX: usize = 64;

/// A new authority `/O=organization/CN=CA`, which issues certificates and nothing else.
///
/// # Errors
/// When the machine has no randomness, or the name is none (1 to 64 characters).
pub fn authority(
    organization: &str,
    lifetime: Duration,
    now: SystemTime,
) -> Result<Credential, CredentialError> {
    let key = KeyKind::EcP256.generate()?;
    let mut name = X509Name::builder()?;
    name.append_entry_by_nid(Nid::ORGANIZATIONNAME, checked(organization)?)?;
    name.append_entry_by_nid(Nid::COMMONNAME, "CA")?;
    let name = name.build();
    let mut builder = begun(&name, &name, now, now + lifetime)?;
    builder.set_pubkey(&key)?;
    let constraints = BasicConstraints::new().critical().ca().pathlen(0).build()?;
    builder.append_extension(constraints)?;
    let usage = KeyUsage::new()
        .critical()
        .key_cert_sign()
        .crl_sign()
        .build()?;
    builder.append_extension(usage)?;
    let identifier = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None))?;
    builder.append_extension(identifier)?;
    let certificate = signed(builder, &key, MessageDigest::sha256())?;
    Credential::new(certificate, key, Vec::new())
}

/// A new key, and a certificate for it by `authority`: of the same organization, with the common
/// name `name`, for `hosts`, names or addresses. It serves both ends of TLS, and lasts no longer
/// than the authority.
///
/// # Errors
/// `authority` is none, or has expired; a name is none; no randomness.
pub fn issue(
    authority: &Credential,
    name: &str,
    hosts: &[String],
    lifetime: Duration,
    now: SystemTime,
) -> Result<Credential, CredentialError> {
    let above = authority.certificate();
    let refused = |fault: &str| CredentialError::Issuer {
        subject: above.subject().to_string(),
        fault: fault.to_owned(),
    };
    if !above.extensions().is_ca {
        return Err(refused("is no authority and can issue no certificate"));
    }
    if authority.not_after() <= now {
        return Err(refused("has expired and can issue no certificate"));
    }
    if hosts.is_empty() || hosts.len() > HOSTS_MAX {
        return Err(CredentialError::Site {
            fault: "names no host, or more than 64",
        });
    }
    let key = KeyKind::EcP256.generate()?;
    let mut subject = X509Name::builder()?;
    for entry in above.as_x509().subject_name().entries() {
        if entry.object().nid() != Nid::COMMONNAME {
            let text = entry.data().to_string()?;
            subject.append_entry_by_nid(entry.object().nid(), &text)?;
        }
    }
    subject.append_entry_by_nid(Nid::COMMONNAME, checked(name)?)?;
    let subject = subject.build();
    let until = (now + lifetime).min(authority.not_after());
    let issuer = above.as_x509().subject_name();
    let mut builder = begun(&subject, issuer, now, until)?;
    builder.set_pubkey(&key)?;
    builder.append_extension(BasicConstraints::new().critical().build()?)?;
    let usage = KeyUsage::new().critical().digital_signature().build()?;
    builder.append_extension(usage)?;
    let purposes = ExtendedKeyUsage::new()
        .server_auth()
        .client_auth()
        .build()?;
    builder.append_extension(purposes)?;
    let mut names = SubjectAlternativeName::new();
    for host in hosts {
        match host.parse::<IpAddr>() {
            Ok(address) => names.ip(&address.to_string()),
            Err(_) => names.dns(host_name(host)?),
        };
    }
    let context = builder.x509v3_context(Some(above.as_x509()), None);
    let names = names.build(&context)?;
    let of_issuer = AuthorityKeyIdentifier::new().keyid(false).build(&context)?;
    builder.append_extension(names)?;
    builder.append_extension(of_issuer)?;
    let digest = digest_for(authority.key(), above.as_x509().signature_algorithm());
    let certificate = signed(builder, authority.key(), digest)?;
    Credential::new(certificate, key, Vec::new())
}

/// SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` shows it.
///
/// # Errors
/// OpenSSL has no SHA-256.
pub fn fingerprint(certificate: &Certificate) -> Result<String, CredentialError> {
    let digest = certificate.as_x509().digest(MessageDigest::sha256())?;
    let bytes = digest.iter().map(|byte| format!("{byte:02X}"));
    Ok(bytes.collect::<Vec<_>>().join(":"))
}

fn begun(
    subject: &X509NameRef,
    issuer: &X509NameRef,
    now: SystemTime,
    until: SystemTime,
) -> Result<X509Builder, CredentialError> {
    let mut serial = BigNum::new()?;
    serial.rand(SERIAL_BITS, MsbOption::MAYBE_ZERO, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_not_before(&*asn1_time(now.checked_sub(BACKDATED).unwrap_or(now))?)?;
    builder.set_not_after(&*asn1_time(until)?)?;
    Ok(builder)
}

fn signed(
    mut builder: X509Builder,
    key: &PKeyRef<Private>,
    digest: MessageDigest,
) -> Result<Certificate, CredentialError> {
    builder.sign(key, digest)?;
    // Read again, so that what we hold is what a peer will see.
    Certificate::from_der(&builder.build().to_der()?)
}

/// A name without signs that would mean something in a text of names.
fn checked(name: &str) -> Result<&str, CredentialError> {
    let is_plain = |c: char| c.is_alphanumeric() || " ._-".contains(c);
    let count = name.chars().count();
    match (1..=NAME_MAX).contains(&count) && name.trim() == name && name.chars().all(is_plain) {
        true => Ok(name),
        false => Err(CredentialError::Site {
            fault: "has a name that is not made of 1 to 64 letters, digits, spaces, `.`, `_`, `-`",
        }),
    }
}

/// OpenSSL would take signs in it for more than one name.
fn host_name(name: &str) -> Result<&str, CredentialError> {
    let is_label = |label: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=63).contains(&label.len()) && label.chars().all(is_plain) && !label.starts_with('-')
    };
    match name.len() <= 253 && name.split('.').all(is_label) {
        true => Ok(name),
        false => Err(CredentialError::Site {
            fault: "names a host that is neither a DNS name nor an address",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::HostName;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn machines_have_certificates_for_their_hosts() {
        let now = SystemTime::now();
        let site = authority("Site", 10 * DAY, now).unwrap();
        assert!(site.certificate().extensions().is_ca);
        assert_eq!(site.certificate().subject().to_string(), "/O=Site/CN=CA");
        let hosts = ["dtn1.example.org", "10.0.0.11", "2001:db8::5"].map(str::to_owned);
        let node = issue(&site, "dtn1", &hosts, 100 * DAY, now).unwrap();
        let certificate = node.certificate();
        assert_eq!(certificate.subject().to_string(), "/O=Site/CN=dtn1");
        assert!(certificate.is_signed_by(site.certificate()));
        assert!(!certificate.extensions().is_ca);
        assert!(
            node.not_after() <= site.not_after(),
            "no longer than its authority"
        );
        for host in hosts {
            assert!(HostName::new(&host).check(certificate).is_ok(), "{host}");
        }
        assert!(
            HostName::new("dtn2.example.org")
                .check(certificate)
                .is_err()
        );
        let shown = fingerprint(certificate).unwrap();
        assert_eq!((shown.len(), shown.matches(':').count()), (32 * 3 - 1, 31));
        assert_ne!(shown, fingerprint(site.certificate()).unwrap());
    }

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        let now = SystemTime::now();
        let site = authority("Site", DAY, now).unwrap();
        let one = |name: &str, host: &str| issue(&site, name, &[host.to_owned()], DAY, now);
        assert!(one("dtn1", "dtn1").is_ok());
        let long = "x".repeat(NAME_MAX + 1);
        for name in ["", "a/CN=root", "a,b", "a\n", " a", &long] {
            assert!(one(name, "dtn1").is_err(), "{name:?}");
            assert!(authority(name, DAY, now).is_err(), "{name:?}");
        }
        let long = "x".repeat(64);
        let hosts = [
            "",
            "a,DNS:b",
            "a b",
            "*",
            "a..b",
            ".a",
            "-a",
            "10.0.0.0/8",
            "a\0b",
            "caf\u{e9}",
            &long,
        ];
        for host in hosts {
            assert!(one("dtn1", host).is_err(), "{host:?}");
        }
        assert!(issue(&site, "dtn1", &[], DAY, now).is_err());
    }

    #[test]
    fn who_is_no_authority_issues_nothing() {
        let now = SystemTime::now();
        let site = authority("Site", 10 * DAY, now).unwrap();
        let host = ["dtn1".to_owned()];
        let node = issue(&site, "dtn1", &host, DAY, now).unwrap();
        let error = issue(&node, "dtn2", &host, DAY, now).unwrap_err();
        assert!(error.to_string().contains("is no authority"), "{error}");
        let error = issue(&site, "dtn2", &host, DAY, now + 11 * DAY).unwrap_err();
        assert!(error.to_string().contains("has expired"), "{error}");
    }
}
