//! The little of DER that OpenSSL's safe interface does not show: extensions of certificates and
//! the parts of names.
//!
//! Strict where it matters for safety: definite lengths only, nothing past the end, no recursion.
//!
//! By hand: der and x509-parser read whole certificates, which OpenSSL has read already; two
//! readers of the same bytes may disagree.

/// The bytes are no DER, or not of the expected shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// `[n]` with the constructed bit, as in explicit tags.
pub(crate) const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// Reads one element after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag of the next element, without taking it.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element: its tag and content.
    pub(crate) fn element(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let (&tag, _) = self.0.split_first().ok_or(Malformed)?;
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let (header, length) = header(self.0)?.ok_or(Malformed)?;
        let end = header.checked_add(length).ok_or(Malformed)?;
        let content = self.0.get(header..end).ok_or(Malformed)?;
        self.0 = &self.0[end..];
        Ok((tag, content))
    }

    /// The content of the next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(Malformed),
        }
    }

    /// The content of the next element if it has this tag.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.peek() == Some(tag) {
            self.expect(tag).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

/// The length of the whole first element, header included, once enough bytes are there to tell: how
/// much of a message is still to come.
pub(crate) fn total_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    match header(bytes)? {
        Some((header, length)) => header.checked_add(length).map(Some).ok_or(Malformed),
        None => Ok(None),
    }
}

/// Bytes of tag and length, and the length they tell.
fn header(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(&first) = bytes.get(1) else {
        return Ok(None);
    };
    if first < 0x80 {
        return Ok(Some((2, usize::from(first))));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > 4 {
        return Err(Malformed);
    }
    let Some(digits) = bytes.get(2..2 + count) else {
        return Ok(None);
    };
    let length = digits.iter().fold(0, |n, &d| n << 8 | usize::from(d));
    Ok(Some((2 + count, length)))
}

/// A small INTEGER that is not negative.
pub(crate) fn small_unsigned(content: &[u8]) -> Result<u32, Malformed> {
    match content {
        [] => Err(Malformed),
        [first, ..] if first & 0x80 != 0 => Err(Malformed),
        _ => {
            let digits = match content {
                [0, rest @ ..] => rest,
                all => all,
            };
            if digits.len() > 4 {
                // More than any counter reaches: as good as no bound.
                return Ok(u32::MAX);
            }
            Ok(digits.iter().fold(0, |n, &d| n << 8 | u32::from(d)))
        }
    }
}

/// `1.2.840...` of the content of an OBJECT IDENTIFIER.
pub(crate) fn oid_text(content: &[u8]) -> Result<String, Malformed> {
    let mut arcs: Vec<u64> = Vec::new();
    let mut arc: u64 = 0;
    for (i, &byte) in content.iter().enumerate() {
        if arc >> 56 != 0 || arcs.len() > 32 {
            return Err(Malformed);
        }
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            if i + 1 == content.len() {
                return Err(Malformed);
            }
            continue;
        }
        if arcs.is_empty() {
            let root = (arc / 40).min(2);
            arcs.push(root);
            arcs.push(arc - root * 40);
        } else {
            arcs.push(arc);
        }
        arc = 0;
    }
    if arcs.is_empty() {
        return Err(Malformed);
    }
    let words: Vec<String> = arcs.iter().map(u64::to_string).collect();
    Ok(words.join("."))
}

/// An element of this tag.
pub(crate) fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(u8::try_from(length).unwrap_or(0));
    } else {
        let digits = length.to_be_bytes();
        let skipped = digits.iter().take_while(|&&d| d == 0).count();
        out.push(0x80 | u8::try_from(digits.len() - skipped).unwrap_or(0));
        out.extend_from_slice(&digits[skipped..]);
    }
    out.extend_from_slice(content);
    out
}

/// A SEQUENCE of elements that are written already.
pub(crate) fn write_sequence(parts: &[&[u8]]) -> Vec<u8> {
    write(SEQUENCE, &parts.concat())
}

/// An INTEGER that is not negative.
pub(crate) fn write_unsigned(value: u32) -> Vec<u8> {
    let digits = value.to_be_bytes();
    let skipped = digits.iter().take_while(|&&d| d == 0).count().min(3);
    let mut content = digits[skipped..].to_vec();
    if content[0] & 0x80 != 0 {
        content.insert(0, 0);
    }
    write(INTEGER, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_elements_are_read_back() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let written = write(OCTET_STRING, &content);
            assert_eq!(total_length(&written), Ok(Some(written.len())));
            let mut reader = Reader::new(&written);
            assert_eq!(reader.expect(OCTET_STRING), Ok(content.as_slice()));
            assert_eq!(reader.end(), Ok(()));
        }
        for value in [0, 1, 127, 128, 255, 256, u32::MAX] {
            let written = write_unsigned(value);
            let content = Reader::new(&written).expect(INTEGER).expect("an integer");
            assert_eq!(small_unsigned(content), Ok(value));
        }
    }

    #[test]
    fn lengths_past_the_end_and_of_no_end_are_refused() {
        let cases: [&[u8]; 6] = [
            &[],
            &[0x30],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x05, 1],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x3f, 0x81, 0x00],
        ];
        for bytes in cases {
            assert_eq!(Reader::new(bytes).element(), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn identifiers_are_told_in_words() {
        assert_eq!(
            oid_text(&[0x2b, 6, 1, 5, 5, 7, 1, 14]).as_deref(),
            Ok("1.3.6.1.5.5.7.1.14")
        );
        assert_eq!(oid_text(&[0x88, 0x37]).as_deref(), Ok("2.999"));
        assert_eq!(oid_text(&[0x2b, 0x86]), Err(Malformed));
        assert_eq!(oid_text(&[]), Err(Malformed));
    }
}
