//! Standard output as the end of a get.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::Arc,
};

use godwit_engine::storage::digest::Digest;
use godwit_proto::ChecksumAlgorithm;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Standard output, with the checksum of what went there.
pub(super) struct StdoutSink {
    /// Unbuffered: payload goes to the descriptor as it comes, and nothing is left behind at the
    /// end.
    file: std::fs::File,
    digest: Mutex<Option<(ChecksumAlgorithm, Digest)>>,
}

impl StdoutSink {
    pub(super) fn new(algorithm: Option<ChecksumAlgorithm>) -> Result<Self> {
        let descriptor = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| Error::local("open standard output", &e))?;
        Ok(Self {
            file: descriptor.into(),
            digest: Mutex::new(algorithm.map(|a| (a, Digest::new(a)))),
        })
    }

    /// Once: the digest is used up.
    pub(super) fn checksum(&self) -> Option<(ChecksumAlgorithm, String)> {
        self.digest.lock().take().map(|(a, d)| (a, d.finish()))
    }
}

pub(super) struct StdoutWriter(pub(super) Arc<StdoutSink>);

impl Write for StdoutWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.0.file).write(bytes)?;
        if let Some((_, digest)) = &mut *self.0.digest.lock() {
            digest.update(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
