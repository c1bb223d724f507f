//! Requests as a service reads them: bucket and key, query, and bodies.

use std::borrow::Cow;

use godwit_proto::ChecksumAlgorithm;
use percent_encoding::percent_decode_str;

use super::{CHECKSUMS, PARTS_MAX, UNRESERVED, answers::Part, encoded_path};
use crate::{
    dav::BadXml,
    target::{BadTarget, decoded},
    xml::{Document, Node},
};

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;

/// Bytes of the body of a request: 10,000 parts with checksums, or 1000 keys.
pub const XML_BYTES_MAX: usize = 4 << 20;

/// Keys that one request removes.
pub const DELETE_MAX: usize = 1000;

/// Checksums of a part, beside CRC32C: one of each kind.
const CHECKSUMS_MAX: usize = CHECKSUMS.len() - 1;

/// The pairs of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

/// The signature of a URL, which is not signed itself.
const SIGNATURE: &str = "X-Amz-Signature";

/// Names in a query that are about the signature of a URL.
const OF_SIGNATURES: [&str; 8] = [
    SIGNATURE,
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-SignedHeaders",
];

impl Query {
    /// `None`: it is not in UTF-8.
    pub fn parse(text: &str) -> Option<Self> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let read = |text| {
            percent_decode_str(text)
                .decode_utf8()
                .ok()
                .map(Cow::into_owned)
        };
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((read(name)?, read(value)?))
        });
        pairs.collect::<Option<_>>().map(Self)
    }

    /// The value of a name; empty: the name stands alone.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Names but those of a signature and `x-id`, by which kits for programs repeat the request's.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !OF_SIGNATURES.contains(name) && *name != "x-id")
    }

    /// No name but these is there, and none twice.
    pub fn has_only(&self, known: &[&str]) -> bool {
        let mut names: Vec<_> = self.names().collect();
        names.sort_unstable();
        names.is_sorted_by(|one, next| one < next) && names.iter().all(|name| known.contains(name))
    }

    /// As it is signed.
    pub(super) fn canonical(&self) -> String {
        let encoded =
            |text: &str| percent_encoding::percent_encode(text.as_bytes(), UNRESERVED).to_string();
        let signed = self.0.iter().filter(|(name, _)| name != SIGNATURE);
        let mut pairs: Vec<_> = signed
            .map(|(name, value)| (encoded(name), encoded(value)))
            .collect();
        pairs.sort_unstable();
        let pairs: Vec<_> = (pairs.iter())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join("&")
    }
}

/// What a request is about: the service, a bucket, or a key of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectTarget {
    /// Empty: the service.
    pub bucket: String,
    /// Empty: the bucket.
    pub key: Vec<u8>,
    /// Decoded and encoded again: what is signed.
    pub encoded: String,
}

impl ObjectTarget {
    /// Of the path of a request, without its query. The key may be none that a file can have:
    /// [`check_key`].
    ///
    /// # Errors
    /// It cannot be decoded, or has a slash that is encoded.
    pub fn of_path(path: &str) -> Result<Self, BadTarget> {
        let rest = path.strip_prefix('/').ok_or(BadTarget::Relative)?;
        let mut bytes = Vec::with_capacity(rest.len());
        for (at, segment) in rest.split('/').enumerate() {
            let segment = decoded(segment.as_bytes())?;
            if segment.contains(&b'/') {
                return Err(BadTarget::Slash);
            }
            if at > 0 {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(&segment);
        }
        let encoded = format!("/{}", encoded_path(&bytes));
        let end = bytes.iter().position(|byte| *byte == b'/');
        let (bucket, key) = match end {
            Some(end) => (&bytes[..end], &bytes[end + 1..]),
            None => (&bytes[..], &[][..]),
        };
        Ok(Self {
            bucket: String::from_utf8_lossy(bucket).into_owned(),
            key: key.to_vec(),
            encoded,
        })
    }
}

/// Why a key names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// More than 1024 bytes.
    #[error("the key has more than {KEY_BYTES_MAX} bytes")]
    Long,
    /// `a//b`, or `/a`.
    #[error("the key has an empty component, which no path of a file has")]
    Empty,
    /// `.` or `..`.
    #[error("the key has a component . or .., which no path of a file has")]
    Dots,
    /// NUL, CR or LF.
    #[error("the key has a character that no path here has")]
    Control,
}

/// The path of a key below its bucket, and whether it is that of a directory: `d/`.
///
/// # Errors
/// No file can have it.
pub fn check_key(key: &[u8]) -> Result<(&[u8], bool), BadKey> {
    if key.len() > KEY_BYTES_MAX {
        return Err(BadKey::Long);
    }
    let path = key.strip_suffix(b"/").unwrap_or(key);
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" => return Err(BadKey::Empty),
            b"." | b".." => return Err(BadKey::Dots),
            _ => {}
        }
    }
    if path.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Err(BadKey::Control);
    }
    Ok((path, path.len() < key.len()))
}

/// Whether a bucket can have this name: what clients take for one, and no hidden directory.
pub fn is_bucket(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=255).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_known)
}

