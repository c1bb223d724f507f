//! Wildcards in the last component of a path.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobMatcher};

use crate::error::{Error, Result};

/// What `*`, `?` and `[ ]` in a name match. Other bytes match themselves; a leading dot must be
/// written unless the pattern is `dotted`.
#[derive(Debug)]
pub(crate) struct Pattern {
    matcher: GlobMatcher,
    dotted: bool,
}

/// True for bytes that may be a pattern.
pub(crate) fn is_pattern(bytes: &[u8]) -> bool {
    bytes.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

impl Pattern {
    /// `name` is one component; `shown` names the whole in messages. `dotted`: it matches names
    /// with a leading dot.
    pub(crate) fn new(name: &[u8], shown: &str, dotted: bool) -> Result<Self> {
        let bad = |why: String| Error::Usage(format!("{shown}: bad pattern: {why}"));
        let text = std::str::from_utf8(name).map_err(|e| bad(e.to_string()))?;
        // Braces are alternatives in globset, but not in file names.
        let mut quoted = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '{' => quoted.push_str("[{]"),
                '}' => quoted.push_str("[}]"),
                c => quoted.push(c),
            }
        }
        let glob = GlobBuilder::new(&quoted)
            .literal_separator(true)
            .backslash_escape(false)
            .build()
            .map_err(|e| bad(e.kind().to_string()))?;
        Ok(Self {
            matcher: glob.compile_matcher(),
            dotted: dotted || text.starts_with('.'),
        })
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        (self.dotted || !name.starts_with(b"."))
            && self.matcher.is_match(Path::new(OsStr::from_bytes(name)))
    }
}

/// The error for a pattern above the last component.
pub(crate) fn only_last(shown: &str) -> Error {
    Error::Usage(format!(
        "{shown}: wildcards are understood in the last component only"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_as_shells_do() {
        for (pattern, name, want) in [
            ("*.dat", "a.dat", true),
            ("*.dat", ".dat", false),
            (".*", ".dat", true),
            ("a?", "ab", true),
            ("a?", "a", false),
            ("[ab]*", "bx", true),
            ("*", "with blank", true),
            ("{a,b}*", "a", false),
            ("{a,b}*", "{a,b}c", true),
        ] {
            let p = Pattern::new(pattern.as_bytes(), pattern, false).unwrap();
            assert_eq!(p.matches(name.as_bytes()), want, "{pattern} {name}");
        }
        assert!(Pattern::new(b"[", "[", false).is_err());
        assert!(Pattern::new(b"*", "*", true).unwrap().matches(b".dat"));
    }
}
