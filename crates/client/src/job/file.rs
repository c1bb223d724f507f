//! A file that one or several workers move.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use godwit_proto::{ByteRange, FtpPath, RangeSet};

use crate::{
    context::Endpoint,
    controller::{Controller, PIECE_BYTES_MIN},
    error::{Error, Result},
    get::Get,
    plan::Item,
    put::Put,
    session::Session,
    spec::JobSpec,
    verify::Agreed,
};

/// A file that has been begun.
pub(crate) struct FileJob {
    pub(crate) endpoint: Arc<Endpoint>,
    /// The source, for messages and logs.
    pub(crate) path: String,
    pub(crate) began: Instant,
    side: Side,
    pieces: Mutex<Pieces>,
}

enum Side {
    Get(Get),
    Put(Put),
}

#[derive(Default)]
struct Pieces {
    /// Octets that nobody has begun, in order.
    unclaimed: Vec<ByteRange>,
    /// Workers that move a piece now.
    busy: u32,
    moved: u64,
    failure: Option<Error>,
}

/// What is to be done after a piece.
pub(crate) enum After {
    /// Others still move theirs.
    Others,
    /// All is there: finish.
    Finish { moved: u64 },
    /// It failed, and nobody touches it any more: clean up.
    Discard { error: Error, moved: u64 },
}

impl FileJob {
    /// Opens both ends. The caller holds the first piece: [`FileJob::first`].
    pub(crate) async fn begin(session: &mut Session, item: &Item, spec: &JobSpec) -> Result<Self> {
        use godwit_proto::pi::transfer::Direction;
        let side = match item.direction {
            Direction::Get => Side::Get(Get::begin(session, item, spec.part, spec.verify).await?),
            Direction::Put => Side::Put(Put::begin(session, item, spec.part, spec.verify).await?),
        };
        Ok(Self {
            endpoint: Arc::clone(&item.endpoint),
            path: item.source(),
            began: Instant::now(),
            side,
            pieces: Mutex::default(),
        })
    }

    /// Decides whether the file is shared, and claims the first piece; `None`: all of it, however long that is.
    pub(crate) fn first(
        &self,
        session: &Session,
        controller: &Controller,
    ) -> (Option<ByteRange>, bool) {
        let (length, can_split) = match &self.side {
            Side::Get(get) => (get.length(), get.can_split(session)),
            Side::Put(put) => (put.length(), put.can_split(session)),
        };
        let mut pieces = self.lock();
        pieces.busy = 1;
        match length {
            Some(length)
                if can_split
                    && controller.setting().concurrency > 1
                    && length >= 2 * PIECE_BYTES_MIN =>
            {
                let all = ByteRange {
                    start: 0,
                    end: length,
                };
                let piece = controller.piece(all);
                pieces.unclaimed = rest_of(all, piece).into_iter().collect();
                (Some(piece), true)
            }
            _ => (None, false),
        }
    }

    /// The next piece that nobody has.
    pub(crate) fn claim(&self, controller: &Controller) -> Option<ByteRange> {
        let mut pieces = self.lock();
        let left = pieces.unclaimed.pop()?;
        let piece = controller.piece(left);
        pieces.unclaimed.extend(rest_of(left, piece));
        pieces.busy += 1;
        Some(piece)
    }

    pub(crate) fn unclaim(&self, piece: ByteRange) {
        let mut pieces = self.lock();
        pieces.busy -= 1;
        // A file that has failed is not gone on with.
        if pieces.failure.is_none() {
            pieces.unclaimed.push(piece);
        }
    }

    pub(crate) fn has_unclaimed(&self) -> bool {
        !self.lock().unclaimed.is_empty()
    }

    /// Moves octets. On failure the set tells what is there already.
    pub(crate) async fn carry(
        &self,
        session: &mut Session,
        range: Option<ByteRange>,
    ) -> (Result<u64>, RangeSet) {
        match &self.side {
            Side::Get(get) => get.fetch(session, range).await,
            Side::Put(put) => (put.send(session, range).await, RangeSet::new()),
        }
    }

    /// Octets pass by once: a failed attempt cannot be followed by another.
    pub(crate) fn is_stream(&self) -> bool {
        match &self.side {
            Side::Get(get) => get.is_stream(),
            Side::Put(put) => put.is_stream(),
        }
    }

    /// What is left of a range once `safe` is there; more than one rest only where parts can be asked for.
    pub(crate) fn rests(
        &self,
        session_can_split: bool,
        range: Option<ByteRange>,
        safe: &RangeSet,
    ) -> Vec<Option<ByteRange>> {
        let whole = match &self.side {
            Side::Get(get) => range.or_else(|| get.length().and_then(|l| ByteRange::new(0, l))),
            Side::Put(_) => return vec![range],
        };
        match whole {
            Some(whole) if session_can_split && !safe.is_empty() => {
                safe.gaps(whole).into_iter().map(Some).collect()
            }
            _ => vec![range],
        }
    }

    pub(crate) fn can_split(&self, session: &Session) -> bool {
        match &self.side {
            Side::Get(get) => get.can_split(session),
            Side::Put(put) => put.can_split(session),
        }
    }

    /// A worker is through with its piece.
    pub(crate) fn piece_done(&self, outcome: Result<u64>) -> After {
        let mut pieces = self.lock();
        pieces.busy -= 1;
        match outcome {
            Ok(bytes) => pieces.moved += bytes,
            Err(error) => {
                pieces.unclaimed.clear();
                pieces.failure.get_or_insert(error);
            }
        }
        if pieces.busy > 0 || !pieces.unclaimed.is_empty() {
            return After::Others;
        }
        let moved = pieces.moved;
        match pieces.failure.take() {
            None => After::Finish { moved },
            Some(error) => After::Discard { error, moved },
        }
    }

    /// Checksums and the final name.
    pub(crate) async fn finish(&self, session: &mut Session, moved: u64) -> Result<Option<Agreed>> {
        match &self.side {
            Side::Get(get) => get.finish(session).await,
            Side::Put(put) => put.finish(session, moved).await,
        }
    }

    /// What a failure leaves at the server; what it leaves here goes with this value.
    pub(crate) fn rubbish(&self) -> Option<&FtpPath> {
        match &self.side {
            Side::Get(_) => None,
            Side::Put(put) => put.rubbish(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rest_of(all: ByteRange, piece: ByteRange) -> Option<ByteRange> {
    ByteRange::new(piece.end, all.end).filter(|r| !r.is_empty())
}
