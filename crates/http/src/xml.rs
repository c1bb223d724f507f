//! XML of peers: without document types, entities of its own, and depth past a bound.

use std::io::{self, BufRead, Read};

use quick_xml::{
    NsReader,
    escape::resolve_predefined_entity,
    events::{BytesStart, Event},
    name::ResolveResult,
};

/// Elements inside each other.
const DEPTH_MAX: usize = 32;

/// Bytes of a tag, a comment or a text without either.
const PART_BYTES_MAX: usize = 1 << 20;

/// Bytes of a body that comes piece by piece and leads to nothing.
const FRUITLESS_BYTES_MAX: usize = 16 << 20;

/// Bytes of the text of an element.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// How UTF-8 may begin.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Namespace of WebDAV.
pub(crate) const DAV: &str = "DAV:";

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadXml {
    /// Not UTF-8, which all WebDAV software writes.
    #[error("the body is not in UTF-8")]
    Encoding,
    /// Not well-formed.
    #[error("the body is not well-formed XML")]
    Malformed,
    /// A document type, which could define entities.
    #[error("the body has a document type")]
    DocumentType,
    /// An entity other than the five of XML.
    #[error("the body has an unknown entity")]
    Entity,
    /// Too deep, too many names, or too long.
    #[error("the body is too large")]
    Large,
    /// Well-formed, and not what this request has.
    #[error("the body is not what the request needs")]
    Unexpected,
    /// A resource is there, and the server does not say what it is.
    #[error("the server does not describe one of the resources")]
    Undescribed,
}

/// Name of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Empty: none.
    pub namespace: String,
    /// Without prefix.
    pub local: String,
}

impl Name {
    /// A name of WebDAV.
    pub fn dav(local: &str) -> Self {
        Self {
            namespace: DAV.to_owned(),
            local: local.to_owned(),
        }
    }

    /// Whether it is this name of WebDAV.
    pub fn is_dav(&self, local: &str) -> bool {
        self.namespace == DAV && self.local == local
    }
}

/// Part of a document.
pub(crate) enum Node {
    Open(Name),
    Close,
    Text(String),
}

/// What is read of `R`, of which no more than a part between two marks is held.
pub(crate) struct Document<R> {
    reader: NsReader<Bounded<R>>,
    part: Vec<u8>,
    depth: usize,
    /// The one element at the top has ended.
    is_over: bool,
}

impl<R: BufRead> Document<R> {
    pub(crate) fn new(mut body: R) -> Result<Self, BadXml> {
        let first = body.fill_buf().map_err(|error| bad(&error.into()))?;
        if first.starts_with(BYTE_ORDER_MARK) {
            body.consume(BYTE_ORDER_MARK.len());
        }
        let mut reader = NsReader::from_reader(Bounded {
            body,
            part_bytes: 0,
            bytes: 0,
        });
        reader.config_mut().expand_empty_elements = true;
        Ok(Self {
            reader,
            part: Vec::new(),
            depth: 0,
            is_over: false,
        })
    }

