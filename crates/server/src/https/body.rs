//! Bodies of answers. Blocking threads make them, one chunk ahead of what the client has read:
//! memory holds two chunks of a body, whatever its length.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use godwit_engine::storage::FileRef;
use godwit_proto::{ByteRange, error::StorageFailure};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use rustix::io::Errno;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

use super::record::Transfer;
use crate::storage::failure;

/// Bytes of a file that a chunk has.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Makes a body, chunk by chunk. Blocks.
pub(super) trait Chunks: Send + 'static {
    /// `None`: there are no more. A chunk is not empty.
    fn next(&mut self) -> Result<Option<Bytes>, StorageFailure>;
}

/// The body of an answer.
pub(super) enum AnswerBody {
    Text(Bytes),
    Chunks(ChunkBody),
    Lines(LineBody),
}

/// Lines that a task sends, which ends with this.
pub(super) struct LineBody {
    lines: mpsc::Receiver<Bytes>,
    task: JoinHandle<()>,
}

/// Lines that the client has not read.
const LINES_MAX: usize = 4;

impl LineBody {
    /// The lines of the task that `start` starts.
    pub(super) fn new(start: impl FnOnce(mpsc::Sender<Bytes>) -> JoinHandle<()>) -> Self {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        Self {
            lines,
            task: start(sender),
        }
    }
}

impl Drop for LineBody {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A body that is made while the client reads it.
pub(super) struct ChunkBody {
    /// `None`: it is over.
    making: Option<JoinHandle<MadeChunk>>,
    /// Bytes that are left, where that is known.
    left: Option<u64>,
    transfer: Transfer,
}

type MadeChunk = (Box<dyn Chunks>, Result<Option<Bytes>, StorageFailure>);

impl ChunkBody {
    /// `bytes`: how long it is, where that is known.
    pub(super) fn new(chunks: Box<dyn Chunks>, bytes: Option<u64>, mut transfer: Transfer) -> Self {
        let making = (bytes != Some(0)).then(|| make(chunks));
        if making.is_none() {
            transfer.end(None);
        }
        Self {
            making,
            left: bytes,
            transfer,
        }
    }

    fn made(&mut self, made: MadeChunk) -> Option<Result<Bytes, StorageFailure>> {
        match made {
            (chunks, Ok(Some(bytes))) => {
                self.transfer.moved(bytes.len());
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                match self.left {
                    // The server asks for no more than it has announced.
                    Some(0) => self.transfer.end(None),
                    _ => self.making = Some(make(chunks)),
                }
                Some(Ok(bytes))
            }
            (_, Ok(None)) => {
                self.transfer.end(None);
                None
            }
            (_, Err(failure)) => {
                let class = (&failure).into();
                self.transfer.end(Some((class, &failure.to_string())));
                Some(Err(failure))
            }
        }
    }
}

fn make(mut chunks: Box<dyn Chunks>) -> JoinHandle<MadeChunk> {
    spawn_blocking(move || {
        let next = chunks.next();
        (chunks, next)
    })
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match self.get_mut() {
            Self::Text(text) => {
                let text = std::mem::take(text);
                (!text.is_empty()).then_some(Ok(text))
            }
            Self::Lines(body) => ready!(body.lines.poll_recv(context)).map(Ok),
            Self::Chunks(body) => match &mut body.making {
                None => None,
                Some(making) => {
                    let made = ready!(Pin::new(making).poll(context));
                    body.making = None;
                    match made {
                        Ok(made) => body.made(made),
                        Err(_) => Some(Err(failure(Errno::IO, "read"))),
                    }
                }
            },
        };
        // An error closes the connection, so that the client does not take a part for the whole.
        Poll::Ready(next.map(|next| next.map(Frame::data).map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Chunks(body) => body.making.is_none(),
            Self::Lines(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Chunks(body) => body.left.map(SizeHint::with_exact).unwrap_or_default(),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}

/// Parts of a file, and text between them.
pub(super) struct FileChunks {
    file: FileRef,
    parts: VecDeque<Part>,
}

pub(super) enum Part {
    Text(String),
    Range(ByteRange),
}

impl Part {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Range(range) => range.end.saturating_sub(range.start),
        }
    }
}

impl FileChunks {
    pub(super) fn new(file: FileRef, parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            file,
            parts: parts.into_iter().collect(),
        }
    }
}

impl Chunks for FileChunks {
    /// Small parts share a chunk.
    fn next(&mut self) -> Result<Option<Bytes>, StorageFailure> {
        let mut chunk = Vec::new();
        while let Some(part) = self.parts.front_mut() {
            let room = CHUNK_BYTES.saturating_sub(chunk.len());
            match part {
                _ if room == 0 => break,
                Part::Text(text) => {
                    chunk.extend_from_slice(text.as_bytes());
                    self.parts.pop_front();
                }
                Part::Range(range) if range.start >= range.end => {
                    self.parts.pop_front();
                }
                Part::Range(range) => {
                    let left = range.end - range.start;
                    let count = usize::try_from(left).map_or(room, |left| left.min(room));
                    let filled = chunk.len();
                    chunk.resize(filled + count, 0);
                    let got = self.file.read_at(range.start, &mut chunk[filled..])?;
                    chunk.truncate(filled + got);
                    if got == 0 {
                        return Err(failure(
                            Errno::NODATA,
                            "read a file that has become shorter",
                        ));
                    }
                    range.start += got as u64;
                }
            }
        }
        Ok((!chunk.is_empty()).then(|| Bytes::from(chunk)))
    }
}
