//! A file that one or several workers move.

use std::{sync::Arc, time::Instant};

use godwit_proto::{ByteRange, FtpPath, pi::transfer::Direction};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::piece_size::{PieceSizer, SessionRate};
use crate::{
    endpoint::{Endpoint, uploads::PartedUpload},
    error::{Error, Result},
    report::events::{DividedUpload, Division, Event},
    session::{NextTransfer, Session, SessionPair, retry::Operation},
    spec::JobSpec,
    transfer::{
        FileTransfer, OpenFile, PIECE_BYTES_MIN, PieceSize, SMALL_BYTES_MAX,
        range_outcome::RangeOutcome,
        resume,
        source_file::{LocalEnd, Origin, Peer, SourceFile},
        verify::AgreedChecksum,
    },
};

/// Bad ranges of a file are moved again so often. Chosen arbitrarily: a path that damages bytes
/// each time has to be reported.
const REPAIRS_MAX: u32 = 3;

/// A file whose ends are open.
pub(crate) struct FileTask {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) source_file: SourceFile,
    /// The source, for messages and logs.
    pub(crate) path: String,
    pub(crate) began: Instant,
    transfer: Arc<dyn FileTransfer>,
    state: Mutex<TaskState>,
    /// What an earlier run has not moved, where it left a partial file.
    missing: Option<Vec<ByteRange>>,
    /// A session that is wanted no more ends its piece early.
    can_be_cut: bool,
    /// Another attempt, or a later run, can tell which bytes of it are right.
    is_resumable: bool,
    /// Notified when other workers may find something to do here.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct TaskState {
    /// Bytes that no worker has taken, in order.
    unclaimed: Vec<ByteRange>,
    /// Workers that move a piece now.
    busy: u32,
    moved: u64,
    failure: Option<Error>,
}

/// What is to be done after a piece.
pub(crate) enum NextStep {
    /// Others still move theirs.
    Others,
    /// All is there: finish.
    Finish { moved: u64 },
    /// It failed, and no worker moves it any more: clean up.
    Discard { error: Error, moved: u64 },
}

impl FileTask {
    /// Opens both ends. The caller holds the first piece: [`FileTask::first`].
    pub(crate) async fn begin(
        session: &mut SessionPair,
        source_file: SourceFile,
        spec: &JobSpec,
        changed: Arc<Notify>,
    ) -> Result<Self> {
        let open = OpenFile::begin(session, &source_file, spec).await?;
        if source_file.size.is_some_and(|size| size > SMALL_BYTES_MAX) {
            session.learn_stripes(&source_file.source()).await?;
        }
        let mut file = Self::new(session, open, source_file, changed);
        if file.source_file.is_assembled {
            file.missing = Some(Vec::new());
        } else if file.source_file.begun.is_some() || spec.part.is_some_and(|part| part.resumes) {
            let missing = file.transfer.missing(session).await;
            // Another attempt may be able to tell.
            file.missing = missing.inspect_err(|_| file.keep())?;
        }
        Ok(file)
    }

    /// Begins the upload to a bucket that several jobs are to send. `None`: the destination is no
    /// bucket, or they may not.
    pub(crate) async fn begin_divided(
        &self,
        session: &mut SessionPair,
        spec: &JobSpec,
    ) -> Result<Option<PartedUpload>> {
        let may = matches!(self.division(session, spec, None), Some(Ok(_)));
        match may && session.endpoint.is_bucket() {
            true => self.transfer.begin_divided(session).await.map(Some),
            false => Ok(None),
        }
    }

