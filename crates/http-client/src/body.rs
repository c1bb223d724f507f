//! Bodies of requests.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

/// Chunks that wait for the connection.
const CHUNKS_AHEAD: usize = 2;

/// The body of a request.
#[derive(Debug, Default)]
pub enum Body {
    /// None.
    #[default]
    Empty,
    /// All of it.
    Bytes(Bytes),
    /// See [`channel`].
    Chunks(ChunkBody),
}

/// A body that is made while it is sent.
pub struct ChunkBody {
    /// Those that are left, where that is known.
    bytes: Option<u64>,
    chunks: mpsc::Receiver<Bytes>,
    /// Until the connection asks for the first chunk.
    wanted: Option<oneshot::Sender<()>>,
}

/// Where a body's chunks go.
pub struct ChunkSender {
    chunks: mpsc::Sender<Bytes>,
    wanted: oneshot::Receiver<()>,
}

/// The connection takes no more of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection takes no more of the body")]
pub struct Gone;

impl ChunkSender {
    /// Waits until the connection asks for the first chunk, once; `false`: it does not, as the
    /// server has answered before, or the request is over. A source that can be read only once is
    /// not touched before.
    pub async fn wanted(&mut self) -> bool {
        (&mut self.wanted).await.is_ok()
    }

    /// Waits until the connection has room for it. A body ends when its sender is dropped; one that
    /// has not all the bytes of its length then breaks the request off.
    ///
    /// # Errors
    /// When the request is over.
    pub async fn send(&self, chunk: Bytes) -> Result<(), Gone> {
        self.chunks.send(chunk).await.map_err(|_| Gone)
    }

    /// The same on a thread that may block.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn blocking_send(&self, chunk: Bytes) -> Result<(), Gone> {
        self.chunks.blocking_send(chunk).map_err(|_| Gone)
    }

    /// Waits until the request is over.
    pub async fn gone(&self) {
        self.chunks.closed().await;
    }
}

/// A body, and where its chunks go. Without a length it is sent in chunks of HTTP, which not all
/// servers take.
#[must_use]
pub fn channel(bytes: Option<u64>) -> (ChunkSender, Body) {
    let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
    let (asks, wanted) = oneshot::channel();
    (
        ChunkSender {
            chunks: sender,
            wanted,
        },
        Body::Chunks(ChunkBody {
            bytes,
            chunks,
            wanted: Some(asks),
        }),
    )
}

impl Body {
    /// How long it is, where that is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Chunks(body) => body.bytes,
        }
    }
}

/// How far a body has been sent.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    taken: AtomicU64,
    is_complete: AtomicBool,
    /// The connection waits for a chunk.
    is_starved: AtomicBool,
}

impl Progress {
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    pub(crate) fn is_starved(&self) -> bool {
        self.is_starved.load(Ordering::Relaxed)
    }
}

/// A body as hyper takes it.
pub(crate) struct Outgoing {
    body: Body,
    progress: Arc<Progress>,
    /// Closed until something is sent; when the sender is dropped it stays closed.
    gate: Option<oneshot::Receiver<()>>,
}

impl Outgoing {
    pub(crate) fn new(body: Body, gate: Option<oneshot::Receiver<()>>) -> Self {
        let progress = Arc::<Progress>::default();
        let is_empty = body.bytes() == Some(0);
        progress.is_complete.store(is_empty, Ordering::Relaxed);
        Self {
            body,
            progress,
            gate,
        }
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.body {
            Body::Empty => Poll::Ready(None),
            Body::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(bytes))
            }
            Body::Chunks(body) => {
                if let Some(wanted) = body.wanted.take() {
                    // A sender may send without a look at it.
                    let _ = wanted.send(());
                }
                let chunk = body.chunks.poll_recv(context);
                let is_starved = chunk.is_pending();
                self.progress
                    .is_starved
                    .store(is_starved, Ordering::Relaxed);
                chunk
            }
        }
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(gate) = &mut self.gate {
            match ready!(Pin::new(gate).poll(context)) {
                Ok(()) => self.gate = None,
                // The server has answered without the body.
                Err(_) => return Poll::Pending,
            }
        }
        let chunk = ready!(self.poll_chunk(context));
        let taken = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if let Body::Chunks(body) = &mut self.body {
            body.bytes = body.bytes.map(|bytes| bytes.saturating_sub(taken));
        }
        self.progress.taken.fetch_add(taken, Ordering::Relaxed);
        if chunk.is_none() || self.body.bytes() == Some(0) {
            self.progress.is_complete.store(true, Ordering::Relaxed);
        }
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.bytes() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        let exact = self.body.bytes().map(SizeHint::with_exact);
        exact.unwrap_or_default()
    }
}

impl fmt::Debug for ChunkBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            Some(bytes) => write!(f, "{bytes} bytes"),
            None => write!(f, "an unknown number of bytes"),
        }
    }
}