    /// `None`: the document is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Node>, BadXml> {
        loop {
            self.part.clear();
            self.reader.get_mut().part_bytes = 0;
            let read = self.reader.read_resolved_event_into(&mut self.part);
            let (namespace, event) = read.map_err(|error| bad(&error))?;
            let namespace = match namespace {
                ResolveResult::Bound(namespace) => Some(namespace.as_ref().to_owned()),
                ResolveResult::Unbound => Some(String::new()),
                ResolveResult::Unknown(_) => None,
            };
            match event {
                Event::Start(start) => {
                    check_prefixes(&start)?;
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(BadXml::Large);
                    }
                    if self.is_over {
                        return Err(BadXml::Malformed);
                    }
                    return Ok(Some(Node::Open(Name {
                        namespace: namespace.ok_or(BadXml::Malformed)?,
                        local: start.local_name().as_ref().to_owned(),
                    })));
                }
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or(BadXml::Malformed)?;
                    self.is_over = self.depth == 0;
                    return Ok(Some(Node::Close));
                }
                Event::Text(text) => {
                    let text = text.into_inner();
                    if self.depth > 0 {
                        return Ok(Some(Node::Text(text.into_owned())));
                    }
                    if !text.trim().is_empty() {
                        return Err(BadXml::Malformed);
                    }
                }
                Event::CData(text) if self.depth > 0 => {
                    return Ok(Some(Node::Text(text.into_inner().into_owned())));
                }
                Event::GeneralRef(reference) if self.depth > 0 => {
                    let character = reference.resolve_char_ref().map_err(|_| BadXml::Entity)?;
                    let text = match character {
                        Some(character) => character.to_string(),
                        None => resolve_predefined_entity(&reference.into_inner())
                            .ok_or(BadXml::Entity)?
                            .to_owned(),
                    };
                    return Ok(Some(Node::Text(text)));
                }
                Event::CData(_) | Event::GeneralRef(_) | Event::Empty(_) => {
                    return Err(BadXml::Malformed);
                }
                Event::DocType(_) => return Err(BadXml::DocumentType),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
                Event::Eof => {
                    return match self.is_over {
                        true => Ok(None),
                        false => Err(BadXml::Malformed),
                    };
                }
            }
        }
    }

    /// What was read has led to something, and as much as before may follow.
    pub(crate) fn goes_on(&mut self) {
        self.reader.get_mut().bytes = 0;
    }

    /// Skips what is left of the element that was opened last.
    pub(crate) fn skip(&mut self) -> Result<(), BadXml> {
        let depth = self.depth;
        while self.depth >= depth {
            self.next()?.ok_or(BadXml::Malformed)?;
        }
        Ok(())
    }

    /// The text of the element that was opened last, without that of elements inside, and without
    /// blanks around it.
    pub(crate) fn text(&mut self) -> Result<String, BadXml> {
        Ok(self.exact_text()?.trim().to_owned())
    }

    /// The same with the blanks.
    pub(crate) fn exact_text(&mut self) -> Result<String, BadXml> {
        let mut text = String::new();
        loop {
            match self.next()?.ok_or(BadXml::Malformed)? {
                Node::Text(more) if text.len() + more.len() > TEXT_BYTES_MAX => {
                    return Err(BadXml::Large);
                }
                Node::Text(more) => text.push_str(&more),
                Node::Open(_) => self.skip()?,
                Node::Close => return Ok(text),
            }
        }
    }
}

/// A body of which a reader that wants too much at once gets no more.
struct Bounded<R> {
    body: R,
    /// That the reader has taken and may hold.
    part_bytes: usize,
    /// That it has taken since the last [`Document::goes_on`].
    bytes: usize,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.part_bytes > PART_BYTES_MAX || self.bytes > FRUITLESS_BYTES_MAX {
            true => Err(io::ErrorKind::QuotaExceeded.into()),
            false => self.body.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        self.part_bytes += count;
        self.bytes = self.bytes.saturating_add(count);
        self.body.consume(count);
    }
}

/// What cannot be read is cut off, for the reader of the document.
fn bad(error: &quick_xml::Error) -> BadXml {
    match error {
        quick_xml::Error::Encoding(_) => BadXml::Encoding,
        quick_xml::Error::Io(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            BadXml::Large
        }
        _ => BadXml::Malformed,
    }
}

/// A prefix cannot stand for no namespace (Namespaces in XML 1.0 §5).
fn check_prefixes(start: &BytesStart<'_>) -> Result<(), BadXml> {
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|_| BadXml::Malformed)?;
        let key: &str = attribute.key.as_ref();
        if key.starts_with("xmlns:") && attribute.value.is_empty() {
            return Err(BadXml::Malformed);
        }
    }
    Ok(())
}

/// Text as it stands in XML and HTML. Characters that XML 1.0 cannot have are replaced.
pub(crate) fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push_str(&format!("&#{};", u32::from(character))),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}
