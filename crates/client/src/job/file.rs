//! A file that one or several workers move.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use godwit_proto::{ByteRange, FtpPath, RangeSet};
use tokio::sync::Notify;

use crate::{
    context::{Context, Endpoint},
    error::{Error, Result},
    events::Event,
    get::{Get, PROOF_BYTES},
    pieces::{Cutter, PIECE_BYTES_MIN, Speed},
    plan::{Item, OtherEnd},
    put::Put,
    session::{Next, Session},
    spec::JobSpec,
    taking_up,
    verify::Agreed,
};

/// Bad ranges of a file are moved again so often. Chosen arbitrarily: a path that spoils bytes each
/// time is to be heard of.
const REPAIRS_MAX: u32 = 3;

/// A file that has been begun.
pub(crate) struct FileJob {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) item: Item,
    /// The source, for messages and logs.
    pub(crate) path: String,
    pub(crate) began: Instant,
    side: Side,
    pieces: Mutex<Pieces>,
    /// What an earlier run has not brought, where one has begun it.
    missing: Option<Vec<ByteRange>>,
    /// A session that is wanted no more ends its piece early.
    can_be_cut: bool,
    /// Another attempt, or a later run, can tell what of it is right.
    can_be_taken_up: bool,
    /// Told when others may find something to do here.
    changed: Arc<Notify>,
}

enum Side {
    Get(Box<Get>),
    Put(Arc<Put>),
}

#[derive(Default)]
struct Pieces {
    /// Bytes that nobody has begun, in order.
    unclaimed: Vec<ByteRange>,
    /// Workers that move a piece now.
    busy: u32,
    moved: u64,
    failure: Option<Error>,
}

/// How moving some bytes went.
pub(crate) struct Carried {
    pub(crate) result: Result<()>,
    /// Bytes that are there for good.
    pub(crate) moved: u64,
    /// What is still to be moved, also after a success that was cut short; `None` in it: all of the
    /// file.
    pub(crate) left: Vec<Option<ByteRange>>,
}

impl Carried {
    /// All of it is there.
    pub(crate) fn whole(moved: u64) -> Self {
        Self {
            result: Ok(()),
            moved,
            left: Vec::new(),
        }
    }

    /// It failed, and bytes of `range` are `safe`, counted from its start.
    pub(crate) fn failed_but(error: Error, range: ByteRange, safe: &RangeSet) -> Self {
        let Self { moved, left, .. } = Self::cut_short(range, safe);
        // All of it is there, and a server called it a failure: that is no success, whatever it
        // was.
        if left.is_empty() {
            return Self::failed(error, 0, vec![Some(range)]);
        }
        Self::failed(error, moved, left)
    }

    /// It was called off, and bytes of `range` are `safe`, counted from its start.
    pub(crate) fn cut_short(range: ByteRange, safe: &RangeSet) -> Self {
        let left = safe.gaps(ByteRange {
            start: 0,
            end: range.len(),
        });
        let moved = range.len() - left.iter().map(|r| r.len()).sum::<u64>();
        let left = left
            .into_iter()
            .map(|r| ByteRange::new(range.start + r.start, range.start + r.end));
        Self {
            result: Ok(()),
            moved,
            left: left.collect(),
        }
    }

    pub(crate) fn failed(error: Error, moved: u64, left: Vec<Option<ByteRange>>) -> Self {
        Self {
            result: Err(error),
            moved,
            left,
        }
    }
}

/// What a file has to do for a worker that has nothing.
pub(crate) enum Claim {
    Piece(ByteRange),
    /// Nothing yet, but perhaps soon.
    Later,
    Nothing,
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
    pub(crate) async fn begin(
        session: &mut Session,
        item: Item,
        spec: &JobSpec,
        changed: Arc<Notify>,
    ) -> Result<Self> {
        let (part, wish) = (spec.part, spec.verify);
        let side = match &item.other {
            OtherEnd::To(to) => Side::Get(Get::begin(session, &item, to, part, wish).await?.into()),
            OtherEnd::From(from) => {
                Side::Put(Put::begin(session, &item, from, part, wish).await?.into())
            }
        };
        let mut file = Self::of(session, side, item, changed);
        if file.item.begun.is_some() {
            let missing = match &file.side {
                Side::Get(get) => get.missing(session).await,
                Side::Put(put) => put.missing(session, None).await,
            };
            // Another attempt may be able to tell.
            file.missing = missing.inspect_err(|_| file.keep())?;
        }
        Ok(file)
    }

