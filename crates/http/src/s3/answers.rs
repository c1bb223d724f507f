//! Bodies that S3 services answer with, and that of the request which completes an upload.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use percent_encoding::percent_decode_str;

use crate::{
    dav::BadXml,
    xml::{Document, Node, escape},
};

/// Objects, common prefixes, parts or uploads that one answer has: services say 1000.
const ENTRIES_MAX: usize = 10_000;

/// What ends in `Response` is of moto 5.2.1.
const PARTS_ROOTS: &[&str] = &["ListPartsResult", "ListPartsResponse"];
const MADE_ROOTS: &[&str] = &[
    "CompleteMultipartUploadResult",
    "CompleteMultipartUploadResponse",
    "CopyObjectResult",
    COPIED_PART_ROOT,
];

const COPIED_PART_ROOT: &str = "CopyPartResult";

/// A page of a listing (ListObjectsV2).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Objects whose keys end there.
    pub objects: Vec<Object>,
    /// What the keys of others begin with, to the delimiter.
    pub prefixes: Vec<Vec<u8>>,
    /// By what the next page is asked for; `None`: this is the last.
    pub next: Option<String>,
}

/// An object as a listing has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    /// Decoded.
    pub key: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// When it was stored.
    pub modified: Option<SystemTime>,
}

/// A page of the parts of an upload (ListParts).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PartsPage {
    /// In ascending order.
    pub parts: Vec<Part>,
    /// The number behind which the next page begins; `None`: this is the last.
    pub next: Option<u32>,
}

/// A part that the service has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// From 1 on.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// As the service wrote it, with quotes.
    pub tag: String,
    /// CRC32C of its bytes, in base64, where the service has it.
    pub crc32c: Option<String>,
}

/// A page of uploads that are not complete (ListMultipartUploads).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// In the order of their keys.
    pub uploads: Vec<OpenUpload>,
    /// Key and id behind which the next page begins; `None`: this is the last.
    pub next: Option<(Vec<u8>, String)>,
}

/// An upload that is not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenUpload {
    /// Decoded.
    pub key: Vec<u8>,
    /// The service's name for it.
    pub id: String,
    /// When it was begun.
    pub initiated: Option<SystemTime>,
}

/// Why a service refuses something: the code is for programs, the message for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// `NoSuchKey`.
    pub code: String,
    /// May be empty.
    pub message: String,
}

/// What a service made of the parts of an upload, or of an object or a part that it copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// With quotes.
    pub tag: String,
    /// CRC32C in base64, of the whole object, or of the part, alone.
    pub crc32c: Option<String>,
}

impl Page {
    /// # Errors
    /// It is not the whole of a page, or does not say whether it is the last.
    pub fn read(body: &[u8]) -> Result<Self, BadXml> {
        let mut document = rooted(body, &["ListBucketResult"])?;
        let mut page = Self::default();
        let (mut is_truncated, mut is_encoded) = (None, false);
        while let Some(name) = child(&mut document)? {
            if page.objects.len() + page.prefixes.len() >= ENTRIES_MAX {
                return Err(BadXml::Large);
            }
            match name.as_str() {
                "Contents" => page.objects.push(object(&mut document)?),
                "CommonPrefixes" => {
                    let prefix = fields(&mut document, ["Prefix"])?;
                    let [Some(prefix)] = prefix else {
                        return Err(BadXml::Undescribed);
                    };
                    page.prefixes.push(prefix.into_bytes());
                }
                "IsTruncated" => is_truncated = Some(flag(&document.exact_text()?)?),
                "NextContinuationToken" => page.next = Some(document.exact_text()?),
                "EncodingType" => is_encoded = document.exact_text()? == "url",
                _ => document.skip()?,
            }
        }
        page.next = continued(is_truncated, page.next)?;
        if is_encoded {
            let objects = page.objects.iter_mut().map(|object| &mut object.key);
            objects.chain(&mut page.prefixes).for_each(decode);
        }
        Ok(page)
    }
}

impl PartsPage {
    /// # Errors
    /// As [`Page::read`].
    pub fn read(body: &[u8]) -> Result<Self, BadXml> {
        let mut document = rooted(body, PARTS_ROOTS)?;
        let mut page = Self::default();
        let (mut is_truncated, mut next) = (None, None);
        while let Some(name) = child(&mut document)? {
            match name.as_str() {
                "Part" if page.parts.len() >= ENTRIES_MAX => return Err(BadXml::Large),
                "Part" => {
                    let wanted = ["PartNumber", "Size", "ETag", "ChecksumCRC32C"];
                    let [number, size, tag, crc32c] = fields(&mut document, wanted)?;
                    page.parts.push(Part {
                        number: number_of(number)?,
                        size: number_of(size)?,
                        tag: tag.ok_or(BadXml::Undescribed)?,
                        crc32c,
                    });
                }
                "IsTruncated" => is_truncated = Some(flag(&document.exact_text()?)?),
                "NextPartNumberMarker" => next = Some(document.exact_text()?),
                _ => document.skip()?,
            }
        }
        page.next = match continued(is_truncated, next)? {
            Some(marker) => Some(number_of(Some(marker))?),
            None => None,
        };
        Ok(page)
    }
}

