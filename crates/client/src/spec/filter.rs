//! Which names of two trees are compared: rules in the syntax of rsync's `--include` and
//! `--exclude`.
//!
//! The first rule that matches a name decides; a name without a match is compared. Excluded names
//! are not touched at either end, and excluded directories are not entered. In a pattern:
//! - `/` at its beginning anchors it at the top of the tree; else it matches whole components at
//!   the end of the path;
//! - `/` at its end: directories only;
//! - `*` and `?`: anything, one byte, but no slash; `**`: anything with slashes too; `[a-z]`,
//!   `[!a]`, `[[:digit:]]`: one byte; `\`: the next byte means itself, if there is a wildcard at
//!   all;
//! - `dir/***`: the directory and everything below it.
//!
//! Source: rsync(1), "PATTERN MATCHING RULES"; a test compares with rsync itself.

use std::fmt;

use regex::bytes::{RegexSet, RegexSetBuilder, SetMatches};

/// Most bytes of the compiled rules. Some ten thousand rules.
const COMPILED_BYTES_MAX: usize = 64 << 20;

/// Rules, in order. Without rules every name is compared.
#[derive(Clone, Default)]
pub struct Filter {
    rules: Vec<Rule>,
    patterns: RegexSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    includes: bool,
    directories_only: bool,
    /// Ends in `***`: a match below a directory includes the directory.
    reaches_up: bool,
    /// As written.
    text: Vec<u8>,
    /// Over the path with a slash before it.
    regex: String,
}

impl Filter {
    /// From `--include` (true) and `--exclude` (false), in order. As in rsync, `+ ` or `- ` before
    /// a pattern overrides the option, and `!` alone clears the rules before it.
    ///
    /// # Errors
    /// The rules are too long.
    pub fn new<'a>(options: impl IntoIterator<Item = (bool, &'a [u8])>) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (includes, text) in options {
            match text {
                b"" => {}
                b"!" => rules.clear(),
                [b'+', b' ', pattern @ ..] => rules.push(Rule::new(true, pattern)),
                [b'-', b' ', pattern @ ..] => rules.push(Rule::new(false, pattern)),
                pattern => rules.push(Rule::new(includes, pattern)),
            }
        }
        let patterns = RegexSetBuilder::new(rules.iter().map(|rule| &rule.regex))
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        Ok(Self {
            patterns: patterns.map_err(|e| format!("--include and --exclude: {e}"))?,
            rules,
        })
    }

    /// True if a name is excluded; `path` is below the top, without a slash at either end.
    pub fn excludes(&self, path: &[u8], is_directory: bool) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let mut text = [b"/", path].concat();
        let here = self.patterns.matches(&text);
        text.push(b'/');
        let below = (is_directory && self.rules.iter().any(|rule| rule.reaches_up))
            .then(|| self.patterns.matches(&text));
        let matched = |at: usize, rule: &Rule| {
            let reached = |below: &SetMatches| rule.reaches_up && below.matched(at);
            (here.matched(at) || below.as_ref().is_some_and(reached))
                && (is_directory || !rule.directories_only)
        };
        let mut rules = self.rules.iter().enumerate();
        let first = rules.find(|(at, rule)| matched(*at, rule));
        first.is_some_and(|(_, rule)| !rule.includes)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.rules.iter().map(|rule| {
            let sign = if rule.includes { '+' } else { '-' };
            format!("{sign} {}", String::from_utf8_lossy(&rule.text))
        });
        f.debug_list().entries(shown).finish()
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Eq for Filter {}

impl Rule {
    fn new(includes: bool, text: &[u8]) -> Self {
        let (pattern, directories_only) = match text {
            [pattern @ .., b'/'] if !pattern.is_empty() => (pattern, true),
            pattern => (pattern, false),
        };
        let wild = pattern.iter().any(|b| matches!(b, b'*' | b'?' | b'['));
        let (pattern, is_anchored) = match pattern {
            [b'/', rest @ ..] => (rest, true),
            pattern => (pattern, false),
        };
        let body = match wild {
            true => translated(pattern),
            false => pattern.iter().map(|b| literal(*b)).collect(),
        };
        let regex = match is_anchored {
            true => format!(r"\A/{body}\z"),
            // Matches the slash before the path as well as any other.
            false if pattern.starts_with(b"**") => format!(r"\A{body}\z"),
            false => format!(r"/{body}\z"),
        };
        Self {
            includes,
            directories_only,
            reaches_up: wild && pattern.ends_with(b"***"),
            text: text.to_vec(),
            regex,
        }
    }
}

fn literal(byte: u8) -> String {
    match byte.is_ascii_alphanumeric() || byte == b'/' {
        true => char::from(byte).to_string(),
        false => format!(r"\x{byte:02x}"),
    }
}

/// A pattern with wildcards as a regular expression.
fn translated(mut pattern: &[u8]) -> String {
    let mut regex = String::new();
    while let Some((first, rest)) = pattern.split_first() {
        pattern = rest;
        match first {
            b'*' => {
                let more = rest.iter().take_while(|b| **b == b'*').count();
                pattern = &rest[more..];
                regex.push_str(if more > 0 { ".*" } else { "[^/]*" });
            }
            b'?' => regex.push_str("[^/]"),
            b'[' => match class(rest) {
                Some((bytes, rest)) => {
                    regex.push_str(&bytes);
                    pattern = rest;
                }
                // It is unterminated, and rsync ignores it.
                None => regex.push_str(NEVER),
            },
            b'\\' => match rest.split_first() {
                Some((escaped, rest)) => {
                    regex.push_str(&literal(*escaped));
                    pattern = rest;
                }
                None => regex.push_str(NEVER),
            },
            byte => regex.push_str(&literal(*byte)),
        }
    }
    regex
}

