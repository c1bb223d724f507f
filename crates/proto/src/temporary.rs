//! Names that godwit's client gives to incomplete files. The server knows them, to find partial
//! files that no client will finish.

use crate::odd_bytes::OddBytes;

/// `.godwit-<16 hexadecimal digits>.part`, hidden and recognisable as ours. `digits` are as unique
/// as they are random.
pub fn temporary_name(digits: u64) -> String {
    format!(".godwit-{digits:016x}.part")
}

/// The temporary name of a file whose final name contains such bytes: it has some of each kind, so
/// that the client sees how the server treats them before a file has the final name. Where only a
/// listing shows that, the name is not hidden from listings.
pub fn marked_temporary_name(digits: u64, odd: OddBytes) -> Vec<u8> {
    let plain = OddBytes::FOREIGN.has(odd);
    let mut name = format!("{}godwit-{digits:016x}", if plain { "." } else { "" }).into_bytes();
    let marks: [(OddBytes, &[u8]); 3] = [
        (OddBytes::FOREIGN, ".ü".as_bytes()),
        (OddBytes::CONTROL, b".\t\x01\x7f"),
        (OddBytes::TELNET, b".\xff"),
    ];
    for (_, mark) in marks.iter().filter(|(kind, _)| odd.has(*kind)) {
        name.extend_from_slice(mark);
    }
    name.extend_from_slice(b".part");
    if odd.has(OddBytes::END_BLANK) {
        name.push(b' ');
    }
    name
}

/// `.godwit-<16 hexadecimal digits>.old`: the file whose name another file is about to get. It is
/// no temporary name, so that no server removes it: until the rename it is the only copy.
pub fn backup_name(digits: u64) -> String {
    format!(".godwit-{digits:016x}.old")
}

/// Whether a name, without its directory, is one of [`backup_name`]'s. The leading dot is missing
/// where a server refuses it.
pub fn is_backup_name(name: &[u8]) -> bool {
    let name = name.strip_prefix(b".").unwrap_or(name);
    let digits = (name.strip_prefix(b"godwit-")).and_then(|rest| rest.strip_suffix(b".old"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether a name, without its directory, is one of [`temporary_name`]'s.
pub fn is_temporary(name: &[u8]) -> bool {
    temporary_digits(name).is_some()
}

/// The digits of one of [`temporary_name`]'s names; `None` for any other.
pub fn temporary_digits(name: &[u8]) -> Option<u64> {
    let name = name.strip_suffix(b" ").unwrap_or(name);
    let name = name.strip_prefix(b".").unwrap_or(name);
    let middle = name.strip_prefix(b"godwit-")?.strip_suffix(b".part")?;
    let (digits, marks) = middle.split_at_checked(16)?;
    let is_ours = digits.iter().all(u8::is_ascii_hexdigit) && matches!(marks, [] | [b'.', ..]);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_ours)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_known_again() {
        for digits in [0, 0x1234_5678_9abc_def0, u64::MAX] {
            assert!(is_temporary(temporary_name(digits).as_bytes()));
            for odd in (0..16).map(OddBytes::from_bits) {
                let name = marked_temporary_name(digits, odd);
                assert_eq!(temporary_digits(&name), Some(digits), "{name:?}");
                assert!(OddBytes::of(&name).has(odd), "{name:?}");
            }
        }
        let backup = backup_name(7);
        assert!(is_backup_name(backup.as_bytes()) && !is_backup_name(b".godwit-7.old"));
        assert!(is_backup_name(&backup.as_bytes()[1..]));
        for other in [
            &backup,
            "f",
            ".godwit-0123456789abcdef",
            ".godwit-0123.part",
            ".godwit-0123456789abcdeg.part",
            "godwit-0123456789abcdefx.part",
        ] {
            assert!(!is_temporary(other.as_bytes()), "{other}");
        }
    }
}