    /// How several jobs may copy it, or why they may not; `None`: this one does. `upload`: what it
    /// is sent to in a bucket.
    pub(crate) fn division<'a>(
        &'a self,
        session: &SessionPair,
        spec: &JobSpec,
        upload: Option<DividedUpload<'a>>,
    ) -> Option<std::result::Result<Division<'a>, String>> {
        let size = self.source_file.size?;
        if self.source_file.begun.is_some() || !spec.divides(Some(size)) {
            return None;
        }
        let lacks = |session: &Session, command| {
            let server = session.endpoint.name();
            Err(format!(
                "{server} has no {command}, which parts of files need"
            ))
        };
        let name = self
            .transfer
            .names()
            .and_then(|(temporary, _)| temporary.file_name());
        let is_plain = |name: &&[u8]| name.iter().all(u8::is_ascii_graphic);
        let is_bucket = session.endpoint.is_bucket();
        Some(
            match (
                &session.sender,
                name.filter(is_plain),
                self.source_file.changed,
            ) {
                _ if self.source_file.direction() == Direction::Get => {
                    Err("the destination is no server".to_owned())
                }
                (Some(source), ..) if is_bucket && !source.server.features.rest_stream => {
                    lacks(source, "REST")
                }
                _ if !is_bucket && !session.server.features.esto => lacks(session, "ESTO"),
                (Some(source), ..) if !is_bucket && !source.server.features.eret => {
                    lacks(source, "ERET")
                }
                _ if self.transfer.is_stream()
                    || !is_bucket && !self.transfer.can_split(session) =>
                {
                    Err("the source is no file".to_owned())
                }
                (_, None, _) => Err("the server takes no temporary name for it".to_owned()),
                (.., None) => Err("nothing tells when the source was changed".to_owned()),
                (_, Some(temporary), Some(changed)) => Ok(Division {
                    temporary,
                    size,
                    changed,
                    upload,
                }),
            },
        )
    }

    /// The same for a file of which nothing has to be asked before.
    pub(crate) fn begin_ahead(
        session: &SessionPair,
        source_file: SourceFile,
        spec: &JobSpec,
        changed: Arc<Notify>,
    ) -> Result<Self> {
        let open = OpenFile::open(session, &source_file, spec)?;
        Ok(Self::new(session, open, source_file, changed))
    }

    fn new(
        session: &SessionPair,
        open: OpenFile,
        source_file: SourceFile,
        changed: Arc<Notify>,
    ) -> Self {
        session.context.reporter.emit(&Event::Begins {
            path: source_file.source(),
            bytes: source_file.size,
        });
        Self {
            can_be_cut: open.can_be_cut(session),
            is_resumable: resume::can_resume(session) || open.has_version(),
            missing: None,
            endpoint: Arc::clone(&source_file.endpoint),
            path: source_file.source(),
            source_file,
            began: Instant::now(),
            transfer: open.shared(),
            state: Mutex::default(),
            changed,
        }
    }

    /// What moves and finishes it, for messages and retries.
    pub(crate) fn operation(&self) -> Operation<'_> {
        Operation {
            sender: self.source_file.sender(),
            ..Operation::on(&self.endpoint, &self.path)
        }
    }

    /// Decides whether the file is shared, and claims the first piece; `None`: all of it, however
    /// long that is. A put may be taken all at once, since others can take of it later.
    pub(crate) fn first(
        &self,
        session: &SessionPair,
        sizer: &PieceSizer,
        rate: SessionRate,
    ) -> (Option<ByteRange>, bool) {
        let mut state = self.state.lock();
        if let Some(missing) = &self.missing {
            // The last is claimed first.
            state.unclaimed.extend(missing.iter().rev());
            let piece = self.claim_of(&mut state, sizer, rate);
            state.busy = 1;
            return (piece.or(Some(ByteRange { start: 0, end: 0 })), true);
        }
        let all = self.length().and_then(|length| ByteRange::new(0, length));
        let may_share = self.transfer.can_split(session) && !session.stripes_whole_files();
        let shared = all.filter(|all| may_share && sizer.shares(all.len()));
        state.unclaimed.extend(shared);
        let piece = self.claim_of(&mut state, sizer, rate);
        state.busy = 1;
        (piece, shared.is_some())
    }

    /// Bytes to be moved, as far as known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.transfer.length()
    }

    /// Bytes that an earlier run has moved.
    pub(crate) fn resumed_bytes(&self) -> u64 {
        let missing = self.missing.as_ref().zip(self.length());
        missing.map_or(0, |(missing, length)| {
            length - missing.iter().map(|r| r.len()).sum::<u64>()
        })
    }

    /// Leaves what is there for a later run.
    pub(crate) fn keep(&self) {
        self.transfer.keep();
    }

    /// Takes from `todo` what a failed attempt has moved, and returns how many bytes that is.
    pub(crate) async fn find_resumable(
        &self,
        session: &mut SessionPair,
        todo: &mut Vec<Option<ByteRange>>,
    ) -> Result<u64> {
        self.transfer
            .find_resumable(session, &self.source_file, todo)
            .await
    }

    /// A later run can resume what a failure for such a reason leaves.
    pub(crate) fn is_resumable(&self, error: &Error) -> bool {
        let is_stored = |path| self.endpoint.uploads.is_stored(path);
        let has_all = self.leftover().is_some_and(is_stored);
        self.is_resumable && !has_all && error.keeps_partial_file()
    }

    /// The next piece that no worker has, for a session of `rate`.
    pub(crate) fn claim(&self, sizer: &PieceSizer, rate: SessionRate) -> Option<ByteRange> {
        let mut state = self.state.lock();
        match self.is_taken(&state) {
            true => None,
            false => self.claim_of(&mut state, sizer, rate),
        }
    }

    /// Another session moves bytes of it, and no second one may.
    fn is_taken(&self, state: &TaskState) -> bool {
        state.busy > 0 && self.transfer.takes_turns()
    }

    fn claim_of(
        &self,
        state: &mut TaskState,
        sizer: &PieceSizer,
        rate: SessionRate,
    ) -> Option<ByteRange> {
        let left = state.unclaimed.pop()?;
        let piece = match self.transfer.piece_size() {
            PieceSize::All => left,
            PieceSize::Long if self.can_be_cut => sizer.long_piece(left, rate),
            PieceSize::Long | PieceSize::Short => sizer.piece(left, rate),
        };
        state.unclaimed.extend(rest_of(left, piece));
        state.busy += 1;
        Some(piece)
    }

    /// Some piece of it is not there, nor will be.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// Part of what another session has and has not begun.
    pub(crate) fn steal_range(&self) -> Option<ByteRange> {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return None;
        }
        let stolen = self.transfer.steal_range(PIECE_BYTES_MIN)?;
        state.busy += 1;
        Some(stolen)
    }

    /// Bytes wait that no worker has taken.
    pub(crate) fn has_unclaimed(&self) -> bool {
        let state = self.state.lock();
        !state.unclaimed.is_empty() && !self.is_taken(&state)
    }

    /// There is, or will be, something for a further worker.
    pub(crate) fn has_work(&self) -> bool {
        let state = self.state.lock();
        !state.unclaimed.is_empty() && !self.is_taken(&state)
            || state.failure.is_none() && self.transfer.has_stealable_range(PIECE_BYTES_MIN)
    }

    /// A worker moves a piece of it, or one waits.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock();
        state.busy > 0 || !state.unclaimed.is_empty()
    }

    /// A session that moves a piece of it is faster when it knows the next.
    pub(crate) fn is_pipelined(&self, session: &SessionPair) -> bool {
        self.transfer.can_follow(session)
    }

    /// A worker will move `range` (`None`: all of it) next.
    pub(crate) fn will_move(&self, range: Option<ByteRange>) {
        self.transfer.will_move(range);
    }

    /// What will move `range` (`None`: all of it), where that can begin before its turn.
    pub(crate) fn prefetch(
        &self,
        session: &SessionPair,
        range: Option<ByteRange>,
    ) -> Option<NextTransfer> {
        Arc::clone(&self.transfer).prefetch(session, range)
    }

    /// Bytes of it went out before their turn, on a session that is gone.
    pub(crate) fn prefetch_wasted(&self, session: &SessionPair) -> bool {
        self.transfer.prefetch_wasted(session)
    }

    /// Moves bytes. `next` is what the session moves next, whatever comes of this.
    pub(crate) async fn move_range(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
    ) -> RangeOutcome {
        if range.is_some_and(ByteRange::is_empty) {
            return RangeOutcome::whole(0);
        }
        let began = || self.changed.notify_waiters();
        self.transfer.move_range(session, range, next, &began).await
    }

    /// Bytes pass by once: a failed attempt cannot be followed by another.
    pub(crate) fn is_stream(&self) -> bool {
        self.transfer.is_stream()
    }

    /// A worker is through with its piece, or as far as it got: `left` is for others.
    pub(crate) fn piece_done(&self, outcome: Result<u64>, left: Vec<ByteRange>) -> NextStep {
        let mut state = self.state.lock();
        state.busy -= 1;
        match outcome {
            Ok(bytes) => state.moved += bytes,
            Err(error) => {
                state.unclaimed.clear();
                state.failure.get_or_insert(error);
            }
        }
        // What is left of a file that has failed is not moved.
        if state.failure.is_none() {
            state.unclaimed.extend(left);
        }
        if state.busy > 0 || !state.unclaimed.is_empty() {
            return NextStep::Others;
        }
        let moved = state.moved;
        match state.failure.take() {
            None => NextStep::Finish { moved },
            Some(error) => NextStep::Discard { error, moved },
        }
    }

    /// Finishing asks the server something.
    pub(crate) fn finish_asks(&self, session: &SessionPair) -> bool {
        self.transfer.finish_asks(session)
    }

    /// Checksums and the final name.
    pub(crate) async fn finish(
        &self,
        session: &mut SessionPair,
        moved: u64,
    ) -> Result<Option<AgreedChecksum>> {
        self.source_file.check_unchanged()?;
        self.transfer
            .finish(session, self.resumed_bytes() + moved)
            .await
    }

    /// Why it failed, with where things lie that are not where they were.
    pub(crate) fn explain(&self, error: Error) -> Error {
        self.transfer.explain(error)
    }

    /// Bytes that are to be moved again after `error`, which followed so many repairs; `None` where
    /// that is no remedy. Where it is unknown which bytes are bad, once more is enough: what moves
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
        let refused = self.transfer.refused_name(&self.endpoint, error)?;
        let is_standard = matches!(
            self.source_file.other,
            Peer::From(Origin::Here(LocalEnd::Standard))
        );
        // Closing another pipe ends whatever writes to it.
        let can_be_read = !self.is_stream() || is_standard && self.transfer.has_whole_stream();
        can_be_read.then(|| self.source_file.under_another_name(refused))
    }

    /// The server does not rename: what is begun in place.
    pub(crate) fn refused_rename(&self, error: &Error) -> Option<SourceFile> {
        let refused = self.transfer.refused_rename(&self.endpoint, error)?;
        Some(self.source_file.under_another_name(refused))
    }

    /// What a failure leaves at the server; what it leaves here is removed with this value.
    pub(crate) fn leftover(&self) -> Option<&FtpPath> {
        self.transfer.leftover()
    }
}

fn rest_of(all: ByteRange, piece: ByteRange) -> Option<ByteRange> {
    ByteRange::new(piece.end, all.end).filter(|r| !r.is_empty())
}
