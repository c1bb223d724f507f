//! Paths of requests: percent-encoding is decoded once, and what could lead elsewhere is refused.

use godwit_proto::FtpPath;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// Longest path, decoded.
const PATH_BYTES_MAX: usize = 4096;

/// What is encoded in a path besides bytes that are not ASCII: all but the characters of a segment
/// (RFC 3986 §3.3) and the slash. `&` and `'` are encoded, too, so that a path may stand in HTML
/// and XML as it is.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Absolute, without `.`, `..` and empty components.
    pub path: FtpPath,
    /// It was written with a slash at its end, as collections are.
    pub is_collection: bool,
}

/// Why there is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// Neither an absolute path nor a URL.
    #[error("the path does not begin with /")]
    Relative,
    /// `%` without two hexadecimal digits.
    #[error("the path has a percent sign without two hexadecimal digits")]
    Encoding,
    /// `.` or `..`, encoded or not: clients resolve them (RFC 3986 §5.2.4).
    #[error("the path has a component . or ..")]
    Dots,
    /// `%2F` is no separator, and no name has a slash.
    #[error("the path has an encoded slash")]
    Slash,
    /// NUL, CR or LF.
    #[error("the path has a control character that no name can have")]
    Control,
    /// More than 4096 bytes.
    #[error("the path has more than {PATH_BYTES_MAX} bytes")]
    Long,
    /// A URL with a scheme other than that of this server.
    #[error("the URL has another scheme")]
    Scheme,
    /// A URL of another server.
    #[error("the URL is of another server")]
    Elsewhere,
}

impl Target {
    /// Of the path of a request, without its query.
    ///
    /// # Errors
    /// See [`BadTarget`].
    pub fn of_path(text: &str) -> Result<Self, BadTarget> {
        let rest = text.strip_prefix('/').ok_or(BadTarget::Relative)?;
        let mut path = Vec::with_capacity(text.len());
        for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
            let name = decoded(segment.as_bytes())?;
            if name == b"." || name == b".." {
                return Err(BadTarget::Dots);
            }
            if name.contains(&b'/') {
                return Err(BadTarget::Slash);
            }
            path.push(b'/');
            path.extend_from_slice(&name);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(BadTarget::Long);
        }
        let path = match path.is_empty() {
            true => FtpPath::root(),
            false => FtpPath::new(path).map_err(|_| BadTarget::Control)?,
        };
        Ok(Self {
            path,
            is_collection: rest.is_empty() || rest.ends_with('/'),
        })
    }

    /// Of a `Destination` header (RFC 4918 §10.3): a URL of this server, whose `Host` header is
    /// `host`, or an absolute path.
    ///
    /// # Errors
    /// See [`BadTarget`].
    pub fn of_destination(text: &str, host: Option<&str>) -> Result<Self, BadTarget> {
        let text = text.trim();
        let text = text.split(['?', '#']).next().unwrap_or(text);
        if text.starts_with('/') && !text.starts_with("//") {
            return Self::of_path(text);
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadTarget::Relative)?;
        let is_ours = ["https", "davs"].iter();
        if !is_ours
            .clone()
            .any(|ours| scheme.eq_ignore_ascii_case(ours))
        {
            return Err(BadTarget::Scheme);
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let is_here = host.is_some_and(|host| {
            without_default_port(host).eq_ignore_ascii_case(without_default_port(authority))
        });
        if !is_here {
            return Err(BadTarget::Elsewhere);
        }
        Self::of_path(path)
    }
}

fn without_default_port(authority: &str) -> &str {
    authority.strip_suffix(":443").unwrap_or(authority)
}

/// Decodes percent-encoding once.
///
/// # Errors
/// [`BadTarget::Encoding`], [`BadTarget::Control`].
pub fn decoded(segment: &[u8]) -> Result<Vec<u8>, BadTarget> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.iter();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || {
                    let digit = char::from(*rest.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (high, low) = digit().zip(digit()).ok_or(BadTarget::Encoding)?;
                high << 4 | low
            }
            other => *other,
        };
        if matches!(byte, 0 | b'\r' | b'\n') {
            return Err(BadTarget::Control);
        }
        bytes.push(byte);
    }
    Ok(bytes)
}

/// A path or a name as it stands in URLs, in HTML and in XML.
pub fn encoded(path: &[u8]) -> String {
    percent_encode(path, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(text: &str) -> Result<String, BadTarget> {
        Target::of_path(text).map(|target| target.path.to_string())
    }

    #[test]
    fn paths_are_decoded_once() {
        for (text, path) in [
            ("/", "/"),
            ("/a%20b", "/a b"),
            ("/a%2520b", "/a%20b"),
            ("//a///b/", "/a/b"),
            ("/%C3%BC", "/ü"),
            ("/...", "/..."),
            ("/a+b", "/a+b"),
        ] {
            assert_eq!(target(text).as_deref(), Ok(path), "{text}");
        }
        let is_collection = |text| Target::of_path(text).unwrap().is_collection;
        assert!(is_collection("/") && is_collection("/a/") && !is_collection("/a"));
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        for (text, why) in [
            ("/..", BadTarget::Dots),
            ("/a/%2e%2E/b", BadTarget::Dots),
            ("/a/./b", BadTarget::Dots),
            ("/a%2fb", BadTarget::Slash),
            ("/..%2fb", BadTarget::Slash),
            ("/a%00b", BadTarget::Control),
            ("/a%0ab", BadTarget::Control),
            ("/a%", BadTarget::Encoding),
            ("/a%2", BadTarget::Encoding),
            ("/a%zz", BadTarget::Encoding),
            ("/a%+1", BadTarget::Encoding),
            ("a", BadTarget::Relative),
            ("", BadTarget::Relative),
            ("*", BadTarget::Relative),
        ] {
            assert_eq!(target(text), Err(why), "{text}");
        }
        let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
        assert_eq!(target(&long), Err(BadTarget::Long));
    }

    #[test]
    fn a_destination_is_on_this_server() {
        let host = Some("Data.example.org:443");
        for (text, found) in [
            ("https://data.example.org/a%20b", Ok("/a b")),
            ("davs://data.example.org:443/a", Ok("/a")),
            ("HTTPS://data.example.org", Ok("/")),
            ("/a?x#y", Ok("/a")),
            ("https://data.example.org:8443/a", Err(BadTarget::Elsewhere)),
            ("https://example.org/a", Err(BadTarget::Elsewhere)),
            ("https://jo@data.example.org/a", Err(BadTarget::Elsewhere)),
            ("http://data.example.org/a", Err(BadTarget::Scheme)),
            ("//data.example.org/a", Err(BadTarget::Relative)),
            ("https://data.example.org/../a", Err(BadTarget::Dots)),
        ] {
            let target = Target::of_destination(text, host);
            let target = target.map(|target| target.path.to_string());
            assert_eq!(target.as_deref(), found.as_ref().copied(), "{text}");
        }
        assert!(Target::of_destination("https://a/", None).is_err());
    }

    proptest! {
        #[test]
        fn encoded_names_are_decoded_to_themselves(name in "[^/\0\r\n]{1,20}") {
            prop_assume!(name != "." && name != "..");
            let path = format!("/{}", encoded(name.as_bytes()));
            let target = Target::of_path(&path).unwrap();
            prop_assert_eq!(target.path.file_name(), Some(name.as_bytes()));
            prop_assert!(!path.contains(['<', '>', '&', '"', '\'']));
        }
    }
}
