//! URLs as text: what `globus-url-copy` takes for one, and its parts. Pure.

/// What is said on the command line or in a list, as godwit reads it: `file:/path` gets its
/// slashes.
pub(crate) fn url(text: &[u8]) -> Vec<u8> {
    match text.strip_prefix(b"file:/") {
        Some(path) if !path.starts_with(b"/") => [b"file:///", path].concat(),
        _ => text.to_vec(),
    }
}

/// A URL whose path is meant as RFC 1738 has it (§3.2.2): below the home of the user, or below the
/// root where it begins with an encoded slash. What is no URL of a server stays.
pub(crate) fn relative(text: &[u8]) -> Vec<u8> {
    let Some(at) = text.windows(6).position(|w| w == b"ftp://") else {
        return text.to_vec();
    };
    let host = text[at + 6..].iter().position(|b| *b == b'/');
    let (before, path) = text.split_at(host.map_or(text.len(), |host| at + 6 + host));
    let slashes = path.iter().take_while(|b| **b == b'/').count();
    let path = &path[slashes..];
    match path {
        [b'%', b'2', b'F' | b'f', path @ ..] => [before, b"/", path].concat(),
        [b'~', ..] => [before, b"/", path].concat(),
        path => [before, b"/~/", path].concat(),
    }
}

/// What is before the last component, with its slash, and the component.
pub(crate) fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    text.split_at(end)
}

/// A name may match several.
pub(crate) fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// A path as it stands in a URL. An `@` could end a login, and is escaped.
pub(crate) fn encoded(path: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || b"/-._~!$&'()+,=:".contains(&byte) {
            true => text.push(byte),
            false => text.extend(format!("%{byte:02X}").bytes()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_the_original_reads_them() {
        for (text, wanted) in [
            ("file:/tmp/f", "file:///tmp/f"),
            ("file:///tmp/f", "file:///tmp/f"),
            ("f", "f"),
            ("gsiftp://h/a/b", "gsiftp://h/a/b"),
        ] {
            let read = url(text.as_bytes());
            assert_eq!(String::from_utf8(read).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn relative_paths_begin_at_home() {
        for (text, wanted) in [
            ("ftp://h/a/b", "ftp://h/~/a/b"),
            ("gsiftp://h//a/", "gsiftp://h/~/a/"),
            ("ftp://h", "ftp://h/~/"),
            ("ftp://h/%2Fa", "ftp://h/a"),
            ("ftp://h/~/a", "ftp://h/~/a"),
            ("ftp://h/~jo", "ftp://h/~jo"),
            ("file:///a", "file:///a"),
            ("-", "-"),
        ] {
            let read = relative(text.as_bytes());
            assert_eq!(String::from_utf8(read).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn parts_of_urls() {
        assert_eq!(split(b"ftp://h/a/b"), (&b"ftp://h/a/"[..], &b"b"[..]));
        assert_eq!(split(b"f"), (&b""[..], &b"f"[..]));
        assert_eq!(encoded("a b/c%?"), b"a%20b/c%25%3F");
        assert!(is_pattern(b"a*") && !is_pattern(b"a%2A"));
    }
}
