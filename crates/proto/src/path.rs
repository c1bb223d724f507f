//! Names on the wire.

use std::fmt;

/// A path as bytes: not empty, and without NUL and LF, which no control channel can carry. CR is
/// in none that a client makes: servers that know CR NUL (RFC 2640 §3.1) are rare, others store
/// another name.
///
/// Bytes and not text, since file systems hold names that are not UTF-8 and nothing may be lost
/// (RFC 2640 §3 asks for UTF-8 where it is possible).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FtpPath(Vec<u8>);

/// Why bytes are no [`FtpPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// No byte at all.
    #[error("empty path")]
    Empty,
    /// NUL, CR or LF inside.
    #[error("path holds byte {0:#04x}, which a control channel cannot carry")]
    Byte(u8),
}

impl FtpPath {
    /// Checks `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, BadPath> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(BadPath::Empty);
        }
        match bytes.iter().find(|b| matches!(b, 0 | b'\r' | b'\n')) {
            Some(b) => Err(BadPath::Byte(*b)),
            None => Ok(Self(bytes)),
        }
    }

    /// As [`Self::new`], for a name that a peer sent as CR NUL where it holds CR.
    pub fn received(bytes: impl Into<Vec<u8>>) -> Result<Self, BadPath> {
        let bytes = bytes.into();
        match bytes.iter().find(|b| matches!(b, 0 | b'\n')) {
            _ if bytes.is_empty() => Err(BadPath::Empty),
            Some(b) => Err(BadPath::Byte(*b)),
            None => Ok(Self(bytes)),
        }
    }

    /// The root, `/`.
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// The bytes as they travel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for a path that begins with `/`.
    pub fn is_absolute(&self) -> bool {
        self.0.first() == Some(&b'/')
    }

    /// `self` seen from the working directory `cwd` (absolute) with home directory `home`
    /// (absolute): `~` and `~/x` mean home; `//`, `/./` and `/..` are folded textually; a trailing
    /// `/` goes; `..` above the root stays at the root. The result is absolute.
    pub fn resolve(&self, cwd: &Self, home: &Self) -> Self {
        let rest = self.0.as_slice();
        let (base, tail): (&[u8], _) = match rest {
            [b'/', ..] => (b"", rest),
            [b'~'] | [b'~', b'/', ..] => (&home.0, &rest[1..]),
            _ => (&cwd.0, rest),
        };
        let mut out = Vec::with_capacity(base.len() + tail.len() + 1);
        for part in [base, tail]
            .into_iter()
            .flat_map(|path| path.split(|b| *b == b'/'))
        {
            match part {
                b"" | b"." => {}
                b".." => {
                    let parent = out.iter().rposition(|b| *b == b'/');
                    out.truncate(parent.unwrap_or(0));
                }
                _ => {
                    out.push(b'/');
                    out.extend_from_slice(part);
                }
            }
        }
        if out.is_empty() {
            Self::root()
        } else {
            Self(out)
        }
    }

    /// Last component; `None` for the root, `.` and `..`.
    pub fn file_name(&self) -> Option<&[u8]> {
        self.0
            .rsplit(|b| *b == b'/')
            .find(|p| !p.is_empty())
            .filter(|p| *p != b"." && *p != b"..")
    }

    /// All but the last component, or `None` for a bare name and the root.
    pub fn parent(&self) -> Option<Self> {
        let end = self.0.iter().rposition(|b| *b != b'/')? + 1;
        let cut = self.0[..end].iter().rposition(|b| *b == b'/')?;
        let head = &self.0[..cut];
        let head_end = head.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
        Some(if head_end == 0 {
            Self::root()
        } else {
            Self(head[..head_end].to_vec())
        })
    }

    /// What is called `name`, one component, in the directory of `self`: `None` where that is a
    /// bare name, the root, or `name` is bad.
    pub fn sibling(&self, name: &[u8]) -> Option<Self> {
        self.parent()?.join(name).ok()
    }

    /// `self/name`. `name` must be one component.
    pub fn join(&self, name: &[u8]) -> Result<Self, BadPath> {
        if name.is_empty() {
            return Err(BadPath::Empty);
        }
        let mut v = Vec::with_capacity(self.0.len() + name.len() + 1);
        v.extend_from_slice(&self.0);
        if v.last() != Some(&b'/') {
            v.push(b'/');
        }
        v.extend_from_slice(name);
        Self::new(v)
    }
}

impl fmt::Display for FtpPath {
    /// Lossy where the bytes are not UTF-8: for people, never for the wire.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FtpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> FtpPath {
        FtpPath::new(s).unwrap()
    }

    #[test]
    fn resolve_folds_and_never_leaves_the_root() {
        let (cwd, home) = (p("/a/b"), p("/home/u"));
        for (arg, want) in [
            ("x y", "/a/b/x y"),
            ("/x//y/./z/", "/x/y/z"),
            ("../../../../etc", "/etc"),
            ("~", "/home/u"),
            ("~/f", "/home/u/f"),
            ("~user", "/a/b/~user"),
            ("/", "/"),
            ("..", "/a"),
        ] {
            assert_eq!(p(arg).resolve(&cwd, &home), p(want), "{arg}");
        }
    }

    #[test]
    fn names_and_parents() {
        assert_eq!(p("/a/b/").file_name(), Some(&b"b"[..]));
        assert_eq!(p("/").file_name(), None);
        assert_eq!(p("/a/b//").parent(), Some(p("/a")));
        assert_eq!(p("/a").parent(), Some(p("/")));
        assert_eq!(p("a").parent(), None);
        assert_eq!(FtpPath::new("a\nb"), Err(BadPath::Byte(b'\n')));
    }
}
