//! A stream with two owners, for TYPE A receipts.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// A writer with two owners: the data plane writes, and the session flushes it when the data plane
/// is done.
#[derive(Clone)]
pub(crate) struct SharedWriter(Arc<Mutex<dyn io::Write + Send>>);

impl SharedWriter {
    pub(crate) fn new(writer: impl io::Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }
}

impl io::Write for SharedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A writer that panicked has lost its place at worst; the transfer fails by checksum or
        // size.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flush()
    }
}
