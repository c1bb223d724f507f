//! A file that one or several workers move.

use std::{sync::Arc, time::Instant};

use godwit_proto::{ByteRange, FtpPath};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::piece_size::{PieceSizer, SessionRate};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    report::events::Event,
    session::{NextTransfer, Session},
    spec::JobSpec,
    transfer::{
        PIECE_BYTES_MIN,
        download::{Download, PROOF_BYTES},
        range_outcome::RangeOutcome,
        resume,
        source_file::{LocalEnd, Origin, Peer, SourceFile},
        upload::Upload,
        verify::AgreedChecksum,
    },
};

/// Bad ranges of a file are moved again so often. Chosen arbitrarily: a path that spoils bytes each
/// time is to be heard of.
const REPAIRS_MAX: u32 = 3;

/// A file that has been begun.
pub(crate) struct FileTask {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) source_file: SourceFile,
    /// The source, for messages and logs.
    pub(crate) path: String,
    pub(crate) began: Instant,
    side: FileTransfer,
    pieces: Mutex<TaskState>,
    /// What an earlier run has not brought, where one has begun it.
    missing: Option<Vec<ByteRange>>,
    /// A session that is wanted no more ends its piece early.
    can_be_cut: bool,
    /// Another attempt, or a later run, can tell what of it is right.
    is_resumable: bool,
    /// Told when others may find something to do here.
    changed: Arc<Notify>,
}

enum FileTransfer {
    Download(Box<Download>),
    Upload(Arc<Upload>),
}

#[derive(Default)]
struct TaskState {
    /// Bytes that nobody has begun, in order.
    unclaimed: Vec<ByteRange>,
    /// Workers that move a piece now.
    busy: u32,
    moved: u64,
    failure: Option<Error>,
}

/// What a file has to do for a worker that has nothing.
pub(crate) enum RangeClaim {
    Piece(ByteRange),
    /// Nothing yet, but perhaps soon.
    Later,
    Nothing,
}

/// What is to be done after a piece.
pub(crate) enum NextStep {
    /// Others still move theirs.
    Others,
    /// All is there: finish.
    Finish { moved: u64 },
    /// It failed, and nobody touches it any more: clean up.
    Discard { error: Error, moved: u64 },
}

impl FileTask {
    /// Opens both ends. The caller holds the first piece: [`FileTask::first`].
    pub(crate) async fn begin(
        session: &mut Session,
        source_file: SourceFile,
        spec: &JobSpec,
        changed: Arc<Notify>,
    ) -> Result<Self> {
        let (part, verify_mode) = (spec.part, spec.verify);
        let side = match &source_file.other {
            Peer::To(to) => FileTransfer::Download(
                Download::begin(session, &source_file, to, part, verify_mode)
                    .await?
                    .into(),
            ),
            Peer::From(from) => FileTransfer::Upload(
                Upload::begin(session, &source_file, from, part, verify_mode)
                    .await?
                    .into(),
            ),
        };
        let mut file = Self::of(session, side, source_file, changed);
        if file.source_file.begun.is_some() {
            let missing = match &file.side {
                FileTransfer::Download(get) => get.missing(session).await,
                FileTransfer::Upload(put) => put.missing(session, None).await,
            };
            // Another attempt may be able to tell.
            file.missing = missing.inspect_err(|_| file.keep())?;
        }
        Ok(file)
    }

    /// The same for a file of which nothing has to be asked before.
    pub(crate) fn begin_ahead(
        session: &Session,
        source_file: SourceFile,
        spec: &JobSpec,
        changed: Arc<Notify>,
    ) -> Result<Self> {
        let (part, verify_mode) = (spec.part, spec.verify);
        let side = match &source_file.other {
            Peer::To(to) => FileTransfer::Download(
                Download::open(session, &source_file, to, part, verify_mode)?.into(),
            ),
            Peer::From(from) => FileTransfer::Upload(
                Upload::open(session, &source_file, from, part, verify_mode, true)?.into(),
            ),
        };
        Ok(Self::of(session, side, source_file, changed))
    }

    fn of(
        session: &Session,
        side: FileTransfer,
        source_file: SourceFile,
        changed: Arc<Notify>,
    ) -> Self {
        session.context.reporter.emit(&Event::Begins {
            path: source_file.source(),
            bytes: source_file.size,
        });
        Self {
            can_be_cut: matches!(&side, FileTransfer::Upload(put) if put.can_be_cut(session)),
            is_resumable: resume::can_resume(session)
                || match &side {
                    FileTransfer::Download(get) => get.has_version(),
                    FileTransfer::Upload(put) => put.has_version(),
                },
            missing: None,
            endpoint: Arc::clone(&source_file.endpoint),
            path: source_file.source(),
            source_file,
            began: Instant::now(),
            side,
            pieces: Mutex::default(),
            changed,
        }
    }

