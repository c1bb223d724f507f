//! What a WebDAV request asks for (RFC 4918): `Depth`, `Overwrite`, and the body of PROPFIND.

pub use crate::xml::{BadXml, Name};
use crate::xml::{Document, Node};

/// Longest body of PROPFIND.
pub const PROPFIND_BYTES_MAX: usize = 64 * 1024;

/// The word of a `DAV` header of a server that stores parts of files: PUT with `Content-Range`.
pub const PARTS: &str = "godwit-parts";

/// The word of one whose parts may end before their range does: their bodies come in chunks
/// (RFC 9112 §7.1), and the answer says which bytes it has stored.
pub const OPEN_PARTS: &str = "godwit-open-parts";

/// The header that says so, in the form of a `Content-Range`.
pub const STORED_HEADER: &str = "godwit-stored";

/// Properties that a request may name.
const NAMES_MAX: usize = 256;

/// Most bytes of their namespaces and names.
const NAMES_BYTES_MAX: usize = 8 << 10;

/// How much of a collection a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The collection itself.
    Zero,
    /// And its members.
    One,
    /// And all that is in them; what is meant without the header.
    Infinity,
}

impl Depth {
    /// `None`: the header has another value.
    pub fn parse(header: Option<&str>) -> Option<Self> {
        match header.map(str::trim) {
            Some("0") => Some(Self::Zero),
            Some("1") => Some(Self::One),
            None => Some(Self::Infinity),
            Some(text) if text.eq_ignore_ascii_case("infinity") => Some(Self::Infinity),
            Some(_) => None,
        }
    }
}

/// Whether MOVE and COPY may replace what is there. `None`: the header has another value.
pub fn overwrite(header: Option<&str>) -> Option<bool> {
    match header.map(str::trim) {
        None | Some("T" | "t") => Some(true),
        Some("F" | "f") => Some(false),
        Some(_) => None,
    }
}

/// What PROPFIND wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All properties and their values.
    All,
    /// The names of all.
    Names,
    /// These.
    Properties(Vec<Name>),
}

impl Wanted {
    /// Reads a body; an empty one wants all.
    ///
    /// # Errors
    /// See [`BadXml`].
    pub fn read(body: &[u8]) -> Result<Self, BadXml> {
        if body.len() > PROPFIND_BYTES_MAX {
            return Err(BadXml::Large);
        }
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::All);
        }
        let mut document = Document::new(body)?;
        match document.next()? {
            Some(Node::Open(name)) if name.is_dav("propfind") => {}
            _ => return Err(BadXml::Unexpected),
        }
        let mut wanted = None;
        loop {
            match document.next()? {
                Some(Node::Open(name)) => {
                    let found = match name.local.as_str() {
                        "allprop" if name.is_dav("allprop") => Self::All,
                        "propname" if name.is_dav("propname") => Self::Names,
                        "prop" if name.is_dav("prop") => {
                            let names = properties(&mut document)?;
                            set_once(&mut wanted, Self::Properties(names))?;
                            continue;
                        }
                        // Extensions are skipped (RFC 4918 §17).
                        _ => {
                            document.skip()?;
                            continue;
                        }
                    };
                    document.skip()?;
                    set_once(&mut wanted, found)?;
                }
                Some(Node::Text(text)) if text.trim().is_empty() => {}
                Some(Node::Text(_)) => return Err(BadXml::Unexpected),
                Some(Node::Close) => {}
                None => return wanted.ok_or(BadXml::Unexpected),
            }
        }
    }
}

fn set_once(wanted: &mut Option<Wanted>, found: Wanted) -> Result<(), BadXml> {
    match wanted.replace(found) {
        None => Ok(()),
        Some(_) => Err(BadXml::Unexpected),
    }
}

