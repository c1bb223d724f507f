//! What can be read only once: standard input, pipes.

use std::{
    io::{self, Read},
    sync::{Arc, OnceLock},
};

use godwit_engine::storage::digest::Digest;
use godwit_proto::ChecksumAlgorithm;
use parking_lot::Mutex;

/// What can be read once, with the checksum of what was read.
pub(crate) struct StdinSource {
    reader: Mutex<Box<dyn Read + Send>>,
    digest: Mutex<Option<(ChecksumAlgorithm, Digest)>>,
    /// Whether the server takes it. Nothing is read before that is known: if the server refuses the
    /// name, all is sent under another one.
    accepted: OnceLock<bool>,
}

impl StdinSource {
    pub(crate) fn new(reader: Box<dyn Read + Send>, algorithm: Option<ChecksumAlgorithm>) -> Self {
        Self {
            reader: Mutex::new(reader),
            digest: Mutex::new(algorithm.map(|a| (a, Digest::new(a)))),
            accepted: OnceLock::new(),
        }
    }

    /// The server takes it.
    pub(crate) fn open(&self) {
        self.accepted.get_or_init(|| true);
    }

    /// The transfer is over: a reader that still waits reads nothing.
    pub(crate) fn shut(&self) {
        self.accepted.get_or_init(|| false);
    }

    /// Nothing of it was read, nor will be.
    pub(crate) fn is_whole(&self) -> bool {
        self.accepted.get() == Some(&false)
    }

    /// Once: the digest is used up.
    pub(crate) fn checksum(&self) -> Option<(ChecksumAlgorithm, String)> {
        let mut digest = self.digest.lock();
        digest.take().map(|(a, d)| (a, d.finish()))
    }
}

pub(crate) struct StdinReader(pub(crate) Arc<StdinSource>);

impl Read for StdinReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let input = &self.0;
        if !input.accepted.wait() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut reader = input.reader.lock();
        let n = reader.read(buffer)?;
        let mut digest = input.digest.lock();
        if let Some((_, digest)) = &mut *digest {
            digest.update(&buffer[..n]);
        }
        Ok(n)
    }
}
