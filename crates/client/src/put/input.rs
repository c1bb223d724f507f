//! What can be read only once: standard input, pipes.

use std::{
    io::{self, Read},
    sync::{Arc, Mutex, PoisonError},
};

use godwit_engine::digest::Digest;
use godwit_proto::ChecksumAlgorithm;

/// What can be read once, with the checksum of what was read.
pub(super) struct StdinSource {
    reader: Mutex<Box<dyn Read + Send>>,
    digest: Mutex<Option<(ChecksumAlgorithm, Digest)>>,
}

impl StdinSource {
    pub(super) fn new(reader: Box<dyn Read + Send>, algorithm: Option<ChecksumAlgorithm>) -> Self {
        Self {
            reader: Mutex::new(reader),
            digest: Mutex::new(algorithm.map(|a| (a, Digest::new(a)))),
        }
    }

    /// Once: the digest is used up.
    pub(super) fn checksum(&self) -> Option<(ChecksumAlgorithm, String)> {
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        digest.take().map(|(a, d)| (a, d.finish()))
    }
}

pub(super) struct StdinReader(pub(super) Arc<StdinSource>);

impl Read for StdinReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let input = &self.0;
        let mut reader = input.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let n = reader.read(buffer)?;
        let mut digest = input.digest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, digest)) = &mut *digest {
            digest.update(&buffer[..n]);
        }
        Ok(n)
    }
}