    /// The same for a file of which nothing has to be asked before.
    pub(crate) fn begin_ahead(
        session: &Session,
        item: Item,
        spec: &JobSpec,
        changed: Arc<Notify>,
    ) -> Result<Self> {
        let (part, wish) = (spec.part, spec.verify);
        let side = match &item.other {
            OtherEnd::To(to) => Side::Get(Get::open(session, &item, to, part, wish)?.into()),
            OtherEnd::From(from) => {
                Side::Put(Put::open(session, &item, from, part, wish, true)?.into())
            }
        };
        Ok(Self::of(session, side, item, changed))
    }

    fn of(session: &Session, side: Side, item: Item, changed: Arc<Notify>) -> Self {
        session.context.emit(&Event::Begins {
            path: item.source(),
            bytes: item.size,
        });
        Self {
            can_be_cut: matches!(&side, Side::Put(put) if put.can_be_cut(session)),
            can_be_taken_up: taking_up::is_possible(session)
                || match &side {
                    Side::Get(get) => get.has_version(),
                    Side::Put(put) => put.has_version(),
                },
            missing: None,
            endpoint: Arc::clone(&item.endpoint),
            path: item.source(),
            item,
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
        cutter: &Cutter,
        speed: Speed,
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
            let piece = self.part_of(left, cutter, speed);
            pieces.unclaimed.extend(rest_of(left, piece));
            return (Some(piece), true);
        }
        match length.and_then(|length| ByteRange::new(0, length)) {
            Some(all) if self.can_split(session) && cutter.shares(all.len()) => {
                let piece = self.part_of(all, cutter, speed);
                pieces.unclaimed = rest_of(all, piece).into_iter().collect();
                (Some(piece), true)
            }
            _ => (None, false),
        }
    }

    /// Bytes to be moved, as far as known.
    pub(crate) fn length(&self) -> Option<u64> {
        match &self.side {
            Side::Get(get) => get.length(),
            Side::Put(put) => put.length(),
        }
    }

    /// Bytes that an earlier run has brought.
    pub(crate) fn there(&self) -> u64 {
        let missing = self.missing.as_ref().zip(self.length());
        missing.map_or(0, |(missing, length)| {
            length - missing.iter().map(|r| r.len()).sum::<u64>()
        })
    }

    /// Leaves what is there for a later run.
    pub(crate) fn keep(&self) {
        match &self.side {
            Side::Get(get) => get.keep(),
            Side::Put(put) => put.keep(),
        };
    }

    /// What of `todo` a server has that was sent it before, in an attempt that failed: how many
    /// bytes, which are to be moved no more.
    pub(crate) async fn take_up(
        &self,
        session: &mut Session,
        todo: &mut Vec<Option<ByteRange>>,
    ) -> Result<u64> {
        let put = match &self.side {
            Side::Put(put) => put,
            Side::Get(get) => {
                // A get knows itself what it has written, and not whether that is still right.
                let begins = |range: &Option<ByteRange>| range.is_none_or(|range| range.start == 0);
                if get.is_in_order()
                    && !todo.iter().any(begins)
                    && !Box::pin(get.is_unchanged(session, &self.item)).await?
                {
                    *todo = vec![None];
                }
                return Ok(0);
            }
        };
        if put.is_in_order() && !self.item.is_unchanged()? {
            let what = self.item.source();
            return Err(Error::Changed { what });
        }
        let mut there = 0;
        let mut left = Vec::new();
        for range in todo.iter() {
            let bytes = range.map(ByteRange::len).or(put.length());
            match (put.missing(session, *range).await?, bytes) {
                (Some(ranges), Some(bytes)) => {
                    let missing = ranges.iter().map(|r| r.len()).sum::<u64>();
                    there += bytes.saturating_sub(missing);
                    // The last is sent first.
                    left.extend(ranges.into_iter().rev().map(Some));
                }
                _ => left.push(*range),
            }
        }
        *todo = left;
        Ok(there)
    }

