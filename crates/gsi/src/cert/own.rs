//! Certificates without an owner: both ends hold the same one and its key, and recognise each other
//! by that (DCSC).

use std::time::{Duration, SystemTime};

use openssl::{
    asn1::Asn1Integer,
    bn::{BigNum, MsbOption},
    hash::MessageDigest,
    x509::{X509, X509Name},
};

use super::{
    Certificate, Credential, CredentialError, certificate::asn1_time, key::KeyKind,
    proxy::BACKDATED,
};

/// Bits of its serial number, which is in its name too: no two are alike, and none can be guessed.
const SERIAL_BITS: i32 = 127;

/// A certificate that stands for itself, with a new key. Its common name is `name` (at most 31
/// characters) and its serial number.
///
/// # Errors
/// When the machine has no randomness, or the name is too long.
pub fn thrown_away(
    name: &str,
    key: KeyKind,
    lifetime: Duration,
    now: SystemTime,
) -> Result<Credential, CredentialError> {
    let key = key.generate()?;
    let mut serial = BigNum::new()?;
    serial.rand(SERIAL_BITS, MsbOption::MAYBE_ZERO, false)?;
    let mut subject = X509Name::builder()?;
    subject.append_entry_by_text("CN", &format!("{name} {}", serial.to_hex_str()?))?;
    let subject = subject.build();
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
    builder.set_issuer_name(&subject)?;
    builder.set_subject_name(&subject)?;
    builder.set_not_before(&*asn1_time(now.checked_sub(BACKDATED).unwrap_or(now))?)?;
    builder.set_not_after(&*asn1_time(now + lifetime)?)?;
    builder.set_pubkey(&key)?;
    builder.sign(&key, MessageDigest::sha256())?;
    // Read again, so that what we hold is what a peer will see.
    let certificate = Certificate::from_der(&builder.build().to_der()?)?;
    Credential::new(certificate, key, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_for_itself_and_for_nothing_else() {
        let now = SystemTime::now();
        let make = || thrown_away("x", KeyKind::EcP256, Duration::from_secs(3600), now).unwrap();
        let (one, other) = (make(), make());
        assert!(one.certificate().is_self_issued() && !one.certificate().extensions().is_ca);
        assert!(one.certificate().is_signed_by(one.certificate()));
        assert!(!one.certificate().is_signed_by(other.certificate()));
        assert_ne!(one.identity(), other.identity());
        assert!(one.identity().to_string().starts_with("/CN=x "));
        assert!(one.not_before() < now && one.not_after() > now);
    }
}