/// The names in a `prop` that was opened.
fn properties(document: &mut Document<&[u8]>) -> Result<Vec<Name>, BadXml> {
    let (mut names, mut bytes) = (Vec::new(), 0);
    loop {
        match document.next()?.ok_or(BadXml::Malformed)? {
            Node::Open(name) => {
                // Each resource of the answer repeats them.
                bytes += name.namespace.len() + name.local.len();
                if names.len() == NAMES_MAX || bytes > NAMES_BYTES_MAX {
                    return Err(BadXml::Large);
                }
                document.skip()?;
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Node::Text(_) => {}
            Node::Close => return Ok(names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_few_values() {
        for (text, depth) in [
            (None, Some(Depth::Infinity)),
            (Some("0"), Some(Depth::Zero)),
            (Some(" 1 "), Some(Depth::One)),
            (Some("Infinity"), Some(Depth::Infinity)),
            (Some("2"), None),
            (Some(""), None),
        ] {
            assert_eq!(Depth::parse(text), depth, "{text:?}");
        }
        assert_eq!(overwrite(None), Some(true));
        assert_eq!(overwrite(Some("F")), Some(false));
        assert_eq!(overwrite(Some("yes")), None);
    }

    #[test]
    fn bodies_of_clients_are_read() {
        assert_eq!(Wanted::read(b" \n"), Ok(Wanted::All));
        let all =
            "<?xml version=\"1.0\"?>\n<D:propfind xmlns:D='DAV:'><D:allprop/><x/></D:propfind>";
        assert_eq!(Wanted::read(all.as_bytes()), Ok(Wanted::All));
        let names = "<propfind xmlns='DAV:'><propname/></propfind>";
        assert_eq!(Wanted::read(names.as_bytes()), Ok(Wanted::Names));
        let some = "<a:propfind xmlns:a='DAV:' xmlns:b='urn:b'>\n <a:prop> <a:getetag/>\
            <b:x><b:y/></b:x><none xmlns=''/><a:getetag/></a:prop>\n</a:propfind>";
        let name = |namespace: &str, local: &str| Name {
            namespace: namespace.to_owned(),
            local: local.to_owned(),
        };
        let expected = vec![Name::dav("getetag"), name("urn:b", "x"), name("", "none")];
        assert_eq!(
            Wanted::read(some.as_bytes()),
            Ok(Wanted::Properties(expected))
        );
    }

    #[test]
    fn bodies_that_make_no_sense_are_refused() {
        let in_prop = |inner: &str| format!("<p:propfind xmlns:p='DAV:'>{inner}</p:propfind>");
        for (body, why) in [
            ("<propfind/>".to_owned(), BadXml::Unexpected),
            (in_prop(""), BadXml::Unexpected),
            (in_prop("<p:allprop/><p:propname/>"), BadXml::Unexpected),
            (in_prop("text"), BadXml::Unexpected),
            (in_prop("<p:prop><q:a/></p:prop>"), BadXml::Malformed),
            (
                in_prop("<p:prop><q:a xmlns:q=''/></p:prop>"),
                BadXml::Malformed,
            ),
            (in_prop("<p:prop>"), BadXml::Malformed),
            (in_prop("<p:prop>&x;</p:prop>"), BadXml::Entity),
            (
                format!("{}<a/>", in_prop("<p:allprop/>")),
                BadXml::Malformed,
            ),
            (
                "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>".to_owned(),
                BadXml::DocumentType,
            ),
            (in_prop(&"<a>".repeat(100)), BadXml::Large),
            ("x".repeat(PROPFIND_BYTES_MAX + 1), BadXml::Large),
            ("<propfind xmlns='DAV:'>".to_owned(), BadXml::Malformed),
        ] {
            assert_eq!(Wanted::read(body.as_bytes()), Err(why), "{body:.80}");
        }
        assert_eq!(Wanted::read(b"\xff"), Err(BadXml::Encoding));
        let names: String = (0..=NAMES_MAX).map(|n| format!("<a{n}/>")).collect();
        let body = in_prop(&format!("<p:prop>{names}</p:prop>"));
        assert_eq!(Wanted::read(body.as_bytes()), Err(BadXml::Large));
        // One long namespace, repeated for each name in an answer.
        let names = "<a/><b/><c/><d/><e/><f/><g/><h/><i/>";
        let namespace = "n".repeat(NAMES_BYTES_MAX / 8);
        let body = in_prop(&format!("<p:prop xmlns='{namespace}'>{names}</p:prop>"));
        assert_eq!(Wanted::read(body.as_bytes()), Err(BadXml::Large));
    }
}
