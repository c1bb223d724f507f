//! Shell patterns for one name.
//!
//! By hand: globset takes patterns in UTF-8 only, gives `{` a meaning that fnmatch does not, and
//! compiles each pattern of a client to a regular expression.

/// Does this hold characters that [`matches()`] treats as a pattern?
pub(super) fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// `*`, `?`, `[a-z]`, `[!a-z]` and `\x` as in fnmatch(3), over bytes. A leading dot is matched only
/// by a dot, as shells do it; a `[` without its `]` means itself. Time is at most the product of
/// both lengths.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    // Behind the last star, and where in the name it is tried: an earlier star never needs another
    // try.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, n));
            continue;
        }
        let step = match name.get(n) {
            None if p == pattern.len() => return true,
            // More pattern than name: a longer bite of the star does not help.
            None => return false,
            Some(byte) => one(&pattern[p..], *byte),
        };
        match (step, retry) {
            (Some(used), _) => {
                p += used;
                n += 1;
            }
            (None, Some((behind, at))) => {
                p = behind;
                n = at + 1;
                retry = Some((behind, n));
            }
            (None, None) => return false,
        }
    }
}

/// Bytes of `pattern` that match this one byte; `None` where they do not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => match class(rest, byte) {
            Some((used, true)) => Some(1 + used),
            Some((_, false)) => None,
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// What follows a `[`: its length with the `]`, and whether `byte` is in the class. `None` without
/// a `]`.
fn class(rest: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let first = usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        match rest.get(at..)? {
            [] => return None,
            // A `]` that comes first is a member.
            [b']', ..] if at > first => return Some((at + 1, found != negated)),
            [low, b'-', high, ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [member, ..] => {
                found |= *member == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn as_shells_do_it() {
        for (pattern, name, want) in [
            ("*", "", true),
            ("*", "abc", true),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("?hidden", ".hidden", false),
            ("*.dat", "a.dat", true),
            ("*.dat", "a.data", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("?", "a", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[ab", "[ab", true),
            ("[ab", "a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("", "", true),
            ("", "a", false),
        ] {
            let got = matches(pattern.as_bytes(), name.as_bytes());
            assert_eq!(got, want, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(100) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(255).as_bytes()));
    }

    /// Obviously right, and slow.
    fn by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match pattern {
            [] => name.is_empty(),
            [b'*', rest @ ..] => (0..=name.len()).any(|i| by_definition(rest, &name[i..])),
            _ => name.first().is_some_and(|byte| {
                one(pattern, *byte).is_some_and(|used| by_definition(&pattern[used..], &name[1..]))
            }),
        }
    }

    proptest! {
        #[test]
        fn backtracking_is_complete(
            pattern in vec(proptest::sample::select(b"*?ab[]!-\\".as_slice()), 0..8),
            name in vec(proptest::sample::select(b"ab-[".as_slice()), 0..8),
        ) {
            prop_assert_eq!(matches(&pattern, &name), by_definition(&pattern, &name));
        }
    }
}