    /// A later run could go on where this one failed for such a reason.
    pub(crate) fn can_be_taken_up(&self, error: &Error) -> bool {
        self.can_be_taken_up && error.leaves_what_is_there()
    }

    fn part_of(&self, left: ByteRange, cutter: &Cutter, speed: Speed) -> ByteRange {
        match &self.side {
            // Nobody can take of what another server sends.
            Side::Put(put) if !put.is_relayed() => left,
            Side::Put(_) if self.can_be_cut => cutter.long_piece(left, speed),
            Side::Get(get) if get.is_in_order() => left,
            Side::Get(_) | Side::Put(_) => cutter.piece(left, speed),
        }
    }

    /// The next piece that nobody has, for a session of `speed`.
    pub(crate) fn claim(&self, cutter: &Cutter, speed: Speed) -> Option<ByteRange> {
        let mut pieces = self.lock();
        let left = pieces.unclaimed.pop()?;
        let piece = self.part_of(left, cutter, speed);
        pieces.unclaimed.extend(rest_of(left, piece));
        pieces.busy += 1;
        Some(piece)
    }

    /// Some piece of it is not there, nor will be.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Part of what another session has and has not begun.
    pub(crate) fn relieve(&self) -> Claim {
        let Side::Put(put) = &self.side else {
            return Claim::Nothing;
        };
        let mut pieces = self.lock();
        if pieces.failure.is_some() {
            return Claim::Nothing;
        }
        match put.take_tail(PIECE_BYTES_MIN) {
            Some(tail) => {
                pieces.busy += 1;
                Claim::Piece(tail)
            }
            None if put.may_have_tail(PIECE_BYTES_MIN) => Claim::Later,
            None => Claim::Nothing,
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
            Side::Get(_) => false,
            Side::Put(put) => pieces.failure.is_none() && put.may_have_tail(PIECE_BYTES_MIN),
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
            Side::Get(get) => !get.is_in_order(),
            Side::Put(put) => put.can_follow(session),
        }
    }

    /// A worker will move `range` (`None`: all of it) next.
    pub(crate) fn will_carry(&self, range: Option<ByteRange>) {
        if let Side::Put(put) = &self.side {
            put.will_send(range);
        }
    }

    /// What will move `range` (`None`: all of it), where that can begin before its turn.
    pub(crate) fn ahead(&self, session: &Session, range: Option<ByteRange>) -> Option<Next> {
        match &self.side {
            Side::Get(get) => get.ahead(session, range),
            Side::Put(put) => put.ahead(session, range),
        }
    }

    /// Bytes of it went out before their turn, on a session that is gone.
    pub(crate) fn went_ahead_in_vain(&self, session: &Session) -> bool {
        match &self.side {
            Side::Get(_) => false,
            Side::Put(put) => put.went_ahead_in_vain(session),
        }
    }

