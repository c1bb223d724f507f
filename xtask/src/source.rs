//! The text of a Rust file, taken apart into code, comments and literals.

/// Three texts with the lines and columns of the file; what belongs to another one is blank.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Without comments and without what stands between quotation marks.
    pub(crate) code: String,
    /// `//`, `///`, `//!` and `/* */`, with their marks.
    pub(crate) comments: String,
    /// The contents of literals of strings and characters.
    pub(crate) literals: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Parts {
    fn push(&mut self, kind: Kind, chars: &[char]) {
        for c in chars {
            let blank = if *c == '\n' { '\n' } else { ' ' };
            let of = |wanted| if kind == wanted { *c } else { blank };
            self.code.push(of(Kind::Code));
            self.comments.push(of(Kind::Comment));
            self.literals.push(of(Kind::Literal));
        }
    }
}

/// Takes a file apart. Text that is no Rust ends up somewhere; nothing panics.
pub(crate) fn parts(text: &str) -> Parts {
    let chars: Vec<char> = text.chars().collect();
    let mut parts = Parts::default();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let (before, kind, length) = match rest {
            ['/', '/', ..] => {
                let end = rest.iter().position(|c| *c == '\n');
                (0, Kind::Comment, end.unwrap_or(rest.len()))
            }
            ['/', '*', ..] => (0, Kind::Comment, block_comment(rest)),
            ['"', tail @ ..] => (1, Kind::Literal, string(tail)),
            ['r', ..] if at == 0 || !is_word(chars[at - 1]) || is_byte(&chars[..at]) => {
                match raw_string(rest) {
                    Some((before, length)) => (before, Kind::Literal, length),
                    None => (0, Kind::Code, 1),
                }
            }
            ['\'', '\\', c, tail @ ..] if *c != '\n' => {
                let end = tail.iter().position(|c| *c == '\'').unwrap_or(0);
                (1, Kind::Literal, end + 2)
            }
            ['\'', c, '\'', ..] if *c != '\n' => (1, Kind::Literal, 1),
            _ => (0, Kind::Code, 1),
        };
        // The mark at the end of a literal is code again; it may not begin another one.
        let begin = (at + before).min(chars.len());
        let end = (begin + length).min(chars.len());
        let closed = (end + usize::from(kind == Kind::Literal)).min(chars.len());
        parts.push(Kind::Code, &chars[at..begin]);
        parts.push(kind, &chars[begin..end]);
        parts.push(Kind::Code, &chars[end..closed]);
        at = closed.max(at + 1);
    }
    parts
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a `b` or `c` that belongs to the literal stands last.
fn is_byte(before: &[char]) -> bool {
    match before {
        [.., c, 'b' | 'c'] => !is_word(*c),
        ['b' | 'c'] => true,
        _ => false,
    }
}

/// The length of a block comment; they nest.
fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// How much of a string stands before its closing mark.
fn string(rest: &[char]) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at
}

/// How much stands before a raw string that begins here, and how long it is.
fn raw_string(rest: &[char]) -> Option<(usize, usize)> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    let before = hashes + 2;
    if rest.get(hashes + 1) != Some(&'"') {
        return None;
    }
    let body = &rest[before..];
    let ends = |at: &usize| {
        body[*at] == '"' && body[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes
    };
    Some((before, (0..body.len()).find(ends).unwrap_or(body.len())))
}

/// The identifiers of a text that holds code alone, each with its line (from 1).
pub(crate) fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(line, text)| {
        let words = text.split(|c| !is_word(c));
        words
            .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
            .map(move |word| (line + 1, word))
    })
}

/// The words of an identifier, in lower case: `open_ahead`, `OPEN_AHEAD` and `OpenAhead` have the
/// same ones.
pub(crate) fn segments(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut lower_before = false;
    let mut begins = true;
    for c in identifier.chars() {
        if c == '_' {
            begins = true;
            continue;
        }
        if begins || (c.is_uppercase() && lower_before) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase() || c.is_numeric();
        begins = false;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{identifiers, parts, segments};

    #[test]
    fn a_file_is_taken_apart() {
        let text =
            "let a = \"b // c\\\"\"; // d \"e\"\n/* f /* g */ h */ br#\"i\"j\"# + 'k'; &'l m\n";
        let found = parts(text);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&found.code), "let a = \" \"; br#\" \"# + ' '; &'l m");
        assert_eq!(words(&found.comments), "// d \"e\" /* f /* g */ h */");
        assert_eq!(words(&found.literals), "b // c\\\" i\"j k");
        assert_eq!(found.code.lines().count(), text.lines().count());
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for text in ["\"a", "r#\"a\"", "'\\", "/* a", "'", "b\"\\"] {
            assert_eq!(
                parts(text).code.chars().count(),
                text.chars().count(),
                "{text}"
            );
        }
    }

    #[test]
    fn identifiers_and_their_words() {
        let code = "fn open_ahead(x: u8) {\n  OpenAhead::TCP_MAX + 0x1f\n}";
        let found: Vec<_> = identifiers(code).collect();
        assert_eq!(found[1], (1, "open_ahead"));
        assert!(found.contains(&(2, "OpenAhead")) && !found.iter().any(|(_, w)| *w == "0x1f"));
        assert_eq!(segments("OpenAhead"), segments("open_ahead"));
        assert_eq!(segments("TCP_MAX"), ["tcp", "max"]);
        assert_eq!(segments("_r2Is"), ["r2", "is"]);
    }
}
