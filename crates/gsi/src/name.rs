//! Distinguished names as grids write them: `/C=NL/O=Grid/CN=Jo Doe`.
//!
//! This is the one-line form of OpenSSL, which gridmap files, signing policies and DCAU S use. The
//! form of RFC 2253 (`CN=Jo Doe,O=Grid,C=NL`) is read too. The one-line form does not escape a
//! slash inside a value, so a certificate could pretend to have attributes that it has not;
//! [`DistinguishedName::is_ambiguous`] finds those.

use std::fmt::{self, Write as _};

use openssl::{nid::Nid, x509::X509NameRef};

/// Longest name that is read from text; chosen well above what certificates of real people have.
pub const TEXT_BYTES_MAX: usize = 4096;

/// A distinguished name in its one-line form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DistinguishedName {
    text: String,
    ambiguous: bool,
}

impl DistinguishedName {
    /// The name as OpenSSL's one-line form has it: `/` before each attribute, bytes outside of
    /// printable ASCII as `\xHH`. Attributes without a short name are told by their dotted
    /// identifier.
    #[must_use]
    pub fn from_x509(name: &X509NameRef) -> Self {
        let mut text = String::new();
        let mut ambiguous = false;
        for entry in name.entries() {
            let object = entry.object();
            let label = match object.nid() {
                Nid::UNDEF => object.to_string(),
                nid => nid
                    .short_name()
                    .map_or_else(|_| object.to_string(), str::to_owned),
            };
            let mut value = String::new();
            for &byte in entry.data().as_slice() {
                if (b' '..=b'~').contains(&byte) {
                    value.push(char::from(byte));
                } else {
                    let _ = write!(value, "\\x{byte:02X}");
                }
            }
            ambiguous |= looks_like_attributes(&value);
            let _ = write!(text, "/{label}={value}");
        }
        Self { text, ambiguous }
    }

    /// Reads both forms of text: `/C=NL/CN=Jo` as it stands, `CN=Jo,C=NL` turned around.
    ///
    /// # Errors
    /// `None` for an empty or overlong text, and for an RFC 2253 form without `type=value` in each
    /// part.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let text = if text.starts_with('/') {
            text.to_owned()
        } else {
            from_rfc2253(text)?
        };
        // The other form grows where it is turned around: a byte outside of printable ASCII becomes
        // four.
        (text.len() <= TEXT_BYTES_MAX).then_some(Self {
            text,
            ambiguous: false,
        })
    }

    /// The one-line form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A value holds what looks like further attributes (`/O=x/CN=admin` with all of `x/CN=admin`
    /// as O): text alone cannot tell such a name from another's.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Whether both mean the same: letters regardless of case, `USERID` as `UID`, and all spellings
    /// of `emailAddress`. Source: gridmap rules of the Grid Community Toolkit.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }

    /// The form in which names are compared, for use as a key.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut folded = String::with_capacity(self.text.len());
        for part in self.text.split('/').skip(1) {
            folded.push('/');
            let lower = part.to_ascii_lowercase();
            match lower.split_once('=') {
                Some(("userid", value)) => {
                    folded.push_str("uid=");
                    folded.push_str(value);
                }
                Some(("e" | "email" | "emailaddress", value)) => {
                    folded.push_str("emailaddress=");
                    folded.push_str(value);
                }
                _ => folded.push_str(&lower),
            }
        }
        folded
    }

    /// The values of the common names, in order.
    pub fn common_names(&self) -> impl Iterator<Item = &str> {
        // A slash inside a common name, as in `CN=host/a.example`, belongs to it.
        self.text
            .split("/CN=")
            .skip(1)
            .map(|rest| match attribute_start(rest) {
                Some(at) => &rest[..at],
                None => rest,
            })
    }
}

impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn looks_like_attributes(value: &str) -> bool {
    attribute_start(value).is_some()
}

/// Where `/type=` begins, as it does between attributes.
fn attribute_start(text: &str) -> Option<usize> {
    text.match_indices('/').map(|(at, _)| at).find(|at| {
        let rest = &text[at + 1..];
        rest.split_once('=').is_some_and(|(label, _)| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
        })
    })
}

