//! What the extensions of a certificate say, and whether any of them is beyond us.

use std::net::IpAddr;

use crate::der::{self, Malformed, Reader};

/// How a proxy differs from other certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// The proxyCertInfo extension of RFC 3820.
    Rfc3820,
    /// The same extension under the identifier of its draft, as Globus Toolkit 3 wrote it.
    Gt3,
    /// No extension, but a last common name of `proxy` or `limited proxy`, as Globus Toolkit 2
    /// wrote it.
    Legacy,
}

impl ProxyKind {
    /// As messages name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfc3820 => "RFC 3820",
            Self::Gt3 => "draft (GT 3)",
            Self::Legacy => "legacy (GT 2)",
        }
    }
}

/// What a proxy may do of what its issuer may.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ProxyPolicy {
    /// Everything (RFC 3820 `inheritAll`).
    Impersonation,
    /// Everything but start jobs. Once limited, always limited.
    Limited,
    /// Nothing: it is an identity of its own (RFC 3820 `independent`).
    Independent,
    /// What a text in this language says. A verifier that does not understand the language
    /// cannot honour it.
    Other(String),
}

/// What makes a certificate a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyInfo {
    /// How it says that it is one.
    pub kind: ProxyKind,
    /// What it may do.
    pub policy: ProxyPolicy,
    /// How many proxies may be issued below it; `None` is without bound.
    pub path_length: Option<u32>,
    /// A policy text exists, in any language.
    pub has_policy_text: bool,
    /// The extension is critical, as RFC 3820 §3.8 demands. Legacy proxies have none and are taken
    /// as if.
    pub critical: bool,
}

/// RFC 3820 §3.8: id-pe-proxyCertInfo.
pub const OID_PROXY_CERT_INFO: &str = "1.3.6.1.5.5.7.1.14";
/// The same, under the number of the draft.
pub const OID_PROXY_CERT_INFO_GT3: &str = "1.3.6.1.4.1.3536.1.222";
pub(crate) const OID_INHERIT_ALL: &str = "1.3.6.1.5.5.7.21.1";
pub(crate) const OID_INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
/// Globus: limited proxies.
pub(crate) const OID_LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";

/// Bits of keyUsage, numbered as RFC 5280 §4.2.1.3 has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUsage(u16);

impl KeyUsage {
    /// The key may make signatures (bit 0).
    #[must_use]
    pub fn digital_signature(self) -> bool {
        self.has(0)
    }

    /// The key may sign certificates (bit 5).
    #[must_use]
    pub fn key_cert_sign(self) -> bool {
        self.has(5)
    }

    /// The key may sign revocation lists (bit 6).
    #[must_use]
    pub fn crl_sign(self) -> bool {
        self.has(6)
    }

    /// For a proxy made from this certificate: all but nonRepudiation, keyCertSign and cRLSign.
    pub(crate) fn for_proxy(self) -> Self {
        Self(self.0 & !(0x8000 >> 1) & !(0x8000 >> 5) & !(0x8000 >> 6))
    }

    /// The content of the extension.
    pub(crate) fn to_der(self) -> Vec<u8> {
        let bytes = self.0.to_be_bytes();
        let used = if bytes[1] == 0 { 1 } else { 2 };
        let unused = if self.0 == 0 {
            0
        } else {
            self.0.trailing_zeros() % 8
        };
        let mut content = vec![u8::try_from(unused).unwrap_or(0)];
        content.extend_from_slice(&bytes[..used]);
        der::write(der::BIT_STRING, &content)
    }

    fn has(self, bit: u32) -> bool {
        self.0 & (0x8000 >> bit) != 0
    }
}

/// The extensions that path validation looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions {
    /// basicConstraints says that this is a CA.
    pub is_ca: bool,
    /// How many intermediate CAs may be below it.
    pub ca_path_length: Option<u32>,
    /// What the key may be used for; `None` is anything.
    pub key_usage: Option<KeyUsage>,
    /// The content of extendedKeyUsage and whether it is critical; copied to proxies, not
    /// judged.
    pub extended_key_usage: Option<(bool, Vec<u8>)>,
    /// subjectAltName: names of hosts.
    pub dns_names: Vec<String>,
    /// subjectAltName: addresses of hosts.
    pub addresses: Vec<IpAddr>,
    /// subjectAltName or issuerAltName exists at all, which a proxy must not have.
    pub has_alternative_names: bool,
    /// Only names beneath these may be certified. Not evaluated here, thus not accepted.
    pub has_name_constraints: bool,
    /// proxyCertInfo.
    pub proxy: Option<ProxyInfo>,
    /// Identifiers of critical extensions that are not known here.
    pub unknown_critical: Vec<String>,
}

const BASIC_CONSTRAINTS: &str = "2.5.29.19";
const KEY_USAGE: &str = "2.5.29.15";
const EXTENDED_KEY_USAGE: &str = "2.5.29.37";
const SUBJECT_ALT_NAME: &str = "2.5.29.17";
const ISSUER_ALT_NAME: &str = "2.5.29.18";
const NAME_CONSTRAINTS: &str = "2.5.29.30";

