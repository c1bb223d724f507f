//! Line ends of TYPE A: LF on storage, CRLF on the wire (RFC 959 §3.1.1.1).

use std::io::{self, Read, Write};

/// Bytes taken from the inner reader, or handed to the inner writer, at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Reads text for sending: each LF that has no CR before it becomes CRLF; a CRLF that is already
/// there stays.
pub struct CrlfReader<R> {
    inner: R,
    piece: Box<[u8]>,
    /// Bytes of `piece` that were read, and how many of them are given out.
    filled: usize,
    given: usize,
    after_cr: bool,
    /// The CR of an LF was given out and the LF is due.
    owes_lf: bool,
}

impl<R: Read> CrlfReader<R> {
    /// Text from `inner`.
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            piece: vec![0; PIECE_BYTES].into_boxed_slice(),
            filled: 0,
            given: 0,
            after_cr: false,
            owes_lf: false,
        }
    }
}

impl<R: Read> Read for CrlfReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.given == self.filled {
            self.filled = self.inner.read(&mut self.piece)?;
            self.given = 0;
        }
        let mut out = 0;
        while out < buffer.len() && self.given < self.filled {
            let rest = &self.piece[self.given..self.filled];
            // All up to the next LF goes as it is.
            let plain = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            if plain > 0 {
                let count = plain.min(buffer.len() - out);
                buffer[out..out + count].copy_from_slice(&rest[..count]);
                self.after_cr = rest[count - 1] == b'\r';
                out += count;
                self.given += count;
            } else if self.after_cr || self.owes_lf {
                buffer[out] = b'\n';
                out += 1;
                self.given += 1;
                self.after_cr = false;
                self.owes_lf = false;
            } else {
                buffer[out] = b'\r';
                out += 1;
                self.owes_lf = true;
            }
        }
        Ok(out)
    }
}

/// Writes received text: each CRLF becomes LF; a CR before anything else stays. A CR at the end of
/// a write is held back until its successor is known, or until [`Write::flush`], which says that
/// the data end here.
pub struct LfWriter<W> {
    inner: W,
    holds_cr: bool,
    piece: Vec<u8>,
}

impl<W: Write> LfWriter<W> {
    /// Text to `inner`.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            holds_cr: false,
            piece: Vec::new(),
        }
    }

    /// Ends the text and gives the inner writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.inner)
    }
}

impl<W: Write> Write for LfWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.piece.clear();
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.holds_cr && rest[0] != b'\n' {
                self.piece.push(b'\r');
            }
            self.holds_cr = false;
            match rest.iter().position(|b| *b == b'\r') {
                Some(cr) => {
                    self.piece.extend_from_slice(&rest[..cr]);
                    self.holds_cr = true;
                    rest = &rest[cr + 1..];
                }
                None => {
                    self.piece.extend_from_slice(rest);
                    rest = &[];
                }
            }
        }
        self.inner.write_all(&self.piece)?;
        Ok(bytes.len())
    }

    /// The data end here: a CR that was held back goes out.
    fn flush(&mut self) -> io::Result<()> {
        if self.holds_cr {
            self.inner.write_all(b"\r")?;
            self.holds_cr = false;
        }
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Gives its bytes in pieces of the stated lengths, then one by one.
    struct Sliced<'a>(&'a [u8], std::vec::IntoIter<usize>);

    impl Read for Sliced<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self
                .1
                .next()
                .unwrap_or(1)
                .min(buffer.len())
                .min(self.0.len());
            buffer[..most].copy_from_slice(&self.0[..most]);
            self.0 = &self.0[most..];
            Ok(most)
        }
    }

    fn to_crlf(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, b) in bytes.iter().enumerate() {
            if *b == b'\n' && (i == 0 || bytes[i - 1] != b'\r') {
                out.push(b'\r');
            }
            out.push(*b);
        }
        out
    }

    fn to_lf(bytes: &[u8]) -> Vec<u8> {
        let keep = |i: &usize| !(bytes[*i] == b'\r' && bytes.get(i + 1) == Some(&b'\n'));
        (0..bytes.len()).filter(keep).map(|i| bytes[i]).collect()
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'x')], 0..60)
    }

    proptest! {
        #[test]
        fn reader_is_the_same_for_any_slicing(
            bytes in text(), from in vec(1_usize..9, 60), into in vec(1_usize..9, 130),
        ) {
            let mut reader = CrlfReader::new(Sliced(&bytes, from.into_iter()));
            let mut got = Vec::new();
            for size in into.into_iter().chain(std::iter::repeat(3)) {
                let mut buffer = vec![0; size];
                let count = reader.read(&mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                got.extend_from_slice(&buffer[..count]);
            }
            prop_assert_eq!(got, to_crlf(&bytes));
        }

        #[test]
        fn writer_is_the_same_for_any_slicing(bytes in text(), cuts in vec(1_usize..9, 60)) {
            let mut writer = LfWriter::new(Vec::new());
            let mut rest = bytes.as_slice();
            for size in cuts.into_iter().chain(std::iter::repeat(4)) {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(size.min(rest.len()));
                writer.write_all(piece).unwrap();
                rest = after;
            }
            prop_assert_eq!(writer.finish().unwrap(), to_lf(&bytes));
        }

        #[test]
        fn text_without_cr_survives_the_trip(
            bytes in vec(prop_oneof![Just(b'\n'), Just(b'x')], 0..60),
        ) {
            let mut sent = Vec::new();
            CrlfReader::new(bytes.as_slice()).read_to_end(&mut sent).unwrap();
            let mut writer = LfWriter::new(Vec::new());
            writer.write_all(&sent).unwrap();
            prop_assert_eq!(writer.finish().unwrap(), bytes);
        }
    }
}