/// Key and bucket of `x-amz-copy-source`.
///
/// # Errors
/// It is none.
pub fn copy_source(text: &str) -> Result<ObjectTarget, BadTarget> {
    let text = text.strip_prefix('/').unwrap_or(text);
    // A key may be encoded as a whole there.
    let text = text.replace("%2F", "/").replace("%2f", "/");
    if text.contains('?') {
        return Err(BadTarget::Scheme);
    }
    ObjectTarget::of_path(&format!("/{text}"))
}

/// A part that is to become a piece of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletingPart {
    /// Its number and tag, and its CRC32C.
    pub part: Part,
    /// Other checksums of it, in base64.
    pub checksums: Vec<(ChecksumAlgorithm, String)>,
}

/// The parts of CompleteMultipartUpload, in ascending order: numbers and tags.
///
/// # Errors
/// It is none, or no object can be of such parts.
pub fn read_completing(body: &[u8]) -> Result<Vec<CompletingPart>, BadXml> {
    let mut document = rooted(body, "CompleteMultipartUpload")?;
    let mut parts = Vec::new();
    while let Some(name) = child(&mut document)? {
        if name != "Part" {
            return Err(BadXml::Unexpected);
        }
        if parts.len() as u64 == PARTS_MAX {
            return Err(BadXml::Large);
        }
        let (mut part, mut checksums) = (Part::default(), Vec::new());
        while let Some(name) = child(&mut document)? {
            match name.as_str() {
                "PartNumber" => {
                    let text = document.text()?;
                    part.number = part_number(&text).ok_or(BadXml::Unexpected)?;
                }
                "ETag" => part.tag = document.text()?,
                "ChecksumCRC32C" => part.crc32c = Some(document.text()?),
                name if name.starts_with("Checksum") => {
                    let known = CHECKSUMS.iter().find(|(_, _, element)| *element == name);
                    // One that is not known would count as compared.
                    let (algorithm, ..) = known.ok_or(BadXml::Unexpected)?;
                    checksums.push((*algorithm, document.text()?));
                }
                _ => document.skip()?,
            }
            if checksums.len() > CHECKSUMS_MAX {
                return Err(BadXml::Large);
            }
        }
        if part.number == 0 || part.tag.is_empty() {
            return Err(BadXml::Unexpected);
        }
        parts.push(CompletingPart { part, checksums });
    }
    Ok(parts)
}

/// A number of a part: 1 to 10,000.
pub fn part_number(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u32 = text.parse().ok().filter(|_| is_digits)?;
    let is_bounded = number > 0 && u64::from(number) <= PARTS_MAX;
    is_bounded.then_some(number)
}

/// The keys of DeleteObjects, and whether only those are told that were not removed.
///
/// # Errors
/// It is none, names versions, or has too many keys.
pub fn read_deleting(body: &[u8]) -> Result<(Vec<String>, bool), BadXml> {
    let mut document = rooted(body, "Delete")?;
    let (mut keys, mut is_quiet) = (Vec::new(), false);
    while let Some(name) = child(&mut document)? {
        match name.as_str() {
            "Quiet" => is_quiet = document.text()? == "true",
            "Object" if keys.len() == DELETE_MAX => return Err(BadXml::Large),
            "Object" => {
                let mut key = None;
                while let Some(name) = child(&mut document)? {
                    match name.as_str() {
                        "Key" if key.is_none() => key = Some(document.exact_text()?),
                        // A condition, or a version: to overlook it would remove another object.
                        _ => return Err(BadXml::Unexpected),
                    }
                }
                keys.push(key.ok_or(BadXml::Unexpected)?);
            }
            _ => return Err(BadXml::Unexpected),
        }
    }
    match keys.is_empty() {
        true => Err(BadXml::Unexpected),
        false => Ok((keys, is_quiet)),
    }
}

fn rooted<'a>(body: &'a [u8], root: &str) -> Result<Document<&'a [u8]>, BadXml> {
    let mut document = Document::new(body)?;
    match child(&mut document)? {
        Some(name) if name == root => Ok(document),
        _ => Err(BadXml::Unexpected),
    }
}

