//! Answers of PROPFIND (RFC 4918 §13): written resource by resource, so that a directory of any
//! size takes no memory, and read by clients.

use std::{fmt::Write as _, io::BufRead, time::SystemTime};

use crate::{
    conditions::{date, parse_date},
    dav::{BadXml, Name, Wanted},
    target::encoded,
    xml::{DAV, Document, Node, escape},
};

/// Text as it stands in XML and HTML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out
}

/// What a multistatus begins with.
pub const HEAD: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";

/// And ends with.
pub const TAIL: &str = "</D:multistatus>\n";

/// Resources of an answer that are read.
const RESOURCES_MAX: usize = 1_000_000;

/// A file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Of its URL, decoded.
    pub path: Vec<u8>,
    /// Else a file.
    pub is_collection: bool,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Last modification.
    pub modified: Option<SystemTime>,
    /// Of a file, with quotes.
    pub tag: Option<String>,
    /// Bytes that are free where a collection lies.
    pub free_bytes: Option<u64>,
}

/// The properties that a server has, in the order in which they are written.
const PROPERTIES: [&str; 7] = [
    "resourcetype",
    "getcontentlength",
    "getlastmodified",
    "getetag",
    "getcontenttype",
    "displayname",
    FREE,
];

/// RFC 4331. Only for requests that name it: to know it takes a system call.
const FREE: &str = "quota-available-bytes";

impl Wanted {
    /// Whether the free space has to be known.
    pub fn wants_free_bytes(&self) -> bool {
        matches!(self, Self::Properties(names) if names.iter().any(|name| name.is_dav(FREE)))
    }
}

impl Resource {
    /// The text of a property. `None`: the resource does not have it.
    fn value(&self, property: &str) -> Option<String> {
        let mut text = String::new();
        match property {
            "resourcetype" if self.is_collection => text.push_str("<D:collection/>"),
            "resourcetype" => {}
            "getcontentlength" => write!(text, "{}", self.size?).ok()?,
            "getlastmodified" => text.push_str(&date(self.modified?)),
            "getetag" => escape(self.tag.as_ref()?, &mut text),
            "getcontenttype" if !self.is_collection => text.push_str("application/octet-stream"),
            "displayname" => escape(&String::from_utf8_lossy(self.name()), &mut text),
            FREE => write!(text, "{}", self.free_bytes?).ok()?,
            _ => return None,
        }
        Some(text)
    }

    /// Last component.
    pub fn name(&self) -> &[u8] {
        let mut parts = self.path.rsplit(|byte| *byte == b'/');
        parts.find(|part| !part.is_empty()).unwrap_or(b"/")
    }

    /// Appends its `response`.
    pub fn write(&self, wanted: &Wanted, out: &mut String) {
        let slash = if self.is_collection && !self.path.ends_with(b"/") {
            "/"
        } else {
            ""
        };
        let (mut found, mut missing) = (String::new(), String::new());
        match wanted {
            Wanted::All | Wanted::Names => {
                for property in PROPERTIES {
                    match (self.value(property), wanted) {
                        (Some(_), Wanted::Names) => push(&mut found, property, ""),
                        (Some(value), _) => push(&mut found, property, &value),
                        (None, _) => {}
                    }
                }
            }
            Wanted::Properties(names) => {
                for name in names {
                    let property = (PROPERTIES.into_iter()).find(|known| name.is_dav(known));
                    match property.and_then(|property| self.value(property)) {
                        Some(value) => push(&mut found, &name.local, &value),
                        None => push_unknown(&mut missing, name),
                    }
                }
            }
        }
        out.push_str("<D:response><D:href>");
        out.push_str(&encoded(&self.path));
        out.push_str(slash);
        out.push_str("</D:href>");
        if !found.is_empty() || missing.is_empty() {
            push_status(out, &found, "200 OK");
        }
        if !missing.is_empty() {
            push_status(out, &missing, "404 Not Found");
        }
        out.push_str("</D:response>\n");
    }
}

fn push(out: &mut String, property: &str, value: &str) {
    let end = if value.is_empty() { "/>" } else { ">" };
    out.push_str("<D:");
    out.push_str(property);
    out.push_str(end);
    if !value.is_empty() {
        out.push_str(value);
        out.push_str("</D:");
        out.push_str(property);
        out.push('>');
    }
}