/// RFC 2253 §3: the last attribute comes first, `\` escapes a character or two hexadecimal digits,
/// quotes group.
fn from_rfc2253(text: &str) -> Option<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let first = characters.next()?;
                let second = characters.peek().copied();
                match (first.to_digit(16), second.and_then(|c| c.to_digit(16))) {
                    (Some(high), Some(low)) => {
                        characters.next();
                        let byte = high << 4 | low;
                        match char::from_u32(byte) {
                            Some(plain @ ' '..='~') => part.push(plain),
                            _ => {
                                let _ = write!(part, "\\x{byte:02X}");
                            }
                        }
                    }
                    _ => part.push(first),
                }
            }
            '"' => quoted = !quoted,
            ',' | ';' | '+' if !quoted => parts.push(std::mem::take(&mut part)),
            ' '..='~' => part.push(character),
            other => {
                let mut bytes = [0; 4];
                for byte in other.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(part, "\\x{byte:02X}");
                }
            }
        }
    }
    if quoted {
        return None;
    }
    parts.push(part);
    let mut one_line = String::new();
    for part in parts.iter().rev() {
        let (label, value) = part.split_once('=')?;
        let label = label.trim();
        if label.is_empty() {
            return None;
        }
        let _ = write!(one_line, "/{label}={}", value.trim());
    }
    Some(one_line)
}

#[cfg(test)]
mod tests {
    use openssl::x509::X509Name;

    use super::*;

    fn name(parts: &[(&str, &str)]) -> DistinguishedName {
        let mut builder = X509Name::builder().expect("a builder");
        for (label, value) in parts {
            builder
                .append_entry_by_text(label, value)
                .expect("an entry");
        }
        DistinguishedName::from_x509(&builder.build())
    }

    #[test]
    fn certificates_names_are_told_on_one_line() {
        let jo = name(&[("C", "NL"), ("O", "Grid"), ("CN", "Jo Doe")]);
        assert_eq!(jo.as_str(), "/C=NL/O=Grid/CN=Jo Doe");
        let umlaut = name(&[("DC", "org"), ("UID", "7"), ("CN", "J\u{f6}")]);
        assert_eq!(umlaut.as_str(), "/DC=org/UID=7/CN=J\\xC3\\xB6");
        let host = name(&[("O", "Grid"), ("CN", "host/a.example")]);
        assert!(!host.is_ambiguous());
        assert_eq!(host.common_names().collect::<Vec<_>>(), ["host/a.example"]);
    }

    #[test]
    fn a_value_cannot_inject_attributes() {
        assert!(name(&[("O", "x/CN=admin")]).is_ambiguous());
        assert!(name(&[("O", "x/1.2.3=admin")]).is_ambiguous());
        assert!(!name(&[("O", "x/y = z")]).is_ambiguous());
    }

    #[test]
    fn the_other_form_is_turned_around() {
        for (text, expected) in [
            ("CN=Jo Doe,O=Grid,C=NL", "/C=NL/O=Grid/CN=Jo Doe"),
            ("CN=Jo\\, Doe, O=\"a,b\"", "/O=a,b/CN=Jo, Doe"),
            ("CN=J\\C3\\B6,O=Grid", "/O=Grid/CN=J\\xC3\\xB6"),
            ("CN=J\u{f6},O=Grid", "/O=Grid/CN=J\\xC3\\xB6"),
            ("/O=Grid/CN=Jo", "/O=Grid/CN=Jo"),
        ] {
            let parsed = DistinguishedName::parse(text).expect(text);
            assert_eq!(parsed.as_str(), expected);
        }
        for text in ["", "Jo Doe", "CN=Jo,Grid", "CN=\"Jo", "CN=Jo\\", "=x"] {
            assert_eq!(DistinguishedName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn reversed_names_keep_the_length_limit() {
        let text = |bytes| format!("CN={}", "\u{f6}".repeat(bytes / 8));
        let longest = DistinguishedName::parse(&text(TEXT_BYTES_MAX - 8)).expect("a name");
        assert_eq!(
            DistinguishedName::parse(longest.as_str()).as_ref(),
            Some(&longest)
        );
        assert_eq!(DistinguishedName::parse(&text(TEXT_BYTES_MAX)), None);
    }

    #[test]
    fn spellings_of_one_name_are_the_same() {
        let parse = |text| DistinguishedName::parse(text).expect("a name");
        for (one, other) in [
            ("/O=Grid/CN=Jo", "/o=grid/cn=JO"),
            ("/USERID=7/CN=Jo", "/UID=7/CN=Jo"),
            ("/O=Grid/Email=a@b", "/O=Grid/emailAddress=a@b"),
            ("/O=Grid/E=a@b", "/O=Grid/EmailAddress=a@b"),
        ] {
            assert!(parse(one).same_as(&parse(other)), "{one} {other}");
        }
        assert!(!parse("/O=Grid/CN=Jo").same_as(&parse("/O=Grid/CN=Jo/CN=1")));
    }
}