    /// Moves bytes. `next` is what the session moves next, whatever comes of this.
    pub(crate) async fn carry(
        &self,
        session: &mut Session,
        range: Option<ByteRange>,
        next: Option<Next>,
    ) -> Carried {
        if range.is_some_and(ByteRange::is_empty) {
            return Carried::whole(0);
        }
        let get = match &self.side {
            Side::Put(put) => {
                let began = || self.changed.notify_waiters();
                return put.send(session, range, next, &began).await;
            }
            Side::Get(get) => get,
        };
        let mut range = range;
        let (mut result, mut safe) = get.fetch(session, range, next).await;
        if get.is_refused_in_order(range, &result) && session.is_usable() {
            // From the first byte on it needs no REST.
            range = None;
            (result, safe) = Box::pin(get.fetch(session, range, None)).await;
        }
        let error = match result {
            Ok(bytes) => return Carried::whole(bytes),
            Err(error) => error,
        };
        let whole = range.or_else(|| get.length().and_then(|l| ByteRange::new(0, l)));
        match whole {
            Some(whole) if get.is_in_order() => {
                let (moved, left) = get.after_failure(whole, &safe, &error);
                return Carried::failed(error, moved, vec![left]);
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
                    return Carried::failed(error, moved, left);
                }
            }
            _ => {}
        }
        Carried::failed(error, 0, vec![range])
    }

    /// Bytes pass by once: a failed attempt cannot be followed by another.
    pub(crate) fn is_stream(&self) -> bool {
        match &self.side {
            Side::Get(get) => get.is_stream(),
            Side::Put(put) => put.is_stream(),
        }
    }

    fn can_split(&self, session: &Session) -> bool {
        match &self.side {
            Side::Get(get) => get.can_split(session),
            Side::Put(put) => put.can_split(session),
        }
    }

    /// A worker is through with its piece, or as far as it got: `left` is for others.
    pub(crate) fn piece_done(&self, outcome: Result<u64>, left: Vec<ByteRange>) -> After {
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
            return After::Others;
        }
        let moved = pieces.moved;
        match pieces.failure.take() {
            None => After::Finish { moved },
            Some(error) => After::Discard { error, moved },
        }
    }

    /// Finishing asks the server something.
    pub(crate) fn finish_asks(&self, session: &Session) -> bool {
        match &self.side {
            Side::Get(get) => get.finish_asks(session),
            Side::Put(_) => true,
        }
    }

    /// Checksums and the final name.
    pub(crate) async fn finish(&self, session: &mut Session, moved: u64) -> Result<Option<Agreed>> {
        self.item.check_unchanged()?;
        match &self.side {
            Side::Get(get) => get.finish(session).await,
            Side::Put(put) => put.finish(session, self.there() + moved).await,
        }
    }

    /// Why it failed, with where things lie that are not where they were.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.side {
            Side::Get(_) => error,
            Side::Put(put) => put.explain(error),
        }
    }

    /// Bytes that are to be moved again after `error`, which followed so many repairs; `None` where
    /// that is no remedy. Where nobody knows which bytes are bad, once more is enough: what moves
    /// them badly each time is nothing that another attempt mends.
    pub(crate) fn to_repair(&self, error: &Error, repairs: u32) -> Option<Vec<Option<ByteRange>>> {
        let Error::Mismatch(mismatch) = error else {
            return None;
        };
        let ranges: Vec<_> = mismatch.ranges.iter().copied().map(Some).collect();
        let (bad, most) = match ranges.is_empty() {
            true => (vec![None], 1),
            false => (ranges, REPAIRS_MAX),
        };
        (repairs < most && !self.is_stream()).then_some(bad)
    }

    /// The server refused the temporary name of a put: it is begun again, under another one.
    pub(crate) fn refused_name(&self, context: &Context, error: &Error) -> bool {
        match &self.side {
            Side::Get(_) => false,
            Side::Put(put) => {
                let instead = put.refused_name(context, &self.endpoint, error);
                !put.is_stream() && instead.is_some()
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_off_leaves_what_the_receiver_has_not() {
        let range = ByteRange::new(1000, 2000).unwrap();
        let mut safe = RangeSet::new();
        safe.insert(ByteRange::new(0, 300).unwrap());
        safe.insert(ByteRange::new(500, 900).unwrap());
        let Carried {
            result,
            moved,
            left,
        } = Carried::cut_short(range, &safe);
        assert!(result.is_ok());
        let gaps = [(1300, 1500), (1900, 2000)].map(|(start, end)| ByteRange::new(start, end));
        assert_eq!((moved, left), (700, gaps.to_vec()));
        assert!(Carried::cut_short(range, &RangeSet::new()).moved == 0);
    }
}