/// Names of elements have no characters to escape; namespaces may.
fn push_unknown(out: &mut String, name: &Name) {
    if name.namespace == DAV {
        return push(out, &name.local, "");
    }
    out.push('<');
    out.push_str(&name.local);
    out.push_str(" xmlns=\"");
    escape(&name.namespace, out);
    out.push_str("\"/>");
}

fn push_status(out: &mut String, properties: &str, status: &str) {
    out.push_str("<D:propstat><D:prop>");
    out.push_str(properties);
    out.push_str("</D:prop><D:status>HTTP/1.1 ");
    out.push_str(status);
    out.push_str("</D:status></D:propstat>");
}

/// How a server writes paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hrefs {
    /// Percent-encoded, as RFC 4918 §8.3 demands.
    Encoded,
    /// As the names are: XRootD.
    Literal,
}

/// Reads an answer to a request for the kinds of resources (`resourcetype`).
///
/// # Errors
/// See [`BadXml`]. One of them is a resource without its kind: it may not count as missing, nor as
/// a file.
pub fn read(body: &[u8], hrefs: Hrefs) -> Result<Vec<Resource>, BadXml> {
    let mut found = Resources::new(body, hrefs)?;
    let mut resources = Vec::new();
    while let Some(resource) = found.next()? {
        if resources.len() == RESOURCES_MAX {
            return Err(BadXml::Large);
        }
        resources.push(resource);
    }
    Ok(resources)
}

/// The same resource by resource, of an answer of any length of which little is held.
pub struct Resources<R> {
    document: Document<R>,
    hrefs: Hrefs,
}

impl<R: BufRead> Resources<R> {
    /// # Errors
    /// As [`read`].
    pub fn new(body: R, hrefs: Hrefs) -> Result<Self, BadXml> {
        let mut document = Document::new(body)?;
        match document.next()? {
            Some(Node::Open(name)) if name.is_dav("multistatus") => Ok(Self { document, hrefs }),
            _ => Err(BadXml::Unexpected),
        }
    }

    /// `None`: those were all.
    ///
    /// # Errors
    /// As [`read`]. A document that is cut off is malformed.
    #[expect(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<Resource>, BadXml> {
        while let Some(node) = self.document.next()? {
            match node {
                Node::Open(name) if name.is_dav("response") => {
                    let found = response(&mut self.document, self.hrefs)?;
                    if found.is_some() {
                        self.document.goes_on();
                        return Ok(found);
                    }
                }
                Node::Open(_) => self.document.skip()?,
                Node::Text(_) | Node::Close => {}
            }
        }
        Ok(None)
    }
}

/// `None`: the server says that it is not there any more.
fn response<R: BufRead>(
    document: &mut Document<R>,
    hrefs: Hrefs,
) -> Result<Option<Resource>, BadXml> {
    let (mut path, mut found) = (None, Properties::default());
    let mut is_gone = false;
    loop {
        match document.next()?.ok_or(BadXml::Malformed)? {
            Node::Open(name) if name.is_dav("href") => {
                path = Some(path_of(&document.text()?, hrefs));
            }
            Node::Open(name) if name.is_dav("propstat") => {
                let (properties, is_ok) = propstat(document)?;
                if is_ok {
                    found = found.or(properties);
                }
            }
            Node::Open(name) if name.is_dav("status") => {
                let status = document.text()?;
                is_gone = matches!(status.split(' ').nth(1), Some("404" | "410"));
            }
            Node::Open(_) => document.skip()?,
            Node::Text(_) => {}
            Node::Close if is_gone && found.is_collection.is_none() => return Ok(None),
            Node::Close => {
                return Ok(Some(Resource {
                    path: path.ok_or(BadXml::Unexpected)?,
                    is_collection: found.is_collection.ok_or(BadXml::Undescribed)?,
                    size: found.size,
                    modified: found.modified,
                    tag: found.tag,
                    free_bytes: found.free_bytes,
                }));
            }
        }
    }
}

/// What is told of a resource.
#[derive(Default)]
struct Properties {
    is_collection: Option<bool>,
    size: Option<u64>,
    modified: Option<SystemTime>,
    tag: Option<String>,
    free_bytes: Option<u64>,
}

impl Properties {
    fn or(self, other: Self) -> Self {
        Self {
            is_collection: self.is_collection.or(other.is_collection),
            size: self.size.or(other.size),
            modified: self.modified.or(other.modified),
            tag: self.tag.or(other.tag),
            free_bytes: self.free_bytes.or(other.free_bytes),
        }
    }
}