/// Critical extensions that demand nothing of this verifier: certificate policies and their
/// mappings (any policy is acceptable), distribution points (revocation lists come from the CA
/// directory), Netscape's certificate type.
const HARMLESS: &[&str] = &[
    "2.5.29.32",
    "2.5.29.33",
    "2.5.29.31",
    "2.5.29.14",
    "2.5.29.35",
    "2.16.840.1.113730.1.1",
];

/// Bounds of what one certificate may make us keep.
const EXTENSIONS_MAX: usize = 64;
const ALTERNATIVE_NAMES_MAX: usize = 1024;

/// Issuer, subject and extensions, as they stand in a certificate.
pub(crate) struct Parts<'a> {
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) extensions: Extensions,
}

/// Takes a DER certificate apart. RFC 5280 §4.1.
pub(crate) fn parts(certificate: &[u8]) -> Result<Parts<'_>, Malformed> {
    let mut outer = Reader::new(certificate);
    let mut fields = Reader::new(outer.expect(der::SEQUENCE)?);
    let mut fields = Reader::new(fields.expect(der::SEQUENCE)?);
    fields.optional(der::context(0))?;
    fields.expect(der::INTEGER)?;
    fields.expect(der::SEQUENCE)?;
    let issuer = fields.expect(der::SEQUENCE)?;
    fields.expect(der::SEQUENCE)?;
    let subject = fields.expect(der::SEQUENCE)?;
    fields.expect(der::SEQUENCE)?;
    // The unique identifiers of version 2.
    fields.optional(0x81)?;
    fields.optional(0x82)?;
    let extensions = match fields.optional(der::context(3))? {
        Some(content) => extensions(content)?,
        None => Extensions::default(),
    };
    fields.end()?;
    Ok(Parts {
        issuer,
        subject,
        extensions,
    })
}

fn extensions(content: &[u8]) -> Result<Extensions, Malformed> {
    let mut outer = Reader::new(content);
    let mut list = Reader::new(outer.expect(der::SEQUENCE)?);
    outer.end()?;
    let mut found = Extensions::default();
    let mut seen: Vec<&[u8]> = Vec::new();
    while !list.is_empty() {
        let mut extension = Reader::new(list.expect(der::SEQUENCE)?);
        let oid = extension.expect(der::OID)?;
        // RFC 5280 §4.2: no extension twice. Which one would count?
        if seen.contains(&oid) || seen.len() == EXTENSIONS_MAX {
            return Err(Malformed);
        }
        seen.push(oid);
        let critical = extension
            .optional(der::BOOLEAN)?
            .is_some_and(|content| content != [0]);
        let value = extension.expect(der::OCTET_STRING)?;
        extension.end()?;
        found.take(&der::oid_text(oid)?, critical, value)?;
    }
    Ok(found)
}

