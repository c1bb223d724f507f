//! Bodies in chunks of their own (`aws-chunked`), which may each be signed, and trailers behind
//! them.
//!
//! ```text
//!   SIZE[;chunk-signature=...] data ... 0[;chunk-signature=...] [trailers] empty line
//! ```
//! Source: Amazon S3 API Reference, "Transferring Payload in Multiple Chunks".

use sha2::{Digest as _, Sha256};

use super::signing::{Verified, digits, hex};

/// Bytes of a line: a trailer has some hundred.
const LINE_BYTES_MAX: usize = 4096;

/// Trailers of a body.
const TRAILERS_MAX: usize = 8;

/// How a body comes, as `x-amz-content-sha256` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streaming {
    is_signed: bool,
    has_trailers: bool,
}

impl Streaming {
    /// `None`: it does not come in chunks of this kind.
    pub fn parse(payload: &str) -> Option<Self> {
        let (is_signed, has_trailers) = match payload {
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => (true, false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => (true, true),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => (false, true),
            _ => return None,
        };
        Some(Self {
            is_signed,
            has_trailers,
        })
    }
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadChunk {
    /// Not as chunks are written.
    #[error("the chunks of the body are malformed")]
    Malformed,
    /// A line, or the trailers, are too long.
    #[error("the chunks of the body have a line that is too long")]
    Large,
    /// Bytes, or a trailer, are not those that were signed.
    #[error("the signature of a chunk is not that of its bytes")]
    Signature,
}

/// Takes a body apart.
pub struct Chunks {
    signer: Option<Signer>,
    has_trailers: bool,
    state: State,
    /// What of it has come.
    line: Vec<u8>,
    trailers: Vec<(String, String)>,
}

struct Signer {
    verified: Verified,
    /// Of the bytes of the chunk.
    hash: Sha256,
    /// What the chunk's head says.
    claimed: [u8; 32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Data(u64),
    /// The line end behind the data.
    End,
    Trailers,
    Over,
}

impl Chunks {
    /// `verified`: the signature of the request, which the first chunk's goes on from. `None`: the
    /// request is not signed, so its chunks cannot be.
    pub fn new(how: Streaming, verified: Option<Verified>) -> Option<Self> {
        let signer = match (how.is_signed, verified) {
            (false, _) => None,
            (true, None) => return None,
            (true, Some(verified)) => Some(Signer {
                claimed: verified.signature,
                verified,
                hash: Sha256::new(),
            }),
        };
        Some(Self {
            signer,
            has_trailers: how.has_trailers,
            state: State::Head,
            line: Vec::new(),
            trailers: Vec::new(),
        })
    }

    /// Takes bytes of the body from the beginning of `bytes`, and gives those of a chunk that are
    /// among them: their range in what `bytes` was. `None`: all was taken. Bytes are good once
    /// [`Self::finish`] says so.
    ///
    /// # Errors
    /// The body is refused.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<usize>, BadChunk> {
        while !bytes.is_empty() {
            if let State::Data(left) = self.state {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, rest) = bytes.split_at(count);
                if let Some(signer) = &mut self.signer {
                    signer.hash.update(data);
                }
                self.state = match left - count as u64 {
                    0 => State::End,
                    left => State::Data(left),
                };
                *bytes = rest;
                return Ok(Some(count));
            }
            self.take_line(bytes)?;
        }
        Ok(None)
    }

    /// Takes a line, or what there is of it.
    fn take_line(&mut self, bytes: &mut &[u8]) -> Result<(), BadChunk> {
        if self.state == State::Over {
            return Err(BadChunk::Malformed);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        if self.line.len() + line.len() > LINE_BYTES_MAX {
            return Err(BadChunk::Large);
        }
        self.line.extend_from_slice(line);
        *bytes = rest;
        if end.is_none() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r\n").ok_or(BadChunk::Malformed)?;
        let line = std::str::from_utf8(line).map_err(|_| BadChunk::Malformed)?;
        match self.state {
            State::Head => self.head(line),
            State::End if line.is_empty() => {
                self.verify_chunk()?;
                self.state = State::Head;
                Ok(())
            }
            State::Trailers => self.trailer(line),
            State::End | State::Data(_) | State::Over => Err(BadChunk::Malformed),
        }
    }

    fn head(&mut self, line: &str) -> Result<(), BadChunk> {
        let (size, signature) = match line.split_once(';') {
            None => (line, None),
            Some((size, rest)) => (size, Some(rest)),
        };
        let is_size = (1..=16).contains(&size.len());
        if !is_size || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadChunk::Malformed);
        }
        let size = u64::from_str_radix(size, 16).map_err(|_| BadChunk::Malformed)?;
        if let Some(signer) = &mut self.signer {
            let signature = signature.and_then(|text| text.strip_prefix("chunk-signature="));
            let signature = signature.and_then(digits);
            signer.claimed = signature.ok_or(BadChunk::Signature)?;
        }
        self.state = match size {
            0 => {
                self.verify_chunk()?;
                State::Trailers
            }
            size => State::Data(size),
        };
        Ok(())
    }

