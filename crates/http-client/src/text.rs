//! Text of a peer that people read.

/// Characters of it that a message has.
const CHARACTERS_MAX: usize = 256;

/// At most 256 printable characters.
#[must_use]
pub fn printable(text: &[u8]) -> String {
    // A character has at most four bytes.
    let head = &text[..text.len().min(CHARACTERS_MAX * 4)];
    let head = String::from_utf8_lossy(head);
    let shown = head.trim().chars().take(CHARACTERS_MAX);
    let is_shown = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    shown.map(|c| if is_shown(c) { c } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_is_bounded_and_printable() {
        assert_eq!(printable(b"  a\r\nb\x1b[1m\xff "), "a  b [1m\u{fffd}");
        assert_eq!(printable(&[b'a'; 10_000]).len(), 256);
        assert_eq!(printable("\u{202e}abc".as_bytes()), " abc");
    }
}