impl UploadsPage {
    /// # Errors
    /// As [`Page::read`].
    pub fn read(body: &[u8]) -> Result<Self, BadXml> {
        let mut document = rooted(body, &["ListMultipartUploadsResult"])?;
        let mut page = Self::default();
        let (mut is_truncated, mut is_encoded) = (None, false);
        let (mut next_key, mut next_id) = (None, String::new());
        while let Some(name) = child(&mut document)? {
            match name.as_str() {
                "Upload" if page.uploads.len() >= ENTRIES_MAX => return Err(BadXml::Large),
                "Upload" => {
                    let wanted = ["Key", "UploadId", "Initiated"];
                    let [key, id, initiated] = fields(&mut document, wanted)?;
                    page.uploads.push(OpenUpload {
                        key: key.ok_or(BadXml::Undescribed)?.into_bytes(),
                        id: id.ok_or(BadXml::Undescribed)?,
                        initiated: initiated.as_deref().and_then(time),
                    });
                }
                "IsTruncated" => is_truncated = Some(flag(&document.exact_text()?)?),
                "NextKeyMarker" => next_key = Some(document.exact_text()?),
                "NextUploadIdMarker" => next_id = document.exact_text()?,
                "EncodingType" => is_encoded = document.exact_text()? == "url",
                _ => document.skip()?,
            }
        }
        let next = continued(is_truncated, next_key)?;
        page.next = next.map(|key| (key.into_bytes(), next_id));
        if is_encoded {
            let keys = page.uploads.iter_mut().map(|upload| &mut upload.key);
            keys.chain(page.next.iter_mut().map(|(key, _)| key))
                .for_each(decode);
        }
        Ok(page)
    }
}

impl Refusal {
    /// `None`: the body says none.
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut document = rooted(body, &["Error"]).ok()?;
        let [code, message] = fields(&mut document, ["Code", "Message"]).ok()?;
        Some(Self {
            code: code?,
            message: message.unwrap_or_default(),
        })
    }
}

/// The id of an upload that has begun (CreateMultipartUpload).
///
/// # Errors
/// It has none.
pub fn read_upload_id(body: &[u8]) -> Result<String, BadXml> {
    let mut document = rooted(body, &["InitiateMultipartUploadResult"])?;
    let [id] = fields(&mut document, ["UploadId"])?;
    id.filter(|id| !id.is_empty()).ok_or(BadXml::Undescribed)
}

impl Made {
    /// The answer to CompleteMultipartUpload, CopyObject or UploadPartCopy: with status 200 it may
    /// be an error, too.
    ///
    /// # Errors
    /// It is neither.
    pub fn read(body: &[u8]) -> Result<Result<Self, Refusal>, BadXml> {
        if rooted(body, &["Error"]).is_ok() {
            return Refusal::read(body).map(Err).ok_or(BadXml::Undescribed);
        }
        let mut document = rooted(body, MADE_ROOTS)?;
        let wanted = ["ETag", "ChecksumCRC32C", "ChecksumType"];
        let [tag, crc32c, kind] = fields(&mut document, wanted)?;
        // That of a part is of all its bytes, and says no type.
        let is_part = rooted(body, &[COPIED_PART_ROOT]).is_ok();
        let is_whole = is_part || kind.as_deref() == Some("FULL_OBJECT");
        Ok(Ok(Self {
            tag: tag.ok_or(BadXml::Undescribed)?,
            crc32c: crc32c.filter(|_| is_whole),
        }))
    }
}

/// The body of CompleteMultipartUpload.
pub fn completing<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    let mut body = "<CompleteMultipartUpload \
                    xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        .to_owned();
    for part in parts {
        let _ = write!(body, "<Part><PartNumber>{}</PartNumber><ETag>", part.number);
        escape(&part.tag, &mut body);
        body.push_str("</ETag>");
        if let Some(crc32c) = &part.crc32c {
            body.push_str("<ChecksumCRC32C>");
            escape(crc32c, &mut body);
            body.push_str("</ChecksumCRC32C>");
        }
        body.push_str("</Part>");
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

/// The document behind its root, which is to have one of these names.
pub(super) fn rooted<'a>(body: &'a [u8], roots: &[&str]) -> Result<Document<&'a [u8]>, BadXml> {
    let mut document = Document::new(body)?;
    match child(&mut document)? {
        Some(name) if roots.contains(&name.as_str()) => Ok(document),
        _ => Err(BadXml::Unexpected),
    }
}

/// The name of the next element inside the one that is open; `None`: that ends.
pub(super) fn child(document: &mut Document<&[u8]>) -> Result<Option<String>, BadXml> {
    loop {
        match document.next()? {
            Some(Node::Open(name)) => return Ok(Some(name.local)),
            Some(Node::Close) | None => return Ok(None),
            Some(Node::Text(_)) => {}
        }
    }
}