    /// Decides whether the file is shared, and claims the first piece; `None`: all of it, however
    /// long that is. A put may be taken all at once, since others can take of it later.
    pub(crate) fn first(
        &self,
        session: &Session,
        sizer: &PieceSizer,
        rate: SessionRate,
    ) -> (Option<ByteRange>, bool) {
        let length = self.length();
        let mut pieces = self.lock();
        pieces.busy = 1;
        if let Some(missing) = &self.missing {
            // The last is claimed first.
            pieces.unclaimed = missing.iter().rev().copied().collect();
            let Some(left) = pieces.unclaimed.pop() else {
                return (Some(ByteRange { start: 0, end: 0 }), true);
            };
            let piece = self.part_of(left, sizer, rate);
            pieces.unclaimed.extend(rest_of(left, piece));
            return (Some(piece), true);
        }
        match length.and_then(|length| ByteRange::new(0, length)) {
            Some(all) if self.can_split(session) && sizer.shares(all.len()) => {
                let piece = self.part_of(all, sizer, rate);
                pieces.unclaimed = rest_of(all, piece).into_iter().collect();
                (Some(piece), true)
            }
            _ => (None, false),
        }
    }

    /// Bytes to be moved, as far as known.
    pub(crate) fn length(&self) -> Option<u64> {
        match &self.side {
            FileTransfer::Download(get) => get.length(),
            FileTransfer::Upload(put) => put.length(),
        }
    }

    /// Bytes that an earlier run has brought.
    pub(crate) fn resumed_bytes(&self) -> u64 {
        let missing = self.missing.as_ref().zip(self.length());
        missing.map_or(0, |(missing, length)| {
            length - missing.iter().map(|r| r.len()).sum::<u64>()
        })
    }

    /// Leaves what is there for a later run.
    pub(crate) fn keep(&self) {
        match &self.side {
            FileTransfer::Download(get) => get.keep(),
            FileTransfer::Upload(put) => put.keep(),
        };
    }

    /// What of `todo` a server has that was sent it before, in an attempt that failed: how many
    /// bytes, which are to be moved no more.
    pub(crate) async fn find_resumable(
        &self,
        session: &mut Session,
        todo: &mut Vec<Option<ByteRange>>,
    ) -> Result<u64> {
        let put = match &self.side {
            FileTransfer::Upload(put) => put,
            FileTransfer::Download(get) => {
                // A get knows itself what it has written, and not whether that is still right.
                let begins = |range: &Option<ByteRange>| range.is_none_or(|range| range.start == 0);
                if get.is_in_order()
                    && !todo.iter().any(begins)
                    && !Box::pin(get.is_unchanged(session, &self.source_file)).await?
                {
                    *todo = vec![None];
                }
                return Ok(0);
            }
        };
        if put.is_in_order() && !self.source_file.is_unchanged()? {
            let what = self.source_file.source();
            return Err(Error::Changed { what });
        }
        let mut resumed_bytes = 0;
        let mut left = Vec::new();
        for range in todo.iter() {
            let bytes = range.map(ByteRange::len).or(put.length());
            match (put.missing(session, *range).await?, bytes) {
                (Some(ranges), Some(bytes)) => {
                    let missing = ranges.iter().map(|r| r.len()).sum::<u64>();
                    resumed_bytes += bytes.saturating_sub(missing);
                    // The last is sent first.
                    left.extend(ranges.into_iter().rev().map(Some));
                }
                _ => left.push(*range),
            }
        }
        *todo = left;
        Ok(resumed_bytes)
    }

    /// A later run could go on where this one failed for such a reason.
    pub(crate) fn is_resumable(&self, error: &Error) -> bool {
        self.is_resumable && error.keeps_partial_file()
    }

    fn part_of(&self, left: ByteRange, sizer: &PieceSizer, rate: SessionRate) -> ByteRange {
        match &self.side {
            // Nobody can take of what another server sends.
            FileTransfer::Upload(put) if !put.is_relayed() => left,
            FileTransfer::Upload(_) if self.can_be_cut => sizer.long_piece(left, rate),
            FileTransfer::Download(get) if get.is_in_order() => left,
            FileTransfer::Download(_) | FileTransfer::Upload(_) => sizer.piece(left, rate),
        }
    }

    /// The next piece that nobody has, for a session of `rate`.
    pub(crate) fn claim(&self, sizer: &PieceSizer, rate: SessionRate) -> Option<ByteRange> {
        let mut pieces = self.lock();
        let left = pieces.unclaimed.pop()?;
        let piece = self.part_of(left, sizer, rate);
        pieces.unclaimed.extend(rest_of(left, piece));
        pieces.busy += 1;
        Some(piece)
    }

