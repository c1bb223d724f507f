//! Sentences say byte, as the standard library does, not octet.

use super::{Fault, Text, is_generated};

const RULE: &str = "bytes, unless an RFC is quoted";

/// Prose is what stands in comments, literals and pages. Excused are a quotation (`"..."`), the
/// types OCTET STRING and octet-stream, and names: `octets=` on the wire, `"octets"` in a log,
/// `InOctets` of a kernel.
pub(super) fn check(text: &Text, faults: &mut Vec<Fault>) {
    if is_generated(&text.path) || text.is_rule() {
        return;
    }
    let comments: Vec<&str> = text.parts.comments.lines().collect();
    let code: Vec<&str> = text.parts.code.lines().collect();
    // Whether a quotation has begun in this paragraph and not ended.
    let mut quoted = false;
    for (number, line) in text.text.lines().enumerate() {
        let prose = if text.is_rust() {
            comments.get(number).copied().unwrap_or_default()
        } else {
            line
        };
        if prose.trim_matches(['/', '!', ' ']).is_empty() {
            quoted = false;
        }
        for at in places(line) {
            // The two lines have the same columns, not the same bytes.
            let column = line[..at].chars().count();
            let is_code = |line: &&str| line.chars().nth(column).is_some_and(|c| c != ' ');
            if code.get(number).is_some_and(is_code) {
                continue;
            }
            let before = prose.chars().take(column).filter(|c| *c == '"').count();
            let in_prose = prose.chars().nth(column).is_some_and(|c| c != ' ');
            let is_quotation = in_prose && (before % 2 == 1) != quoted;
            if !is_quotation && !is_name(line, at) {
                faults.push(text.fault(RULE, number + 1, "octets"));
            }
        }
        quoted ^= prose.matches('"').count() % 2 == 1;
    }
}

/// Where the word stands in a line.
fn places(line: &str) -> Vec<usize> {
    let lower = line.to_ascii_lowercase();
    lower.match_indices("octet").map(|(at, _)| at).collect()
}

fn is_name(line: &str, at: usize) -> bool {
    let rest = &line[at..];
    let end = rest
        .find(|c: char| !c.is_alphanumeric())
        .unwrap_or(rest.len());
    let before = line[..at].chars().next_back();
    let after = rest[end..].chars().next();
    let is_mark = |c: Option<char>| matches!(c, Some('"' | '`' | '\\'));
    rest.starts_with("OCTET STRING")
        || rest.starts_with("octet-stream")
        || is_mark(before) && is_mark(after)
        || before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        || matches!(after, Some('=' | '(' | '_'))
}

#[cfg(test)]
mod tests {
    use super::{super::tests, check};

    fn faults(path: &str, text: &str) -> usize {
        tests::faults(check, path, text).len()
    }

    #[test]
    fn octets_in_sentences_are_faults() {
        for text in [
            "// so many octets\n",
            "let x = \"{} octets\";",
            "/// Octet by octet.\n",
        ] {
            assert_ne!(faults("crates/a/src/lib.rs", text), 0, "{text}");
        }
        assert_eq!(faults("docs/a.md", "It has\nthree octets.\n"), 1);
    }

    #[test]
    fn quotations_and_names_are_excused() {
        for text in [
            "// RFC 959: \"the octets of\n// the file, octet by octet\", it says\n",
            "let four = address.octets();",
            "let fact = \"octets=12;\"; // `octets` on the wire",
            "#[serde(rename = \"octets\")]",
            "// an OCTET STRING of DER\n",
            "let counter = \"IpExt: InOctets OutOctets\";",
        ] {
            assert_eq!(faults("crates/a/src/lib.rs", text), 0, "{text}");
        }
        assert_eq!(faults("docs/a.md", "\"The octets\" of `octets=`.\n"), 0);
        assert_eq!(
            faults("docs/a.md", "A \"mark\n\nthree octets\n"),
            1,
            "a new paragraph"
        );
    }
}
