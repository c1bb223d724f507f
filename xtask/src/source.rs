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
    fn push(&mut self, kind: Kind, text: &str) {
        let blank = blanks(text);
        let of = |wanted| if kind == wanted { text } else { &blank };
        self.code.push_str(of(Kind::Code));
        self.comments.push_str(of(Kind::Comment));
        self.literals.push_str(of(Kind::Literal));
    }
}

/// Takes a file apart. Text that is no Rust ends up somewhere; nothing panics.
///
/// All marks are ASCII, so what stands between two of them is whole characters.
pub(crate) fn parts(text: &str) -> Parts {
    let bytes = text.as_bytes();
    let mut parts = Parts::default();
    // Where the code begins that has not been pushed yet.
    let mut code = 0;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let found = match rest {
            [b'/', b'/', ..] => {
                let end = rest.iter().position(|b| *b == b'\n');
                Some((Kind::Comment, 0, end.unwrap_or(rest.len())))
            }
            [b'/', b'*', ..] => Some((Kind::Comment, 0, block_comment(rest))),
            [b'"', tail @ ..] => Some((Kind::Literal, 1, string(tail))),
            [b'r', b'"' | b'#', ..] if begins_literal(&bytes[..at]) => raw_string(rest),
            [b'\'', b'\\', c, tail @ ..] if *c != b'\n' => {
                let end = tail.iter().position(|b| *b == b'\'');
                end.map(|end| (Kind::Literal, 1, end + 2))
            }
            [b'\'', ..] => character(&text[at + 1..]).map(|length| (Kind::Literal, 1, length)),
            _ => None,
        };
        let Some((kind, before, length)) = found else {
            at += 1;
            continue;
        };
        let begin = at + before;
        let end = (begin + length).min(bytes.len());
        parts.push(Kind::Code, &text[code..begin]);
        parts.push(kind, &text[begin..end]);
        code = end;
        // The mark at the end of a literal is code again; it may not begin another one.
        at = end + usize::from(kind == Kind::Literal);
    }
    parts.push(Kind::Code, &text[code..]);
    parts
}

/// As many blanks as the text has characters, and its line ends.
fn blanks(text: &str) -> String {
    let lines = text
        .split('\n')
        .map(|line| " ".repeat(line.chars().count()));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a raw string may begin after this: no identifier ends there, but for a `b` or `c` that
/// belongs to the literal.
fn begins_literal(before: &[u8]) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || !b.is_ascii();
    match before {
        [.., c, b'b' | b'c'] => !is_word(*c),
        [.., c] => !is_word(*c) || matches!(before, [b'b' | b'c']),
        [] => true,
    }
}

/// The length of a character that a `'` follows.
fn character(rest: &str) -> Option<usize> {
    let c = rest.chars().next()?;
    let length = c.len_utf8();
    (c != '\n' && rest.as_bytes().get(length) == Some(&b'\'')).then_some(length)
}

/// The length of a block comment; they nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// How much of a string stands before its closing mark.
fn string(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// How much stands before a raw string that begins here, and how long it is.
fn raw_string(rest: &[u8]) -> Option<(Kind, usize, usize)> {
    let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
    let before = hashes + 2;
    if rest.get(hashes + 1) != Some(&b'"') {
        return None;
    }
    let body = &rest[before..];
    let ends = |at: &usize| {
        body[*at] == b'"' && body[at + 1..].iter().take_while(|b| **b == b'#').count() >= hashes
    };
    let length = (0..body.len()).find(ends).unwrap_or(body.len());
    Some((Kind::Literal, before, length))
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
    fn columns_stay_where_characters_are_of_several_bytes() {
        let found = parts("'\u{e9}' + \"\u{e9}x\" // \u{e9}\n");
        assert_eq!(found.code, "' ' + \"  \"     \n");
        assert_eq!(found.literals, " \u{e9}     \u{e9}x      \n");
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for text in [
            "\"a",
            "r#\"a\"",
            "'\\",
            "/* a",
            "'",
            "b\"\\",
            "\"\\\u{e9}",
            "'\\\u{e9}",
        ] {
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