    /// Some piece of it is not there, nor will be.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Part of what another session has and has not begun.
    pub(crate) fn steal_range(&self) -> RangeClaim {
        let FileTransfer::Upload(put) = &self.side else {
            return RangeClaim::Nothing;
        };
        let mut pieces = self.lock();
        if pieces.failure.is_some() {
            return RangeClaim::Nothing;
        }
        match put.steal_range(PIECE_BYTES_MIN) {
            Some(tail) => {
                pieces.busy += 1;
                RangeClaim::Piece(tail)
            }
            None if put.has_stealable_range(PIECE_BYTES_MIN) => RangeClaim::Later,
            None => RangeClaim::Nothing,
        }
    }

    /// Bytes wait that nobody has begun.
    pub(crate) fn has_unclaimed(&self) -> bool {
        !self.lock().unclaimed.is_empty()
    }

    /// There is, or will be, something for a further worker.
    pub(crate) fn has_work(&self) -> bool {
        let pieces = self.lock();
        let tail = match &self.side {
            FileTransfer::Download(_) => false,
            FileTransfer::Upload(put) => {
                pieces.failure.is_none() && put.has_stealable_range(PIECE_BYTES_MIN)
            }
        };
        !pieces.unclaimed.is_empty() || tail
    }

    /// Somebody moves a piece of it, or shall.
    pub(crate) fn is_open(&self) -> bool {
        let pieces = self.lock();
        pieces.busy > 0 || !pieces.unclaimed.is_empty()
    }

    /// A session that moves a piece of it goes on faster when it knows the next.
    pub(crate) fn is_pipelined(&self, session: &Session) -> bool {
        match &self.side {
            FileTransfer::Download(get) => !get.is_in_order(),
            FileTransfer::Upload(put) => put.can_follow(session),
        }
    }

    /// A worker will move `range` (`None`: all of it) next.
    pub(crate) fn will_move(&self, range: Option<ByteRange>) {
        if let FileTransfer::Upload(put) = &self.side {
            put.will_send(range);
        }
    }

    /// What will move `range` (`None`: all of it), where that can begin before its turn.
    pub(crate) fn ahead(
        &self,
        session: &Session,
        range: Option<ByteRange>,
    ) -> Option<NextTransfer> {
        match &self.side {
            FileTransfer::Download(get) => get.prefetch(session, range),
            FileTransfer::Upload(put) => put.prefetch(session, range),
        }
    }

    /// Bytes of it went out before their turn, on a session that is gone.
    pub(crate) fn prefetch_wasted(&self, session: &Session) -> bool {
        match &self.side {
            FileTransfer::Download(_) => false,
            FileTransfer::Upload(put) => put.prefetch_wasted(session),
        }
    }

    /// Moves bytes. `next` is what the session moves next, whatever comes of this.
    pub(crate) async fn move_ranges(
        &self,
        session: &mut Session,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
    ) -> RangeOutcome {
        if range.is_some_and(ByteRange::is_empty) {
            return RangeOutcome::whole(0);
        }
        let get = match &self.side {
            FileTransfer::Upload(put) => {
                let began = || self.changed.notify_waiters();
                return put.send(session, range, next, &began).await;
            }
            FileTransfer::Download(get) => get,
        };
        let mut range = range;
        let (mut result, mut safe) = get.fetch(session, range, next).await;
        if get.is_refused_in_order(range, &result) && session.is_usable() {
            // From the first byte on it needs no REST.
            range = None;
            (result, safe) = Box::pin(get.fetch(session, range, None)).await;
        }
        let error = match result {
            Ok(bytes) => return RangeOutcome::whole(bytes),
            Err(error) => error,
        };
        let whole = range.or_else(|| get.length().and_then(|l| ByteRange::new(0, l)));
        match whole {
            Some(whole) if get.is_in_order() => {
                let (moved, left) = get.after_failure(whole, &safe, &error);
                return RangeOutcome::failed(error, moved, vec![left]);
            }
            Some(whole) if get.can_split(session) => {
                let mut gaps: Vec<_> = safe.gaps(whole).into_iter().collect();
                // All of it is here, and the server called it a failure: that is no success,
                // whatever it was. Where checksums decide, a little that comes well is.
                if gaps.is_empty() && get.finish_asks(session) {
                    gaps.push(ByteRange {
                        start: whole.end - whole.len().min(PROOF_BYTES),
                        end: whole.end,
                    });
                }
                if !gaps.is_empty() {
                    let moved = whole.len() - gaps.iter().map(|g| g.len()).sum::<u64>();
                    let left = gaps.into_iter().map(Some).collect();
                    return RangeOutcome::failed(error, moved, left);
                }
            }
            _ => {}
        }
        RangeOutcome::failed(error, 0, vec![range])
    }

