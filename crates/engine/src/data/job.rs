//! What a transfer does: where its bytes come from, or where they go.

use std::io;

use godwit_proto::{ByteRange, error::StorageFailure};

use crate::storage::FileRef;

/// What a transfer does.
pub enum TransferJob {
    /// To the peer.
    Send(Source),
    /// From the peer.
    Receive(Sink),
}

/// Opens source or sink of a queued transfer when its turn has come.
pub type JobOpener = Box<dyn FnOnce() -> Result<TransferJob, StorageFailure> + Send>;

/// Where sent bytes come from.
pub enum Source {
    /// `ranges` (relative to `base`, in order, disjoint) of a file; wire offsets are relative to
    /// `base` too.
    File {
        /// The file.
        file: FileRef,
        /// Byte of the file that has wire offset 0.
        base: u64,
        /// What to send.
        ranges: Vec<ByteRange>,
    },
    /// Bytes in order until the reader ends. The reader runs on a mover thread and may block it.
    Stream(Box<dyn io::Read + Send>),
}

/// Where received bytes go.
pub enum Sink {
    /// A file.
    File {
        /// The file.
        file: FileRef,
        /// Byte of the file that has wire offset 0.
        base: u64,
        /// MODE S: wire offset of the first byte received (REST).
        stream_start: u64,
        /// Bytes at or past this wire offset are an error (`None`: no bound). Protects a region
        /// from a peer that sends too much.
        limit: Option<u64>,
    },
    /// In order; a block that is out of order fails the transfer. The writer runs on a mover thread
    /// and may block it.
    Stream(Box<dyn io::Write + Send>),
    /// MODE S: the first `bytes` of the stream; then the connection is closed, whatever else the
    /// peer has. This is how a client retrieves a part of a file from a server without ERET.
    Prefix {
        /// Where they go.
        sink: Box<Sink>,
        /// How many.
        bytes: u64,
    },
}