    fn verify_chunk(&mut self) -> Result<(), BadChunk> {
        let Some(signer) = &mut self.signer else {
            return Ok(());
        };
        let hash = std::mem::take(&mut signer.hash).finalize();
        let empty = hex(&Sha256::digest(b""));
        let of = format!("{empty}\n{}", hex(&hash));
        signer.verify("AWS4-HMAC-SHA256-PAYLOAD", &of)
    }

    fn trailer(&mut self, line: &str) -> Result<(), BadChunk> {
        if line.is_empty() {
            let is_missing = self.has_trailers && self.signer.is_some();
            if is_missing && !self.trailers.is_empty() {
                return Err(BadChunk::Signature);
            }
            self.state = State::Over;
            return Ok(());
        }
        if !self.has_trailers || self.trailers.len() == TRAILERS_MAX {
            return Err(BadChunk::Malformed);
        }
        let (name, value) = line.split_once(':').ok_or(BadChunk::Malformed)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if name != "x-amz-trailer-signature" {
            self.trailers.push((name, value.to_owned()));
            return Ok(());
        }
        let signer = self.signer.as_mut().ok_or(BadChunk::Malformed)?;
        signer.claimed = digits(value).ok_or(BadChunk::Signature)?;
        let lines: String = (self.trailers.iter())
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let of = hex(&Sha256::digest(lines.as_bytes()));
        signer.verify("AWS4-HMAC-SHA256-TRAILER", &of)?;
        // It is the last of them.
        self.has_trailers = false;
        Ok(())
    }

    /// The trailers, if the body is complete.
    ///
    /// # Errors
    /// It is not.
    pub fn finish(self) -> Result<Vec<(String, String)>, BadChunk> {
        match self.state {
            State::Over => Ok(self.trailers),
            _ => Err(BadChunk::Malformed),
        }
    }
}

