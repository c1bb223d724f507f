//! Small pieces of text handling that several parsers share.

/// A decimal number: digits only, no sign, no blanks; `None` on overflow.
pub(crate) fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// `bytes` for people: lossy, control characters escaped, at most `chars_max` characters.
pub(crate) fn printable(bytes: &[u8], chars_max: usize) -> String {
    let mut out = String::new();
    for (i, c) in String::from_utf8_lossy(bytes).chars().enumerate() {
        if i == chars_max {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// `bytes` without leading blanks.
pub(crate) fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let n = bytes.iter().take_while(|b| **b == b' ').count();
    &bytes[n..]
}

/// The first word of `bytes` (leading blanks skipped) and what follows the one blank behind it.
pub(crate) fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let bytes = skip_blanks(bytes);
    match bytes.iter().position(|b| *b == b' ') {
        Some(i) => (&bytes[..i], &bytes[i + 1..]),
        None => (bytes, &[]),
    }
}

/// Position of `needle` in `hay`, ASCII letters compared without case.
pub(crate) fn find_ignoring_case(hay: &str, needle: &str) -> Option<usize> {
    let (hay, needle) = (hay.as_bytes(), needle.as_bytes());
    hay.windows(needle.len().max(1))
        .position(|w| w.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_takes_digits_only() {
        assert_eq!(decimal::<u64>("18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "18446744073709551616",
            "1a",
            "١",
        ] {
            assert_eq!(decimal::<u64>(bad), None, "{bad:?}");
        }
        assert_eq!(decimal::<u8>("256"), None);
    }

    #[test]
    fn printable_escapes_and_cuts() {
        assert_eq!(printable(b"a\r\n\x1b[2J", 40), "a\\r\\n\\u{1b}[2J");
        assert_eq!(printable(b"abcdef", 3), "abc…");
    }

    #[test]
    fn words() {
        assert_eq!(split_word(b"  A  b c"), (&b"A"[..], &b" b c"[..]));
        assert_eq!(split_word(b"A"), (&b"A"[..], &b""[..]));
        assert_eq!(find_ignoring_case("No Such File", "such f"), Some(3));
        assert_eq!(find_ignoring_case("x", "xy"), None);
    }
}