    /// Bytes pass by once: a failed attempt cannot be followed by another.
    pub(crate) fn is_stream(&self) -> bool {
        match &self.side {
            FileTransfer::Download(get) => get.is_stream(),
            FileTransfer::Upload(put) => put.is_stream(),
        }
    }

    fn can_split(&self, session: &Session) -> bool {
        match &self.side {
            FileTransfer::Download(get) => get.can_split(session),
            FileTransfer::Upload(put) => put.can_split(session),
        }
    }

    /// A worker is through with its piece, or as far as it got: `left` is for others.
    pub(crate) fn piece_done(&self, outcome: Result<u64>, left: Vec<ByteRange>) -> NextStep {
        let mut pieces = self.lock();
        pieces.busy -= 1;
        match outcome {
            Ok(bytes) => pieces.moved += bytes,
            Err(error) => {
                pieces.unclaimed.clear();
                pieces.failure.get_or_insert(error);
            }
        }
        // A file that has failed is not gone on with.
        if pieces.failure.is_none() {
            pieces.unclaimed.extend(left);
        }
        if pieces.busy > 0 || !pieces.unclaimed.is_empty() {
            return NextStep::Others;
        }
        let moved = pieces.moved;
        match pieces.failure.take() {
            None => NextStep::Finish { moved },
            Some(error) => NextStep::Discard { error, moved },
        }
    }

    /// Finishing asks the server something.
    pub(crate) fn finish_asks(&self, session: &Session) -> bool {
        match &self.side {
            FileTransfer::Download(get) => get.finish_asks(session),
            FileTransfer::Upload(_) => true,
        }
    }

    /// Checksums and the final name.
    pub(crate) async fn finish(
        &self,
        session: &mut Session,
        moved: u64,
    ) -> Result<Option<AgreedChecksum>> {
        self.source_file.check_unchanged()?;
        match &self.side {
            FileTransfer::Download(get) => get.finish(session).await,
            FileTransfer::Upload(put) => put.finish(session, self.resumed_bytes() + moved).await,
        }
    }

    /// Why it failed, with where things lie that are not where they were.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.side {
            FileTransfer::Download(_) => error,
            FileTransfer::Upload(put) => put.explain(error),
        }
    }

    /// Bytes that are to be moved again after `error`, which followed so many repairs; `None` where
    /// that is no remedy. Where nobody knows which bytes are bad, once more is enough: what moves
    /// them badly each time is nothing that another attempt mends.
    pub(crate) fn to_repair(&self, error: &Error, repairs: u32) -> Option<Vec<Option<ByteRange>>> {
        let ranges: Vec<_> = match error {
            Error::Mismatch(mismatch) => mismatch.ranges.iter().copied().map(Some).collect(),
            // The server confirmed what it did not get.
            Error::Size { .. } if self.length().is_some() => Vec::new(),
            _ => return None,
        };
        let (bad, most) = match ranges.is_empty() {
            true => (vec![None], 1),
            false => (ranges, REPAIRS_MAX),
        };
        (repairs < most && !self.is_stream()).then_some(bad)
    }

    /// The server refused the temporary name of a put: what is begun instead.
    pub(crate) fn refused_name(&self, error: &Error) -> Option<SourceFile> {
        match &self.side {
            FileTransfer::Download(_) => None,
            FileTransfer::Upload(put) => {
                let refused = put.refused_name(&self.endpoint, error)?;
                let is_standard = matches!(
                    self.source_file.other,
                    Peer::From(Origin::Here(LocalEnd::Standard))
                );
                // Closing another pipe ends whatever writes to it.
                let can_be_read = !put.is_stream() || is_standard && put.has_whole_stream();
                can_be_read.then(|| self.source_file.under_another_name(refused))
            }
        }
    }

    /// The server does not rename: what is begun in place.
    pub(crate) fn refused_rename(&self, error: &Error) -> Option<SourceFile> {
        match &self.side {
            FileTransfer::Download(_) => None,
            FileTransfer::Upload(put) => {
                let refused = put.refused_rename(&self.endpoint, error)?;
                Some(self.source_file.under_another_name(refused))
            }
        }
    }

    /// What a failure leaves at the server; what it leaves here goes with this value.
    pub(crate) fn leftover(&self) -> Option<&FtpPath> {
        match &self.side {
            FileTransfer::Download(_) => None,
            FileTransfer::Upload(put) => put.leftover(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskState> {
        self.pieces.lock()
    }
}

fn rest_of(all: ByteRange, piece: ByteRange) -> Option<ByteRange> {
    ByteRange::new(piece.end, all.end).filter(|r| !r.is_empty())
}