/// Matches nothing.
const NEVER: &str = r"[^\x00-\xff]";

/// The bytes of a class, whose `[` has been read, and what follows it.
fn class(mut pattern: &[u8]) -> Option<(String, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    if negated {
        pattern = &pattern[1..];
    }
    let mut within = [false; 256];
    let mut before = None;
    let mut first = true;
    loop {
        let (byte, rest) = pattern.split_first()?;
        pattern = rest;
        let mut take = *byte;
        match byte {
            b']' if !first => break,
            b'[' if rest.first() == Some(&b':') => {
                let end = rest.iter().position(|b| *b == b']')?;
                if let Some(name) = rest[1..end].strip_suffix(b":") {
                    let belongs = named(name)?;
                    (0..=255_u8).for_each(|b| within[usize::from(b)] |= belongs(&b));
                    pattern = &rest[end + 1..];
                    (before, first) = (None, false);
                    continue;
                }
            }
            b'-' if before.is_some() && rest.first().is_some_and(|b| *b != b']') => {
                let (mut last, mut rest) = rest.split_first()?;
                if *last == b'\\' {
                    (last, rest) = rest.split_first()?;
                }
                let from = before.take().unwrap_or(*last);
                (from..=*last).for_each(|b| within[usize::from(b)] = true);
                (pattern, first) = (rest, false);
                continue;
            }
            b'\\' => {
                let (escaped, rest) = rest.split_first()?;
                (take, pattern) = (*escaped, rest);
            }
            _ => {}
        }
        within[usize::from(take)] = true;
        (before, first) = (Some(take), false);
    }
    let mut regex = String::from("[");
    for (byte, within) in (0..=255_u8).zip(within) {
        if within != negated && byte != b'/' {
            regex.push_str(&format!(r"\x{byte:02x}"));
        }
    }
    match regex.len() {
        1 => Some((NEVER.to_owned(), pattern)),
        _ => Some((regex + "]", pattern)),
    }
}

/// `[:alpha:]` and its like.
fn named(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |b| matches!(b, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |b| matches!(b, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |b| matches!(b, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        Filter::new(rules.iter().map(|rule| (false, rule.as_bytes()))).unwrap()
    }

    #[test]
    fn patterns_mean_what_they_mean_to_rsync() {
        for (pattern, excluded, kept) in [
            ("f", "f a/f f/", "ff a/ff fa"),
            ("/f", "f f/", "a/f"),
            ("a/f", "a/f b/a/f", "f ba/f a/b/f"),
            ("/a/f", "a/f", "b/a/f"),
            ("f/", "f/ a/f/", "f a/f"),
            ("*.o", "x.o a/x.o .o", "x.oo"),
            ("a*/f", "a/f ab/f c/ab/f", "a/b/f"),
            ("a**f", "af axf a/x/f b/a/x/f", "f b"),
            ("**f", "f a/f af", "a"),
            ("**/f", "f a/f", "af"),
            ("/a/**/f", "a/b/f a/b/c/f", "a/f b/a/b/f"),
            ("/a/**", "a/b a/b/c a/b/", "a/ a"),
            ("a/***", "a/ a/b a/b/c b/a/", "ab/ a"),
            ("?", "a b/c", "ab"),
            ("[a-c]x", "ax cx", "dx -x"),
            ("[!a]", "b", "a"),
            ("[^]a]", "b", "a ]"),
            ("[]-]", "] -", "a"),
            ("[[:digit:]x]", "1 x", "d :"),
            ("[a", "", "a [a"),
            (r"\*a*", "*a *ab", "xa"),
            (r"a\b", r"a\b", "ab"),
            ("a b", "", "b"),
        ] {
            let filter = filter(&[pattern]);
            for (names, wanted) in [(excluded, true), (kept, false)] {
                for name in names.split_whitespace() {
                    let is_directory = name.ends_with('/');
                    let path = name.trim_end_matches('/').as_bytes();
                    let got = filter.excludes(path, is_directory);
                    assert_eq!(got, wanted, "{pattern} {name}");
                }
            }
        }
    }

    #[test]
    fn the_first_match_decides() {
        let rules = [(true, &b"*/"[..]), (true, b"*.rs"), (false, b"*")];
        let filter = Filter::new(rules).unwrap();
        assert!(!filter.excludes(b"src", true) && !filter.excludes(b"src/x.rs", false));
        assert!(filter.excludes(b"src/x.o", false));
        let rules = [
            (false, &b"a"[..]),
            (true, b"!"),
            (true, b"- b"),
            (false, b"+ c"),
            (false, b""),
        ];
        let filter = Filter::new(rules).unwrap();
        assert!(!filter.excludes(b"a", false) && filter.excludes(b"b", false));
        assert_eq!(format!("{filter:?}"), r#"["- b", "+ c"]"#);
        assert!(!Filter::default().excludes(b"anything", true));
    }
}
