//! Signing policies: which names a CA may certify.
//!
//! ```text
//! # comment
//! access_id_CA   X509    '/C=NL/O=Grid/CN=CA'
//! pos_rights     globus  CA:sign
//! cond_subjects  globus  '"/C=NL/O=Grid/*" "/O=other/*"'
//! ```
//!
//! Several such entries may follow each other. In patterns `*` is any number of characters, `?`
//! one. Words may be quoted with `'` or `"`. An entry without `pos_rights ... CA:sign` allows
//! nothing.

use crate::name::DistinguishedName;

/// What a file `HASH.signing_policy` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SigningPolicy {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    authority: String,
    patterns: Vec<String>,
}

/// The file cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct SigningPolicyError {
    /// Where, from 1.
    pub line: usize,
    /// Why.
    pub fault: &'static str,
}

impl SigningPolicy {
    /// Reads a file.
    ///
    /// # Errors
    /// When a word is not known, is missing, or a quote stays open. What cannot be understood might
    /// forbid something.
    pub fn parse(text: &str) -> Result<Self, SigningPolicyError> {
        let words = words(text)?;
        let mut entries = Vec::new();
        // Of the entry that is being read: its CA, whether it may sign, and what.
        let mut authority: Option<String> = None;
        let mut may_sign = false;
        for triple in words.chunks(3) {
            let line = triple[0].line;
            let fault = |fault| Err(SigningPolicyError { line, fault });
            let [keyword, kind, value] = triple else {
                return fault("three words are expected: keyword, kind, value");
            };
            match keyword.text.as_str() {
                "access_id_CA" => {
                    if !kind.text.eq_ignore_ascii_case("x509") {
                        return fault("access_id_CA knows only X509");
                    }
                    authority = Some(value.text.clone());
                    may_sign = false;
                }
                "pos_rights" => may_sign = value.text == "CA:sign",
                "cond_subjects" => {
                    let Some(authority) = &authority else {
                        return fault("cond_subjects without access_id_CA before it");
                    };
                    if may_sign {
                        entries.push(Entry {
                            authority: authority.clone(),
                            patterns: patterns(&value.text).map(spelled).collect(),
                        });
                    }
                }
                _ => return fault("expected access_id_CA, pos_rights or cond_subjects"),
            }
        }
        Ok(Self { entries })
    }

    /// There is something about this CA.
    #[must_use]
    pub fn names(&self, authority: &DistinguishedName) -> bool {
        self.about(authority).next().is_some()
    }

    /// The CA may certify this name.
    #[must_use]
    pub fn allows(&self, authority: &DistinguishedName, subject: &DistinguishedName) -> bool {
        let subject = spelled(subject.as_str());
        self.about(authority)
            .flat_map(|entry| &entry.patterns)
            .any(|pattern| matches(pattern.as_bytes(), subject.as_bytes()))
    }

    fn about(&self, authority: &DistinguishedName) -> impl Iterator<Item = &Entry> {
        let name = spelled(authority.as_str());
        self.entries
            .iter()
            .filter(move |entry| spelled(&entry.authority) == name)
    }
}

struct Word {
    text: String,
    line: usize,
}

/// Splits at blanks; quotes keep blanks together, and quotes of the other kind inside them are
/// kept.
fn words(text: &str) -> Result<Vec<Word>, SigningPolicyError> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next().filter(|&first| first != '#') {
            let (word, tail) = if first == '\'' || first == '"' {
                rest[1..].split_once(first).ok_or(SigningPolicyError {
                    line: number,
                    fault: "a quote stays open",
                })?
            } else {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                rest.split_at(end)
            };
            words.push(Word {
                text: word.to_owned(),
                line: number,
            });
            rest = tail.trim_start();
        }
    }
    Ok(words)
}

/// `"/a/*" "/b/*"` or a single pattern without quotes.
fn patterns(value: &str) -> impl Iterator<Item = &str> {
    let quoted = value.contains('"');
    let parts = value.split('"').enumerate();
    parts
        .filter(move |(index, _)| !quoted || index % 2 == 1)
        .map(|(_, part)| part.trim())
        .filter(|part| !part.is_empty())
}

/// One spelling for the attribute of which there are several.
fn spelled(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (index, part) in name.split('/').enumerate() {
        if index > 0 {
            out.push('/');
        }
        match part.split_once('=') {
            Some((label, value))
                if ["e", "email", "emailaddress"]
                    .contains(&label.to_ascii_lowercase().as_str()) =>
            {
                out.push_str("emailAddress=");
                out.push_str(value);
            }
            _ => out.push_str(part),
        }
    }
    out
}

/// `*` and `?`. Goes back to the last `*` only, so its time is bounded by the product of the
/// lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DistinguishedName {
        DistinguishedName::parse(text).expect("a name")
    }

    const FILE: &str = r#"
# EACL entry
 access_id_CA      X509         '/C=NL/O=Grid/CN=CA'
 pos_rights        globus        CA:sign
 cond_subjects     globus     '"/C=NL/O=Grid/*" "/O=one?/Email=*"'  # and no more

access_id_CA X509 "/O=Other/CN=CA"
pos_rights globus CA:sign
cond_subjects globus /O=Other/*
access_id_CA X509 "/O=Third/CN=CA"
pos_rights globus CA:read
cond_subjects globus "/O=Third/*"
"#;

    #[test]
    fn each_authority_has_its_names() {
        let policy = SigningPolicy::parse(FILE).expect("reads");
        let grid = name("/C=NL/O=Grid/CN=CA");
        let other = name("/O=Other/CN=CA");
        let third = name("/O=Third/CN=CA");
        assert!(policy.allows(&grid, &name("/C=NL/O=Grid/CN=Jo")));
        assert!(policy.allows(&grid, &name("/O=one1/emailAddress=a@b")));
        assert!(!policy.allows(&grid, &name("/O=one12/emailAddress=a@b")));
        assert!(!policy.allows(&grid, &name("/C=NL/O=Gri/CN=Jo")));
        assert!(!policy.allows(&grid, &name("/O=Other/CN=Jo")));
        assert!(policy.allows(&other, &name("/O=Other/CN=Jo Doe")));
        assert!(!policy.names(&third));
        assert!(!policy.names(&name("/O=Nobody/CN=CA")));
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        for (text, line, fault) in [
            ("access_id_CA X509\n", 1, "three words"),
            ("\naccess_id_CA X509 '/O=x\n", 2, "quote"),
            ("access_id_CA PGP '/O=x'", 1, "X509"),
            ("neg_rights globus CA:sign", 1, "expected access_id_CA"),
            ("cond_subjects globus '/O=x/*'", 1, "without access_id_CA"),
        ] {
            let error = SigningPolicy::parse(text).expect_err(text);
            assert_eq!(error.line, line, "{text}");
            assert!(error.fault.contains(fault), "{error}");
        }
    }

    #[test]
    fn patterns_with_many_stars_end_in_time() {
        let pattern = "*a".repeat(2000);
        let text = "a".repeat(1000) + &"b".repeat(3000);
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
        assert!(matches(b"*", b""));
        assert!(matches(b"/O=*/CN=*", b"/O=a/CN=b"));
        assert!(!matches(b"/O=?", b"/O="));
    }
}