/// The texts of the named elements inside the one that is open, to its end.
pub(super) fn fields<const N: usize>(
    document: &mut Document<&[u8]>,
    names: [&str; N],
) -> Result<[Option<String>; N], BadXml> {
    let mut found = [const { None }; N];
    while let Some(name) = child(document)? {
        match names.iter().position(|wanted| *wanted == name) {
            Some(at) => found[at] = Some(document.exact_text()?),
            None => document.skip()?,
        }
    }
    Ok(found)
}

fn object(document: &mut Document<&[u8]>) -> Result<Object, BadXml> {
    let [key, size, modified] = fields(document, ["Key", "Size", "LastModified"])?;
    Ok(Object {
        key: key.ok_or(BadXml::Undescribed)?.into_bytes(),
        size: number_of(size)?,
        modified: modified.as_deref().and_then(time),
    })
}

fn number_of<N: std::str::FromStr>(text: Option<String>) -> Result<N, BadXml> {
    let text = text.ok_or(BadXml::Undescribed)?;
    text.trim().parse().map_err(|_| BadXml::Unexpected)
}

fn flag(text: &str) -> Result<bool, BadXml> {
    match text.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(BadXml::Unexpected),
    }
}

/// By what the page after this one is asked for: an answer that does not say whether it is the last
/// is not taken for it.
fn continued(is_truncated: Option<bool>, next: Option<String>) -> Result<Option<String>, BadXml> {
    match (is_truncated, next) {
        (Some(false), _) => Ok(None),
        (Some(true), Some(next)) if !next.is_empty() => Ok(Some(next)),
        _ => Err(BadXml::Unexpected),
    }
}

pub(super) fn time(text: &str) -> Option<SystemTime> {
    let time = text.trim().parse::<jiff::Timestamp>().ok()?;
    let since = u64::try_from(time.as_second()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

/// Services encode as forms do: a space is a plus.
fn decode(key: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(key).replace('+', " ");
    *key = percent_decode_str(&text).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_keys_as_they_are() {
        let page = |more: &str| {
            let body = format!(
                "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name>{more}\
                 <Contents><Key>a+b%2B%0A/&amp;</Key><Size>7</Size>\
                 <LastModified>2009-10-12T17:50:30.000Z</LastModified></Contents>\
                 <CommonPrefixes><Prefix>c%20/</Prefix></CommonPrefixes></ListBucketResult>"
            );
            Page::read(body.as_bytes())
        };
        let read =
            page("<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>").unwrap();
        assert_eq!(read.objects[0].key, b"a b+\n/&");
        assert_eq!((read.objects[0].size, read.next), (7, None));
        assert!(read.objects[0].modified.is_some());
        assert_eq!(read.prefixes, [b"c /"]);
        let plain =
            page("<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>");
        let plain = plain.unwrap();
        assert_eq!(plain.objects[0].key, b"a+b%2B%0A/&");
        assert_eq!(plain.next.as_deref(), Some("t"));
    }

    #[test]
    fn a_page_that_does_not_say_whether_it_is_the_last_is_none() {
        for body in [
            "<ListBucketResult></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>maybe</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>false</IsTruncated>",
            "<Error><Code>SlowDown</Code></Error>",
            "",
        ] {
            assert!(Page::read(body.as_bytes()).is_err(), "{body}");
        }
        let cut = "<ListPartsResult><IsTruncated>true</IsTruncated></ListPartsResult>";
        assert!(PartsPage::read(cut.as_bytes()).is_err());
    }

    #[test]
    fn an_error_is_no_success() {
        let refused = b"<Error><Code>InternalError</Code><Message>again</Message></Error>";
        let refusal = Made::read(refused).unwrap().unwrap_err();
        assert_eq!(refusal.code, "InternalError");
        let made = b"<CompleteMultipartUploadResult><ETag>\"a-2\"</ETag>\
            <ChecksumCRC32C>x-2</ChecksumCRC32C><ChecksumType>COMPOSITE</ChecksumType>\
            </CompleteMultipartUploadResult>";
        let made = Made::read(made).unwrap().unwrap();
        assert_eq!((made.tag.as_str(), made.crc32c), ("\"a-2\"", None));
        for body in [
            "",
            "<Other/>",
            "<CompleteMultipartUploadResult/>",
            "<Error/>",
        ] {
            assert!(Made::read(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn parts_go_into_the_request_that_completes_them() {
        let body = b"<ListPartsResult><IsTruncated>false</IsTruncated><Part>\
            <PartNumber>2</PartNumber><Size>9</Size><ETag>&quot;e&quot;</ETag></Part>\
            </ListPartsResult>";
        let page = PartsPage::read(body).unwrap();
        assert_eq!((page.parts[0].number, page.parts[0].size), (2, 9));
        let body = completing(page.parts.iter());
        assert!(body.contains("<PartNumber>2</PartNumber><ETag>&quot;e&quot;</ETag></Part>"));
    }
}