/// The next element inside the one that is open; `None`: that ends. Between them is nothing.
fn child(document: &mut Document<&[u8]>) -> Result<Option<String>, BadXml> {
    loop {
        match document.next()? {
            Some(Node::Open(name)) => return Ok(Some(name.local)),
            Some(Node::Close) => return Ok(None),
            Some(Node::Text(text)) if text.trim().is_empty() => {}
            Some(Node::Text(_)) => return Err(BadXml::Unexpected),
            None => return Err(BadXml::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::answers::completing;

    #[test]
    fn paths_have_a_bucket_and_a_key() {
        for (path, bucket, key) in [
            ("/", "", ""),
            ("/b", "b", ""),
            ("/b/", "b", ""),
            ("/b/a%20b/c", "b", "a b/c"),
            ("/b//c", "b", "/c"),
            ("/b/d/", "b", "d/"),
            ("/b/a+b%252F", "b", "a+b%2F"),
            ("/b/../c", "b", "../c"),
        ] {
            let target = ObjectTarget::of_path(path).unwrap();
            assert_eq!((&*target.bucket, &*target.key), (bucket, key.as_bytes()));
        }
        assert_eq!(
            ObjectTarget::of_path("/b/a+~'").unwrap().encoded,
            "/b/a%2B~%27"
        );
        assert_eq!(ObjectTarget::of_path("/b/a%2fb"), Err(BadTarget::Slash));
        assert_eq!(ObjectTarget::of_path("/b/%00"), Err(BadTarget::Control));
        assert_eq!(ObjectTarget::of_path("/b/%zz"), Err(BadTarget::Encoding));
        let source = copy_source("b%2Fa/b%20c").unwrap();
        assert_eq!((&*source.bucket, &*source.key), ("b", &b"a/b c"[..]));
        assert!(copy_source("/b/k?versionId=1").is_err());
    }

    #[test]
    fn keys_that_no_file_can_have_are_refused() {
        for (key, expected) in [
            ("a/b", Ok((&b"a/b"[..], false))),
            ("a/", Ok((b"a", true))),
            ("...", Ok((b"...", false))),
            ("/a", Err(BadKey::Empty)),
            ("a//b", Err(BadKey::Empty)),
            ("a//", Err(BadKey::Empty)),
            ("", Err(BadKey::Empty)),
            ("a/../b", Err(BadKey::Dots)),
            ("./", Err(BadKey::Dots)),
            ("a\nb", Err(BadKey::Control)),
        ] {
            assert_eq!(check_key(key.as_bytes()), expected, "{key}");
        }
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        assert_eq!(check_key(long.as_bytes()), Err(BadKey::Long));
        for (name, is) in [
            ("data", true),
            ("A_b.c-1", true),
            ("", false),
            ("..", false),
        ] {
            assert_eq!(is_bucket(name), is, "{name}");
        }
        assert!(!is_bucket(".hidden") && !is_bucket("a b") && !is_bucket("ü"));
    }

    #[test]
    fn queries_are_sorted_as_they_are_encoded() {
        let query = Query::parse("b=%2F&a=x+y&a-=1&X-Amz-Signature=s&uploads").unwrap();
        assert_eq!(query.get("b"), Some("/"));
        assert_eq!(query.canonical(), "a=x%2By&a-=1&b=%2F&uploads=");
        assert!(query.has_only(&["a", "a-", "b", "uploads"]));
        assert!(!query.has_only(&["a", "a-", "b"]));
        assert!(!Query::parse("a=1&a=2").unwrap().has_only(&["a"]));
        assert!(Query::parse("a=%ff").is_none());
    }

    #[test]
    fn a_completion_is_read_as_it_is_written() {
        let parts = [1, 2, 10_000].map(|number| Part {
            number,
            tag: format!("\"t{number}\""),
            crc32c: Some("AAAAAA==".to_owned()),
            ..Part::default()
        });
        let read = read_completing(completing(parts.iter()).as_bytes()).unwrap();
        let read: Vec<_> = read.into_iter().map(|part| part.part).collect();
        assert_eq!(read, parts);
        let told = |inner: &str| {
            let part = format!("<Part><PartNumber>1</PartNumber><ETag>t</ETag>{inner}</Part>");
            let body = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
            read_completing(body.as_bytes()).map(|mut parts| parts.remove(0).checksums)
        };
        assert_eq!(
            told("<Other>x</Other><ChecksumSHA256>abc=</ChecksumSHA256>").unwrap(),
            [(ChecksumAlgorithm::Sha256, "abc=".to_owned())]
        );
        assert!(told("<ChecksumMD4>x</ChecksumMD4>").is_err());
        assert!(told(&"<ChecksumSHA1>x</ChecksumSHA1>".repeat(5)).is_err());
        for number in ["0", "10001", "-1", "+1", "x", ""] {
            let body = format!(
                "<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber>\
                 <ETag>t</ETag></Part></CompleteMultipartUpload>"
            );
            assert!(read_completing(body.as_bytes()).is_err(), "{number}");
        }
        for body in [
            "",
            "<a/>",
            "<CompleteMultipartUpload><Part>",
            "<!DOCTYPE a><a/>",
        ] {
            assert!(read_completing(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn keys_to_remove_are_exact() {
        let read = |inner: &str| read_deleting(format!("<Delete>{inner}</Delete>").as_bytes());
        let one = "<Object><Key> a&amp;b </Key></Object>";
        let (keys, is_quiet) = read(&format!("{one}\n<Quiet>true</Quiet>")).unwrap();
        assert_eq!((keys, is_quiet), (vec![" a&b ".to_owned()], true));
        for inner in [
            "",
            "<Object/>",
            "<Object><Key>a</Key><VersionId>1</VersionId></Object>",
            "<Object><Key>a</Key><Key>b</Key></Object>",
            "text",
        ] {
            assert!(read(inner).is_err(), "{inner}");
        }
        assert_eq!(read(&one.repeat(DELETE_MAX)).unwrap().0.len(), DELETE_MAX);
        assert_eq!(read(&one.repeat(DELETE_MAX + 1)), Err(BadXml::Large));
    }
}
