//! What can be read only once: standard input, pipes.

use std::{
    io::{self, Read},
    sync::Arc,
};

use godwit_engine::storage::digest::Digest;
use godwit_proto::ChecksumAlgorithm;
use parking_lot::{Condvar, Mutex};

/// What can be read once, with the checksum of what was read.
pub(crate) struct StdinSource {
    reader: Mutex<Box<dyn Read + Send>>,
    digest: Mutex<Option<(ChecksumAlgorithm, Digest)>>,
    gate: Mutex<Gate>,
    moved: Condvar,
}

/// Nothing is read before the server has agreed to take it: where it refuses the name, all is sent
/// under another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Waiting,
    Open,
    Shut,
}

impl StdinSource {
    pub(crate) fn new(reader: Box<dyn Read + Send>, algorithm: Option<ChecksumAlgorithm>) -> Self {
        Self {
            reader: Mutex::new(reader),
            digest: Mutex::new(algorithm.map(|a| (a, Digest::new(a)))),
            gate: Mutex::new(Gate::Waiting),
            moved: Condvar::new(),
        }
    }

    /// The server takes it.
    pub(crate) fn open(&self) {
        *self.gate.lock() = Gate::Open;
        self.moved.notify_all();
    }

    /// The transfer is over: who still waits to read reads nothing.
    pub(crate) fn shut(&self) {
        let mut gate = self.gate.lock();
        if *gate == Gate::Waiting {
            *gate = Gate::Shut;
        }
        self.moved.notify_all();
    }

    /// Nothing of it was read, nor will be.
    pub(crate) fn is_whole(&self) -> bool {
        *self.gate.lock() == Gate::Shut
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
        let mut gate = input.gate.lock();
        (input.moved).wait_while(&mut gate, |gate| *gate == Gate::Waiting);
        if *gate == Gate::Shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        drop(gate);
        let mut reader = input.reader.lock();
        let n = reader.read(buffer)?;
        let mut digest = input.digest.lock();
        if let Some((_, digest)) = &mut *digest {
            digest.update(&buffer[..n]);
        }
        Ok(n)
    }
}