impl Signer {
    fn verify(&mut self, kind: &str, of: &str) -> Result<(), BadChunk> {
        let Verified {
            key,
            scope,
            signature,
        } = &mut self.verified;
        let text = format!(
            "{kind}\n{}\n{}\n{}\n{of}",
            scope.time(),
            scope.text(),
            hex(signature)
        );
        if !key.verifies(&text, &self.claimed) {
            return Err(BadChunk::Signature);
        }
        *signature = self.claimed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::signing::{Scope, SigningKey};

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn chunks(how: &str, seed: &str) -> Chunks {
        let scope = Scope::new(1_369_353_600, "us-east-1").unwrap();
        let verified = Verified {
            key: SigningKey::new(SECRET, &scope),
            scope,
            signature: digits(seed).unwrap(),
        };
        Chunks::new(Streaming::parse(how).unwrap(), Some(verified)).unwrap()
    }

    type Trailers = Vec<(String, String)>;

    /// In slices of `step` bytes.
    fn read(mut chunks: Chunks, body: &[u8], step: usize) -> Result<(Vec<u8>, Trailers), BadChunk> {
        let mut data = Vec::new();
        for slice in body.chunks(step) {
            let mut rest = slice;
            while let Some(count) = chunks.next(&mut rest)? {
                let end = slice.len() - rest.len();
                data.extend_from_slice(&slice[end - count..end]);
            }
        }
        Ok((data, chunks.finish()?))
    }

    /// The example of the reference: 65 KiB of `a`.
    fn example() -> Vec<u8> {
        let mut body = Vec::new();
        for (size, signature) in [
            (
                0x10000,
                "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            ),
            (
                0x400,
                "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            ),
            (
                0,
                "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
            ),
        ] {
            body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
            body.resize(body.len() + size, b'a');
            body.extend_from_slice(b"\r\n");
        }
        body
    }

    const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

    #[test]
    fn the_chunks_of_the_reference_are_verified_however_they_are_cut() {
        let body = example();
        for step in [1, 7, 4096, body.len()] {
            let (data, trailers) = read(chunks(SIGNED, SEED), &body, step).unwrap();
            assert!(data == vec![b'a'; 65 * 1024] && trailers.is_empty());
        }
    }

    #[test]
    fn changed_chunks_are_refused() {
        let body = example();
        let refused = |body: &[u8]| read(chunks(SIGNED, SEED), body, 1000).unwrap_err();
        let mut changed = body.clone();
        changed[200] = b'b';
        assert_eq!(refused(&changed), BadChunk::Signature);
        let text = String::from_utf8(body.clone()).unwrap();
        for (from, to, why) in [
            ("400;chunk", "3ff;chunk", BadChunk::Malformed),
            ("400;chunk", "401;chunk", BadChunk::Malformed),
            ("0055627c", "1055627c", BadChunk::Signature),
            (";chunk-signature=00", ";other=00", BadChunk::Signature),
            ("b6c6ea8a", "b6c6ea8b", BadChunk::Signature),
        ] {
            assert_eq!(refused(text.replacen(from, to, 1).as_bytes()), why, "{to}");
        }
        let cut = text.find("\r\n0;").unwrap();
        assert_eq!(refused(&body[..cut + 2]), BadChunk::Malformed);
        assert_eq!(
            refused(&[&body[..], b"x\r\n"].concat()),
            BadChunk::Malformed
        );
        // The chunks of another request.
        let other = "5f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
        let found = read(chunks(SIGNED, other), &body, 1000);
        assert_eq!(found.unwrap_err(), BadChunk::Signature);
    }

    #[test]
    fn trailers_come_behind_unsigned_chunks() {
        let body = b"3\r\nabc\r\n0\r\nX-Amz-Checksum-Crc32: NSRBwg==\r\n\r\n";
        let (data, trailers) = read(chunks(UNSIGNED, SEED), body, 1).unwrap();
        assert_eq!(data, b"abc");
        let expected = ("x-amz-checksum-crc32".to_owned(), "NSRBwg==".to_owned());
        assert_eq!(trailers, [expected]);
        for body in [
            "3\r\nabcd\r\n0\r\n\r\n",
            "3\nabc\r\n0\r\n\r\n",
            "-3\r\nabc\r\n0\r\n\r\n",
            "+3\r\nabc\r\n0\r\n\r\n",
            "\r\n",
            "10000000000000000\r\n",
            "3\r\nabc\r\n0\r\n",
            "3\r\nabc\r\n",
            "0\r\nno trailer\r\n\r\n",
            "0\r\nx-amz-trailer-signature:00\r\n\r\n",
            "",
        ] {
            assert!(
                read(chunks(UNSIGNED, SEED), body.as_bytes(), 9).is_err(),
                "{body:?}"
            );
        }
        let long = format!("0\r\na:{}\r\n\r\n", "b".repeat(LINE_BYTES_MAX));
        let refused = read(chunks(UNSIGNED, SEED), long.as_bytes(), 100).unwrap_err();
        assert_eq!(refused, BadChunk::Large);
    }

    #[test]
    fn signed_trailers_need_their_signature() {
        let how = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
        let scope = Scope::new(1_369_353_600, "us-east-1").unwrap();
        let key = SigningKey::new(SECRET, &scope);
        let empty = hex(&Sha256::digest(b""));
        let head = format!("{}\n{}", scope.time(), scope.text());
        let last = key.sign(&format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{head}\n{SEED}\n{empty}\n{empty}"
        ));
        let trailer = "x-amz-checksum-crc32c:AAAAAA==";
        let hashed = hex(&Sha256::digest(format!("{trailer}\n").as_bytes()));
        let signed = key.sign(&format!(
            "AWS4-HMAC-SHA256-TRAILER\n{head}\n{last}\n{hashed}"
        ));
        let body = format!(
            "0;chunk-signature={last}\r\n{trailer}\r\nx-amz-trailer-signature:{signed}\r\n\r\n"
        );
        let (_, trailers) = read(chunks(how, SEED), body.as_bytes(), 5).unwrap();
        assert_eq!(trailers.len(), 1);
        let unsigned = format!("0;chunk-signature={last}\r\n{trailer}\r\n\r\n");
        for bad in [unsigned, body.replace("AAAAAA", "BAAAAA")] {
            let refused = read(chunks(how, SEED), bad.as_bytes(), 5).unwrap_err();
            assert_eq!(refused, BadChunk::Signature);
        }
    }
}