impl Extensions {
    fn take(&mut self, oid: &str, critical: bool, value: &[u8]) -> Result<(), Malformed> {
        match oid {
            BASIC_CONSTRAINTS => {
                let mut outer = Reader::new(value);
                let mut content = Reader::new(outer.expect(der::SEQUENCE)?);
                outer.end()?;
                self.is_ca = content
                    .optional(der::BOOLEAN)?
                    .is_some_and(|content| content != [0]);
                let length = content.optional(der::INTEGER)?;
                self.ca_path_length = length.map(der::small_unsigned).transpose()?;
                content.end()?;
            }
            KEY_USAGE => self.key_usage = Some(key_usage(value)?),
            EXTENDED_KEY_USAGE => self.extended_key_usage = Some((critical, value.to_vec())),
            SUBJECT_ALT_NAME => {
                self.has_alternative_names = true;
                self.alternative_names(value)?;
            }
            ISSUER_ALT_NAME => self.has_alternative_names = true,
            NAME_CONSTRAINTS => self.has_name_constraints = true,
            OID_PROXY_CERT_INFO | OID_PROXY_CERT_INFO_GT3 => {
                // Both numbers in one certificate: which would count?
                if self.proxy.is_some() {
                    return Err(Malformed);
                }
                let kind = if oid == OID_PROXY_CERT_INFO {
                    ProxyKind::Rfc3820
                } else {
                    ProxyKind::Gt3
                };
                self.proxy = Some(proxy_info(kind, critical, value)?);
            }
            _ if critical && !HARMLESS.contains(&oid) => self.unknown_critical.push(oid.to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn alternative_names(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let mut outer = Reader::new(value);
        let mut names = Reader::new(outer.expect(der::SEQUENCE)?);
        outer.end()?;
        while !names.is_empty() {
            if self.dns_names.len() + self.addresses.len() == ALTERNATIVE_NAMES_MAX {
                return Err(Malformed);
            }
            match names.element()? {
                // dNSName, an IA5String. One that holds other bytes matches no host.
                (0x82, text) if text.is_ascii() => self
                    .dns_names
                    .push(String::from_utf8_lossy(text).into_owned()),
                (0x87, bytes) => {
                    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
                        self.addresses.push(IpAddr::from(v4));
                    } else if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
                        self.addresses.push(IpAddr::from(v6));
                    } else {
                        return Err(Malformed);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn key_usage(value: &[u8]) -> Result<KeyUsage, Malformed> {
    let mut outer = Reader::new(value);
    let content = outer.expect(der::BIT_STRING)?;
    outer.end()?;
    match content {
        [0..=7, bits @ ..] if bits.len() <= 2 => {
            let first = bits.first().copied().unwrap_or(0);
            let second = bits.get(1).copied().unwrap_or(0);
            Ok(KeyUsage(u16::from_be_bytes([first, second])))
        }
        _ => Err(Malformed),
    }
}

/// RFC 3820 §3.8: `SEQUENCE { pathLength INTEGER OPTIONAL, policy SEQUENCE { language OID, text
/// OCTET STRING OPTIONAL } }`. The draft has the policy first and the path length behind it under
/// `[1]`.
fn proxy_info(kind: ProxyKind, critical: bool, value: &[u8]) -> Result<ProxyInfo, Malformed> {
    let mut outer = Reader::new(value);
    let mut content = Reader::new(outer.expect(der::SEQUENCE)?);
    outer.end()?;
    let mut length = content.optional(der::INTEGER)?;
    let mut policy = Reader::new(content.expect(der::SEQUENCE)?);
    if kind == ProxyKind::Gt3
        && length.is_none()
        && let Some(tagged) = content.optional(der::context(1))?
    {
        let mut tagged = Reader::new(tagged);
        length = Some(tagged.expect(der::INTEGER)?);
        tagged.end()?;
    }
    content.end()?;
    let language = der::oid_text(policy.expect(der::OID)?)?;
    let text = policy.optional(der::OCTET_STRING)?;
    policy.end()?;
    Ok(ProxyInfo {
        kind,
        policy: match language.as_str() {
            OID_INHERIT_ALL => ProxyPolicy::Impersonation,
            OID_INDEPENDENT => ProxyPolicy::Independent,
            OID_LIMITED => ProxyPolicy::Limited,
            _ => ProxyPolicy::Other(language),
        },
        path_length: length.map(der::small_unsigned).transpose()?,
        has_policy_text: text.is_some(),
        critical,
    })
}

/// One relative name: the pairs of type and value in it, without the kind of string that the value
/// is.
pub(crate) type Rdn = Vec<(Vec<u8>, Vec<u8>)>;

/// A name taken apart, so that a proxy's subject can be held against its issuer's.
pub(crate) fn relative_names(name: &[u8]) -> Result<Vec<Rdn>, Malformed> {
    let mut names = Reader::new(name);
    let mut found = Vec::new();
    while !names.is_empty() {
        let mut set = Reader::new(names.expect(der::SET)?);
        let mut rdn = Vec::new();
        while !set.is_empty() {
            let mut pair = Reader::new(set.expect(der::SEQUENCE)?);
            let oid = pair.expect(der::OID)?.to_vec();
            let (_, value) = pair.element()?;
            pair.end()?;
            rdn.push((oid, value.to_vec()));
        }
        found.push(rdn);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INHERIT_ALL_DER: &[u8] = &[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];

    #[test]
    fn proxy_cert_info_is_read_in_both_forms() {
        let policy = der::write_sequence(&[INHERIT_ALL_DER]);
        let rfc = der::write_sequence(&[&der::write_unsigned(3), &policy]);
        let info = proxy_info(ProxyKind::Rfc3820, true, &rfc).expect("reads");
        assert_eq!(info.path_length, Some(3));
        assert_eq!(info.policy, ProxyPolicy::Impersonation);
        assert!(!info.has_policy_text);
        let tagged = der::write(der::context(1), &der::write_unsigned(0));
        let draft = der::write_sequence(&[&policy, &tagged]);
        let info = proxy_info(ProxyKind::Gt3, true, &draft).expect("reads");
        assert_eq!(info.path_length, Some(0));
        assert!(proxy_info(ProxyKind::Rfc3820, true, &draft).is_err());
    }

    #[test]
    fn key_usage_loses_what_a_proxy_must_not_have() {
        let all = key_usage(&[3, 3, 7, 0xff, 0x80]).expect("reads");
        assert!(all.digital_signature() && all.key_cert_sign() && all.crl_sign());
        let kept = all.for_proxy();
        assert!(kept.digital_signature() && !kept.key_cert_sign() && !kept.crl_sign());
        assert_eq!(key_usage(&kept.to_der()), Ok(kept));
        assert_eq!(key_usage(&all.to_der()), Ok(all));
        assert_eq!(key_usage(&[3, 2, 9, 0xff]), Err(Malformed));
    }
}