fn propstat<R: BufRead>(document: &mut Document<R>) -> Result<(Properties, bool), BadXml> {
    let (mut properties, mut is_ok) = (None, false);
    loop {
        match document.next()?.ok_or(BadXml::Malformed)? {
            Node::Open(name) if name.is_dav("prop") => properties = Some(prop(document)?),
            Node::Open(name) if name.is_dav("status") => {
                is_ok = document.text()?.split(' ').nth(1) == Some("200");
            }
            Node::Open(_) => document.skip()?,
            Node::Text(_) => {}
            Node::Close => return Ok((properties.ok_or(BadXml::Unexpected)?, is_ok)),
        }
    }
}

fn prop<R: BufRead>(document: &mut Document<R>) -> Result<Properties, BadXml> {
    let mut found = Properties::default();
    loop {
        match document.next()?.ok_or(BadXml::Malformed)? {
            Node::Open(name) if name.is_dav("resourcetype") => {
                let mut is_collection = false;
                loop {
                    match document.next()?.ok_or(BadXml::Malformed)? {
                        Node::Open(name) => {
                            is_collection |= name.is_dav("collection");
                            document.skip()?;
                        }
                        Node::Text(_) => {}
                        Node::Close => break,
                    }
                }
                found.is_collection = Some(is_collection);
            }
            Node::Open(name) => {
                let text = document.text()?;
                match name.local.as_str() {
                    _ if name.namespace != DAV => {}
                    "getcontentlength" => found.size = text.parse().ok(),
                    "getlastmodified" => found.modified = parse_date(&text),
                    "getetag" => found.tag = Some(text),
                    // XRootD 5 describes files by this alone.
                    "iscollection" => {
                        let told = match text.trim() {
                            "0" => Some(false),
                            "1" => Some(true),
                            _ => None,
                        };
                        found.is_collection = found.is_collection.or(told);
                    }
                    FREE => found.free_bytes = text.parse().ok(),
                    _ => {}
                }
            }
            Node::Text(_) => {}
            Node::Close => return Ok(found),
        }
    }
}

