//! Source or sink of a transfer, as its channels use it.

use std::sync::Arc;

use godwit_proto::mode_e::layout::StripeLayout;
use parking_lot::Mutex;

use crate::{
    data::{
        job::{Sink, Source, TransferJob},
        params::FilePart,
        transfer::{
            block_queue::{BlockQueue, StreamSource},
            holes::Holes,
        },
    },
    storage::FileRef,
};

/// Source or sink.
pub(crate) enum SourceOrSink {
    /// The transfer waits for its turn; nothing is opened.
    Unopened,
    SendFile {
        file: FileRef,
        base: u64,
        queues: Vec<BlockQueue>,
    },
    SendStream(StreamSource),
    ReceiveFile {
        file: FileRef,
        base: u64,
        stream_start: u64,
        limit: Option<u64>,
        cut: Option<u64>,
    },
    ReceiveStream(Mutex<StreamSink>),
}

/// A sink without offsets.
pub(crate) struct StreamSink {
    pub(crate) writer: Box<dyn std::io::Write + Send>,
    /// Wire offset that must come next.
    pub(crate) next: u64,
    cut: Option<u64>,
}

impl SourceOrSink {
    /// `stripes`: addresses that a sender connects to, each with the part of the file that `layout`
    /// gives it. `part`: what of the file the sender has. `holes`: those of the file do not travel.
    pub(crate) fn new(
        job: TransferJob,
        stripes: usize,
        layout: Option<StripeLayout>,
        part: FilePart,
        block_bytes: u64,
        holes: bool,
    ) -> Self {
        match job {
            TransferJob::Send(Source::File { file, base, ranges }) => {
                let bytes = ranges.iter().map(|r| r.len()).sum::<u64>();
                let total = ranges.last().map_or(0, |r| r.end);
                let mut queues = match layout {
                    _ if let FilePart::Stripe {
                        layout,
                        index,
                        count,
                    } = part =>
                    {
                        let own = (ranges.into_iter())
                            .flat_map(move |r| layout.pieces(r, total, index, count));
                        vec![BlockQueue::new(
                            own,
                            bytes / count.max(1) as u64,
                            block_bytes,
                        )]
                    }
                    _ if part == FilePart::Leased => {
                        vec![BlockQueue::leased(ranges, bytes, block_bytes)]
                    }
                    Some(layout) if stripes > 1 => (0..stripes)
                        .map(|i| {
                            let own = ranges
                                .clone()
                                .into_iter()
                                .flat_map(move |r| layout.pieces(r, total, i, stripes));
                            BlockQueue::new(own, bytes / stripes as u64, block_bytes)
                        })
                        .collect(),
                    _ => vec![BlockQueue::new(ranges, bytes, block_bytes)],
                };
                if holes {
                    let with_holes =
                        |queue: BlockQueue| queue.with_holes(Holes::new(Arc::clone(&file), base));
                    queues = queues.into_iter().map(with_holes).collect();
                }
                SourceOrSink::SendFile { file, base, queues }
            }
            TransferJob::Send(Source::Stream(reader)) => {
                SourceOrSink::SendStream(StreamSource::new(reader))
            }
            TransferJob::Receive(sink) => Self::receive(sink, None),
        }
    }

    fn receive(sink: Sink, cut: Option<u64>) -> Self {
        match sink {
            Sink::File {
                file,
                base,
                stream_start,
                limit,
            } => SourceOrSink::ReceiveFile {
                file,
                base,
                stream_start,
                limit,
                cut,
            },
            Sink::Stream(writer) => SourceOrSink::ReceiveStream(Mutex::new(StreamSink {
                writer,
                next: 0,
                cut,
            })),
            Sink::Prefix { sink, bytes } => {
                Self::receive(*sink, Some(cut.map_or(bytes, |cut| cut.min(bytes))))
            }
        }
    }

    /// Bytes of a stream that are wanted, where that is not all of it.
    pub(crate) fn cut(&self) -> Option<u64> {
        match self {
            Self::ReceiveFile { cut, .. } => *cut,
            Self::ReceiveStream(sink) => sink.lock().cut,
            Self::Unopened | Self::SendFile { .. } | Self::SendStream(_) => None,
        }
    }
}
