//! Bodies of answers. What lies in memory is read where it is sent. Blocking threads make the rest:
//! memory holds two chunks of a body, whatever its length.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use godwit_engine::storage::FileRef;
use godwit_http_client::Buffers;
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

/// Makes a body, chunk by chunk.
pub(super) trait Chunks: Send + 'static {
    /// `None`: there are no more. A chunk is not empty. Blocks.
    fn next(&mut self) -> Result<Option<Bytes>, StorageFailure>;

    /// The same without blocking; `None`: only [`Self::next`] can tell.
    fn next_in_memory(&mut self) -> Option<Result<Option<Bytes>, StorageFailure>> {
        None
    }
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
    chunks: Making,
    /// Bytes that are left, where that is known.
    left: Option<u64>,
    transfer: Transfer,
}

enum Making {
    Here(Box<dyn Chunks>),
    /// A blocking thread makes the next.
    There(JoinHandle<MadeChunk>),
    Over,
}

type MadeChunk = (Box<dyn Chunks>, Result<Option<Bytes>, StorageFailure>);

impl ChunkBody {
    /// `bytes`: how long it is, where that is known.
    pub(super) fn new(chunks: Box<dyn Chunks>, bytes: Option<u64>, mut transfer: Transfer) -> Self {
        let chunks = match bytes {
            Some(0) => {
                transfer.end(None);
                Making::Over
            }
            _ => Making::Here(chunks),
        };
        Self {
            chunks,
            left: bytes,
            transfer,
        }
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StorageFailure>>> {
        loop {
            match std::mem::replace(&mut self.chunks, Making::Over) {
                Making::Over => return Poll::Ready(None),
                Making::Here(mut chunks) => match chunks.next_in_memory() {
                    Some(next) => return Poll::Ready(self.made(chunks, next)),
                    None => {
                        self.chunks = Making::There(spawn_blocking(move || {
                            let next = chunks.next();
                            (chunks, next)
                        }));
                    }
                },
                Making::There(mut making) => match Pin::new(&mut making).poll(context) {
                    Poll::Pending => {
                        self.chunks = Making::There(making);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok((chunks, next))) => return Poll::Ready(self.made(chunks, next)),
                    Poll::Ready(Err(_)) => {
                        return Poll::Ready(Some(Err(failure(Errno::IO, "read"))));
                    }
                },
            }
        }
    }

    fn made(
        &mut self,
        chunks: Box<dyn Chunks>,
        next: Result<Option<Bytes>, StorageFailure>,
    ) -> Option<Result<Bytes, StorageFailure>> {
        match next {
            Ok(Some(bytes)) => {
                self.transfer.moved(bytes.len());
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                match self.left {
                    // The server asks for no more than it has announced.
                    Some(0) => self.transfer.end(None),
                    _ => self.chunks = Making::Here(chunks),
                }
                Some(Ok(bytes))
            }
            Ok(None) => {
                self.transfer.end(None);
                None
            }
            Err(failure) => {
                let class = (&failure).into();
                self.transfer.end(Some((class, &failure.to_string())));
                Some(Err(failure))
            }
        }
    }
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
            Self::Chunks(body) => ready!(body.poll_next(context)),
        };
        // An error closes the connection, so that the client does not take a part for the whole.
        Poll::Ready(next.map(|next| next.map(Frame::data).map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Chunks(body) => matches!(body.chunks, Making::Over),
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
    buffers: Buffers,
}

pub(super) enum Part {
    Text(Vec<u8>),
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
            buffers: Buffers::default(),
        }
    }

    /// The next chunk, which small parts share. `None`: not without waiting.
    fn fill(&mut self, may_wait: bool) -> Result<Option<Option<Bytes>>, StorageFailure> {
        let left: u64 = self.parts.iter().map(Part::bytes).sum();
        let room = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let mut buffer = self.buffers.take(room);
        while let Some(part) = self.parts.front_mut() {
            let is_first = buffer.filled() == 0;
            let room = buffer.room();
            if room.is_empty() {
                break;
            }
            let got = match part {
                Part::Text(text) => {
                    let count = text.len().min(room.len());
                    room[..count].copy_from_slice(&text[..count]);
                    text.drain(..count);
                    count
                }
                Part::Range(range) => {
                    let left = usize::try_from(range.end.saturating_sub(range.start));
                    let count = left.map_or(room.len(), |left| left.min(room.len()));
                    let got = match (count, may_wait) {
                        (0, _) => Some(0),
                        (_, true) => Some(self.file.read_at(range.start, &mut room[..count])?),
                        (_, false) => self.file.read_cached_at(range.start, &mut room[..count])?,
                    };
                    match got {
                        Some(0) if count > 0 => {
                            let doing = "read a file that has become shorter";
                            return Err(failure(Errno::NODATA, doing));
                        }
                        Some(got) => range.start += got as u64,
                        None if is_first => return Ok(None),
                        None => break,
                    }
                    got.unwrap_or(0)
                }
            };
            buffer.add(got);
            if part.bytes() == 0 {
                self.parts.pop_front();
            }
        }
        let chunk = (buffer.filled() > 0).then(|| buffer.into_chunk());
        Ok(Some(chunk))
    }
}

impl Chunks for FileChunks {
    fn next(&mut self) -> Result<Option<Bytes>, StorageFailure> {
        self.fill(true).map(Option::flatten)
    }

    fn next_in_memory(&mut self) -> Option<Result<Option<Bytes>, StorageFailure>> {
        self.fill(false).transpose()
    }
}
