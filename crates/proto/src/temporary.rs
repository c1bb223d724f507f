//! Names that godwit's client gives to files which are not whole yet. A server must know them, to tell what nobody will finish.

/// `.godwit-<16 hexadecimal digits>.part`, hidden and plainly ours. `digits` are unique as far as they are random; `foreign` adds a letter
/// that is no ASCII before the end, which shows what a server makes of such names.
pub fn temporary_name(digits: u64, foreign: bool) -> String {
    let letter = if foreign { ".ü" } else { "" };
    format!(".godwit-{digits:016x}{letter}.part")
}

/// `.godwit-<16 hexadecimal digits>.old`: what had a name that another file is about to get. Not a temporary name, so
/// that nobody clears it away: until the other has the name it is the only copy.
pub fn aside_name(digits: u64) -> String {
    format!(".godwit-{digits:016x}.old")
}

/// Whether a name, without its directory, is one of [`aside_name`]'s.
pub fn is_aside(name: &[u8]) -> bool {
    let digits = (name.strip_prefix(b".godwit-")).and_then(|rest| rest.strip_suffix(b".old"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether a name, without its directory, is one of [`temporary_name`]'s.
pub fn is_temporary(name: &[u8]) -> bool {
    temporary_digits(name).is_some()
}

/// The digits of one of [`temporary_name`]'s names; `None` for any other.
pub fn temporary_digits(name: &[u8]) -> Option<u64> {
    let middle = name.strip_prefix(b".godwit-")?.strip_suffix(b".part")?;
    let digits = middle.strip_suffix(".ü".as_bytes()).unwrap_or(middle);
    let is_number = digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_known_again() {
        for digits in [0, 0x1234_5678_9abc_def0, u64::MAX] {
            assert!(is_temporary(temporary_name(digits, false).as_bytes()));
            assert!(is_temporary(temporary_name(digits, true).as_bytes()));
        }
        let aside = aside_name(7);
        assert!(is_aside(aside.as_bytes()) && !is_aside(b".godwit-7.old"));
        for other in [
            &aside,
            "f",
            ".godwit-0123456789abcdef",
            ".godwit-0123.part",
            ".godwit-0123456789abcdeg.part",
            "godwit-0123456789abcdef.part",
        ] {
            assert!(!is_temporary(other.as_bytes()), "{other}");
        }
    }
}