/// Of an absolute path or a URL; one that is malformed stays as it is.
fn path_of(href: &str, hrefs: Hrefs) -> Vec<u8> {
    let path = match href.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => href,
    };
    match hrefs {
        Hrefs::Encoded => percent_encoding::percent_decode_str(path).collect(),
        Hrefs::Literal => path.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, BufReader, Read as _},
        time::Duration,
    };

    use proptest::prelude::*;

    use super::*;

    fn file() -> Resource {
        Resource {
            path: b"/a b/<f>&".to_vec(),
            is_collection: false,
            size: Some(5),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(9)),
            tag: Some("\"x\"".to_owned()),
            free_bytes: None,
        }
    }

    fn directory() -> Resource {
        Resource {
            path: b"/a b".to_vec(),
            is_collection: true,
            size: None,
            tag: None,
            free_bytes: Some(7),
            ..file()
        }
    }

    fn document(resources: &[Resource], wanted: &Wanted) -> String {
        let mut text = HEAD.to_owned();
        for resource in resources {
            resource.write(wanted, &mut text);
        }
        text + TAIL
    }

    #[test]
    fn properties_are_found_or_missing() {
        let names = vec![
            Name::dav("getcontentlength"),
            Name::dav("resourcetype"),
            Name::dav("creationdate"),
            Name {
                namespace: "urn:\"x\"".to_owned(),
                local: "y".to_owned(),
            },
        ];
        let wanted = Wanted::Properties(names);
        let text = document(&[file()], &wanted);
        for part in [
            "<D:href>/a%20b/%3Cf%3E%26</D:href>",
            "<D:prop><D:getcontentlength>5</D:getcontentlength><D:resourcetype/></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status>",
            "<D:prop><D:creationdate/><y xmlns=\"urn:&quot;x&quot;\"/></D:prop>\
             <D:status>HTTP/1.1 404 Not Found</D:status>",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let names = document(&[directory()], &Wanted::Names);
        assert!(names.contains("<D:resourcetype/>") && !names.contains("getcontentlength"));
        assert!(names.contains("<D:href>/a%20b/</D:href>"), "{names}");
    }

    /// Comments without an end.
    struct Comments(usize);

    impl io::Read for Comments {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *buffer {
                *byte = b"<!-- -->"[self.0 % 8];
                self.0 += 1;
            }
            Ok(buffer.len())
        }
    }

    #[test]
    fn answers_come_in_pieces_and_little_of_them_is_held() {
        let text = document(&[directory(), file()], &Wanted::All);
        let mut found =
            Resources::new(BufReader::with_capacity(7, text.as_bytes()), Hrefs::Encoded);
        let found = found.as_mut().unwrap();
        for expected in [directory(), file()] {
            let found = found.next().unwrap().unwrap();
            assert_eq!(found.size, expected.size);
        }
        assert_eq!(found.next(), Ok(None));
        let mut cut = Resources::new(&text.as_bytes()[..text.len() - 9], Hrefs::Encoded).unwrap();
        while let Ok(found) = cut.next() {
            assert!(found.is_some(), "it is not complete");
        }
        for head in [HEAD.to_owned(), format!("{HEAD}<D:response a='")] {
            let endless = BufReader::new(head.as_bytes().chain(io::repeat(b'x')));
            let mut endless = Resources::new(endless, Hrefs::Encoded).unwrap();
            assert_eq!(endless.next(), Err(BadXml::Large), "{head}");
        }
        let fruitless = BufReader::new(HEAD.as_bytes().chain(Comments(0)));
        let mut fruitless = Resources::new(fruitless, Hrefs::Encoded).unwrap();
        assert_eq!(fruitless.next(), Err(BadXml::Large));
        let many =
            "<D:response><D:href>a<!-- --></D:href>".replace("<!-- -->", &"a<!-- -->".repeat(999));
        let endless = format!("{HEAD}{}", many.replace('a', &"a".repeat(2000)));
        assert_eq!(read(endless.as_bytes(), Hrefs::Encoded), Err(BadXml::Large));
    }

    #[test]
    fn answers_of_other_servers_are_read() {
        let text = "<?xml version='1.0'?><multistatus xmlns='DAV:' xmlns:x='urn:x'><response>\
            <href>https://h:1/d%20e/</href><propstat><prop><resourcetype><x:y/><collection/>\
            </resourcetype><getlastmodified>Thu, 01 Jan 1970 00:00:09 GMT</getlastmodified></prop>\
            <status>HTTP/1.1 200 OK</status></propstat><propstat><prop><getetag/></prop>\
            <status>HTTP/1.1 404 Not Found</status></propstat></response><response><href>/gone\
            </href><status>HTTP/1.1 404 Not Found</status></response></multistatus>";
        let found = read(text.as_bytes(), Hrefs::Encoded).unwrap();
        let expected = Resource {
            path: b"/d e/".to_vec(),
            free_bytes: None,
            ..directory()
        };
        assert_eq!(found, [expected]);
        let hidden = text.replace(
            "HTTP/1.1 404 Not Found</status></response>",
            "HTTP/1.1 403 Forbidden</status></response>",
        );
        assert_eq!(
            read(hidden.as_bytes(), Hrefs::Encoded),
            Err(BadXml::Undescribed)
        );
        assert_eq!(read(b"<a/>", Hrefs::Encoded), Err(BadXml::Unexpected));
        assert_eq!(
            read(&text.as_bytes()[..400], Hrefs::Encoded),
            Err(BadXml::Malformed)
        );
    }

    #[test]
    fn answers_of_xrootd_have_names_as_they_are() {
        let text = "<D:multistatus xmlns:D=\"DAV:\"><D:response xmlns:lp1=\"DAV:\">\
            <D:href>/a%20b &amp; c</D:href>\
            <D:propstat><D:prop><lp1:getcontentlength>5</lp1:getcontentlength>\
            <lp1:iscollection>0</lp1:iscollection></D:prop>\
            <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";
        let found = read(text.as_bytes(), Hrefs::Literal).unwrap();
        let expected = Resource {
            path: b"/a%20b & c".to_vec(),
            modified: None,
            tag: None,
            ..file()
        };
        assert_eq!(found, [expected]);
        let neither = text.replace(">0<", ">perhaps<");
        let read = read(neither.as_bytes(), Hrefs::Literal);
        assert_eq!(read, Err(BadXml::Undescribed));
    }

    proptest! {
        #[test]
        fn answers_are_read_as_written(name in "[^/\0\r\n]{1,12}", size: u64) {
            let file = Resource {
                path: format!("/{name}").into_bytes(),
                size: Some(size),
                ..file()
            };
            let text = document(std::slice::from_ref(&file), &Wanted::All);
            prop_assert_eq!(read(text.as_bytes(), Hrefs::Encoded).unwrap(), [file]);
        }
    }
}
